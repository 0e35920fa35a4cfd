//! Services that fail, and runs that end.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipc_proto::broker::{FromBroker, UpstreamTrouble};
use ipc_proto::proxy::{Decision, Reason};

use crate::exchange::CHAT;
use crate::stage::{Broker, KEY, Model, Reach, Terms, WAIT, read};

/// MOD-11: what the service itself answers is the agent's, whatever it is.
#[test]
fn errors_of_the_service_pass_through() {
    for status in [400u16, 401, 403, 404, 429, 500, 503, 529] {
        let model = Model::start(move |_, stream| {
            let body = r#"{"error":{"message":"theirs"}}"#;
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nretry-after: 7\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).is_ok()
        });
        let broker = model.broker();
        let run = broker.open(1, &Terms::default());
        let answer = run.chat(CHAT);
        assert_eq!((answer.status, answer.header("retry-after")), (status, Some("7")));
        assert_eq!(answer.body, r#"{"error":{"message":"theirs"}}"#);
        let (_, end) = run.both_reports();
        assert_eq!((end.decision, end.status, end.trouble), (Decision::Allow, status, None));
    }
}

/// MOD-11: a service that hangs, answers nonsense or goes away is an error at once, in the service's own
/// shape, and the report says which.
#[test]
fn a_service_that_fails_is_an_error() {
    let silent = Model::start(|_, stream| read(stream, &mut [0]).is_err());
    let nonsense = Model::start(|_, stream| stream.write_all(b"SSH-2.0-OpenSSH\r\n\r\n").is_err());
    let gone = Model::start(|_, _| false);
    let terms = Terms { silence: Duration::from_millis(700), ..Terms::default() };
    for (name, model, trouble, status, rule) in [
        ("silent", &silent, UpstreamTrouble::Silent, 504, "upstream_timeout"),
        ("nonsense", &nonsense, UpstreamTrouble::Malformed, 502, "upstream_malformed"),
        ("gone", &gone, UpstreamTrouble::Cut, 502, "upstream_closed"),
    ] {
        let broker = model.broker();
        let run = broker.open(1, &terms);
        let before = Instant::now();
        let answer = run.chat(CHAT);
        assert!(before.elapsed() < Duration::from_secs(5), "{name}");
        assert_eq!(answer.status, status, "{name}");
        assert!(answer.body.contains("anet: ") && answer.body.contains(rule), "{name}: {}", answer.body);
        let (_, end) = run.both_reports();
        assert_eq!(
            (end.decision, end.trouble, end.status),
            (Decision::Fail, Some(trouble), status),
            "{name}"
        );
    }
}

/// MOD-11, USE-4: a service that cannot be reached is an error at once, with the proxy's reason; the agent tries again only
/// where that can help, and is told that the operator has to act where it cannot.
#[test]
fn a_service_out_of_reach_is_an_error() {
    for (reason, rule, again) in [
        (Reason::ConnectFailed, "upstream_unreachable", true),
        (Reason::ConnectTimeout, "upstream_unreachable", true),
        (Reason::DnsIncomplete, "upstream_unreachable", true),
        (Reason::NameNotFound, "upstream_address", false),
        (Reason::TooManyAddresses, "upstream_address", false),
        (Reason::AddressPrivate, "upstream_address", false),
        (Reason::AddressLoopback, "upstream_address", false),
        (Reason::AddressMetadata, "upstream_address", false),
        (Reason::AddressOwn, "upstream_address", false),
    ] {
        let broker = Broker::start("https://models.example.com/v1", Some(KEY), Reach::Nowhere(reason));
        let run = broker.open(1, &Terms::default());
        let answer = run.chat(CHAT);
        assert_eq!(answer.status, 502);
        let said = |words: &str| answer.body.contains(words);
        assert!(said(reason.as_str()) && said(&format!("({rule})")), "{}", answer.body);
        assert_eq!(said("the operator of this machine"), !again, "{}", answer.body);
        assert_eq!(answer.header("x-should-retry"), if again { None } else { Some("false") }, "{rule}");
        assert!(!said("canary") && !broker.log().contains("canary"));
        let (_, end) = run.both_reports();
        assert_eq!(end.trouble, Some(UpstreamTrouble::Unreachable(reason)));
    }
}

