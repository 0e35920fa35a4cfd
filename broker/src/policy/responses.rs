//! The policy for OpenAI Responses, as of 2026-11-30: the types of openai 6.49.0 and the traffic of codex 0.171.0.
//!
//! What is absent is refused by name. Absent on purpose, since it runs at the service, reaches elsewhere or is kept there:
//! web and file search, code interpreter, image generation, hosted MCP, programmatic tool calling, containers, conversations,
//! previous responses, prompt templates, background mode, compaction, and the items of all these.

use super::check::{self, Field, Kinds, Treat, capped};
use super::json::{Object, Value};
use super::path::Path;
use super::{Policy, Refusal, Rule};

static REQUEST: &[Field] = &[
    ("model", Treat::Rewritten),
    ("input", Treat::TextOr(&Treat::Each(&Treat::Code(item)))),
    ("instructions", Treat::Text),
    ("tools", Treat::Each(&Treat::Tagged(&TOOLS))),
    ("tool_choice", Treat::OneOfOr(Rule::ToolNotAllowed, &["none", "auto", "required"], &TOOL_CHOICE)),
    ("parallel_tool_calls", Treat::Flag),
    ("max_output_tokens", Treat::Rewritten),
    ("store", Treat::Rewritten),
    ("stream", Treat::Flag),
    (
        "stream_options",
        Treat::Object(&[("include_obfuscation", Treat::Flag), ("include_usage", Treat::Flag)]),
    ),
    ("reasoning", Treat::Object(REASONING)),
    ("text", Treat::Object(&[("verbosity", Treat::Text), ("format", Treat::Tagged(&FORMATS))])),
    ("include", Treat::Each(&Treat::OneOf(Rule::IncludeNotAllowed, INCLUDE))),
    ("temperature", Treat::Number),
    ("top_p", Treat::Number),
    ("top_logprobs", Treat::Number),
    ("truncation", Treat::OneOf(Rule::UnknownValue, &["auto", "disabled"])),
    ("prompt_cache_key", Treat::Text),
    // Says who asks, or counts calls of tools that are refused anyway.
    ("client_metadata", Treat::Dropped),
    ("max_tool_calls", Treat::Dropped),
    // Is kept at the service, or reaches elsewhere.
    ("background", Treat::Refused(Rule::StateNotAllowed)),
    ("conversation", Treat::Refused(Rule::StateNotAllowed)),
    ("previous_response_id", Treat::Refused(Rule::StateNotAllowed)),
    ("prompt", Treat::Refused(Rule::StateNotAllowed)),
    ("context_management", Treat::Refused(Rule::FieldNotAllowed)),
    ("moderation", Treat::Refused(Rule::FieldNotAllowed)),
];

/// What may come with an answer besides: the model's own reasoning, encrypted, so that nothing has to be stored.
const INCLUDE: &[&str] = &["reasoning.encrypted_content", "message.output_text.logprobs"];

static REASONING: &[Field] = &[
    ("effort", Treat::Text),
    ("summary", Treat::Text),
    ("generate_summary", Treat::Text),
    ("context", Treat::Text),
    // The other one has several answers made and one chosen.
    ("mode", Treat::OneOf(Rule::UnknownValue, &["standard"])),
];

static FORMATS: Kinds = Kinds {
    rule: Rule::UnknownValue,
    table: &[
        ("text", &[]),
        ("json_object", &[]),
        (
            "json_schema",
            &[
                ("name", Treat::Text),
                ("description", Treat::Text),
                ("schema", Treat::Opaque),
                ("strict", Treat::Flag),
            ],
        ),
    ],
    ..Kinds::NONE
};

/// What a tool of the agent's own did: no text alone, and no reference in it.
const AS_TEXT: Treat = Treat::Code(check::no_reference);

