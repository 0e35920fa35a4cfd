//! OpenAI Responses: what the service checks, and its stream.

use serde_json::{Value, json};

use super::script::{Arguments, Directives, Reply, Tool, ToolKind, decide, pieces};
use super::serve::{Answer, Content, Fault, event, known_fields, ordered_status};

/// Every top-level field of the interface, harmless or not.
const FIELDS: [&str; 32] = [
    "background",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
    "client_metadata",
];
/// Values of `include`.
const INCLUDES: [&str; 8] = [
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
];
/// The service's smallest cap.
const LEAST_OUTPUT: u64 = 16;
const CALL: &str = "call_test1";

pub(super) fn create(body: &Value) -> Result<Answer, Fault> {
    check(body)?;
    let directives = Directives::read(&said(body));
    ordered_status(&directives)?;
    let reply = decide(&directives, has_result(body), &offered(body));
    let content = if body["stream"] == true {
        Content::Stream(stream(body, &reply))
    } else {
        Content::Whole(response(body, "completed", &[item(&reply, "completed")]))
    };
    Ok(Answer { status: 200, content, directives })
}

fn check(body: &Value) -> Result<(), Fault> {
    known_fields(body, &FIELDS, |name| Fault::field(name, format!("Unknown parameter: '{name}'.")))?;
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err(Fault::field("model", "Missing required parameter: 'model'."));
    }
    let cap = &body["max_output_tokens"];
    if !cap.is_null() && cap.as_u64().is_none_or(|n| n < LEAST_OUTPUT) {
        let text = "Invalid 'max_output_tokens': integer below minimum value.";
        return Err(Fault::field("max_output_tokens", text));
    }
    for name in ["store", "stream", "background", "parallel_tool_calls"] {
        if !body[name].is_null() && !body[name].is_boolean() {
            return Err(Fault::field(name, format!("Invalid type for '{name}': expected a boolean.")));
        }
    }
    let includes = body["include"].as_array().into_iter().flatten();
    if let Some(unknown) = includes.filter_map(Value::as_str).find(|v| !INCLUDES.contains(v)) {
        return Err(Fault::field("include", format!("Invalid value: '{unknown}'.")));
    }
    if !body["previous_response_id"].is_null() {
        return Err(Fault::field("previous_response_id", "Previous response with that id not found."));
    }
    if !body["stream_options"].is_null() && body["stream"] != true {
        return Err(Fault::field(
            "stream_options",
            "The 'stream_options' parameter is only allowed when streaming.",
        ));
    }
    if body["store"] == false && body["background"] == true {
        return Err(Fault::field("background", "Background mode requires that the response is stored."));
    }
    for tool in tools(body) {
        let named = ["function", "custom"].contains(&tool["type"].as_str().unwrap_or_default());
        if named && tool["name"].as_str().is_none_or(str::is_empty) {
            return Err(Fault::field("tools", "Missing required parameter: 'tools[0].name'."));
        }
        if !tool["type"].is_string() {
            return Err(Fault::field("tools", "Missing required parameter: 'tools[0].type'."));
        }
    }
    input(body)
}

fn input(body: &Value) -> Result<(), Fault> {
    if body["input"].is_string() {
        return Ok(());
    }
    let missing = || Fault::field("input", "Missing required parameter: 'input'.");
    let items = body["input"].as_array().ok_or_else(missing)?;
    let mut called = Vec::new();
    for item in items {
        let id = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str() {
            Some("function_call" | "custom_tool_call" | "local_shell_call") => called.push(id),
            Some("function_call_output" | "custom_tool_call_output" | "local_shell_call_output") => {
                if !called.contains(&id) {
                    let text = format!("No tool call found for function call output with call_id {id}.");
                    return Err(Fault::field("input", text));
                }
            }
            Some(_) => {}
            None if item["role"].is_string() => {}
            None => return Err(Fault::field("input", "Missing required parameter: 'input[0].type'.")),
        }
    }
    Ok(())
}

/// Every tool of the request, wherever the interface lets one stand.
fn tools(body: &Value) -> Vec<&Value> {
    let mut all: Vec<&Value> = body["tools"].as_array().into_iter().flatten().collect();
    let items = body["input"].as_array().into_iter().flatten();
    all.extend(items.flat_map(|item| item["tools"].as_array().into_iter().flatten()));
    let mut at = 0;
    while let Some(tool) = all.get(at) {
        let nested: Vec<&Value> = tool["tools"].as_array().into_iter().flatten().collect();
        all.extend(nested);
        at += 1;
    }
    all
}

fn offered(body: &Value) -> Vec<Tool> {
    let mut found = Vec::new();
    let items = body["input"].as_array().into_iter().flatten();
    let lists = std::iter::once(&body["tools"]).chain(items.map(|item| &item["tools"]));
    for tool in lists.flat_map(|list| list.as_array().into_iter().flatten()) {
        let nested = tool["tools"].as_array().into_iter().flatten();
        found.extend(nested.filter_map(|inner| own(inner, tool["name"].as_str())));
        found.extend(own(tool, None));
    }
    found
}

