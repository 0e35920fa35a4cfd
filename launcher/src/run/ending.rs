//! From the end of a run to its last trace: everybody is ended, what was used is counted, and what was done to the host is
//! undone.

use ipc_proto::launcher::{Exceeded, Failure, FromLauncher, Used};

use super::prepare::OnHost;
use super::{Outcome, Run, State, Supervisor};
use crate::control_group::{ControlGroup, Counted};
use crate::growth::Watch;
use crate::placeholder;
use crate::remove::Progress;
use crate::{Fatal, Log};

/// How many names are removed at a time, so that other runs are not kept waiting.
const REMOVE_AT_ONCE: usize = 2000;

impl Run {
    pub(super) fn fail(&mut self, failure: Failure) {
        // What failed after the supervisor was told that the sandbox stands is an end without a status.
        if !matches!(self.state, State::Planned | State::Starting) {
            return self.end();
        }
        self.outcome = Some(Outcome::Failed(failure));
        self.begin_ending();
    }

    pub(super) fn begin_ending(&mut self) {
        self.state = State::Ending;
        self.start_ends = None;
        self.made = None;
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.kill();
        }
        if let Some(group) = &self.group {
            // Older kernels have it not, and process 1 takes everybody along.
            let _ = group.kill();
        }
    }

    pub(super) fn gone(&mut self, supervisor: &Supervisor) -> Result<(), Fatal> {
        let counted = self.group.as_ref().map(ControlGroup::counted).unwrap_or_default();
        if counted.out_of_memory && self.went && !self.over && !self.told {
            self.over = true;
            supervisor.send(&FromLauncher::Over { run: self.plan.run, exceeded: Exceeded::Memory }, &[])?;
        }
        match &self.watch {
            Some(watch) if self.went && !self.unwatched => {
                watch.finish();
                self.state = State::Measuring;
                Ok(())
            }
            Some(_) | None => self.begin_removing(supervisor),
        }
    }

    pub(super) fn tell(&mut self, supervisor: &Supervisor) -> Result<(), Fatal> {
        let run = self.plan.run;
        let Some(outcome) = self.outcome.take().filter(|_| !self.told) else { return Ok(()) };
        self.told = true;
        let message = match outcome {
            Outcome::Failed(failure) => FromLauncher::Failed { run, failure },
            Outcome::Probed(failures) => FromLauncher::Probed { run, failures },
            Outcome::Exited(exit) => FromLauncher::Exited { run, exit },
        };
        Ok(supervisor.send(&message, &[])?)
    }

    /// Everything that was done to the host for it is undone.
    pub(super) fn begin_removing(&mut self, supervisor: &Supervisor) -> Result<(), Fatal> {
        self.tell(supervisor)?;
        self.state = State::Removing;
        if let Some(OnHost { root, directory, record: Some(record) }) = &self.host {
            let locked = root.lock().map_err(|failure| Fatal::Undo { text: failure.text })?;
            let others = locked.others(directory).unwrap_or_default();
            let _ = placeholder::undo(record.entries(), &others);
        }
        self.removal = self.host.as_ref().and_then(|host| host.directory.removal().ok());
        Ok(())
    }

    pub(super) fn remove(&mut self, supervisor: &Supervisor, log: &Log) -> Result<(), Fatal> {
        let step = self.removal.as_mut().map(|removal| removal.step(REMOVE_AT_ONCE));
        match step {
            Some(Ok(Progress::More)) => return Ok(()),
            Some(Ok(Progress::Done)) | None => {}
            Some(Err(error)) => {
                log.line(&format!("run {}: its directories cannot be removed: {error}", self.plan.run))
            }
        }
        self.removal = None;
        if let Some(OnHost { root, directory, .. }) = self.host.take()
            && let Err(error) = directory.remove(&root)
        {
            log.line(&format!("run {}: its directory stays: {error}", self.plan.run));
        }
        self.close(supervisor)
    }

    fn close(&mut self, supervisor: &Supervisor) -> Result<(), Fatal> {
        let Counted { memory, tasks, .. } =
            self.group.as_ref().map(ControlGroup::counted).unwrap_or_default();
        let growth = self.watch.as_ref().filter(|_| self.went).map(Watch::most);
        if let Some(group) = self.group.take() {
            // Where it is not ours to remove, who made it does.
            let _ = group.remove();
        }
        self.state = State::Closed;
        let used = Used { growth, memory, tasks };
        Ok(supervisor.send(&FromLauncher::Closed { run: self.plan.run, used }, &[])?)
    }
}