/// Items of the conversation. An `id` names what the service keeps of one, and is taken out: what an item says stands in it
/// (see [`said`]).
static ITEMS: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: &[("id", Treat::Dropped), ("status", Treat::Text), ("caller", Treat::Object(CALLER))],
    table: &[
        (
            "message",
            &[
                ("role", Treat::OneOf(Rule::UnknownValue, &["user", "assistant", "system", "developer"])),
                ("content", Treat::TextOr(&Treat::Each(&Treat::Tagged(&CONTENT)))),
                ("phase", Treat::Text),
            ],
        ),
        (
            "reasoning",
            &[
                ("summary", Treat::Each(&Treat::Tagged(&REASONING_TEXT))),
                ("content", Treat::Each(&Treat::Tagged(&REASONING_TEXT))),
                ("encrypted_content", Treat::Text),
            ],
        ),
        (
            "function_call",
            &[
                ("call_id", Treat::Text),
                ("name", Treat::Text),
                ("namespace", Treat::Text),
                ("arguments", Treat::Opaque),
            ],
        ),
        ("function_call_output", OUTPUT),
        (
            "custom_tool_call",
            &[
                ("call_id", Treat::Text),
                ("name", Treat::Text),
                ("namespace", Treat::Text),
                ("input", Treat::Opaque),
            ],
        ),
        ("custom_tool_call_output", OUTPUT),
        ("local_shell_call", &[("call_id", Treat::Text), ("action", AS_TEXT)]),
        ("local_shell_call_output", &[("call_id", Treat::Text), ("output", Treat::Text)]),
        (
            "shell_call",
            &[("call_id", Treat::Text), ("action", AS_TEXT), ("environment", Treat::Tagged(&ENVIRONMENTS))],
        ),
        (
            "shell_call_output",
            &[("call_id", Treat::Text), ("output", AS_TEXT), ("max_output_length", Treat::Number)],
        ),
        ("apply_patch_call", &[("call_id", Treat::Text), ("operation", AS_TEXT)]),
        ("apply_patch_call_output", &[("call_id", Treat::Text), ("output", Treat::Text)]),
        (
            "computer_call",
            &[
                ("call_id", Treat::Text),
                ("action", AS_TEXT),
                ("actions", AS_TEXT),
                ("pending_safety_checks", Treat::Each(&Treat::Object(SAFETY_CHECK))),
            ],
        ),
        (
            "computer_call_output",
            &[
                ("call_id", Treat::Text),
                ("output", Treat::Tagged(&SCREENSHOTS)),
                ("acknowledged_safety_checks", Treat::Each(&Treat::Object(SAFETY_CHECK))),
            ],
        ),
        (
            "tool_search_call",
            &[("call_id", Treat::Text), ("arguments", Treat::Opaque), ("execution", CLIENT)],
        ),
        (
            "tool_search_output",
            &[
                ("call_id", Treat::Text),
                ("tools", Treat::Each(&Treat::Tagged(&TOOLS))),
                ("execution", CLIENT),
            ],
        ),
        // codex in code mode: the tools stand in the first item.
        (
            "additional_tools",
            &[
                ("role", Treat::OneOf(Rule::UnknownValue, &["developer"])),
                ("tools", Treat::Each(&Treat::Tagged(&TOOLS))),
            ],
        ),
    ],
    also: said,
    ..Kinds::NONE
};

static OUTPUT: &[Field] = &[
    ("call_id", Treat::Text),
    ("name", Treat::Text),
    ("output", Treat::TextOr(&Treat::Each(&Treat::Tagged(&CONTENT)))),
];

static SAFETY_CHECK: &[Field] = &[("id", Treat::Text), ("code", Treat::Text), ("message", Treat::Text)];

static CONTENT: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: &[("prompt_cache_breakpoint", Treat::Object(&[("mode", Treat::Text)]))],
    table: &[
        ("input_text", &[("text", Treat::Text)]),
        (
            "output_text",
            &[
                ("text", Treat::Text),
                ("annotations", Treat::Each(&Treat::Tagged(&ANNOTATIONS))),
                // Numbers about an answer that was given.
                ("logprobs", Treat::Dropped),
            ],
        ),
        ("refusal", &[("refusal", Treat::Text)]),
        (
            "input_image",
            &[
                ("image_url", Treat::Code(check::inline_image)),
                ("detail", Treat::Text),
                ("file_id", Treat::Refused(Rule::MediaReference)),
            ],
        ),
        (
            "input_file",
            &[
                ("file_data", Treat::Code(check::inline_data)),
                ("filename", Treat::Text),
                ("detail", Treat::Text),
                ("file_id", Treat::Refused(Rule::MediaReference)),
                ("file_url", Treat::Refused(Rule::MediaReference)),
            ],
        ),
    ],
    ..Kinds::NONE
};

static SCREENSHOTS: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    table: &[(
        "computer_screenshot",
        &[("image_url", Treat::Code(check::inline_image)), ("file_id", Treat::Refused(Rule::MediaReference))],
    )],
    ..Kinds::NONE
};

/// What an answer cited: text. Those that name a file come from tools that are refused.
static ANNOTATIONS: Kinds = Kinds {
    rule: Rule::MediaReference,
    table: &[(
        "url_citation",
        &[
            ("url", Treat::Text),
            ("title", Treat::Text),
            ("start_index", Treat::Number),
            ("end_index", Treat::Number),
        ],
    )],
    ..Kinds::NONE
};

static REASONING_TEXT: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: &[("text", Treat::Text)],
    table: &[("summary_text", &[]), ("reasoning_text", &[]), ("text", &[])],
    ..Kinds::NONE
};

/// Tools that the agent runs itself; in a namespace, and in the items that bring tools, the same ones.
static TOOLS: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    common: &[
        ("allowed_callers", Treat::Each(&Treat::OneOf(Rule::CallersNotAllowed, &["direct"]))),
        ("description", Treat::Text),
        ("defer_loading", Treat::Flag),
    ],
    table: &[
        (
            "function",
            &[
                ("name", Treat::Text),
                ("parameters", Treat::Opaque),
                ("output_schema", Treat::Opaque),
                ("strict", Treat::Flag),
            ],
        ),
        ("custom", &[("name", Treat::Text), ("format", Treat::Object(CUSTOM_FORMAT))]),
        ("namespace", &[("name", Treat::Text), ("tools", Treat::Each(&Treat::Tagged(&TOOLS)))]),
        ("local_shell", &[]),
        ("shell", &[("environment", Treat::Tagged(&ENVIRONMENTS))]),
        ("apply_patch", &[]),
        ("computer", &[]),
        (
            "computer_use_preview",
            &[
                ("display_height", Treat::Number),
                ("display_width", Treat::Number),
                ("environment", Treat::Text),
            ],
        ),
        ("tool_search", &[("execution", CLIENT), ("parameters", Treat::Opaque)]),
    ],
    also: at_the_agent,
    ..Kinds::NONE
};

