//! Requests that must never reach a service, each in every place where it can stand and in every spelling that JSON has.

use serde_json::{Value as Json, json};

use super::{ask, ask_bytes, escaped, plain, refused, with};
use crate::policy::{INTERFACES, Interface, Rule};

use Interface::{ChatCompletions, CountTokens, Messages, Responses};

const ANTHROPIC: [Interface; 2] = [Messages, CountTokens];

/// Where a tool can stand in a request to Anthropic.
fn anthropic_tool_places(tool: &Json) -> Vec<Json> {
    let addition = json!({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}});
    vec![
        json!({"model": "m", "messages": [], "tools": [tool]}),
        json!({"model": "m", "messages": [], "tools": [{"name": "a", "input_schema": {}}, tool]}),
        json!({"model": "m", "messages": [{"role": "system", "content": [addition]}]}),
        json!({"model": "m", "messages": [{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "x"}, addition]}]}),
    ]
}

/// MOD-4: tools that run at the service, and tools of types that do not exist yet.
#[test]
fn anthropic_server_tools() {
    let kinds = [
        "web_search_20250305",
        "web_search_20260209",
        "web_search_20260318",
        "web_fetch_20250910",
        "web_fetch_20260209",
        "web_fetch_20260309",
        "web_fetch_20260318",
        "code_execution_20250522",
        "code_execution_20250825",
        "code_execution_20260120",
        "code_execution_20260521",
        "advisor_20260301",
        "mcp_toolset",
        "tool_search_tool_bm25_20251119",
        "tool_search_tool_regex_20251119",
        "web_search",
        "web_search_29990101",
        "Custom",
        "custom ",
        "",
        "function",
        "bash_20250124\u{0}",
        "bash_2025012\u{ff14}",
    ];
    for interface in ANTHROPIC {
        for kind in kinds {
            for request in anthropic_tool_places(&json!({"type": kind, "name": "web_search"})) {
                refused(interface, &request, Rule::ToolNotAllowed, "type = ");
            }
        }
        for kind in [json!(1), json!(true), json!(["custom"]), json!({"a": 1})] {
            for request in anthropic_tool_places(&json!({"type": kind, "name": "x"})) {
                refused(interface, &request, Rule::WrongType, "type is ");
            }
        }
        for tool in [json!("web_search_20250305"), json!([{"type": "web_search_20250305"}]), json!(7)] {
            for request in anthropic_tool_places(&tool) {
                refused(interface, &request, Rule::WrongType, "an object belongs");
            }
        }
    }
}

/// MOD-4: something else than the model that calls a tool, and fields of a tool that nobody knows.
#[test]
fn anthropic_tool_fields() {
    for caller in ["code_execution_20250825", "code_execution_20260120", "Direct", "programmatic", ""] {
        let tool = json!({"name": "a", "input_schema": {}, "allowed_callers": ["direct", caller]});
        for request in anthropic_tool_places(&tool) {
            refused(Messages, &request, Rule::CallersNotAllowed, "allowed_callers[1]");
        }
        let block =
            json!({"type": "tool_use", "id": "t", "name": "a", "input": {}, "caller": {"type": caller}});
        let request = with(Messages, "messages", json!([{"role": "assistant", "content": [block]}]));
        refused(Messages, &request, Rule::CallersNotAllowed, "caller.type");
    }
    for callers in [json!("code_execution_20250825"), json!({"a": 1})] {
        let request =
            with(Messages, "tools", json!([{"name": "a", "input_schema": {}, "allowed_callers": callers}]));
        refused(Messages, &request, Rule::WrongType, "allowed_callers");
    }
    for field in
        ["url", "authorization_token", "mcp_server_name", "server_url", "max_uses", "allowed_domains", "x"]
    {
        let mut tool = json!({"name": "a", "input_schema": {}});
        tool[field] = json!("https://x.example");
        for request in anthropic_tool_places(&tool) {
            refused(Messages, &request, Rule::UnknownField, field);
        }
    }
    for choice in ["mcp", "web_search", "server"] {
        let request = with(Messages, "tool_choice", json!({"type": choice, "name": "x"}));
        refused(Messages, &request, Rule::ToolNotAllowed, choice);
    }
    refused(Messages, &with(Messages, "tool_choice", json!("any")), Rule::WrongType, "tool_choice");
    for kind in ["mcp_tool_reference", "mcp_toolset_reference", "tool"] {
        for block in ["tool_addition", "tool_removal"] {
            let block = json!({"type": block, "tool": {"type": kind, "name": "a", "server_name": "s"}});
            let request = with(Messages, "messages", json!([{"role": "user", "content": [block]}]));
            refused(Messages, &request, Rule::ToolNotAllowed, kind);
        }
    }
}

