//! The policy for Anthropic Messages and its count of tokens, as of 2026-11-30: the types of @anthropic-ai/sdk 1.14.0 and the
//! traffic of claude 2.1.332.
//!
//! What is absent is refused by name. Absent on purpose, since it runs at the service, reaches elsewhere or is kept there:
//! web search and fetch, code execution, the advisor, MCP, tool search (`tool_search_tool_*` runs at the service; claude's own
//! search is a plain tool), containers, files, threads, compaction, and the results of all these.

use super::check::{self, Field, Kinds, Treat, capped};
use super::headers::Betas;
use super::json::{Object, Value};
use super::path::Path;
use super::{Policy, Refusal, Rule};

/// The fields of both questions.
static SHARED: &[Field] = &[
    ("model", Treat::Rewritten),
    ("messages", Treat::Each(&Treat::Object(MESSAGE))),
    ("system", Treat::TextOr(&Treat::Each(&Treat::Tagged(&SYSTEM)))),
    ("tools", Treat::Each(&Treat::Tagged(&TOOLS))),
    ("tool_choice", Treat::Tagged(&TOOL_CHOICES)),
    ("thinking", Treat::Tagged(&THINKING)),
    ("output_config", Treat::Object(OUTPUT_CONFIG)),
    ("output_format", Treat::Object(FORMAT)),
    ("context_management", Treat::Object(CONTEXT_MANAGEMENT)),
    ("cache_control", Treat::Object(CACHE_CONTROL)),
    // Says who asks, or buys another speed.
    ("metadata", Treat::Dropped),
    ("service_tier", Treat::Dropped),
    ("speed", Treat::Dropped),
    // Reaches elsewhere or is kept.
    ("container", Treat::Refused(Rule::FieldNotAllowed)),
    ("mcp_servers", Treat::Refused(Rule::FieldNotAllowed)),
    ("fallbacks", Treat::Refused(Rule::FieldNotAllowed)),
    ("fallback_credit_token", Treat::Refused(Rule::FieldNotAllowed)),
    ("inference_geo", Treat::Refused(Rule::FieldNotAllowed)),
    ("user_profile_id", Treat::Refused(Rule::FieldNotAllowed)),
    ("workspace_id", Treat::Refused(Rule::FieldNotAllowed)),
    ("billing_policy", Treat::Refused(Rule::FieldNotAllowed)),
    ("thread", Treat::Refused(Rule::StateNotAllowed)),
    ("compaction", Treat::Refused(Rule::FieldNotAllowed)),
    ("diagnostics", Treat::Refused(Rule::FieldNotAllowed)),
    // Betas are asked for in a header, where they are reduced.
    ("betas", Treat::Refused(Rule::FieldNotAllowed)),
];

/// The fields that make an answer.
static ANSWER: &[Field] = &[
    ("max_tokens", Treat::Rewritten),
    ("stream", Treat::Flag),
    ("stop_sequences", Treat::Each(&Treat::Text)),
    ("temperature", Treat::Number),
    ("top_k", Treat::Number),
    ("top_p", Treat::Number),
];

static MESSAGE: &[Field] = &[
    ("role", Treat::OneOf(Rule::UnknownValue, &["user", "assistant", "system"])),
    ("content", Treat::TextOr(&Treat::Each(&Treat::Tagged(&BLOCKS)))),
    ("output_config", Treat::Object(&[("effort", Treat::Text)])),
    ("clear_at", Treat::Text),
];

static SYSTEM: Kinds =
    Kinds { rule: Rule::ContentNotAllowed, common: CACHED, table: &[("text", TEXT)], ..Kinds::NONE };

/// What stands in a message.
static BLOCKS: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: CACHED,
    table: &[
        ("text", TEXT),
        ("image", IMAGE),
        ("document", DOCUMENT),
        ("search_result", SEARCH_RESULT),
        ("thinking", &[("thinking", Treat::Text), ("signature", Treat::Text)]),
        ("redacted_thinking", &[("data", Treat::Text)]),
        (
            "tool_use",
            &[
                ("id", Treat::Text),
                ("name", Treat::Text),
                ("input", Treat::Opaque),
                ("caller", Treat::Object(CALLER)),
                ("toolset_name", Treat::Text),
            ],
        ),
        (
            "tool_result",
            &[
                ("tool_use_id", Treat::Text),
                ("content", Treat::TextOr(&Treat::Each(&Treat::Tagged(&RESULTS)))),
                ("is_error", Treat::Flag),
                ("toolset_name", Treat::Text),
            ],
        ),
        ("tool_addition", &[("tool", Treat::Tagged(&CHANGED_TOOLS))]),
        ("tool_removal", &[("tool", Treat::Tagged(&CHANGED_TOOLS))]),
    ],
    ..Kinds::NONE
};

