//! Whole requests through the policy. Each file is one question: do the agents' own requests pass, is every hostile one refused
//! by name, does what passes hold to the caps, and does all of this hold for bodies that nobody thought of.

mod agents;
mod head;
mod hostile;
mod properties;
mod rewriting;
mod sentences;
mod stored;

use serde_json::Value as Json;

use super::{Body, Headers, Interface, Policy, Refusal, Rule, Service, body};

const MODEL: &str = "pinned-model";
const CAP: u64 = 8192;

fn policy(service: Service) -> Policy {
    Policy { service, model: MODEL.into(), output_tokens: CAP }
}

fn service_of(interface: Interface) -> Service {
    match interface {
        Interface::Messages | Interface::CountTokens => Service::Anthropic,
        Interface::Responses | Interface::ChatCompletions => Service::OpenAi,
    }
}

/// Sends bytes through the policy of the interface's own service.
fn ask_bytes(interface: Interface, bytes: &[u8]) -> Result<Body, Refusal> {
    body(interface, &policy(service_of(interface)), &Headers::default(), bytes)
}

/// Sends a request through the policy; what comes out, parsed.
fn ask(interface: Interface, request: &Json) -> Result<Json, Refusal> {
    ask_bytes(interface, request.to_string().as_bytes())
        .map(|body| serde_json::from_slice(&body.bytes).unwrap())
}

/// The same JSON with every character of every string and key as an escape.
fn escaped(json: &Json) -> String {
    fn text(text: &str) -> String {
        let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        format!("\"{units}\"")
    }
    match json {
        Json::String(string) => text(string),
        Json::Array(values) => {
            format!("[ {} ]", values.iter().map(escaped).collect::<Vec<_>>().join(" ,\t"))
        }
        Json::Object(map) => {
            let pairs = map.iter().map(|(key, value)| format!("{} :\r\n{}", text(key), escaped(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(" , "))
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => json.to_string(),
    }
}

/// Refused by this rule, in every spelling, and the sentence has these words.
#[track_caller]
fn refused(interface: Interface, request: &Json, rule: Rule, words: &str) {
    for spelling in [request.to_string(), serde_json::to_string_pretty(request).unwrap(), escaped(request)] {
        let refusal = ask_bytes(interface, spelling.as_bytes()).expect_err(&spelling);
        assert_eq!(refusal.rule, rule, "{spelling}: {refusal}");
        assert!(refusal.sentence.contains(words), "{refusal} does not name {words}");
        assert!(refusal.sentence.starts_with("anet: "));
    }
}

/// A request that each interface takes, without anything special.
fn plain(interface: Interface) -> Json {
    match interface {
        Interface::Messages => serde_json::json!({
            "model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]
        }),
        Interface::CountTokens => {
            serde_json::json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
        }
        Interface::Responses => serde_json::json!({"model": "m", "input": "hi"}),
        Interface::ChatCompletions => {
            serde_json::json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
        }
    }
}

/// The plain request with a field more, or another one.
fn with(interface: Interface, field: &str, value: Json) -> Json {
    let mut request = plain(interface);
    request[field] = value;
    request
}