/// MOD-11: an answer that is cut, or goes silent, never looks whole to the agent; between two events of a stream a last one
/// says why.
#[test]
fn a_cut_answer_does_not_look_whole() {
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let counted = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n";
    for (name, head, piece, stays, says) in [
        ("a stream, between events", chunked, "9\r\ndata: 1\n\n\r\n", false, Some("upstream_closed")),
        ("a stream, in an event", chunked, "8\r\ndata: 1\n\r\n", false, None),
        ("a silent stream", chunked, "9\r\ndata: 1\n\n\r\n", true, Some("upstream_timeout")),
        ("a counted body", counted, "{\"a\":", false, None),
        ("a silent counted body", counted, "{\"a\":", true, None),
    ] {
        let model = Model::start(move |_, stream| {
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(piece.as_bytes()).unwrap();
            // The parser may have both in one read otherwise, and that would be no test of a stream.
            std::thread::sleep(Duration::from_millis(50));
            if stays {
                let _ = read(stream, &mut [0]);
            }
            false
        });
        let broker = model.broker();
        let run = broker.open(1, &Terms { silence: Duration::from_millis(700), ..Terms::default() });
        let mut agent = run.connect();
        agent.post("/v1/chat/completions", "", CHAT.as_bytes());
        let answer = agent.answer();
        assert!(!answer.whole, "{name}: {answer:?}");
        assert!(agent.is_closed(), "{name}");
        match says {
            Some(rule) => {
                assert!(answer.body.contains("anet: ") && answer.body.contains(rule), "{name}: {answer:?}")
            }
            None => assert!(!answer.body.contains("anet: "), "{name}: {answer:?}"),
        }
        let (_, end) = run.both_reports();
        let trouble = if stays { UpstreamTrouble::Silent } else { UpstreamTrouble::Cut };
        assert_eq!((end.status, end.decision, end.trouble), (200, Decision::Fail, Some(trouble)), "{name}");
    }
}

/// SBX-5, MOD-11: the end of a run ends its connections and what it asked for, and the last reports come before the last
/// word.
#[test]
fn the_end_of_a_run_ends_everything_of_it() {
    let ((tell, closed), (ask, asked)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let model = Model::start(move |_, stream| {
        ask.send(()).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        tell.send(read(stream, &mut [0]).is_ok_and(|count| count == 0)).unwrap();
        false
    });
    let broker = model.broker();
    let (run, other) = (broker.open(1, &Terms::default()), broker.open(2, &Terms::default()));
    let (mut asking, mut idle) = (run.connect(), run.connect());
    let mut of_another = other.connect();
    asking.post("/v1/chat/completions", "", CHAT.as_bytes());
    assert!(!run.report().ended);
    asked.recv_timeout(WAIT).unwrap();
    let endpoint = run.endpoint;
    let before = Instant::now();
    let (reports, totals) = run.close();
    assert!(before.elapsed() < Duration::from_secs(2));
    assert_eq!(reports.len(), 1);
    assert!(reports[0].ended && reports[0].trouble.is_none());
    assert_eq!((totals.requests, totals.connections), (1, 2));
    assert!(closed.recv_timeout(WAIT).unwrap());
    assert!(asking.is_closed() && idle.is_closed());
    assert!(std::net::TcpStream::connect(endpoint).is_err(), "nobody listens any more");
    // Another run does not notice.
    of_another.get("GET", "/v1/models");
    assert_eq!(of_another.answer().status, 200);
    assert!(matches!(broker.next(), FromBroker::Request { run, .. } if run == other.run));
    // The name is free.
    broker.open(1, &Terms::default());
}

/// MOD-13, PRV-4: a service whose certificate nobody in the system's store vouches for gets neither the request nor the key;
/// and TLS works with the system calls that the process has left.
#[test]
fn a_service_that_is_not_trusted_gets_nothing() {
    let certificate = rcgen::generate_simple_self_signed(["models.example.com".to_owned()]).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.cert.der().clone()],
                rustls::pki_types::PrivateKeyDer::Pkcs8(certificate.signing_key.serialize_der().into()),
            )
            .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut got = Vec::new();
        let ended = rustls::Stream::new(&mut tls, &mut stream).read_to_end(&mut got);
        (got, ended.map_err(|error| error.to_string()))
    });
    let broker = Broker::start("https://models.example.com/v1", Some(KEY), Reach::To(address));
    let run = broker.open(1, &Terms::default());
    let answer = run.chat(CHAT);
    assert_eq!(answer.status, 502);
    assert!(answer.body.contains("upstream_tls"), "{}", answer.body);
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    let (_, end) = run.both_reports();
    assert_eq!((end.decision, end.trouble), (Decision::Fail, Some(UpstreamTrouble::Untrusted)));
    let (got, ended) = server.join().unwrap();
    assert!(got.is_empty());
    // The broker says why: an alert of TLS, not a mere end.
    assert!(ended.unwrap_err().contains("alert"));
}
