//! From the plan of a run to the moment when its sandbox stands.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use ipc_proto::Code;
use ipc_proto::init::Purpose;
use ipc_proto::launcher::{Failure, FromLauncher, LaunchPlan, ToLauncher};

use super::sandbox::{Sandbox, StartError};
use super::{Run, START_TIME, State, Supervisor, prepare};
use crate::control_group::ControlGroup;
use crate::directories::{Root, RunDirectory};
use crate::failure::{self, Host, failure};
use crate::{Fatal, Log, Surroundings, room};

impl Run {
    /// Takes the control group.
    ///
    /// # Errors
    /// [`Fatal`] at any other time than right after the plan.
    pub fn control_group(&mut self, message: &ToLauncher, directory: OwnedFd) -> Result<(), Fatal> {
        if self.state != State::Planned || self.group.is_some() {
            return Err(self.unexpected(message));
        }
        self.group = Some(ControlGroup::new(directory));
        Ok(())
    }

    /// How many descriptors it may need, once it is started.
    #[must_use]
    pub fn needs(&self) -> usize {
        match self.state {
            State::Planned => 1,
            State::Starting
            | State::Ready
            | State::Running
            | State::Ending
            | State::Measuring
            | State::Removing
            | State::Closed => room::needs(&self.plan),
        }
    }

    /// Its plan.
    #[must_use]
    pub fn launch_plan(&self) -> &LaunchPlan {
        &self.plan
    }

    /// Notes on its kept work directory that it goes on.
    pub fn goes_on(&self, log: &Log) {
        if let Some(kept) = self.host.as_ref().and_then(|host| host.kept.as_ref())
            && let Err(error) = kept.touch()
        {
            log.line(&format!("run {}: {}: {error}", self.plan.run, kept.path().display()));
        }
    }

    /// Makes the sandbox. Returns the directories of dead launchers' runs, to be removed when there is time.
    ///
    /// # Errors
    /// [`Fatal`] when it is not the time for it.
    pub fn launch(
        &mut self,
        message: &ToLauncher,
        root: Result<Rc<Root>, Failure>,
        stdio: &[OwnedFd],
        around: &Surroundings,
        log: &Log,
    ) -> Result<Vec<RunDirectory>, Fatal> {
        let [input, output, errors] = stdio else { return Err(self.unexpected(message)) };
        if self.state != State::Planned {
            return Err(self.unexpected(message));
        }
        self.state = State::Starting;
        self.start_ends = Some(Instant::now() + START_TIME);
        let mut stale = Vec::new();
        let stdio = [input.as_fd(), output.as_fd(), errors.as_fd()];
        if let Err(failure) = root.and_then(|root| self.build(&root, stdio, &mut stale, around, log)) {
            self.fail(failure);
        }
        Ok(stale)
    }

    fn build(
        &mut self,
        root: &Rc<Root>,
        stdio: [BorrowedFd<'_>; 3],
        stale: &mut Vec<RunDirectory>,
        around: &Surroundings,
        log: &Log,
    ) -> Result<(), Failure> {
        if let Some(group) = &self.group {
            let limited = group.limit(self.plan.memory, self.plan.tasks);
            limited.map_err(|error| refused_by_group(&error))?;
        }
        let (on_host, mut neighbours) = prepare::directories(&self.plan, root)?;
        stale.append(&mut neighbours.stale);
        if neighbours.left > 0 {
            log.line(&format!("{} placeholders of earlier runs could not be removed", neighbours.left));
        }
        let host = self.host.insert(on_host);
        prepare::keep(&self.plan, host)?;
        let prepared = prepare::sandbox(&self.plan, host, around, log)?;
        let sandbox = Sandbox::start(&self.plan.programs.bwrap, &prepared, stdio, around.null.as_fd());
        self.sandbox = Some(sandbox.map_err(|error| not_started(&error))?);
        self.measured = prepared.watch.is_none();
        self.watch = prepared.watch;
        self.decoy = prepared.decoy;
        Ok(())
    }

    /// Finds process 1, through which everybody in the sandbox can be ended, and puts it into the control group before it
    /// has started anything.
    pub(super) fn take_hold(&mut self) -> Result<(), Failure> {
        let one = self.sandbox.as_mut().and_then(Sandbox::find_one);
        let one = one.ok_or_else(|| {
            failure(Code::SandboxStartFailed, "the sandbox's process 1 cannot be found; is /proc mounted?")
        })?;
        if let (Some(watch), Some(namespace)) = (&self.watch, one.namespace) {
            watch.look_into(namespace);
        }
        self.group
            .as_ref()
            .map_or(Ok(()), |group| group.enter(one.pid))
            .map_err(|error| refused_by_group(&error))
    }

    /// Tells the supervisor when the sandbox stands and its start is measured.
    pub(super) fn ready_if_so(&mut self, supervisor: &Supervisor) -> Result<(), Fatal> {
        if self.state != State::Starting || !self.measured {
            return Ok(());
        }
        let Some(made) = self.made.take() else { return Ok(()) };
        self.state = State::Ready;
        let descriptors: Vec<BorrowedFd<'_>> = made.iter().map(AsFd::as_fd).collect();
        let ready = FromLauncher::Ready {
            run: self.plan.run,
            endpoints: self.plan.endpoints,
            terminal: self.has_terminal(),
        };
        Ok(supervisor.send(&ready, &descriptors)?)
    }

    pub(super) fn has_terminal(&self) -> bool {
        match &self.plan.purpose {
            Purpose::Command(command) => command.terminal.is_some(),
            Purpose::Probe(_) => false,
        }
    }
}

fn refused_by_group(error: &std::io::Error) -> Failure {
    failure(Code::SandboxStartFailed, &format!("the limits on memory and tasks could not be set: {error}"))
}

fn not_started(error: &StartError) -> Failure {
    match error {
        StartError::Ours(error) => {
            failure(Code::SandboxStartFailed, &format!("bwrap could not be started: {error}"))
        }
        StartError::Spawn(error) => match error.exec() {
            Some(errno) => failure::from_exec(errno, &Host::ask()),
            None => failure(Code::SandboxStartFailed, &format!("bwrap: {error}")),
        },
    }
}
