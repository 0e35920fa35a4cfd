//! What agents send by default, as measured (claude 2.1.332, codex 0.171.0, opencode 1.18.33, hermes 0.19.0, openclaw
//! 2026.9.6), passes, and nothing of it is lost that the model needs (MOD-14).

use serde_json::{Value as Json, json};

use super::{Interface, ask, policy, service_of};
use crate::policy::{Headers, Service, body, head};

/// Requests and how many there are, for the tests that change them.
pub(super) fn all() -> Vec<(Interface, Json)> {
    vec![
        (Interface::Messages, claude()),
        (Interface::Messages, claude_second_turn()),
        (Interface::Messages, older_client()),
        (Interface::CountTokens, count()),
        (Interface::Responses, codex()),
        (Interface::Responses, codex_code_mode()),
        (Interface::Responses, codex_second_turn()),
        (Interface::ChatCompletions, opencode()),
        (Interface::ChatCompletions, chat_second_turn()),
    ]
}

fn claude() -> Json {
    json!({
        "model": "claude-opus-5-5", "max_tokens": 8192, "stream": true,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Create hello.txt", "cache_control": {"type": "ephemeral"}}]},
            {"role": "system", "content": "a reminder", "output_config": {"effort": "low"}}],
        "system": [{"type": "text", "text": "You are", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "tools": [{"name": "Bash", "description": "Runs", "input_schema": {"type": "object", "$schema": "x", "properties":
            {"file_id": {"type": "string"}, "type": {"enum": ["web_search_20250305", "url"]}}}},
            {"name": "Later", "description": "d", "input_schema": {"type": "object"}, "defer_loading": true}],
        "metadata": {"user_id": "user_1_account__session_2"},
        "thinking": {"type": "adaptive", "display": "summarized"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"}
    })
}

fn claude_second_turn() -> Json {
    json!({
        "model": "claude-sonnet-4-5", "max_tokens": 32000, "stream": true, "temperature": 1,
        "thinking": {"type": "enabled", "budget_tokens": 31999},
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": false},
        "messages": [
            {"role": "user", "content": "Look"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "b2s="},
                {"type": "text", "text": "I look", "citations": null},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "caller": {"type": "direct"},
                 "input": {"command": "ls", "type": "web_search_20250305", "source": {"type": "url", "url": "https://x.example"}}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": false, "content": [
                    {"type": "text", "text": "{\"mcp_servers\":[]}"},
                    {"type": "tool_reference", "tool_name": "Later"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                    {"type": "document", "title": "d", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}}]},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}, "citations": {"enabled": true}},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "https://x.example"}}]},
            {"role": "system", "content": [
                {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "New", "input_schema": {}, "defer_loading": true}}},
                {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Bash"}}]}
        ],
        "tools": [{"type": "custom", "name": "Bash", "input_schema": {}, "allowed_callers": ["direct"]},
            {"type": "bash_20250124", "name": "bash"}, {"type": "memory_20250818", "name": "memory"},
            {"type": "computer_20251124", "name": "computer", "display_height_px": 10, "display_width_px": 10}]
    })
}

fn older_client() -> Json {
    json!({
        "model": "m", "max_tokens": 1, "messages": [], "stop_sequences": ["a"], "temperature": 0.5, "top_k": 4,
        "top_p": 0.9, "service_tier": "auto", "speed": "fast", "stream": false, "container": null,
        "cache_control": {"type": "ephemeral", "ttl": "5m", "scope": "global"},
        "output_format": {"type": "json_schema", "schema": {"type": "object"}}
    })
}

fn count() -> Json {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "system": "s", "tools": [{"name": "a", "input_schema": {}}],
        "thinking": {"type": "disabled"}})
}

fn codex() -> Json {
    json!({
        "model": "gpt-5.5", "stream": true, "store": false, "parallel_tool_calls": true, "tool_choice": "auto",
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "a-b", "reasoning": {"effort": "medium", "context": "auto"},
        "text": {"verbosity": "low"}, "client_metadata": {"x-codex-turn-metadata": "{}"},
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "Create"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "auto", "file_id": null}]}],
        "tools": [
            {"type": "function", "name": "exec_command", "description": "d", "strict": false, "parameters": {"type": "object", "properties": {"image_url": {}}}},
            {"type": "custom", "name": "apply_patch", "description": "d", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
            {"type": "tool_search", "execution": "client", "description": "d", "parameters": {}}]
    })
}

