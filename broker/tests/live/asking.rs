//! Questions of the node's own: the `openai` backend (SEL-3).

use std::collections::HashMap;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ipc_proto::broker::{
    Answered, FromBroker, Interface, LARGEST_ANSWER, ModelLimits, ModelTotals, RequestReport, ToBroker,
    UpstreamTrouble,
};
use ipc_proto::proxy::{Decision, Reason};
use ipc_proto::{RunId, bulk};

use crate::stage::{Broker, KEY, MODEL, Model, Reach, Terms, WAIT, policy, read};

fn number(number: u64) -> RunId {
    RunId::new(number, [9; 4])
}

/// Asks, as the run of this number.
fn ask(broker: &Broker, run: u64, terms: &Terms, task: &str) {
    let memory = bulk::seal(&task.to_owned()).unwrap();
    let (policy, Terms { limits, debits, .. }) = (policy(terms.silence), terms.clone());
    let ask = ToBroker::Ask { run: number(run), policy, limits, debits };
    broker.supervisor.send(&ask, &[memory.as_fd()]).unwrap();
}

/// What became of a question.
struct Outcome {
    reports: Vec<RequestReport>,
    answered: Answered,
    totals: ModelTotals,
    text: Option<String>,
}

impl Outcome {
    /// The last report, which ends it.
    fn end(&self) -> &RequestReport {
        let end = self.reports.last().unwrap();
        assert!(end.ended);
        assert_eq!(end.interface, Some(Interface::ChatCompletions));
        end
    }
}

fn text(descriptors: &[OwnedFd]) -> Option<String> {
    descriptors.first().map(|memory| bulk::open::<String>(memory.as_fd()).unwrap())
}

