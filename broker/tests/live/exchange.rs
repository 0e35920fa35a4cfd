//! Questions and answers.

use std::io::Write;
use std::time::{Duration, Instant};

use ipc_proto::broker::{FromBroker, Interface, KeyState, ModelLimits};
use ipc_proto::proxy::Decision;

use crate::stage::{Broker, KEY, MODEL, Model, Reach, Terms, WAIT, read};

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\nset-cookie: a=b\r\nx-request-id: r-1\r\n\r\n{\"ok\":true}";
pub(crate) const CHAT: &str = r#"{"model":"another","messages":[{"role":"user","content":"hi"}]}"#;

/// MOD-1, MOD-2, MOD-3, MOD-6, MOD-7: the service gets the operator's key, the pinned model, the cap and nothing of the
/// agent's own; the agent gets the answer, with headers of the list; the supervisor hears of it twice, with the bytes that
/// the service counted.
#[test]
fn a_question_is_rewritten_answered_and_reported() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let (_, key, roots) = broker.hello;
    assert_eq!(key, KeyState::Ready);
    assert!(roots > 0, "this host has a certificate store");
    let run = broker.open(1, &Terms::default());

    let mut agent = run.connect();
    let headers = "Authorization: Bearer placeholder\r\nX-Api-Key: placeholder\r\nCookie: c\r\nAccept-Encoding: gzip\r\n\
        OpenAI-Organization: o\r\nUser-Agent: test/1\r\n";
    agent.post("/v1/chat/completions", headers, CHAT.as_bytes());
    let answer = agent.answer();
    assert_eq!((answer.status, answer.body.as_str(), answer.whole), (200, "{\"ok\":true}", true));
    assert_eq!(answer.header("x-request-id"), Some("r-1"));
    assert_eq!(answer.header("set-cookie"), None);

    let asked = model.next();
    let head = asked.head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("authorization: bearer {KEY}\r\n")), "{head}");
    assert!(head.contains("accept-encoding: identity\r\n"), "{head}");
    assert!(head.contains(&format!("host: {}\r\n", model.address)), "{head}");
    for gone in ["placeholder", "cookie", "organization", "gzip"] {
        assert!(!head.contains(gone), "{head}");
    }
    assert_eq!(asked.body["model"], MODEL);
    assert_eq!(asked.body["max_tokens"], 8192);
    assert_eq!(asked.body["store"], false);

    let (out, end) = run.both_reports();
    assert_eq!(out.request, 1);
    assert_eq!(out.interface, Some(Interface::ChatCompletions));
    assert_eq!((out.decision, out.status, out.bytes_out), (Decision::Allow, 0, asked.bytes));
    assert_eq!((end.decision, end.status, end.bytes_in, end.trouble), (Decision::Allow, 200, 11, None));

    // The same connection serves the next one, and the service's is kept.
    agent.post("/v1/chat/completions", "", CHAT.as_bytes());
    assert_eq!(agent.answer().status, 200);
    run.both_reports();
    assert_eq!(broker.dials.load(std::sync::atomic::Ordering::SeqCst), 1);
    let (_, totals) = run.close();
    assert_eq!((totals.requests, totals.refused, totals.connections), (2, 0, 1));
    assert_eq!(totals.body, u64::try_from(CHAT.len()).unwrap());
    assert_eq!(totals.total, 2 * u64::try_from(asked.body.to_string().len()).unwrap());
}

/// MOD-9: what needs no service is answered here: the list of models, probes, other paths and methods.
#[test]
fn probes_are_answered_at_once() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &Terms::default());
    let mut agent = run.connect();
    agent.get("GET", "/v1/models");
    let answer = agent.answer();
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains(MODEL), "{}", answer.body);
    let report = run.report();
    assert_eq!((report.decision, report.ended, report.interface), (Decision::Allow, true, None));

    for (method, path, status) in
        [("GET", "/api/tags", 404), ("GET", "/v1/messages", 405), ("PUT", "/v1/models", 405)]
    {
        agent.get(method, path);
        let answer = agent.answer();
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.body.contains("anet: "), "{}", answer.body);
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        let report = run.report();
        assert_eq!((report.decision, report.status, report.ended), (Decision::Deny, status, true));
        assert!(!report.rule.is_empty());
    }
    agent.get("HEAD", "/api/hello");
    assert!(agent.head().starts_with("HTTP/1.1 404 "));
    run.report();
    agent.send(
        format!(
            "GET /v1/responses HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            run.endpoint
        )
        .as_bytes(),
    );
    assert_eq!(agent.answer().status, 426);
    assert!(model.asked.try_recv().is_err(), "the service was asked");
}

