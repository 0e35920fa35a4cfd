//! A process that is killed, and a log that is torn.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use super::*;

/// Says what was acknowledged, in one write.
fn say(words: std::fmt::Arguments<'_>) {
    let line = format!("{words}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

fn text_of(name: &str) -> String {
    format!("text of {name} ").repeat(name.len() * 40)
}

/// ACC-1, EVI-3: a process that is killed at any moment loses nothing that was acknowledged, and leaves nothing by halves.
#[test]
fn what_was_acknowledged_survives_a_kill() {
    if let Some(dir) = directory() {
        return submit_for_ever(&dir);
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut submitted, mut begun, mut finished) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..15u64 {
        let mut child = child("crash::what_was_acknowledged_survives_a_kill", dir.path()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut heard = |line: String| match line.split_once(' ') {
            Some(("submitted", name)) => submitted.push(name.to_owned()),
            Some(("begun", name)) => begun.push(name.to_owned()),
            Some(("finished", name)) => finished.push(name.to_owned()),
            _ => {}
        };
        assert!(lines.by_ref().any(|line| line == "opened"), "it did not open");
        // So many steps, and a moment that nobody foresees.
        lines.by_ref().take(round as usize * 2).for_each(&mut heard);
        std::thread::sleep(Duration::from_micros(round * round * 37));
        kill(child);
        lines.for_each(heard);
        let inbox = Inbox::open(dir.path()).unwrap();
        assert_sound(&inbox);
        for name in &submitted {
            assert_eq!(inbox.task(&id(name)).unwrap(), text_of(name).as_bytes(), "{name}");
        }
        for name in &begun {
            let story = inbox.story(name).unwrap().unwrap();
            assert!(story.interaction.state != State::Queued && story.runs.len() == 1, "{story:?}");
        }
        for name in &finished {
            let story = inbox.story(name).unwrap().unwrap();
            assert_eq!(story.answer, Some(text_of(name)), "{name}");
            assert_eq!(story.runs[0].record.as_deref(), Some("{}"));
        }
    }
    assert!(finished.len() > 20, "hardly anything was done: {}", finished.len());
}

fn submit_for_ever(dir: &Path) {
    let mut inbox = Inbox::open(dir).unwrap();
    inbox.interrupted(1000, &refusal()).unwrap();
    say(format_args!("\nopened"));
    let start = inbox.rows(None, 1).unwrap().first().map_or(0, |row| row.number);
    for number in start + 1.. {
        let name = format!("i{number}");
        submit(&mut inbox, "p", &name, &text_of(&name)).unwrap();
        say(format_args!("submitted {name}"));
        inbox.begin(&id(&name), run(number), Way::Sandbox, false, 2000).unwrap();
        say(format_args!("begun {name}"));
        inbox.finish(&id(&name), 3000, &answered(&text_of(&name)), Some((run(number), "{}"))).unwrap();
        say(format_args!("finished {name}"));
    }
}

/// EVI-3: a process that is killed while it makes the database leaves one that the next opens.
#[test]
fn a_kill_while_it_is_made_is_nothing() {
    if let Some(dir) = directory() {
        say(format_args!("\nopened"));
        for number in 0u32.. {
            let dir = dir.join(number.to_string());
            std::fs::create_dir(&dir).unwrap();
            submit(&mut Inbox::open(&dir).unwrap(), "p", "a", "text").unwrap();
            say(format_args!("made {number}"));
        }
    }
    let mut half = 0;
    for round in 0..40u64 {
        let dir = tempfile::tempdir().unwrap();
        let mut child = child("crash::a_kill_while_it_is_made_is_nothing", dir.path()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim() != "opened" {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "it did not begin");
        }
        std::thread::sleep(Duration::from_micros(1 + round * 431));
        kill(child);
        let made: Vec<String> = (output.lines().map_while(Result::ok))
            .filter_map(|line| Some(line.strip_prefix("made ")?.to_owned()))
            .collect();
        for entry in std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap) {
            let mut inbox = Inbox::open(&entry.path()).unwrap();
            let is_made = made.iter().any(|made| **made == *entry.file_name());
            let known = submit(&mut inbox, "p", "a", "text").unwrap().known;
            assert!(known || !is_made, "{:?}", entry.file_name());
            half += usize::from(!known);
            assert_sound(&inbox);
        }
    }
    assert!(half > 5, "hardly one was killed while it was made: {half}");
}

/// A database with its log as a killed process leaves them, and how long the log was after each of these transactions.
struct Left {
    database: Vec<u8>,
    log: Vec<u8>,
    ends: Vec<usize>,
}

fn left_by_a_kill() -> Left {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    submit(&mut inbox, "p", "before", "text").unwrap();
    inbox.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let log = dir.path().join("inbox.db-wal");
    let mut ends = Vec::new();
    for number in 0..3 {
        submit(&mut inbox, "p", &format!("i{number}"), &text_of("a")).unwrap();
        ends.push(std::fs::metadata(&log).unwrap().len() as usize);
    }
    let left = Left {
        database: std::fs::read(dir.path().join("inbox.db")).unwrap(),
        log: std::fs::read(&log).unwrap(),
        ends,
    };
    assert_eq!(left.log.len(), left.ends[2]);
    left
}

/// The tasks that are there: always the first ones.
fn found(left: &Left, log: &[u8]) -> usize {
    let dir = in_memory();
    std::fs::write(dir.path().join("inbox.db"), &left.database).unwrap();
    std::fs::write(dir.path().join("inbox.db-wal"), log).unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    let names: Vec<String> =
        inbox.waiting().unwrap().into_iter().map(|task| task.interaction.to_string()).collect();
    let first: Vec<String> =
        std::iter::once("before".to_owned()).chain((0..3).map(|number| format!("i{number}"))).collect();
    assert_eq!(names, first[..names.len()]);
    for name in names.iter().skip(1) {
        assert_eq!(inbox.task(&id(name)).unwrap(), text_of("a").as_bytes());
    }
    submit(&mut inbox, "p", "after", "text").unwrap();
    names.len() - 1
}

/// EVI-3: power that fails while the log is written: whatever its length is afterwards, all that was acknowledged before is
/// there, and nothing of what was not.
#[test]
fn a_torn_log_keeps_what_was_acknowledged() {
    let left = left_by_a_kill();
    for cut in (0..left.log.len()).step_by(37).chain(left.ends.iter().copied()) {
        let acknowledged = left.ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(found(&left, &left.log[..cut]), acknowledged, "cut at {cut}");
    }
}

/// EVI-3: blocks that did not reach the disk, or with other bytes: what stands before them is there.
#[test]
fn a_log_with_a_hole_keeps_what_stands_before_it() {
    let left = left_by_a_kill();
    for at in (0..left.log.len() - 512).step_by(997) {
        let whole = left.ends.iter().filter(|end| **end <= at).count();
        let mut zeros = left.log.clone();
        zeros[at..at + 512].fill(0);
        let mut other = left.log.clone();
        other[at] ^= 0x10;
        for log in [zeros, other] {
            let found = found(&left, &log);
            // Where there were zeros before, nothing was changed.
            let least = if log == left.log { left.ends.len() } else { whole };
            assert!(found >= least, "at {at}: {found} of {least}");
        }
    }
}