/// Where a block can stand in a request to Anthropic.
fn anthropic_block_places(block: &Json) -> Vec<Json> {
    let message = |block: Json| json!({"model": "m", "messages": [{"role": "user", "content": [block]}]});
    vec![
        message(block.clone()),
        json!({"model": "m", "messages": [{"role": "assistant", "content": [{"type": "text", "text": "x"}, block]}]}),
        json!({"model": "m", "messages": [{"role": "system", "content": [block]}]}),
        message(json!({"type": "tool_result", "tool_use_id": "t", "content": [block]})),
        message(json!({"type": "document", "source": {"type": "content", "content": [block]}})),
        message(json!({"type": "tool_result", "tool_use_id": "t", "content":
            [{"type": "document", "source": {"type": "content", "content": [block]}}]})),
        message(json!({"type": "search_result", "source": "s", "title": "t", "content": [block]})),
        json!({"model": "m", "messages": [], "system": [block]}),
    ]
}

/// MOD-5: blocks that come from tools of the service, refer to a container, or do not exist yet.
#[test]
fn anthropic_blocks() {
    let kinds = [
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "advisor_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "mcp_tool_listing",
        "container_upload",
        "compaction",
        "fallback",
        "file",
        "url",
        "video",
        "Text",
        "",
    ];
    for kind in kinds {
        for request in anthropic_block_places(&json!({"type": kind, "file_id": "file_1"})) {
            refused(Messages, &request, Rule::ContentNotAllowed, "type = ");
        }
    }
    for request in anthropic_block_places(&json!({"text": "no type"})) {
        refused(Messages, &request, Rule::ContentNotAllowed, "without a type");
    }
    for field in ["file_id", "url", "source", "tool", "mcp_servers", "x"] {
        let mut block = json!({"type": "text", "text": "x"});
        block[field] = json!("x");
        for request in anthropic_block_places(&block) {
            refused(Messages, &request, Rule::UnknownField, field);
        }
    }
    for content in [
        json!({"type": "image", "source": {"type": "url", "url": "https://x.example"}}),
        json!(7),
        json!(true),
    ] {
        let request = with(Messages, "messages", json!([{"role": "user", "content": content}]));
        refused(Messages, &request, Rule::WrongType, "content");
    }
}

/// MOD-5: media by URL or file id, at any depth.
#[test]
fn anthropic_media() {
    let sources = [
        json!({"type": "url", "url": "https://x.example/a.png"}),
        json!({"type": "url", "url": "data:image/png;base64,AAAA"}),
        json!({"type": "file", "file_id": "file_1"}),
        json!({"type": "container", "id": "c"}),
        json!({"type": "base64", "media_type": "image/png", "data": "https://x.example/a.png"}),
        json!({"type": "base64", "media_type": "image/png", "data": "//x.example/a.png"}),
        json!({"type": "URL", "url": "https://x.example/a.png"}),
        json!({"url": "https://x.example/a.png"}),
    ];
    for source in &sources {
        for kind in ["image", "document"] {
            for request in anthropic_block_places(&json!({"type": kind, "source": source})) {
                let refusal = ask(Messages, &request).unwrap_err();
                // Where no media may stand at all, that is the reason.
                if refusal.rule != Rule::ContentNotAllowed {
                    refused(Messages, &request, Rule::MediaReference, "source");
                }
            }
            refused(
                Messages,
                &with(
                    Messages,
                    "messages",
                    json!([{"role": "user", "content": [{"type": kind, "source": source}]}]),
                ),
                Rule::MediaReference,
                "messages[0].content[0].source",
            );
        }
    }
    for extra in ["url", "file_id"] {
        let mut source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
        source[extra] = json!("x");
        let request = with(
            Messages,
            "messages",
            json!([{"role": "user", "content": [{"type": "image", "source": source}]}]),
        );
        refused(Messages, &request, Rule::UnknownField, extra);
    }
}

