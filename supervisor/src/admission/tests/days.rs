//! Local days.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;

/// Zone, a moment, its date, where that date begins, where it ends, and that end as it is written.
const DAYS: &[(&str, &str, &str, &str, &str, &str)] = &[
    // A plain one.
    (
        "Europe/Berlin",
        "2026-07-01T12:00:00Z",
        "2026-07-01",
        "2026-06-30T22:00:00Z",
        "2026-07-01T22:00:00Z",
        "2026-07-02T00:00:00+02:00",
    ),
    (
        "UTC",
        "1970-01-01T00:00:00Z",
        "1970-01-01",
        "1970-01-01T00:00:00Z",
        "1970-01-02T00:00:00Z",
        "1970-01-02T00:00:00+00:00",
    ),
    // 23 and 25 hours.
    (
        "Europe/Berlin",
        "2026-03-29T10:00:00Z",
        "2026-03-29",
        "2026-03-28T23:00:00Z",
        "2026-03-29T22:00:00Z",
        "2026-03-30T00:00:00+02:00",
    ),
    (
        "Europe/Berlin",
        "2026-10-25T00:30:00Z",
        "2026-10-25",
        "2026-10-24T22:00:00Z",
        "2026-10-25T23:00:00Z",
        "2026-10-26T00:00:00+01:00",
    ),
    (
        "America/New_York",
        "2026-11-01T06:00:00Z",
        "2026-11-01",
        "2026-11-01T04:00:00Z",
        "2026-11-02T05:00:00Z",
        "2026-11-02T00:00:00-05:00",
    ),
    // Half an hour.
    (
        "Australia/Lord_Howe",
        "2026-04-04T16:00:00Z",
        "2026-04-05",
        "2026-04-04T13:00:00Z",
        "2026-04-05T13:30:00Z",
        "2026-04-06T00:00:00+10:30",
    ),
    // Midnight never was: the day begins at one.
    (
        "America/Sao_Paulo",
        "2018-11-04T12:00:00Z",
        "2018-11-04",
        "2018-11-04T03:00:00Z",
        "2018-11-05T02:00:00Z",
        "2018-11-05T00:00:00-02:00",
    ),
    (
        "America/Sao_Paulo",
        "2018-11-04T02:59:59Z",
        "2018-11-03",
        "2018-11-03T03:00:00Z",
        "2018-11-04T03:00:00Z",
        "2018-11-04T01:00:00-02:00",
    ),
    (
        "Asia/Beirut",
        "2022-03-27T12:00:00Z",
        "2022-03-27",
        "2022-03-26T22:00:00Z",
        "2022-03-27T21:00:00Z",
        "2022-03-28T00:00:00+03:00",
    ),
    (
        "Africa/Cairo",
        "2023-04-28T12:00:00Z",
        "2023-04-28",
        "2023-04-27T22:00:00Z",
        "2023-04-28T21:00:00Z",
        "2023-04-29T00:00:00+03:00",
    ),
    // At midnight the clocks went back to eleven: the day before has 25 hours.
    (
        "America/Sao_Paulo",
        "2018-02-18T02:30:00Z",
        "2018-02-17",
        "2018-02-17T02:00:00Z",
        "2018-02-18T03:00:00Z",
        "2018-02-18T00:00:00-03:00",
    ),
    (
        "Asia/Beirut",
        "2022-10-29T21:30:00Z",
        "2022-10-29",
        "2022-10-28T21:00:00Z",
        "2022-10-29T22:00:00Z",
        "2022-10-30T00:00:00+02:00",
    ),
    (
        "Africa/Cairo",
        "2023-10-26T21:30:00Z",
        "2023-10-26",
        "2023-10-25T21:00:00Z",
        "2023-10-26T22:00:00Z",
        "2023-10-27T00:00:00+02:00",
    ),
    // At one the clocks went back to midnight, which came twice; the day before was over at the first.
    (
        "America/Havana",
        "2026-11-01T04:30:00Z",
        "2026-11-01",
        "2026-11-01T04:00:00Z",
        "2026-11-02T05:00:00Z",
        "2026-11-02T00:00:00-05:00",
    ),
    (
        "America/Havana",
        "2026-10-31T12:00:00Z",
        "2026-10-31",
        "2026-10-31T04:00:00Z",
        "2026-11-01T04:00:00Z",
        "2026-11-01T00:00:00-04:00",
    ),
    // A minute past midnight the clocks went back to the day before: both dates came twice.
    (
        "America/St_Johns",
        "2006-10-29T02:30:30Z",
        "2006-10-29",
        "2006-10-29T02:30:00Z",
        "2006-10-30T03:30:00Z",
        "2006-10-30T00:00:00-03:30",
    ),
    (
        "America/St_Johns",
        "2006-10-29T02:45:00Z",
        "2006-10-28",
        "2006-10-28T02:30:00Z",
        "2006-10-29T03:30:00Z",
        "2006-10-29T00:00:00-03:30",
    ),
    (
        "America/St_Johns",
        "2006-10-28T12:00:00Z",
        "2006-10-28",
        "2006-10-28T02:30:00Z",
        "2006-10-29T03:30:00Z",
        "2006-10-29T00:00:00-03:30",
    ),
    // Clocks that were put over midnight, from half past eleven to half past twelve.
    (
        "America/Toronto",
        "1919-03-31T04:29:00Z",
        "1919-03-30",
        "1919-03-30T05:00:00Z",
        "1919-03-31T04:30:00Z",
        "1919-03-31T00:30:00-04:00",
    ),
    (
        "America/Toronto",
        "1919-03-31T04:30:00Z",
        "1919-03-31",
        "1919-03-31T04:30:00Z",
        "1919-04-01T04:00:00Z",
        "1919-04-01T00:00:00-04:00",
    ),
    // A date that never was.
    (
        "Pacific/Apia",
        "2011-12-30T09:59:59Z",
        "2011-12-29",
        "2011-12-29T10:00:00Z",
        "2011-12-30T10:00:00Z",
        "2011-12-31T00:00:00+14:00",
    ),
    (
        "Pacific/Apia",
        "2011-12-30T10:00:00Z",
        "2011-12-31",
        "2011-12-30T10:00:00Z",
        "2011-12-31T10:00:00Z",
        "2012-01-01T00:00:00+14:00",
    ),
    // A date that came twice, nearly whole.
    (
        "Pacific/Kwajalein",
        "1969-09-30T20:00:00Z",
        "1969-09-30",
        "1969-09-29T13:00:00Z",
        "1969-10-01T12:00:00Z",
        "1969-10-01T00:00:00-12:00",
    ),
    // A rule without a file.
    (
        "CET-1CEST,M3.5.0,M10.5.0/3",
        "2026-03-29T10:00:00Z",
        "2026-03-29",
        "2026-03-28T23:00:00Z",
        "2026-03-29T22:00:00Z",
        "2026-03-30T00:00:00+02:00",
    ),
    (
        "<+0545>-5:45",
        "2026-03-29T18:14:59Z",
        "2026-03-29",
        "2026-03-28T18:15:00Z",
        "2026-03-29T18:15:00Z",
        "2026-03-30T00:00:00+05:45",
    ),
];

