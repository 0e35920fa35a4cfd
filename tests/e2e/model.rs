//! MOD: model access through the broker, with a client that says what it is told to.

use std::fs;
use std::net::Ipv4Addr;
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

/// A person who has stored the key.
pub(crate) fn person_with_key(who: Who) -> Person {
    let person = Person::new(who);
    store(&person, CREDENTIAL, KEY);
    person
}

pub(crate) fn store(person: &Person, name: &str, key: &str) {
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

pub(crate) fn with(mut step: Value, name: &str, value: Value) -> Value {
    step[name] = value;
    step
}

pub(crate) fn merged(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// Services of all three kinds, and which questions each answers.
pub(crate) struct World {
    anthropic: Service,
    openai: Service,
    compatible: Service,
}

impl World {
    pub(crate) fn new(net: &Internet) -> World {
        World {
            anthropic: Service::anthropic(net, KEY),
            openai: Service::openai(net, KEY),
            compatible: Service::compatible(net, COMPATIBLE, KEY),
        }
    }

    pub(crate) fn questions(&self) -> Vec<(&Service, &'static str, Value)> {
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
