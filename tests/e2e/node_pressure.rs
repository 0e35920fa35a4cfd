//! A node that is leaned on: a log that nobody reads, a test that nobody waits for, a database that is taken away.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde_json::Value;
use tests::node::{Node, shell_agent, until};
use tests::person::{Person, Who};

use crate::node_basics::code_of;

const PATIENCE: Duration = Duration::from_secs(20);

fn runs(status: &Value) -> usize {
    status["runs"].as_array().expect("runs").len()
}

/// PRV-6: a node serves on when nobody reads what it logs: a reader that hangs costs lines, and no task its answer.
#[test]
fn an_unread_log_costs_nobody_an_answer() {
    let person = Person::new(Who::User);
    let mut node = Node::new(&person, None, &shell_agent("command = [\"/bin/cat\"]", "runs_per_day = 1000"));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let writer = OwnedFd::from(writer);
    // One page: a few dozen lines.
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a small pipe");
    node.spawn_logging_to(File::from(writer));
    node.wait_serving();
    for number in 0..120 {
        let task = format!("task {number}");
        node.ask("friend", &task).expect_out(&task);
    }
    drop(reader);
    node.ask("friend", "the last").expect_out("the last");
}

/// SEL-3, RUN-1: a test is for whoever asked for it: one at a time, and over when nobody waits for it any more.
#[test]
fn a_test_ends_with_whoever_asked_for_it() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    let mut asking = node.anet(["autoreply", "test", "sleep 100"]).command().spawn().expect("a test");
    node.wait_status("the test runs", |status| runs(status) == 1);
    let second = node.anet(["autoreply", "test", "echo no"]).output();
    assert_eq!(code_of(&second), "sandbox_unavailable", "{second}");
    asking.kill().expect("the test's client is ended");
    asking.wait().expect("wait");
    node.wait_status("the test is over", |status| runs(status) == 0);
    node.anet(["autoreply", "test", "echo yes"]).output().expect_out("yes");
}

/// ACC-1: a database that is taken away takes no task with it: nothing more is acknowledged, and the operator hears which file it is.
#[test]
fn a_removed_database_takes_no_task() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    node.ask("friend", "echo before").expect_out("before");
    let database = node.database();
    fs::rename(&database, database.with_extension("away")).expect("the database is taken away");
    until("the node notices", PATIENCE, || {
        let refused = node.anet(["submit", "--peer", "friend", "echo after"]).output();
        if refused.code() == 75 { Ok(()) } else { Err(format!("{refused}")) }
    });
    let status = node.status();
    let warned =
        status["warnings"].as_array().expect("warnings").iter().any(|warning| {
            warning["sentence"].as_str().is_some_and(|sentence| sentence.contains("inbox.db"))
        });
    assert!(warned, "{status}");
}