/// What a tool may have said.
static RESULTS: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: CACHED,
    table: &[
        ("text", TEXT),
        ("image", IMAGE),
        ("document", DOCUMENT),
        ("search_result", SEARCH_RESULT),
        // The answer of claude's own tool search: names alone.
        ("tool_reference", &[("tool_name", Treat::Text)]),
        (
            "browser_state",
            &[
                ("tabs", Treat::Each(&Treat::Object(TAB))),
                ("state_changes", Treat::Each(&Treat::Tagged(&TAB_CHANGES))),
            ],
        ),
    ],
    ..Kinds::NONE
};

/// What the agent's own browser shows: addresses are text, which nobody follows.
static TAB: &[Field] =
    &[("tab_id", Treat::Text), ("title", Treat::Text), ("url", Treat::Text), ("active", Treat::Flag)];

static TAB_CHANGES: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: &[("url", Treat::Text)],
    table: &[
        ("tab_opened", &[("tab_id", Treat::Text)]),
        ("download_started", &[("download_id", Treat::Text)]),
        (
            "download_completed",
            &[("download_id", Treat::Text), ("path", Treat::Text), ("size_bytes", Treat::Number)],
        ),
        ("download_failed", &[("download_id", Treat::Text), ("error", Treat::Text)]),
    ],
    ..Kinds::NONE
};

static TEXT: &[Field] = &[("text", Treat::Text), ("citations", Treat::Each(&Treat::Tagged(&CITATIONS)))];

static IMAGE: &[Field] = &[
    ("source", Treat::Tagged(&IMAGE_SOURCES)),
    ("transformations", Treat::Object(&[("oversized_image", Treat::Text)])),
];

static DOCUMENT: &[Field] = &[
    ("source", Treat::Tagged(&DOCUMENT_SOURCES)),
    ("citations", Treat::Object(&[("enabled", Treat::Flag)])),
    ("context", Treat::Text),
    ("title", Treat::Text),
];

static SEARCH_RESULT: &[Field] = &[
    ("content", Treat::Each(&Treat::Tagged(&SYSTEM))),
    // Where the agent says that it found it: text, which nobody follows.
    ("source", Treat::Text),
    ("title", Treat::Text),
    ("citations", Treat::Object(&[("enabled", Treat::Flag)])),
];

static IMAGE_SOURCES: Kinds = Kinds {
    rule: Rule::MediaReference,
    common: &[("media_type", Treat::Text)],
    table: &[("base64", &[("data", Treat::Code(check::base64))])],
    ..Kinds::NONE
};

static DOCUMENT_SOURCES: Kinds = Kinds {
    rule: Rule::MediaReference,
    common: &[("media_type", Treat::Text)],
    table: &[
        ("base64", &[("data", Treat::Code(check::base64))]),
        ("text", &[("data", Treat::Text)]),
        ("content", &[("content", Treat::TextOr(&Treat::Each(&Treat::Tagged(&DOCUMENT_PARTS))))]),
    ],
    ..Kinds::NONE
};

static DOCUMENT_PARTS: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: CACHED,
    table: &[("text", TEXT), ("image", IMAGE)],
    ..Kinds::NONE
};

/// Echoes of what an answer cited: text and places in text. A file's id in one is of no use to anybody.
static CITATIONS: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: &[
        ("cited_text", Treat::Text),
        ("title", Treat::Text),
        ("file_id", Treat::Dropped),
        ("document_index", Treat::Number),
        ("document_title", Treat::Text),
    ],
    table: &[
        ("char_location", &[("start_char_index", Treat::Number), ("end_char_index", Treat::Number)]),
        ("page_location", &[("start_page_number", Treat::Number), ("end_page_number", Treat::Number)]),
        ("content_block_location", &[START_BLOCK, END_BLOCK]),
        (
            "search_result_location",
            &[("search_result_index", Treat::Number), ("source", Treat::Text), START_BLOCK, END_BLOCK],
        ),
    ],
    ..Kinds::NONE
};

const START_BLOCK: Field = ("start_block_index", Treat::Number);
const END_BLOCK: Field = ("end_block_index", Treat::Number);

