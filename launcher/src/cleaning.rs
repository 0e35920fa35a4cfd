//! What is removed when there is time: what dead launchers left, and work directories whose time is over.
//!
//! Nobody waits for it. So while a run waits for the launcher only a little of it is done now and then, and as much as there
//! is otherwise.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use crate::Log;
use crate::directories::sweep::{Step, Sweep};
use crate::directories::{Root, RunDirectory};
use crate::remove::{Progress, Removal};

/// How many names are removed at a time when no run waits.
const AT_ONCE: usize = 500;
/// And when one does: a millisecond or two.
const BESIDE_RUNS: usize = 50;
/// How long it rests then.
const PAUSE: Duration = Duration::from_millis(20);

/// The work, and how far it came.
#[derive(Debug, Default)]
pub struct Cleaning {
    stale: VecDeque<Stale>,
    sweeps: VecDeque<Sweep>,
    /// When the last step was made.
    last: Option<Instant>,
    /// The last step could do nothing.
    later: bool,
}

/// A directory that a dead launcher left.
#[derive(Debug)]
struct Stale {
    root: Rc<Root>,
    directory: RunDirectory,
    /// Begun.
    removal: Option<Removal>,
}

/// A sweep that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Directories that were removed.
    pub removed: u64,
    /// Directories that should have been and could not.
    pub left: u64,
}

impl Cleaning {
    /// Takes what a dead launcher left.
    pub fn left_behind(&mut self, root: &Rc<Root>, directories: Vec<RunDirectory>) {
        let stale = |directory| Stale { root: Rc::clone(root), directory, removal: None };
        self.stale.extend(directories.into_iter().map(stale));
    }

    /// Takes a root to be swept.
    pub fn sweep(&mut self, root: Rc<Root>, older_than: Duration) {
        self.sweeps.push_back(Sweep::new(root, older_than));
    }

    /// How many directories of dead launchers wait to be removed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.stale.len()
    }

    /// When the next step is due; `idle`: no run waits.
    #[must_use]
    pub fn due(&self, idle: bool) -> Option<Instant> {
        if self.stale.is_empty() && self.sweeps.is_empty() {
            return None;
        }
        let rested = self.last.map(|last| last + PAUSE).filter(|_| !idle || self.later);
        Some(rested.unwrap_or_else(Instant::now))
    }

    /// Makes a step, if one is due. Says so when a sweep has ended.
    pub fn step(&mut self, idle: bool, log: &Log) -> Option<Swept> {
        if self.due(idle).is_none_or(|due| due > Instant::now()) {
            return None;
        }
        let budget = if idle { AT_ONCE } else { BESIDE_RUNS };
        self.later = false;
        let swept =
            if self.stale.is_empty() { self.step_sweep(budget, log) } else { self.step_stale(budget, log) };
        self.last = Some(Instant::now());
        swept
    }

    fn step_stale(&mut self, budget: usize, log: &Log) -> Option<Swept> {
        let stale = self.stale.front_mut()?;
        let removal = match stale.removal.take() {
            Some(removal) => Ok(removal),
            None => stale.directory.removal(),
        };
        let stepped = removal.and_then(|removal| stale.removal.insert(removal).step(budget));
        match stepped {
            Ok(Progress::More) => return None,
            Ok(Progress::Done) => {}
            Err(error) => log.line(&format!("what an earlier run left cannot be removed: {error}")),
        }
        if let Some(Stale { root, directory, .. }) = self.stale.pop_front()
            && let Err(error) = directory.remove(&root)
        {
            log.line(&format!("what an earlier run left stays: {error}"));
        }
        None
    }

    fn step_sweep(&mut self, budget: usize, log: &Log) -> Option<Swept> {
        let sweep = self.sweeps.front_mut()?;
        let step = sweep.step(budget, SystemTime::now());
        for complaint in sweep.complaints() {
            log.line(&complaint);
        }
        match step {
            Step::More => None,
            Step::Later => {
                self.later = true;
                None
            }
            Step::Done => {
                let (removed, left) = sweep.counted();
                self.sweeps.pop_front();
                Some(Swept { removed, left })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// FS-3: while runs wait it is a little at a time, with a rest in between; otherwise as much as there is.
    #[test]
    fn runs_come_first() {
        let place = tempfile::tempdir().unwrap();
        let root = Rc::new(Root::open(&place.path().canonicalize().unwrap().join("runs")).unwrap());
        let kept = root.lock().unwrap().keep(&"p1".parse().unwrap(), &"i1".parse().unwrap()).unwrap();
        for number in 0..200 {
            fs::write(kept.work().join(format!("{number}")), "").unwrap();
        }
        let lock = fs::File::options().write(true).open(kept.path().join("lock")).unwrap();
        kept.end().unwrap();
        lock.set_modified(SystemTime::now() - Duration::from_secs(10)).unwrap();
        let log = Log::new(None);
        let mut cleaning = Cleaning::default();
        assert_eq!(cleaning.due(true), None);
        cleaning.sweep(root, Duration::from_secs(1));
        let left = || {
            let moved = place.path().join("runs/.removing/i1/work");
            fs::read_dir(moved).map_or(200, Iterator::count)
        };
        assert!(cleaning.due(false).unwrap() <= Instant::now());
        assert_eq!(cleaning.step(false, &log), None);
        let first = left();
        assert!((200 - BESIDE_RUNS..200).contains(&first), "{first}");
        let due = cleaning.due(false).unwrap();
        assert!(due > Instant::now(), "it rests");
        assert_eq!(cleaning.step(false, &log), None);
        assert_eq!(left(), first, "and does nothing meanwhile");
        std::thread::sleep(PAUSE);
        assert_eq!(cleaning.step(false, &log), None);
        assert!(left() < first);
        assert!(cleaning.due(true).unwrap() <= Instant::now(), "nobody waits");
        assert_eq!(cleaning.step(true, &log), Some(Swept { removed: 1, left: 0 }));
        assert_eq!(cleaning.due(true), None);
    }
}
