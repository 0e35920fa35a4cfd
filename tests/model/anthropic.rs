//! Anthropic Messages: what the service checks, and its stream.

use serde_json::{Value, json};

use super::http::Request;
use super::script::{Arguments, Directives, Reply, Tool, ToolKind, decide, pieces};
use super::serve::{Answer, Content, Fault, event, known_fields, ordered_status};

/// Every top-level field of the interface, harmless or not: the service takes them all, the broker must not.
const FIELDS: [&str; 34] = [
    "model",
    "messages",
    "max_tokens",
    "stream",
    "system",
    "stop_sequences",
    "temperature",
    "top_k",
    "top_p",
    "thinking",
    "tool_choice",
    "tools",
    "cache_control",
    "metadata",
    "output_config",
    "output_format",
    "context_management",
    "container",
    "mcp_servers",
    "fallbacks",
    "fallback_credit_token",
    "service_tier",
    "speed",
    "inference_geo",
    "user_profile_id",
    "workspace_id",
    "billing_policy",
    "thread",
    "compaction",
    "diagnostics",
    "context",
    "user",
    "skills",
    "memory",
];
/// Fields that exist only with a token of `anthropic-beta` that starts so.
const FIELDS_OF_BETAS: [(&str, &str); 4] = [
    ("context_management", "context-management-"),
    ("mcp_servers", "mcp-client-"),
    ("speed", "fast-mode-"),
    ("fallbacks", "server-side-fallback-"),
];
/// Beta tokens have a name and a date.
const BETA: &str = "anthropic-beta";

pub(super) fn messages(request: &Request, body: &Value) -> Result<Answer, Fault> {
    head(request)?;
    check(request, body, true)?;
    let said = said(body);
    let directives = Directives::read(&said);
    ordered_status(&directives)?;
    let reply = decide(&directives, has_result(body), &offered(body));
    let model = body["model"].as_str().unwrap_or_default();
    let content = if body["stream"] == true {
        Content::Stream(stream(model, &reply))
    } else {
        Content::Whole(whole(model, &reply))
    };
    Ok(Answer { status: 200, content, directives })
}

pub(super) fn count_tokens(request: &Request, body: &Value) -> Result<Answer, Fault> {
    head(request)?;
    if !body["max_tokens"].is_null() {
        return Err(extra("max_tokens"));
    }
    if !body["stream"].is_null() {
        return Err(extra("stream"));
    }
    check(request, body, false)?;
    ordered_status(&Directives::read(&said(body)))?;
    Ok(Answer::json(200, json!({ "input_tokens": body.to_string().len() / 4 })))
}

fn extra(field: &str) -> Fault {
    Fault::invalid(format!("{field}: Extra inputs are not permitted"))
}

fn head(request: &Request) -> Result<(), Fault> {
    match request.target().split_once('?') {
        None | Some((_, "beta=true")) => {}
        Some((_, query)) => return Err(Fault::invalid(format!("unknown query {query}"))),
    }
    match request.header("anthropic-version") {
        Some("2023-06-01") => {}
        Some(_) => return Err(Fault::invalid("anthropic-version: not a valid version")),
        None => return Err(Fault::invalid("anthropic-version: header is required")),
    }
    for token in betas(request) {
        let dated = token.len() > 11 && token.bytes().rev().take(2).all(|b| b.is_ascii_digit());
        if !dated {
            return Err(Fault::invalid(format!(
                "Unexpected value(s) `{token}` for the `anthropic-beta` header."
            )));
        }
    }
    Ok(())
}

fn betas(request: &Request) -> Vec<&str> {
    request
        .values(BETA)
        .into_iter()
        .flat_map(|v| v.split(','))
        .map(str::trim)
        .filter(|t| !t.is_empty())
        .collect()
}

fn check(request: &Request, body: &Value, answers: bool) -> Result<(), Fault> {
    known_fields(body, &FIELDS, extra)?;
    for (field, beta) in FIELDS_OF_BETAS {
        if !body[field].is_null() && !betas(request).iter().any(|token| token.starts_with(beta)) {
            return Err(extra(field));
        }
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err(Fault::invalid("model: Field required"));
    }
    if answers && body["max_tokens"].as_u64().is_none_or(|n| n == 0) {
        return Err(Fault::invalid("max_tokens: Field required, a positive integer"));
    }
    thinking(body)?;
    tools(body)?;
    conversation(body)
}

fn thinking(body: &Value) -> Result<(), Fault> {
    let thinking = &body["thinking"];
    match thinking["type"].as_str() {
        None if thinking.is_null() => Ok(()),
        Some("disabled" | "adaptive") => Ok(()),
        Some("enabled") => {
            let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
            if budget < 1024 {
                let text = "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024";
                return Err(Fault::invalid(text));
            }
            if body["max_tokens"].as_u64().is_some_and(|max| budget >= max) {
                return Err(Fault::invalid("`max_tokens` must be greater than `thinking.budget_tokens`."));
            }
            if body["temperature"].as_f64().is_some_and(|t| t != 1.0) {
                return Err(Fault::invalid("`temperature` may only be set to 1 when thinking is enabled."));
            }
            Ok(())
        }
        Some(_) | None => {
            Err(Fault::invalid("thinking.type: Input should be 'enabled', 'disabled' or 'adaptive'"))
        }
    }
}