/// MOD-5: fields that reach elsewhere or keep something, with every value but the ones that say "not there".
#[test]
fn forbidden_fields() {
    let values = [
        json!("x"),
        json!(1),
        json!(0),
        json!(true),
        json!([]),
        json!({}),
        json!([{"type": "url", "url": "https://x.example/mcp"}]),
        json!({"id": "x"}),
        json!(""),
    ];
    let rows: [(Interface, &[&str], Rule); 6] = [
        (
            Messages,
            &[
                "container",
                "mcp_servers",
                "fallbacks",
                "fallback_credit_token",
                "inference_geo",
                "user_profile_id",
                "workspace_id",
                "billing_policy",
                "compaction",
                "diagnostics",
                "betas",
            ],
            Rule::FieldNotAllowed,
        ),
        (Messages, &["thread"], Rule::StateNotAllowed),
        (CountTokens, &["mcp_servers", "container", "betas"], Rule::FieldNotAllowed),
        (Responses, &["conversation", "previous_response_id", "prompt", "background"], Rule::StateNotAllowed),
        (Responses, &["context_management", "moderation"], Rule::FieldNotAllowed),
        (
            ChatCompletions,
            &["web_search_options", "moderation", "plugins", "provider", "models", "route", "transforms"],
            Rule::FieldNotAllowed,
        ),
    ];
    for (interface, fields, rule) in rows {
        for field in fields {
            for value in &values {
                refused(interface, &with(interface, field, value.clone()), rule, field);
            }
            assert!(ask(interface, &with(interface, field, Json::Null)).unwrap().get(field).is_none());
        }
    }
}

/// MOD-5: a field that stands in no table, on every interface; also the ones of another interface, and near misses.
#[test]
fn unknown_fields() {
    let always = [
        "Model",
        "model ",
        "mcp_server",
        "webhook",
        "webhook_url",
        "callback_url",
        "x",
        "",
        "__proto__",
        "constructor",
        "max_new_tokens",
        "num_predict",
        "max_length",
        "best_of",
        "extra_body",
        "tools\u{0}",
        "\u{fb01}le",
        "url",
        "file_id",
        "input_file_id",
        "assistant_id",
        "thread_id",
        "vector_store_ids",
        "attachments",
        "prediction",
        "audio",
        "budget_tokens",
    ];
    for interface in &INTERFACES {
        for field in always {
            refused(
                *interface,
                &with(*interface, field, json!("x")),
                Rule::UnknownField,
                "is not known here",
            );
        }
    }
    let rows: [(Interface, &[&str]); 4] = [
        (
            Messages,
            &[
                "max_completion_tokens",
                "max_output_tokens",
                "n",
                "store",
                "input",
                "previous_response_id",
                "functions",
                "stop",
            ],
        ),
        (CountTokens, &["max_tokens", "stream", "temperature", "stop_sequences"]),
        (
            Responses,
            &[
                "messages",
                "max_tokens",
                "max_completion_tokens",
                "n",
                "functions",
                "web_search_options",
                "plugins",
                "mcp_servers",
            ],
        ),
        (
            ChatCompletions,
            &[
                "max_output_tokens",
                "input",
                "previous_response_id",
                "system",
                "thinking",
                "container",
                "mcp_servers",
                "reasoning",
            ],
        ),
    ];
    for (interface, fields) in rows {
        for field in fields {
            refused(interface, &with(interface, field, json!(1)), Rule::UnknownField, field);
        }
    }
}

/// MOD-3: numbers of tokens that another parser might read as something else.
#[test]
fn token_counts() {
    let rows = [
        (Messages, "max_tokens"),
        (Responses, "max_output_tokens"),
        (ChatCompletions, "max_tokens"),
        (ChatCompletions, "max_completion_tokens"),
    ];
    for (interface, field) in rows {
        for value in [
            json!("8192"),
            json!(true),
            json!(false),
            json!([8192]),
            json!({"a": 1}),
            json!(-1),
            json!(0),
            json!(1.5),
            json!(""),
        ] {
            refused(interface, &with(interface, field, value), Rule::TokenCount, field);
        }
        for number in [
            "8192.0",
            "1e3",
            "1E3",
            "0.1",
            "-0",
            "0",
            "-1",
            "-9223372036854775809",
            "18446744073709551616",
            "1e300",
            "9e-300",
            "99999999999999999999999999",
        ] {
            let mut request = plain(interface);
            request[field] = json!("NUMBER");
            let text = request.to_string().replace("\"NUMBER\"", number);
            assert_eq!(ask_bytes(interface, text.as_bytes()).unwrap_err().rule, Rule::TokenCount, "{text}");
        }
        for number in ["1e400", "-1e400", "NaN", "Infinity", "0x10", "08192", "+1", "1.", ".5", "8_192"] {
            let mut request = plain(interface);
            request[field] = json!("NUMBER");
            let text = request.to_string().replace("\"NUMBER\"", number);
            assert_eq!(
                ask_bytes(interface, text.as_bytes()).unwrap_err().rule,
                Rule::JsonMalformed,
                "{text}"
            );
        }
    }
    for budget in [json!("4096"), json!(4096.0), json!(true), json!(-1), json!(0)] {
        let request = with(Messages, "thinking", json!({"type": "enabled", "budget_tokens": budget}));
        refused(Messages, &request, Rule::TokenCount, "thinking.budget_tokens");
    }
    refused(
        Messages,
        &with(Messages, "thinking", json!({"type": "Enabled", "budget_tokens": 9000})),
        Rule::UnknownValue,
        "Enabled",
    );
    refused(
        Messages,
        &with(Messages, "thinking", json!({"budget_tokens": 9000})),
        Rule::UnknownValue,
        "thinking",
    );
    refused(
        Messages,
        &with(Messages, "thinking", json!({"type": "adaptive", "budget_tokens": 9000})),
        Rule::UnknownField,
        "budget_tokens",
    );
    refused(Messages, &with(Messages, "thinking", json!("enabled")), Rule::WrongType, "thinking");
}

