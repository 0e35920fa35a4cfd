//! Where direct runs work (FS-3).
//!
//! ```text
//! ROOT/PEER/INTERACTION/work     where the agent works, kept from run to run
//! ROOT/PEER/INTERACTION/ended    since its last run ended: when is its time of modification
//! ROOT/PEER/INTERACTION/RUN/task a task that is passed as a file, as long as its run lives
//! ROOT/.removing-N               on its way out: no peer has such a name
//! ```
//!
//! Every directory is ours, private, and reached without a link. What is not is left alone.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ipc_proto::{Aid, InteractionId, RunId};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, fstat, mkdirat, open, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::removal;
use crate::error::one_line;

const WORK: &CStr = c"work";
const ENDED: &CStr = c"ended";
const TASK: &CStr = c"task";
/// What a directory that is being removed is called, before a number.
const REMOVING: &str = ".removing-";
/// The longest that one sweep goes on. What it did not come to it leaves for the next.
const SWEEP_TIME: Duration = Duration::from_secs(300);

/// Why a task has no place.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    /// Something cannot be made or opened.
    #[error("the work directory {path} cannot be used ({errno}); see its rights and the space on its disk")]
    Unusable {
        /// Which.
        path: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// It is not ours alone.
    #[error(
        "{0} belongs to another user or can be written by others, so no agent works below it; make it yours alone"
    )]
    NotOurs(String),
    /// A run of the same interaction works there.
    #[error("another run of this interaction still works in its directory")]
    Taken,
}

/// The root, and who works below it.
#[derive(Clone, Debug)]
pub(super) struct Places {
    root: PathBuf,
    taken: Arc<Mutex<HashSet<(Aid, InteractionId)>>>,
}

/// An interaction's directory, while a run works in it.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    of: (Aid, InteractionId),
    directory: OwnedFd,
    path: PathBuf,
    run: CString,
}

/// What a sweep came to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Swept {
    pub(super) removed: u64,
    pub(super) left: u64,
}

impl Places {
    pub(super) fn new(root: PathBuf) -> Places {
        Places { root, taken: Arc::default() }
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<(Aid, InteractionId)>> {
        // Whoever panicked with it in hand has left a set that is whole.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The root, if it is there: ours, and nobody else's to write.
    fn open_root(&self) -> Result<OwnedFd, PlaceError> {
        let unusable = |errno| unusable(&self.root, errno);
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = open(&self.root, flags, Mode::empty()).map_err(unusable)?;
        let stat = fstat(&root).map_err(unusable)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(PlaceError::NotOurs(shown(&self.root)));
        }
        Ok(root)
    }

    /// Makes an interaction's directories, where they are missing, for a run.
    pub(super) fn enter(
        &self,
        peer: &Aid,
        interaction: &InteractionId,
        run: RunId,
    ) -> Result<Place, PlaceError> {
        // As long as this is held no sweep takes a directory away.
        let mut taken = self.taken();
        let of = (peer.clone(), interaction.clone());
        if taken.contains(&of) {
            return Err(PlaceError::Taken);
        }
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .recursive(true)
            .create(&self.root)
            .map_err(|error| unusable(&self.root, Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let root = self.open_root()?;
        let peer_path = self.root.join(peer.as_str());
        let path = peer_path.join(interaction.as_str());
        let peers = make(root.as_fd(), &name(peer.as_str())?, &peer_path)?;
        let directory = make(peers.as_fd(), &name(interaction.as_str())?, &path)?;
        make(directory.as_fd(), WORK, &path.join("work"))?;
        match unlinkat(&directory, ENDED, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(unusable(&path.join("ended"), errno)),
        }
        taken.insert(of.clone());
        Ok(Place { places: self.clone(), of, directory, path, run: name(&run.to_string())? })
    }

    /// Removes the directories whose last run ended longer ago than `age`.
    pub(super) fn sweep(&self, age: Duration, say: &mut dyn FnMut(&str)) -> Swept {
        let mut swept = Swept::default();
        let until = Instant::now() + SWEEP_TIME;
        let root = match self.open_root() {
            Ok(root) => root,
            // No run has been here yet.
            Err(PlaceError::Unusable { errno: Errno::NOENT, .. }) => return swept,
            Err(error) => {
                say(&error.to_string());
                return swept;
            }
        };
        for entry in names(&self.root) {
            if entry.starts_with(REMOVING) {
                // A sweep that was cut short.
                self.finish(&entry, until, &mut swept, say);
            } else if let Ok(peer) = entry.parse::<Aid>() {
                self.sweep_peer(&root, &peer, age, until, &mut swept, say);
            }
        }
        swept
    }

    fn sweep_peer(
        &self,
        root: &OwnedFd,
        peer: &Aid,
        age: Duration,
        until: Instant,
        swept: &mut Swept,
        say: &mut dyn FnMut(&str),
    ) {
        let Ok(peer_name) = name(peer.as_str()) else { return };
        let Some(directory) = ours(root.as_fd(), &peer_name) else { return };
        for entry in names(&self.root.join(peer.as_str())) {
            let Ok(interaction) = entry.parse::<InteractionId>() else { continue };
            match self.take_away(root, peer, &directory, &interaction, age) {
                Ok(Some(removing)) => self.finish(&removing, until, swept, say),
                Ok(None) => {}
                Err(errno) => {
                    swept.left += 1;
                    say(&unusable(&self.root.join(peer.as_str()).join(&entry), errno).to_string());
                }
            }
        }
        let _held = self.taken();
        // Only if nothing of the peer's is left.
        let _ = unlinkat(root, &peer_name, AtFlags::REMOVEDIR);
    }

    /// Gives an interaction's directory another name if its time has come, so that no run finds it any more.
    fn take_away(
        &self,
        root: &OwnedFd,
        peer: &Aid,
        peers: &OwnedFd,
        interaction: &InteractionId,
        age: Duration,
    ) -> Result<Option<String>, Errno> {
        let taken = self.taken();
        if taken.contains(&(peer.clone(), interaction.clone())) {
            return Ok(None);
        }
        let interaction = name(interaction.as_str()).map_err(|_| Errno::INVAL)?;
        let Some(directory) = ours(peers.as_fd(), &interaction) else { return Ok(None) };
        let ended = match statat(&directory, ENDED, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                SystemTime::UNIX_EPOCH
                    + Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0))
                    + Duration::from_nanos(stat.st_mtime_nsec)
            }
            // Its run was cut short: it ends now, for all that is known.
            Err(Errno::NOENT) => {
                mark_ended(&directory)?;
                return Ok(None);
            }
            Err(errno) => return Err(errno),
        };
        // A clock that was set back makes nothing older.
        if ended.elapsed().is_ok_and(|old| old >= age) {
            return move_away(root, peers, &interaction).map(Some);
        }
        Ok(None)
    }

