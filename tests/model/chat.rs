//! OpenAI Chat Completions: what the service checks, and its stream.

use serde_json::{Value, json};

use super::Kind;
use super::script::{Arguments, Directives, Reply, Tool, ToolKind, decide, pieces};
use super::serve::{Answer, Content, Fault, event, known_fields, ordered_status};

/// Every top-level field of the interface, harmless or not.
const FIELDS: [&str; 36] = [
    "messages",
    "model",
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "modalities",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];
const CALL: &str = "call_test1";

pub(super) fn create(body: &Value, kind: Kind) -> Result<Answer, Fault> {
    check(body, kind)?;
    let directives = Directives::read(&said(body));
    ordered_status(&directives)?;
    let reply = decide(&directives, has_result(body), &offered(body));
    let content = if body["stream"] == true {
        Content::Stream(stream(body, &reply))
    } else {
        Content::Whole(whole(body, &reply))
    };
    Ok(Answer { status: 200, content, directives })
}

fn check(body: &Value, kind: Kind) -> Result<(), Fault> {
    known_fields(body, &FIELDS, |name| {
        Fault::field(name, format!("Unrecognized request argument supplied: {name}"))
    })?;
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err(Fault::field("model", "you must provide a model parameter"));
    }
    let cap = |name: &str| {
        let value = &body[name];
        if !value.is_null() && value.as_u64().is_none_or(|n| n == 0) {
            return Err(Fault::field(name, format!("Invalid '{name}': expected a positive integer.")));
        }
        Ok(!value.is_null())
    };
    let (old, new) = (cap("max_tokens")?, cap("max_completion_tokens")?);
    if old && new {
        return Err(Fault::field(
            "max_tokens",
            "Setting 'max_tokens' and 'max_completion_tokens' at once is not supported.",
        ));
    }
    if old && kind == Kind::OpenAi {
        let text = "Unsupported parameter: 'max_tokens' is not supported with this model. \
                    Use 'max_completion_tokens' instead.";
        return Err(Fault::field("max_tokens", text));
    }
    if !body["stream_options"].is_null() && body["stream"] != true {
        return Err(Fault::field(
            "stream_options",
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        ));
    }
    for name in ["store", "stream", "parallel_tool_calls"] {
        if !body[name].is_null() && !body[name].is_boolean() {
            return Err(Fault::field(name, format!("Invalid type for '{name}': expected a boolean.")));
        }
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        let kind = tool["type"].as_str().unwrap_or_default();
        if !["function", "custom"].contains(&kind) || tool[kind]["name"].as_str().is_none_or(str::is_empty) {
            return Err(Fault::field("tools", "Invalid value for 'tools[0]'."));
        }
    }
    conversation(body)
}

fn conversation(body: &Value) -> Result<(), Fault> {
    let messages = body["messages"].as_array().filter(|m| !m.is_empty());
    let messages =
        messages.ok_or_else(|| Fault::field("messages", "Missing required parameter: 'messages'."))?;
    let mut called: Vec<&str> = Vec::new();
    for message in messages {
        match message["role"].as_str() {
            Some("system" | "developer" | "user" | "function") => {}
            Some("assistant") => {
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                called.extend(calls.filter_map(|call| call["id"].as_str()));
            }
            Some("tool") => {
                if !called.contains(&message["tool_call_id"].as_str().unwrap_or_default()) {
                    let text = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.";
                    return Err(Fault::field("messages", text));
                }
            }
            Some(_) | None => return Err(Fault::field("messages", "Invalid value for 'role'.")),
        }
    }
    Ok(())
}

fn said(body: &Value) -> String {
    let mut all = String::new();
    for message in body["messages"].as_array().into_iter().flatten().filter(|m| m["role"] == "user") {
        all.push_str(message["content"].as_str().unwrap_or_default());
        for part in message["content"].as_array().into_iter().flatten() {
            all.push_str(part["text"].as_str().unwrap_or_default());
        }
    }
    all
}

fn has_result(body: &Value) -> bool {
    body["messages"].as_array().into_iter().flatten().any(|message| message["role"] == "tool")
}

fn offered(body: &Value) -> Vec<Tool> {
    let tools = body["tools"].as_array().into_iter().flatten().filter(|tool| tool["type"] == "function");
    tools
        .map(|tool| Tool {
            name: tool["function"]["name"].as_str().unwrap_or_default().to_owned(),
            namespace: None,
            kind: ToolKind::Function,
            schema: tool["function"]["parameters"].clone(),
        })
        .collect()
}

fn arguments(arguments: &Arguments) -> String {
    match arguments {
        Arguments::Object(value) => value.to_string(),
        Arguments::Text(text) => json!({ "input": text }).to_string(),
        Arguments::Command(words) => json!({ "command": words }).to_string(),
    }
}

fn finish(reply: &Reply) -> &'static str {
    match reply {
        Reply::Text(_) => "stop",
        Reply::Call(..) => "tool_calls",
    }
}

fn usage() -> Value {
    json!({ "prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30 })
}

fn whole(body: &Value, reply: &Reply) -> Value {
    let message = match reply {
        Reply::Text(text) => json!({ "role": "assistant", "content": text, "refusal": null }),
        Reply::Call(tool, given) => {
            let function = json!({ "name": tool.name, "arguments": arguments(given) });
            json!({ "role": "assistant", "content": null, "refusal": null,
                    "tool_calls": [{ "id": CALL, "type": "function", "function": function }] })
        }
    };
    let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish(reply) });
    json!({ "id": "chatcmpl-test1", "object": "chat.completion", "created": 1_790_000_000,
            "model": body["model"], "choices": [choice], "usage": usage() })
}

fn stream(body: &Value, reply: &Reply) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| {
        let data = json!({ "id": "chatcmpl-test1", "object": "chat.completion.chunk", "created": 1_790_000_000,
                           "model": body["model"], "choices": choices, "usage": usage });
        event(None, &data)
    };
    let delta = |delta: Value, finish: Value| {
        chunk(json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]), Value::Null)
    };
    let mut events = vec![delta(json!({ "role": "assistant", "content": "" }), Value::Null)];
    match reply {
        Reply::Text(text) => {
            events.extend(pieces(text).iter().map(|piece| delta(json!({ "content": piece }), Value::Null)));
        }
        Reply::Call(tool, given) => {
            let function = json!({ "name": tool.name, "arguments": "" });
            let first = json!({ "index": 0, "id": CALL, "type": "function", "function": function });
            events.push(delta(json!({ "tool_calls": [first] }), Value::Null));
            events.extend(pieces(&arguments(given)).iter().map(|piece| {
                let more = json!({ "index": 0, "function": { "arguments": piece } });
                delta(json!({ "tool_calls": [more] }), Value::Null)
            }));
        }
    }
    events.push(delta(json!({}), json!(finish(reply))));
    if body["stream_options"]["include_usage"] == true {
        events.push(chunk(json!([]), usage()));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}