/// MOD-5: an edit of the context that asks the model once more at the service; words that have no meaning here.
#[test]
fn anthropic_words() {
    for kind in ["compact_20260112", "summarize", "clear_thinking_29990101"] {
        let request = with(Messages, "context_management", json!({"edits": [{"type": kind}]}));
        refused(Messages, &request, Rule::ContentNotAllowed, kind);
    }
    refused(
        Messages,
        &with(Messages, "cache_control", json!({"type": "persistent"})),
        Rule::UnknownValue,
        "persistent",
    );
    refused(
        Messages,
        &with(Messages, "cache_control", json!({"type": "ephemeral", "ttl": "30d"})),
        Rule::UnknownValue,
        "30d",
    );
    refused(
        Messages,
        &with(Messages, "messages", json!([{"role": "tool", "content": "x"}])),
        Rule::UnknownValue,
        "role",
    );
    refused(
        Messages,
        &with(Messages, "messages", json!({"0": {"role": "user"}})),
        Rule::WrongType,
        "messages",
    );
    refused(Messages, &with(Messages, "stream", json!("true")), Rule::WrongType, "stream");
    refused(
        Messages,
        &with(Messages, "output_config", json!({"fallback": "x"})),
        Rule::UnknownField,
        "output_config.fallback",
    );
}

/// Where a tool can stand in a request to Responses.
fn responses_tool_places(tool: &Json) -> Vec<Json> {
    let namespace =
        |tool: &Json| json!({"type": "namespace", "name": "n", "description": "d", "tools": [tool]});
    vec![
        json!({"input": "x", "tools": [tool]}),
        json!({"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {}}, tool]}),
        json!({"input": "x", "tools": [namespace(tool)]}),
        json!({"input": "x", "tools": [namespace(&namespace(&namespace(tool)))]}),
        json!({"input": [{"type": "additional_tools", "role": "developer", "tools": [tool]}]}),
        json!({"input": [{"type": "additional_tools", "role": "developer", "tools": [namespace(tool)]}]}),
        json!({"input": [{"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [tool]}]}),
        json!({"input": [{"type": "tool_search_output", "call_id": "c", "tools": [namespace(tool)]}]}),
    ]
}

/// MOD-4: hosted tools, wherever a tool can stand.
#[test]
fn responses_server_tools() {
    let tools = [
        json!({"type": "web_search"}),
        json!({"type": "web_search", "external_web_access": true}),
        json!({"type": "web_search_2025_08_26"}),
        json!({"type": "web_search_preview"}),
        json!({"type": "web_search_preview_2025_03_11"}),
        json!({"type": "file_search", "vector_store_ids": ["vs"]}),
        json!({"type": "code_interpreter", "container": {"type": "auto"}}),
        json!({"type": "image_generation"}),
        json!({"type": "mcp", "server_label": "l", "server_url": "https://x.example"}),
        json!({"type": "mcp", "server_label": "l", "connector_id": "connector_dropbox"}),
        json!({"type": "programmatic_tool_calling"}),
        json!({"type": "tool_search"}),
        json!({"type": "tool_search", "execution": null}),
        json!({"type": "tool_search", "execution": "server"}),
        json!({"type": "tool_search", "execution": "Client"}),
        json!({"type": "shell"}),
        json!({"type": "shell", "environment": null}),
        json!({"type": "shell", "environment": {"type": "container_auto"}}),
        json!({"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}}),
        json!({"type": "shell", "environment": {}}),
        json!({"type": "Function", "name": "f"}),
        json!({"type": "computer_v9"}),
        json!({"name": "f", "parameters": {}}),
        json!({"type": null, "name": "f"}),
        json!({"type": ""}),
    ];
    for tool in &tools {
        for request in responses_tool_places(tool) {
            refused(Responses, &request, Rule::ToolNotAllowed, "is no tool that the agent runs itself");
        }
    }
    for callers in [json!(["programmatic"]), json!(["direct", "programmatic"]), json!(["direct", 1])] {
        for kind in ["function", "custom", "apply_patch"] {
            for request in responses_tool_places(&json!({"type": kind, "allowed_callers": callers})) {
                refused(Responses, &request, Rule::CallersNotAllowed, "allowed_callers");
            }
        }
    }
    for field in ["server_url", "connector_id", "container", "vector_store_ids", "authorization", "headers"] {
        let mut tool = json!({"type": "function", "name": "f", "parameters": {}});
        tool[field] = json!("x");
        for request in responses_tool_places(&tool) {
            refused(Responses, &request, Rule::UnknownField, field);
        }
    }
    for choice in [
        json!("web_search"),
        json!("server"),
        json!({"type": "web_search_preview"}),
        json!({"type": "file_search"}),
        json!({"type": "mcp", "server_label": "l"}),
        json!({"type": "code_interpreter"}),
        json!({"type": "image_generation"}),
        json!({"type": "programmatic_tool_calling"}),
        json!({"type": "hosted_tool"}),
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "l"}]}),
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "image_generation"}]}),
    ] {
        refused(Responses, &with(Responses, "tool_choice", choice), Rule::ToolNotAllowed, "tool_choice");
    }
}