    fn finish(&self, removing: &str, until: Instant, swept: &mut Swept, say: &mut dyn FnMut(&str)) {
        if Instant::now() >= until {
            swept.left += 1;
            return;
        }
        let path = self.root.join(removing);
        match removal::remove(&path) {
            Ok(()) => swept.removed += 1,
            Err(error) => {
                swept.left += 1;
                say(&format!("an old work directory could not be removed: {}: {error}", shown(&path)));
            }
        }
    }
}

impl Place {
    /// Where the agent works.
    pub(super) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Where a task is passed as a file.
    pub(super) fn task(&self) -> PathBuf {
        self.path.join(self.run.to_string_lossy().as_ref()).join("task")
    }

    /// Writes the task into its file, for the agent to read.
    pub(super) fn write_task(&self, task: &[u8]) -> Result<(), PlaceError> {
        let unusable = |errno| unusable(&self.task(), errno);
        mkdirat(&self.directory, &self.run, Mode::RWXU).map_err(unusable)?;
        let private = open_directory(self.directory.as_fd(), &self.run).map_err(unusable)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&private, TASK, flags, Mode::RUSR | Mode::WUSR).map_err(unusable)?;
        let mut rest = task;
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest).map_err(unusable)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// The run has ended: its task goes, the work stays.
    pub(super) fn leave(&self) -> Result<(), PlaceError> {
        let path = self.path.join(self.run.to_string_lossy().as_ref());
        match removal::remove(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(unusable(&path, Errno::from_io_error(&error).unwrap_or(Errno::IO))),
        }
        mark_ended(&self.directory).map_err(|errno| unusable(&self.path.join("ended"), errno))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().remove(&self.of);
    }
}

fn mark_ended(directory: &OwnedFd) -> Result<(), Errno> {
    match unlinkat(directory, ENDED, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, ENDED, flags, Mode::RUSR | Mode::WUSR).map(drop)
}

/// Moves a directory to the top, under a name that nothing has.
fn move_away(root: &OwnedFd, from: &OwnedFd, old: &CStr) -> Result<String, Errno> {
    for number in 0u32.. {
        let new = format!("{REMOVING}{number}");
        match renameat_with(from, old, root, new.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(new),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

/// A private directory of ours, made if it is missing.
fn make(parent: BorrowedFd<'_>, name: &CStr, path: &Path) -> Result<OwnedFd, PlaceError> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(unusable(path, errno)),
    }
    let directory = open_directory(parent, name).map_err(|errno| unusable(path, errno))?;
    let stat = fstat(&directory).map_err(|errno| unusable(path, errno))?;
    if stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0 {
        Ok(directory)
    } else {
        Err(PlaceError::NotOurs(shown(path)))
    }
}

/// A directory of ours, if that is what stands there.
fn ours(parent: BorrowedFd<'_>, name: &CStr) -> Option<OwnedFd> {
    let directory = open_directory(parent, name).ok()?;
    (fstat(&directory).ok()?.st_uid == rustix::process::geteuid().as_raw()).then_some(directory)
}

fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(parent, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Names in a directory; those that are no text are none of ours.
fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn name(text: &str) -> Result<CString, PlaceError> {
    CString::new(text).map_err(|_| unusable(Path::new(text), Errno::INVAL))
}

fn unusable(path: &Path, errno: Errno) -> PlaceError {
    PlaceError::Unusable { path: shown(path), errno }
}

fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

#[cfg(test)]
mod tests;
