//! The directories of a run: made, locked while it lives, and removed; after a crash by the next start.
//!
//! ```text
//! ROOT/.lock            held while runs are made or looked for: a directory without its lock is one being made
//! ROOT/RUN/lock         held by the launcher of a run as long as it lives
//! ROOT/RUN/placeholders what was done to the host for it
//! ROOT/RUN/{work,home,tmp}
//! ```
//!
//! A run of a peer's task has its `work` elsewhere, where it outlives the run: see [`kept`]. Everything else of it is here as
//! any run's.

pub mod kept;
pub mod sweep;

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use ipc_proto::launcher::Failure;
use ipc_proto::{Code, RunId};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, Stat, flock, fstat, mkdirat, open, openat, stat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::failure::failure;
use crate::placeholder::{self, Entry};
use crate::remove::{Reading, Removal, is_file, is_private, open_directory};

/// A run's lock, in its directory.
const LOCK: &CStr = c"lock";
/// The root's.
const ROOT_LOCK: &CStr = c".lock";
/// How often the root's lock is tried, and how long is waited in between: whoever holds it does so for milliseconds.
const TRIES: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);
/// How many directories of dead launchers are taken over at a time, each with its descriptors. The next start finds the rest.
const MOST_STALE: usize = 64;

/// Where runs have their directories.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    directory: OwnedFd,
    lock: OwnedFd,
}

/// The root while its lock is held.
#[derive(Debug)]
pub struct Locked<'a>(&'a Root);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // The descriptor is ours and open: unlocking it cannot fail.
        let _ = flock(&self.0.lock, FlockOperation::Unlock);
    }
}

/// The directories of one run.
#[derive(Debug)]
pub struct RunDirectory {
    name: CString,
    path: PathBuf,
    directory: OwnedFd,
    // Held until the run's directory is gone.
    _lock: OwnedFd,
}

/// What was found beside a new run.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// Directories of runs whose launcher died. Their placeholders are gone already.
    pub stale: Vec<RunDirectory>,
    /// What was done to the host for runs that live.
    pub live: Vec<Entry>,
    /// How many placeholders of dead launchers' runs could not be removed.
    pub left: usize,
}

