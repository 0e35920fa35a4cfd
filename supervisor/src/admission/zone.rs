//! The operator's time zone, and the days in it (RUN-1).
//!
//! A day is a date of the local calendar. Most have 24 hours; some have 23 or 25, some begin at one o'clock, some dates were
//! never, and where clocks went back over midnight a date came twice. So nothing here reckons with hours: a day begins where
//! its date is first seen and ends where it is last seen.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use super::Date;
use crate::node::job::Watched;

/// The system's time zone.
const SYSTEM: &str = "/etc/localtime";
/// All of them, by name.
const ALL: &str = "/usr/share/zoneinfo";
/// The longest file of a time zone, in bytes: the largest published ones have under 4 KiB.
const MAX_FILE: u64 = 256 * 1024;

/// A time zone. What it was made from is read once, by [`Zone::load`].
#[derive(Clone, Debug)]
pub struct Zone {
    rules: TimeZone,
    /// The file that it was, or would have been, read from.
    file: Option<Watched>,
    warning: Option<String>,
}

/// A local day, at some moment of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Day {
    /// Its date.
    pub date: Date,
    /// Its first moment.
    pub begins: SystemTime,
    /// The first moment after its last one.
    pub ends: SystemTime,
    /// The local offset at its end, seconds east of UTC.
    offset: i32,
}

impl Day {
    /// When it ends, as RFC 3339 with the local offset that then holds.
    #[must_use]
    pub fn ends_text(&self) -> String {
        written(timestamp(self.ends), Offset::from_seconds(self.offset).unwrap_or(Offset::UTC))
    }
}

impl Zone {
    /// The zone of a `TZ` (none: the system's, as everywhere on Linux without one). What cannot be read is UTC, with a warning:
    /// a node counts on.
    ///
    /// It reads nothing but [`/etc/localtime`](SYSTEM) and files under [`/usr/share/zoneinfo`](ALL).
    #[must_use]
    pub fn load(tz: Option<&str>) -> Zone {
        let Some(text) = tz else {
            return Zone::of_file(SYSTEM, PathBuf::from(SYSTEM), |_| Ok(TimeZone::UTC));
        };
        let name = text.strip_prefix(':').unwrap_or(text);
        if name.is_empty() {
            return Zone { rules: TimeZone::UTC, file: None, warning: None };
        }
        let by_rule = |_: io::Error| {
            TimeZone::posix(name).map_err(|_| "it is neither the name of a zone nor a rule".to_owned())
        };
        match path_of(name) {
            Some(path) => Zone::of_file(name, path, by_rule),
            None => Zone::of_result(name, None, by_rule(io::Error::from(io::ErrorKind::NotFound))),
        }
    }

    /// UTC.
    #[must_use]
    pub fn utc() -> Zone {
        Zone { rules: TimeZone::UTC, file: None, warning: None }
    }

    /// What its file holds; `absent`: what else it may be if there is none.
    pub(super) fn of_file(
        name: &str,
        path: PathBuf,
        absent: impl FnOnce(io::Error) -> Result<TimeZone, String>,
    ) -> Zone {
        // Looked at first: what changes while it is read is noticed.
        let watched = Watched::look(path.clone());
        let rules = match read(&path) {
            Ok(bytes) => TimeZone::tzif(name, &bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => absent(error),
            Err(error) => Err(error.to_string()),
        };
        Zone::of_result(name, Some(watched), rules)
    }

    fn of_result(name: &str, file: Option<Watched>, rules: Result<TimeZone, String>) -> Zone {
        match rules {
            Ok(rules) => Zone { rules, file, warning: None },
            Err(why) => {
                let warning = format!(
                    "the time zone {name} cannot be used ({why}), and days are counted in UTC; see TZ and {SYSTEM}"
                );
                Zone { rules: TimeZone::UTC, file, warning: Some(crate::error::one_line(&warning)) }
            }
        }
    }

    /// Why it is UTC instead of what was wanted, for the operator.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The file that it was read from is not what it was: the operator chose another zone, or its rules were updated.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.file.as_ref().is_some_and(Watched::has_changed)
    }

