//! One run, from its plan to its last trace: the steps in the order in which they come.

mod child;
mod ending;
mod hearing;
mod prepare;
mod sandbox;
mod starting;
mod words;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ipc_proto::init::{Exit, ProbeFailure};
use ipc_proto::launcher::{Failure, FromLauncher, LaunchPlan, ToLauncher};
use ipc_proto::{Channel, ChannelError, Code, RunId, bulk};
use rustix::process::Pid;

use crate::control_group::ControlGroup;
use crate::failure::failure;
use crate::growth::Watch;
use crate::remove::Removal;
use crate::{Fatal, Log};
use prepare::OnHost;
use sandbox::Sandbox;

/// How long bwrap and anet-init may take. A mount of a network file system that is away takes for ever.
const START_TIME: Duration = Duration::from_secs(10);
/// The channel to the supervisor.
pub type Supervisor = Channel<FromLauncher, ToLauncher>;

/// Where a run is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its plan is here.
    Planned,
    /// bwrap and anet-init build the sandbox.
    Starting,
    /// It stands, and the supervisor knows.
    Ready,
    /// The program runs.
    Running,
    /// Its processes are being ended.
    Ending,
    /// Nobody is left; its directories are measured a last time.
    Measuring,
    /// Its directories are being removed.
    Removing,
    /// Nothing is left.
    Closed,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            State::Planned => "planned",
            State::Starting => "starting",
            State::Ready => "ready",
            State::Running => "running",
            State::Ending => "ending",
            State::Measuring => "measuring",
            State::Removing => "removing",
            State::Closed => "closed",
        }
    }
}

/// How it went, to be told to the supervisor.
#[derive(Debug)]
enum Outcome {
    Failed(Failure),
    Probed(Vec<ProbeFailure>),
    Exited(Option<Exit>),
}

/// One run.
#[derive(Debug)]
pub struct Run {
    plan: LaunchPlan,
    state: State,
    group: Option<ControlGroup>,
    host: Option<OnHost>,
    sandbox: Option<Sandbox>,
    watch: Option<Watch>,
    /// Answers the probe.
    decoy: Option<OwnedFd>,
    /// What anet-init made, until the start is measured.
    made: Option<Vec<OwnedFd>>,
    measured: bool,
    start_ends: Option<Instant>,
    outcome: Option<Outcome>,
    told: bool,
    went: bool,
    over: bool,
    /// The thread that measures growth is gone.
    unwatched: bool,
    removal: Option<Removal>,
}

impl Run {
    /// Opens a plan.
    ///
    /// # Errors
    /// [`Fatal`] when it is none, or another run's.
    pub fn plan(run: RunId, memory: BorrowedFd<'_>) -> Result<Run, Fatal> {
        let plan: LaunchPlan = bulk::open(memory)?;
        if plan.run != run {
            return Err(Fatal::Plan { run });
        }
        Ok(Run {
            plan,
            state: State::Planned,
            group: None,
            host: None,
            sandbox: None,
            watch: None,
            decoy: None,
            made: None,
            measured: false,
            start_ends: None,
            outcome: None,
            told: false,
            went: false,
            over: false,
            unwatched: false,
            removal: None,
        })
    }

    /// What to wait on.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = Vec::new();
        if let Some(sandbox) = &self.sandbox {
            all.extend(sandbox.descriptors());
            if self.hears_init() {
                all.push(sandbox.channel.as_fd());
            }
        }
        // The pipe of a thread that is gone is readable for ever.
        all.extend(self.watch.as_ref().filter(|_| !self.unwatched).map(AsFd::as_fd));
        all
    }

    /// When it has to be looked after although nothing happened.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Removing => Some(Instant::now()),
            State::Planned
            | State::Starting
            | State::Ready
            | State::Running
            | State::Ending
            | State::Measuring
            | State::Closed => self.start_ends,
        }
    }

    /// A child was reaped.
    pub fn reaped(&mut self, pid: Pid) -> bool {
        self.sandbox.as_mut().is_some_and(|sandbox| sandbox.reaped(pid))
    }

    /// Looks after everything that may have happened.
    ///
    /// # Errors
    /// [`Fatal`] when anet-init or the supervisor broke off in the middle of a word.
    pub fn turn(
        &mut self,
        supervisor: &Supervisor,
        readable: &dyn Fn(BorrowedFd<'_>) -> bool,
        log: &Log,
    ) -> Result<(), Fatal> {
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.hear_errors();
        }
        self.hear_init(supervisor)?;
        if self.watch.as_ref().is_some_and(|watch| readable(watch.as_fd())) {
            self.hear_watch(supervisor, log)?;
        }
        if self.sandbox.as_ref().is_some_and(Sandbox::bwrap_has_ended) {
            self.bwrap_ended();
        }
        if self.start_ends.is_some_and(|at| at <= Instant::now()) {
            self.start_ends = None;
            self.fail(failure(
                Code::SandboxStartFailed,
                "bwrap did not finish in ten seconds; a file system among the opened paths may not answer",
            ));
        }
        if self.state == State::Ending && self.sandbox.as_ref().is_none_or(Sandbox::is_gone) {
            self.gone(supervisor, log)?;
        }
        if self.state == State::Removing {
            self.remove(supervisor, log)?;
        }
        Ok(())
    }

    /// Nothing is left of it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    fn unexpected(&self, message: &ToLauncher) -> Fatal {
        ChannelError::unexpected(message, self.state.as_str()).into()
    }
}

#[cfg(test)]
mod tests;