/// Hears the rest of a question.
fn outcome(broker: &Broker) -> Outcome {
    let mut reports = Vec::new();
    loop {
        match broker.letter() {
            (FromBroker::Request { report, .. }, _) => reports.push(report),
            (FromBroker::Answered { answered, totals, .. }, descriptors) => {
                let text = text(&descriptors);
                assert_eq!(text.is_some(), answered == Answered::Text);
                return Outcome { reports, answered, totals, text };
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

/// An answer of the service with this status and body.
fn http(status: u16, body: &str) -> String {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: ");
    format!("{head}{}\r\n\r\n{body}", body.len())
}

/// A completion with this message.
fn completion(message: &str, finish: &str) -> String {
    http(
        200,
        &format!(
            r#"{{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{message},"finish_reason":"{finish}"}}],"usage":{{}}}}"#
        ),
    )
}

fn said(text: &str) -> String {
    completion(&format!(r#"{{"role":"assistant","content":{text:?}}}"#), "stop")
}

/// SEL-3, MOD-2, MOD-3, MOD-6, BUD-2: the node's own question goes the same way as an agent's: policy, limits, debit, key; its
/// answer is the model's text.
#[test]
fn a_question_of_the_nodes_own() {
    let model = Model::start(|_, stream| stream.write_all(said("4\n\u{e9}").as_bytes()).is_ok());
    let broker = model.broker();
    let debits = Terms { debits: true, ..Terms::default() };
    ask(&broker, 9, &debits, "2+2 \"quoted\"?");
    let FromBroker::Want { request: 1, bytes, .. } = broker.next() else { panic!("no question") };
    std::thread::sleep(Duration::from_millis(30));
    assert!(model.asked.try_recv().is_err(), "asked before the debit");
    broker.supervisor.send(&ToBroker::Debit { run: number(9), request: 1, granted: true }, &[]).unwrap();
    let asked = model.next();
    assert_eq!(asked.bytes, bytes);
    let body = serde_json::json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": "2+2 \"quoted\"?" }],
        "stream": false,
        "max_tokens": 8192,
        "store": false,
    });
    assert_eq!(asked.body, body);
    let head = asked.head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{head}");
    let key = format!("authorization: bearer {KEY}\r\n");
    for line in
        [&key, "content-type: application/json\r\n", "accept: application/json\r\n", "user-agent: anet/"]
    {
        assert!(head.contains(line), "{head}");
    }
    let outcome_ = outcome(&broker);
    assert_eq!(outcome_.reports.len(), 2);
    assert!(outcome_.reports.iter().all(|report| report.decision == Decision::Allow));
    assert_eq!((outcome_.end().status, outcome_.end().trouble, outcome_.end().bytes_out), (200, None, bytes));
    assert_eq!(outcome_.text.as_deref(), Some("4\n\u{e9}"));
    let sent = u64::try_from(asked.body.to_string().len()).unwrap();
    assert_eq!((outcome_.totals.requests, outcome_.totals.refused, outcome_.totals.total), (1, 0, sent));

    // Its name is free, also if an end of it has crossed the answer.
    broker.supervisor.send(&ToBroker::Close { run: number(9) }, &[]).unwrap();
    ask(&broker, 9, &debits, "again");
    let FromBroker::Want { request: 1, .. } = broker.next() else { panic!("no question") };
    // Told to end, it answers nothing.
    broker.supervisor.send(&ToBroker::Close { run: number(9) }, &[]).unwrap();
    let ended = outcome(&broker);
    assert_eq!((ended.end().decision, ended.end().bytes_out, ended.totals.requests), (Decision::Fail, 0, 0));
    assert_eq!(ended.answered, Answered::Nothing);
    assert!(model.asked.try_recv().is_err());
}

/// SEL-3: each way in which a service gives no answer comes out as itself, so that what the operator and the peer are told is
/// true; and the broker goes on.
#[test]
fn every_way_to_no_answer_is_told_apart() {
    use UpstreamTrouble::{Cut, Empty, Filtered, Malformed, NoCompletion, TooLong};
    let filter = r#"{"error":{"message":"filtered","type":null,"param":"prompt","code":"content_filter"}}"#;
    let huge = "a".repeat(usize::try_from(LARGEST_ANSWER).unwrap() + 1);
    let rows: Vec<(&str, String, u16, Option<UpstreamTrouble>)> = vec![
        (
            "an answer that is filtered",
            completion(r#"{"content":"half"}"#, "content_filter"),
            200,
            Some(Filtered),
        ),
        ("a task that is filtered", http(400, filter), 400, Some(Filtered)),
        ("nothing", completion(r#"{"content":null}"#, "length"), 200, Some(Empty)),
        ("blanks", said(" \n"), 200, Some(Empty)),
        ("a long text", said(&huge), 200, Some(TooLong)),
        ("another answer", http(200, "{}"), 200, Some(NoCompletion)),
        ("a page", http(200, "<html>"), 200, Some(NoCompletion)),
        ("no HTTP", "SSH-2.0-OpenSSH\r\n\r\n".to_owned(), 0, Some(Malformed)),
        (
            "a cut answer",
            said("a long text").replace("content-length: 1", "content-length: 2"),
            200,
            Some(Cut),
        ),
        ("no answer", String::new(), 0, Some(Cut)),
        ("a wrong key", http(401, "{}"), 401, None),
        ("too many", http(429, r#"{"error":{"code":"rate_limit_exceeded"}}"#), 429, None),
        ("a redirect", http(307, ""), 307, None),
        ("a failure", http(503, "").replace("content-length: 0", "content-length: 9"), 503, None),
    ];
    for (name, answer, status, trouble) in rows {
        let model = Model::start(move |_, stream| {
            let _ = stream.write_all(answer.as_bytes());
            false
        });
        let broker = model.broker();
        for run in [1, 2] {
            ask(&broker, run, &Terms::default(), "a task");
            let outcome = outcome(&broker);
            let end = outcome.end();
            assert_eq!(
                (end.status, end.trouble, outcome.answered.clone()),
                (status, trouble, Answered::Nothing),
                "{name}"
            );
            let decision = if trouble.is_some() { Decision::Fail } else { Decision::Allow };
            assert_eq!((end.decision, outcome.totals.requests), (decision, 1), "{name}");
        }
    }
}

/// SEL-3, MOD-11: a service that keeps still, before its head or in the middle of its answer, one whose answer never ends, and
/// one that is not there.
#[test]
fn a_service_without_an_end_is_left() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let silent = Terms { silence: Duration::from_millis(600), ..Terms::default() };
    for (name, first, status) in
        [("before", String::new(), 0), ("within", format!("{head}2\r\n{{\"\r\n"), 200)]
    {
        let model = Model::start(move |_, stream| {
            let _ = stream.write_all(first.as_bytes());
            let _ = read(stream, &mut [0]);
            false
        });
        let broker = model.broker();
        let before = Instant::now();
        ask(&broker, 1, &silent, "a task");
        let outcome = outcome(&broker);
        assert_eq!(
            (outcome.end().trouble, outcome.end().status),
            (Some(UpstreamTrouble::Silent), status),
            "{name}"
        );
        assert!(before.elapsed() < Duration::from_secs(5), "{name}");
    }

    let (tell, told) = mpsc::channel();
    let model = Model::start(move |_, stream| {
        let _ = stream.write_all(head.as_bytes());
        let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, " ".repeat(1 << 16));
        let mut sent = 0;
        while stream.write_all(chunk.as_bytes()).is_ok() {
            sent += 1 << 16;
        }
        let _ = tell.send(sent);
        false
    });
    let broker = model.broker();
    ask(&broker, 1, &Terms::default(), "a task");
    let outcome_ = outcome(&broker);
    assert_eq!(outcome_.end().trouble, Some(UpstreamTrouble::TooLong));
    assert!(outcome_.end().bytes_in > 6 * LARGEST_ANSWER && outcome_.end().bytes_in < 8 * LARGEST_ANSWER);
    // The connection is closed, and not read to its end.
    assert!(told.recv_timeout(WAIT).unwrap() < 40 * LARGEST_ANSWER);

    let broker =
        Broker::start("https://models.example.com/v1", Some(KEY), Reach::Nowhere(Reason::AddressPrivate));
    ask(&broker, 1, &Terms::default(), "a task");
    let trouble = outcome(&broker).end().trouble;
    assert_eq!(trouble, Some(UpstreamTrouble::Unreachable(Reason::AddressPrivate)));
}

/// LIM-1, BUD-2, MOD-12: what is refused before it goes out says by which rule, and nothing goes out: limits, a debit that is
/// not granted, no key, a service without this interface.
#[test]
fn a_question_that_may_not_be_asked() {
    let model = Model::start(|_, stream| stream.write_all(said("a").as_bytes()).is_ok());
    let broker = model.broker();
    let limited = |limits: ModelLimits| Terms { limits, ..Terms::default() };
    let none = ModelLimits::default();
    for (limits, rule) in [
        (ModelLimits { body: Some(50), ..none }, "limit_request_body"),
        (ModelLimits { total: Some(50), ..none }, "limit_request_total"),
        (ModelLimits { requests: Some(0), ..none }, "limit_model_requests"),
    ] {
        ask(&broker, 1, &limited(limits), "a task");
        let outcome = outcome(&broker);
        assert_eq!((outcome.end().decision, outcome.end().rule.as_str()), (Decision::Deny, rule));
        assert_eq!((outcome.totals.requests, outcome.totals.refused, outcome.end().bytes_out), (0, 1, 0));
        assert_eq!(outcome.answered, Answered::Nothing);
    }
    ask(&broker, 1, &Terms { debits: true, ..Terms::default() }, "a task");
    let FromBroker::Want { request: 1, .. } = broker.next() else { panic!("no question") };
    broker.supervisor.send(&ToBroker::Debit { run: number(1), request: 1, granted: false }, &[]).unwrap();
    assert_eq!(outcome(&broker).end().rule, "budget");
    // One request and no more is what a question is.
    ask(&broker, 1, &limited(ModelLimits { requests: Some(1), ..none }), "a task");
    assert_eq!(outcome(&broker).text.as_deref(), Some("a"));
    assert_eq!(model.asked.try_iter().count(), 1);

    for (upstream, key, rule) in [
        ("https://models.example.com/v1", None, "no_key"),
        ("https://api.anthropic.com", Some(KEY), "unknown_path"),
    ] {
        let broker = Broker::start(upstream, key, Reach::Nowhere(Reason::ConnectFailed));
        ask(&broker, 1, &Terms::default(), "a task");
        let outcome = outcome(&broker);
        assert_eq!((outcome.reports.len(), outcome.reports[0].rule.as_str()), (1, rule), "{upstream}");
        assert_eq!(broker.dials.load(std::sync::atomic::Ordering::SeqCst), 0);
    }
}

/// SEL-3, RUN-5: several questions at once, each with its own debit, answer and totals, whatever order they are answered in;
/// and a run of an agent beside them.
#[test]
fn questions_at_once_are_not_mixed() {
    const ALL: u64 = 12;
    let model = Model::start(|asked, stream| {
        let task = asked.body["messages"][0]["content"].as_str().unwrap().to_owned();
        let late = task.bytes().last().map_or(0, u64::from) * 37 % 90;
        std::thread::sleep(Duration::from_millis(late));
        stream.write_all(said(&format!("answer to {task}")).as_bytes()).is_ok()
    });
    let broker = model.broker();
    let agents = broker.open(1000, &Terms::default());
    for round in 0..3 {
        for run in 0..ALL {
            ask(
                &broker,
                run,
                &Terms { debits: run % 2 == 0, ..Terms::default() },
                &format!("task {round} {run}"),
            );
        }
        let mut agent = agents.connect();
        agent.post("/v1/chat/completions", "", crate::exchange::CHAT.as_bytes());
        let mut texts: HashMap<RunId, String> = HashMap::new();
        let mut of_agent = 0;
        while texts.len() < 12 || of_agent < 2 {
            match broker.letter() {
                (FromBroker::Want { run, request, .. }, _) => {
                    broker.supervisor.send(&ToBroker::Debit { run, request, granted: true }, &[]).unwrap();
                }
                (FromBroker::Request { run, .. }, _) if run == agents.run => of_agent += 1,
                (FromBroker::Request { run, report }, _) => {
                    assert_eq!((report.decision, texts.contains_key(&run)), (Decision::Allow, false));
                }
                (FromBroker::Answered { run, totals, .. }, descriptors) => {
                    assert_eq!(totals.requests, 1);
                    assert!(texts.insert(run, text(&descriptors).unwrap()).is_none());
                }
                (other, _) => panic!("{other:?}"),
            }
        }
        for run in 0..ALL {
            assert_eq!(texts[&number(run)], format!("answer to task {round} {run}"));
        }
        assert_eq!(agent.answer().status, 200);
        agent.leave();
    }
}

/// LIM, SEL-3: a question that is told to end (its wall clock) ends at once wherever it stands, and so does its connection to
/// the service: while the proxy dials, before the head, in the middle of the answer.
#[test]
fn a_question_can_be_ended_at_any_moment() {
    // A service that accepts and says nothing; over it, one that the proxy reaches late.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, accepted) = mpsc::channel::<TcpStream>();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = tell.send(stream.unwrap());
        }
    });
    let broker = Broker::start(&format!("http://{address}/v1"), None, Reach::To(address));
    let parts = [
        "",
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"",
    ];
    for (run, part) in (1..).zip(parts) {
        ask(&broker, run, &Terms::default(), "a task");
        let mut stream = accepted.recv_timeout(WAIT).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let mut request = [0; 4096];
        assert!(read(&mut stream, &mut request).unwrap() > 0);
        stream.write_all(part.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let before = Instant::now();
        broker.supervisor.send(&ToBroker::Close { run: number(run) }, &[]).unwrap();
        let outcome = outcome(&broker);
        assert_eq!((&outcome.answered, outcome.totals.requests), (&Answered::Nothing, 1));
        assert_eq!(
            (outcome.end().trouble, outcome.end().decision),
            (None, Decision::Allow),
            "nothing went wrong"
        );
        while read(&mut stream, &mut request).is_ok_and(|count| count > 0) {}
        assert!(before.elapsed() < Duration::from_secs(2), "the service is still waited for");
    }

    let broker = Broker::start("https://models.example.com/v1", Some(KEY), Reach::Never);
    ask(&broker, 1, &Terms::default(), "a task");
    let FromBroker::Request { .. } = broker.next() else { panic!("no report") };
    broker.supervisor.send(&ToBroker::Close { run: number(1) }, &[]).unwrap();
    assert_eq!(outcome(&broker).answered, Answered::Nothing);
    assert_eq!(broker.log(), "");
}
