//! For bodies that nobody thought of: good requests with anything put anywhere, and plain noise. What passes is judged by a
//! walker of its own, which knows no tables but a list of what must never be there.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value as Json, json};

use super::{CAP, MODEL, agents, ask_bytes};
use crate::policy::{INTERFACES, Interface};

/// What somebody hostile would put somewhere.
fn poisons() -> Vec<Json> {
    vec![
        json!({"type": "web_search_20250305", "name": "web_search"}),
        json!({"type": "web_search"}),
        json!({"type": "mcp", "server_url": "https://x.example"}),
        json!({"type": "url", "url": "https://x.example"}),
        json!({"type": "file", "file_id": "f"}),
        json!({"type": "image", "source": {"type": "url", "url": "https://x.example"}}),
        json!({"type": "input_image", "image_url": "https://x.example"}),
        json!({"type": "image_url", "image_url": {"url": "https://x.example"}}),
        json!({"type": "input_file", "file_url": "https://x.example"}),
        json!({"type": "item_reference", "id": "x"}),
        json!({"id": "msg_1"}),
        json!({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"type": "web_fetch_20250910"}}}),
        json!({"type": "namespace", "name": "n", "tools": [{"type": "code_interpreter"}]}),
        json!({"type": "additional_tools", "role": "developer", "tools": [{"type": "image_generation"}]}),
        json!({"type": "shell"}),
        json!({"type": "container_upload", "file_id": "f"}),
        json!(["programmatic"]),
        json!(["direct"]),
        json!("https://x.example"),
        json!("enabled"),
        json!(null),
        json!(true),
        json!(false),
        json!(1_000_000),
        json!(-1),
        json!(1.5),
        json!([]),
        json!({}),
        json!("text"),
    ]
}

const KEYS: &[&str] = &[
    "type",
    "mcp_servers",
    "container",
    "file_id",
    "file_url",
    "image_url",
    "url",
    "previous_response_id",
    "tools",
    "tool",
    "definition",
    "allowed_callers",
    "caller",
    "betas",
    "store",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "thinking",
    "budget_tokens",
    "background",
    "include",
    "content",
    "source",
    "output",
    "environment",
    "execution",
    "prompt",
    "web_search_options",
    "x",
    "model",
    "file_data",
    "annotations",
    "citations",
    "cache_control",
    "metadata",
    "service_tier",
    "tool_choice",
    "stream",
    "id",
];

/// Every node of a request, by its pointer.
fn places(json: &Json, here: &str, out: &mut Vec<String>) {
    out.push(here.to_owned());
    match json {
        Json::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                places(value, &format!("{here}/{index}"), out);
            }
        }
        Json::Object(map) => {
            for (key, value) in map {
                places(value, &format!("{here}/{key}"), out);
            }
        }
        _ => {}
    }
}

/// One change: where, what, under which key if the place is an object, and whether the place itself is replaced.
type Change = (Index, Index, Index, bool);

fn changed(mut request: Json, changes: &[Change]) -> Json {
    for (place, poison, key, replace) in changes {
        let mut all = Vec::new();
        places(&request, "", &mut all);
        let poison = poison.get(&poisons()).clone();
        let node = request.pointer_mut(&all[place.index(all.len())]).unwrap();
        match node {
            _ if *replace => *node = poison,
            Json::Object(map) => {
                map.insert((*key.get(KEYS)).to_owned(), poison);
            }
            Json::Array(values) => values.push(poison),
            other => *other = poison,
        }
    }
    request
}

/// Values that nobody acts on.
const OPAQUE: &[&str] = &[
    "input_schema",
    "parameters",
    "output_schema",
    "schema",
    "arguments",
    "input_examples",
    "action",
    "actions",
    "operation",
];

/// Objects whose keys are names of somebody's choice (tokens, an agent's tools), and no fields.
const NAMES: &[&str] = &["logit_bias", "configs"];

