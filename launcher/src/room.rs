//! How many runs the limit on open descriptors has room for.
//!
//! A launcher without a descriptor left could not even take the words of its supervisor, which bring some, and would end with
//! every run. So it takes no run that might need more than there are: that one fails, and the others go on.

use ipc_proto::Code;
use ipc_proto::launcher::{Failure, LaunchPlan};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::failure;
use crate::growth;

/// As many as any process of anet's has; a run itself gets fewer from anet-init.
const WANTED: u64 = 4096;
/// What the launcher needs for itself: its channel, log and signals, a message's descriptors, what a start opens for a moment,
/// a sweep.
const OWN: usize = 96;
/// What a run has at most, its measured directories aside: its group, three directories with their locks or records, a
/// channel, two processes, bwrap's errors, the probe's decoy, two listeners, a terminal, the meter's pipe; and when these are
/// closed, a removal.
const RUN: usize = 28;
/// A directory that a dead launcher left, and its lock.
const LEFT_BEHIND: usize = 2;

/// Raises the limit as far as it may be and has to be. It is bwrap's limit as well, which needs a dozen.
///
/// # Errors
/// When the system refuses what it always allows.
pub fn raise() -> Result<(), Errno> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    match limit.current.is_some_and(|current| current < wanted) {
        true => setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }),
        false => Ok(()),
    }
}

/// The limit.
#[derive(Clone, Copy, Debug)]
pub struct Room(Option<u64>);

impl Room {
    /// The limit as it is now.
    #[must_use]
    pub fn look() -> Room {
        Room(getrlimit(Resource::Nofile).current)
    }

    /// Whether another run may need more than there are, beside those that take `taken`.
    ///
    /// # Errors
    /// The [`Failure`] of that run.
    pub fn holds(self, taken: usize, left_behind: usize, plan: &LaunchPlan) -> Result<(), Failure> {
        let needed =
            OWN.saturating_add(taken).saturating_add(LEFT_BEHIND * left_behind).saturating_add(needs(plan));
        match self.0 {
            Some(limit) if u64::try_from(needed).unwrap_or(u64::MAX) > limit => Err(failure(
                Code::SandboxStartFailed,
                &format!(
                    "{limit} open files have no room for one more run beside those that go on; wait for one of them to end, or \
                     raise the limit (ulimit -n, LimitNOFILE= of a service)"
                ),
            )),
            Some(_) | None => Ok(()),
        }
    }
}

/// How many descriptors a run may need.
#[must_use]
pub fn needs(plan: &LaunchPlan) -> usize {
    // Work, home, the temporary directory, and what is written beside them.
    let measured = || 3 + plan.files.read_write.len() + growth::DESCRIPTORS;
    RUN + plan.growth.map_or(0, |_| measured())
}
