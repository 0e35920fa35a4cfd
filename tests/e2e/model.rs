//! MOD: model access through the broker, with a client that says what it is told to.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tests::installed::installed;
use tests::internet::Internet;
use tests::model::{End, Recorded, Service};
use tests::person::{Outcome, Person, Who};

/// The key that the services want. Nothing else on the machine is spelled like it.
pub(crate) const KEY: &str = "sk-canary-7Qd2xVbN4mZt9LpR";
/// The stored credential that it is under.
pub(crate) const CREDENTIAL: &str = "boxed";
/// A compatible service.
pub(crate) const COMPATIBLE: &str = "api.example.com";
/// The model that the operator pins.
pub(crate) const MODEL: &str = "pinned-model-1";
/// The cap of MOD-3, in tokens.
pub(crate) const CAP: u64 = 8192;
const MIB: u64 = 1 << 20;

/// A person who has stored the key.
pub(crate) fn person_with_key(who: Who) -> Person {
    let person = Person::new(who);
    store(&person, CREDENTIAL, KEY);
    person
}

fn store(person: &Person, name: &str, key: &str) {
    let outcome = person.anet(["credential", "set", name]).stdin(format!("{key}\n")).output().expect_code(0);
    assert!(!outcome.out().contains(key) && !outcome.err().contains(key), "MOD-11: {outcome}");
}

/// A configuration file of the person's.
pub(crate) fn configure(person: &Person, text: &str) {
    let dir = person.path("config").join("anet");
    fs::create_dir_all(&dir).expect("the directory of the configuration");
    person.give(&dir);
    fs::write(dir.join("anet.toml"), text).expect("the configuration");
    person.give(&dir.join("anet.toml"));
}

/// The options of a run whose command speaks to this service with the stored key.
pub(crate) fn options(service: &Service) -> Vec<String> {
    let words =
        ["--agent", "custom", "--api-base", service.base(), "--model", MODEL, "--credential", CREDENTIAL];
    words.map(str::to_owned).to_vec()
}

/// The steps, done by the client inside one run; what became of each, and the run.
pub(crate) fn client(
    person: &Person,
    net: &Internet,
    options: &[String],
    steps: &Value,
) -> (Vec<Value>, Outcome) {
    let work = tempfile::Builder::new().prefix("steps-").tempdir_in("/tmp").expect("a directory");
    person.give_work(work.path());
    let file = work.path().join("steps.json");
    person.write_work(&file, steps.to_string());
    let program = installed().model_client();
    let program = program.to_str().expect("text");
    let mut all: Vec<String> = options.to_vec();
    all.extend(["--ro", program, "--work", work.path().to_str().expect("text")].map(str::to_owned));
    let call = person.run(&all, [program, file.to_str().expect("text")]);
    let outcome = call.within(net).timeout(Duration::from_secs(240)).output();
    let outcome = outcome.expect_code(0);
    let results = serde_json::from_slice(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome}"));
    (results, outcome)
}

/// A well-formed question to each interface, with these words of the user.
pub(crate) fn messages(words: &str) -> Value {
    json!({ "model": "claude-of-the-agent", "max_tokens": 1000, "messages": [{ "role": "user", "content": words }] })
}

pub(crate) fn responses(words: &str) -> Value {
    json!({ "model": "gpt-of-the-agent", "input": [{ "type": "message", "role": "user",
            "content": [{ "type": "input_text", "text": words }] }] })
}

pub(crate) fn chat(words: &str) -> Value {
    json!({ "model": "gpt-of-the-agent", "messages": [{ "role": "user", "content": words }] })
}

/// Such a question as a step of the client, with the headers that its clients send.
pub(crate) fn post(path: &str, body: &Value) -> Value {
    let headers = if path.starts_with("/v1/messages") {
        json!([["x-api-key", "placeholder"], ["anthropic-version", "2023-06-01"]])
    } else {
        json!([["authorization", "Bearer placeholder"]])
    };
    json!({ "post": path, "headers": headers, "body": body })
}

fn with(mut step: Value, name: &str, value: Value) -> Value {
    step[name] = value;
    step
}

