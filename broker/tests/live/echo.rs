//! Services that say the key that they were given.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::exchange::CHAT;
use crate::stage::{Agent, Asked, Broker, KEY, Model, Reach, Terms};

/// The key as the service got it.
fn given(asked: &Asked) -> String {
    let lower = asked.head.to_ascii_lowercase();
    let at = lower.find("authorization: bearer ").unwrap() + "authorization: bearer ".len();
    asked.head[at..].lines().next().unwrap().to_owned()
}

/// A broker with this key, for a service that writes what `answer` makes of the key.
fn echo(key: &str, answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> (Model, Broker) {
    let model = Model::start(move |asked, stream| {
        let key = given(asked);
        answer(&key, stream);
        true
    });
    let upstream = format!("http://{}/v1", model.address);
    let broker = Broker::start(&upstream, Some(key), Reach::To(model.address));
    (model, broker)
}

fn stars(key: &str) -> String {
    "*".repeat(key.len())
}

/// MOD-1, MOD-11: a service that shows the key, in an answer or an error, once or twice, in a header or at the very end,
/// shows it to the broker alone; all else of its answer arrives, of the length that it announced, and the connection goes on.
#[test]
fn a_key_that_is_shown_stays_outside() {
    for status in [200u16, 401, 500] {
        let (_model, broker) = echo(KEY, move |key, stream| {
            let body = format!("{{\"error\":\"{key} is not {key}\"}} {key}");
            let answer = format!(
                "HTTP/1.1 {status} {key}\r\nx-request-id: r-{key}-1\r\nx-ratelimit-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let run = broker.open(1, &Terms::default());
        let mut agent = run.connect();
        for _ in 0..2 {
            agent.post("/v1/chat/completions", "", CHAT.as_bytes());
            let answer = agent.answer();
            let stars = stars(KEY);
            assert_eq!((answer.status, answer.whole), (status, true));
            assert_eq!(answer.body, format!("{{\"error\":\"{stars} is not {stars}\"}} {stars}"));
            assert_eq!(answer.header("x-request-id"), Some(format!("r-{stars}-1").as_str()));
            assert!(!answer.head.contains(KEY), "{}", answer.head);
            let (_, end) = run.both_reports();
            assert_eq!(end.bytes_in, u64::try_from(answer.body.len()).unwrap());
        }
        assert!(!broker.log().contains(KEY));
    }
}

/// MOD-1: as JSON writes a slash.
#[test]
fn a_key_that_is_shown_as_json_stays_outside() {
    const SLASHED: &str = "sk-canary/5f2a/81c9";
    let (_model, broker) = echo(SLASHED, |key, stream| {
        let body = format!("{{\"error\":\"{}\"}}", key.replace('/', "\\/"));
        let answer = format!("HTTP/1.1 400 X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let run = broker.open(1, &Terms::default());
    let answer = run.chat(CHAT);
    assert!(answer.whole);
    assert_eq!(answer.body, format!("{{\"error\":\"{}\"}}", "*".repeat(SLASHED.len() + 2)));
}

/// MOD-1, MOD-11: in a stream, cut at every place of the key: what comes before it is not held back, nor is the rest of the
/// stream after it.
#[test]
fn a_key_in_pieces_stays_outside() {
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let (_model, broker) = echo(KEY, move |key, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for cut in 0..=key.len() {
            let (first, second) = key.split_at(cut);
            stream.write_all(chunk(&format!("data: {cut} {first}")).as_bytes()).unwrap();
            // So that the broker reads the two apart.
            std::thread::sleep(Duration::from_millis(15));
            stream.write_all(chunk(&format!("{second}\n\n")).as_bytes()).unwrap();
        }
        // The last that comes is a beginning of the key: it is no key.
        stream.write_all(format!("{}0\r\n\r\n", chunk(&key[..9])).as_bytes()).unwrap();
    });
    let run = broker.open(1, &Terms::default());
    let mut agent: Agent = run.connect();
    agent.post("/v1/chat/completions", "", CHAT.as_bytes());
    let answer = agent.answer();
    assert!(answer.whole);
    let events: String = (0..=KEY.len()).map(|cut| format!("data: {cut} {}\n\n", stars(KEY))).collect();
    assert_eq!(answer.body, format!("{events}{}", &KEY[..9]));
}

/// MOD-11: a stream that is cut in the middle of the key does not bring most of it.
#[test]
fn a_key_that_is_cut_stays_outside() {
    let model = Model::start(|asked, stream| {
        let key = given(asked);
        let body = format!("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}", &key[..key.len() - 1]);
        stream.write_all(body.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        false
    });
    let broker = model.broker();
    let run = broker.open(1, &Terms::default());
    let answer = run.chat(CHAT);
    assert_eq!((answer.body.as_str(), answer.whole), ("", false));
}
