//! What a run may do, exactly.

use std::time::Duration;

use ipc_proto::broker::{FromBroker, ModelLimits, ToBroker};
use ipc_proto::proxy::Decision;

use crate::exchange::{CHAT, OK};
use crate::stage::{Agent, MODEL, Model, Terms, WAIT};

/// A body that goes out exactly as it came in, of this length.
fn body(length: usize) -> String {
    let body = |text: &str| {
        format!(
            r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"{text}"}}],"max_tokens":8192,"n":1,"store":false}}"#
        )
    };
    body(&"a".repeat(length - body("").len()))
}

fn terms(limits: ModelLimits) -> Terms {
    Terms { limits, ..Terms::default() }
}

/// LIM-1: the last request of the limit passes, one more is refused by name, and the run goes on.
#[test]
fn requests_are_counted_exactly() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &terms(ModelLimits { requests: Some(3), ..ModelLimits::default() }));
    // One that a rule refuses does not count.
    assert_eq!(run.chat(r#"{"messages":[],"web_search_options":{}}"#).status, 400);
    run.report();
    for _ in 0..3 {
        assert_eq!(run.chat(CHAT).status, 200);
        run.both_reports();
    }
    for _ in 0..2 {
        let answer = run.chat(CHAT);
        assert_eq!(answer.status, 400);
        assert!(
            answer.body.contains("anet: ") && answer.body.contains("limit_model_requests"),
            "{}",
            answer.body
        );
        let report = run.report();
        assert_eq!((report.decision, report.rule.as_str()), (Decision::Deny, "limit_model_requests"));
    }
    let (_, totals) = run.close();
    assert_eq!((totals.requests, totals.refused), (3, 3));
    assert_eq!(model.asked.try_iter().count(), 3);
}

/// LIM-1: requests that come at once together get what the limit has left, and no more.
#[test]
fn requests_at_once_do_not_exceed_the_limit() {
    let model = Model::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(50));
        std::io::Write::write_all(stream, OK.as_bytes()).is_ok()
    });
    let broker = model.broker();
    let run = broker.open(1, &terms(ModelLimits { requests: Some(5), ..ModelLimits::default() }));
    let mut agents: Vec<_> = (0..16).map(|_| run.connect()).collect();
    agents.iter_mut().for_each(|agent| agent.post("/v1/chat/completions", "", CHAT.as_bytes()));
    let passed = agents.iter_mut().map(Agent::answer).filter(|answer| answer.status == 200).count();
    assert_eq!(passed, 5);
    let (_, totals) = run.close();
    assert_eq!((totals.requests, totals.refused, totals.connections), (5, 11, 16));
    assert_eq!(model.asked.try_iter().count(), 5);
}

/// LIM-1: a body of the limit passes, as the agent sends it and however it grows when it is rewritten; one byte more is refused
/// before it is read, and so is all of a body that is far over it: the agent reads the refusal even if it sends everything
/// first.
#[test]
fn a_body_is_measured_exactly() {
    const LIMIT: usize = 100_000;
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &terms(ModelLimits { body: Some(100_000), ..ModelLimits::default() }));
    assert_eq!(run.chat(&body(LIMIT)).status, 200);
    run.both_reports();
    for length in [LIMIT + 1, 9 * 1024 * 1024, 40 * 1024 * 1024] {
        let answer = run.chat(&body(length));
        assert_eq!(answer.status, 400, "{length}");
        assert!(answer.body.contains("limit_request_body"), "{}", answer.body);
        assert_eq!(run.report().rule, "limit_request_body");
    }
    // Of the limit as it comes, longer as it goes out: the cap and what else is missing are added.
    let shorter = body(LIMIT).replace(r#","max_tokens":8192,"n":1,"store":false"#, "");
    assert!(shorter.len() < LIMIT);
    let grown = shorter.replace("\"aaaa", &format!("\"{}", "a".repeat(4 + LIMIT - shorter.len())));
    assert_eq!(grown.len(), LIMIT);
    assert_eq!(run.chat(&grown).status, 200);
    run.both_reports();
    let (_, totals) = run.close();
    let outgoing: Vec<_> = model.asked.try_iter().map(|asked| asked.body.to_string().len()).collect();
    assert_eq!(outgoing.first(), Some(&LIMIT));
    assert!(outgoing.iter().all(|length| *length >= LIMIT) && outgoing.last() > Some(&LIMIT), "{outgoing:?}");
    let all = u64::try_from(outgoing.iter().sum::<usize>()).unwrap();
    // The largest is what the agent sent, the sum is what went out.
    assert_eq!((totals.requests, totals.body, totals.total), (2, 100_000, all));
}