fn merged(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// Services of all three kinds, and which questions each answers.
struct World {
    anthropic: Service,
    openai: Service,
    compatible: Service,
}

impl World {
    fn new(net: &Internet) -> World {
        World {
            anthropic: Service::anthropic(net, KEY),
            openai: Service::openai(net, KEY),
            compatible: Service::compatible(net, COMPATIBLE, KEY),
        }
    }

    fn questions(&self) -> Vec<(&Service, &'static str, Value)> {
        vec![
            (&self.anthropic, "/v1/messages", messages("[[text:Good day.]]")),
            (&self.openai, "/v1/responses", responses("[[text:Good day.]]")),
            (&self.openai, "/v1/chat/completions", chat("[[text:Good day.]]")),
            (&self.compatible, "/v1/chat/completions", chat("[[text:Good day.]]")),
        ]
    }
}

/// The text of a refusal, once its shape is that of the service.
#[track_caller]
pub(crate) fn refusal(result: &Value, as_anthropic: bool) -> String {
    let body: Value = serde_json::from_str(result["body"].as_str().unwrap_or_default())
        .unwrap_or_else(|e| panic!("MOD-10: a refusal is JSON ({e}): {result}"));
    if as_anthropic {
        assert_eq!(body["type"], "error", "MOD-10: Anthropic's shape: {result}");
    }
    assert!(body["error"]["type"].is_string(), "MOD-10: the service's shape: {result}");
    let message = body["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("anet:"), "MOD-10: {result}");
    message
}

/// What every request that reaches a service has to be, whatever the agent sent.
#[track_caller]
pub(crate) fn proper(request: &Recorded, host: &str, model: &str) {
    let shown = || format!("{:?} {}", request.head, String::from_utf8_lossy(&request.body));
    assert_eq!(request.header("host"), Some(host), "{}", shown());
    if request.tls_name.is_some() {
        assert_eq!(request.tls_name.as_deref(), Some(host), "MOD-13: {}", shown());
    }
    assert_eq!(request.header("accept-encoding"), Some("identity"), "MOD-11: {}", shown());
    assert!(request.values("content-encoding").is_empty(), "MOD-8: {}", shown());
    let body = request.json();
    assert_eq!(body["model"], model, "MOD-2: {}", shown());
    let caps: Vec<u64> = ["max_tokens", "max_completion_tokens", "max_output_tokens"]
        .iter()
        .filter_map(|name| body[*name].as_u64())
        .collect();
    let wanted = usize::from(request.path() != "/v1/messages/count_tokens");
    assert_eq!(caps.len(), wanted, "MOD-3: one cap: {}", shown());
    assert!(caps.iter().all(|cap| *cap <= CAP), "MOD-3: {}", shown());
    if !request.path().starts_with("/v1/messages") {
        assert_eq!(body["store"], false, "MOD-6: {}", shown());
    }
}

/// MOD-1, MOD-2, MOD-3, MOD-6, MOD-11, MOD-13: the agent asks with a placeholder and a model of its own; the service
/// hears the operator's key and model, over TLS with its own name; the agent gets the answer and none of what is the
/// operator's in its head.
#[test]
fn a_question_goes_through_with_the_operators_key_and_model() {
    let Some(net) = Internet::new() else { return };
    for who in Who::all() {
        let world = World::new(&net);
        let person = person_with_key(*who);
        for (service, path, body) in world.questions() {
            let streamed = merged(body.clone(), &json!({ "stream": true }));
            let steps = json!([post(path, &body), post(path, &streamed)]);
            let (results, outcome) = client(&person, &net, &options(service), &steps);
            for result in &results {
                assert_eq!(result["status"], 200, "{path}: {result} {outcome}");
                assert!(result["body"].as_str().unwrap_or_default().contains("Good"), "{path}: {result}");
                let head = result["head"].as_str().unwrap_or_default().to_ascii_lowercase();
                for private in ["cookie", "organi", "alt-svc", KEY] {
                    assert!(!head.contains(private), "MOD-11: {private} comes back: {head}");
                }
            }
            let event_stream = results[1]["head"].as_str().unwrap_or_default().contains("text/event-stream");
            assert!(event_stream, "MOD-11: {}", results[1]);
            let requests = service.take();
            assert_eq!(requests.len(), 2, "{outcome}");
            for request in &requests {
                proper(request, &service.host().name, MODEL);
                let keys = [request.values("x-api-key"), request.values("authorization")].concat();
                assert_eq!(keys.len(), 1, "MOD-7: one key: {:?}", request.head);
                assert!(keys[0].trim_start_matches("Bearer ") == KEY, "MOD-1: the key");
                assert!(!request.head.join("\n").contains("placeholder"), "MOD-7: {:?}", request.head);
            }
            let model = &outcome.record()["model"];
            assert_eq!((&model["requests"], &model["refused"]), (&json!(2), &json!(0)), "{outcome}");
        }
        assert_eq!(net.strays(), []);
    }
}

/// MOD-1, SBX-6: what the sandbox's environment says of the model is an address of its own loopback.
#[test]
fn the_sandbox_sees_an_address_and_no_key() {
    let Some(net) = Internet::new() else { return };
    let service = Service::compatible(&net, COMPATIBLE, KEY);
    for who in Who::all() {
        let person = person_with_key(*who);
        let script = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; grep -r sk-canary $HOME . || true";
        let outcome = person.sh(options(&service), script).within(&net).output().expect_code(0);
        assert!(outcome.out().contains("ANET_MODEL_URL=http://127.0.0.1:"), "{outcome}");
        assert!(!outcome.out().contains(KEY), "MOD-1: {outcome}");
    }
}

/// MOD-3, MOD-6, MOD-7: what an agent sets too high, or sets at all where it must not, is cleaned.
#[test]
fn requests_are_cleaned() {
    let Some(net) = Internet::new() else { return };
    let world = World::new(&net);
    let person = person_with_key(Who::User);
    let many = json!({ "max_tokens": 128_000, "service_tier": "priority", "metadata": { "user_id": "who-it-is" },
                       "thinking": { "type": "enabled", "budget_tokens": 127_999 } });
    let headers = json!([
        ["anthropic-version", "2023-06-01"],
        ["authorization", "Bearer evil.example.com"],
        ["x-api-key", "evil.example.com"],
        ["api-key", "evil.example.com"],
        ["cookie", "a=evil.example.com"],
        ["proxy-authorization", "Basic evil.example.com"],
        ["openai-organization", "evil.example.com"],
        ["openai-project", "evil.example.com"],
        ["x-forwarded-host", "evil.example.com"],
        ["x-forwarded-for", "evil.example.com"],
        ["forwarded", "host=evil.example.com"],
        ["x-host", "evil.example.com"],
        ["x-original-url", "/evil.example.com"],
        ["x-http-method-override", "evil.example.com"],
        ["x-rewrite-url", "/evil.example.com"],
        ["referer", "https://evil.example.com"],
        ["origin", "https://evil.example.com"],
        ["anthropic-workspace-id", "evil.example.com"],
        ["x-unheard-of", "evil.example.com"],
        ["te", "trailers"],
        [
            "anthropic-beta",
            "interleaved-thinking-2025-05-14,files-api-2025-04-14,evil.example.com-2026-01-01,code-execution-2025-05-22"
        ],
    ]);
    let ask = |path: &str, body: Value| json!({ "post": path, "headers": headers, "body": body });
    let checks = [
        (&world.anthropic, ask("/v1/messages", merged(messages("[[text:x]]"), &many))),
        (&world.anthropic, ask("/v1/messages?beta=true", messages("[[text:x]]"))),
        (
            &world.openai,
            ask(
                "/v1/responses",
                merged(responses("[[text:x]]"), &json!({ "max_output_tokens": 128_000, "store": true })),
            ),
        ),
        (&world.openai, ask("/v1/responses", responses("[[text:x]]"))),
        (
            &world.openai,
            ask(
                "/v1/chat/completions",
                merged(chat("[[text:x]]"), &json!({ "max_tokens": 128_000, "n": 5, "store": true })),
            ),
        ),
        (
            &world.openai,
            ask(
                "/v1/chat/completions",
                merged(chat("[[text:x]]"), &json!({ "max_completion_tokens": 9000 })),
            ),
        ),
        (
            &world.compatible,
            ask(
                "/v1/chat/completions",
                merged(chat("[[text:x]]"), &json!({ "max_completion_tokens": 9000 })),
            ),
        ),
        (&world.compatible, ask("/v1/chat/completions", chat("[[text:x]]"))),
    ];
    for (service, step) in checks {
        let (results, outcome) = client(&person, &net, &options(service), &json!([step]));
        assert_eq!(results[0]["status"], 200, "MOD-3: it stays a valid request: {} {outcome}", results[0]);
        let [request] = &service.take()[..] else { panic!("one request: {outcome}") };
        proper(request, &service.host().name, MODEL);
        let all = request.head.join("\n") + &String::from_utf8_lossy(&request.body);
        for gone in ["evil.example.com", "who-it-is", "priority", "files-api", "code-execution"] {
            assert!(!all.contains(gone), "MOD-7: {gone} reached the service: {all}");
        }
        let body = request.json();
        assert!(body["n"].is_null() || body["n"] == 1, "MOD-3: {body}");
        if let Some(budget) = body["thinking"]["budget_tokens"].as_u64() {
            assert!((1024..=CAP / 2).contains(&budget), "MOD-3: {body}");
        }
    }
}

/// MOD-3: the operator may raise the cap for a run of their own.
#[test]
fn the_cap_is_the_operators_to_raise() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let person = person_with_key(Who::User);
    for (cap, wanted) in [("16384", 16384), ("100", 100)] {
        let options = [options(&service), vec!["--limit".into(), format!("output_tokens={cap}")]].concat();
        let body = merged(messages("[[text:x]]"), &json!({ "max_tokens": 50_000 }));
        let (results, outcome) = client(&person, &net, &options, &json!([post("/v1/messages", &body)]));
        assert_eq!(results[0]["status"], 200, "{outcome}");
        assert_eq!(service.take()[0].json()["max_tokens"], wanted, "{outcome}");
    }
}

/// MOD-9: the list of models is the pinned one, and the service does not hear of it.
#[test]
fn models_are_listed_without_the_service() {
    let Some(net) = Internet::new() else { return };
    let service = Service::compatible(&net, COMPATIBLE, KEY);
    let person = person_with_key(Who::User);
    let steps = json!([{ "send": "GET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n" }]);
    let (results, outcome) = client(&person, &net, &options(&service), &steps);
    assert_eq!(results[0]["status"], 200, "{outcome}");
    let list: Value = serde_json::from_str(results[0]["body"].as_str().unwrap_or_default()).expect("JSON");
    let names: Vec<&str> =
        list["data"].as_array().into_iter().flatten().filter_map(|m| m["id"].as_str()).collect();
    assert_eq!(names, [MODEL], "{outcome}");
    assert_eq!((service.requests().len(), service.connections()), (0, 0));
}

/// MOD-11: events come through one by one, as they are sent.
#[test]
fn answers_stream() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let person = person_with_key(Who::User);
    let body = merged(
        messages("[[slow]][[text:One after another, and slowly, as people write.]]"),
        &json!({ "stream": true }),
    );
    let (results, outcome) = client(&person, &net, &options(&service), &json!([post("/v1/messages", &body)]));
    let (first, all) = (results[0]["first_ms"].as_u64(), results[0]["after_ms"].as_u64());
    assert!(all > Some(1000), "the service took its time: {outcome}");
    assert!(first < Some(500), "MOD-11: the first byte waited {first:?} of {all:?} ms: {outcome}");
}

