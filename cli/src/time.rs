//! Times as people read them.

use std::time::SystemTime;

use jiff::Timestamp;
use supervisor::error::one_line;

/// Seconds since that time, if it can be read; none pass before it.
pub(crate) fn seconds_since(time: &str, now: SystemTime) -> Option<u64> {
    let time: Timestamp = time.parse().ok()?;
    let now = Timestamp::try_from(now).ok()?;
    Some(u64::try_from(now.as_second().saturating_sub(time.as_second())).unwrap_or(0))
}

/// Seconds from one time to another, if both can be read.
pub(crate) fn seconds_between(from: &str, to: &str) -> Option<u64> {
    let (from, to): (Timestamp, Timestamp) = (from.parse().ok()?, to.parse().ok()?);
    u64::try_from(to.as_second().saturating_sub(from.as_second())).ok()
}

/// Seconds from now to that time, if it can be read and is to come.
pub(crate) fn seconds_until(time: &str, now: SystemTime) -> Option<u64> {
    let time: Timestamp = time.parse().ok()?;
    let now = Timestamp::try_from(now).ok()?;
    u64::try_from(time.as_second().saturating_sub(now.as_second())).ok()
}

/// A time that passed, in its two largest units: `3 h 12 min`.
pub(crate) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let two = |large: u64, one: &str, small: u64, other: &str| {
        if small == 0 { format!("{large} {one}") } else { format!("{large} {one} {small} {other}") }
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => two(minutes, "min", seconds % 60, "s"),
        (0, hours, minutes) => two(hours, "h", minutes, "min"),
        (days, hours, _) => two(days, "d", hours, "h"),
    }
}

/// A time that passed, in a column: `3h`.
pub(crate) fn age(seconds: Option<u64>) -> String {
    match seconds {
        None => "?".to_owned(),
        Some(seconds @ 0..60) => format!("{seconds}s"),
        Some(seconds @ 60..3600) => format!("{}m", seconds / 60),
        Some(seconds @ 3600..86_400) => format!("{}h", seconds / 3600),
        Some(seconds) => format!("{}d", seconds / 86_400),
    }
}

/// A point in time, to the second, as it is in the evidence: UTC.
pub(crate) fn moment(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => one_line(time),
    }
}

/// `1 run`, `2 runs`.
pub(crate) fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