fn codex_code_mode() -> Json {
    json!({
        "model": "gpt-6.2-sol", "stream": true, "store": true, "previous_response_id": null, "background": false,
        "input": [{"type": "additional_tools", "role": "developer", "tools": [
            {"type": "namespace", "name": "functions", "description": "d", "tools": [
                {"type": "function", "name": "f", "parameters": {}},
                {"type": "custom", "name": "c", "format": {"type": "text"}}]},
            {"type": "namespace", "name": "clock", "description": "d", "tools": []}]},
            {"type": "message", "role": "user", "content": "Create"}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    })
}

fn codex_second_turn() -> Json {
    json!({
        "model": "m", "stream": true, "instructions": "i", "max_output_tokens": 128000,
        "input": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAA", "content": null},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary",
             "content": [{"type": "output_text", "text": "t", "logprobs": [], "annotations": [{"type": "url_citation", "url": "https://x.example", "title": "t", "start_index": 0, "end_index": 1}]}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "exec_command", "namespace": "functions", "arguments": "{\"file_id\":1}", "status": "completed"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "DATA:IMAGE/PNG;base64,AAAA"}]},
            {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin Patch"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
            {"type": "local_shell_call", "id": "l", "call_id": "c3", "status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}},
            {"type": "local_shell_call_output", "id": "l", "output": "x"},
            {"type": "shell_call", "call_id": "c4", "action": {"commands": ["ls"]}, "environment": {"type": "local", "skills": [{"name": "n", "description": "d", "path": "/p"}]}},
            {"type": "shell_call_output", "call_id": "c4", "output": [{"outcome": {"type": "exit", "exit_code": 0}, "stdout": "", "stderr": ""}]},
            {"type": "apply_patch_call", "call_id": "c5", "status": "completed", "operation": {"type": "create_file", "path": "p", "diff": "d"}},
            {"type": "apply_patch_call_output", "call_id": "c5", "status": "completed", "output": "ok"},
            {"type": "computer_call", "id": "cu", "call_id": "c6", "status": "completed", "pending_safety_checks": [], "action": {"type": "wait"}},
            {"type": "computer_call_output", "call_id": "c6", "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}},
            {"type": "tool_search_call", "call_id": "c7", "execution": "client", "arguments": {"query": "x"}, "status": "completed"},
            {"type": "tool_search_output", "call_id": "c7", "execution": "client", "tools": [{"type": "function", "name": "g", "parameters": {}, "defer_loading": true}]},
            {"type": "message", "role": "user", "content": [{"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}]}],
        "tools": [{"type": "local_shell"}, {"type": "apply_patch"}, {"type": "shell", "environment": {"type": "local"}}, {"type": "computer"}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}}
    })
}

fn opencode() -> Json {
    json!({
        "model": "anet/m", "max_tokens": 8192, "stream": true, "stream_options": {"include_usage": true}, "tool_choice": "auto",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "Create"}]}],
        "tools": [{"type": "function", "function": {"name": "bash", "description": "d", "strict": false, "parameters": {"type": "object", "properties": {"plugins": {}}}}}]
    })
}

fn chat_second_turn() -> Json {
    json!({
        "model": "m", "max_completion_tokens": 8192, "n": 4, "user": "u", "metadata": {"a": "b"}, "store": true, "stop": ["a", "b"], "seed": -5,
        "logit_bias": {"50256": -100}, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "modalities": ["text"], "reasoning_effort": "low",
        "messages": [
            {"role": "assistant", "content": null, "refusal": null, "audio": null, "reasoning_content": "hm", "annotations": [],
             "tool_calls": [{"id": "c1", "index": 0, "type": "function", "function": {"name": "bash", "arguments": "{}"}},
                            {"id": "c2", "type": "custom", "custom": {"name": "p", "input": "x"}},
                            {"id": "c3", "function": {"name": "bash", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "s"}}}]},
            {"role": "tool", "tool_call_id": "c1", "name": "bash", "content": "out"},
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}}]}],
        "tools": [{"type": "custom", "custom": {"name": "p", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}}}],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "bash"}}]}}
    })
}

