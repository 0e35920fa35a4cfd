//! What lies where the inbox should be.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ipc_proto::Code;
use proptest::prelude::*;

use super::*;

/// Names and contents of a directory.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|file| file.is_file())
        .map(|file| (file.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&file).unwrap()))
        // An empty log says nothing; SQLite makes one when it looks.
        .filter(|(name, bytes)| !(name == "inbox.db-wal" && bytes.is_empty()))
        .collect()
}

/// Refused, with a sentence, and left as it is. Twice: the first refusal changed nothing that matters.
fn assert_refused(dir: &Path, what: &str) -> InboxError {
    let before = contents(dir);
    let error = Inbox::open(dir).unwrap_err();
    assert_eq!(error.code(), Code::BadDatabase, "{what}: {error}");
    assert_eq!(contents(dir), before, "{what}: changed");
    let again = Inbox::open(dir).unwrap_err();
    assert_eq!(again.to_string(), error.to_string(), "{what}");
    assert_eq!(contents(dir), before, "{what}: changed");
    error
}

fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    hurry(&inbox);
    for number in 0..40 {
        submit(&mut inbox, "p", &format!("i{number}"), &"text ".repeat(400)).unwrap();
    }
    dir
}

/// PRV-2: the database and its log are the node's alone; when it is closed all of it is in one file.
#[test]
fn the_files_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    submit(&mut inbox, "p", "a", "text").unwrap();
    for file in ["inbox.db", "inbox.db-wal"] {
        let mode = std::fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(!dir.path().join("inbox.db-shm").exists());
    drop(inbox);
    assert_eq!(contents(dir.path()).keys().collect::<Vec<_>>(), ["inbox.db"]);
    assert_eq!(Inbox::open(dir.path()).unwrap().task(&id("a")).unwrap(), b"text");
}

/// ACC-1: what a call returns for is on disk: each commit is synchronised, and no part of the file is a map in memory.
#[test]
fn the_settings_hold() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let inbox = Inbox::open(dir.path()).unwrap();
        for (setting, value) in [
            ("journal_mode", "wal"),
            ("synchronous", "2"),
            ("locking_mode", "exclusive"),
            ("temp_store", "2"),
            ("mmap_size", "0"),
            ("secure_delete", "1"),
            ("foreign_keys", "1"),
            ("auto_vacuum", "2"),
            ("trusted_schema", "0"),
        ] {
            let found = inbox.connection.pragma_query_value(None, setting, |row| match row.get(0)? {
                rusqlite::types::Value::Integer(number) => Ok(number.to_string()),
                rusqlite::types::Value::Text(text) => Ok(text),
                other @ (rusqlite::types::Value::Null
                | rusqlite::types::Value::Real(_)
                | rusqlite::types::Value::Blob(_)) => panic!("{setting}: {other:?}"),
            });
            let found = found.unwrap();
            assert_eq!(found, value, "{setting}");
        }
    }
}

