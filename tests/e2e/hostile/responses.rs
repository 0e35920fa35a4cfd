//! What is hostile in OpenAI's Responses interface (state of 2026-11-30).

use serde_json::{Value, json};

use super::{Case, EVIL, fields, replaced, tools};
use crate::model::post;

const PATH: &str = "/v1/responses";

pub(super) fn body() -> Value {
    json!({ "model": "m", "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "[[text:x]]" }] }],
            "tools": [{ "type": "function", "name": "f", "parameters": { "type": "object" } }] })
}

/// Tools that run at the service, or that nobody knows.
const TOOLS: [&str; 13] = [
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "image_generation",
    "mcp",
    "programmatic_tool_calling",
    "unheard_of",
    "Function",
    "function ",
    "WEB_SEARCH",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = fields(
        PATH,
        &body(),
        &[
            ("previous_response_id", json!("resp_1")),
            ("conversation", json!("conv_1")),
            ("conversation", json!({ "id": "conv_1" })),
            ("prompt", json!({ "id": "pmpt_1", "variables": { "x": format!("https://{EVIL}/") } })),
            ("background", json!(true)),
            ("unheard_of", json!(true)),
            ("mcp_servers", json!([{ "url": format!("https://{EVIL}/") }])),
            ("webhook", json!({ "url": format!("https://{EVIL}/") })),
            ("webhook_url", json!(format!("https://{EVIL}/"))),
            ("Store", json!(true)),
            ("tool_resources", json!({ "file_search": { "vector_store_ids": ["vs_1"] } })),
            ("attachments", json!([{ "file_id": "file_1" }])),
            ("container", json!("cntr_1")),
            ("plugins", json!([{ "id": "web" }])),
        ],
    );
    cases.extend(tools(PATH, &TOOLS, &|tool| {
        let nested = |inner: Value| json!({ "type": "namespace", "name": "n", "tools": [inner] });
        let item = |mut item: Value, tool: &Value| {
            item["tools"] = json!([tool]);
            let mut input = body()["input"].clone();
            input.as_array_mut().expect("a list").insert(0, item);
            replaced(&body(), "/input", input)
        };
        let added = json!({ "type": "additional_tools", "role": "developer" });
        let found = json!({ "type": "tool_search_output", "call_id": "c", "execution": "client" });
        vec![
            ("tools", replaced(&body(), "/tools", json!([tool]))),
            ("a namespace", replaced(&body(), "/tools", json!([nested(tool.clone())]))),
            (
                "a namespace in a namespace",
                replaced(&body(), "/tools", json!([nested(nested(tool.clone()))])),
            ),
            ("additional_tools", item(added.clone(), &tool)),
            ("a namespace of additional_tools", item(added, &nested(tool.clone()))),
            ("tool_search_output", item(found, &tool)),
            ("allowed tools", {
                let mut all = body();
                all["tool_choice"] = json!({ "type": "allowed_tools", "mode": "auto", "tools": [tool] });
                all
            }),
        ]
    }));
    let special = [
        ("shell at the service", json!({ "type": "shell", "environment": { "type": "container_auto" } })),
        (
            "shell in a container",
            json!({ "type": "shell", "environment": { "type": "container_reference", "container_id": "cntr_1" } }),
        ),
        ("shell anywhere", json!({ "type": "shell" })),
        ("tool search at the service", json!({ "type": "tool_search" })),
        ("tool search at the service, by name", json!({ "type": "tool_search", "execution": "server" })),
        (
            "callers",
            json!({ "type": "function", "name": "f", "parameters": {}, "allowed_callers": ["programmatic"] }),
        ),
        ("type of no text", json!({ "type": ["function"], "name": "f" })),
        ("no type", json!({ "name": "f", "parameters": {} })),
    ];
    for (label, tool) in special {
        cases.push(Case::new(label, post(PATH, &replaced(&body(), "/tools", json!([tool])))));
    }
    for choice in [
        json!({ "type": "web_search_preview" }),
        json!({ "type": "mcp", "server_label": "x" }),
        json!({ "type": "file_search" }),
        json!({ "type": "unheard_of" }),
    ] {
        let mut all = body();
        all["tool_choice"] = choice.clone();
        cases.push(Case::new(format!("tool choice {choice}"), post(PATH, &all)));
    }
    for include in [
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "code_interpreter_call.outputs",
        "unheard_of",
    ] {
        let mut all = body();
        all["include"] = json!(["reasoning.encrypted_content", include]);
        cases.push(Case::new(format!("include {include}"), post(PATH, &all)).naming(include));
    }
    cases.extend(items());
    for number in ["8192.0", "1e3", "\"100\"", "true", "-1", "18446744073709551616"] {
        let text = body().to_string();
        let text = format!("{},\"max_output_tokens\":{number}}}", text.strip_suffix('}').expect("an object"));
        cases.push(
            Case::new(format!("max_output_tokens {number}"), post(PATH, &Value::String(text)))
                .naming("max_output_tokens"),
        );
    }
    cases
}

