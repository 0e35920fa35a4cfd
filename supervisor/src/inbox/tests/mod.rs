//! Tests of the inbox. What several of them need stands here.

mod confined;
mod crash;
mod keeping;
mod measure;
mod model;
mod opening;
mod room;
mod states;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ipc_proto::control::{Refusal, State};
use ipc_proto::{Aid, InteractionId, RunId};
use sha2::{Digest, Sha256};

use super::{Bounds, Ending, Inbox, InboxError, Submitted, Way, schema};

fn aid(name: &str) -> Aid {
    name.parse().unwrap()
}

fn id(name: &str) -> InteractionId {
    name.parse().unwrap()
}

fn run(number: u64) -> RunId {
    RunId::new(number, [0; 4])
}

fn refusal() -> Refusal {
    Refusal {
        code: "budget".to_owned(),
        kind: Some("runs".to_owned()),
        until: Some("2026-03-30T00:00:00+02:00".to_owned()),
        sentence: "no more today".to_owned(),
    }
}

fn submit(inbox: &mut Inbox, peer: &str, interaction: &str, task: &str) -> Result<Submitted, InboxError> {
    let sha256 = Sha256::digest(task).into();
    inbox.submit(1000, &aid(peer), &id(interaction), task.as_bytes(), &sha256)
}

fn answered(text: &str) -> Ending<'_> {
    Ending { state: State::Answered, answer: Some(text), refusal: None }
}

fn refused(state: State, refusal: &Refusal) -> Ending<'_> {
    Ending { state, answer: None, refusal: Some(refusal) }
}

/// Where what is tested is not the disk.
fn hurry(inbox: &Inbox) {
    inbox.connection.pragma_update(None, "synchronous", "OFF").unwrap();
}

/// A directory in memory, where there is such a place.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// All that the inbox says, to be compared.
fn everything(inbox: &Inbox) -> String {
    let rows = inbox.rows(None, u16::MAX).unwrap();
    let stories: Vec<_> = rows.iter().map(|row| inbox.story(&row.id).unwrap().unwrap()).collect();
    format!("{stories:?} {:?}", inbox.waiting().unwrap())
}

/// SQLite's own word on the whole file.
fn assert_sound(inbox: &Inbox) {
    let word: String = inbox.connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(word, "ok");
    let strays: i64 = inbox
        .connection
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(strays, 0);
}

const DIRECTORY: &str = "ANET_TEST_INBOX";

/// The directory, in a process that [`child`] started; otherwise the test has nothing to do.
fn directory() -> Option<std::path::PathBuf> {
    std::env::var_os(DIRECTORY).map(Into::into)
}

/// This program again, for one test of it alone, in one thread: a process that can be killed and confined.
fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", &format!("inbox::tests::{test}"), "--test-threads=1", "--nocapture"])
        .env(DIRECTORY, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "{status}: it ended before it was killed");
}