/// MOD-8: heads with two readings never reach the service, are answered in the service's own shape, and end the connection,
/// however they are cut into segments.
#[test]
fn a_head_with_two_readings_is_refused() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &Terms::default());
    let host = run.endpoint;
    let body = CHAT;
    let length = body.len();
    let heads = [
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
        format!("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}"),
        format!("POST /v1/chat/completions HTTP/1.1\nHost: {host}\nContent-Length: {length}\n\n{body}"),
        format!(
            "POST http://{host}/v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
        ),
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
        ),
        format!(
            "POST /v1/chat/completions HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: evil.example\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
        "\u{16}\u{3}\u{1}".to_owned(),
    ];
    for head in &heads {
        for cut in [head.len(), 1] {
            let mut agent = run.connect();
            for piece in head.as_bytes().chunks(cut) {
                // The broker may have closed already.
                if agent.stream.write_all(piece).is_err() {
                    break;
                }
            }
            let answer = agent.answer();
            assert!((400..500).contains(&answer.status), "{head:?}: {answer:?}");
            assert!(answer.body.contains("anet: "), "{head:?}: {answer:?}");
            assert!(agent.is_closed(), "{head:?}");
            let report = run.report();
            assert_eq!((report.decision, report.ended), (Decision::Deny, true));
        }
    }
    assert!(model.asked.try_recv().is_err(), "the service was asked");
    let (_, totals) = run.close();
    assert_eq!((totals.requests, totals.refused), (0, 20));
}

/// MOD-8: requests sent in advance are answered one after another, each after its own head was read.
#[test]
fn requests_in_advance_wait_for_their_turn() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &Terms::default());
    let mut agent = run.connect();
    for _ in 0..3 {
        agent.post("/v1/chat/completions", "", CHAT.as_bytes());
    }
    agent.send(b"GET / HTTP/1.0\r\n\r\n");
    for _ in 0..3 {
        assert_eq!(agent.answer().status, 200);
    }
    assert_eq!(agent.answer().status, 400);
    assert!(agent.is_closed());
}

/// MOD-11: a client that waits to be told to go on is told so, and not when its body is refused.
#[test]
fn expect_continue_is_answered() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let limits = ModelLimits { body: Some(1000), ..ModelLimits::default() };
    let run = broker.open(1, &Terms { limits, ..Terms::default() });
    let mut agent = run.connect();
    let head = |length: usize| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n",
            run.endpoint
        )
    };
    agent.send(head(CHAT.len()).as_bytes());
    assert!(agent.head().starts_with("HTTP/1.1 100 "));
    agent.send(CHAT.as_bytes());
    assert_eq!(agent.answer().status, 200);
    agent.send(head(1001).as_bytes());
    assert_eq!(agent.answer().status, 400);
}

/// MOD-11: each piece of a stream reaches the agent when it comes, not when the next one does.
#[test]
fn a_stream_is_not_held_back() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let model = Model::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for number in 0..5 {
            let event = format!("data: {number}\n\n");
            stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).unwrap();
            wait.lock().unwrap().recv_timeout(WAIT).unwrap();
        }
        stream.write_all(b"0\r\n\r\n").is_ok()
    });
    let broker = model.broker();
    let run = broker.open(1, &Terms::default());
    let mut agent = run.connect();
    agent.post("/v1/chat/completions", "", CHAT.as_bytes());
    assert!(agent.head().starts_with("HTTP/1.1 200 "));
    for number in 0..5 {
        // The service sends the next one only after the agent has this one.
        assert!(agent.until(&format!("data: {number}\n\n")).is_some());
        go.send(()).unwrap();
    }
    assert!(agent.until("0\r\n\r\n").is_some());
    let (_, end) = run.both_reports();
    assert_eq!((end.status, end.bytes_in), (200, 45));
}