/// Tools that the agent runs itself.
static TOOLS: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    // As the interface has it: a tool without a type is the agent's own.
    default: Some("custom"),
    common: &[
        ("name", Treat::Text),
        ("cache_control", Treat::Object(CACHE_CONTROL)),
        ("allowed_callers", Treat::Each(&Treat::OneOf(Rule::CallersNotAllowed, &["direct"]))),
        ("defer_loading", Treat::Flag),
        ("input_examples", Treat::Opaque),
        ("strict", Treat::Flag),
    ],
    table: &[
        (
            "custom",
            &[
                ("description", Treat::Text),
                ("input_schema", Treat::Opaque),
                ("eager_input_streaming", Treat::Flag),
            ],
        ),
        ("bash_20241022", &[]),
        ("bash_20250124", &[]),
        ("text_editor_20241022", &[]),
        ("text_editor_20250124", &[]),
        ("text_editor_20250429", &[]),
        ("text_editor_20250728", &[("max_characters", Treat::Number)]),
        ("computer_20241022", SCREEN),
        ("computer_20250124", SCREEN),
        ("computer_20251124", SCREEN),
        ("computer_toolset_20260801", TOOLSET),
        ("browser_toolset_20260801", TOOLSET),
        ("memory_20250818", &[]),
    ],
    ..Kinds::NONE
};

static SCREEN: &[Field] = &[
    ("display_height_px", Treat::Number),
    ("display_width_px", Treat::Number),
    ("display_number", Treat::Number),
    ("enable_zoom", Treat::Flag),
];

static TOOLSET: &[Field] =
    &[("configs", Treat::Map(&Treat::Object(&[("enabled", Treat::Flag), ("defer_loading", Treat::Flag)])))];

/// Tools that come or go in the middle of a conversation; those of an MCP server are not among them.
static CHANGED_TOOLS: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    table: &[
        ("tool_reference", &[("name", Treat::Text)]),
        ("tool_definition", &[("definition", Treat::Tagged(&TOOLS))]),
    ],
    ..Kinds::NONE
};

static TOOL_CHOICES: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    common: &[("disable_parallel_tool_use", Treat::Flag)],
    // One that names a tool which is not in the list is the service's to refuse.
    table: &[("auto", &[]), ("any", &[]), ("none", &[]), ("tool", &[("name", Treat::Text)])],
    ..Kinds::NONE
};

static CALLER: &[Field] = &[("type", Treat::OneOf(Rule::CallersNotAllowed, &["direct"]))];

static THINKING: Kinds = Kinds {
    rule: Rule::UnknownValue,
    table: &[
        ("enabled", &[("budget_tokens", Treat::Rewritten), ("display", Treat::Text)]),
        ("adaptive", &[("display", Treat::Text)]),
        ("between_tools", &[]),
        ("disabled", &[]),
    ],
    ..Kinds::NONE
};

static OUTPUT_CONFIG: &[Field] = &[
    ("effort", Treat::Text),
    ("format", Treat::Object(FORMAT)),
    // A hint to the model of how much is left to spend; it needs a beta that is not on the list.
    ("task_budget", Treat::Dropped),
];

static FORMAT: &[Field] =
    &[("type", Treat::OneOf(Rule::UnknownValue, &["json_schema"])), ("schema", Treat::Opaque)];

static CONTEXT_MANAGEMENT: &[Field] = &[("edits", Treat::Each(&Treat::Tagged(&EDITS)))];

/// Edits that leave something out. The one that has the conversation summarised asks the model once more at the service.
static EDITS: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: &[("keep", Treat::OneOfOr(Rule::UnknownValue, &["all"], &AMOUNT))],
    table: &[
        (CLEAR_THINKING, &[]),
        (
            "clear_tool_uses_20250919",
            &[
                ("trigger", AMOUNT),
                ("clear_at_least", AMOUNT),
                ("clear_tool_inputs", Treat::FlagOr(&NAMES)),
                ("exclude_tools", NAMES),
            ],
        ),
    ],
    ..Kinds::NONE
};

const NAMES: Treat = Treat::Each(&Treat::Text);

const AMOUNT: Treat = Treat::Object(&[
    ("type", Treat::OneOf(Rule::UnknownValue, &["input_tokens", "tool_uses", "thinking_turns", "all"])),
    ("value", Treat::Number),
]);

const CLEAR_THINKING: &str = "clear_thinking_20251015";

static CACHED: &[Field] = &[("cache_control", Treat::Object(CACHE_CONTROL))];

static CACHE_CONTROL: &[Field] = &[
    ("type", Treat::OneOf(Rule::UnknownValue, &["ephemeral"])),
    ("ttl", Treat::OneOf(Rule::UnknownValue, &["5m", "1h"])),
    // Shares the cache more widely.
    ("scope", Treat::Dropped),
];

/// Where a field stands that needs a beta.
enum Place {
    Body,
    OutputConfig,
    Thinking,
    Messages,
    Tools,
}

