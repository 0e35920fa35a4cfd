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

#[cfg(test)]
mod tests {
    use supervisor::chain::at_unix_ms;

    use super::*;

    #[test]
    fn times_are_read_and_said() {
        let now = at_unix_ms(1_774_692_012_000);
        assert_eq!(seconds_since("2026-03-28T10:00:00.000Z", now), Some(12));
        // A clock that was set back: nothing passes before it began.
        assert_eq!(seconds_since("2026-03-28T10:01:00Z", now), Some(0));
        assert_eq!(seconds_since("yesterday", now), None);
        assert_eq!(seconds_until("2026-03-28T12:00:12+01:00", now), Some(3600));
        assert_eq!(seconds_until("2026-03-28T09:00:12Z", now), None);
        assert_eq!(seconds_between("2026-03-28T10:00:00Z", "2026-03-28T11:00:01+01:00"), Some(1));
        assert_eq!(moment("2026-03-28T10:00:12.345Z"), "2026-03-28 10:00:12 UTC");
        assert_eq!(moment("x\x1b[2J"), "x\\u{1b}[2J");
        for (seconds, long, short) in [
            (0, "0 s", "0s"),
            (59, "59 s", "59s"),
            (60, "1 min", "1m"),
            (61, "1 min 1 s", "1m"),
            (3600, "1 h", "1h"),
            (11_520, "3 h 12 min", "3h"),
            (86_400, "1 d", "1d"),
            (90_000, "1 d 1 h", "1d"),
        ] {
            assert_eq!((duration(seconds).as_str(), age(Some(seconds)).as_str()), (long, short));
        }
        assert_eq!(
            (age(None), count(1, "run"), count(2, "run")),
            ("?".into(), "1 run".into(), "2 runs".into())
        );
    }
}