/// An agent that goes away takes its request with it; the next one is served.
#[test]
fn an_abandoned_request_is_cancelled() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let person = person_with_key(Who::User);
    let slow =
        merged(messages(&format!("[[slow]][[text:{}]]", "long ".repeat(200))), &json!({ "stream": true }));
    let steps = json!([
        with(post("/v1/messages", &slow), "abandon_ms", json!(600)),
        { "ms": 1500 },
        post("/v1/messages", &messages("[[text:x]]")),
    ]);
    let (results, outcome) = client(&person, &net, &options(&service), &steps);
    assert_eq!(results[2]["status"], 200, "{outcome}");
    let requests = service.settled();
    assert_eq!(requests[0].end, End::ClientGone, "the service sends to nobody any more");
    assert!(requests[1].at > requests[0].at);
}

/// Connections to the service are kept: a handshake for each request would cost its latency each time.
#[test]
fn connections_to_the_service_are_kept() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let person = person_with_key(Who::User);
    let steps: Value = (0..10).map(|_| post("/v1/messages", &messages("[[text:x]]"))).collect();
    let (results, outcome) = client(&person, &net, &options(&service), &steps);
    assert!(results.iter().all(|r| r["status"] == 200), "{outcome}");
    assert_eq!((service.requests().len(), service.connections()), (10, 1), "{outcome}");
}

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
                    assert_eq!(result["status"], 403, "LIM-1: number {number}: {result}");
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
        assert!(result["status"] == 403 || result["status"] == 413, "LIM-1: {result}");
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
        assert!(refused["status"] == 403 || refused["status"] == 413, "LIM-1: {refused}");
        assert!(refusal(refused, true).contains("request_total"), "{refused}");
        assert_eq!(service.take().len(), 3, "{outcome}");
        assert_eq!(outcome.record()["limits"]["request_total"]["used"], 16 * MIB, "{outcome}");
    }
}

