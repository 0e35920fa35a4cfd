//! Identifiers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Crockford's base 32 in lower case: no letter that reads like a digit.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 16;

/// Names one run: 80 bits, 48 of time (milliseconds since 1970) and 32 of chance, so identifiers sort by start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunId([u8; 10]);

/// Text that is no run identifier.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a run id is `r` followed by 16 characters of 0-9 and a-z without i, l, o and u")]
pub struct RunIdError;

impl RunId {
    /// An identifier for a run that starts at `unix_ms`; `chance` makes two of one millisecond differ.
    #[must_use]
    pub fn new(unix_ms: u64, chance: [u8; 4]) -> Self {
        let [_, _, t0, t1, t2, t3, t4, t5] = unix_ms.to_be_bytes();
        let [c0, c1, c2, c3] = chance;
        RunId([t0, t1, t2, t3, t4, t5, c0, c1, c2, c3])
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.iter().fold(0u128, |bits, byte| (bits << 8) | u128::from(*byte));
        f.write_str("r")?;
        for place in (0..LENGTH).rev() {
            let index = (bits >> (place * 5)) & 31;
            let letter = ALPHABET.get(usize::try_from(index).unwrap_or(0)).copied().unwrap_or(b'0');
            fmt::Write::write_char(f, char::from(letter))?;
        }
        Ok(())
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<Self, RunIdError> {
        let letters = text.strip_prefix('r').filter(|rest| rest.len() == LENGTH).ok_or(RunIdError)?;
        let mut bits = 0u128;
        for letter in letters.bytes() {
            let index = ALPHABET.iter().position(|known| *known == letter).ok_or(RunIdError)?;
            bits = (bits << 5) | index as u128;
        }
        let mut bytes = [0u8; 10];
        bytes.copy_from_slice(bits.to_be_bytes().get(6..).ok_or(RunIdError)?);
        Ok(RunId(bytes))
    }
}

/// The longest name of a peer, in bytes.
pub const MAX_AID: usize = 64;
/// The longest name of an interaction, in bytes.
pub const MAX_INTERACTION: usize = 64;

/// Names a peer: 1 to [`MAX_AID`] letters, digits and `- _ . @ : +`, a letter or digit first. It is the name of a directory
/// as it stands, so nothing in it can lead elsewhere.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Aid(String);

/// Names one task and its answer: 1 to [`MAX_INTERACTION`] letters, digits and `- _ .`, a letter or digit first.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InteractionId(String);

/// Text that names no peer.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error(
    "a peer's id has 1 to 64 letters, digits and - _ . @ : + characters and begins with a letter or digit"
)]
pub struct AidError;

/// Text that names no interaction.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error(
    "an interaction's id has 1 to 64 letters, digits and - _ . characters and begins with a letter or digit"
)]
pub struct InteractionIdError;

fn is_name(text: &str, longest: usize, marks: &[u8]) -> bool {
    (1..=longest).contains(&text.len())
        && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || marks.contains(&byte))
}

macro_rules! name {
    ($name:ident, $error:ident, $longest:expr, $marks:expr) => {
        impl $name {
            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<$name, $error> {
                if is_name(&text, $longest, $marks) { Ok($name(text)) } else { Err($error) }
            }
        }

        impl FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<$name, $error> {
                $name::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(Aid, AidError, MAX_AID, b"-_.@:+");
name!(InteractionId, InteractionIdError, MAX_INTERACTION, b"-_.");

impl InteractionId {
    /// An identifier for a task that comes at `unix_ms`: `i` and 16 characters, which sort by time.
    #[must_use]
    pub fn new(unix_ms: u64, chance: [u8; 4]) -> Self {
        let run = RunId::new(unix_ms, chance).to_string();
        InteractionId(run.replacen('r', "i", 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FS-5: a name is a directory of its own, whatever is sent.
    #[test]
    fn names_lead_nowhere_else() {
        let long = "a".repeat(65);
        for bad in ["", ".", "..", ".a", "-a", "a/b", "a b", "a\0", "\u{e9}", long.as_str()] {
            assert!(bad.parse::<Aid>().is_err(), "{bad:?}");
            assert!(bad.parse::<InteractionId>().is_err(), "{bad:?}");
        }
        assert!("p1@node:a+b".parse::<Aid>().is_ok());
        assert!("a:b".parse::<InteractionId>().is_err());
        let made = InteractionId::new(1_700_000_000_000, [1, 2, 3, 4]);
        assert_eq!(made.as_str().parse::<InteractionId>(), Ok(made.clone()));
        assert!(made.as_str().starts_with('i'));
    }
}
