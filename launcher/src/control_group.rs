//! The control group of a run (cgroup v2): limits on memory and tasks, and an end for everybody in it (LIM).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat, readlink, rmdir};
use rustix::io::{Errno, read, write};
use rustix::process::Pid;

/// The longest file of a control group that is looked at, in bytes.
const MAX_TEXT: usize = 4096;

/// anet-init is in the group and no task of the run's.
const OURS: u64 = 1;

/// A control group that was made for one run, by its directory.
#[derive(Debug)]
pub struct ControlGroup(OwnedFd);

/// What a control group counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Most memory, in bytes (kernels from 5.19 on).
    pub memory: Option<u64>,
    /// Most tasks (kernels from 6.1 on).
    pub tasks: Option<u64>,
    /// The kernel ended it for its memory.
    pub out_of_memory: bool,
}

impl ControlGroup {
    /// Takes the directory that was passed.
    #[must_use]
    pub fn new(directory: OwnedFd) -> ControlGroup {
        ControlGroup(directory)
    }

    /// Sets the limits.
    ///
    /// # Errors
    /// When the kernel does not take one: a limit that was promised has to hold.
    pub fn limit(&self, memory: Option<u64>, tasks: Option<u64>) -> io::Result<()> {
        if let Some(bytes) = memory {
            self.write("memory.max", &bytes.to_string())?;
            // Without this the limit would be on memory, and swap come on top. A kernel without swap has no such file.
            self.write_if_there("memory.swap.max", "0")?;
            // All of the run ends, not the process that happened to ask for the last page.
            self.write_if_there("memory.oom.group", "1")?;
        }
        if let Some(count) = tasks {
            self.write("pids.max", &count.saturating_add(OURS).to_string())?;
        }
        Ok(())
    }

    /// Moves a process into it, and with it all that it will start.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self, process: Pid) -> io::Result<()> {
        self.write("cgroup.procs", &process.as_raw_nonzero().to_string())
    }

    /// Ends everybody in it (kernels from 5.14 on).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self) -> io::Result<()> {
        self.write_if_there("cgroup.kill", "1")
    }

    /// Removes it, once nobody is in it.
    ///
    /// # Errors
    /// When somebody is, or it is not ours to remove.
    pub fn remove(self) -> io::Result<()> {
        let path = readlink(format!("/proc/self/fd/{}", self.0.as_raw_fd()), Vec::new())?;
        Ok(rmdir(&path)?)
    }

    /// What it counted so far.
    #[must_use]
    pub fn counted(&self) -> Counted {
        Counted {
            memory: self.read("memory.peak").and_then(|text| text.trim().parse().ok()),
            tasks: self
                .read("pids.peak")
                .and_then(|text| text.trim().parse().ok())
                .map(|peak: u64| peak.saturating_sub(OURS)),
            out_of_memory: self.read("memory.events").is_some_and(|text| killed(&text)),
        }
    }

    fn open(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat(self.0.as_fd(), name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let file = self.open(name, OFlags::WRONLY)?;
        // One write or none: these files take a value whole.
        write(&file, text.as_bytes())?;
        Ok(())
    }

    fn write_if_there(&self, name: &str, text: &str) -> io::Result<()> {
        match self.write(name, text) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn read(&self, name: &str) -> Option<String> {
        let file = self.open(name, OFlags::RDONLY).ok()?;
        let mut text = vec![0u8; MAX_TEXT];
        let length = read(&file, &mut text).ok()?;
        text.truncate(length);
        String::from_utf8(text).ok()
    }
}

/// memory.events: `oom_kill` counts processes that were ended for this limit, `oom_group_kill` whole groups.
fn killed(events: &str) -> bool {
    events.lines().any(|line| {
        matches!(line.split_once(' '), Some(("oom_kill" | "oom_group_kill", count)) if count.trim() != "0")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::open;

    use super::*;

    /// LIM-2: the limits are written as the kernel takes them, and what it counted is read.
    #[test]
    fn limits_are_written_and_counts_read() {
        let place = tempfile::tempdir().unwrap();
        for name in
            ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cgroup.procs", "cgroup.kill"]
        {
            fs::write(place.path().join(name), "").unwrap();
        }
        fs::write(place.path().join("memory.peak"), "4096\n").unwrap();
        fs::write(place.path().join("memory.events"), "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n").unwrap();
        let group = ControlGroup::new(open(place.path(), OFlags::DIRECTORY, Mode::empty()).unwrap());
        group.limit(Some(2 << 30), Some(256)).unwrap();
        group.kill().unwrap();
        let text = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
        assert_eq!(
            (text("memory.max"), text("memory.swap.max"), text("pids.max")),
            ("2147483648".into(), "0".into(), "257".into())
        );
        assert_eq!(text("memory.oom.group"), "1");
        assert_eq!(group.counted(), Counted { memory: Some(4096), tasks: None, out_of_memory: true });
        assert!(!killed("oom 0\noom_kill 0\n"));
    }

    /// LIM: a limit that cannot be set is an error, not a run without it.
    #[test]
    fn a_missing_controller_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let group = ControlGroup::new(open(place.path(), OFlags::DIRECTORY, Mode::empty()).unwrap());
        assert!(group.limit(Some(1), None).is_err());
        assert!(group.limit(None, None).is_ok());
    }
}
