//! What is left of a run, seen from the host.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

/// A live process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number on the host.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// R, S, T, Z ...
    pub state: char,
    /// The kernel's short name of the program.
    pub name: String,
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold anything, parentheses too: the last one closes it.
        let (head, tail) = stat.rsplit_once(") ")?;
        let mut fields = tail.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        Some(Process { pid, parent, state, name: head.split_once('(')?.1.to_owned() })
    }

    /// The command line, its words parted by spaces.
    pub fn command_line(&self) -> String {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    }

    /// Ended, and only not yet waited for.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Every process of the machine that this one can see.
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter_map(Process::read).collect()
}

/// The process and everything below it, parents first.
pub fn tree(root: u32) -> Vec<Process> {
    let all = all();
    let mut tree: Vec<Process> = all.iter().filter(|p| p.pid == root).cloned().collect();
    let mut at = 0;
    while let Some(parent) = tree.get(at).map(|p| p.pid) {
        tree.extend(all.iter().filter(|p| p.parent == parent && p.pid != root).cloned());
        at += 1;
    }
    tree
}

/// Those of these that live on, whatever they do now.
pub fn still(these: &[Process]) -> Vec<Process> {
    let is_one = |p: &Process| these.iter().any(|one| one.pid == p.pid && one.name == p.name);
    all().into_iter().filter(|p| !p.is_dead() && is_one(p)).collect()
}

/// Processes whose command line holds this text, other than the caller.
pub fn with_argument(text: &str) -> Vec<Process> {
    let own = std::process::id();
    all().into_iter().filter(|p| p.pid != own && !p.is_dead() && p.command_line().contains(text)).collect()
}

/// Processes that execute one of these files (device and inode): a copy made for one test marks its processes, whatever
/// they do to their names, arguments, parents and namespaces. Only root can see this of everybody.
pub fn executing(programs: &HashSet<(u64, u64)>) -> Vec<Process> {
    let is_one = |p: &Process| {
        // stat() goes through the link to the file itself, in whatever mount namespace that is.
        fs::metadata(format!("/proc/{}/exe", p.pid)).is_ok_and(|m| programs.contains(&(m.dev(), m.ino())))
    };
    all().into_iter().filter(|p| !p.is_dead() && is_one(p)).collect()
}

/// Waits until nothing is found any more; what is found at the end of the time otherwise.
pub fn wait_gone(time: Duration, mut find: impl FnMut() -> Vec<Process>) -> Vec<Process> {
    let end = Instant::now() + time;
    loop {
        let found = find();
        if found.is_empty() || Instant::now() > end {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until something is found.
pub fn wait_for(time: Duration, mut find: impl FnMut() -> Vec<Process>) -> Vec<Process> {
    let end = Instant::now() + time;
    loop {
        let found = find();
        if !found.is_empty() || Instant::now() > end {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal.
pub fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        // It may be gone already: that is what the caller finds out.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
    }
}