/// RUN-1, RUN-3: the local day of a moment, whatever the clocks do that day.
#[test]
fn days_of_every_kind() {
    for (name, moment, of, begins, ends, text) in DAYS {
        let zone = Zone::load(Some(name));
        assert_eq!(zone.warning(), None);
        let day = zone.day(at(moment));
        let what = format!("{name} at {moment}: {day:?}");
        assert_eq!(day.date.to_string(), *of, "{what}");
        assert_eq!(day.begins, at(begins), "{what}");
        assert_eq!(day.ends, at(ends), "{what}");
        assert_eq!(day.ends_text(), *text, "{what}");
        assert_eq!(zone.rfc3339(day.ends), *text, "{what}");
    }
}

/// Every file of a time zone on this host.
fn all_zones() -> Vec<(String, PathBuf)> {
    fn walk(dir: &Path, found: &mut Vec<(String, PathBuf)>) {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix("/usr/share/zoneinfo").unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                // `right` counts leap seconds, which no clock of a node does; `posix` is all of them once more.
                if !matches!(name.as_str(), "right" | "posix") {
                    walk(&path, found);
                }
            } else if std::fs::read(&path).unwrap().starts_with(b"TZif") {
                found.push((name, path));
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/usr/share/zoneinfo"), &mut found);
    // Many are other names of one.
    found.sort_by_cached_key(|(_, path)| std::fs::read(path).unwrap());
    found.dedup_by_key(|(_, path)| std::fs::read(path).unwrap());
    found
}

/// RUN-1: in every zone of the world, around every change of its clocks: a moment is within its day; the day begins where its
/// date is first seen, and after its end neither its date nor an earlier one is seen again.
#[test]
fn days_of_every_zone() {
    let (from, to): (Timestamp, Timestamp) =
        ("1960-01-01T00:00:00Z".parse().unwrap(), "2040-01-01T00:00:00Z".parse().unwrap());
    let zones = all_zones();
    assert!(zones.len() > 300, "{}", zones.len());
    let mut changes = 0;
    for (name, path) in zones {
        let zone = Zone::load(Some(&name));
        assert_eq!(zone.warning(), None);
        let rules = TimeZone::tzif(&name, &std::fs::read(path).unwrap()).unwrap();
        let date_at = |at: SystemTime| Date(rules.to_datetime(Timestamp::try_from(at).unwrap()).date());
        for change in rules.following(from).take_while(|change| change.timestamp() < to) {
            changes += 1;
            let change: SystemTime = change.timestamp().try_into().unwrap();
            for minutes in [-26 * 60, -90, -1, 0, 1, 29, 61, 26 * 60i64] {
                let moment = if minutes < 0 {
                    change - Duration::from_secs(60 * minutes.unsigned_abs())
                } else {
                    change + Duration::from_secs(60 * minutes.unsigned_abs())
                };
                let day = zone.day(moment);
                let what = format!("{name}: {} is in {day:?}", zone.rfc3339(moment));
                assert_eq!(day.date, date_at(moment), "{what}");
                assert!(day.begins <= moment && moment < day.ends, "{what}");
                assert_eq!(date_at(day.begins), day.date, "{what}");
                assert!(date_at(day.begins - Duration::from_nanos(1)) < day.date, "{what}");
                assert!(date_at(day.ends - Duration::from_nanos(1)) <= day.date, "{what}");
                assert!(date_at(day.ends) > day.date, "{what}");
                for minutes in [1, 29, 30, 59, 60, 90, 119, 180, 12 * 60, 23 * 60, 25 * 60] {
                    let later = Duration::from_secs(minutes * 60);
                    assert!(date_at(day.ends + later) > day.date, "{what}");
                    assert!(date_at(day.begins - later) < day.date, "{what}");
                }
            }
        }
    }
    assert!(changes > 10_000, "{changes}");
}

/// RUN-1: a clock that shows nonsense makes no panic.
#[test]
fn the_ends_of_time() {
    let far = Duration::from_secs(400_000_000_000);
    for zone in [Zone::utc(), berlin(), Zone::load(Some("Pacific/Apia"))] {
        for moment in [SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + far, SystemTime::UNIX_EPOCH - far] {
            let day = zone.day(moment);
            assert!(day.begins <= day.ends);
            assert!(!day.ends_text().is_empty() && !zone.rfc3339(moment).is_empty());
        }
    }
}

/// RUN-1: `TZ` is read as everywhere on Linux; what it cannot mean is UTC, with a warning that names it.
#[test]
fn the_forms_of_tz() {
    let moment = at("2026-07-01T23:30:00Z");
    for (tz, of) in [
        ("Europe/Berlin", "2026-07-02"),
        (":Europe/Berlin", "2026-07-02"),
        ("/usr/share/zoneinfo/Europe/Berlin", "2026-07-02"),
        (":/usr/share/zoneinfo/Europe/Berlin", "2026-07-02"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "2026-07-02"),
        ("EST5EDT", "2026-07-01"),
        ("JST-9", "2026-07-02"),
        ("UTC", "2026-07-01"),
        ("UTC0", "2026-07-01"),
        ("", "2026-07-01"),
        (":", "2026-07-01"),
    ] {
        let zone = Zone::load(Some(tz));
        assert_eq!((zone.warning(), zone.day(moment).date), (None, date(of)), "{tz}");
        assert!(!zone.has_changed());
    }
    for bad in [
        "Nowhere/Land",
        "../../../etc/passwd",
        "/etc/passwd",
        "/usr/share/zoneinfo/../../../etc/passwd",
        "Europe",
        "Europe/",
        "zone.tab",
        "tzdata.zi",
        "Europe/Berlin\n\u{1b}[2J",
        "\0",
        "é",
    ] {
        let zone = Zone::load(Some(bad));
        let warning = zone.warning().unwrap_or_else(|| panic!("{bad:?} is a zone"));
        assert!(
            warning.contains("UTC") && !warning.contains('\u{1b}') && !warning.contains('\n'),
            "{warning}"
        );
        assert_eq!(zone.day(moment).date, date("2026-07-01"));
    }
    let system = Zone::load(None);
    assert!(!system.has_changed());
    assert_eq!(system.warning(), None);
}

fn copied(dir: &Path, name: &str) -> PathBuf {
    let file = dir.join("localtime");
    let other = dir.join("new");
    std::fs::copy(Path::new("/usr/share/zoneinfo").join(name), &other).unwrap();
    std::fs::rename(other, &file).unwrap();
    file
}

fn of_file(file: &Path) -> Zone {
    Zone::of_file("local", file.to_owned(), |_| Ok(jiff::tz::TimeZone::UTC))
}

/// RUN-1: another zone, new rules or a vanished file are noticed, also through a link; so is one that comes back.
#[test]
fn a_change_of_zone_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let moment = at("2026-07-01T23:30:00Z");
    let file = copied(dir.path(), "Europe/Berlin");
    let zone = of_file(&file);
    assert!(!zone.has_changed());
    assert_eq!(zone.day(moment).date, date("2026-07-02"));
    copied(dir.path(), "America/New_York");
    assert!(zone.has_changed());
    // Until it is loaded again nothing changes by itself.
    assert_eq!(zone.day(moment).date, date("2026-07-02"));
    let zone = of_file(&file);
    assert_eq!((zone.has_changed(), zone.day(moment).date), (false, date("2026-07-01")));
    std::fs::remove_file(&file).unwrap();
    assert!(zone.has_changed());
    let zone = of_file(&file);
    assert_eq!((zone.has_changed(), zone.warning()), (false, None));

    std::os::unix::fs::symlink("/usr/share/zoneinfo/Europe/Berlin", &file).unwrap();
    assert!(zone.has_changed());
    let zone = of_file(&file);
    assert!(!zone.has_changed());
    let other = dir.path().join("other");
    std::os::unix::fs::symlink("/usr/share/zoneinfo/Asia/Tokyo", &other).unwrap();
    std::fs::rename(&other, &file).unwrap();
    assert!(zone.has_changed());
}

