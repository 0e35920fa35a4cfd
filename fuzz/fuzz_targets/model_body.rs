//! The body of a request to a model, on every interface: refused in one printable sentence, or sent with the operator's model
//! and within the cap, and then allowed a second time without a change. Starts from good bodies, or nothing would pass.
#![no_main]

use broker::policy::{Headers, Interface, Policy, Service, body};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const CAP: u64 = 8192;
const GOOD: [(Interface, &str); 4] = [
    (
        Interface::Messages,
        r#"{"model":"m","max_tokens":32000,"thinking":{"type":"enabled","budget_tokens":31999},"system":"s","tools":[{"name":"a","input_schema":{}},{"type":"bash_20250124","name":"bash"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]}]}"#,
    ),
    (
        Interface::CountTokens,
        r#"{"model":"m","messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"a"}}}]}]}"#,
    ),
    (
        Interface::Responses,
        r#"{"model":"m","stream":true,"input":[{"type":"additional_tools","role":"developer","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","parameters":{}}]}]},{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA"}]}],"tools":[{"type":"shell","environment":{"type":"local"}}]}"#,
    ),
    (
        Interface::ChatCompletions,
        r#"{"model":"m","n":2,"max_tokens":9000,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}"#,
    ),
];

fn judge(interface: Interface, bytes: &[u8]) {
    for service in [Service::Anthropic, Service::OpenAi, Service::Other] {
        let policy = Policy { service, model: "pinned".into(), output_tokens: CAP };
        let sent = match body(interface, &policy, &Headers::default(), bytes) {
            Ok(sent) => sent,
            Err(refusal) => {
                assert!(refusal.sentence.starts_with("anet: ") && refusal.sentence.len() < 1000);
                assert!(refusal.sentence.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
                let answer = refusal.body(Some(interface), service);
                serde_json::from_slice::<Value>(&answer).expect("the answer is JSON");
                continue;
            }
        };
        let json: Value = serde_json::from_slice(&sent.bytes).expect("what is sent is JSON");
        assert_eq!(json["model"], "pinned");
        for cap in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
            assert!(
                json.get(cap)
                    .is_none_or(|value| value.as_u64().is_some_and(|value| (1..=CAP).contains(&value)))
            );
        }
        assert_eq!(body(interface, &policy, &Headers::default(), &sent.bytes).as_ref(), Ok(&sent));
    }
}

fuzz_target!(|input: (u8, Vec<(u16, u8)>, u16, &[u8])| {
    let (which, changes, place, raw) = input;
    let (interface, good) = GOOD[usize::from(which) % GOOD.len()];
    judge(interface, raw);
    let mut bent = good.as_bytes().to_vec();
    for (place, byte) in changes {
        let place = usize::from(place) % bent.len();
        bent[place] = byte;
    }
    let place = usize::from(place) % bent.len();
    bent.splice(place..place, raw.iter().copied());
    judge(interface, &bent);
});
