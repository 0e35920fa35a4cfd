//! How long things are kept, and that they are gone afterwards.

use super::*;
use crate::inbox::{Known, Pruned};

const MARK: &str = "a text that must not stay behind";

fn with_old_ones(count: u64, ended: u64) -> (tempfile::TempDir, Inbox) {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    hurry(&inbox);
    for number in 0..count {
        let name = format!("i{number}");
        submit(&mut inbox, "p", &name, &format!("{MARK} {}", "x".repeat(9000))).unwrap();
        inbox.begin(&id(&name), run(number), Way::Sandbox, false, 1000).unwrap();
        let record = format!("{{\"{MARK}\":1}}");
        inbox.finish(&id(&name), ended, &answered(&MARK.repeat(500)), Some((run(number), &record))).unwrap();
    }
    (dir, inbox)
}

fn files_with_mark(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let holds = |bytes: Vec<u8>| bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes());
    files.filter(|file| holds(std::fs::read(file).unwrap())).map(|file| file.display().to_string()).collect()
}

/// FS-3: what ended longer ago than the retention is removed, to the last byte; what is younger, waits or runs stays.
#[test]
fn what_is_old_goes_without_a_trace() {
    let (dir, mut inbox) = with_old_ones(5, 10_000);
    submit(&mut inbox, "p", "waits", "old, but it waits").unwrap();
    submit(&mut inbox, "p", "runs", "old, but it runs").unwrap();
    inbox.begin(&id("runs"), run(90), Way::Sandbox, false, 1000).unwrap();
    submit(&mut inbox, "p", "young", "young").unwrap();
    inbox.refuse(&id("young"), 15_000, false, &refusal()).unwrap();
    assert!(!files_with_mark(dir.path()).is_empty(), "the search would find nothing anyway");

    assert_eq!(inbox.prune(15_000, 5_000).unwrap().removed, 0, "it ended exactly so long ago");
    let pruned = inbox.prune(15_001, 5_000).unwrap();
    assert_eq!((pruned.removed, pruned.more), (5, false));
    assert_eq!(files_with_mark(dir.path()), Vec::<String>::new());
    assert_eq!(inbox.outcome(&id("i0")).unwrap(), Known::No);
    assert_eq!(inbox.story(&run(0).to_string()).unwrap(), None);
    let left: Vec<String> = inbox.rows(None, 100).unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(left, ["young", "runs", "waits"]);
    assert_eq!(inbox.prune(u64::MAX, 0).unwrap().removed, 1);
    assert_sound(&inbox);
}

/// FS-3: a clock that is put back, or a retention that is longer than the clock, removes nothing.
#[test]
fn a_clock_that_is_put_back_removes_nothing() {
    let (_dir, mut inbox) = with_old_ones(2, 10_000);
    for (now, retention) in [(0, 0), (9_000, 0), (10_000, 0), (u64::MAX, u64::MAX), (10_000, 20_000)] {
        assert_eq!(inbox.prune(now, retention).unwrap().removed, 0, "{now} {retention}");
    }
}

/// CLI `anet inbox`: a number is never used again, whatever was removed.
#[test]
fn a_number_is_used_once() {
    let (dir, mut inbox) = with_old_ones(3, 10_000);
    assert_eq!(inbox.prune(20_000, 0).unwrap().removed, 3);
    drop(inbox);
    let mut inbox = Inbox::open(dir.path()).unwrap();
    // A name that is no longer known is free again.
    assert_eq!(submit(&mut inbox, "q", "i0", "other").unwrap(), Submitted { known: false, number: 4 });
}

/// FS-3: very many are removed in short steps, and their room is given back.
#[test]
fn many_are_removed_in_steps() {
    let (dir, mut inbox) = with_old_ones(700, 10_000);
    let size = |dir: &Path| std::fs::metadata(dir.join("inbox.db")).unwrap().len();
    inbox.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    assert!(size(dir.path()) > 16 * 1024 * 1024);
    let (mut removed, mut calls) = (0, 0);
    loop {
        let pruned = inbox.prune(20_000, 0).unwrap();
        removed += pruned.removed;
        calls += 1;
        if !pruned.more {
            break;
        }
        assert!(calls < 50, "it does not come to an end");
    }
    assert_eq!(removed, 700);
    assert!(size(dir.path()) < 5 * 1024 * 1024, "{}", size(dir.path()));
    assert_eq!(inbox.prune(20_000, 0).unwrap(), Pruned { removed: 0, more: false });
    assert_eq!(files_with_mark(dir.path()), Vec::<String>::new());
}

/// FS-3: one transaction removes few texts where they are long, and always at least one.
#[test]
fn long_texts_are_removed_few_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    let long = "x".repeat(3 * 1024 * 1024);
    for (number, answer) in
        [&long[..], "short", &long, &long, "short", "short", &long.repeat(4)].iter().enumerate()
    {
        let name = format!("i{number}");
        submit(&mut inbox, "p", &name, "text").unwrap();
        inbox.begin(&id(&name), run(number as u64), Way::Sandbox, false, 1000).unwrap();
        inbox.finish(&id(&name), 10_000, &answered(answer), Some((run(number as u64), "{}"))).unwrap();
    }
    let mut steps = Vec::new();
    loop {
        let step = inbox.remove_some(i64::MAX).unwrap();
        if step == 0 {
            break;
        }
        steps.push(step);
    }
    assert_eq!(steps, [3, 3, 1]);
    assert_sound(&inbox);
}
