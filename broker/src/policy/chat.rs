//! The policy for OpenAI Chat Completions, as of 2026-11-30: the types of openai 6.49.0, the traffic of opencode 1.18.33,
//! hermes 0.19.0 and openclaw 2026.9.6, and what local servers and gateways that speak the same add.
//!
//! What is absent is refused by name. Absent on purpose, since it runs at the service, reaches elsewhere or is kept there:
//! web search, spoken answers, predictions, files by id, and a gateway's plugins, routing, fallbacks and transforms.

use super::check::{self, Field, Kinds, Treat, capped};
use super::json::{Object, Value};
use super::path::Path;
use super::{Policy, Refusal, Rule, Service};

static REQUEST: &[Field] = &[
    ("model", Treat::Rewritten),
    ("messages", Treat::Each(&Treat::Object(MESSAGE))),
    ("tools", Treat::Each(&Treat::Tagged(&TOOLS))),
    ("tool_choice", Treat::OneOfOr(Rule::ToolNotAllowed, &["none", "auto", "required"], &TOOL_CHOICE)),
    ("parallel_tool_calls", Treat::Flag),
    ("functions", Treat::Each(&Treat::Object(FUNCTION))),
    (
        "function_call",
        Treat::OneOfOr(Rule::ToolNotAllowed, &["none", "auto"], &Treat::Object(&[("name", Treat::Text)])),
    ),
    (MAX_TOKENS, Treat::Rewritten),
    (MAX_COMPLETION_TOKENS, Treat::Rewritten),
    ("n", Treat::Rewritten),
    ("store", Treat::Rewritten),
    ("stream", Treat::Flag),
    (
        "stream_options",
        Treat::Object(&[("include_usage", Treat::Flag), ("include_obfuscation", Treat::Flag)]),
    ),
    ("response_format", Treat::Tagged(&FORMATS)),
    ("reasoning_effort", Treat::Text),
    ("verbosity", Treat::Text),
    ("stop", Treat::TextOr(&Treat::Each(&Treat::Text))),
    ("temperature", Treat::Number),
    ("top_p", Treat::Number),
    ("frequency_penalty", Treat::Number),
    ("presence_penalty", Treat::Number),
    ("seed", Treat::Number),
    ("logit_bias", Treat::Map(&Treat::Number)),
    ("logprobs", Treat::Flag),
    ("top_logprobs", Treat::Number),
    ("modalities", Treat::Each(&Treat::OneOf(Rule::ContentNotAllowed, &["text"]))),
    ("prompt_cache_key", Treat::Text),
    // Of local servers (Ollama, llama.cpp, vLLM).
    ("min_p", Treat::Number),
    ("repetition_penalty", Treat::Number),
    ("top_k", Treat::Number),
    // Reaches elsewhere.
    ("moderation", Treat::Refused(Rule::FieldNotAllowed)),
    ("web_search_options", Treat::Refused(Rule::FieldNotAllowed)),
    ("plugins", Treat::Refused(Rule::FieldNotAllowed)),
    ("provider", Treat::Refused(Rule::FieldNotAllowed)),
    ("models", Treat::Refused(Rule::FieldNotAllowed)),
    ("route", Treat::Refused(Rule::FieldNotAllowed)),
    ("transforms", Treat::Refused(Rule::FieldNotAllowed)),
];

const MAX_TOKENS: &str = "max_tokens";
const MAX_COMPLETION_TOKENS: &str = "max_completion_tokens";

static MESSAGE: &[Field] = &[
    (
        "role",
        Treat::OneOf(Rule::UnknownValue, &["system", "developer", "user", "assistant", "tool", "function"]),
    ),
    ("content", Treat::TextOr(&Treat::Each(&Treat::Tagged(&PARTS)))),
    ("name", Treat::Text),
    ("refusal", Treat::Text),
    ("tool_call_id", Treat::Text),
    ("tool_calls", Treat::Each(&Treat::Tagged(&CALLS))),
    ("function_call", Treat::Object(CALL)),
    // What the model thought, under the names that services have for it; sent back unchanged.
    ("reasoning", Treat::Text),
    ("reasoning_content", Treat::Text),
    ("reasoning_details", Treat::Each(&Treat::Tagged(&THOUGHTS))),
    ("cache_control", Treat::Object(CACHE_CONTROL)),
    // What an answer cited.
    ("annotations", Treat::Dropped),
    // Names a spoken answer that is stored.
    ("audio", Treat::Refused(Rule::StateNotAllowed)),
];

/// As gateways have them.
static THOUGHTS: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: &[
        ("id", Treat::Text),
        ("format", Treat::Text),
        ("index", Treat::Number),
        ("signature", Treat::Text),
    ],
    table: &[
        ("reasoning.text", &[("text", Treat::Text)]),
        ("reasoning.summary", &[("summary", Treat::Text)]),
        ("reasoning.encrypted", &[("data", Treat::Text)]),
    ],
    ..Kinds::NONE
};

/// Marks for the prompt cache of models behind a gateway.
static CACHE_CONTROL: &[Field] =
    &[("type", Treat::OneOf(Rule::UnknownValue, &["ephemeral"])), ("ttl", Treat::Text)];