/// Finds what must never be sent. In a choice among tools, a shell is one of those that were listed.
fn forbidden(json: &Json, interface: Interface, parent: &str, chosen: bool) -> Option<String> {
    match json {
        Json::Array(values) => values.iter().find_map(|value| forbidden(value, interface, parent, chosen)),
        Json::Object(map) => {
            let kind = map.get("type").and_then(Json::as_str).unwrap_or("");
            let bad_kind = [
                "web_",
                "mcp",
                "code_",
                "url",
                "file_search",
                "image_generation",
                "item_reference",
                "container",
                "server_tool_use",
                "advisor",
                "programmatic",
                "tool_search_tool",
            ];
            if bad_kind.iter().any(|bad| kind.starts_with(bad)) && kind != "url_citation"
                || kind == "file" && interface != Interface::ChatCompletions
            {
                return Some(format!("type {kind} in {parent}"));
            }
            if !chosen
                && parent == "tools"
                && kind == "shell"
                && json.pointer("/environment/type") != Some(&json!("local"))
            {
                return Some("a shell elsewhere".into());
            }
            map.iter().find_map(|(key, value)| {
                let bad_key = [
                    "mcp_servers",
                    "container",
                    "file_id",
                    "file_url",
                    "previous_response_id",
                    "conversation",
                    "background",
                    "web_search_options",
                    "betas",
                    "prompt",
                    "server_url",
                    "container_id",
                    "metadata",
                    "service_tier",
                ];
                if bad_key.contains(&key.as_str()) && !NAMES.contains(&parent) {
                    return Some(format!("{key} in {parent}"));
                }
                let inline = |value: &Json| {
                    value.as_str().is_none_or(|url| url.to_ascii_lowercase().starts_with("data:image/"))
                };
                if key == "image_url" && !inline(value)
                    || key == "url" && kind != "url_citation" && !inline(value)
                {
                    return Some(format!("{key} = {value}"));
                }
                if key == "allowed_callers"
                    && value.as_array().is_some_and(|callers| {
                        callers.iter().any(|caller| caller != "direct" && !caller.is_null())
                    })
                {
                    return Some(format!("{key} = {value}"));
                }
                let opaque = OPAQUE.contains(&key.as_str())
                    || key == "input" && matches!(kind, "tool_use" | "custom_tool_call")
                    || key == "input" && parent == "custom"
                    || key == "output" && kind == "shell_call_output";
                if opaque { None } else { forbidden(value, interface, key, chosen || key == "tool_choice") }
            })
        }
        _ => None,
    }
}

/// What holds for everything that passes.
fn holds(interface: Interface, bytes: &[u8]) -> bool {
    let Ok(sent) = ask_bytes(interface, bytes) else { return false };
    let json: Json = serde_json::from_slice(&sent.bytes).unwrap();
    assert_eq!(json["model"], MODEL);
    let caps: Vec<u64> = ["max_tokens", "max_completion_tokens", "max_output_tokens"]
        .iter()
        .filter_map(|key| json.get(*key))
        .map(|cap| cap.as_u64().unwrap())
        .collect();
    assert_eq!(caps.len(), usize::from(interface != Interface::CountTokens), "{json}");
    assert!(caps.iter().all(|cap| (1..=CAP).contains(cap)));
    if let Some(budget) = json.pointer("/thinking/budget_tokens").filter(|budget| !budget.is_null()) {
        assert!(budget.as_u64().unwrap() <= CAP / 2);
    }
    if matches!(interface, Interface::Responses | Interface::ChatCompletions) {
        assert_eq!(json["store"], false);
        assert!(json.get("n").is_none_or(|n| n == 1));
    }
    assert_eq!(forbidden(&json, interface, "", false), None, "{json}");
    let again = ask_bytes(interface, &sent.bytes).expect("what was sent is allowed");
    assert_eq!(again, sent, "twice is not once");
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16 * ProptestConfig::default().cases, ..ProptestConfig::default() })]

    /// MOD-3..8: anything put anywhere into a good request: refused, or nothing forbidden is left and every cap holds.
    #[test]
    fn changed_requests(base in any::<Index>(), changes in prop::collection::vec(any::<Change>(), 0..4)) {
        let bases = agents::all();
        let (interface, request) = base.get(&bases).clone();
        let request = changed(request, &changes);
        let passed = holds(interface, request.to_string().as_bytes());
        prop_assert!(passed || !changes.is_empty());
        prop_assert_eq!(passed, holds(interface, super::escaped(&request).as_bytes()), "another spelling, another verdict");
    }

    /// MOD-8: any bytes are refused or hold, and never panic.
    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for interface in INTERFACES {
            holds(interface, &bytes);
        }
    }

    /// MOD-8: a good request with bytes changed.
    #[test]
    fn bent_bytes(base in any::<Index>(), changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4)) {
        let (interface, request) = base.get(&agents::all()).clone();
        let mut bytes = request.to_string().into_bytes();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        holds(interface, &bytes);
    }
}

/// The walker sees what it is there to see: each poison, put where nothing is checked, is found.
#[test]
fn the_walker_can_fail() {
    for poison in [
        json!({"tools": [{"type": "web_search"}]}),
        json!({"messages": [{"content": [{"type": "image", "source": {"type": "url"}}]}]}),
        json!({"input": [{"image_url": "https://x.example"}]}),
        json!({"a": {"file_id": "x"}}),
        json!({"tools": [{"type": "shell"}]}),
        json!({"tools": [{"allowed_callers": ["programmatic"]}]}),
        json!({"metadata": {}}),
    ] {
        assert!(forbidden(&poison, Interface::Responses, "", false).is_some(), "{poison}");
    }
}
