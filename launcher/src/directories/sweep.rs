//! Removing the work directories whose time is over (FS-3), a little at a time.
//!
//! A directory is first moved away whole, under the root's lock: no run ever finds half of one, and one that wants it later
//! gets a new one. What a launcher that died has moved away and not removed, the next sweep removes.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use ipc_proto::{Aid, InteractionId};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat, flock, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::kept::touch;
use super::{LOCK, Locked, Root, lock_file, lock_of};
use crate::remove::{Progress, Reading, Removal, is_private, open_directory, rename_new};

/// Where directories are moved before they are removed: no peer has such a name.
const REMOVING: &CStr = c".removing";
/// What looking at one directory costs of a step's budget, in names removed.
const LOOK: usize = 4;
/// How often the root's lock is tried.
const TRIES: u32 = 500;

/// How many complaints of one sweep are written down; the others are counted.
const COMPLAINTS: u64 = 8;

/// A sweep under way.
#[derive(Debug)]
pub struct Sweep {
    root: Rc<Root>,
    older_than: Duration,
    place: Place,
    /// The peer whose directory is looked through.
    peer: Option<Peer>,
    discarded: Option<Discarded>,
    /// Tries in a row that found the root locked.
    tries: u32,
    removed: u64,
    left: u64,
    complaints: Vec<String>,
}

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Everything is looked through.
    Done,
    /// There is more.
    More,
    /// There is more, and nothing can be done just now.
    Later,
}

/// What is looked through.
#[derive(Debug)]
enum Place {
    /// Nothing was looked at yet.
    Start,
    /// What was moved away and not removed.
    Leftovers(Reading),
    /// The root.
    Peers(Reading),
    /// Nothing is left to look at.
    End,
}

/// A peer's directory.
#[derive(Debug)]
struct Peer {
    name: CString,
    interactions: Reading,
    /// The one that could not be looked at when it was its turn.
    again: Option<CString>,
}

/// A directory that was moved away.
#[derive(Debug)]
struct Discarded {
    parent: OwnedFd,
    name: CString,
    directory: OwnedFd,
    removal: Removal,
    // Held until it is gone, so that no other launcher takes it for left over.
    _lock: OwnedFd,
}

impl Sweep {
    /// Will look through `root`.
    #[must_use]
    pub fn new(root: Rc<Root>, older_than: Duration) -> Sweep {
        Sweep {
            root,
            older_than,
            place: Place::Start,
            peer: None,
            discarded: None,
            tries: 0,
            removed: 0,
            left: 0,
            complaints: Vec::new(),
        }
    }

    /// How many were removed, and how many should have been and could not.
    #[must_use]
    pub fn counted(&self) -> (u64, u64) {
        (self.removed, self.left)
    }

    /// What went wrong since this was asked last, in words.
    pub fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Looks at and removes as much as `budget`, in names removed, allows.
    pub fn step(&mut self, mut budget: usize, now: SystemTime) -> Step {
        while budget > 0 {
            if let Some(discarded) = &mut self.discarded {
                match discarded.removal.step_within(&mut budget) {
                    Ok(Progress::More) => continue,
                    Ok(Progress::Done) => self.finish(Ok(())),
                    Err(error) => self.finish(Err(error)),
                }
                continue;
            }
            budget = budget.saturating_sub(LOOK);
            match self.look(now) {
                Ok(Step::More) => self.tries = 0,
                Ok(Step::Done) => return Step::Done,
                Ok(Step::Later) if self.tries < TRIES => {
                    self.tries += 1;
                    return Step::Later;
                }
                Ok(Step::Later) => self.give_up(&"another launcher keeps them locked"),
                Err(error) => self.give_up(&error),
            }
        }
        Step::More
    }

    fn give_up(&mut self, why: &dyn std::fmt::Display) {
        self.complain("work directories that are old enough", why);
        (self.place, self.peer) = (Place::End, None);
    }

    fn complain(&mut self, what: &str, why: &dyn std::fmt::Display) {
        self.left += 1;
        if self.left <= COMPLAINTS {
            self.complaints.push(format!("{what} cannot be removed: {why}"));
        }
    }

