//! Where in a body something stands, and how that and other things of a stranger are shown.

use std::fmt::Write as _;
use std::time::Duration;

use super::json::Value;

/// The most characters of a thing in a sentence: enough for a path and a value, too little to flood a log.
const MAX_SHOWN: usize = 300;
/// The most characters of a key or value.
const MAX_WORD: usize = 64;

/// A place in a body, as `messages[3].content[0].source.type`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    /// The body itself.
    pub(super) const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    /// A field of what stands here.
    pub(super) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    /// An element of what stands here.
    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    fn write(&self, out: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(out);
        }
        match self.step {
            Step::Root => {}
            Step::Key(key) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(&word(key));
            }
            Step::Index(index) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "[{index}]");
            }
        }
    }
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(if out.is_empty() { "the body" } else { &out })
    }
}

/// A value in few words: strings and numbers themselves, cut; anything larger by its type, since it may be long or private.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", word(text)),
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Unsigned(value) => value.to_string(),
        Value::Signed(value) => value.to_string(),
        Value::Float(value) => value.to_string().chars().take(MAX_WORD).collect(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

fn word(text: &str) -> String {
    cut(text, MAX_WORD)
}

/// Text of a stranger as it may stand in a sentence: one line of ASCII, bounded, never a control character.
#[must_use]
pub fn printable(text: &str) -> String {
    cut(text, MAX_SHOWN)
}

fn cut(text: &str, most: usize) -> String {
    let mut out = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == most {
            out.push_str("...");
            break;
        }
        out.push(if character == ' ' || character.is_ascii_graphic() { character } else { '?' });
    }
    out
}

/// Bytes as the operator writes a limit.
#[must_use]
pub fn amount(bytes: u64) -> String {
    const KIB: u64 = 1024;
    let all = |unit: u64| bytes > 0 && bytes.is_multiple_of(unit);
    if all(KIB * KIB) {
        format!("{} MiB", bytes / (KIB * KIB))
    } else if all(KIB) {
        format!("{} KiB", bytes / KIB)
    } else {
        format!("{bytes} bytes")
    }
}

/// A time that something may take.
#[must_use]
pub fn seconds(time: Duration) -> String {
    format!("{} seconds", time.as_secs())
}

/// Printable text inside a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            other if other.is_control() => out.push('?'),
            other => out.push(other),
        }
    }
    out
}