/// What a failing service is to the agent, and the word for it in the operator's one line.
const FAILURES: &[(&str, &[u64], &[&str])] = &[
    ("[[status:401]]", &[401, 403, 502], &["401", "key"]),
    ("[[status:429]]", &[429], &["429"]),
    ("[[status:500]]", &[500], &["500"]),
    ("[[status:529]]", &[529], &["529"]),
    ("[[cut]]", &[200, 502], &["upstream_closed", "ended", "cut", "broke"]),
    ("[[hang]]", &[504], &["upstream_timeout", "within", "time"]),
    ("[[hang:head]]", &[200, 502, 504], &["upstream_timeout", "within", "time"]),
    ("[[hang:middle]]", &[200], &["upstream_timeout", "within", "time"]),
];

/// MOD-11: an upstream's failure becomes its own error, never a hang; the operator reads one line that says which; the
/// run goes on, and the next question is answered.
#[test]
fn a_failing_service_is_an_error_and_never_a_hang() {
    let Some(net) = Internet::new() else { return };
    let world = World::new(&net);
    let person = person_with_key(Who::User);
    configure(&person, "[auto_reply]\napi_timeout_seconds = 3\n");
    // Most of the time is spent waiting for a service that is silent: at the same time for each.
    std::thread::scope(|scope| {
        for (service, path, body) in world.questions() {
            let (net, person) = (&net, &person);
            scope.spawn(move || failures(person, net, service, path, &body));
        }
    });
}