/// MOD-14: the requests of the published agents pass.
#[test]
fn agents_pass() {
    for (interface, request) in all() {
        if let Err(refusal) = ask(interface, &request) {
            panic!("{interface:?}: {refusal}: {request}");
        }
    }
}

/// MOD-5: schemas, arguments and text are opaque: what is in them, even if it looks like a reference, arrives unchanged.
#[test]
fn opaque_values_arrive_unchanged() {
    for (interface, request) in all() {
        let sent = ask(interface, &request).unwrap();
        for place in [
            "/tools/0/input_schema",
            "/messages/1/content/3/input",
            "/messages/2/content/0/content/0",
            "/messages/2/content/0/content/2",
            "/tools/0/parameters",
            "/tools/0/function",
            "/input/2/arguments",
            "/input/4/input",
            "/input/0/tools",
            "/text",
            "/response_format",
        ] {
            assert_eq!(sent.pointer(place), request.pointer(place), "{place}");
        }
    }
}

/// MOD-5: harmless fields that say who asks are taken out, null and false stand for "not there".
#[test]
fn harmless_fields_are_dropped() {
    for (interface, request) in all() {
        let sent = ask(interface, &request).unwrap();
        for field in [
            "metadata",
            "service_tier",
            "speed",
            "client_metadata",
            "user",
            "previous_response_id",
            "background",
            "container",
            "safety_identifier",
        ] {
            assert!(sent.get(field).is_none(), "{field} in {sent}");
        }
        let text = sent.to_string();
        assert!(
            !text.contains("\"scope\"") && !text.contains("\"logprobs\":[]") && !text.contains("\"audio\"")
        );
    }
}

/// MOD-14: with the headers and target that each agent sends.
#[test]
fn agents_heads_pass() {
    type Rows<'a> = &'a [(&'a str, &'a str)];
    let rows: [(Service, &str, Rows<'_>); 4] = [
        (
            Service::Anthropic,
            "/v1/messages?beta=true",
            &[
                ("x-api-key", "placeholder"),
                ("anthropic-version", "2023-06-01"),
                ("anthropic-beta", "claude-code-20250219,interleaved-thinking-2025-05-14,effort-2025-11-24"),
                ("anthropic-dangerous-direct-browser-access", "true"),
                ("x-app", "cli"),
                ("x-stainless-lang", "js"),
                ("accept-encoding", "gzip, deflate, br, zstd"),
                ("connection", "keep-alive"),
                ("user-agent", "claude-cli/2.1.332 (external, sdk-cli)"),
                ("content-type", "application/json"),
            ],
        ),
        (
            Service::OpenAi,
            "/v1/responses",
            &[
                ("authorization", "Bearer placeholder"),
                ("originator", "codex_exec"),
                ("session-id", "s"),
                ("thread-id", "t"),
                ("x-codex-turn-metadata", "{}"),
                ("accept", "text/event-stream"),
                ("content-type", "application/json"),
            ],
        ),
        (
            Service::Other,
            "/v1/chat/completions",
            &[("authorization", "Bearer no-key-required"), ("content-type", "application/json")],
        ),
        (Service::Other, "/v1/messages", &[("content-type", "application/json; charset=utf-8")]),
    ];
    for (service, target, given) in rows {
        let map: http::HeaderMap = given
            .iter()
            .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let (route, headers) = head(&policy(service), &http::Method::POST, target, &map).unwrap();
        assert!(route.interface().is_some());
        for gone in
            ["authorization", "x-api-key", "x-app", "accept-encoding", "connection", "x-codex-turn-metadata"]
        {
            assert!(!headers.forward.contains_key(gone), "{gone}");
        }
    }
}

/// MOD-8: keys keep their order (a cache of the service starts at the first byte that differs).
#[test]
fn order_is_kept() {
    let given = br#"{"tools":[],"model":"m","messages":[{"role":"user","content":"\u00e4"}],"max_tokens":5,"system":"z"}"#;
    let sent =
        body(Interface::Messages, &policy(service_of(Interface::Messages)), &Headers::default(), given)
            .unwrap();
    assert_eq!(
        String::from_utf8(sent.bytes).unwrap(),
        r#"{"tools":[],"model":"pinned-model","messages":[{"role":"user","content":"ä"}],"max_tokens":5,"system":"z"}"#
    );
}