impl Root {
    /// Opens the root, and makes it if it is missing.
    ///
    /// # Errors
    /// When it cannot be made, or others could change it.
    pub fn open(path: &Path) -> Result<Root, Failure> {
        let trouble = |error: io::Error| unusable(path, &error);
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .recursive(true)
            .create(path)
            .map_err(trouble)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty()).map_err(|error| trouble(error.into()))?;
        let stat = fstat(&directory).map_err(|error| trouble(error.into()))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(trouble(io::Error::other("it belongs to another user or can be written by others")));
        }
        let lock = lock_file(&directory, ROOT_LOCK).map_err(trouble)?;
        Ok(Root { path: path.to_owned(), directory, lock })
    }

    /// Whether its path still leads to it. Somebody who cleans a cache may have removed it, or made it anew.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let same = || -> Result<bool, Errno> {
            let (ours, there) = (fstat(&self.directory)?, stat(&self.path)?);
            // The lock too: another launcher would make another one, and both would hold one.
            let (lock, lock_there) =
                (fstat(&self.lock)?, statat(&self.directory, ROOT_LOCK, AtFlags::SYMLINK_NOFOLLOW)?);
            let which = |stat: &Stat| (stat.st_dev, stat.st_ino);
            Ok(which(&ours) == which(&there) && which(&lock) == which(&lock_there))
        };
        same().unwrap_or(false)
    }

    /// Waits for the root's lock.
    ///
    /// # Errors
    /// When somebody holds it for seconds.
    pub fn lock(&self) -> Result<Locked<'_>, Failure> {
        for _ in 0..TRIES {
            match self.try_lock().map_err(|error| unusable(&self.path, &error))? {
                Some(locked) => return Ok(locked),
                None => sleep(PAUSE),
            }
        }
        Err(unusable(&self.path, &io::Error::other("another launcher keeps it locked")))
    }

    /// The root's lock, unless somebody holds it just now.
    ///
    /// # Errors
    /// When the system has no locks there.
    pub fn try_lock(&self) -> io::Result<Option<Locked<'_>>> {
        match flock(&self.lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Locked(self))),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Locked<'_> {
    /// Takes over what dead launchers left, and undoes what they did to the host.
    ///
    /// # Errors
    /// When the root cannot be read.
    pub fn neighbours(&self) -> Result<Neighbours, Failure> {
        let trouble = |error: io::Error| unusable(&self.0.path, &error);
        let mut neighbours = Neighbours::default();
        let mut left_by_the_dead = Vec::new();
        for name in self.names().map_err(trouble)? {
            let Some(directory) = self.run_directory(&name) else { continue };
            let entries = placeholder::read(&directory).map_err(trouble)?;
            let lock = match lock_file(&directory, LOCK) {
                // Its launcher has removed it since it was opened: runs end without the root's lock.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock.map_err(trouble)?,
            };
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if neighbours.stale.len() < MOST_STALE => {
                    left_by_the_dead.push(entries);
                    let path = self.0.path.join(OsStr::from_bytes(name.as_bytes()));
                    neighbours.stale.push(RunDirectory { name, path, directory, _lock: lock });
                }
                // One more than are taken over now counts as one that lives.
                Ok(()) | Err(_) => neighbours.live.extend(entries),
            }
        }
        for entries in left_by_the_dead {
            // What cannot be undone now, a network mount that is away say, is looked at again at no time: its record goes
            // with the directory. An empty directory is all that stays.
            neighbours.left += placeholder::sweep(&entries, &neighbours.live);
        }
        Ok(neighbours)
    }

    /// The directory of a run, if it is one that a launcher of ours made: nothing else is believed or removed.
    fn run_directory(&self, name: &CStr) -> Option<OwnedFd> {
        name.to_str().ok()?.parse::<RunId>().ok()?;
        let directory = open_directory(self.0.directory.as_fd(), name).ok()?;
        if !is_private(&fstat(&directory).ok()?) {
            return None;
        }
        match lock_of(&directory).ok()? {
            Some(_) => Some(directory),
            // One that was being made when its launcher died has nothing in it. Else a peer goes by such a name.
            None => is_empty(&directory).ok()?.then_some(directory),
        }
    }

    /// What was done to the host for the runs that live, but for the one of `own`.
    ///
    /// # Errors
    /// When the root cannot be read.
    pub fn others(&self, own: &RunDirectory) -> io::Result<Vec<Entry>> {
        let mut live = Vec::new();
        for name in self.names()?.into_iter().filter(|name| *name != own.name) {
            if let Some(directory) = self.run_directory(&name) {
                live.extend(placeholder::read(&directory)?);
            }
        }
        Ok(live)
    }

    /// Makes a run's directories.
    ///
    /// # Errors
    /// When one cannot be made, or the run's name is taken.
    pub fn create(&self, run: RunId, parts: &[&str]) -> Result<RunDirectory, Failure> {
        let trouble = |error: io::Error| unusable(&self.0.path, &error);
        let name = CString::new(run.to_string()).map_err(|error| trouble(io::Error::other(error)))?;
        mkdirat(&self.0.directory, &name, Mode::RWXU).map_err(|error| trouble(error.into()))?;
        let directory =
            open_directory(self.0.directory.as_fd(), &name).map_err(|error| trouble(error.into()))?;
        let lock = lock_file(&directory, LOCK).map_err(trouble)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| trouble(error.into()))?;
        for part in parts {
            mkdirat(&directory, *part, Mode::RWXU).map_err(|error| trouble(error.into()))?;
        }
        Ok(RunDirectory { path: self.0.path.join(run.to_string()), name, directory, _lock: lock })
    }

    fn names(&self) -> io::Result<Vec<CString>> {
        let root = openat(&self.0.directory, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut reading = Reading::new(root);
        let mut names = Vec::new();
        while let Some((name, _)) = reading.next_name()? {
            if *name != *ROOT_LOCK {
                names.push(name);
            }
        }
        Ok(names)
    }
}

impl RunDirectory {
    /// Where it is on the host.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself.
    #[must_use]
    pub fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Begins to empty it.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn removal(&self) -> io::Result<Removal> {
        Ok(Removal::new(self.directory.try_clone()?, LOCK))
    }

    /// Removes the emptied directory.
    ///
    /// # Errors
    /// When it is not empty, or was replaced.
    pub fn remove(self, root: &Root) -> io::Result<()> {
        unlinkat(&self.directory, LOCK, AtFlags::empty())?;
        Ok(unlinkat(&root.directory, &self.name, AtFlags::REMOVEDIR)?)
    }
}