fn failures(person: &Person, net: &Internet, service: &Service, path: &str, body: &Value) {
    for streamed in [true, false] {
        for (order, statuses, words) in FAILURES {
            let text = body.to_string().replace("[[text:Good day.]]", &format!("{order}[[text:Good day.]]"));
            let failing: Value = serde_json::from_str(&text).expect("JSON");
            let failing = merged(failing, &json!({ "stream": streamed }));
            let steps = json!([with(post(path, &failing), "patience_ms", json!(20_000)), post(path, body)]);
            let (results, outcome) = client(person, net, &options(service), &steps);
            let case = format!("{path} {order} streamed {streamed}");
            let (failed, next) = (&results[0], &results[1]);
            let status = failed["status"].as_u64().unwrap_or_default();
            assert!(statuses.contains(&status), "MOD-11: {case}: {failed}");
            assert_ne!(failed["end"], "silence", "MOD-11: {case} hangs: {failed}");
            assert!(failed["after_ms"].as_u64() < Some(8_000), "MOD-11: {case}: {failed}");
            if status == 200 {
                // A head is out already: what tells the agent is an end that is none, or an event that says so.
                let said = failed["body"].as_str().unwrap_or_default();
                let told = failed["end"] != "whole" || said.contains("anet:");
                assert!(told, "MOD-11: {case}: half an answer looks whole: {failed}");
            }
            assert_eq!(next["status"], 200, "{case}: the run goes on: {outcome}");
            let err = outcome.err();
            let line = |line: &&str| words.iter().any(|word| line.contains(word));
            assert_eq!(err.lines().filter(line).count(), 1, "one line for the operator: {case}: {outcome}");
            assert!(!err.contains(KEY) && !failed.to_string().contains(KEY), "MOD-11: {case}: {outcome}");
        }
    }
}

