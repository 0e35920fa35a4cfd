//! Checking a body against a table.
//!
//! A service's policy is data: for every object that its interface knows, the fields it may have and how each is treated.
//! One walk holds a body against them. A field, type or word that stands in no table has no way through, so forgetting one
//! refuses too much and never too little.

use super::json::{Object, Value};
use super::path::{Path, shown};
use super::{Refusal, Rule};

/// A field and its treatment.
pub(super) type Field = (&'static str, Treat);

/// How a value is treated.
pub(super) enum Treat {
    /// Anything: schemas, arguments, what a tool said. Nobody acts on what is in it.
    Opaque,
    /// Text.
    Text,
    /// Text whose content is a word that has a meaning: one of these.
    OneOf(Rule, &'static [&'static str]),
    /// True or false.
    Flag,
    /// A number.
    Number,
    /// Checked by the code that rewrites it.
    Rewritten,
    /// Harmless and of no use here: taken out.
    Dropped,
    /// Refused by this rule. Null and false are what many clients write for "not there":
    /// they are taken out.
    Refused(Rule),
    /// True or false, or something else.
    FlagOr(&'static Treat),
    /// An object with these fields alone.
    Object(&'static [Field]),
    /// An object whose `type` says which fields it has.
    Tagged(&'static Kinds),
    /// A list of these.
    Each(&'static Treat),
    /// An object of any keys whose values are these.
    Map(&'static Treat),
    /// Text, or something else.
    TextOr(&'static Treat),
    /// One of these words, or something else that is no text.
    OneOfOr(Rule, &'static [&'static str], &'static Treat),
    /// What only code can say.
    Code(fn(&mut Value, &Path<'_>) -> Result<(), Refusal>),
}

/// Objects that are told apart by their `type`.
pub(super) struct Kinds {
    /// The rule that a type outside the table breaks.
    pub(super) rule: Rule,
    /// Stands for an absent `type`; none: it has to be there.
    pub(super) default: Option<&'static str>,
    /// Fields that each of them may have.
    pub(super) common: &'static [Field],
    /// The types, and the fields that each has besides.
    pub(super) table: &'static [(&'static str, &'static [Field])],
    /// What a table cannot say of a type: which fields it must have.
    pub(super) also: fn(&str, &Object, &Path<'_>) -> Result<(), Refusal>,
}

impl Kinds {
    /// What most do without: `..Kinds::NONE`.
    pub(super) const NONE: Kinds = Kinds {
        rule: Rule::UnknownValue,
        default: None,
        common: &[],
        table: &[],
        // A table says everything of them.
        also: |_, _, _| Ok(()),
    };
}

/// Fields that both interfaces of OpenAI have and that say who asks, buy another speed, or keep the cache for longer.
pub(super) static OPENAI_DROPPED: &[Field] = &[
    ("metadata", Treat::Dropped),
    ("prompt_cache_options", Treat::Dropped),
    ("prompt_cache_retention", Treat::Dropped),
    ("safety_identifier", Treat::Dropped),
    ("service_tier", Treat::Dropped),
    ("user", Treat::Dropped),
];

/// Holds an object against the tables of its fields.
pub(super) fn object(
    object: &mut Object,
    path: &Path<'_>,
    tables: &[&'static [Field]],
) -> Result<(), Refusal> {
    object.try_retain(|key, value| {
        let here = path.key(key);
        let treat = tables.iter().copied().flatten().find(|(name, _)| *name == key).map(|(_, treat)| treat);
        match treat {
            None => Err(Refusal::of(Rule::UnknownField, &here.to_string())),
            Some(Treat::Dropped) => Ok(false),
            Some(Treat::Refused(_)) if matches!(value, Value::Null | Value::Bool(false)) => Ok(false),
            Some(treat) => check(value, &here, treat).map(|()| true),
        }
    })
}

/// Holds a value against its treatment. Null says nothing, wherever it stands.
pub(super) fn check(value: &mut Value, path: &Path<'_>, treat: &'static Treat) -> Result<(), Refusal> {
    if *value == Value::Null {
        return Ok(());
    }
    match treat {
        Treat::Opaque | Treat::Rewritten | Treat::Dropped => Ok(()),
        Treat::Refused(rule) => Err(Refusal::of(*rule, &path.to_string())),
        Treat::Text => only(value.as_str().is_some(), value, path, "text"),
        Treat::Flag => only(matches!(value, Value::Bool(_)), value, path, "true or false"),
        Treat::Number => only(value.is_number(), value, path, "a number"),
        Treat::FlagOr(inner) => {
            if matches!(value, Value::Bool(_)) {
                Ok(())
            } else {
                check(value, path, inner)
            }
        }
        Treat::OneOf(rule, words) => {
            if value.as_str().is_some_and(|word| words.contains(&word)) {
                Ok(())
            } else {
                Err(Refusal::of(*rule, &format!("{path} = {}", shown(value))))
            }
        }
        Treat::OneOfOr(rule, words, inner) => match value.as_str() {
            Some(word) if words.contains(&word) => Ok(()),
            Some(_) => Err(Refusal::of(*rule, &format!("{path} = {}", shown(value)))),
            None => check(value, path, inner),
        },
        Treat::TextOr(inner) => {
            if value.as_str().is_some() {
                Ok(())
            } else {
                check(value, path, inner)
            }
        }
        Treat::Object(fields) => object(an_object(value, path)?, path, &[*fields]),
        Treat::Tagged(kinds) => tagged(an_object(value, path)?, path, kinds),
        Treat::Map(inner) => an_object(value, path)?
            .try_retain(|key, value| check(value, &path.key(key), inner).map(|()| true)),
        Treat::Each(inner) => {
            let Some(values) = value.as_array_mut() else {
                return Err(wrong_type(value, path, "a list"));
            };
            values.iter_mut().enumerate().try_for_each(|(index, value)| {
                let here = path.index(index);
                // In a list it is an element, and no service says what one of those means.
                if *value == Value::Null {
                    Err(wrong_type(value, &here, "a value"))
                } else {
                    check(value, &here, inner)
                }
            })
        }
        Treat::Code(code) => code(value, path),
    }
}

fn only(fits: bool, value: &Value, path: &Path<'_>, wanted: &str) -> Result<(), Refusal> {
    if fits { Ok(()) } else { Err(wrong_type(value, path, wanted)) }
}

fn an_object<'a>(value: &'a mut Value, path: &Path<'_>) -> Result<&'a mut Object, Refusal> {
    match value {
        Value::Object(object) => Ok(object),
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Unsigned(_)
        | Value::Signed(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::Array(_)) => Err(wrong_type(other, path, "an object")),
    }
}

/// The fields of an object's `type`.
fn tagged(inner: &mut Object, path: &Path<'_>, kinds: &'static Kinds) -> Result<(), Refusal> {
    let here = path.key("type");
    let kind = match inner.get("type") {
        Some(Value::String(kind)) => Some(kind.clone()),
        Some(Value::Null) | None => kinds.default.map(str::to_owned),
        Some(other) => return Err(wrong_type(other, &here, "text")),
    };
    let Some(kind) = kind else {
        return Err(Refusal::of(kinds.rule, &format!("{path} (without a type)")));
    };
    let Some((_, fields)) = kinds.table.iter().find(|(name, _)| *name == kind) else {
        return Err(Refusal::of(kinds.rule, &format!("{here} = {}", shown(&Value::String(kind)))));
    };
    // The type itself was just found in a table.
    object(inner, path, &[&[("type", Treat::Text)], kinds.common, fields])?;
    (kinds.also)(&kind, inner, path)
}

/// A value of a type that does not belong there.
pub(super) fn wrong_type(value: &Value, path: &Path<'_>, wanted: &str) -> Refusal {
    Refusal::of(Rule::WrongType, &format!("{path} is {} where {wanted} belongs", shown(value)))
}

/// A number of tokens at most `cap`: a plain integer from 1 on. Absent or null: none was said. Whatever another parser
/// might take for a number (8192.0, 1e3, "8192", true) is refused rather than guessed at.
pub(super) fn capped(object: &Object, key: &str, path: &Path<'_>, cap: u64) -> Result<Option<u64>, Refusal> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Unsigned(value)) if *value > 0 => Ok(Some((*value).min(cap))),
        Some(other) => Err(Refusal::of(Rule::TokenCount, &format!("{} = {}", path.key(key), shown(other)))),
    }
}

/// Only an image that is in the request: `data:image/TYPE;base64,...`, its scheme in any case, as URLs are read.
pub(super) fn inline_image(value: &mut Value, path: &Path<'_>) -> Result<(), Refusal> {
    inline(value, path, |text| is_data_url(text, "data:image/"))
}

/// Only data that is in the request: a `data:` URL or bare base64. Some gateways take a URL in the same place.
pub(super) fn inline_data(value: &mut Value, path: &Path<'_>) -> Result<(), Refusal> {
    inline(value, path, |text| is_data_url(text, "data:") || is_base64(text))
}

/// Only bare base64.
pub(super) fn base64(value: &mut Value, path: &Path<'_>) -> Result<(), Refusal> {
    inline(value, path, is_base64)
}

fn inline(value: &Value, path: &Path<'_>, allowed: impl Fn(&str) -> bool) -> Result<(), Refusal> {
    match value.as_str() {
        Some(text) if allowed(text) => Ok(()),
        Some(_) => Err(Refusal::of(Rule::MediaReference, &format!("{path} = {}", shown(value)))),
        None if *value == Value::Null => Ok(()),
        None => Err(wrong_type(value, path, "text")),
    }
}

/// A media type without anything else (RFC 2397), and base64 after it.
fn is_data_url(text: &str, prefix: &str) -> bool {
    let Some((head, data)) = text.split_once(',') else { return false };
    let kind =
        head.len().checked_sub(BASE64.len()).and_then(|end| Some((head.get(..end)?, head.get(end..)?)));
    let Some((kind, mark)) = kind else { return false };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.+-".contains(&byte);
    let rest = kind.get(..prefix.len()).zip(kind.get(prefix.len()..));
    mark.eq_ignore_ascii_case(BASE64)
        && rest.is_some_and(|(start, rest)| start.eq_ignore_ascii_case(prefix) && rest.bytes().all(plain))
        && is_base64(data)
}

/// What ends a data URL's head.
const BASE64: &str = ";base64";

/// Letters, digits and the signs of the usual alphabet: no colon and no dot, so no URL; no hyphen and no underscore, so no file
/// id either.
fn is_base64(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/= \r\n".contains(&byte))
}

/// Keys by which the services name what is not in the request.
const REFERENCES: [&str; 8] =
    ["file_id", "file_url", "image_url", "url", "container", "container_id", "environment", "server_url"];

/// Anything in which nothing is named by a URL or an id: of a shape that changes with each model, and of no use to the service
/// but as text.
pub(super) fn no_reference(value: &mut Value, path: &Path<'_>) -> Result<(), Refusal> {
    match value {
        Value::Object(object) => object.try_retain(|key, value| {
            let here = path.key(key);
            if REFERENCES.contains(&key) {
                return Err(Refusal::of(Rule::MediaReference, &format!("{here} = {}", shown(value))));
            }
            no_reference(value, &here).map(|()| true)
        }),
        Value::Array(values) => values
            .iter_mut()
            .enumerate()
            .try_for_each(|(index, value)| no_reference(value, &path.index(index))),
        Value::Null
        | Value::Bool(_)
        | Value::Unsigned(_)
        | Value::Signed(_)
        | Value::Float(_)
        | Value::String(_) => Ok(()),
    }
}