/// MOD-5: items that come from hosted tools or refer to what is stored.
#[test]
fn responses_items() {
    for kind in [
        "file_search_call",
        "web_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "compaction",
        "compaction_trigger",
        "program",
        "program_output",
        "agent",
        "Message",
        "",
    ] {
        let request = with(
            Responses,
            "input",
            json!([{"type": "message", "role": "user", "content": "x"}, {"type": kind, "id": "x"}]),
        );
        refused(Responses, &request, Rule::ContentNotAllowed, "input[1]");
    }
    for item in [
        json!({"type": "item_reference", "id": "msg_1"}),
        json!({"id": "msg_1"}),
        json!({"type": null, "id": "msg_1"}),
        json!({}),
        json!({"type": "reasoning", "id": "rs_1", "summary": []}),
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null, "content": null}),
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "", "content": []}),
        json!({"type": "item_reference", "role": "user", "content": "x"}),
    ] {
        refused(Responses, &with(Responses, "input", json!([item])), Rule::StateNotAllowed, "input[0]");
    }
    for item in [json!("x"), json!([{"type": "item_reference", "id": "x"}]), json!(1)] {
        refused(Responses, &with(Responses, "input", json!([item])), Rule::WrongType, "input[0]");
    }
    for item in [
        json!({"type": "shell_call", "call_id": "c", "action": {}, "environment": {"type": "container_reference", "container_id": "c"}}),
        json!({"type": "tool_search_call", "call_id": "c", "execution": "server", "arguments": {}}),
        json!({"type": "tool_search_output", "call_id": "c", "execution": "server", "tools": []}),
    ] {
        refused(Responses, &with(Responses, "input", json!([item])), Rule::ToolNotAllowed, "input[0]");
    }
    for item in
        ["function_call", "custom_tool_call", "function_call_output", "shell_call", "apply_patch_call"]
    {
        let item = json!({"type": item, "call_id": "c", "caller": {"type": "program", "caller_id": "p"}});
        let refusal = ask(Responses, &with(Responses, "input", json!([item]))).unwrap_err();
        assert!(matches!(refusal.rule, Rule::CallersNotAllowed | Rule::UnknownField), "{refusal}");
    }
    refused(
        Responses,
        &with(Responses, "input", json!({"type": "item_reference", "id": "x"})),
        Rule::WrongType,
        "input",
    );
}