/// MOD-11, MOD-13: a service that is not there, and one that cannot prove who it is.
#[test]
fn a_service_that_is_not_there_or_not_itself_is_an_error() {
    let Some(net) = Internet::new() else { return };
    let service = Service::compatible(&net, COMPATIBLE, KEY);
    let person = person_with_key(Who::User);
    let ask = || json!([post("/v1/chat/completions", &chat("[[text:x]]"))]);
    let absent = Ipv4Addr::new(151, 101, 200, 9);
    net.unreachable(absent);
    net.dns().a("gone.example.com", &[absent]);
    let mut elsewhere = options(&service);
    elsewhere[3] = "https://gone.example.com/v1".into();
    let (results, outcome) = client(&person, &net, &elsewhere, &ask());
    assert_eq!(results[0]["status"], 502, "{outcome}");
    assert!(refusal(&results[0], false).contains("upstream_unreachable"), "{outcome}");
    // The store has another authority now: the service's certificate is nobody's.
    net.replace_file("/etc/ssl/certs/ca-certificates.crt", OTHER_AUTHORITY.as_bytes());
    let (results, outcome) = client(&person, &net, &options(&service), &ask());
    assert_eq!(results[0]["status"], 502, "MOD-13: {outcome}");
    assert!(refusal(&results[0], false).contains("upstream_tls"), "MOD-13: {outcome}");
    assert!(outcome.err().lines().any(|line| line.contains("certificate")), "{outcome}");
    assert_eq!(service.requests().len(), 0, "MOD-13: not a byte of the request");
}

/// A certificate authority that signed nothing here (made with openssl for this test; its key was thrown away).
const OTHER_AUTHORITY: &str = include_str!("other-authority.pem");

/// MOD-1, MOD-12: the key by the service's usual variable, and by the stored credential of the usual name; the named one
/// stands above both. A key never goes to a service that it was not named for.
#[test]
fn a_key_comes_from_a_variable_or_the_store() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let openai = Service::openai(&net, KEY);
    let program = installed().model_client();
    let program = program.to_str().expect("text").to_owned();
    let run = |person: &Person, base: &str, path: &str, body: &Value, env: &[(&str, &str)], more: &[&str]| {
        let work = tempfile::Builder::new().prefix("steps-").tempdir_in("/tmp").expect("a directory");
        person.give_work(work.path());
        let file = work.path().join("steps.json");
        person.write_work(&file, json!([post(path, body)]).to_string());
        let dir = work.path().to_str().expect("text").to_owned();
        let mut words =
            vec!["--agent", "custom", "--api-base", base, "--model", MODEL, "--ro", &program, "--work", &dir];
        words.extend(more);
        let mut call = person.run(&words, [program.as_str(), file.to_str().expect("text")]).within(&net);
        for (name, value) in env {
            call = call.env(*name, *value);
        }
        call.output()
    };
    let status = |outcome: &Outcome| {
        let results: Value =
            serde_json::from_slice(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome}"));
        results[0]["status"].clone()
    };
    let (base, other) = (service.base().to_owned(), openai.base().to_owned());
    let body = messages("[[text:x]]");
    for who in Who::all() {
        let person = Person::new(*who);
        let none = run(&person, &base, "/v1/messages", &body, &[], &[]);
        assert_eq!(none.expect_failure_of_anet(125), "no_api_key", "DIA-2: {none}");
        let by_variable = run(&person, &base, "/v1/messages", &body, &[("ANTHROPIC_API_KEY", KEY)], &[]);
        assert_eq!(status(&by_variable), 200, "{by_variable}");
        // OpenAI's variable says nothing to Anthropic, and the other way round.
        let wrong = run(&person, &base, "/v1/messages", &body, &[("OPENAI_API_KEY", KEY)], &[]);
        assert_eq!(wrong.expect_failure_of_anet(125), "no_api_key", "{wrong}");
        store(&person, "anthropic", KEY);
        let stored = run(&person, &base, "/v1/messages", &body, &[], &[]);
        assert_eq!(status(&stored), 200, "{stored}");
        // The named one counts, right or wrong.
        store(&person, "stale", "sk-stale-key");
        let named = run(
            &person,
            &base,
            "/v1/messages",
            &body,
            &[("ANTHROPIC_API_KEY", KEY)],
            &["--credential", "stale"],
        );
        assert_ne!(status(&named), 200, "--credential stands above the variable: {named}");
        let absent = run(
            &person,
            &base,
            "/v1/messages",
            &body,
            &[("ANTHROPIC_API_KEY", KEY)],
            &["--credential", "absent"],
        );
        assert_eq!(absent.expect_failure_of_anet(125), "no_api_key", "{absent}");
        let elsewhere = run(&person, &other, "/v1/responses", &responses("[[text:x]]"), &[], &[]);
        assert_eq!(elsewhere.expect_failure_of_anet(125), "no_api_key", "{elsewhere}");
        // Passing it in by a slip is refused, not obeyed.
        let slip = run(
            &person,
            &base,
            "/v1/messages",
            &body,
            &[("ANTHROPIC_API_KEY", KEY)],
            &["--env", "ANTHROPIC_API_KEY"],
        );
        assert_eq!(slip.expect_failure_of_anet(125), "bad_option", "MOD-1: {slip}");
        assert!(openai.take().is_empty());
        service.take();
    }
}

