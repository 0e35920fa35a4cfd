//! Sizes and times as people write them: `32MiB`, `500ms`, `2m`.

use std::time::Duration;

/// Text that is no size or time.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum UnitError {
    /// A size.
    #[error("a size is a whole number of bytes, or of KiB, MiB or GiB, such as 32MiB")]
    Size,
    /// A time.
    #[error("a time is a whole number with ms, s, m or h, such as 30s")]
    Time,
    /// A count.
    #[error("a whole number belongs here")]
    Count,
}

/// Bytes out of `512`, `8KiB`, `32MiB`, `2GiB`.
///
/// # Errors
/// [`UnitError::Size`], also where the number of bytes passes 2^64.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = split(text);
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(UnitError::Size),
    };
    number(digits).and_then(|value| value.checked_mul(factor)).ok_or(UnitError::Size)
}

/// A duration out of `500ms`, `30s`, `2m`, `1h`; a bare number has no unit and is refused.
///
/// # Errors
/// [`UnitError::Time`].
pub fn parse_time(text: &str) -> Result<Duration, UnitError> {
    let (digits, unit) = split(text);
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(UnitError::Time),
    };
    number(digits)
        .and_then(|value| value.checked_mul(factor))
        .map(Duration::from_millis)
        .ok_or(UnitError::Time)
}

/// A plain count.
///
/// # Errors
/// [`UnitError::Count`].
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    number(text).ok_or(UnitError::Count)
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// `u64::from_str` takes a leading `+`, which nobody means.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// A number of bytes for a person: the largest unit that divides it, else one decimal.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, factor) in UNITS {
        if bytes >= factor {
            let whole = bytes / factor;
            let tenth = (bytes % factor) * 10 / factor;
            return if tenth == 0 { format!("{whole} {unit}") } else { format!("{whole}.{tenth} {unit}") };
        }
    }
    format!("{bytes} B")
}
