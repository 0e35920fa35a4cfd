//! The inbox in a process with the privileges of the node's supervisor, and no others.

use std::os::fd::AsFd;

use confine::Paths;
use confine::manifest::Role;
use rustix::fs::{Mode, OFlags, open};

use super::*;

/// PRV-3, PRV-4: all that the inbox does is on the supervisor's list of system calls and within its directory: the kernel ends
/// a process that does anything else.
#[test]
fn the_inbox_needs_no_more_than_its_process_may() {
    if let Some(dir) = directory() {
        let opened = open(&dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        // As `confine::enter` does, for this thread alone: the test has others.
        rustix::thread::set_no_new_privs(true).unwrap();
        let domain = confine::manifest::privileges(Role::Node).landlock.as_ref().unwrap();
        confine::landlock::restrict(domain, &Paths { writable: &[opened.as_fd()], ..Paths::default() })
            .unwrap();
        confine::seccomp::install(Role::Node).unwrap();
        assert!(std::fs::File::open("/etc/passwd").is_err(), "not confined");
        for _ in 0..2 {
            everything_that_there_is(&dir);
        }
        println!("\nall of it");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output =
        child("confined::the_inbox_needs_no_more_than_its_process_may", dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\nall of it\n"), "{}: {said}", output.status);
}

fn everything_that_there_is(dir: &Path) {
    let mut inbox = Inbox::open(dir).unwrap();
    assert!(matches!(Inbox::open(dir), Err(InboxError::InUse)));
    inbox.interrupted(1000, &refusal()).unwrap();
    for number in 0..200 {
        let name = format!("i{number}");
        submit(&mut inbox, "p", &name, &"text ".repeat(number * 20 + 1)).unwrap();
        match number % 3 {
            0 => inbox.refuse(&id(&name), 2000, false, &refusal()).unwrap(),
            1 => {
                inbox.begin(&id(&name), run(number as u64), Way::Sandbox, false, 2000).unwrap();
                let answer = "answer ".repeat(number * 100);
                inbox.finish(&id(&name), 3000, &answered(&answer), Some((run(number as u64), "{}"))).unwrap();
            }
            _ => {}
        }
    }
    let rows = everything(&inbox);
    assert!(rows.len() > 1000);
    submit(&mut inbox, "p", "large", &"x".repeat(1024 * 1024)).unwrap();
    inbox.begin(&id("large"), run(7777), Way::Sandbox, false, 2000).unwrap();
    inbox
        .finish(&id("large"), 3000, &answered(&"x".repeat(16 * 1024 * 1024)), Some((run(7777), "{}")))
        .unwrap();
    while inbox.prune(9000, 0).unwrap().more {}
    assert_sound(&inbox);
}