/// `anet credential`: the value from standard input, stored for its owner alone, replaced whole, listed without it.
#[test]
fn credentials_are_stored_listed_and_removed() {
    use std::os::unix::fs::PermissionsExt as _;
    for who in Who::all() {
        let person = Person::new(*who);
        store(&person, "one", "sk-canary-first");
        store(&person, "two", "sk-canary-other");
        store(&person, "one", "sk-canary-second");
        let files = holding(&person.path(""), b"sk-canary-");
        assert_eq!(files.len(), 2, "one file each, and nothing of the value that was replaced: {files:?}");
        for file in &files {
            let mode = fs::metadata(file).expect("metadata").permissions().mode() & 0o777;
            assert!(mode == 0o600 || mode == 0o400, "{}: {mode:o}", file.display());
        }
        assert!(holding(&person.path(""), b"sk-canary-first").is_empty(), "replaced");
        let list = person.anet(["credential", "list"]).output().expect_code(0);
        assert!(
            list.out().contains("one") && list.out().contains("two") && !list.out().contains("canary"),
            "{list}"
        );
        let json = person.anet(["--json", "credential", "list"]).output().expect_code(0);
        serde_json::from_slice::<Value>(&json.stdout).unwrap_or_else(|e| panic!("DIA-3: {e}: {json}"));
        assert!(!json.out().contains("canary"), "{json}");
        person.anet(["credential", "remove", "one"]).output().expect_code(0);
        assert!(holding(&person.path(""), b"sk-canary-second").is_empty(), "removed");
        let again = person.anet(["credential", "remove", "one"]).output();
        assert_ne!(again.code(), 0, "what is not there cannot be removed: {again}");
        for (name, value) in [("../x", "v"), ("UPPER", "v"), ("", "v"), ("ok", ""), ("ok", "two\nlines")] {
            let refused = person.anet(["credential", "set", name]).stdin(value).output();
            assert_ne!(refused.code(), 0, "{name:?} {value:?}: {refused}");
        }
        // A value as an argument would be in every process list.
        assert_ne!(person.anet(["credential", "set", "three", "sk-canary-argument"]).output().code(), 0);
    }
}

/// Files below a directory that hold these bytes.
pub(crate) fn holding(dir: &Path, bytes: &[u8]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            found.extend(holding(&path, bytes));
        } else if kind.is_file() {
            let content = fs::read(&path).unwrap_or_default();
            if content.windows(bytes.len()).any(|window| window == bytes) {
                found.push(path);
            }
        }
    }
    found
}

