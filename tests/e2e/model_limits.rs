//! LIM-1, BUD: limits and budgets of model requests, to the request and to the byte.

use serde_json::{Value, json};
use tests::installed::installed;
use tests::internet::Internet;
use tests::model::Service;
use tests::person::Who;

use crate::model::{
    KEY, MODEL, chat, client, merged, messages, options, person_with_key, post, refusal, responses, with,
};

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
        assert_eq!(result["status"], 400, "LIM-1: {result}");
        assert!(refusal(result, true).contains("request_body"), "{result}");
    }
    assert_eq!(statuses[3], 200, "LIM-1: the run goes on: {outcome}");
    let requests = service.settled();
    assert_eq!(requests.len(), 2, "{outcome}");
    let text = requests[0].json()["messages"][0]["content"].as_str().unwrap_or_default().len() as u64;
    assert!(text > 8 * MIB - 200, "all of it arrived: {text}");
}

/// LIM-1: what an agent sends is measured as it sends it. A body of exactly the limit passes, though cap and `store: false`
/// are added to it on the way and more goes out than came in.
#[test]
fn a_body_that_grows_on_the_way_passes_at_the_limit() {
    let Some(net) = Internet::new() else { return };
    let (anthropic, openai) = (Service::anthropic(&net, KEY), Service::openai(&net, KEY));
    let person = person_with_key(Who::User);
    let model = json!({ "model": "m" });
    let mut message = merged(messages("[[text:x]] FILLER"), &model);
    message.as_object_mut().expect("an object").remove("max_tokens");
    for (service, path, body) in [
        (&anthropic, "/v1/messages", message),
        (&openai, "/v1/responses", merged(responses("[[text:x]] FILLER"), &model)),
        (&openai, "/v1/chat/completions", merged(chat("[[text:x]] FILLER"), &model)),
    ] {
        let filled = |bytes: u64| {
            let letters = bytes - body.to_string().len() as u64 + "FILLER".len() as u64;
            with(post(path, &body), "filler", json!(letters))
        };
        let steps = json!([filled(8 * MIB), filled(8 * MIB + 1)]);
        let options = [options(service), vec!["--untrusted".into()]].concat();
        let (results, outcome) = client(&person, &net, &options, &steps);
        assert_eq!(results[0]["status"], 200, "LIM-1: {path}: {} {outcome}", results[0]);
        assert_eq!(results[1]["status"], 400, "LIM-1: {path}: a byte more: {} {outcome}", results[1]);
        assert!(refusal(&results[1], path == "/v1/messages").contains("request_body"), "{}", results[1]);
        let [request] = &service.take()[..] else { panic!("one request: {path}: {outcome}") };
        assert!(request.body.len() as u64 > 8 * MIB, "it did grow: {path}: {}", request.body.len());
        let limits = &outcome.record()["limits"];
        assert_eq!(limits["request_body"]["used"], 8 * MIB, "as sent by the agent: {path}: {outcome}");
        assert_eq!(limits["request_total"]["used"], request.body.len(), "as sent on: {path}: {outcome}");
    }
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
        assert_eq!(refused["status"], 400, "LIM-1: {refused}");
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

/// BUD-7: nothing that an agent gets shows what is left of its budget. A run that has much left and one that has nothing left
/// get the same answers, byte for byte, to the same requests, refused and answered; and see the same environment.
#[test]
fn answers_do_not_show_what_is_left_of_a_budget() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let person = person_with_key(Who::User);
    let question = messages("[[text:Good day.]]");
    let counted = json!({ "model": "m", "messages": question["messages"] });
    let steps = json!([
        post("/v1/messages", &question),
        post("/v1/messages", &merged(question.clone(), &json!({ "container": "c" }))),
        post("/v1/messages", &merged(question.clone(), &json!({ "stream": true }))),
        post("/v1/messages/count_tokens", &counted),
        post("/v1/messages", &messages("[[status:500]]")),
        post("/v1/absent", &json!({})),
        // The run's last request but one, which is refused by a limit, and so debits nothing.
        post("/v1/messages", &question),
        post("/v1/messages", &json!([])),
    ]);
    let run = |destinations: u64, bytes: u64| {
        let budget = [format!("destinations={destinations}"), format!("bytes_out={bytes}")];
        let limit = vec!["--limit".to_owned(), "model_requests=4".to_owned()];
        let budgets = budget.into_iter().flat_map(|budget| ["--budget".to_owned(), budget]);
        let options = [options(&service), limit, budgets.collect()].concat();
        let (results, outcome) = client(&person, &net, &options, &steps);
        let environment = person.sh(&options, "env | grep -v ^ANET_RUN= | sort; ls -a ~ /tmp").within(&net);
        let environment = environment.output().expect_code(0).out();
        (results, outcome.record()["budget"].clone(), environment)
    };
    let (with_much, much, environment) = run(16, 64 * MIB);
    let statuses: Vec<u64> = with_much.iter().filter_map(|result| result["status"].as_u64()).collect();
    assert_eq!(statuses, [200, 400, 200, 200, 500, 404, 400, 400], "answered and refused: {with_much:?}");
    let used = much["bytes_out"]["used"].as_u64().expect("what was used");
    // Of the same requests the last byte and the only destination.
    let (with_nothing, little, same) = run(1, used);
    assert_eq!(little["bytes_out"]["used"], used, "BUD-1: nothing is left of it: {little}");
    assert_eq!(little["destinations"]["used"], 1, "{little}");
    for (number, (much, nothing)) in with_much.iter().zip(&with_nothing).enumerate() {
        for part in ["status", "body", "length", "end"] {
            assert_eq!(much[part], nothing[part], "BUD-7: request {number}: {part}");
        }
        assert_eq!(undated(much), undated(nothing), "BUD-7: request {number}: the head");
    }
    assert_eq!(environment, same, "BUD-7: what the run is started with");
}

/// The head without the time of day.
fn undated(result: &Value) -> Vec<&str> {
    let head = result["head"].as_str().unwrap_or_default();
    head.split("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("date:")).collect()
}
