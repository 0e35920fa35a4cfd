//! LIM-1, BUD: limits and budgets of model requests, to the request and to the byte.

use serde_json::{Value, json};
use tests::installed::installed;
use tests::internet::Internet;
use tests::model::Service;
use tests::person::Who;

use crate::model::{KEY, MODEL, client, merged, messages, options, person_with_key, post, refusal, with};

const MIB: u64 = 1 << 20;

/// LIM-1: the 61st request of an untrusted run is refused, by name, and the run goes on; a plain run has no such limit
/// but where it is named.
#[test]
fn model_requests_are_limited() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    for who in Who::all() {
        let person = person_with_key(*who);
        for (extra, limit) in [(vec!["--untrusted"], 60), (vec!["--limit", "model_requests=3"], 3)] {
            let options = [options(&service), extra.iter().map(|s| (*s).to_owned()).collect()].concat();
            let steps: Value =
                (0..limit + 2).map(|_| post("/v1/messages", &messages("[[text:x]]"))).collect();
            let (results, outcome) = client(&person, &net, &options, &steps);
            for (number, result) in results.iter().enumerate() {
                if number < limit {
                    assert_eq!(result["status"], 200, "LIM-1: number {number}: {result}");
                } else {
                    assert_eq!(result["status"], 400, "LIM-1: number {number}: {result}");
                    assert!(refusal(result, true).contains("model_requests"), "{result}");
                }
            }
            assert_eq!(service.take().len(), limit, "{outcome}");
            let used = &outcome.record()["limits"]["model_requests"];
            assert_eq!((&used["limit"], &used["used"]), (&json!(limit), &json!(limit)), "{outcome}");
            assert_eq!(outcome.record()["model"]["refused"], 2, "{outcome}");
        }
    }
}

/// A body of so many bytes.
fn sized(bytes: u64) -> Value {
    with(post("/v1/messages", &messages("[[text:x]]")), "pad", json!(bytes))
}

/// A body of so many bytes, most of them text that has to arrive. Nothing in it is rewritten: as many bytes go out as
/// come in.
fn full(bytes: u64) -> Value {
    let body = merged(messages("[[text:x]] FILLER"), &json!({ "model": MODEL }));
    let letters = bytes - body.to_string().len() as u64 + "FILLER".len() as u64;
    with(post("/v1/messages", &body), "filler", json!(letters))
}

/// LIM-1: 8 MiB of body pass, a byte more is refused by the limit's name, and the run goes on.
#[test]
fn one_body_is_limited_to_the_byte() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let person = person_with_key(Who::User);
    let options = [options(&service), vec!["--untrusted".into()]].concat();
    let steps = json!([full(8 * MIB), full(8 * MIB + 1), sized(8 * MIB + 1), sized(200)]);
    let (results, outcome) = client(&person, &net, &options, &steps);
    let statuses: Vec<&Value> = results.iter().map(|r| &r["status"]).collect();
    assert_eq!(statuses[0], 200, "LIM-1: {outcome}");
    for result in &results[1..3] {
        assert!(result["status"] == 400 || result["status"] == 413, "LIM-1: {result}");
        assert!(refusal(result, true).contains("request_body"), "{result}");
    }
    assert_eq!(statuses[3], 200, "LIM-1: the run goes on: {outcome}");
    let requests = service.settled();
    assert_eq!(requests.len(), 2, "{outcome}");
    let text = requests[0].json()["messages"][0]["content"].as_str().unwrap_or_default().len() as u64;
    assert!(text > 8 * MIB - 200, "all of it arrived: {text}");
}

/// LIM-1: 16 MiB of all bodies pass, a byte more is refused by the limit's name.
#[test]
fn all_bodies_are_limited_to_the_byte() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let person = person_with_key(Who::User);
    let options = [options(&service), vec!["--untrusted".into()]].concat();
    for more in [0, 1] {
        let steps = json!([full(8 * MIB), full(8 * MIB - 300), full(300 + more), full(300)]);
        let (results, outcome) = client(&person, &net, &options, &steps);
        assert_eq!((&results[0]["status"], &results[1]["status"]), (&json!(200), &json!(200)), "{outcome}");
        let (third, fourth) = (&results[2], &results[3]);
        let refused = if more == 0 {
            assert_eq!(third["status"], 200, "LIM-1: the last byte passes: {third}");
            fourth
        } else {
            // What was refused has used nothing: as many bytes as are left pass.
            assert_eq!(fourth["status"], 200, "LIM-1: the run goes on: {fourth}");
            third
        };
        assert!(refused["status"] == 400 || refused["status"] == 413, "LIM-1: {refused}");
        assert!(refusal(refused, true).contains("request_total"), "{refused}");
        assert_eq!(service.take().len(), 3, "{outcome}");
        assert_eq!(outcome.record()["limits"]["request_total"]["used"], 16 * MIB, "{outcome}");
    }
}

/// BUD-1, BUD-4: a model request debits `bytes_out`; a run whose budget does not reach for it is ended.
#[test]
fn model_requests_debit_the_budget() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let person = person_with_key(Who::User);
    let enough = [options(&service), vec!["--budget".into(), "bytes_out=64KiB".into()]].concat();
    let (results, outcome) =
        client(&person, &net, &enough, &json!([post("/v1/messages", &messages("[[text:x]]"))]));
    assert_eq!(results[0]["status"], 200, "{outcome}");
    let [request] = &service.take()[..] else { panic!("one request: {outcome}") };
    // Head and body as sent, before TLS: lines with their ends, the empty line, the body.
    let sent: usize = request.head.iter().map(|line| line.len() + 2).sum::<usize>() + 2 + request.body.len();
    assert_eq!(outcome.record()["budget"]["bytes_out"]["used"], sent, "BUD-1: {outcome}");
    let script = "while :; do sleep 1; done";
    let little = [options(&service), vec!["--budget".into(), "bytes_out=64".into()]].concat();
    let program = installed().model_client();
    let program = program.to_str().expect("text");
    let work = person.work_dir("little");
    person.write_work(&work.join("s.json"), json!([post("/v1/messages", &messages("x"))]).to_string());
    let mut all = little;
    all.extend(["--ro", program, "--work", work.to_str().expect("text")].map(str::to_owned));
    let outcome =
        person.sh(&all, &format!("{program} s.json; {script}")).within(&net).output().expect_code(123);
    assert_eq!(outcome.record()["exit"]["budget"], "bytes_out", "BUD-4: {outcome}");
    assert_eq!(service.requests().len(), 0, "BUD-2: no debit, no byte: {outcome}");
}