fn tools(body: &Value) -> Result<(), Fault> {
    let tools = list(&body["tools"], "tools")?;
    let mut names = Vec::new();
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or_default();
        if name.is_empty() && tool["type"] != "mcp_toolset" {
            return Err(Fault::invalid("tools: name: Field required"));
        }
        if names.contains(&name) {
            return Err(Fault::invalid("tools: Tool names must be unique."));
        }
        names.push(name);
        let own = tool["type"].is_null() || tool["type"] == "custom";
        if own && tool["input_schema"]["type"] != "object" {
            return Err(Fault::invalid(format!("tools.{name}: input_schema.type: Field required")));
        }
    }
    let choice = &body["tool_choice"];
    match (choice["type"].as_str(), choice["name"].as_str()) {
        (None, _) if choice.is_null() => Ok(()),
        (Some("auto" | "any" | "none"), _) => Ok(()),
        (Some("tool"), Some(name)) if names.contains(&name) => Ok(()),
        _ => Err(Fault::invalid("tool_choice: it names no tool of this request")),
    }
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], Fault> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Err(Fault::invalid(format!("{name}: Input should be a valid list")))
        }
    }
}

fn conversation(body: &Value) -> Result<(), Fault> {
    let messages = list(&body["messages"], "messages")?;
    if messages.is_empty() {
        return Err(Fault::invalid("messages: at least one message is required"));
    }
    let mut called: Vec<&str> = Vec::new();
    for message in messages {
        if !matches!(message["role"].as_str(), Some("user" | "assistant" | "system")) {
            return Err(Fault::invalid("messages: Unexpected role"));
        }
        let Value::Array(blocks) = &message["content"] else {
            if message["content"].is_string() {
                continue;
            }
            return Err(Fault::invalid("messages: content: Field required"));
        };
        for block in blocks {
            match block["type"].as_str() {
                Some("tool_use") => called.extend(block["id"].as_str()),
                Some("tool_result") => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    if !called.contains(&id) {
                        let text = "unexpected `tool_use_id` found in `tool_result` blocks";
                        return Err(Fault::invalid(format!("messages: {text}: {id}")));
                    }
                }
                Some("text") if block["text"].as_str().is_none_or(str::is_empty) => {
                    return Err(Fault::invalid("messages: text content blocks must be non-empty"));
                }
                Some(_) => {}
                None => return Err(Fault::invalid("messages: content: type: Field required")),
            }
        }
    }
    Ok(())
}

/// Everything that the user wrote.
fn said(body: &Value) -> String {
    let mut all = String::new();
    for message in body["messages"].as_array().into_iter().flatten().filter(|m| m["role"] == "user") {
        all.push_str(message["content"].as_str().unwrap_or_default());
        for block in message["content"].as_array().into_iter().flatten() {
            all.push_str(block["text"].as_str().unwrap_or_default());
        }
    }
    all
}

fn has_result(body: &Value) -> bool {
    let messages = body["messages"].as_array().into_iter().flatten();
    messages.flat_map(|m| m["content"].as_array().into_iter().flatten()).any(|b| b["type"] == "tool_result")
}

fn offered(body: &Value) -> Vec<Tool> {
    let tools = body["tools"].as_array().into_iter().flatten();
    let own = tools.filter(|tool| tool["type"].is_null() || tool["type"] == "custom");
    own.map(|tool| Tool {
        name: tool["name"].as_str().unwrap_or_default().to_owned(),
        namespace: None,
        kind: ToolKind::Function,
        schema: tool["input_schema"].clone(),
    })
    .collect()
}

fn object(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Object(value) => value.clone(),
        Arguments::Text(text) => json!({ "input": text }),
        Arguments::Command(words) => json!({ "command": words }),
    }
}

/// The end of the turn, in this interface's word.
fn stop(reply: &Reply) -> &'static str {
    match reply {
        Reply::Text(_) => "end_turn",
        Reply::Call(..) => "tool_use",
    }
}

fn whole(model: &str, reply: &Reply) -> Value {
    let block = match reply {
        Reply::Text(text) => json!({ "type": "text", "text": text }),
        Reply::Call(tool, arguments) => {
            json!({ "type": "tool_use", "id": "toolu_01test", "name": tool.name, "input": object(arguments) })
        }
    };
    json!({ "id": "msg_01test", "type": "message", "role": "assistant", "model": model, "content": [block],
            "stop_reason": stop(reply), "stop_sequence": null,
            "usage": { "input_tokens": 20, "output_tokens": 10 } })
}

fn stream(model: &str, reply: &Reply) -> Vec<String> {
    let named = |name: &str, data: Value| event(Some(name), &data);
    let usage = json!({ "input_tokens": 20, "output_tokens": 1, "cache_creation_input_tokens": 0,
                        "cache_read_input_tokens": 0 });
    let message = json!({ "id": "msg_01test", "type": "message", "role": "assistant", "model": model,
                          "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage });
    let (block, deltas): (Value, Vec<Value>) = match reply {
        Reply::Text(text) => (
            json!({ "type": "text", "text": "" }),
            pieces(text).iter().map(|piece| json!({ "type": "text_delta", "text": piece })).collect(),
        ),
        Reply::Call(tool, arguments) => (
            json!({ "type": "tool_use", "id": "toolu_01test", "name": tool.name, "input": {} }),
            pieces(&object(arguments).to_string())
                .iter()
                .map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }))
                .collect(),
        ),
    };
    let mut events = vec![
        named("message_start", json!({ "type": "message_start", "message": message })),
        named(
            "content_block_start",
            json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        ),
        named("ping", json!({ "type": "ping" })),
    ];
    events.extend(deltas.iter().map(|delta| {
        named("content_block_delta", json!({ "type": "content_block_delta", "index": 0, "delta": delta }))
    }));
    events.push(named("content_block_stop", json!({ "type": "content_block_stop", "index": 0 })));
    let delta = json!({ "stop_reason": stop(reply), "stop_sequence": null });
    let data = json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 10 } });
    events.push(named("message_delta", data));
    events.push(named("message_stop", json!({ "type": "message_stop" })));
    events
}
