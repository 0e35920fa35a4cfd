//! What refers to something that is not in the request, in the places where it looks like data (MOD-5).

use serde_json::{Value as Json, json};

use super::super::{Interface, Rule};
use super::{ask, refused, with};

fn item(item: Json) -> Json {
    with(Interface::Responses, "input", json!([item]))
}

/// MOD-5: an item's id is the service's name for what it keeps: it does not go out, and what an item says has to stand in it.
#[test]
fn ids_of_items_do_not_go_out() {
    for sent in [
        json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}),
        json!({"type": "message", "id": "msg_1", "role": "assistant", "content": "hi"}),
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}),
    ] {
        let out = ask(Interface::Responses, &item(sent.clone())).unwrap();
        assert_eq!(out["input"][0].get("id"), None, "{sent}");
    }
    for empty in [
        json!({"type": "reasoning", "id": "rs_1"}),
        json!({"type": "reasoning", "summary": [], "content": [], "encrypted_content": ""}),
    ] {
        refused(Interface::Responses, &item(empty), Rule::StateNotAllowed, "reasoning");
    }
    refused(
        Interface::Responses,
        &item(json!({"type": "reasoning", "content": [null]})),
        Rule::WrongType,
        "content[0]",
    );
}

/// MOD-4, MOD-5: null is no tool, no message and no item.
#[test]
fn null_is_no_element() {
    for (interface, key) in [
        (Interface::Responses, "tools"),
        (Interface::Responses, "input"),
        (Interface::Messages, "tools"),
        (Interface::Messages, "messages"),
        (Interface::ChatCompletions, "messages"),
    ] {
        refused(interface, &with(interface, key, json!([null])), Rule::WrongType, key);
    }
}

/// MOD-5: what the agent's own tools did is text to the service: no reference stands in it. A search says that it is the agent's.
#[test]
fn what_tools_did_names_nothing_elsewhere() {
    for sent in [
        json!({"type": "shell_call", "call_id": "c", "action": {"environment": {"type": "container_auto"}}}),
        json!({"type": "shell_call_output", "call_id": "c", "output": [{"image_url": "https://e.example/x"}]}),
        json!({"type": "computer_call", "call_id": "c", "action": {"file_id": "file-1"}}),
        json!({"type": "computer_call", "call_id": "c", "actions": [{"a": {"url": "https://e.example"}}]}),
        json!({"type": "apply_patch_call", "call_id": "c", "operation": {"container_id": "x"}}),
    ] {
        refused(Interface::Responses, &item(sent), Rule::MediaReference, "input[0]");
    }
    for kind in ["tool_search_call", "tool_search_output"] {
        refused(
            Interface::Responses,
            &item(json!({"type": kind, "call_id": "c"})),
            Rule::ToolNotAllowed,
            "execution",
        );
    }
    let fine = json!({"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "x", "outcome": {"type": "exit"}}]});
    assert!(ask(Interface::Responses, &item(fine)).is_ok());
}

/// MOD-5: media is base64 with its type, and no id or URL that looks a little like it.
#[test]
fn media_is_in_the_request() {
    let image = |url: &str| {
        item(
            json!({"role": "user", "type": "message", "content": [{"type": "input_image", "image_url": url}]}),
        )
    };
    assert!(ask(Interface::Responses, &image("data:image/png;base64,iVBORw0KGgo=")).is_ok());
    assert!(ask(Interface::Responses, &image("DATA:image/svg+xml;BASE64,AAAA")).is_ok());
    for url in [
        "data:image/https://e.example/x",
        "data:image/png,plain",
        "data:image/png;base64,https://e.example",
        "data:image/png;charset=x;base64,AAAA",
        "data:text/html;base64,AAAA",
        "data:image/png;base64",
        "data:;base64,AAAA",
        "file-abc123",
    ] {
        refused(Interface::Responses, &image(url), Rule::MediaReference, "image_url");
    }
    let file = |data: &str| {
        item(
            json!({"role": "user", "type": "message", "content": [{"type": "input_file", "file_data": data}]}),
        )
    };
    assert!(ask(Interface::Responses, &file("data:application/pdf;base64,AAAA")).is_ok());
    for data in ["file-abc123", "file_011abc", "data:application/pdf,https://e.example"] {
        refused(Interface::Responses, &file(data), Rule::MediaReference, "file_data");
    }
    let source = json!({"type": "base64", "media_type": "image/png", "data": "file_011abc"});
    let message = json!([{"role": "user", "content": [{"type": "image", "source": source}]}]);
    refused(
        Interface::Messages,
        &with(Interface::Messages, "messages", message),
        Rule::MediaReference,
        "data",
    );
}