/// Fields that the service refuses without the beta of their family (any date of it), so they go when it was taken away.
static NEEDS_BETA: &[(&str, Place, &str)] = &[
    ("context-management-", Place::Body, "context_management"),
    ("structured-outputs-", Place::Body, "output_format"),
    ("structured-outputs-", Place::OutputConfig, "format"),
    ("structured-outputs-", Place::Tools, "strict"),
    ("effort-", Place::OutputConfig, "effort"),
    ("thinking-display-updates-", Place::Thinking, "display"),
    ("thinking-binding-controls-", Place::Thinking, "block_binding"),
    ("per-turn-control-", Place::Messages, "output_config"),
    ("mid-conversation-system-clear-at-", Place::Messages, "clear_at"),
    ("advanced-tool-use-", Place::Tools, "defer_loading"),
    ("advanced-tool-use-", Place::Tools, "input_examples"),
    ("fine-grained-tool-streaming-", Place::Tools, "eager_input_streaming"),
];

/// The least budget that thinking may have (the service's documentation, 2026-11-30).
const MIN_THINKING: u64 = 1024;

/// A question that is answered.
pub(super) fn messages(body: &mut Object, policy: &Policy, betas: &Betas) -> Result<(), Refusal> {
    judge(body, policy, betas, &[SHARED, ANSWER])?;
    let most = capped(body, "max_tokens", &Path::ROOT, policy.output_tokens)?.unwrap_or(policy.output_tokens);
    body.set("max_tokens", Value::Unsigned(most));
    Ok(())
}

/// How many tokens a question has: nothing is answered, so nothing is capped but what has to agree with the question.
pub(super) fn count_tokens(body: &mut Object, policy: &Policy, betas: &Betas) -> Result<(), Refusal> {
    judge(body, policy, betas, &[SHARED])
}

fn judge(
    body: &mut Object,
    policy: &Policy,
    betas: &Betas,
    tables: &[&'static [Field]],
) -> Result<(), Refusal> {
    drop_lost(body, betas);
    check::object(body, &Path::ROOT, tables)?;
    cap_thinking(body, policy.output_tokens)?;
    body.set("model", Value::String(policy.model.clone()));
    Ok(())
}

/// At most half of what an answer may have. A valid request has 1024 <= budget < max_tokens, and stays valid: half the cap is
/// below the cap, and where half of it is less than 1024 the model does not think.
fn cap_thinking(body: &mut Object, cap: u64) -> Result<(), Refusal> {
    let Some(Value::Object(thinking)) = body.get_mut("thinking") else { return Ok(()) };
    if thinking.get("type").and_then(Value::as_str) != Some("enabled") {
        return Ok(());
    }
    let half = cap / 2;
    let path = Path::ROOT;
    let Some(budget) = capped(thinking, "budget_tokens", &path.key("thinking"), half.max(1))? else {
        return Ok(());
    };
    if half >= MIN_THINKING {
        thinking.set("budget_tokens", Value::Unsigned(budget));
        return Ok(());
    }
    *thinking = Object::from([("type", Value::from("disabled"))]);
    // This edit is refused by the service where nothing was thought.
    let edits = body
        .get_mut("context_management")
        .and_then(Value::as_object_mut)
        .and_then(|management| management.get_mut("edits"))
        .and_then(Value::as_array_mut);
    if let Some(edits) = edits {
        let kind =
            |edit: &Value| edit.as_object().and_then(|edit| edit.get("type")?.as_str()).map(str::to_owned);
        edits.retain(|edit| kind(edit).as_deref() != Some(CLEAR_THINKING));
    }
    Ok(())
}

/// Takes out the fields whose beta was taken away. Comes before the check: such a field may have what no table knows.
fn drop_lost(body: &mut Object, betas: &Betas) {
    for (_, place, field) in NEEDS_BETA.iter().filter(|(family, _, _)| betas.lost(family)) {
        match place {
            Place::Body => body.remove(field),
            Place::OutputConfig => remove_in(body.get_mut("output_config"), field),
            Place::Thinking => remove_in(body.get_mut("thinking"), field),
            Place::Messages => remove_in(body.get_mut("messages"), field),
            Place::Tools => remove_in(body.get_mut("tools"), field),
        }
    }
}

/// Takes a field out of an object, or of every object of a list.
fn remove_in(value: Option<&mut Value>, field: &str) {
    let Some(value) = value else { return };
    if let Some(object) = value.as_object_mut() {
        object.remove(field);
    } else if let Some(values) = value.as_array_mut() {
        values.iter_mut().filter_map(Value::as_object_mut).for_each(|object| object.remove(field));
    }
}