static CUSTOM_FORMAT: &[Field] = &[
    ("type", Treat::OneOf(Rule::UnknownValue, &["text", "grammar"])),
    ("syntax", Treat::Text),
    ("definition", Treat::Text),
];

static SKILL: &[Field] = &[("name", Treat::Text), ("description", Treat::Text), ("path", Treat::Text)];

static ENVIRONMENTS: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    // Skills of a local shell are names and paths on the agent's side.
    table: &[("local", &[("skills", Treat::Each(&Treat::Object(SKILL)))])],
    ..Kinds::NONE
};

const CLIENT: Treat = Treat::OneOf(Rule::ToolNotAllowed, &["client"]);

static CALLER: &[Field] = &[("type", Treat::OneOf(Rule::CallersNotAllowed, &["direct"]))];

static TOOL_CHOICE: Treat = Treat::Tagged(&TOOL_CHOICES);

static TOOL_CHOICES: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    table: &[
        ("function", NAMED),
        ("custom", NAMED),
        ("apply_patch", &[]),
        ("shell", &[]),
        ("local_shell", &[]),
        ("computer", &[]),
        ("computer_use", &[]),
        ("computer_use_preview", &[]),
        ("allowed_tools", &[("mode", Treat::Text), ("tools", Treat::Each(&Treat::Tagged(&CHOSEN_TOOLS)))]),
    ],
    ..Kinds::NONE
};

static CHOSEN_TOOLS: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    table: &[
        ("function", NAMED),
        ("custom", NAMED),
        ("namespace", NAMED),
        ("apply_patch", &[]),
        ("shell", &[]),
        ("local_shell", &[]),
        ("computer", &[]),
        ("computer_use_preview", &[]),
        ("tool_search", &[]),
    ],
    ..Kinds::NONE
};

static NAMED: &[Field] = &[("name", Treat::Text), ("namespace", Treat::Text)];

/// An item without a type is a message, or a reference to something stored. It is told apart by its role, and then says so
/// itself, so that the service cannot read it the other way.
fn item(value: &mut Value, path: &Path<'_>) -> Result<(), Refusal> {
    if let Value::Object(item) = value
        && matches!(item.get("type"), None | Some(Value::Null))
    {
        if item.get("role").is_none() {
            return Err(Refusal::of(Rule::StateNotAllowed, &format!("{path} (without type and role)")));
        }
        item.set("type", Value::from("message"));
    }
    if let Value::Object(item) = value
        && item.get("type").and_then(Value::as_str) == Some("item_reference")
    {
        return Err(Refusal::of(Rule::StateNotAllowed, &path.to_string()));
    }
    static ITEM: Treat = Treat::Tagged(&ITEMS);
    check::check(value, path, &ITEM)
}

/// Reasoning that does not say what was thought would be looked up at the service; a search that does not say whose it is would
/// be the service's.
fn said(kind: &str, item: &Object, path: &Path<'_>) -> Result<(), Refusal> {
    let empty = [Value::Null, Value::from(""), Value::Array(Vec::new())];
    let given = |key| item.get(key).is_some_and(|value| !empty.contains(value));
    match kind {
        "reasoning" if !given("encrypted_content") && !given("content") => {
            Err(Refusal::of(Rule::StateNotAllowed, &format!("{path} (reasoning without its content)")))
        }
        "tool_search_call" | "tool_search_output" => at_the_agent("tool_search", item, path),
        _ => Ok(()),
    }
}

/// Tools that run at the service unless they are told not to.
fn at_the_agent(kind: &str, tool: &Object, path: &Path<'_>) -> Result<(), Refusal> {
    let field = match kind {
        "tool_search" => "execution",
        "shell" => "environment",
        _ => return Ok(()),
    };
    match tool.get(field) {
        None | Some(Value::Null) => {
            Err(Refusal::of(Rule::ToolNotAllowed, &format!("{path} = {kind} without {field}")))
        }
        // The table has said that it is the agent's own.
        Some(_) => Ok(()),
    }
}

/// A question that is answered.
pub(super) fn responses(body: &mut Object, policy: &Policy) -> Result<(), Refusal> {
    check::object(body, &Path::ROOT, &[REQUEST, check::OPENAI_DROPPED])?;
    let most =
        capped(body, "max_output_tokens", &Path::ROOT, policy.output_tokens)?.unwrap_or(policy.output_tokens);
    body.set("max_output_tokens", Value::Unsigned(most));
    body.set("model", Value::String(policy.model.clone()));
    body.set("store", Value::Bool(false));
    Ok(())
}