    fn finish(&mut self, emptied: io::Result<()>) {
        let Some(Discarded { parent, name, directory, .. }) = self.discarded.take() else { return };
        let remove = || -> io::Result<()> {
            emptied?;
            unlinkat(&directory, LOCK, AtFlags::empty())?;
            Ok(unlinkat(&parent, &name, AtFlags::REMOVEDIR)?)
        };
        match remove() {
            Ok(()) => self.removed += 1,
            Err(error) => {
                self.complain(&format!("what a run left in .removing/{}", name.to_string_lossy()), &error)
            }
        }
    }

    /// Looks at one more name.
    fn look(&mut self, now: SystemTime) -> io::Result<Step> {
        if let Some(peer) = self.peer.take() {
            return Ok(self.look_into(peer, now));
        }
        let found = match &mut self.place {
            Place::Start => {
                self.place = match open_directory(self.root.directory.as_fd(), REMOVING) {
                    Ok(leftovers) => Place::Leftovers(Reading::new(leftovers)),
                    Err(Errno::NOENT) => Place::Peers(self.root.reading()?),
                    Err(error) => return Err(error.into()),
                };
                return Ok(Step::More);
            }
            Place::Leftovers(reading) => match reading.next_name()? {
                Some((name, _)) => leftover(reading.directory(), name).map(|found| self.discarded = found),
                None => {
                    self.place = Place::Peers(self.root.reading()?);
                    return Ok(Step::More);
                }
            },
            Place::Peers(reading) => match reading.next_name()? {
                Some((name, _)) => Peer::open(&self.root, name).map(|found| self.peer = found),
                None => {
                    self.place = Place::End;
                    return Ok(Step::More);
                }
            },
            Place::End => return Ok(Step::Done),
        };
        if let Err(error) = found {
            self.complain("a work directory", &error);
        }
        Ok(Step::More)
    }

    /// Looks at one more interaction of a peer, and after the last at the peer's directory itself.
    fn look_into(&mut self, mut peer: Peer, now: SystemTime) -> Step {
        let shown = peer.name.to_string_lossy().into_owned();
        let next = match peer.again.take() {
            Some(name) => Ok(Some(name)),
            None => peer.interactions.next_name().map(|next| next.map(|(name, _)| name)),
        };
        let (done, what) = match next {
            Err(error) => (Err(error), shown),
            Ok(None) => match self.leave(&peer) {
                Ok(Step::Later) => {
                    self.peer = Some(peer);
                    return Step::Later;
                }
                other => (other.map(|_| ()), shown),
            },
            Ok(Some(name)) => {
                let what = format!("{shown}/{}", name.to_string_lossy());
                let found = self.take(peer.interactions.directory(), &name, now);
                let later = matches!(found, Ok(None));
                if later {
                    peer.again = Some(name);
                }
                self.peer = Some(peer);
                if later {
                    return Step::Later;
                }
                (found.map(|found| self.discarded = found.flatten()), what)
            }
        };
        if let Err(error) = done {
            self.complain(&format!("the work directory {what}"), &error);
        }
        Step::More
    }

    /// An interaction's directory, moved away, if its time is over. None: the root is locked.
    fn take(&self, above: &OwnedFd, name: &CStr, now: SystemTime) -> io::Result<Option<Option<Discarded>>> {
        let Some((directory, lock)) = look_at(above, name, self.older_than, now)? else {
            return Ok(Some(None));
        };
        let Some(locked) = self.root.try_lock()? else { return Ok(None) };
        discard(&locked, above, name, (directory, lock), self.older_than, now).map(Some)
    }

    /// Removes a peer's directory if nothing is in it.
    fn leave(&self, peer: &Peer) -> io::Result<Step> {
        let Some(_locked) = self.root.try_lock()? else { return Ok(Step::Later) };
        match unlinkat(&self.root.directory, &peer.name, AtFlags::REMOVEDIR) {
            // It has other interactions, or somebody else was faster.
            Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(Step::More),
            Err(error) => Err(error.into()),
        }
    }
}

impl Root {
    fn reading(&self) -> io::Result<Reading> {
        let again = openat(&self.directory, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Reading::new(again))
    }
}

impl Peer {
    /// A peer's directory; none where it is something else.
    fn open(root: &Root, name: CString) -> io::Result<Option<Peer>> {
        if !is::<Aid>(&name) {
            return Ok(None);
        }
        let Some(directory) = ours(&root.directory, &name)? else { return Ok(None) };
        // Peers may have names like runs.
        if lock_of(&directory)?.is_some() {
            return Ok(None);
        }
        Ok(Some(Peer { name, interactions: Reading::new(directory), again: None }))
    }
}

