//! Work directories that outlive their runs (FS-3).
//!
//! ```text
//! ROOT/PEER/INTERACTION/lock    held by the launcher of a run of it; its time is when the last run ended, or began, where
//!                               its launcher died
//! ROOT/PEER/INTERACTION/work    what the run sees as /work: the only one of them that it sees
//! ROOT/.removing/N              an interaction's directory on its way out: see `sweep`
//! ```
//!
//! So nothing that a run does to its own directory says how old it is, nor whether it is in use. Home, the temporary directory
//! and the record of placeholders are in `ROOT/RUN`, as any run's.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ipc_proto::launcher::Failure;
use ipc_proto::{Aid, Code, InteractionId};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, Timespec, Timestamps, fchmod, flock, fstat, futimens, mkdirat, unlinkat,
};
use rustix::io::Errno;

use super::{LOCK, Locked, Root, lock_file, lock_of};
use crate::failure::failure;
use crate::remove::{enter, is_private, open_directory};

/// What the run works in.
const WORK: &CStr = c"work";

/// The work directory of an interaction, while a run of it goes on.
#[derive(Debug)]
pub struct Kept {
    peer: CString,
    interaction: CString,
    path: PathBuf,
    directory: OwnedFd,
    lock: OwnedFd,
    /// It was made for this run.
    new: bool,
}

impl Locked<'_> {
    /// Takes an interaction's directory for a run, and makes it if it is not there. What is in `work` stays as it is.
    ///
    /// # Errors
    /// When another run of the interaction has it, or it cannot be made or is not ours alone.
    pub fn keep(&self, peer: &Aid, interaction: &InteractionId) -> Result<Kept, Failure> {
        let path = self.0.path.join(peer.as_str()).join(interaction.as_str());
        self.take(peer, interaction, &path).map_err(|error| {
            let shown = crate::failure::escape(path.as_os_str().as_bytes());
            failure(Code::StateUnusable, &format!("the work directory {shown} cannot be used: {error}"))
        })
    }

    fn take(&self, peer: &Aid, interaction: &InteractionId, path: &Path) -> io::Result<Kept> {
        let root = &self.0.directory;
        let (peer, interaction) = (name(peer.as_str())?, name(interaction.as_str())?);
        let (above, _) = make(root, &peer)?;
        let take = || {
            if lock_of(&above)?.is_some() {
                return Err(io::Error::other("a run goes by the peer's name; try again when it has ended"));
            }
            let (directory, new) = make(&above, &interaction)?;
            let lock = lock_file(&directory, LOCK)?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    return Err(io::Error::other("another run of this task has not ended yet"));
                }
                other => other?,
            }
            let kept = Kept { peer: peer.clone(), interaction, path: path.to_owned(), directory, lock, new };
            match kept.begin() {
                Err(error) if new => Err(kept.discard(root).err().unwrap_or(error)),
                other => other.map(|()| kept),
            }
        };
        take().inspect_err(|_| {
            // Only if nothing is in it.
            let _ = unlinkat(root, &peer, AtFlags::REMOVEDIR);
        })
    }
}