/// LIM-1: all bodies together, to the byte; a smaller one still passes after one that did not fit.
#[test]
fn all_bodies_are_measured_exactly() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &terms(ModelLimits { total: Some(3000), ..ModelLimits::default() }));
    assert_eq!(run.chat(&body(2000)).status, 200);
    let answer = run.chat(&body(1001));
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("limit_request_total"), "{}", answer.body);
    assert_eq!(run.chat(&body(1000)).status, 200);
    assert_eq!(run.chat(&body(200)).status, 400);
    let (_, totals) = run.close();
    assert_eq!((totals.requests, totals.refused, totals.total), (2, 2, 3000));
}

/// LIM-1: connections at once; one more is told so and closed, and its place is free again when one is left.
#[test]
fn connections_are_counted_exactly() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &terms(ModelLimits { connections: Some(2), ..ModelLimits::default() }));
    let (one, mut two) = (run.connect(), run.connect());
    let mut three = run.connect();
    let answer = three.answer();
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("limit_endpoint_connections"), "{}", answer.body);
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    assert!(three.is_closed());
    assert_eq!(run.report().rule, "limit_endpoint_connections");
    two.post("/v1/chat/completions", "", CHAT.as_bytes());
    assert_eq!(two.answer().status, 200);
    run.both_reports();
    one.leave();
    let end = std::time::Instant::now() + WAIT;
    loop {
        let mut four = run.connect();
        four.post("/v1/chat/completions", "", CHAT.as_bytes());
        if four.answer().status == 200 {
            break;
        }
        assert!(std::time::Instant::now() < end);
    }
    let (_, totals) = run.close();
    assert_eq!(totals.connections, 2);
}

/// LIM-1: where no limit is set the broker's own bounds hold.
#[test]
fn without_limits_the_brokers_own_bounds_hold() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &Terms::default());
    let mut agent = run.connect();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        run.endpoint,
        32 * 1024 * 1024 + 1
    );
    agent.send(head.as_bytes());
    let answer = agent.answer();
    assert!(answer.body.contains("limit_request_body") && answer.body.contains("32 MiB"), "{}", answer.body);
    drop(agent);
    let mut agents: Vec<_> = (0..70).map(|_| run.connect()).collect();
    let last = agents.last_mut().unwrap();
    assert_eq!(last.answer().status, 400);
}

/// BUD-2: where a budget asks for it no byte goes out before the debit is granted, the debit is the bytes that go out, and a
/// refused one goes nowhere and counts nowhere.
#[test]
fn nothing_goes_out_before_its_debit() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &Terms { debits: true, ..Terms::default() });
    for granted in [true, false, true] {
        let mut agent = run.connect();
        agent.post("/v1/chat/completions", "", CHAT.as_bytes());
        let FromBroker::Want { run: wanted, request, bytes } = broker.next() else { panic!("no question") };
        assert_eq!(wanted, run.run);
        std::thread::sleep(Duration::from_millis(30));
        assert!(model.asked.try_recv().is_err(), "asked before the debit");
        broker.supervisor.send(&ToBroker::Debit { run: run.run, request, granted }, &[]).unwrap();
        let answer = agent.answer();
        if granted {
            assert_eq!(answer.status, 200);
            assert_eq!(model.next().bytes, bytes);
            let (out, _) = run.both_reports();
            assert_eq!((out.request, out.bytes_out), (request, bytes));
        } else {
            assert_eq!(answer.status, 400);
            assert!(answer.body.contains("(budget)"), "{}", answer.body);
            assert_eq!(run.report().rule, "budget");
        }
    }
    // An agent that leaves before the answer: the debit finds nobody, and that is no breach of the protocol.
    let mut agent = run.connect();
    agent.post("/v1/chat/completions", "", CHAT.as_bytes());
    let FromBroker::Want { request, .. } = broker.next() else { panic!("no question") };
    agent.leave();
    let report = run.report();
    assert_eq!((report.request, report.ended, report.decision), (request, true, Decision::Fail));
    broker.supervisor.send(&ToBroker::Debit { run: run.run, request, granted: true }, &[]).unwrap();
    let (_, totals) = run.close();
    assert_eq!((totals.requests, totals.refused), (2, 1));
    assert!(model.asked.try_recv().is_err());
}
