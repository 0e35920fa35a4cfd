//! What is hostile in Anthropic's interface (state of 2026-11-30).

use serde_json::{Value, json};

use super::{Case, EVIL, fields, replaced, tools};
use crate::model::post;

const PATH: &str = "/v1/messages";

pub(super) fn body() -> Value {
    json!({ "model": "m", "max_tokens": 100, "messages": [{ "role": "user", "content": [{ "type": "text", "text": "[[text:x]]" }] }],
            "tools": [{ "name": "Bash", "input_schema": { "type": "object" } }] })
}

/// Tools that run at the service, or that nobody knows.
const TOOLS: [&str; 19] = [
    "web_search_20250305",
    "web_search_20260209",
    "web_search_20260318",
    "web_fetch_20250910",
    "web_fetch_20260209",
    "web_fetch_20260318",
    "code_execution_20250522",
    "code_execution_20250825",
    "code_execution_20260120",
    "code_execution_20260521",
    "advisor_20260301",
    "mcp_toolset",
    "unheard_of_20270101",
    "web_search",
    "Custom",
    "custom ",
    "WEB_SEARCH_20250305",
    "function",
    "bash",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = fields(
        PATH,
        &body(),
        &[
            ("mcp_servers", json!([{ "type": "url", "url": format!("https://{EVIL}/"), "name": "x" }])),
            ("mcp_servers", json!([])),
            ("container", json!({ "skills": [{ "type": "custom", "skill_id": "skill_evil.example.com" }] })),
            ("container", json!("container_011")),
            ("fallbacks", json!([{ "model": "other" }])),
            ("fallback_credit_token", json!("x")),
            ("betas", json!(["files-api-2025-04-14"])),
            ("thread", json!({ "id": "thread_1" })),
            ("user_profile_id", json!("x")),
            ("workspace_id", json!("wrkspc_1")),
            ("billing_policy", json!({})),
            ("compaction", json!({})),
            ("unheard_of", json!(true)),
            ("Model", json!("other")),
            ("max_tokens ", json!(100_000)),
            ("previous_response_id", json!("resp_1")),
            ("__proto__", json!({ "mcp_servers": [] })),
            ("url", json!(format!("https://{EVIL}/"))),
        ],
    );
    cases.extend(tools(PATH, &TOOLS, &|tool| {
        let nested = |content: Value| replaced(&body(), "/messages/0/content", content);
        let wrapped = |kind: &str| json!([{ "type": kind, "tool": tool, "tools": [tool] }]);
        vec![
            ("tools", replaced(&body(), "/tools", json!([tool]))),
            ("tools, last of three", {
                let own = |name: &str| json!({ "name": name, "input_schema": { "type": "object" } });
                replaced(&body(), "/tools", json!([own("a"), own("b"), tool]))
            }),
            ("messages", nested(wrapped("tool_addition"))),
            ("messages of the system", {
                let system =
                    json!([{ "role": "system", "content": wrapped("tool_addition") }, body()["messages"][0]]);
                replaced(&body(), "/messages", system)
            }),
        ]
    }));
    for callers in [
        json!(["code_execution_20250825"]),
        json!(["direct", "code_execution_20260120"]),
        json!("code_execution_20250825"),
    ] {
        let tool = json!([{ "name": "x", "input_schema": { "type": "object" }, "allowed_callers": callers }]);
        cases.push(Case::new(
            format!("allowed callers {callers}"),
            post(PATH, &replaced(&body(), "/tools", tool)),
        ));
    }
    for kind in [json!(1), json!(true), json!([]), json!({}), json!(["custom"])] {
        let tool = json!([{ "type": kind, "name": "x", "input_schema": { "type": "object" } }]);
        cases.push(Case::new(
            format!("a tool of type {kind}"),
            post(PATH, &replaced(&body(), "/tools", tool)),
        ));
    }
    for tools in [json!({ "type": "web_search_20250305" }), json!("web_search"), json!([["x"]]), json!([1])] {
        cases.push(Case::new(format!("tools {tools}"), post(PATH, &replaced(&body(), "/tools", tools))));
    }
    cases.extend(content());
    cases.extend(tokens());
    cases
}

