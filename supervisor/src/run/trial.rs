//! The sandbox is tried: the same as a run's, with checks in the place of the command (PRB-1).

use std::os::fd::AsFd;
use std::time::Instant;

use ipc_proto::init::{ProbePlan, Purpose};
use ipc_proto::launcher::{Endpoints, FromLauncher, LaunchPlan, ToLauncher, WorkDirectory};
use ipc_proto::{ChannelError, RunId, bulk};

use super::one::START_TIME;
use super::{Fatal, Lines, probe};
use crate::error::Trouble;
use crate::explain;

/// A try that goes on.
#[derive(Debug)]
pub(crate) struct Trial {
    run: RunId,
    checks: bool,
    /// Known, and only the end of the sandbox is waited for.
    found: Option<Result<(), Trouble>>,
    ends: Instant,
}

impl Trial {
    /// Starts it, as `plan` would be started.
    pub(crate) fn start(
        run: RunId,
        probe: &ProbePlan,
        plan: &LaunchPlan,
        lines: &Lines,
        null: &impl AsFd,
    ) -> Result<Trial, Fatal> {
        let mut plan = plan.clone();
        plan.run = run;
        plan.purpose = Purpose::Probe(probe.clone());
        plan.endpoints = Endpoints { egress: false, model: false };
        plan.home.clear();
        plan.files.work = WorkDirectory::Fresh;
        plan.files.read_write.clear();
        plan.files.read_only.clear();
        plan.files.deny.clear();
        plan.growth = None;
        plan.memory = None;
        plan.tasks = None;
        let memory = bulk::seal(&plan)?;
        let null = null.as_fd();
        lines.launcher.send(&ToLauncher::Plan(run), &[memory.as_fd()])?;
        lines.launcher.send(&ToLauncher::Launch(run), &[null, null, null])?;
        Ok(Trial { run, checks: false, found: None, ends: Instant::now() + START_TIME })
    }

    pub(crate) fn id(&self) -> RunId {
        self.run
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.ends
    }

    /// It took longer than it ever does.
    pub(crate) fn look_at_clocks(&self, now: Instant) -> Result<(), Fatal> {
        if self.ends <= now {
            return Err(Fatal::Late("the probe of the sandbox did not end in time"));
        }
        Ok(())
    }

    /// What the launcher says of it. Some: it is over, and this is what was found.
    pub(crate) fn hear(
        &mut self,
        message: &FromLauncher,
        lines: &Lines,
    ) -> Result<Option<Result<(), Trouble>>, Fatal> {
        match message {
            FromLauncher::Ready { run, .. } if *run == self.run && !self.checks && self.found.is_none() => {
                self.checks = true;
                lines.launcher.send(&ToLauncher::Go(self.run), &[])?;
                Ok(None)
            }
            FromLauncher::Failed { run, failure } if *run == self.run && self.found.is_none() => {
                let trouble = Trouble::new(failure.code, explain::with_detail(failure.code, &failure.text));
                self.found = Some(Err(trouble));
                Ok(None)
            }
            FromLauncher::Probed { run, failures } if *run == self.run && self.found.is_none() => {
                self.found = Some(probe::trouble(failures).map_or(Ok(()), Err));
                Ok(None)
            }
            FromLauncher::Closed { run, .. } if *run == self.run && self.found.is_some() => {
                Ok(self.found.take())
            }
            FromLauncher::Hello { .. }
            | FromLauncher::Ready { .. }
            | FromLauncher::Failed { .. }
            | FromLauncher::Probed { .. }
            | FromLauncher::Stopped { .. }
            | FromLauncher::Over { .. }
            | FromLauncher::Exited { .. }
            | FromLauncher::Swept { .. }
            | FromLauncher::Closed { .. } => {
                Err(ChannelError::unexpected(message, "the sandbox is tried").into())
            }
        }
    }
}