/// MOD-12, DIA-2: what is missing is said before anything starts, each with its code.
#[test]
fn what_is_missing_is_said_before_anything_starts() {
    let person = person_with_key(Who::User);
    let cases: &[(&[&str], &str)] = &[
        (&["--agent", "cursor", "--prompt", "x"], "agent_unsupported"),
        (&["--agent", "claude", "--prompt", "x"], "agent_missing"),
        (&["--agent", "opencode", "--prompt", "x"], "no_api_base"),
        (&["--agent", "hermes", "--", "true"], "no_api_base"),
        (&["--agent", "custom", "--", "true"], "no_api_base"),
        (
            &[
                "--agent",
                "custom",
                "--api-base",
                "https://api.example.com/v1",
                "--credential",
                CREDENTIAL,
                "--",
                "true",
            ],
            "no_model",
        ),
        (
            &["--agent", "custom", "--api-base", "https://api.example.com/v1", "--model", "m", "--", "true"],
            "no_api_key",
        ),
        (&["--agent", "claude", "--api-base", "https://api.example.com", "--", "true"], "bad_option"),
        (&["--agent", "codex", "--api-base", "https://api.example.com", "--", "true"], "bad_option"),
        (&["--agent", "nobody", "--", "true"], "bad_option"),
    ];
    for (words, code) in cases {
        let call = person.anet(["run"].iter().chain(*words).copied());
        // Only what the test puts there: an agent that the machine happens to have is not found.
        let outcome = call.env("PATH", "/usr/bin:/bin").output();
        assert_eq!(outcome.expect_failure_of_anet(125), *code, "{words:?}: {outcome}");
    }
}

/// MOD-15: https, or plain http to the own loopback, where no key is needed.
#[test]
fn plain_http_is_for_the_loopback_alone() {
    let Some(net) = Internet::new() else { return };
    let local = Service::loopback(&net);
    for who in Who::all() {
        let person = Person::new(*who);
        let words = ["--agent", "custom", "--api-base", local.base(), "--model", MODEL].map(str::to_owned);
        let steps = json!([post("/v1/chat/completions", &chat("[[text:Good day.]]"))]);
        let (results, outcome) = client(&person, &net, &words, &steps);
        assert_eq!(results[0]["status"], 200, "MOD-15: {} {outcome}", results[0]);
        let [request] = &local.take()[..] else { panic!("one request: {outcome}") };
        proper(request, &local.address().expect("an address").to_string(), MODEL);
        assert!(request.values("authorization").is_empty(), "no key: {:?}", request.head);
        for base in [
            "http://api.example.com/v1",
            "http://151.101.0.1/v1",
            "http://10.0.0.1:11434/v1",
            "http://0.0.0.0/v1",
            "http://127.0.0.1.example.com/v1",
            "http://localhost.example.com/v1",
            "ftp://api.example.com",
            "api.example.com",
            "https://user:secret@api.example.com",
            "https://api.example.com/v1?x=y",
            "https://",
        ] {
            let outcome = person
                .anet(["run", "--agent", "custom", "--api-base", base, "--model", "m", "--", "true"])
                .output();
            assert_eq!(outcome.expect_failure_of_anet(125), "bad_option", "MOD-15: {base}: {outcome}");
            assert!(!outcome.err().contains("secret"), "{outcome}");
        }
        assert_eq!(net.strays(), []);
    }
}

/// MOD-15: a service on a private address needs the operator's word.
#[test]
fn a_private_service_needs_to_be_named_as_one() {
    let Some(net) = Internet::new() else { return };
    let service = Service::compatible_at(&net, "models.example.com", Ipv4Addr::new(10, 9, 8, 7), KEY);
    let person = person_with_key(Who::User);
    let words = ["--agent", "custom", "--model", MODEL, "--credential", CREDENTIAL].map(str::to_owned);
    let steps = json!([post("/v1/chat/completions", &chat("[[text:x]]"))]);
    for (private, wanted) in [(false, 502), (true, 200)] {
        let base = service.base();
        configure(
            &person,
            &format!(
                "[auto_reply]\nagent = \"custom\"\napi_base = \"{base}\"\napi_base_private = {private}\n"
            ),
        );
        let (results, outcome) = client(&person, &net, &words, &steps);
        assert_eq!(results[0]["status"], wanted, "MOD-15: private {private}: {} {outcome}", results[0]);
        assert_eq!(service.take().len(), usize::from(private), "{outcome}");
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