/// Content by reference, and content that nobody knows, at every depth.
fn content() -> Vec<Case> {
    let url = format!("https://{EVIL}/x.png");
    let blocks = [
        json!({ "type": "image", "source": { "type": "url", "url": url } }),
        json!({ "type": "image", "source": { "type": "file", "file_id": "file_evil.example.com" } }),
        json!({ "type": "image", "source": { "type": "unheard_of", "url": url } }),
        json!({ "type": "image", "source": { "url": url } }),
        json!({ "type": "image", "source": url }),
        json!({ "type": "document", "source": { "type": "url", "url": url } }),
        json!({ "type": "document", "source": { "type": "file", "file_id": "file_1" } }),
        json!({ "type": "document", "source": { "type": "content", "content": [{ "type": "image", "source": { "type": "url", "url": url } }] } }),
        json!({ "type": "container_upload", "file_id": "file_1" }),
        json!({ "type": "server_tool_use", "id": "x", "name": "web_fetch", "input": { "url": url } }),
        json!({ "type": "mcp_tool_use", "id": "x", "name": "x", "server_name": "x", "input": {} }),
        json!({ "type": "code_execution_tool_result", "tool_use_id": "x", "content": { "type": "code_execution_output", "file_id": "file_1" } }),
        json!({ "type": "unheard_of", "url": url }),
        json!({ "type": "IMAGE", "source": { "type": "url", "url": url } }),
        json!({ "type": ["image"], "source": { "type": "url", "url": url } }),
        json!({ "source": { "type": "url", "url": url } }),
        json!([{ "type": "image", "source": { "type": "url", "url": url } }]),
    ];
    let mut cases = Vec::new();
    for block in blocks {
        let result = |inner: &Value| json!({ "type": "tool_result", "tool_use_id": "t", "content": [inner] });
        let document = json!({ "type": "document", "source": { "type": "content", "content": [block] } });
        let used = json!([
            { "role": "user", "content": "x" },
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "t", "name": "Bash", "input": {} }] },
        ]);
        let after = |content: Value| {
            let mut messages = used.clone();
            messages.as_array_mut().expect("a list").push(json!({ "role": "user", "content": content }));
            replaced(&body(), "/messages", messages)
        };
        let places = [
            ("a message", replaced(&body(), "/messages/0/content", json!([block]))),
            (
                "a later block",
                replaced(&body(), "/messages/0/content", json!([{ "type": "text", "text": "x" }, block])),
            ),
            ("a tool's result", after(json!([result(&block)]))),
            ("a result in a result", after(json!([result(&result(&block))]))),
            ("a document", replaced(&body(), "/messages/0/content", json!([document]))),
            ("a document in a result", after(json!([result(&document)]))),
            ("the assistant's words", {
                replaced(
                    &body(),
                    "/messages",
                    json!([{ "role": "user", "content": "x" }, { "role": "assistant", "content": [block] }]),
                )
            }),
            ("the system's words", {
                let mut all = body();
                all["system"] = json!([block]);
                all
            }),
        ];
        for (place, body) in places {
            cases.push(Case::new(format!("{block} in {place}"), post(PATH, &body)));
        }
    }
    // The reference beside what is in the request: refused, or gone.
    let both = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAAA", "url": url } });
    let both =
        replaced(&body(), "/messages/0/content", json!([both, { "type": "text", "text": "[[text:x]]" }]));
    cases.push(Case::new("base64 and a URL", post(PATH, &both)).or_cleaned());
    for messages in [
        json!({}),
        json!("x"),
        json!([1]),
        json!(["x"]),
        json!([{ "role": "user", "content": 5 }]),
        json!([{ "role": "user", "content": { "type": "text" } }]),
    ] {
        cases.push(Case::new(
            format!("messages {messages}"),
            post(PATH, &replaced(&body(), "/messages", messages)),
        ));
    }
    cases
}

/// Numbers of tokens that are none.
fn tokens() -> Vec<Case> {
    let text = body().to_string();
    let mut cases = Vec::new();
    for number in [
        "8192.0",
        "1e3",
        "\"100\"",
        "true",
        "[]",
        "{}",
        "-1",
        "1.5",
        "18446744073709551616",
        "1e308",
        "-9223372036854775809",
        "100.0000000000000001",
    ] {
        let text = text.replace("\"max_tokens\":100", &format!("\"max_tokens\":{number}"));
        cases.push(
            Case::new(format!("max_tokens {number}"), post(PATH, &Value::String(text))).naming("max_tokens"),
        );
    }
    for thinking in [
        "{\"type\":\"enabled\",\"budget_tokens\":\"4096\"}",
        "{\"type\":\"enabled\",\"budget_tokens\":4096.5}",
        "{\"type\":\"enabled\",\"budget_tokens\":-5}",
        "{\"type\":\"unheard_of\"}",
        "\"enabled\"",
        "[]",
    ] {
        let text = format!("{},\"thinking\":{thinking}}}", text.strip_suffix('}').expect("an object"));
        cases.push(
            Case::new(format!("thinking {thinking}"), post(PATH, &Value::String(text))).naming("thinking"),
        );
    }
    cases
}
