//! From the end of a run to its last trace: everybody is ended, what was used is counted, and what was done to the host is
//! undone.

use std::io;

use ipc_proto::launcher::{Exceeded, Failure, FromLauncher, Used};

use super::prepare::OnHost;
use super::{Outcome, Run, State, Supervisor};
use crate::control_group::{ControlGroup, Counted};
use crate::growth::Watch;
use crate::placeholder::{self, Entry, Record};
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

    pub(super) fn gone(&mut self, supervisor: &Supervisor, log: &Log) -> Result<(), Fatal> {
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
            Some(_) | None => self.begin_removing(supervisor, log),
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
    pub(super) fn begin_removing(&mut self, supervisor: &Supervisor, log: &Log) -> Result<(), Fatal> {
        self.tell(supervisor)?;
        self.state = State::Removing;
        if let Some(OnHost { root, directory, record: Some(record), .. }) = &self.host {
            let locked = root.lock().map_err(|failure| Fatal::Undo { text: failure.text })?;
            let others = locked.others(directory);
            let later = others.is_err();
            put_right(record, others, &self.plan.run.to_string(), log);
            drop(locked);
            if later {
                // With its lock: to the next start it is what a dead launcher left, and that has its record.
                self.host = None;
            }
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
        if let Some(OnHost { root, directory, kept, .. }) = self.host.take() {
            if let Err(error) = directory.remove(&root) {
                log.line(&format!("run {}: its directory stays: {error}", self.plan.run));
            }
            let left = kept.map(|kept| if self.went { kept.end() } else { kept.forget(&root) });
            if let Some(Err(error)) = left {
                log.line(&format!("run {}: its work directory: {error}", self.plan.run));
            }
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

/// Undoes what was done to the operator's directories. Where it is not known what other runs share with this one, its
/// placeholders stay. Says what stood in the place of a link, and what it is called now.
fn put_right(record: &Record, others: io::Result<Vec<Entry>>, run: &str, log: &Log) {
    let others = others.unwrap_or_else(|error| {
        log.line(&format!(
            "run {run}: what other runs share with it cannot be read: {error}; its placeholders stay until the next start"
        ));
        // Each of them may be another run's only protection.
        record.entries().to_vec()
    });
    let undone = placeholder::undo(record.entries(), &others, run);
    if undone.left > 0 {
        log.line(&format!("run {run}: {} of its placeholders and links could not be put right", undone.left));
    }
    for (path, now) in undone.kept {
        log.line(&format!(
            "run {run}: {} was a link and something else at the end; the link is back, and what was there is {} now",
            path.display(),
            now.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::directories::Root;
    use ipc_proto::RunId;

    /// FS-4: as long as it is not known what other runs share, no placeholder goes, links are put back all the same, and the
    /// next start finds the record.
    #[test]
    fn placeholders_stay_while_other_runs_cannot_be_asked() {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        let log = || Log::new(Some(fs::File::create(base.join("log")).unwrap().into()));
        let logged = || fs::read_to_string(base.join("log")).unwrap();
        let root = Root::open(&base.join("runs")).unwrap();
        let directory = root.lock().unwrap().create(RunId::new(1, [0; 4]), &[]).unwrap();
        let mut record = Record::create(directory.directory()).unwrap();
        record.make(&base.join("project")).unwrap();
        record.watch(&[(base.join("link"), "target".into())]).unwrap();

        put_right(&record, Err(io::Error::other("trouble")), "RUN", &log());
        assert!(base.join("project").is_dir() && base.join("link").is_symlink());
        assert!(logged().contains("trouble; its placeholders stay"), "{}", logged());
        drop(directory);
        assert_eq!(root.lock().unwrap().neighbours().unwrap().stale.len(), 1);
        assert!(!base.join("project").exists());

        record.make(&base.join("project")).unwrap();
        put_right(&record, Ok(Vec::new()), "RUN", &log());
        assert!(!base.join("project").exists());
        assert_eq!(logged(), "");
    }

    /// FS-4: what could not be undone is told.
    #[test]
    fn what_is_left_behind_is_told() {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        let root = Root::open(&base.join("runs")).unwrap();
        let directory = root.lock().unwrap().create(RunId::new(1, [0; 4]), &[]).unwrap();
        let mut record = Record::create(directory.directory()).unwrap();
        // No link can say nothing.
        record.watch(&[(base.join("link"), "".into())]).unwrap();
        let log = Log::new(Some(fs::File::create(base.join("log")).unwrap().into()));
        put_right(&record, Ok(Vec::new()), "RUN", &log);
        let logged = fs::read_to_string(base.join("log")).unwrap();
        assert!(logged.contains("1 of its placeholders and links"), "{logged}");
    }
}
