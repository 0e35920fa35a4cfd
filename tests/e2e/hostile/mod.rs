//! MOD-4 to MOD-10: several hundred hostile requests from inside the sandbox, in one run for each service. None reaches
//! it, each is refused in the service's own shape, and the run goes on.
//!
//! Attacked twice: the same requests, sent to a service without anet, do reach it.

mod anthropic;
mod chat;
mod heads;
mod json;
mod responses;

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use serde_json::{Value, json as value};
use tests::installed::installed;
use tests::internet::Internet;
use tests::model::Service;
use tests::person::Who;

use crate::model::{COMPATIBLE, KEY, client, options, person_with_key, post};

/// What a hostile request would reach for: nothing that a service gets may hold it.
const EVIL: &str = "evil.example.com";
/// What a rule answers (MOD-10), and nothing else: never 401 or 429, which agents try again, nor 403, which they take for a
/// key that is wrong.
const STATUSES: [u64; 8] = [400, 404, 405, 408, 411, 415, 426, 431];
/// A good request stands after so many hostile ones: the run goes on.
const EVERY: usize = 25;

/// One hostile request.
struct Case {
    /// What it tries, for the report.
    label: String,
    /// As the client sends it.
    step: Value,
    /// A word that the refusal has to have: the field, tool or type by name.
    names: String,
    /// It may also be let through without the hostile part.
    cleaned: bool,
    /// The only status that is right, where there is one.
    status: Option<u64>,
}

impl Case {
    fn new(label: impl Into<String>, step: Value) -> Case {
        Case { label: label.into(), step, names: String::new(), cleaned: false, status: None }
    }

    fn naming(mut self, names: impl Into<String>) -> Case {
        self.names = names.into();
        self
    }

    fn or_cleaned(mut self) -> Case {
        self.cleaned = true;
        self
    }

    fn only(mut self, status: u64) -> Case {
        self.status = Some(status);
        self
    }

    /// Whether the request is well formed as HTTP: then it does reach a service that nobody guards.
    fn is_posted(&self) -> bool {
        self.step["post"].is_string()
    }
}

/// A body with one more field, whose key is spelled in the ways that JSON allows.
fn with_field(body: &Value, key: &str, content: &Value) -> Vec<String> {
    let text = body.to_string();
    let open = text.strip_suffix('}').expect("an object");
    spellings(key).iter().map(|key| format!("{open},\"{key}\":{content}}}")).collect()
}

/// One text as JSON may spell it: as it is, its first letter escaped, all of it escaped.
fn spellings(text: &str) -> Vec<String> {
    let escaped =
        |letters: &str| letters.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect::<String>();
    let first = text.chars().next().map_or(0, char::len_utf8);
    let mut all = vec![text.to_owned()];
    if text.is_ascii() && !text.is_empty() {
        all.push(escaped(&text[..first]) + &text[first..]);
        all.push(escaped(text).to_uppercase().replace("\\U", "\\u"));
    }
    all
}

/// Every case of every field: a word that the refusal names.
fn fields(path: &str, body: &Value, fields: &[(&str, Value)]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (key, content) in fields {
        for text in with_field(body, key, content) {
            let step = post(path, &Value::String(text));
            cases.push(Case::new(format!("{path} field {key}: {content}"), step).naming(*key));
        }
    }
    cases
}

/// The body with something else in one place (a JSON pointer).
fn replaced(body: &Value, pointer: &str, content: Value) -> Value {
    let mut body = body.clone();
    *body.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} in the body")) = content;
    body
}

/// The tools that run at a service, or that nobody knows, wherever `place` puts one.
fn tools(path: &str, types: &[&str], place: &dyn Fn(Value) -> Vec<(&'static str, Value)>) -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in types {
        let tool = value!({ "type": kind, "name": "helper", "url": format!("https://{EVIL}/"),
                            "server_url": format!("https://{EVIL}/"), "server_label": "x" });
        for (whence, body) in place(tool) {
            let label = format!("{path} tool {kind} in {whence}");
            let text = body.to_string();
            for spelled in spellings(kind) {
                let text = text.replace(&format!("\"type\":\"{kind}\""), &format!("\"type\":\"{spelled}\""));
                cases.push(Case::new(label.clone(), post(path, &Value::String(text))).naming(*kind));
            }
        }
    }
    cases
}