/// MOD-5: media by reference in everything that can carry it.
#[test]
fn responses_media() {
    let urls = [
        "https://x.example/a.png",
        "http://x.example/a.png",
        "HTTPS://x.example",
        "//x.example/a.png",
        "file:///etc/passwd",
        " data:image/png;base64,AA",
        "data:text/html,x",
        "data:,x",
        "data:image",
        "\u{feff}data:image/png;base64,AA",
        "data\u{0}:image/png",
        "ftp://x.example",
        "x",
        "sandbox:/mnt/x",
        "",
    ];
    let places = |content: &Json| {
        vec![
            json!({"input": [{"type": "message", "role": "user", "content": [content]}]}),
            json!({"input": [{"role": "assistant", "content": [{"type": "output_text", "text": "x"}, content]}]}),
            json!({"input": [{"type": "function_call_output", "call_id": "c", "output": [content]}]}),
            json!({"input": [{"type": "custom_tool_call_output", "call_id": "c", "output": [content]}]}),
        ]
    };
    for url in urls {
        for request in places(&json!({"type": "input_image", "image_url": url})) {
            refused(Responses, &request, Rule::MediaReference, "image_url");
        }
        let shot = json!([{"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": url}}]);
        refused(Responses, &with(Responses, "input", shot), Rule::MediaReference, "image_url");
    }
    for content in [
        json!({"type": "input_image", "file_id": "file_1"}),
        json!({"type": "input_file", "file_id": "file_1"}),
        json!({"type": "input_file", "file_url": "https://x.example/a.pdf"}),
        json!({"type": "input_file", "file_url": "data:application/pdf;base64,AA"}),
        json!({"type": "input_file", "file_data": "https://x.example/a.pdf"}),
        json!({"type": "output_text", "text": "x", "annotations": [{"type": "file_citation", "file_id": "f"}]}),
        json!({"type": "output_text", "text": "x", "annotations": [{"type": "container_file_citation", "container_id": "c", "file_id": "f"}]}),
        json!({"type": "output_text", "text": "x", "annotations": [{"type": "file_path", "file_id": "f"}]}),
    ] {
        for request in places(&content) {
            refused(Responses, &request, Rule::MediaReference, "refers to media");
        }
    }
    for content in [
        json!({"type": "input_audio", "data": "AA"}),
        json!({"type": "image_url", "image_url": "x"}),
        json!({"type": "input_image_mask"}),
        json!({"text": "x"}),
    ] {
        for request in places(&content) {
            refused(Responses, &request, Rule::ContentNotAllowed, "[");
        }
    }
    for content in [
        json!({"type": "input_image", "image_url": {"url": "https://x.example"}}),
        json!({"type": "input_image", "image_url": 1}),
    ] {
        for request in places(&content) {
            refused(Responses, &request, Rule::WrongType, "image_url");
        }
    }
    let shot = json!([{"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "file_id": "f"}}]);
    refused(Responses, &with(Responses, "input", shot), Rule::MediaReference, "file_id");
}

/// MOD-5: what may come with an answer; words that have no meaning here.
#[test]
fn responses_words() {
    for include in [
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
        "Reasoning.encrypted_content",
        "",
        "*",
    ] {
        refused(
            Responses,
            &with(Responses, "include", json!(["reasoning.encrypted_content", include])),
            Rule::IncludeNotAllowed,
            "include[1]",
        );
    }
    refused(
        Responses,
        &with(Responses, "include", json!("web_search_call.results")),
        Rule::WrongType,
        "include",
    );
    refused(
        Responses,
        &with(Responses, "reasoning", json!({"mode": "pro"})),
        Rule::UnknownValue,
        "reasoning.mode",
    );
    refused(Responses, &with(Responses, "reasoning", json!({"x": 1})), Rule::UnknownField, "reasoning.x");
    refused(
        Responses,
        &with(Responses, "text", json!({"format": {"type": "html"}})),
        Rule::UnknownValue,
        "text.format",
    );
    refused(
        Responses,
        &with(Responses, "instructions", json!([{"type": "item_reference", "id": "x"}])),
        Rule::WrongType,
        "instructions",
    );
}

/// MOD-4: Chat Completions knows functions and custom tools.
#[test]
fn chat_tools() {
    for kind in [
        "web_search",
        "web_search_preview",
        "mcp",
        "code_interpreter",
        "file_search",
        "retrieval",
        "openrouter:web_search",
        "Function",
        "namespace",
        "",
        "x",
    ] {
        let request = with(
            ChatCompletions,
            "tools",
            json!([{"type": "function", "function": {"name": "f"}}, {"type": kind, kind: {}}]),
        );
        refused(ChatCompletions, &request, Rule::ToolNotAllowed, "tools[1]");
        let request = with(ChatCompletions, "tool_choice", json!({"type": kind}));
        refused(ChatCompletions, &request, Rule::ToolNotAllowed, "tool_choice");
        let request = with(
            ChatCompletions,
            "tool_choice",
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": kind}]}}),
        );
        refused(ChatCompletions, &request, Rule::ToolNotAllowed, "tools[0]");
        let request = with(
            ChatCompletions,
            "messages",
            json!([{"role": "assistant", "tool_calls": [{"id": "x", "type": kind}]}]),
        );
        refused(ChatCompletions, &request, Rule::ToolNotAllowed, "tool_calls[0]");
    }
    refused(
        ChatCompletions,
        &with(ChatCompletions, "tools", json!([{"function": {"name": "f"}}])),
        Rule::ToolNotAllowed,
        "tools[0]",
    );
    refused(
        ChatCompletions,
        &with(ChatCompletions, "tool_choice", json!("web_search")),
        Rule::ToolNotAllowed,
        "web_search",
    );
    refused(
        ChatCompletions,
        &with(ChatCompletions, "functions", json!([{"name": "f", "type": "web_search"}])),
        Rule::UnknownField,
        "functions[0].type",
    );
    refused(
        ChatCompletions,
        &with(ChatCompletions, "functions", json!("web_search")),
        Rule::WrongType,
        "functions",
    );
    for field in ["server_url", "mcp", "allowed_callers", "web_search"] {
        let mut tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
        tool[field] = json!("x");
        refused(ChatCompletions, &with(ChatCompletions, "tools", json!([tool])), Rule::UnknownField, field);
    }
}

/// MOD-5: media by reference, spoken answers, and content that is not known.
#[test]
fn chat_content() {
    let message = |part: Json| json!([{"role": "user", "content": [{"type": "text", "text": "x"}, part]}]);
    for url in [
        "https://x.example/a.png",
        "//x.example",
        "file:///etc/passwd",
        "data:text/html,x",
        " data:image/png,",
        "gs://b/o",
        "HTTP://x",
        "",
    ] {
        for part in [
            json!({"type": "image_url", "image_url": {"url": url}}),
            json!({"type": "image_url", "image_url": url}),
        ] {
            for role in ["user", "system", "assistant", "tool"] {
                let request = with(ChatCompletions, "messages", json!([{"role": role, "content": [part]}]));
                refused(ChatCompletions, &request, Rule::MediaReference, "image_url");
            }
        }
    }
    for part in [
        json!({"type": "file", "file": {"file_id": "file_1"}}),
        json!({"type": "file", "file": {"file_data": "https://x.example/a.pdf"}}),
        json!({"type": "input_audio", "input_audio": {"data": "https://x.example/a.wav", "format": "wav"}}),
    ] {
        refused(
            ChatCompletions,
            &with(ChatCompletions, "messages", message(part)),
            Rule::MediaReference,
            "content[1]",
        );
    }
    for part in [
        json!({"type": "video_url", "video_url": {"url": "https://x.example"}}),
        json!({"type": "audio_url"}),
        json!({"type": "input_image"}),
        json!({"text": "x"}),
    ] {
        refused(
            ChatCompletions,
            &with(ChatCompletions, "messages", message(part)),
            Rule::ContentNotAllowed,
            "content[1]",
        );
    }
    for part in [
        json!({"type": "file", "file": {"file_url": "https://x.example/a.pdf"}}),
        json!({"type": "text", "text": "x", "image_url": {"url": "https://x.example"}}),
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "file_id": "x"}}),
    ] {
        refused(
            ChatCompletions,
            &with(ChatCompletions, "messages", message(part)),
            Rule::UnknownField,
            "content[1]",
        );
    }
    let audio = json!([{"role": "assistant", "audio": {"id": "audio_1"}}]);
    refused(
        ChatCompletions,
        &with(ChatCompletions, "messages", audio),
        Rule::StateNotAllowed,
        "messages[0].audio",
    );
    refused(
        ChatCompletions,
        &with(ChatCompletions, "modalities", json!(["text", "audio"])),
        Rule::ContentNotAllowed,
        "modalities[1]",
    );
    refused(
        ChatCompletions,
        &with(ChatCompletions, "messages", json!([{"role": "root", "content": "x"}])),
        Rule::UnknownValue,
        "root",
    );
    refused(
        ChatCompletions,
        &with(ChatCompletions, "messages", json!([{"role": "user", "content": {"type": "image_url"}}])),
        Rule::WrongType,
        "content",
    );
    refused(
        ChatCompletions,
        &with(ChatCompletions, "messages", json!([{"role": "user", "attachments": []}])),
        Rule::UnknownField,
        "attachments",
    );
}