    /// The day that `at` belongs to.
    #[must_use]
    pub fn day(&self, at: SystemTime) -> Day {
        let at = timestamp(at);
        let date = self.date(at);
        let begins = self.first_of(date).unwrap_or(Timestamp::MIN);
        let next = date.tomorrow().ok();
        let ends = next.and_then(|next| self.end_before(next)).unwrap_or(Timestamp::MAX);
        let offset = self.rules.to_offset(ends).seconds();
        Day { date: Date(date), begins: system_time(begins), ends: system_time(ends), offset }
    }

    /// A moment as RFC 3339, with the local offset.
    #[must_use]
    pub fn rfc3339(&self, at: SystemTime) -> String {
        let at = timestamp(at);
        written(at, self.rules.to_offset(at))
    }

    fn date(&self, at: Timestamp) -> jiff::civil::Date {
        self.rules.to_datetime(at).date()
    }

    /// The first moment that has this date, or a later one where this date was left out.
    fn first_of(&self, date: jiff::civil::Date) -> Option<Timestamp> {
        let midnight = date.to_datetime(jiff::civil::Time::midnight());
        match self.rules.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(midnight).ok(),
            AmbiguousOffset::Gap { before, after } => self.end_of_gap(midnight, before, after),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(midnight).ok(),
        }
    }

    /// The first moment after which no date before this one is seen again.
    fn end_before(&self, date: jiff::civil::Date) -> Option<Timestamp> {
        let midnight = date.to_datetime(jiff::civil::Time::midnight());
        match self.rules.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(midnight).ok(),
            AmbiguousOffset::Gap { before, after } => self.end_of_gap(midnight, before, after),
            AmbiguousOffset::Fold { before, after } => {
                let (first, second) =
                    (before.to_timestamp(midnight).ok()?, after.to_timestamp(midnight).ok()?);
                // Midnight comes twice. If the clocks went back to it, the day before was over at the first; if they went
                // back past it, the end of the day before came again.
                let moment = jiff::SignedDuration::from_nanos(1);
                let came_again = self.date(second.checked_sub(moment).ok()?) < date;
                Some(if came_again { second } else { first })
            }
        }
    }

    /// Midnight never was: the moment at which the clocks were put over it.
    fn end_of_gap(&self, midnight: DateTime, before: Offset, after: Offset) -> Option<Timestamp> {
        let (from, to) = (after.to_timestamp(midnight).ok()?, before.to_timestamp(midnight).ok()?);
        let mut changes = self.rules.following(from).map(|change| change.timestamp());
        changes
            .find(|change| *change > to || self.rules.to_datetime(*change) >= midnight)
            .filter(|change| *change <= to)
            .or(Some(to))
    }
}

/// Where a zone's file would be; none: this is no name of one, or one that is not read.
fn path_of(name: &str) -> Option<PathBuf> {
    if name == SYSTEM {
        return Some(PathBuf::from(SYSTEM));
    }
    let name = match Path::new(name).strip_prefix(ALL) {
        Ok(rest) => rest.to_str()?,
        Err(_) => name,
    };
    let is_plain = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte))
    };
    (name.len() <= 255 && name.split('/').all(is_plain)).then(|| Path::new(ALL).join(name))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if read as u64 > MAX_FILE { Err(io::Error::other("its file is too long")) } else { Ok(bytes) }
}

/// A moment, within the years that there are.
fn timestamp(at: SystemTime) -> Timestamp {
    let outside = if at < SystemTime::UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::try_from(at).unwrap_or(outside)
}

fn system_time(at: Timestamp) -> SystemTime {
    SystemTime::try_from(at).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// To the second: no day ends between two.
fn written(at: Timestamp, offset: Offset) -> String {
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
    whole.display_with_offset(offset).to_string()
}