/// Media by reference, and items that nobody knows.
fn items() -> Vec<Case> {
    let url = format!("https://{EVIL}/x.png");
    let parts = [
        json!({ "type": "input_image", "image_url": url }),
        json!({ "type": "input_image", "image_url": format!("HTTP://{EVIL}/") }),
        json!({ "type": "input_image", "image_url": format!("//{EVIL}/") }),
        json!({ "type": "input_image", "image_url": format!("data:text/html,{EVIL}") }),
        json!({ "type": "input_image", "image_url": format!("file:///{EVIL}") }),
        json!({ "type": "input_image", "image_url": { "url": url } }),
        json!({ "type": "input_image", "file_id": "file_1" }),
        json!({ "type": "input_file", "file_url": url }),
        json!({ "type": "input_file", "file_id": "file_1" }),
        json!({ "type": "unheard_of", "url": url }),
        json!({ "type": "INPUT_IMAGE", "image_url": url }),
        json!({ "type": 5, "image_url": url }),
    ];
    let mut cases = Vec::new();
    for part in parts {
        let message = json!({ "type": "message", "role": "user", "content": [part] });
        let bare = json!({ "role": "user", "content": [{ "type": "input_text", "text": "x" }, part] });
        let called = |kind: &str| {
            let call = if kind == "function_call" {
                json!({ "type": kind, "call_id": "c", "name": "f", "arguments": "{}" })
            } else {
                json!({ "type": kind, "call_id": "c", "name": "f", "input": "x" })
            };
            json!([call, { "type": format!("{kind}_output"), "call_id": "c", "output": [part] }])
        };
        for (place, input) in [
            ("a message", json!([message])),
            ("a message without a type", json!([bare])),
            ("a function's result", called("function_call")),
            ("a custom tool's result", called("custom_tool_call")),
        ] {
            cases.push(Case::new(
                format!("{part} in {place}"),
                post(PATH, &replaced(&body(), "/input", input)),
            ));
        }
    }
    for item in [
        json!({ "type": "item_reference", "id": "msg_1" }),
        json!({ "id": "msg_1" }),
        json!({ "type": "code_interpreter_call", "id": "x", "container_id": "cntr_1", "code": "x" }),
        json!({ "type": "mcp_call", "id": "x", "server_label": "x", "name": "x", "arguments": "{}" }),
        json!({ "type": "mcp_approval_response", "approval_request_id": "x", "approve": true }),
        json!({ "type": "mcp_list_tools", "server_label": "x", "tools": [] }),
        json!({ "type": "image_generation_call", "id": "ig_1" }),
        json!({ "type": "computer_call_output", "call_id": "c", "output": { "type": "computer_screenshot", "image_url": url } }),
        json!({ "type": "computer_call_output", "call_id": "c", "output": { "type": "computer_screenshot", "file_id": "file_1" } }),
        json!({ "type": "unheard_of" }),
        json!("x"),
        json!([]),
    ] {
        cases
            .push(Case::new(format!("item {item}"), post(PATH, &replaced(&body(), "/input", json!([item])))));
    }
    cases
}