/// PRV-6: a second node is refused and told so; the first one does not notice. Also from another process.
#[test]
fn a_second_opener_is_refused() {
    if let Some(dir) = directory() {
        print!("{}", Inbox::open(&dir).map_or_else(|error| error.to_string(), |_| "opened".to_owned()));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    let begun = Instant::now();
    let error = Inbox::open(dir.path()).unwrap_err();
    assert!(matches!(error, InboxError::InUse), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    let other = || {
        let output = child("opening::a_second_opener_is_refused", dir.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(other().contains("in use by another process"), "{}", other());
    submit(&mut inbox, "p", "a", "text").unwrap();
    drop(inbox);
    assert!(other().contains("opened"));
}

/// EVI-3: what was begun and has no table yet is made anew.
#[test]
fn an_unborn_database_is_born() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("inbox.db"), "").unwrap();
    submit(&mut Inbox::open(dir.path()).unwrap(), "p", "a", "text").unwrap();
}

/// PRV-6: what is no inbox, or no longer one, is refused and left as it is.
#[test]
fn what_is_no_inbox_is_left_alone() {
    let dir = filled();
    let file = dir.path().join("inbox.db");
    let good = std::fs::read(&file).unwrap();
    let mut cases: Vec<(&str, Vec<u8>)> = vec![
        ("text", b"this is a text of some length that is no database at all\n".repeat(100)),
        ("one byte", b"x".to_vec()),
        ("zeros", vec![0; 8192]),
        ("cut in the header", good[..60].to_vec()),
        ("cut in the first page", good[..1000].to_vec()),
        ("cut after the first page", good[..4096].to_vec()),
    ];
    let changed = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    cases.push(("another program's", changed(68, &[1, 2, 3, 4])));
    cases.push(("without a version", changed(60, &[0; 4])));
    cases.push(("with a negative version", changed(60, &[255; 4])));
    cases.push(("with a broken page of tables", changed(100, &[7; 200])));
    for (what, bytes) in cases {
        std::fs::write(&file, bytes).unwrap();
        let error = assert_refused(dir.path(), what);
        assert!(matches!(error, InboxError::Damaged(_)), "{what}: {error}");
    }
    std::fs::write(&file, good).unwrap();
    Inbox::open(dir.path()).unwrap();
}

/// EVI-3: any page that is not what it was: the database is refused and left as it is, or says so when it comes to that page;
/// no other text is ever taken for a task's.
#[test]
fn a_broken_page_is_noticed() {
    let dir = filled();
    let file = dir.path().join("inbox.db");
    let good = std::fs::read(&file).unwrap();
    let (mut refused, mut read) = (0, 0);
    for page in 0..good.len() / 4096 {
        for fill in [0u8, 0x41, 0xff] {
            let mut bad = good.clone();
            bad[page * 4096 + 100..(page + 1) * 4096].fill(fill);
            std::fs::write(&file, &bad).unwrap();
            let Ok(inbox) = Inbox::open(dir.path()) else {
                assert_refused(dir.path(), "a broken page");
                refused += 1;
                continue;
            };
            for number in 0..40 {
                match inbox.task(&id(&format!("i{number}"))) {
                    Ok(text) => assert_eq!(text, "text ".repeat(400).as_bytes(), "page {page}"),
                    Err(InboxError::Damaged(_) | InboxError::Unknown(_)) => read += 1,
                    Err(error) => panic!("page {page}: {error:?}"),
                }
            }
        }
    }
    assert!(refused >= 9 && read > 20, "{refused} {read}");
}

/// EVI-3: a list of interactions that is broken where nothing waits is found when it is opened.
#[test]
fn a_broken_list_is_found_at_once() {
    let dir = filled();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    for number in 0..40 {
        inbox.refuse(&id(&format!("i{number}")), 1000, false, &refusal()).unwrap();
    }
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'interaction'";
    let page: usize = inbox.connection.query_row(root, [], |row| row.get(0)).unwrap();
    drop(inbox);
    let file = dir.path().join("inbox.db");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[(page - 1) * 4096 + 12..page * 4096].fill(0x41);
    std::fs::write(&file, bytes).unwrap();
    let error = assert_refused(dir.path(), "a broken list");
    assert!(matches!(error, InboxError::Damaged(_)), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// PRV-6: whatever the file holds, it is refused and left as it is, or read without a panic; and no wrong text is a task.
    #[test]
    fn any_bytes_are_refused_or_read(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        in_the_head in any::<bool>(),
    ) {
        static FILLED: OnceLock<Vec<u8>> = OnceLock::new();
        let filled = FILLED.get_or_init(|| std::fs::read(filled().path().join("inbox.db")).unwrap());
        let dir = in_memory();
        let file = dir.path().join("inbox.db");
        let mut bytes = filled.clone();
        for (index, byte) in changes {
            let at = index.index(if in_the_head { 4096 } else { bytes.len() });
            bytes[at] = byte;
        }
        std::fs::write(&file, &bytes).unwrap();
        let Ok(mut inbox) = Inbox::open(dir.path()) else {
            prop_assert_eq!(std::fs::read(&file).unwrap(), bytes);
            return Ok(());
        };
        let _ = (inbox.rows(None, 1000), inbox.waiting(), inbox.story("i3"), inbox.outcome(&id("i3")));
        for number in 0..40 {
            let name = id(&format!("i{number}"));
            if let Ok(text) = inbox.task(&name) {
                prop_assert_eq!(text, "text ".repeat(400).into_bytes());
            }
            let _ = inbox.refuse(&name, 1000, false, &refusal());
        }
        let _ = (submit(&mut inbox, "p", "more", "text"), inbox.prune(5000, 0));
    }
}

/// PRV-6: a table, index or trigger too many or too few is no inbox.
#[test]
fn other_tables_are_refused() {
    for change in [
        "DROP TABLE answer",
        "DROP INDEX run_open",
        "CREATE TABLE more (x)",
        "ALTER TABLE run ADD COLUMN x TEXT",
        "CREATE TRIGGER bad AFTER INSERT ON task BEGIN DELETE FROM answer; END",
    ] {
        let dir = filled();
        let connection = rusqlite::Connection::open(dir.path().join("inbox.db")).unwrap();
        connection.execute_batch(change).unwrap();
        drop(connection);
        let error = assert_refused(dir.path(), change);
        assert!(matches!(error, InboxError::Damaged(_)), "{change}: {error}");
    }
}

/// PRV-6: a later version's database is refused, named, and left as it is; its log too.
#[test]
fn a_newer_database_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let newer = [schema::STEPS, &["CREATE TABLE later (x TEXT) STRICT"]].concat();
    let mut inbox = Inbox::open_with(dir.path(), &newer, Bounds::NODE).unwrap();
    submit(&mut inbox, "p", "a", "text").unwrap();
    let killed = tempfile::tempdir().unwrap();
    for file in ["inbox.db", "inbox.db-wal"] {
        std::fs::copy(dir.path().join(file), killed.path().join(file)).unwrap();
    }
    drop(inbox);
    for dir in [dir.path(), killed.path()] {
        let error = assert_refused(dir, "newer");
        assert!(matches!(error, InboxError::Newer { found: 2, known: 1 }), "{error}");
        let inbox = Inbox::open_with(dir, &newer, Bounds::NODE).unwrap();
        assert_eq!(inbox.task(&id("a")).unwrap(), b"text");
    }
}

/// EVI-3: an older version's database is brought up with all that is in it; where that fails it stays as it was.
#[test]
fn an_older_database_is_brought_up_at_once_or_not_at_all() {
    let dir = filled();
    let step = "ALTER TABLE interaction ADD COLUMN later TEXT; CREATE TABLE later (x TEXT) STRICT;";
    let broken =
        [schema::STEPS, &[step, "CREATE TABLE one (x TEXT) STRICT; CREATE TABLE one (x TEXT) STRICT;"]]
            .concat();
    let before = everything(&Inbox::open(dir.path()).unwrap());
    Inbox::open_with(dir.path(), &broken, Bounds::NODE).unwrap_err();
    assert_eq!(everything(&Inbox::open(dir.path()).unwrap()), before);

    let newer = [schema::STEPS, &[step]].concat();
    for _ in 0..2 {
        let inbox = Inbox::open_with(dir.path(), &newer, Bounds::NODE).unwrap();
        assert_eq!(everything(&inbox), before);
        let version: i32 =
            inbox.connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, 2);
        assert_sound(&inbox);
    }
}

/// EVI-3: a log without its database is somebody's tasks: it is not thrown away.
#[test]
fn a_log_alone_is_not_thrown_away() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    submit(&mut inbox, "p", "a", "text").unwrap();
    for what in ["missing", "empty"] {
        let alone = tempfile::tempdir().unwrap();
        std::fs::copy(dir.path().join("inbox.db-wal"), alone.path().join("inbox.db-wal")).unwrap();
        if what == "empty" {
            std::fs::write(alone.path().join("inbox.db"), "").unwrap();
        }
        let error = assert_refused(alone.path(), what);
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// FS-5: what is no regular file is neither followed nor waited for.
#[test]
fn no_link_is_followed() {
    let elsewhere = filled();
    let before = contents(elsewhere.path());
    let dir = tempfile::tempdir().unwrap();
    symlink(elsewhere.path().join("inbox.db"), dir.path().join("inbox.db")).unwrap();
    assert_refused(dir.path(), "a link");
    assert_eq!(contents(elsewhere.path()), before);

    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("inbox.db")).unwrap();
    assert_refused(dir.path(), "a directory");
    let error = Inbox::open(&dir.path().join("nothing")).unwrap_err();
    assert!(matches!(error, InboxError::Unusable(_)), "{error}");
    // Links on the way to the directory are the operator's own.
    let place = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), place.path().join("state")).unwrap();
    Inbox::open(&place.path().join("state")).unwrap();
}

