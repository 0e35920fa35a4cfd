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
    /// Text, or null.
    Text,
    /// Text whose content is a word that has a meaning: one of these, or null.
    OneOf(Rule, &'static [&'static str]),
    /// True, false or null.
    Flag,
    /// A number or null.
    Number,
    /// Text, number, flag or null; or a list or object of such alone.
    Flat,
    /// Checked by the code that rewrites it.
    Rewritten,
    /// Harmless and of no use here: taken out.
    Dropped,
    /// Refused by this rule. Null is what many clients write for "not there", so it is taken out.
    Refused(Rule),
    /// An object with these fields alone, or null.
    Object(&'static [Field]),
    /// An object whose `type` says which fields it has.
    Tagged(&'static Kinds),
    /// A list of these, or null.
    Each(&'static Treat),
    /// Text, or something else.
    TextOr(&'static Treat),
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
}

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
            Some(Treat::Refused(_)) if *value == Value::Null => Ok(false),
            Some(treat) => check(value, &here, treat).map(|()| true),
        }
    })
}

/// Holds a value against its treatment.
pub(super) fn check(value: &mut Value, path: &Path<'_>, treat: &'static Treat) -> Result<(), Refusal> {
    match treat {
        Treat::Opaque | Treat::Rewritten | Treat::Dropped => Ok(()),
        Treat::Refused(rule) => Err(Refusal::of(*rule, &path.to_string())),
        Treat::Text => match value {
            Value::String(_) | Value::Null => Ok(()),
            other => Err(wrong_type(other, path, "text")),
        },
        Treat::OneOf(rule, words) => match value {
            Value::Null => Ok(()),
            Value::String(word) if words.contains(&word.as_str()) => Ok(()),
            other => Err(Refusal::of(*rule, &format!("{path} = {}", shown(other)))),
        },
        Treat::Flag => match value {
            Value::Bool(_) | Value::Null => Ok(()),
            other => Err(wrong_type(other, path, "true or false")),
        },
        Treat::Number => match value {
            Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Null => Ok(()),
            other => Err(wrong_type(other, path, "a number")),
        },
        Treat::Flat => flat(value, path),
        Treat::Object(fields) => match value {
            Value::Object(inner) => object(inner, path, &[*fields]),
            Value::Null => Ok(()),
            other => Err(wrong_type(other, path, "an object")),
        },
        Treat::Tagged(kinds) => match value {
            Value::Object(inner) => tagged(inner, path, kinds),
            other => Err(wrong_type(other, path, "an object")),
        },
        Treat::Each(inner) => match value {
            Value::Array(values) => {
                for (index, value) in values.iter_mut().enumerate() {
                    check(value, &path.index(index), inner)?;
                }
                Ok(())
            }
            Value::Null => Ok(()),
            other => Err(wrong_type(other, path, "a list")),
        },
        Treat::TextOr(inner) => match value {
            Value::String(_) => Ok(()),
            other => check(other, path, inner),
        },
        Treat::Code(code) => code(value, path),
    }
}

/// The fields of an object's `type`.
fn tagged(inner: &mut Object, path: &Path<'_>, kinds: &'static Kinds) -> Result<(), Refusal> {
    let here = path.key("type");
    let kind = match inner.get("type") {
        Some(Value::String(kind)) => Some(kind.as_str()),
        Some(Value::Null) | None => kinds.default,
        Some(other) => return Err(wrong_type(other, &here, "text")),
    };
    let Some(kind) = kind else {
        return Err(Refusal::of(kinds.rule, &format!("{path} (without a type)")));
    };
    let Some((_, fields)) = kinds.table.iter().find(|(name, _)| *name == kind) else {
        return Err(Refusal::of(kinds.rule, &format!("{here} = {}", shown(&Value::from(kind)))));
    };
    // The type itself was just found in a table.
    object(inner, path, &[&[("type", Treat::Text)], kinds.common, fields])
}

fn flat(value: &Value, path: &Path<'_>) -> Result<(), Refusal> {
    let scalars = match value {
        Value::Array(values) => values.iter().all(Value::is_scalar),
        Value::Object(object) => object.iter().all(|(_, value)| value.is_scalar()),
        Value::Null
        | Value::Bool(_)
        | Value::Unsigned(_)
        | Value::Signed(_)
        | Value::Float(_)
        | Value::String(_) => true,
    };
    if scalars { Ok(()) } else { Err(wrong_type(value, path, "something without nested values")) }
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

/// Only images that are in the request: `data:image/...`, without regard to case as URLs are read.
pub(super) fn inline_image(value: &mut Value, path: &Path<'_>) -> Result<(), Refusal> {
    inline(value, path, "data:image/")
}

/// Only data that is in the request.
pub(super) fn inline_data(value: &mut Value, path: &Path<'_>) -> Result<(), Refusal> {
    inline(value, path, "data:")
}

fn inline(value: &mut Value, path: &Path<'_>, prefix: &str) -> Result<(), Refusal> {
    match value {
        Value::Null => Ok(()),
        Value::String(url) => match url.get(..prefix.len()) {
            Some(start) if start.eq_ignore_ascii_case(prefix) => Ok(()),
            _ => Err(Refusal::of(Rule::MediaReference, &format!("{path} = {}", shown(value)))),
        },
        other => Err(wrong_type(other, path, "text")),
    }
}