/// RUN-1: a broken file is UTC with a warning, until it is mended.
#[test]
fn a_broken_file_is_utc() {
    let dir = tempfile::tempdir().unwrap();
    let good = std::fs::read("/usr/share/zoneinfo/Europe/Berlin").unwrap();
    let file = dir.path().join("localtime");
    for bad in [&b""[..], b"TZif", b"text", &good[..good.len() / 3], &vec![0; 300 * 1024]] {
        std::fs::write(&file, bad).unwrap();
        let zone = of_file(&file);
        assert!(zone.warning().is_some_and(|warning| warning.contains("UTC")), "{} bytes", bad.len());
        assert_eq!(zone.rfc3339(at("2026-07-01T23:30:00Z")), "2026-07-01T23:30:00+00:00");
        std::fs::write(&file, &good).unwrap();
        assert!(zone.has_changed());
        assert_eq!(of_file(&file).warning(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// RUN-1: whatever a file of a time zone holds, there is a day.
    #[test]
    fn no_file_makes_a_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
        seconds in -4_000_000_000i64..8_000_000_000,
    ) {
        let mut bytes = std::fs::read("/usr/share/zoneinfo/America/Sao_Paulo").unwrap();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if cut.index(4) == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("zone");
        std::fs::write(&file, bytes).unwrap();
        let zone = of_file(&file);
        let moment: SystemTime = Timestamp::from_second(seconds).unwrap().try_into().unwrap();
        let day = zone.day(moment);
        prop_assert!(!day.ends_text().is_empty() && !zone.rfc3339(moment).is_empty());
    }
}

/// RUN-4: a date has one spelling.
#[test]
fn dates_have_one_spelling() {
    assert_eq!(date("2026-03-29").to_string(), "2026-03-29");
    assert!(date("2026-03-29") < date("2026-10-01") && date("2026-12-31") < date("2027-01-01"));
    assert_eq!(serde_json::to_string(&date("2026-03-29")).unwrap(), "\"2026-03-29\"");
    assert_eq!(serde_json::from_str::<Date>("\"2026-03-29\"").unwrap(), date("2026-03-29"));
    for bad in
        ["", "2026-3-29", "20260329", "2026-02-30", "2026-03-29T00:00:00", " 2026-03-29", "2026-03-29 "]
    {
        assert_eq!(bad.parse::<Date>(), Err(DateError), "{bad}");
        assert!(serde_json::from_str::<Date>(&format!("\"{bad}\"")).is_err());
    }
}
