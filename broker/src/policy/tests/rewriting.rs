//! What is written over: the model, the caps, what a service keeps.

use serde_json::{Value as Json, json};

use super::{CAP, MODEL, ask, plain, policy, with};
use crate::policy::headers::headers;
use crate::policy::{Headers, INTERFACES, Interface, Policy, Service, body};

use Interface::{ChatCompletions, CountTokens, Messages, Responses};

fn ask_as(interface: Interface, policy: &Policy, request: &Json) -> Json {
    let sent = body(interface, policy, &Headers::default(), request.to_string().as_bytes()).unwrap();
    serde_json::from_slice(&sent.bytes).unwrap()
}

/// MOD-2: whatever the agent names, the operator's model stands in the request.
#[test]
fn the_model_is_the_operators() {
    for interface in INTERFACES {
        for model in [json!("gpt-9"), json!(null), json!(7), json!({"a": [1]}), json!(["x", "y"]), json!("")]
        {
            assert_eq!(ask(interface, &with(interface, "model", model)).unwrap()["model"], MODEL);
        }
        let mut without = plain(interface);
        without.as_object_mut().unwrap().remove("model");
        assert_eq!(ask(interface, &without).unwrap()["model"], MODEL);
    }
}

/// MOD-3: at most the cap; the cap where none was said; less stays less.
#[test]
fn output_is_capped() {
    for (interface, field) in [
        (Messages, "max_tokens"),
        (Responses, "max_output_tokens"),
        (ChatCompletions, "max_completion_tokens"),
    ] {
        for (given, sent) in [
            (json!(1), 1),
            (json!(CAP - 1), CAP - 1),
            (json!(CAP), CAP),
            (json!(CAP + 1), CAP),
            (json!(u64::MAX), CAP),
            (json!(null), CAP),
        ] {
            assert_eq!(ask(interface, &with(interface, field, given)).unwrap()[field], sent);
        }
        let mut without = plain(interface);
        without.as_object_mut().unwrap().remove(field);
        assert_eq!(ask(interface, &without).unwrap()[field], CAP);
        let raised = Policy { output_tokens: 64_000, ..policy(super::service_of(interface)) };
        assert_eq!(ask_as(interface, &raised, &with(interface, field, json!(50_000)))[field], 50_000);
    }
    let counted = ask(CountTokens, &plain(CountTokens)).unwrap();
    assert!(counted.get("max_tokens").is_none());
}

/// MOD-3: of the two names that Chat Completions has, the one of the service, with the smaller value.
#[test]
fn chat_has_one_cap() {
    let rows = [
        (Service::OpenAi, "max_completion_tokens", "max_tokens"),
        (Service::Other, "max_tokens", "max_completion_tokens"),
    ];
    for (service, own, other) in rows {
        for (given, sent) in [
            (json!({}), CAP),
            (json!({own: 5}), 5),
            (json!({other: 5}), 5),
            (json!({own: 5, other: 9}), 5),
            (json!({own: 9000, other: 7}), 7),
            (json!({own: 9000, other: 9000}), CAP),
            (json!({own: null, other: 3}), 3),
        ] {
            let mut request = plain(ChatCompletions);
            request.as_object_mut().unwrap().extend(given.as_object().unwrap().clone());
            let result = ask_as(ChatCompletions, &policy(service), &request);
            assert_eq!(result[own], sent, "{request}");
            assert!(result.get(other).is_none());
        }
    }
}

/// MOD-3: one answer. MOD-6: nothing is stored.
#[test]
fn one_answer_and_no_store() {
    for n in [json!(1), json!(2), json!(u64::MAX), json!("5"), json!(1.5), json!(null), json!([3])] {
        assert_eq!(ask(ChatCompletions, &with(ChatCompletions, "n", n)).unwrap()["n"], 1);
    }
    for interface in [Responses, ChatCompletions] {
        assert_eq!(ask(interface, &plain(interface)).unwrap()["store"], false);
        for store in [json!(true), json!(false), json!(null), json!("true"), json!(1), json!([true])] {
            assert_eq!(ask(interface, &with(interface, "store", store)).unwrap()["store"], false);
        }
    }
}