/// MOD-8: bodies that are not one JSON object with one meaning, on every interface.
#[test]
fn bodies_with_two_meanings() {
    for interface in INTERFACES {
        let good = plain(interface).to_string();
        let inside = &good[1..good.len() - 1];
        let rows: Vec<(Vec<u8>, Rule)> = vec![
            (b"".to_vec(), Rule::BodyMissing),
            (b" \r\n\t".to_vec(), Rule::BodyMissing),
            (b"null".to_vec(), Rule::JsonNotObject),
            (b"7".to_vec(), Rule::JsonNotObject),
            (format!("[{good}]").into(), Rule::JsonNotObject),
            (escaped(&json!(good)).into(), Rule::JsonNotObject),
            (format!("{good}{good}").into(), Rule::JsonMalformed),
            (format!("{good}\n{good}").into(), Rule::JsonMalformed),
            (format!("{good}x").into(), Rule::JsonMalformed),
            (format!("{good}\0").into(), Rule::JsonMalformed),
            (format!("{good},").into(), Rule::JsonMalformed),
            (format!("\u{feff}{good}").into(), Rule::JsonMalformed),
            (format!("{{{inside},}}").into(), Rule::JsonMalformed),
            (format!("{{/**/{inside}}}").into(), Rule::JsonMalformed),
            (format!("//x\n{good}").into(), Rule::JsonMalformed),
            (good.replace('"', "'").into(), Rule::JsonMalformed),
            (format!("data: {good}").into(), Rule::JsonMalformed),
            (good[..good.len() - 1].into(), Rule::JsonMalformed),
            (good.replace("\"hi\"", "\"\\ud800\"").into(), Rule::JsonMalformed),
            (good.replace("\"hi\"", "\"\\udc00\\ud800\"").into(), Rule::JsonMalformed),
            (good.replace("\"hi\"", "\"\\x41\"").into(), Rule::JsonMalformed),
            (good.replace("\"hi\"", "\"a\nb\"").into(), Rule::JsonMalformed),
            (good.replace("\"hi\"", "undefined").into(), Rule::JsonMalformed),
            ([b"\x1f\x8b\x08\x00".as_slice(), good.as_bytes()].concat(), Rule::JsonMalformed),
            (good.encode_utf16().flat_map(u16::to_le_bytes).collect(), Rule::JsonMalformed),
            (good.replace("hi", "h\u{1}i").into(), Rule::JsonMalformed),
            ([&good.as_bytes()[..good.len() - 1], b",\"a\":\"\xff\"}"].concat(), Rule::JsonMalformed),
            ([&good.as_bytes()[..good.len() - 1], b",\"a\":\"\xc0\xaf\"}"].concat(), Rule::JsonMalformed),
            ([&good.as_bytes()[..good.len() - 1], b",\"a\":\"\xed\xa0\x80\"}"].concat(), Rule::JsonMalformed),
            (format!("{{{inside},\"model\":\"x\"}}").into(), Rule::JsonDuplicateKey),
            (format!("{{{inside},\"mod\\u0065l\":\"x\"}}").into(), Rule::JsonDuplicateKey),
            (format!("{{\"tools\":[],{inside},\"tools\":[]}}").into(), Rule::JsonDuplicateKey),
            (
                format!("{{{inside},\"tools\":[{{\"type\":\"function\",\"t\\u0079pe\":\"mcp\"}}]}}").into(),
                Rule::JsonDuplicateKey,
            ),
            (format!("{{{inside},\"metadata\":{{\"a\":1,\"\\u0061\":1}}}}").into(), Rule::JsonDuplicateKey),
            (
                format!("{{{inside},\"metadata\":{}1{}}}", "[".repeat(64), "]".repeat(64)).into(),
                Rule::JsonTooDeep,
            ),
            (format!("{{{inside},\"metadata\":{}", "[".repeat(500_000)).into(), Rule::JsonTooDeep),
            (format!("{{{inside},\"metadata\":{}", "{\"a\":".repeat(100_000)).into(), Rule::JsonTooDeep),
            (format!("{{{inside},\"metadata\":[{}0]}}", "0,".repeat(500_000)).into(), Rule::JsonTooLarge),
        ];
        for (bytes, rule) in rows {
            let refusal = ask_bytes(interface, &bytes).unwrap_err();
            assert_eq!(refusal.rule, rule, "{interface:?}: {refusal}");
            assert_eq!(refusal.status, 400);
        }
    }
}
