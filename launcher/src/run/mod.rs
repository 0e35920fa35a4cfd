//! One run, from its plan to its last trace: the steps in the order in which they come.

mod child;
mod ending;
mod prepare;
mod sandbox;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ipc_proto::init::{Exit, FromInit, ProbeFailure, Purpose, ToInit};
use ipc_proto::launcher::{Exceeded, Failure, FromLauncher, LaunchPlan, ToLauncher};
use ipc_proto::{Channel, ChannelError, Code, Received, RunId, bulk};
use rustix::process::Pid;

use crate::control_group::ControlGroup;
use crate::directories::{Root, RunDirectory};
use crate::failure::{self, Host, failure};
use crate::growth::{Watch, Word};
use crate::remove::Removal;
use crate::{Fatal, Log, Surroundings, room};
use prepare::OnHost;
use sandbox::{Sandbox, StartError};

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

    // ---- from plan to ready ------------------------------------------------------------------------------------

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
    pub fn plans(&self) -> &LaunchPlan {
        &self.plan
    }

    /// The directory below which this run wants its own.
    #[must_use]
    pub fn root(&self) -> &std::ffi::CStr {
        &self.plan.files.root
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
    fn take_hold(&mut self) -> Result<(), Failure> {
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
    fn ready_if_so(&mut self, supervisor: &Supervisor) -> Result<(), Fatal> {
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

    fn has_terminal(&self) -> bool {
        match &self.plan.purpose {
            Purpose::Command(command) => command.terminal.is_some(),
            Purpose::Probe(_) => false,
        }
    }

    // ---- the supervisor's words --------------------------------------------------------------------------------

    /// Everybody is ready: the program starts, unless its sandbox is not whole any more.
    ///
    /// # Errors
    /// [`Fatal`] when nobody said that it is ready.
    pub fn go(&mut self, message: &ToLauncher) -> Result<(), Fatal> {
        match self.state {
            State::Ready => {}
            // The sandbox fell while the word was under way; the supervisor will hear of it.
            State::Ending | State::Measuring | State::Removing | State::Closed => return Ok(()),
            State::Planned | State::Starting | State::Running => return Err(self.unexpected(message)),
        }
        self.state = State::Running;
        self.went = true;
        if !self.sandbox.as_ref().is_some_and(Sandbox::is_whole) {
            self.end();
            return Ok(());
        }
        if let Some(watch) = &self.watch {
            watch.begin();
        }
        self.tell_init(&ToInit::Go);
        Ok(())
    }

    /// Passes a signal on, or continues what was stopped.
    ///
    /// # Errors
    /// [`Fatal`] when no program was started.
    pub fn pass(&mut self, message: &ToLauncher, word: &ToInit) -> Result<(), Fatal> {
        match self.state {
            State::Running => self.tell_init(word),
            State::Ending | State::Measuring | State::Removing | State::Closed => {}
            State::Planned | State::Starting | State::Ready => return Err(self.unexpected(message)),
        }
        Ok(())
    }

    /// Ends the run, whatever it does.
    pub fn end(&mut self) {
        match self.state {
            State::Planned | State::Starting | State::Ready | State::Running => {
                self.outcome.get_or_insert(match self.plan.purpose {
                    Purpose::Command(_) => Outcome::Exited(None),
                    Purpose::Probe(_) => {
                        Outcome::Failed(failure(Code::SandboxStartFailed, "the probe was ended"))
                    }
                });
                self.begin_ending();
            }
            State::Ending | State::Measuring | State::Removing | State::Closed => {}
        }
    }

    fn tell_init(&mut self, word: &ToInit) {
        let told = self.sandbox.as_ref().map(|sandbox| sandbox.channel.send(word, &[]));
        // anet-init is gone, or reads nothing any more: its run is over either way.
        if !matches!(told, Some(Ok(()))) {
            self.end();
        }
    }

    // ---- what happens ------------------------------------------------------------------------------------------

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

    fn hears_init(&self) -> bool {
        matches!(self.state, State::Starting | State::Ready | State::Running)
    }

    fn hear_init(&mut self, supervisor: &Supervisor) -> Result<(), Fatal> {
        while self.hears_init() {
            let Some(sandbox) = &self.sandbox else { return Ok(()) };
            match sandbox.channel.try_receive()? {
                Received::Empty => return Ok(()),
                // Whether bwrap failed or the whole sandbox was ended is seen when bwrap has ended.
                Received::Closed if self.state == State::Starting => return Ok(()),
                Received::Closed => self.end(),
                Received::Message(message, descriptors) => self.heard(supervisor, message, descriptors)?,
            }
        }
        Ok(())
    }

    fn heard(
        &mut self,
        supervisor: &Supervisor,
        message: FromInit,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Fatal> {
        let run = self.plan.run;
        let listeners = usize::from(self.plan.endpoints.egress) + usize::from(self.plan.endpoints.model);
        let probing = matches!(self.plan.purpose, Purpose::Probe(_));
        match (message, self.state) {
            (FromInit::Ready { listeners: made, terminal }, State::Starting)
                if usize::from(made) == listeners
                    && terminal == self.has_terminal()
                    && self.made.is_none() =>
            {
                self.made = Some(descriptors);
                if let Err(failure) = self.take_hold() {
                    self.fail(failure);
                }
                // What may still take its time is our own walk through the operator's directories.
                self.start_ends = None;
                self.ready_if_so(supervisor)
            }
            (FromInit::Failed { step, errno }, State::Starting) => {
                self.fail(failure::from_init(step, errno));
                Ok(())
            }
            (FromInit::Stopped(signal), State::Running) if !probing => {
                Ok(supervisor.send(&FromLauncher::Stopped { run, signal }, &[])?)
            }
            (FromInit::Exited(exit), State::Running) if !probing => {
                self.outcome = Some(Outcome::Exited(Some(exit)));
                // Where it has to be seen first whether a limit ended it, that comes first.
                if self.group.is_none() && self.watch.is_none() {
                    self.tell(supervisor)?;
                }
                self.begin_ending();
                Ok(())
            }
            (FromInit::Probed(failures), State::Running) if probing => {
                self.outcome = Some(Outcome::Probed(failures));
                self.begin_ending();
                Ok(())
            }
            (
                message @ (FromInit::Ready { .. }
                | FromInit::Failed { .. }
                | FromInit::Stopped(_)
                | FromInit::Exited(_)
                | FromInit::Probed(_)),
                state,
            ) => Err(ChannelError::unexpected(&message, state.as_str()).into()),
        }
    }

    fn hear_watch(&mut self, supervisor: &Supervisor, log: &Log) -> Result<(), Fatal> {
        let Some(watch) = &self.watch else { return Ok(()) };
        match watch.next() {
            Word::Ready => {
                self.measured = true;
                self.ready_if_so(supervisor)
            }
            Word::Exceeded => self.grew_too_far(supervisor),
            Word::Finished => match self.state {
                State::Measuring => self.begin_removing(supervisor, log),
                State::Planned
                | State::Starting
                | State::Ready
                | State::Running
                | State::Ending
                | State::Removing
                | State::Closed => Ok(()),
            },
            Word::Gone => {
                self.unwatched = true;
                match self.state {
                    State::Planned | State::Starting => self.fail(failure(
                        Code::SandboxStartFailed,
                        "the growth of the run's directories cannot be measured",
                    )),
                    State::Ready => self.end(),
                    // What nobody measures may be anything.
                    State::Running | State::Ending => self.grew_too_far(supervisor)?,
                    State::Measuring => {
                        self.grew_too_far(supervisor)?;
                        self.begin_removing(supervisor, log)?;
                    }
                    // The last walk is done.
                    State::Removing | State::Closed => {}
                }
                Ok(())
            }
        }
    }

    fn grew_too_far(&mut self, supervisor: &Supervisor) -> Result<(), Fatal> {
        // Only a program that was started can exceed anything, and only its first word of an end counts.
        if self.went && !self.over && !self.told {
            self.over = true;
            let over = FromLauncher::Over { run: self.plan.run, exceeded: Exceeded::Growth };
            supervisor.send(&over, &[])?;
            self.end();
        }
        Ok(())
    }

    /// bwrap has ended: at the start it failed, later the sandbox ends with it.
    fn bwrap_ended(&mut self) {
        match self.state {
            State::Starting => {
                let complaint = self.sandbox.as_ref().map(|sandbox| sandbox.complaint().to_vec());
                self.fail(failure::from_bwrap(&complaint.unwrap_or_default(), &Host::ask()));
            }
            State::Ready | State::Running => self.end(),
            State::Planned | State::Ending | State::Measuring | State::Removing | State::Closed => {}
        }
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

#[cfg(test)]
mod tests;
