//! What is hostile in the Chat Completions interface, and in what routers add to it (state of 2026-11-30).

use serde_json::{Value, json};

use super::{Case, EVIL, fields, replaced, tools};
use crate::model::post;

const PATH: &str = "/v1/chat/completions";

pub(super) fn body() -> Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": [{ "type": "text", "text": "[[text:x]]" }] }],
            "tools": [{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }] })
}

const TOOLS: [&str; 8] = [
    "web_search",
    "mcp",
    "file_search",
    "code_interpreter",
    "retrieval",
    "unheard_of",
    "Function",
    "function ",
];

pub(super) fn cases() -> Vec<Case> {
    let url = format!("https://{EVIL}/x.png");
    let mut cases = fields(
        PATH,
        &body(),
        &[
            ("web_search_options", json!({})),
            ("web_search_options", json!({ "search_context_size": "high" })),
            ("audio", json!({ "voice": "x", "format": "wav" })),
            ("unheard_of", json!(true)),
            ("plugins", json!([{ "id": "web", "url": url }])),
            ("provider", json!({ "order": ["x"] })),
            ("models", json!(["other/model"])),
            ("route", json!("fallback")),
            ("transforms", json!(["middle-out"])),
            ("mcp_servers", json!([{ "url": url }])),
            ("previous_response_id", json!("resp_1")),
            ("api_base", json!(url)),
            ("base_url", json!(url)),
            ("extra_body", json!({ "plugins": [] })),
            ("extra_headers", json!({ "x": EVIL })),
        ],
    );
    cases.extend(tools(PATH, &TOOLS, &|tool| {
        vec![
            ("tools", replaced(&body(), "/tools", json!([tool]))),
            ("tools, second", replaced(&body(), "/tools", json!([body()["tools"][0], tool]))),
        ]
    }));
    for part in [
        json!({ "type": "image_url", "image_url": { "url": url } }),
        json!({ "type": "image_url", "image_url": url }),
        json!({ "type": "image_url", "image_url": { "url": format!("HTTPS://{EVIL}/") } }),
        json!({ "type": "image_url", "image_url": { "url": format!("data:text/html,{EVIL}") } }),
        json!({ "type": "file", "file": { "file_id": "file_1" } }),
        json!({ "type": "file", "file": { "file_url": url } }),
        json!({ "type": "video_url", "video_url": { "url": url } }),
        json!({ "type": "unheard_of", "url": url }),
        json!({ "type": ["image_url"], "image_url": { "url": url } }),
    ] {
        let called = json!([
            { "role": "assistant", "content": null, "tool_calls": [{ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
            { "role": "tool", "tool_call_id": "c", "content": [part] },
        ]);
        for (place, messages) in [
            ("the user's words", json!([{ "role": "user", "content": [part] }])),
            (
                "the user's second words",
                json!([{ "role": "user", "content": [{ "type": "text", "text": "x" }, part] }]),
            ),
            (
                "the system's words",
                json!([{ "role": "system", "content": [part] }, { "role": "user", "content": "x" }]),
            ),
            ("a tool's result", called),
        ] {
            cases.push(Case::new(
                format!("{part} in {place}"),
                post(PATH, &replaced(&body(), "/messages", messages)),
            ));
        }
    }
    let voice =
        json!([{ "role": "user", "content": "x" }, { "role": "assistant", "audio": { "id": "audio_1" } }]);
    cases.push(Case::new("audio that is stored", post(PATH, &replaced(&body(), "/messages", voice))));
    for number in ["8192.0", "1e3", "\"100\"", "true", "-1", "18446744073709551616"] {
        for name in ["max_tokens", "max_completion_tokens"] {
            let text = body().to_string();
            let text = format!("{},\"{name}\":{number}}}", text.strip_suffix('}').expect("an object"));
            cases.push(Case::new(format!("{name} {number}"), post(PATH, &Value::String(text))).naming(name));
        }
    }
    cases
}
