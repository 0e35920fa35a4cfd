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