fn own(tool: &Value, namespace: Option<&str>) -> Option<Tool> {
    let kind = match tool["type"].as_str()? {
        "function" => ToolKind::Function,
        "custom" => ToolKind::Custom,
        "local_shell" => ToolKind::LocalShell,
        _ => return None,
    };
    let name = tool["name"].as_str().unwrap_or_default().to_owned();
    Some(Tool { name, namespace: namespace.map(str::to_owned), kind, schema: tool["parameters"].clone() })
}

fn said(body: &Value) -> String {
    let mut all = body["input"].as_str().unwrap_or_default().to_owned();
    for item in body["input"].as_array().into_iter().flatten().filter(|item| item["role"] == "user") {
        all.push_str(item["content"].as_str().unwrap_or_default());
        for part in item["content"].as_array().into_iter().flatten() {
            all.push_str(part["text"].as_str().unwrap_or_default());
        }
    }
    all
}

fn has_result(body: &Value) -> bool {
    let items = body["input"].as_array().into_iter().flatten();
    items.filter_map(|item| item["type"].as_str()).any(|kind| kind.ends_with("_call_output"))
}

/// The one item of the answer.
fn item(reply: &Reply, status: &str) -> Value {
    match reply {
        Reply::Text(text) => {
            json!({ "id": "msg_test1", "type": "message", "role": "assistant", "status": status,
            "content": [{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }] })
        }
        Reply::Call(tool, arguments) => {
            let mut call = match arguments {
                Arguments::Object(value) => {
                    json!({ "id": "fc_test1", "type": "function_call", "status": status,
                    "call_id": CALL, "name": tool.name, "arguments": value.to_string() })
                }
                Arguments::Text(text) => {
                    json!({ "id": "ctc_test1", "type": "custom_tool_call", "status": status,
                    "call_id": CALL, "name": tool.name, "input": text })
                }
                Arguments::Command(words) => {
                    json!({ "id": "lsc_test1", "type": "local_shell_call", "status": status,
                    "call_id": CALL, "action": { "type": "exec", "command": words, "env": {} } })
                }
            };
            if let Some(namespace) = &tool.namespace {
                call["namespace"] = json!(namespace);
            }
            call
        }
    }
}

fn response(body: &Value, status: &str, output: &[Value]) -> Value {
    let usage = json!({ "input_tokens": 20, "input_tokens_details": { "cached_tokens": 0 }, "output_tokens": 10,
                        "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 30 });
    json!({ "id": "resp_test1", "object": "response", "created_at": 1_790_000_000, "status": status,
        "background": false, "error": null, "incomplete_details": null, "instructions": null,
        "max_output_tokens": body["max_output_tokens"], "model": body["model"], "output": output,
        "parallel_tool_calls": true, "previous_response_id": null, "store": body["store"], "temperature": 1.0,
        "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled", "metadata": {},
        "usage": if status == "completed" { usage } else { Value::Null } })
}

fn stream(body: &Value, reply: &Reply) -> Vec<String> {
    let mut events = Vec::new();
    let mut say = |name: &str, mut data: Value| {
        data["type"] = json!(name);
        data["sequence_number"] = json!(events.len());
        events.push(event(Some(name), &data));
    };
    let begun = response(body, "in_progress", &[]);
    say("response.created", json!({ "response": begun }));
    say("response.in_progress", json!({ "response": begun }));
    let done = item(reply, "completed");
    let mut open = item(reply, "in_progress");
    let place = json!({ "item_id": done["id"], "output_index": 0 });
    let with = |more: Value| {
        let mut all = place.clone();
        for (name, value) in more.as_object().into_iter().flatten() {
            all[name] = value.clone();
        }
        all
    };
    let (field, delta, end, whole) = match reply {
        Reply::Text(text) => {
            open["content"] = json!([]);
            ("content", "response.output_text.delta", "response.output_text.done", text.clone())
        }
        Reply::Call(_, Arguments::Object(value)) => (
            "arguments",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            value.to_string(),
        ),
        Reply::Call(_, Arguments::Text(text)) => (
            "input",
            "response.custom_tool_call_input.delta",
            "response.custom_tool_call_input.done",
            text.clone(),
        ),
        Reply::Call(_, Arguments::Command(_)) => ("", "", "", String::new()),
    };
    if ["arguments", "input"].contains(&field) {
        open[field] = json!("");
    }
    say("response.output_item.added", json!({ "output_index": 0, "item": open }));
    if field == "content" {
        let part = json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] });
        say("response.content_part.added", with(json!({ "content_index": 0, "part": part })));
    }
    if !delta.is_empty() {
        for piece in pieces(&whole) {
            say(delta, with(json!({ "content_index": 0, "delta": piece, "logprobs": [] })));
        }
        let name = if field == "content" { "text" } else { field };
        say(end, with(json!({ "content_index": 0, name: whole, "logprobs": [] })));
    }
    if field == "content" {
        say("response.content_part.done", with(json!({ "content_index": 0, "part": done["content"][0] })));
    }
    say("response.output_item.done", json!({ "output_index": 0, "item": done }));
    say(
        "response.completed",
        json!({ "response": response(body, "completed", std::slice::from_ref(&done)) }),
    );
    events
}