/// All cases in one run: none reaches the service, each is refused as MOD-10 says, the good ones between them pass.
fn judge(net: &Internet, service: &Service, cases: &[Case], good: &Value, as_anthropic: bool) {
    let person = person_with_key(Who::User);
    let mut steps = Vec::new();
    let mut place = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        if number % EVERY == 0 {
            steps.push(good.clone());
        }
        place.push(steps.len());
        steps.push(case.step.clone());
    }
    steps.push(good.clone());
    let goods = steps.len() - cases.len();
    let (results, outcome) = client(&person, net, &options(service), &Value::Array(steps));
    let mut wrong = Vec::new();
    let mut cleaned = 0;
    for (case, at) in cases.iter().zip(&place) {
        let result = &results[*at];
        let status = result["status"].as_u64().unwrap_or_default();
        if case.cleaned && status == 200 {
            cleaned += 1;
            continue;
        }
        if let Err(why) = refused(case, result, as_anthropic) {
            wrong.push(format!("{}: {why}: status {status}, {:.300}", case.label, result.to_string()));
        }
    }
    for (at, result) in results.iter().enumerate().filter(|(at, _)| !place.contains(at)) {
        if result["status"] != 200 {
            wrong.push(format!("the good request at {at} failed: {result:.300}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    let requests = service.settled();
    let reached = requests.iter().filter(|r| {
        let all = r.head.join("\n") + &String::from_utf8_lossy(&r.body);
        all.contains(EVIL) || all.contains("unheard_of")
    });
    let reached: Vec<String> =
        reached.map(|r| format!("{:?} {}", r.head, String::from_utf8_lossy(&r.body))).collect();
    assert!(reached.is_empty(), "these reached the service:\n{}", reached.join("\n"));
    assert_eq!(requests.len(), goods + cleaned, "nothing else reached the service");
    let names = net.dns().queries().into_iter().map(|query| query.name);
    // The second is how a network that translates addresses is recognised.
    let strange: Vec<String> =
        names.filter(|name| *name != service.host().name && name != "ipv4only.arpa").collect();
    assert!(strange.is_empty(), "MOD-12: names that were looked up: {strange:?}");
    assert_eq!(net.strays(), []);
    let model = &outcome.record()["model"];
    let refused = (cases.len() - cleaned) as u64;
    assert_eq!(model["requests"], (goods + cleaned) as u64, "{outcome}");
    assert!(model["refused"].as_u64().is_some_and(|count| count > 0 && count <= refused), "{outcome}");
}

fn refused(case: &Case, result: &Value, as_anthropic: bool) -> Result<(), String> {
    let status = result["status"].as_u64().unwrap_or_default();
    if !STATUSES.contains(&status) || case.status.is_some_and(|only| only != status) {
        return Err(format!("no status of a refusal (expected {:?})", case.status));
    }
    let head = result["head"].as_str().unwrap_or_default().to_ascii_lowercase();
    if !head.contains("x-should-retry: false") {
        return Err("no x-should-retry: false".to_owned());
    }
    if case.step["head"] == true {
        return Ok(());
    }
    let body: Value = serde_json::from_str(result["body"].as_str().unwrap_or_default())
        .map_err(|e| format!("the body is no JSON ({e})"))?;
    let message = body["error"]["message"].as_str().unwrap_or_default();
    if !message.starts_with("anet:") || !body["error"]["type"].is_string() {
        return Err("not the service's shape, or no anet: sentence".to_owned());
    }
    if as_anthropic && body["type"] != "error" {
        return Err("not Anthropic's shape".to_owned());
    }
    if !message.contains(&case.names) {
        return Err(format!("it does not name {:?}", case.names));
    }
    if message.contains(KEY) || message.contains("placeholder-key") {
        return Err("it shows a key".to_owned());
    }
    Ok(())
}

/// Sends the well-formed ones to a service that nobody guards: each has to arrive there.
fn unguarded(compatible: bool, cases: &[Case]) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let service = Service::plain(listener, compatible, None);
    let steps: Vec<&Value> = cases.iter().filter(|case| case.is_posted()).map(|case| &case.step).collect();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("steps.json");
    std::fs::write(&file, serde_json::to_string(&steps).expect("JSON")).expect("steps");
    let url = service.base().trim_end_matches("/v1").to_owned();
    let output = Command::new(installed().model_client()).arg(&file).env("ANET_MODEL_URL", url).output();
    let output = output.expect("the client");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(service.settled().len(), steps.len(), "attack twice: each arrives where nobody is in its way");
}

/// MOD-4, MOD-5, MOD-7, MOD-8, MOD-9, MOD-10: Anthropic's interface.
#[test]
fn hostile_requests_to_anthropic_are_refused() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let mut cases = anthropic::cases();
    cases.extend(json::cases("/v1/messages", &anthropic::body()));
    cases.extend(heads::cases("/v1/messages", &anthropic::body()));
    cases.extend(heads::paths(&["/v1/responses", "/v1/chat/completions"]));
    judge(&net, &service, &cases, &post("/v1/messages", &anthropic::body()), true);
    unguarded(false, &cases);
}

/// MOD-4, MOD-5, MOD-7, MOD-8, MOD-9, MOD-10: OpenAI's two interfaces.
#[test]
fn hostile_requests_to_openai_are_refused() {
    let Some(net) = Internet::new() else { return };
    let service = Service::openai(&net, KEY);
    let mut cases = responses::cases();
    cases.extend(json::cases("/v1/responses", &responses::body()));
    cases.extend(heads::cases("/v1/responses", &responses::body()));
    cases.extend(chat::cases());
    cases.extend(heads::paths(&["/v1/messages", "/v1/messages/count_tokens"]));
    judge(&net, &service, &cases, &post("/v1/responses", &responses::body()), false);
    unguarded(true, &cases);
}

/// MOD-4, MOD-5, MOD-8, MOD-9, MOD-10: Chat Completions of a service under another name, with what routers add to it.
#[test]
fn hostile_requests_to_a_compatible_service_are_refused() {
    let Some(net) = Internet::new() else { return };
    let service = Service::compatible(&net, COMPATIBLE, KEY);
    let mut cases = chat::cases();
    cases.extend(json::cases("/v1/chat/completions", &chat::body()));
    cases.extend(heads::cases("/v1/chat/completions", &chat::body()));
    judge(&net, &service, &cases, &post("/v1/chat/completions", &chat::body()), false);
    unguarded(true, &cases);
}