/// MOD-11: an agent that does not read holds the service back: the broker takes no more than a little.
#[test]
fn an_agent_that_does_not_read_holds_the_service_back() {
    let (tell, sent) = std::sync::mpsc::channel();
    let model = Model::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut all = 0;
        while all < 256 * 1024 * 1024 {
            match stream.write(&[b'a'; 64 * 1024]) {
                Ok(count) => all += count,
                Err(_) => break,
            }
        }
        tell.send(all).unwrap();
        false
    });
    let broker = model.broker();
    let run = broker.open(1, &Terms::default());
    let mut agent = run.connect();
    agent.post("/v1/chat/completions", "", CHAT.as_bytes());
    let sent = sent.recv_timeout(WAIT).unwrap();
    // Four socket buffers of a loopback connection, of 6 MiB at most each, and what hyper holds.
    assert!(sent < 40 * 1024 * 1024, "{sent}");
    agent.leave();
}

/// MOD-11: an agent that goes away ends what it asked for, before and in the middle of the answer.
#[test]
fn an_agent_that_goes_away_ends_its_question() {
    for answers in [false, true] {
        let (tell, closed) = std::sync::mpsc::channel();
        let (ask, asked) = std::sync::mpsc::channel();
        let model = Model::start(move |_, stream| {
            ask.send(()).unwrap();
            if answers {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n";
                stream.write_all(head.as_bytes()).unwrap();
            }
            stream.set_read_timeout(Some(WAIT)).unwrap();
            let end = read(stream, &mut [0]);
            tell.send(end.is_ok_and(|count| count == 0)).unwrap();
            false
        });
        let broker = model.broker();
        let run = broker.open(1, &Terms::default());
        let mut agent = run.connect();
        agent.post("/v1/chat/completions", "", CHAT.as_bytes());
        assert!(!run.report().ended);
        asked.recv_timeout(WAIT).unwrap();
        if answers {
            assert!(agent.until("data: 1\n\n").is_some());
        }
        let before = Instant::now();
        agent.leave();
        assert!(closed.recv_timeout(WAIT).unwrap(), "the service sees the end of the connection");
        assert!(before.elapsed() < Duration::from_secs(2));
        let end = run.report();
        assert_eq!((end.ended, end.decision, end.trouble), (true, Decision::Allow, None));
        assert_eq!((end.status, end.bytes_in), if answers { (200, 9) } else { (0, 0) });
    }
}

/// MOD-1: without a key a service that needs one is not asked; one on this host's loopback needs none.
#[test]
fn a_service_without_a_key() {
    let model = Model::fixed(OK);
    let address = model.address;
    let broker = Broker::start("https://models.example.com/v1", None, Reach::To(address));
    assert_eq!(broker.hello.1, KeyState::None);
    let run = broker.open(1, &Terms::default());
    let answer = run.chat(CHAT);
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("(no_key)"), "{}", answer.body);
    assert_eq!(broker.dials.load(std::sync::atomic::Ordering::SeqCst), 0);

    let broker = Broker::start(&format!("http://{address}"), None, Reach::To(address));
    let run = broker.open(1, &Terms::default());
    assert_eq!(run.chat(CHAT).status, 200);
    assert!(!model.next().head.to_ascii_lowercase().contains("authorization"));
}

/// MOD-1: what is stored and is no key is said by kind, and is in no log.
#[test]
fn a_key_that_is_none_is_said() {
    for (key, state) in [(" \n", KeyState::Empty), ("sk-canary two", KeyState::Malformed)] {
        let broker = Broker::start(
            "https://models.example.com",
            Some(key),
            Reach::Nowhere(ipc_proto::proxy::Reason::ConnectFailed),
        );
        assert_eq!(broker.hello.1, state);
        let log = broker.log();
        assert!(log.contains("anet credential set") && !log.contains("canary"), "{log}");
        let run = broker.open(1, &Terms::default());
        assert!(run.chat(CHAT).body.contains("(no_key)"));
        assert!(matches!(broker.next(), FromBroker::Request { .. }));
    }
}