impl Kept {
    fn begin(&self) -> io::Result<()> {
        self.touch()?;
        match mkdirat(&self.directory, WORK, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // The last run may have closed it, to itself as well.
        Ok(fchmod(enter(&self.directory, WORK)?, Mode::RWXU)?)
    }

    /// The directory that the run works in, on the host.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Where it is on the host.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that its run goes on, or has just ended. (That takes no room on a disk that is full.)
    ///
    /// # Errors
    /// When the system refuses.
    pub fn touch(&self) -> io::Result<()> {
        touch(&self.lock, SystemTime::now())
    }

    /// Its run has ended: notes when, and lets the next one have it.
    ///
    /// # Errors
    /// When the time cannot be noted: then it is the one of the start.
    pub fn end(self) -> io::Result<()> {
        self.touch()
    }

    /// Its run came to nothing: as it was before, so if it was made for this run it goes.
    ///
    /// # Errors
    /// When it has to go and cannot.
    pub fn forget(self, root: &Root) -> io::Result<()> {
        if !self.new {
            return self.end();
        }
        let _locked = root.lock().map_err(|failure| io::Error::other(failure.text))?;
        self.discard(&root.directory)
    }

    /// Removes it, while the root is locked: nobody else looks at it between its last name and its own end.
    fn discard(&self, root: &OwnedFd) -> io::Result<()> {
        match unlinkat(&self.directory, WORK, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        unlinkat(&self.directory, LOCK, AtFlags::empty())?;
        let above = open_directory(root.as_fd(), &self.peer)?;
        unlinkat(&above, &self.interaction, AtFlags::REMOVEDIR)?;
        match unlinkat(root, &self.peer, AtFlags::REMOVEDIR) {
            // The peer has others.
            Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Gives a lock the time of `now`.
pub(super) fn touch(lock: &OwnedFd, now: SystemTime) -> io::Result<()> {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = Timespec {
        tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: since.subsec_nanos().into(),
    };
    Ok(futimens(lock, &Timestamps { last_access: at, last_modification: at })?)
}

/// A directory of ours alone, and whether it was made.
fn make(parent: &OwnedFd, name: &CStr) -> io::Result<(OwnedFd, bool)> {
    let made = match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let directory = open_directory(parent.as_fd(), name)?;
    match is_private(&fstat(&directory)?) {
        true => Ok((directory, made)),
        false => Err(io::Error::other("it belongs to another user, or others can get at it")),
    }
}

fn name(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    use ipc_proto::RunId;

    use super::*;

    fn aid(text: &str) -> Aid {
        text.parse().unwrap()
    }

    fn interaction(text: &str) -> InteractionId {
        text.parse().unwrap()
    }

    fn root() -> (tempfile::TempDir, Root) {
        let place = tempfile::tempdir().unwrap();
        let root = Root::open(&place.path().canonicalize().unwrap().join("runs")).unwrap();
        (place, root)
    }

    fn keep(root: &Root, peer: &str, id: &str) -> Result<Kept, Failure> {
        root.lock().unwrap().keep(&aid(peer), &interaction(id))
    }

    /// FS-3: what a run left is there for the next one of its task, and for nobody else's; two at once are refused.
    #[test]
    fn work_is_kept_for_the_next_run() {
        let (_place, root) = root();
        let first = keep(&root, "p1", "i1").unwrap();
        fs::write(first.work().join("file"), "left").unwrap();
        let refused = keep(&root, "p1", "i1").unwrap_err();
        assert_eq!(refused.code, Code::StateUnusable);
        assert!(refused.text.contains("another run of this task"), "{}", refused.text);
        let (other, stranger) = (keep(&root, "p1", "i2").unwrap(), keep(&root, "p2", "i1").unwrap());
        assert_eq!(fs::read_dir(other.work()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(stranger.work()).unwrap().count(), 0);
        first.end().unwrap();
        // The last run may have closed it, or opened it to everybody.
        for mode in [0o000, 0o7777] {
            let path = root.path.join("p1/i1/work");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let again = keep(&root, "p1", "i1").unwrap();
            assert_eq!(fs::metadata(again.work()).unwrap().permissions().mode() & 0o7777, 0o700);
            assert_eq!(fs::read_to_string(again.work().join("file")).unwrap(), "left");
        }
    }

    /// FS-3: its time is that of the last run, whatever the run did to the times of its own directory.
    #[test]
    fn the_end_is_noted_outside_of_work() {
        let (_place, root) = root();
        let kept = keep(&root, "p1", "i1").unwrap();
        let lock = kept.path().join("lock");
        touch(&kept.lock, SystemTime::UNIX_EPOCH).unwrap();
        kept.end().unwrap();
        let ended = fs::metadata(&lock).unwrap().modified().unwrap();
        assert!(SystemTime::now().duration_since(ended).unwrap() < Duration::from_secs(10));
        drop(keep(&root, "p1", "i1").unwrap());
        assert!(fs::metadata(&lock).unwrap().modified().unwrap() >= ended);
    }

    /// SBX-5: a run that came to nothing leaves nothing, but what was there before.
    #[test]
    fn what_came_to_nothing_leaves_nothing() {
        let (_place, root) = root();
        keep(&root, "p1", "i1").unwrap().end().unwrap();
        keep(&root, "p1", "i1").unwrap().forget(&root).unwrap();
        assert!(root.path.join("p1/i1/work").is_dir());
        keep(&root, "p1", "i2").unwrap().forget(&root).unwrap();
        assert!(!root.path.join("p1/i2").exists() && root.path.join("p1").exists());
        keep(&root, "p2", "i1").unwrap().forget(&root).unwrap();
        assert!(!root.path.join("p2").exists());
    }

    /// FS-5: what is not ours alone, or is a link, is neither used nor followed.
    #[test]
    fn links_and_open_directories_are_refused() {
        let (place, root) = root();
        let outside = place.path().join("outside");
        fs::create_dir_all(outside.join("i1/work")).unwrap();
        symlink(&outside, root.path.join("linked")).unwrap();
        assert!(keep(&root, "linked", "i1").is_err());
        keep(&root, "p1", "i0").unwrap().end().unwrap();
        symlink(outside.join("i1"), root.path.join("p1/i1")).unwrap();
        assert!(keep(&root, "p1", "i1").is_err());
        let open = keep(&root, "p1", "i2").unwrap().path().to_owned();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(keep(&root, "p1", "i2").is_err());
        // In the place of the work directory itself.
        let replaced = keep(&root, "p1", "i3").unwrap();
        fs::remove_dir(replaced.work()).unwrap();
        symlink(&outside, replaced.work()).unwrap();
        drop(replaced);
        assert!(keep(&root, "p1", "i3").is_err());
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o755, "not followed");
        assert!(outside.join("i1/work").is_dir() && !outside.join("i1/lock").exists());
    }

    /// FS-3, FS-5: a peer may be called like a run, and its tasks like what is in a run's directory: neither is taken for the
    /// other.
    #[test]
    fn peers_with_names_of_runs_are_told_from_runs() {
        let (_place, root) = root();
        let run = RunId::new(1, [0, 0, 0, 1]);
        let name = run.to_string();
        for id in ["lock", "placeholders", "work", "home", "tmp"] {
            keep(&root, &name, id).unwrap().end().unwrap();
        }
        let neighbours = root.lock().unwrap().neighbours().unwrap();
        assert!(neighbours.stale.is_empty() && neighbours.live.is_empty());
        assert!(root.lock().unwrap().create(run, &[]).is_err(), "its name is taken");
        for id in ["lock", "placeholders", "work", "home", "tmp"] {
            assert!(root.path.join(&name).join(id).join("work").is_dir(), "{id}");
        }
        // And the other way round.
        let run = RunId::new(1, [0, 0, 0, 2]);
        let live = root.lock().unwrap().create(run, &["home"]).unwrap();
        let refused = keep(&root, &run.to_string(), "home").unwrap_err();
        assert!(refused.text.contains("a run goes by the peer's name"), "{}", refused.text);
        assert_eq!(fs::read_dir(live.path()).unwrap().count(), 2);
        // A launcher that died while it made a run's directory.
        let torn = root.path.join(RunId::new(1, [0, 0, 0, 3]).to_string());
        fs::create_dir(&torn).unwrap();
        fs::set_permissions(&torn, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(root.lock().unwrap().neighbours().unwrap().stale.len(), 1);
    }
}