/// The lock in a directory of a run or an interaction. A peer's directory has none, as it has only directories in it: of
/// interactions, whatever their names are.
fn lock_of(directory: &OwnedFd) -> Result<Option<Stat>, Errno> {
    match statat(directory, LOCK, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found).filter(is_file)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    let again = openat(directory, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Reading::new(again).next_name()?.is_none())
}

fn lock_file(directory: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?)
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    let path = crate::failure::escape(path.as_os_str().as_bytes());
    failure(Code::StateUnusable, &format!("the directory for runs, {path}, cannot be used: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placeholder::Record;

    fn run(number: u8) -> RunId {
        RunId::new(1, [0, 0, 0, number])
    }

    /// FS-5: a run that ends while another one looks for neighbours keeps it from nothing.
    #[test]
    fn runs_that_end_meanwhile_are_no_trouble() {
        const ROUNDS: u8 = 25;
        const RUNS: u8 = 150;
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap().join("runs");
        let (ending, looking) = (Root::open(&base).unwrap(), Root::open(&base).unwrap());
        for round in 0..ROUNDS {
            let locked = ending.lock().unwrap();
            let make = |number| locked.create(RunId::new(1, [0, 0, round, number]), &[]).unwrap();
            let live: Vec<RunDirectory> = (0..RUNS).map(make).collect();
            drop(locked);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for directory in live {
                        // Whoever took it for a dead one's meanwhile removes it.
                        let _ = directory.remove(&ending);
                    }
                });
                for _ in 0..4 {
                    for directory in looking.lock().unwrap().neighbours().unwrap().stale {
                        let _ = directory.remove(&looking);
                    }
                }
            });
        }
    }

    /// FS-2, FS-5: private directories with a lock; what a dead launcher left is found and removed, what lives is not.
    #[test]
    fn stale_runs_are_told_from_live_ones() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap();
        let root = Root::open(&base.join("cache/runs")).unwrap();
        let (live, dead) = {
            let locked = root.lock().unwrap();
            (locked.create(run(1), &["home"]).unwrap(), locked.create(run(2), &["home", "tmp"]).unwrap())
        };
        Record::create(live.directory()).unwrap().make(&base.join("shared")).unwrap();
        let mut record = Record::create(dead.directory()).unwrap();
        record.make(&base.join("left")).unwrap();
        // Longer than a name can be: not to be removed.
        let gone = placeholder::Entry::Made { path: base.join("n".repeat(300)), device: 0, inode: 0 };
        record.share(std::slice::from_ref(&base), &[gone]).unwrap();
        record.share(std::slice::from_ref(&base), &placeholder::read(live.directory()).unwrap()).unwrap();
        std::fs::write(dead.path().join("home/file"), "x").unwrap();
        drop((dead, record));

        let neighbours = root.lock().unwrap().neighbours().unwrap();
        assert_eq!(neighbours.stale.len(), 1);
        assert_eq!((neighbours.live.len(), neighbours.left), (2, 1));
        assert!(!base.join("left").exists() && base.join("shared").exists());
        for stale in neighbours.stale {
            let path = stale.path().to_owned();
            stale.removal().unwrap().step(usize::MAX).unwrap();
            stale.remove(&root).unwrap();
            assert!(!path.exists());
        }
        assert!(live.path().exists());
        assert!(root.lock().unwrap().create(run(1), &[]).is_err(), "a name is taken once");
    }

    /// FS-5: what lies in the root and was not made there by a launcher is neither believed nor removed.
    #[test]
    fn what_is_no_run_is_left_alone() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap();
        let root = Root::open(&base.join("runs")).unwrap();
        let open_to_all = root.lock().unwrap().create(run(1), &[]).unwrap().path().to_owned();
        std::fs::set_permissions(&open_to_all, PermissionsExt::from_mode(0o755)).unwrap();
        let named = base.join("runs/backup");
        std::fs::create_dir(&named).unwrap();
        std::fs::set_permissions(&named, PermissionsExt::from_mode(0o700)).unwrap();
        let neighbours = root.lock().unwrap().neighbours().unwrap();
        assert!(neighbours.stale.is_empty() && named.exists() && open_to_all.exists());
    }

    /// FS-5: a root that somebody else could change is not used.
    #[test]
    fn a_root_that_others_can_write_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("open");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(Root::open(&path).unwrap_err().code, Code::StateUnusable);
    }
}
