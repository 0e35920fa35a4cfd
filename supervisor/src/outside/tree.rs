//! Whose child is whose, and signals to all of them.
//!
//! A process is signalled through a descriptor of it, and only if it still has the parent that it was listed with: a number
//! that was given to somebody else's process meanwhile is never meant by mistake.

use std::collections::HashMap;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// A process as /proc shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    pid: Pid,
    parent: Option<Pid>,
    /// It has ended, and waits for its parent to ask how.
    is_zombie: bool,
}

/// What a round of signals came to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Round {
    /// Processes that got the signal.
    pub(super) reached: usize,
    /// Processes that are another user's by now (as `sudo` is), and not ours to end.
    pub(super) refused: usize,
}

/// Sends `signal` to every living descendant of this process, but for the children in `except` and what is below them.
pub(super) fn signal_descendants(signal: Signal, except: &dyn Fn(Pid) -> bool) -> Round {
    let mut round = Round::default();
    for process in descendants(getpid(), &all(), except) {
        match signal_one(process, signal) {
            Ok(()) => round.reached += 1,
            Err(Errno::PERM) => round.refused += 1,
            // It has ended, or is another one.
            Err(_) => {}
        }
    }
    round
}

fn signal_one(process: Seen, signal: Signal) -> Result<(), Errno> {
    let descriptor = pidfd_open(process.pid, PidfdFlags::empty())?;
    // From here on the descriptor and the number mean one process, or the process has ended.
    if look(process.pid).is_none_or(|now| now.parent != process.parent) {
        return Err(Errno::SRCH);
    }
    pidfd_send_signal(&descriptor, signal)
}

/// Living processes below `top`, parents first.
fn descendants(top: Pid, all: &[Seen], except: &dyn Fn(Pid) -> bool) -> Vec<Seen> {
    let mut below: HashMap<Pid, Vec<Seen>> = HashMap::new();
    for process in all {
        if let Some(parent) = process.parent {
            below.entry(parent).or_default().push(*process);
        }
    }
    let mut found = Vec::new();
    let mut level = below.remove(&top).unwrap_or_default();
    level.retain(|child| !except(child.pid));
    while !level.is_empty() {
        let next = level.iter().flat_map(|process| below.remove(&process.pid).unwrap_or_default()).collect();
        found.extend(level.into_iter().filter(|process| !process.is_zombie));
        level = next;
    }
    found
}

/// Every process that can be seen. One that is made or ends meanwhile may be missing: whoever wants all of them asks again.
fn all() -> Vec<Seen> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| look(number(entry.file_name().to_str()?)?)).collect()
}

fn look(pid: Pid) -> Option<Seen> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parse(pid, &stat)
}

/// `PID (NAME) STATE PARENT ...` (proc_pid_stat(5)). The name may hold anything, a parenthesis too.
fn parse(pid: Pid, stat: &[u8]) -> Option<Seen> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_ends + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    Some(Seen { pid, parent: number(fields.next()?), is_zombie })
}

fn number(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(raw: i32) -> Pid {
        Pid::from_raw(raw).unwrap()
    }

    fn seen(of: i32, parent: i32, is_zombie: bool) -> Seen {
        Seen { pid: pid(of), parent: Pid::from_raw(parent), is_zombie }
    }

    /// SEL-4: a name cannot pass for another parent.
    #[test]
    fn a_parent_is_read_behind_the_name() {
        let read = |text: &str| parse(pid(7), text.as_bytes());
        assert_eq!(read("7 (sh) S 5 7 7 0"), Some(seen(7, 5, false)));
        assert_eq!(read("7 (a) S 1 (b) Z 5 7"), Some(seen(7, 5, true)));
        assert_eq!(read("1 (init) S 0 1"), Some(seen(7, 0, false)));
        for bad in ["", "7 sh S 5", "7 (sh)", "7 (sh) S", "7 (sh"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(parse(pid(7), b"7 (\xff) R 5 0"), Some(seen(7, 5, false)));
    }

    /// SEL-4: all that is below, however deep, and nothing beside it; a child that is excepted is, with all below it.
    #[test]
    fn descendants_are_all_that_is_below() {
        let all = [
            seen(1, 0, false),
            seen(40, 21, false),
            seen(10, 1, false),
            seen(20, 10, false),
            seen(21, 20, true),
            seen(30, 10, false),
            seen(31, 30, false),
            seen(50, 1, false),
        ];
        let of = |except: i32| -> Vec<i32> {
            let found = descendants(pid(10), &all, &|child| child == pid(except));
            found.into_iter().map(|process| process.pid.as_raw_nonzero().get()).collect()
        };
        assert_eq!(of(99), [20, 30, 31, 40]);
        assert_eq!(of(30), [20, 40]);
        assert_eq!(of(20), [30, 31]);
    }

    /// SEL-4: a real child is found and reached, and when it has ended there is nobody to reach.
    #[test]
    fn a_child_is_found_and_ended() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let own = Pid::from_child(&child);
        // Tests run beside each other, and only this one is ours.
        let only = |other: Pid| other != own;
        assert_eq!(signal_descendants(Signal::KILL, &only), Round { reached: 1, refused: 0 });
        child.wait().unwrap();
        assert_eq!(signal_descendants(Signal::KILL, &only), Round::default());
    }
}