static PARTS: Kinds = Kinds {
    rule: Rule::ContentNotAllowed,
    common: &[
        ("cache_control", Treat::Object(CACHE_CONTROL)),
        ("prompt_cache_breakpoint", Treat::Object(&[("mode", Treat::Text)])),
    ],
    table: &[
        ("text", &[("text", Treat::Text)]),
        ("refusal", &[("refusal", Treat::Text)]),
        ("image_url", &[("image_url", Treat::Code(image_url))]),
        (
            "input_audio",
            &[(
                "input_audio",
                Treat::Object(&[("data", Treat::Code(check::base64)), ("format", Treat::Text)]),
            )],
        ),
        (
            "file",
            &[(
                "file",
                Treat::Object(&[
                    ("file_data", Treat::Code(check::inline_data)),
                    ("filename", Treat::Text),
                    ("file_id", Treat::Refused(Rule::MediaReference)),
                ]),
            )],
        ),
    ],
    ..Kinds::NONE
};

static TOOLS: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    common: &[("cache_control", Treat::Object(CACHE_CONTROL))],
    table: &[
        ("function", &[("function", Treat::Object(FUNCTION))]),
        (
            "custom",
            &[(
                "custom",
                Treat::Object(&[
                    ("name", Treat::Text),
                    ("description", Treat::Text),
                    (
                        "format",
                        Treat::Object(&[
                            ("type", Treat::OneOf(Rule::UnknownValue, &["text", "grammar"])),
                            (
                                "grammar",
                                Treat::Object(&[("syntax", Treat::Text), ("definition", Treat::Text)]),
                            ),
                        ]),
                    ),
                ]),
            )],
        ),
    ],
    ..Kinds::NONE
};

static FUNCTION: &[Field] = &[
    ("name", Treat::Text),
    ("description", Treat::Text),
    ("parameters", Treat::Opaque),
    ("strict", Treat::Flag),
];

static CALLS: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    // Some servers leave it out of their own answers.
    default: Some("function"),
    common: &[
        ("id", Treat::Text),
        ("index", Treat::Number),
        // Gemini behind this interface signs its thoughts here and wants them back.
        ("extra_content", Treat::Object(&[("google", Treat::Object(&[("thought_signature", Treat::Text)]))])),
    ],
    table: &[
        ("function", &[("function", Treat::Object(CALL))]),
        ("custom", &[("custom", Treat::Object(&[("name", Treat::Text), ("input", Treat::Opaque)]))]),
    ],
    ..Kinds::NONE
};

static CALL: &[Field] = &[("name", Treat::Text), ("arguments", Treat::Opaque)];

static TOOL_CHOICE: Treat = Treat::Tagged(&TOOL_CHOICES);

static TOOL_CHOICES: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    table: &[
        ("function", &[("function", Treat::Object(NAMED))]),
        ("custom", &[("custom", Treat::Object(NAMED))]),
        (
            "allowed_tools",
            &[(
                "allowed_tools",
                Treat::Object(&[
                    ("mode", Treat::Text),
                    ("tools", Treat::Each(&Treat::Tagged(&CHOSEN_TOOLS))),
                ]),
            )],
        ),
    ],
    ..Kinds::NONE
};

static CHOSEN_TOOLS: Kinds = Kinds {
    rule: Rule::ToolNotAllowed,
    table: &[
        ("function", &[("function", Treat::Object(NAMED))]),
        ("custom", &[("custom", Treat::Object(NAMED))]),
    ],
    ..Kinds::NONE
};

static NAMED: &[Field] = &[("name", Treat::Text)];

static FORMATS: Kinds = Kinds {
    rule: Rule::UnknownValue,
    table: &[
        ("text", &[]),
        ("json_object", &[]),
        (
            "json_schema",
            &[(
                "json_schema",
                Treat::Object(&[
                    ("name", Treat::Text),
                    ("description", Treat::Text),
                    ("schema", Treat::Opaque),
                    ("strict", Treat::Flag),
                ]),
            )],
        ),
    ],
    ..Kinds::NONE
};

/// An image: in an object as the interface has it, or bare as some local servers take it.
fn image_url(value: &mut Value, path: &Path<'_>) -> Result<(), Refusal> {
    static IMAGE: Treat =
        Treat::Object(&[("url", Treat::Code(check::inline_image)), ("detail", Treat::Text)]);
    if value.as_str().is_some() {
        check::inline_image(value, path)
    } else {
        check::check(value, path, &IMAGE)
    }
}

/// A question that is answered.
pub(super) fn chat_completions(body: &mut Object, policy: &Policy) -> Result<(), Refusal> {
    check::object(body, &Path::ROOT, &[REQUEST, check::OPENAI_DROPPED])?;
    cap(body, policy)?;
    // One answer is what a request has unless it says otherwise, and some servers do not know the field.
    if body.get("n").is_some() {
        body.set("n", Value::Unsigned(1));
    }
    body.set("model", Value::String(policy.model.clone()));
    body.set("store", Value::Bool(false));
    Ok(())
}

/// One of two fields holds the cap, and the other goes: a service that knows only one would not hold to the other, and some
/// refuse both at once. api.openai.com has its newer name; what else speaks this interface has the older one.
fn cap(body: &mut Object, policy: &Policy) -> Result<(), Refusal> {
    let (own, other) = match policy.service {
        Service::OpenAi => (MAX_COMPLETION_TOKENS, MAX_TOKENS),
        Service::Other | Service::Anthropic => (MAX_TOKENS, MAX_COMPLETION_TOKENS),
    };
    let most = [own, other].into_iter().try_fold(policy.output_tokens, |most, key| {
        capped(body, key, &Path::ROOT, most).map(|value| value.unwrap_or(most))
    })?;
    body.remove(other);
    body.set(own, Value::Unsigned(most));
    Ok(())
}