/// An interaction's directory with its lock, if it looks old enough. One whose time has not come yet, because the clock was
/// set back, ended now.
fn look_at(
    above: &OwnedFd,
    name: &CStr,
    older_than: Duration,
    now: SystemTime,
) -> io::Result<Option<(OwnedFd, OwnedFd)>> {
    if !is::<InteractionId>(name) {
        return Ok(None);
    }
    let Some(directory) = ours(above, name)? else { return Ok(None) };
    // Without a lock: its launcher died while it made it, and what is made anew has the time of now.
    let found = lock_of(&directory)?;
    match found.as_ref().map_or(Age::Ahead, |lock| Age::of(lock, now)) {
        Age::Past(age) if age <= older_than => Ok(None),
        Age::Past(_) => {
            let lock = lock_file(&directory, LOCK)?;
            Ok(Some((directory, lock)))
        }
        Age::Ahead => {
            touch(&lock_file(&directory, LOCK)?, now)?;
            Ok(None)
        }
    }
}

/// Moves it away, if nobody uses it and it is still as old, now that nobody else can take it.
fn discard(
    locked: &Locked<'_>,
    above: &OwnedFd,
    name: &CStr,
    (directory, lock): (OwnedFd, OwnedFd),
    older_than: Duration,
    now: SystemTime,
) -> io::Result<Option<Discarded>> {
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        other => other?,
    }
    if !matches!(Age::of(&fstat(&lock)?, now), Age::Past(age) if age > older_than) {
        return Ok(None);
    }
    let root = &locked.0.directory;
    match mkdirat(root, REMOVING, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let parent = ours(root, REMOVING)?.ok_or_else(|| io::Error::other(".removing is not ours alone"))?;
    let mut number: u64 = 0;
    let mut new = name.to_owned();
    loop {
        match rename_new(above, name, &parent, &new) {
            Ok(()) => break,
            Err(Errno::EXIST) => {
                number += 1;
                let text = format!("{}-{number}", name.to_string_lossy());
                new = CString::new(text).map_err(io::Error::other)?;
            }
            // Moved away by somebody else a moment ago.
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Discarded::new(parent, new, directory, lock).map(Some)
}

/// What was moved away before; none where another launcher is at it, or it is not ours.
fn leftover(parent: &OwnedFd, name: CString) -> io::Result<Option<Discarded>> {
    let Some(directory) = ours(parent, &name)? else { return Ok(None) };
    let lock = lock_file(&directory, LOCK)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        other => other?,
    }
    Discarded::new(parent.try_clone()?, name, directory, lock).map(Some)
}

impl Discarded {
    fn new(parent: OwnedFd, name: CString, directory: OwnedFd, lock: OwnedFd) -> io::Result<Discarded> {
        let removal = Removal::new(directory.try_clone()?, LOCK);
        Ok(Discarded { parent, name, directory, removal, _lock: lock })
    }
}

/// A directory of ours alone; none where there is something else, or nothing.
fn ours(parent: &OwnedFd, name: &CStr) -> io::Result<Option<OwnedFd>> {
    match open_directory(parent.as_fd(), name) {
        Ok(directory) => Ok(is_private(&fstat(&directory)?).then_some(directory)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is<Name: std::str::FromStr>(name: &CStr) -> bool {
    name.to_str().is_ok_and(|text| text.parse::<Name>().is_ok())
}

/// How long ago something was.
enum Age {
    Past(Duration),
    /// It was not yet, by this clock.
    Ahead,
}

impl Age {
    fn of(lock: &Stat, now: SystemTime) -> Age {
        // The types of the two differ between processors.
        let (seconds, nanoseconds) = (i128::from(lock.st_mtime), lock.st_mtime_nsec as i128);
        let then = seconds * 1_000_000_000 + nanoseconds;
        let now = match now.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
            Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |nanos| -nanos),
        };
        match u64::try_from((now - then) / 1_000_000) {
            Ok(milliseconds) if now >= then => Age::Past(Duration::from_millis(milliseconds)),
            Ok(_) | Err(_) if now >= then => Age::Past(Duration::MAX),
            Ok(_) | Err(_) => Age::Ahead,
        }
    }
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