/// MOD-3: for every valid pair of max_tokens and budget, and every cap, the result is valid again: 1024 <= budget < max_tokens,
/// at most half of the cap; or the model does not think.
#[test]
fn a_thinking_budget_stays_valid() {
    for cap in [1, 2, 1000, 1024, 2046, 2047, 2048, 2049, 4096, 8192, 64_000] {
        for most in [1025, 1026, 2048, 4096, 4097, 8191, 8192, 8193, 32_000, 128_000] {
            for budget in [1024, 1025, 2048, 4095, 4096, 4097, 8191, 31_999, 127_999] {
                if budget >= most {
                    continue;
                }
                let request = json!({"messages": [], "max_tokens": most, "thinking": {"type": "enabled", "budget_tokens": budget, "display": "omitted"},
                    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_20250919"}]}});
                let policy = Policy { output_tokens: cap, ..policy(Service::Anthropic) };
                let sent = ask_as(Messages, &policy, &request);
                let sent_most = sent["max_tokens"].as_u64().unwrap();
                assert_eq!(sent_most, cap.min(most));
                let edits = sent["context_management"]["edits"].as_array().unwrap().len();
                if cap / 2 < 1024 {
                    assert_eq!(sent["thinking"], json!({"type": "disabled"}));
                    assert_eq!(edits, 1);
                } else {
                    let sent_budget = sent["thinking"]["budget_tokens"].as_u64().unwrap();
                    assert_eq!(sent_budget, budget.min(cap / 2));
                    assert!((1024..sent_most).contains(&sent_budget), "{sent}");
                    assert_eq!((sent["thinking"]["display"].as_str(), edits), (Some("omitted"), 2));
                }
            }
        }
    }
    for thinking in
        [json!({"type": "adaptive"}), json!({"type": "disabled"}), json!({"type": "between_tools"})]
    {
        assert_eq!(
            ask(Messages, &with(Messages, "thinking", thinking.clone())).unwrap()["thinking"],
            thinking
        );
    }
}

/// MOD-7: a field goes with the beta that was taken away, and stays with one that is on the list, or that was never asked for.
#[test]
fn fields_go_with_their_beta() {
    let request = json!({
        "max_tokens": 5, "context_management": {"edits": [{"type": "from_the_future"}]}, "output_format": {"type": "json_schema", "schema": {}},
        "output_config": {"effort": "low"}, "messages": [{"role": "system", "content": "x", "output_config": {"effort": "low"}}],
        "tools": [{"name": "a", "input_schema": {}, "defer_loading": true, "strict": true}]
    });
    let send = |betas: &str, request: &Json| {
        let mut given = http::HeaderMap::new();
        given.insert("content-type", "application/json".parse().unwrap());
        given.insert("anthropic-beta", betas.parse().unwrap());
        let headers = headers(Messages, &given).unwrap();
        body(Messages, &policy(Service::Anthropic), &headers, request.to_string().as_bytes())
            .map(|body| serde_json::from_slice::<Json>(&body.bytes).unwrap())
    };
    let all_lost = "context-management-2099-01-01,structured-outputs-2099-01-01,effort-2099-01-01,per-turn-control-2099-01-01,advanced-tool-use-2099-01-01";
    let sent = send(all_lost, &request).unwrap();
    assert_eq!(
        sent,
        json!({"model": MODEL, "max_tokens": 5, "output_config": {}, "messages": [{"role": "system", "content": "x"}],
            "tools": [{"name": "a", "input_schema": {}}]})
    );
    let known = json!({"max_tokens": 5, "messages": [], "context_management": {"edits": [{"type": "clear_thinking_20251015"}]}});
    for betas in [
        "context-management-2025-06-27",
        "context-management-2025-06-27,context-management-2099-01-01",
        "skills-2025-10-02",
        "",
    ] {
        assert!(send(betas, &known).unwrap().get("context_management").is_some(), "{betas}");
    }
    assert!(send("CONTEXT-MANAGEMENT-2099-01-01", &known).unwrap().get("context_management").is_none());
}

/// MOD-11: whether the answer streams is what the request says.
#[test]
fn streams_are_asked_for() {
    for interface in [Messages, Responses, ChatCompletions] {
        for stream in [json!(true), json!(false), json!(null)] {
            assert_eq!(ask(interface, &with(interface, "stream", stream.clone())).unwrap()["stream"], stream);
        }
        assert_eq!(ask(interface, &plain(interface)).unwrap().get("stream"), None);
    }
}
