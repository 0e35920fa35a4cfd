//! The one child of a child, by its number in our own process namespace.
//!
//! /proc may be the outer namespace's: what it calls a process by is not what we call it by. Each level's number of a
//! process stands in its status.

use std::fs::read_to_string;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::stat;
use rustix::process::Pid;

/// A process, and the namespace of processes that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) pid: Pid,
    /// Device and inode of the namespace, where they may be looked at.
    pub(super) namespace: Option<(u64, u64)>,
}

/// The only child of the process behind `parent`; none where it has none or several.
pub(super) fn only_child(parent: &OwnedFd) -> Option<Found> {
    let about = read_to_string(format!("/proc/self/fdinfo/{}", parent.as_raw_fd())).ok()?;
    let parent = numbers(&about, "Pid:")?.first().copied()?;
    let children = read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let mut children = children.split_ascii_whitespace();
    let child = children.next().filter(|_| children.next().is_none())?;
    // As many levels as we ourselves have, seen from where /proc was mounted, lead to our own.
    let own = numbers(&read_to_string("/proc/self/status").ok()?, "NSpid:")?.len();
    let levels = numbers(&read_to_string(format!("/proc/{child}/status")).ok()?, "NSpid:")?;
    let pid = Pid::from_raw(*levels.get(own.checked_sub(1)?)?)?;
    let namespace = stat(format!("/proc/{child}/ns/pid")).ok().map(|found| (found.st_dev, found.st_ino));
    Some(Found { pid, namespace })
}

/// The numbers of a line.
fn numbers(text: &str, name: &str) -> Option<Vec<i32>> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use confine::sys::spawn::{Command, Program};

    use super::*;

    #[test]
    fn the_only_child_is_found() {
        let mut command = Command::new(Program::Path(c"/bin/sh".to_owned()));
        command.argv = vec![c"sh".to_owned(), c"-c".to_owned(), c"sleep 30 & wait".to_owned()];
        let shell = command.spawn().unwrap();
        let child = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            only_child(&shell.pidfd)
        });
        let child = child.unwrap().pid;
        rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
        confine::sys::wait::wait(std::os::fd::AsFd::as_fd(&shell.pidfd), confine::sys::wait::Ask::default())
            .unwrap();
        assert_eq!(only_child(&shell.pidfd), None);
    }
}
