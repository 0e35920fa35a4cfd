//! One node a state directory: two would spend one budget twice.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use ipc_proto::Code;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::super::Directories;
use super::super::directories::unusable;
use crate::error::Trouble;
use crate::explain;
use crate::node::job::Mode;

const NAME: &str = "node.lock";

/// Held as long as this lives, by this process alone: no program that it starts has the descriptor.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code, reason = "holding it is what it is for")] File);

impl Lock {
    /// Takes it.
    ///
    /// # Errors
    /// [`Code::NodeRunning`] where another one has it, [`Code::StateUnusable`].
    pub(super) fn take(directories: &Directories, mode: Mode) -> Result<Lock, Trouble> {
        match try_take(directories, mode)? {
            Some(lock) => Ok(lock),
            None => Err(Trouble::new(Code::NodeRunning, explain::sentence(Code::NodeRunning))),
        }
    }

    /// Whether a process holds it: a guard is started by whoever does.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub(super) fn is_held(directories: &Directories, mode: Mode) -> Result<bool, Trouble> {
        Ok(try_take(directories, mode)?.is_none())
    }
}

fn try_take(directories: &Directories, mode: Mode) -> Result<Option<Lock>, Trouble> {
    directories.make_state(mode)?;
    let path = directories.state.join(NAME);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0))
        .open(&path)
        .map_err(|error| unusable(&path, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(unusable(&path, &errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two daemons at once: the second is told, and the lock is free when the first has ended.
    #[test]
    fn a_second_one_is_told() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let directories = Directories {
            configuration: place.path().into(),
            cache: place.path().into(),
            data: place.path().into(),
            state,
        };
        assert!(!Lock::is_held(&directories, Mode::User).unwrap());
        let first = Lock::take(&directories, Mode::User).unwrap();
        assert!(Lock::is_held(&directories, Mode::User).unwrap());
        assert_eq!(Lock::take(&directories, Mode::User).unwrap_err().code, Code::NodeRunning);
        drop(first);
        assert!(Lock::take(&directories, Mode::User).is_ok());
    }
}