/// DIA-2: a directory that cannot be written is said to be so, and nothing is harmed.
#[test]
fn a_read_only_directory_is_refused() {
    if let Some(dir) = directory() {
        let error = Inbox::open(&dir).unwrap_err();
        assert_eq!(error.code(), Code::BadDatabase);
        print!("refused: {error}");
        return;
    }
    for is_empty in [false, true] {
        let dir = if is_empty { tempfile::tempdir().unwrap() } else { filled() };
        let readable = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        if !is_empty {
            readable(&dir.path().join("inbox.db"), 0o444);
        }
        readable(dir.path(), 0o555);
        let before = contents(dir.path());
        let mut child = child("opening::a_read_only_directory_is_refused", dir.path());
        if rustix::process::geteuid().is_root() {
            // Modes do not bind root.
            child.uid(65_534).gid(65_534);
        }
        let output = child.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && said.contains("refused: the inbox's database cannot be used"),
            "{said}"
        );
        assert_eq!(contents(dir.path()), before);
        readable(dir.path(), 0o755);
        if !is_empty {
            readable(&dir.path().join("inbox.db"), 0o600);
        }
        Inbox::open(dir.path()).unwrap();
    }
}

/// USE-1: every sentence is one line of plain words.
#[test]
fn sentences_are_for_people() {
    let errors = [
        InboxError::OtherTask(id("a")),
        InboxError::BadTask(0),
        InboxError::Full(1),
        InboxError::PeerFull(1, aid("p")),
        InboxError::TooMuch { limit: 1, of: "" },
        InboxError::Unknown(id("a")),
        InboxError::NotInState { interaction: id("a"), found: State::Queued },
        InboxError::BadEnding(State::Queued),
        InboxError::OtherRun(id("a")),
        InboxError::InUse,
        InboxError::Newer { found: 2, known: 1 },
        InboxError::Damaged("why".to_owned()),
        InboxError::NoSpace,
        InboxError::Unusable("why".to_owned()),
        InboxError::Lost("why".to_owned()),
    ];
    for error in errors {
        let trouble = error.trouble();
        assert!(trouble.sentence.len() > 40 && !trouble.sentence.contains("  "), "{trouble}");
        for raw in ["Error", "(\"", "{", "Some("] {
            assert!(!trouble.sentence.contains(raw), "{trouble}");
        }
    }
}
