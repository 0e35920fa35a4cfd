//! Counts of runs.

use super::*;

/// RUN-1: runs are counted by date and peer, and a run that was given back no longer.
#[test]
fn runs_are_counted_by_date_and_peer() {
    let (monday, tuesday) = (date("2026-03-30"), date("2026-03-31"));
    let mut counts = Counts::default();
    for (date, peer) in [(monday, "a"), (monday, "a"), (monday, "b"), (tuesday, "a")] {
        counts.reserve(date, peer);
    }
    let all = |counts: &Counts, date| {
        let of = counts.of(date);
        (of.runs(), of.peer("a"), of.peer("b"), of.peer("c"))
    };
    assert_eq!(all(&counts, monday), (3, 2, 1, 0));
    assert_eq!(all(&counts, tuesday), (1, 1, 0, 0));
    assert_eq!(all(&counts, date("2026-04-01")), (0, 0, 0, 0));
    counts.give_back(monday, "a");
    assert_eq!(all(&counts, monday), (2, 1, 1, 0));
    // What was never counted, or is given back twice, makes nothing less.
    counts.give_back(monday, "c");
    counts.give_back(date("2026-04-01"), "a");
    counts.give_back(tuesday, "a");
    counts.give_back(tuesday, "a");
    assert_eq!(all(&counts, monday), (2, 1, 1, 0));
    assert_eq!(all(&counts, tuesday), (0, 0, 0, 0));
    assert_eq!(counts.of(tuesday).peers().count(), 0);
    assert_eq!(counts.of(monday).peers().collect::<Vec<_>>(), [("a", 1), ("b", 1)]);
}

/// RUN-4: what is written down is read back, and nothing else is taken for it.
#[test]
fn counts_are_written_and_read() {
    let counts = counts(&[("a", 2), ("b", 1)]);
    let text = serde_json::to_string(&counts).unwrap();
    assert_eq!(serde_json::from_str::<Counts>(&text).unwrap(), counts);
    assert_eq!(serde_json::from_str::<Counts>("{\"dates\":{}}").unwrap(), Counts::default());
    for bad in ["{}", "{\"dates\":{\"x\":{}}}", "{\"dates\":{},\"more\":1}"] {
        assert!(serde_json::from_str::<Counts>(bad).is_err(), "{bad}");
    }
}

/// RUN-1: a clock that is put back by a week finds what it counted; what is older goes.
#[test]
fn the_last_seven_dates_are_kept() {
    let mut counts = Counts::default();
    let dates: Vec<Date> = (1..=20).map(|day| date(&format!("2026-03-{day:02}"))).collect();
    for date in &dates {
        counts.reserve(*date, "a");
        counts.forget_before(*date);
    }
    let kept = |counts: &Counts| dates.iter().filter(|date| counts.of(**date).runs() > 0).count();
    assert_eq!(kept(&counts), 8);
    assert_eq!(counts.of(dates[12]).runs(), 1);
    assert_eq!(counts.of(dates[11]).runs(), 0);
    // The clock goes back: nothing that lies ahead is forgotten.
    counts.forget_before(dates[10]);
    assert_eq!(kept(&counts), 8);
    // Days without a run do not push out those that have some.
    counts.forget_before(date("2027-01-01"));
    assert_eq!(kept(&counts), 7);
}

/// RUN-1: counts are bounded, and past the bound they refuse too early rather than too late.
#[test]
fn counts_are_bounded() {
    let day = date("2026-03-30");
    let mut counts = Counts::default();
    for peer in 0..MAX_PEERS {
        counts.reserve(day, &format!("p{peer}"));
    }
    for (number, peer) in ["late1", "late2", "late3"].into_iter().enumerate() {
        assert_eq!(counts.of(day).peer(peer), number as u64);
        counts.reserve(day, peer);
    }
    assert_eq!(counts.of(day).peer("late1"), 3);
    assert_eq!(counts.of(day).peer("p7"), 1);
    // A place that comes free does not make a late one new: what it had would be forgotten.
    counts.give_back(day, "p7");
    counts.reserve(day, "late1");
    assert_eq!(counts.of(day).peer("late1"), 4);
    assert_eq!(counts.of(day).runs(), MAX_PEERS as u64 + 3);
    assert_eq!(counts.of(day).peers().count(), MAX_PEERS - 1);
    counts.give_back(day, "late1");
    assert_eq!(counts.of(day).peer("late2"), 3);

    for year in 2000..2100 {
        counts.reserve(date(&format!("{year}-01-01")), "a");
        counts.forget_before(date("2050-01-01"));
    }
    let kept = (2000..2100).filter(|year| counts.of(date(&format!("{year}-01-01"))).runs() > 0).count();
    assert!((8..=32).contains(&kept), "{kept}");
    assert_eq!(counts.of(date("2050-01-01")).runs(), 1);
}
