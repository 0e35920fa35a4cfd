//! What the inbox takes at most, and a disk that is full.

use ipc_proto::Code;

use super::*;

fn with(bounds: Bounds) -> (tempfile::TempDir, Inbox) {
    let dir = tempfile::tempdir().unwrap();
    let inbox = Inbox::open_with(dir.path(), schema::STEPS, bounds).unwrap();
    (dir, inbox)
}

/// ACC-1: each bound holds exactly; the one after it is refused with `inbox_full`, and room that comes free is used again.
#[test]
fn the_bounds_hold_exactly() {
    let (dir, mut inbox) =
        with(Bounds { waiting: 5, waiting_of_peer: 3, bytes: 100, bytes_of_peer: 60, ..Bounds::NODE });
    for name in ["a1", "a2", "a3"] {
        submit(&mut inbox, "a", name, "x").unwrap();
    }
    let error = submit(&mut inbox, "a", "a4", "x").unwrap_err();
    assert!(matches!(error, InboxError::PeerFull(3, _)), "{error}");
    submit(&mut inbox, "b", "b1", &"x".repeat(60)).unwrap();
    let error = submit(&mut inbox, "b", "b2", "x").unwrap_err();
    assert!(matches!(error, InboxError::TooMuch { limit: 60, .. }), "{error}");
    let error = submit(&mut inbox, "c", "c1", &"x".repeat(38)).unwrap_err();
    assert!(matches!(error, InboxError::TooMuch { limit: 100, .. }), "{error}");
    submit(&mut inbox, "c", "c1", &"x".repeat(37)).unwrap();
    let error = submit(&mut inbox, "d", "d1", "x").unwrap_err();
    assert!(matches!(error, InboxError::Full(5)), "{error}");
    assert_eq!(error.code(), Code::InboxFull);
    // What is known is no further task.
    assert!(submit(&mut inbox, "a", "a1", "x").unwrap().known);

    inbox.begin(&id("b1"), run(1), Way::Sandbox, false, 2000).unwrap();
    submit(&mut inbox, "b", "b2", &"x".repeat(60)).unwrap();
    inbox.refuse(&id("a1"), 2000, false, &refusal()).unwrap();
    inbox.refuse(&id("c1"), 2000, false, &refusal()).unwrap();
    submit(&mut inbox, "a", "a4", "x").unwrap();
    assert_eq!(inbox.queued_count().unwrap(), 4);
    let counted = inbox.waiting.clone();
    drop(inbox);
    let inbox = Inbox::open(dir.path()).unwrap();
    assert_eq!(inbox.waiting.tasks(), counted.tasks());
}

/// ACC-1: before the database is too large, tasks are refused and what was taken can still be answered.
#[test]
fn room_is_kept_for_answers() {
    let (_dir, mut inbox) = with(Bounds { database: 1024 * 1024, reserve: 2 * 1024 * 1024, ..Bounds::NODE });
    let text = "x".repeat(100_000);
    let mut taken = 0;
    let error = loop {
        match submit(&mut inbox, "p", &format!("i{taken}"), &text) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, InboxError::TooMuch { limit: 1_048_576, .. }), "{error}");
    assert!((8..=10).contains(&taken), "{taken}");
    for number in 0..taken {
        let name = id(&format!("i{number}"));
        inbox.begin(&name, run(number), Way::Sandbox, false, 2000).unwrap();
        inbox.finish(&name, 3000, &answered(&text), Some((run(number), "{}"))).unwrap();
    }
    inbox.prune(5000, 0).unwrap();
    submit(&mut inbox, "p", "again", &text).unwrap();
}

/// ACC-1, EVI-3: a full database says so, loses nothing that was acknowledged, changes nothing by halves, and works again when
/// there is room.
#[test]
fn a_full_disk_loses_nothing() {
    let bounds = Bounds { reserve: 512 * 1024, ..Bounds::NODE };
    let (dir, mut inbox) = with(bounds);
    let text = "x".repeat(20_000);
    let mut taken = Vec::new();
    let error = loop {
        let name = format!("i{}", taken.len());
        match submit(&mut inbox, "p", &name, &text) {
            Ok(_) => taken.push(name),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, InboxError::NoSpace), "{error}");
    assert_eq!(error.code(), Code::StateUnusable);
    assert!(taken.len() > 10, "{}", taken.len());
    let before = everything(&inbox);
    // An answer that does not fit leaves the interaction as it is.
    let name = id(&taken[0]);
    inbox.begin(&name, run(1), Way::Sandbox, false, 2000).unwrap();
    let error = inbox.finish(&name, 3000, &answered(&text.repeat(9)), Some((run(1), "{}"))).unwrap_err();
    assert!(matches!(error, InboxError::NoSpace), "{error}");
    assert_eq!(inbox.story(&taken[0]).unwrap().unwrap().interaction.state, State::Running);
    assert_sound(&inbox);
    // What is short fits where the long did not.
    inbox.finish(&name, 3000, &refused(State::Refused, &refusal()), Some((run(1), "{}"))).unwrap();
    drop(inbox);

    let mut inbox = Inbox::open_with(dir.path(), schema::STEPS, bounds).unwrap();
    assert_eq!(inbox.queued_count().unwrap() as usize, taken.len() - 1);
    for name in &taken {
        assert_eq!(inbox.task(&id(name)).unwrap(), text.as_bytes());
    }
    assert!(before.contains(&taken[taken.len() - 1]));
    assert_eq!(inbox.prune(9000, 0).unwrap().removed, 1);
    submit(&mut inbox, "p", "again", &text).unwrap();
    assert_sound(&inbox);
}

/// EVI-3: after the disk failed to keep what it was given, nothing is written until the file is read anew.
#[test]
fn a_failed_disk_is_not_asked_again() {
    let (dir, mut inbox) = with(Bounds::NODE);
    submit(&mut inbox, "p", "a", "text").unwrap();
    let failure = || {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
        Err::<(), _>(InboxError::from(rusqlite::Error::SqliteFailure(code, None)))
    };
    let error = inbox.change(|_| failure()).unwrap_err();
    assert!(matches!(error, InboxError::Lost(_)), "{error}");
    let error = submit(&mut inbox, "p", "b", "text").unwrap_err();
    assert!(matches!(error, InboxError::Lost(_)), "{error}");
    assert_eq!(inbox.task(&id("a")).unwrap(), b"text");
    drop(inbox);
    let mut inbox = Inbox::open(dir.path()).unwrap();
    submit(&mut inbox, "p", "b", "text").unwrap();
}
