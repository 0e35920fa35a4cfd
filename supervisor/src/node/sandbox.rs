//! Whether the sandbox can be relied on just now, and trying it (PRB-1, PRB-2).

use std::time::{Duration, Instant, SystemTime};

use ipc_proto::RunId;
use ipc_proto::launcher::FromLauncher;

use super::job::NodeJob;
use crate::chain::at_unix_ms;
use crate::error::Trouble;
use crate::run::trial::Trial;
use crate::run::{Fatal, Lines};

/// How long a good result holds.
const GOOD_FOR: Duration = Duration::from_secs(300);
/// How soon a bad one is looked at again, if somebody wants it: what was wrong may have been mended.
const BAD_FOR: Duration = Duration::from_secs(5);

/// What is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It held when it was tried.
    Good,
    /// It did not, or cannot be made.
    Bad(Trouble),
    /// It has to be tried first.
    Unknown,
}

/// The sandbox of a node.
#[derive(Debug)]
pub(super) struct Sandbox {
    found: Option<Result<(), Trouble>>,
    /// When it was found, by both clocks: the monotonic one stands still while the machine sleeps, and the other one is set.
    at: Option<(Instant, SystemTime)>,
    trial: Option<Trial>,
}

impl Sandbox {
    /// As the guard knew it.
    pub(super) fn new(job: &NodeJob, now: SystemTime) -> Sandbox {
        if let Err(trouble) = &job.turn {
            return Sandbox { found: Some(Err(trouble.clone())), at: None, trial: None };
        }
        let good = job.probe.good.map(at_unix_ms);
        let age = good.and_then(|at| now.duration_since(at).ok()).filter(|age| *age < GOOD_FOR);
        let found = age.and_then(|age| Instant::now().checked_sub(age)).zip(good);
        Sandbox { found: found.map(|_| Ok(())), at: found, trial: None }
    }

    /// What is known now.
    pub(super) fn verdict(&self, job: &NodeJob) -> Verdict {
        if let Err(trouble) = &job.turn {
            return Verdict::Bad(trouble.clone());
        }
        let fresh = |longest: Duration| {
            self.at.is_some_and(|(monotonic, wall)| {
                monotonic.elapsed() < longest
                    && SystemTime::now().duration_since(wall).is_ok_and(|age| age < longest)
            })
        };
        match &self.found {
            Some(Ok(())) if fresh(GOOD_FOR) => Verdict::Good,
            Some(Err(trouble)) if fresh(BAD_FOR) || self.trial.is_some() => Verdict::Bad(trouble.clone()),
            Some(Ok(()) | Err(_)) | None => Verdict::Unknown,
        }
    }

    /// What was found last, however long ago, and when.
    pub(super) fn last(&self, job: &NodeJob) -> (Option<Result<(), Trouble>>, Option<SystemTime>) {
        match &job.turn {
            Err(trouble) => (Some(Err(trouble.clone())), None),
            Ok(_) => (self.found.clone(), self.at.map(|(_, wall)| wall)),
        }
    }

    /// Somebody tries it already.
    pub(super) fn is_tried(&self) -> bool {
        self.trial.is_some()
    }

    /// Tries it.
    pub(super) fn try_it(
        &mut self,
        job: &NodeJob,
        run: RunId,
        lines: &Lines,
        null: &impl std::os::fd::AsFd,
    ) -> Result<(), Fatal> {
        if let (Ok(turn), None) = (&job.turn, &self.trial) {
            self.trial = Some(Trial::start(run, &job.probe.plan, &turn.plan, lines, null)?);
        }
        Ok(())
    }

    /// Whether this word of the launcher is about the trial.
    pub(super) fn is_its(&self, run: RunId) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.id() == run)
    }

    /// Hears it. True: the trial is over.
    pub(super) fn hear(&mut self, message: &FromLauncher, lines: &Lines) -> Result<bool, Fatal> {
        let Some(trial) = &mut self.trial else { return Ok(false) };
        let Some(found) = trial.hear(message, lines)? else { return Ok(false) };
        self.trial = None;
        self.note(found);
        Ok(true)
    }

    /// A run has found out.
    pub(super) fn note(&mut self, found: Result<(), Trouble>) {
        self.found = Some(found);
        self.at = Some((Instant::now(), SystemTime::now()));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.trial.as_ref().map(Trial::deadline)
    }

    pub(super) fn look_at_clocks(&self, now: Instant) -> Result<(), Fatal> {
        self.trial.as_ref().map_or(Ok(()), |trial| trial.look_at_clocks(now))
    }
}
