//! A failure of anet itself: one code, one sentence.

use ipc_proto::Code;
use serde::{Deserialize, Serialize};

/// What a person reads as `anet: CODE: sentence`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{code}: {sentence}")]
pub struct Trouble {
    /// What `anet doctor --explain` knows more about.
    pub code: Code,
    /// What happened, why, and what to do.
    pub sentence: String,
}

impl Trouble {
    /// A failure with its sentence.
    pub fn new(code: Code, sentence: impl Into<String>) -> Trouble {
        Trouble { code, sentence: one_line(&sentence.into()) }
    }
}

/// Whether a terminal obeys the character instead of showing it: controls, and what turns the direction of writing (Unicode
/// standard annex 9), which makes a line read as another one.
#[must_use]
pub fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// One line without control characters, whatever a path or a program's own words hold.
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.trim().chars() {
        match c {
            '\n' | '\r' | '\t' => line.push(' '),
            c if steers(c) => line.extend(c.escape_unicode()),
            c => line.push(c),
        }
    }
    line
}

/// The exit status when anet could not run a command at all.
pub const STATUS_FAILED: u8 = 125;
/// The exit status when the wall clock ended it.
pub const STATUS_TIME: u8 = 124;
/// The exit status when memory, growth or a budget ended it.
pub const STATUS_LIMIT: u8 = 123;
/// The exit status for a program that cannot be started.
pub const STATUS_NOT_EXECUTABLE: u8 = 126;
/// The exit status for a program that is not there.
pub const STATUS_NOT_FOUND: u8 = 127;
/// A program ended by signal N has this plus N.
pub const STATUS_SIGNAL: u8 = 128;
