//! The life of one run: probe, start, open, run, end. One function a step, one handler a channel; whatever does not
//! belong to the step at hand ends everything.

mod ending;
mod hearing;
mod model;
mod saying;
mod waiting;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use confine::sys::signal::{Signal, Signals};
use ipc_proto::broker::{FromBroker, ToBroker};
use ipc_proto::init::{Exit, Purpose};
use ipc_proto::job::{Job, Word};
use ipc_proto::launcher::{Endpoints, Exceeded, Failure, FromLauncher, ToLauncher, Used};
use ipc_proto::limits::LimitName;
use ipc_proto::proxy::{Debits, FromProxy, MAX_HOSTS_A_MESSAGE, ToProxy};
use ipc_proto::terminal::{FromTerminal, ToTerminal};
use ipc_proto::{Channel, ChannelError, Code, Message, Received, bulk};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::answer::Output;
use super::egress::{Attempts, Taken, tunnel_limits};
use super::requests::Requests;
use super::violations::Violations;
use super::{Fatal, probe, summary};
use crate::chain::{Chain, at_unix_ms, hex, rfc3339};
use crate::error::{Trouble, one_line};
use crate::explain;
use crate::ledger::Ledger;
use crate::record::{Bound, Ended, Model, Record};

/// From the plan to a sandbox that waits: bubblewrap takes milliseconds, a machine under load seconds.
const START_TIME: Duration = Duration::from_secs(20);
/// More for a run whose growth is limited: a million files take a minute.
const MEASURE_TIME: Duration = Duration::from_secs(120);
/// From the end of the command to its directories being gone: a million files take a minute.
const END_TIME: Duration = Duration::from_secs(300);
/// From a signal that asks the command to end until it is ended.
const GRACE: Duration = Duration::from_secs(10);
/// How long a decision may wait until it is on disk (EVI-1).
const COMMIT: Duration = Duration::from_millis(100);

/// The ends that the supervisor was started with.
#[derive(Debug)]
pub struct Ends {
    /// To the launcher.
    pub launcher: Channel<ToLauncher, FromLauncher>,
    /// To the proxy.
    pub proxy: Channel<ToProxy, FromProxy>,
    /// To the broker, where there is one.
    pub broker: Option<Channel<ToBroker, FromBroker>>,
    /// Where the agent's answer is read, and where it is written.
    pub answer: Option<(File, File)>,
    /// To the terminal process, where there is one.
    pub terminal: Option<Channel<ToTerminal, FromTerminal>>,
    /// The run's chain, empty.
    pub chain: File,
    /// Where the guard hears its words.
    pub guard: File,
    /// What becomes 0, 1 and 2 of the command.
    pub stdio: [OwnedFd; 3],
    /// Where the record goes.
    pub record: Option<File>,
    /// Where the probe's result is kept.
    pub probe_cache: Option<File>,
    /// The control group.
    pub control_group: Option<OwnedFd>,
    /// Where words for the operator go.
    pub log: File,
    /// /dev/null, for the probe.
    pub null: OwnedFd,
}

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The probe is started, and checks.
    Probing,
    /// The probe has reported.
    ProbeEnding,
    /// The run's plan is sent.
    Starting,
    /// The sandbox stands; proxy and terminal are being told.
    Opening,
    /// The command runs.
    Running,
    /// It has ended; the others close.
    Ending,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Phase::Probing => "the probe runs",
            Phase::ProbeEnding => "the probe ends",
            Phase::Starting => "the sandbox starts",
            Phase::Opening => "the endpoints open",
            Phase::Running => "the command runs",
            Phase::Ending => "the run ends",
        }
    }
}

/// What has been said by whom.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    launched: bool,
    launcher_hello: bool,
    probing: bool,
    proxy_hello: bool,
    proxy_open: bool,
    proxy_opened: bool,
    proxy_closed: bool,
    broker_hello: bool,
    broker_open: bool,
    broker_opened: bool,
    broker_closed: bool,
    recalling: bool,
    attached: bool,
    attach_sent: bool,
    finished: bool,
    launcher_closed: bool,
    exited: bool,
    asked_to_end: bool,
}

/// One run in the foreground.
#[derive(Debug)]
pub struct Foreground {
    job: Job,
    ends: Ends,
    chain: Option<Chain>,
    signals: Signals,
    phase: Phase,
    told: Told,
    ledger: Ledger,
    attempts: Attempts,
    requests: Requests,
    /// Model requests that wait for their debit, in order, with their bytes.
    wanting: VecDeque<(u32, u64)>,
    violations: Violations,
    output: Option<Output>,
    used: Used,
    ended: Option<Ended>,
    unavailable: Option<Trouble>,
    walls: Value,
    stopped: bool,
    /// Suspends that the terminal process has not answered.
    suspending: u32,
    began: Option<Instant>,
    phase_ends: Instant,
    wall_ends: Option<Instant>,
    window_ends: Option<Instant>,
    grace_ends: Option<Instant>,
    commit_due: Option<Instant>,
}

impl Foreground {
    /// A run that has not begun.
    ///
    /// # Errors
    /// When the ends cannot be used.
    pub fn new(job: Job, mut ends: Ends, signals: Signals) -> Result<Foreground, Fatal> {
        let chain = Some(Chain::new(ends.chain.try_clone()?));
        let ledger = Ledger::new(job.budget);
        let phase = if job.probe.is_some() { Phase::Probing } else { Phase::Starting };
        if !job.record {
            ends.record = None;
        }
        let output = job.answer.zip(ends.answer.take());
        let output = output.map(|(answer, (reader, operator))| Output::new(answer, reader, operator));
        Ok(Foreground {
            job,
            ends,
            chain,
            signals,
            phase,
            told: Told::default(),
            ledger,
            attempts: Attempts::default(),
            requests: Requests::default(),
            wanting: VecDeque::new(),
            violations: Violations::default(),
            output,
            used: Used::default(),
            ended: None,
            unavailable: None,
            walls: Value::Null,
            stopped: false,
            suspending: 0,
            began: None,
            phase_ends: Instant::now() + START_TIME,
            wall_ends: None,
            window_ends: None,
            grace_ends: None,
            commit_due: None,
        })
    }

    /// Runs it to its end. The exit status of `anet run`.
    pub fn run(mut self) -> u8 {
        match self.serve() {
            Ok(()) => {}
            Err(fatal) => {
                let code = fatal.code();
                self.say(&format!("anet: {code}: {}\n", one_line(&fatal.to_string())));
                self.ended = Some(Ended::Failed(code));
            }
        }
        match self.finish() {
            Ok(status) => status,
            Err(fatal) => {
                self.say(&format!("anet: {}: {}\n", fatal.code(), one_line(&fatal.to_string())));
                crate::error::STATUS_FAILED
            }
        }
    }

    fn serve(&mut self) -> Result<(), Fatal> {
        if self.job.probe.is_some() {
            self.start_probe()?
        } else {
            self.start_run()?
        }
        while !self.is_over() {
            self.wait()?;
        }
        match self.unavailable.take() {
            Some(trouble) => Err(Fatal::Unavailable(trouble)),
            None => Ok(()),
        }
    }

    fn is_over(&self) -> bool {
        let Told { launcher_closed, proxy_open, proxy_closed, attach_sent, finished, .. } = self.told;
        let Told { broker_open, broker_closed, .. } = self.told;
        self.phase == Phase::Ending
            && launcher_closed
            && (!proxy_open || proxy_closed)
            && (!broker_open || broker_closed)
            && (!attach_sent || finished)
    }

    // ---- the steps -------------------------------------------------------------------------------------------

    /// PRB-1: the same sandbox, with checks in the place of the command.
    fn start_probe(&mut self) -> Result<(), Fatal> {
        let Some(probe) = &self.job.probe else { return Ok(()) };
        let mut plan = self.job.plan.clone();
        plan.run = probe.run;
        plan.purpose = Purpose::Probe(probe.plan.clone());
        plan.endpoints = Endpoints { egress: false, model: false };
        plan.home.clear();
        plan.files.work = ipc_proto::launcher::WorkDirectory::Fresh;
        plan.files.read_write.clear();
        plan.files.read_only.clear();
        plan.files.deny.clear();
        plan.growth = None;
        plan.memory = None;
        plan.tasks = None;
        let memory = bulk::seal(&plan)?;
        let null = self.ends.null.as_fd();
        self.ends.launcher.send(&ToLauncher::Plan(probe.run), &[memory.as_fd()])?;
        self.ends.launcher.send(&ToLauncher::Launch(probe.run), &[null, null, null])?;
        self.launched()
    }

    /// The guard starts the proxy now, and not before: on a small machine the two starts would wait for each other, and the
    /// proxy is not needed until the sandbox stands.
    fn launched(&mut self) -> Result<(), Fatal> {
        if self.told.launched {
            return Ok(());
        }
        self.told.launched = true;
        self.word(Word::Launched)
    }

    /// EVI-1: admitted, with what it may use, before anything of it happens.
    fn start_run(&mut self) -> Result<(), Fatal> {
        if self.job.probe_only {
            self.phase = Phase::Ending;
            self.told.launcher_closed = true;
            return Ok(());
        }
        self.phase = Phase::Starting;
        // A limit on growth needs to know what was there before, file by file.
        let measuring = if self.job.plan.growth.is_some() { MEASURE_TIME } else { Duration::ZERO };
        self.phase_ends = Instant::now() + START_TIME + measuring;
        let run = self.job.run;
        let memory = bulk::seal(&self.job.plan)?;
        self.ends.launcher.send(&ToLauncher::Plan(run), &[memory.as_fd()])?;
        if let Some(group) = &self.ends.control_group {
            self.ends.launcher.send(&ToLauncher::ControlGroup(run), &[group.as_fd()])?;
        }
        let [input, output, errors] = &self.ends.stdio;
        self.ends
            .launcher
            .send(&ToLauncher::Launch(run), &[input.as_fd(), output.as_fd(), errors.as_fd()])?;
        self.launched()?;
        // The disk works while bubblewrap does; nothing starts before Go.
        let admitted = self.admission();
        self.append("run.admitted", &admitted)?;
        self.sync()
    }

    /// The sandbox stands: everybody who serves it is told, and has to say so.
    fn open(&mut self, terminal: bool, descriptors: Vec<OwnedFd>) -> Result<(), Fatal> {
        self.phase = Phase::Opening;
        let run = self.job.run;
        let mut passed = descriptors.into_iter();
        if let Some(listener) = self.job.plan.endpoints.egress.then(|| passed.next()).flatten() {
            for hosts in self.job.hosts.chunks(MAX_HOSTS_A_MESSAGE) {
                self.ends.proxy.send(&ToProxy::Hosts { run, hosts: hosts.to_vec() }, &[])?;
            }
            let debits = Debits {
                destinations: self.job.budget.destinations.is_some(),
                bytes_out: self.ledger.first_lease(),
            };
            let open = ToProxy::Open {
                run,
                hosts: u16::try_from(self.job.hosts.len()).unwrap_or(u16::MAX),
                limits: tunnel_limits(&self.job.limits),
                debits,
            };
            self.ends.proxy.send(&open, &[listener.as_fd()])?;
            self.told.proxy_open = true;
        }
        if let Some(listener) = self.job.plan.endpoints.model.then(|| passed.next()).flatten() {
            self.open_broker(&listener)?;
        }
        if let (Some(channel), Some(mode)) = (&self.ends.terminal, self.job.terminal) {
            let outer = if terminal { passed.next() } else { None };
            let outer = outer.as_ref().map_or(self.ends.null.as_fd(), |outer| outer.as_fd());
            channel.send(&ToTerminal::Attach(mode), &[outer])?;
            self.told.attach_sent = true;
        }
        // The command has its own copies now; ours would keep a reader waiting for an end that never comes.
        let null = || rustix::io::fcntl_dupfd_cloexec(&self.ends.null, 3);
        let (a, b, c) = (null().map_err(os("dup"))?, null().map_err(os("dup"))?, null().map_err(os("dup"))?);
        self.ends.stdio = [a, b, c];
        self.go_if_ready()
    }

    fn go_if_ready(&mut self) -> Result<(), Fatal> {
        let Told { proxy_open, proxy_opened, attach_sent, attached, .. } = self.told;
        let Told { broker_open, broker_opened, .. } = self.told;
        let waits =
            (proxy_open && !proxy_opened) || (broker_open && !broker_opened) || (attach_sent && !attached);
        if self.phase != Phase::Opening || waits {
            return Ok(());
        }
        let walls = std::mem::take(&mut self.walls);
        self.append("run.started", &json!({ "walls": walls }))?;
        self.ends.launcher.send(&ToLauncher::Go(self.job.run), &[])?;
        let now = Instant::now();
        self.phase = Phase::Running;
        self.began = Some(now);
        self.wall_ends = self.job.limits.get(LimitName::WallClock).map(|ms| now + Duration::from_millis(ms));
        self.window_ends = self.job.budget.window.map(|ms| now + Duration::from_millis(ms));
        self.word(Word::Started)
    }

    /// The command has ended, or never began: the rest closes.
    fn begin_ending(&mut self) -> Result<(), Fatal> {
        if self.phase == Phase::Ending {
            return Ok(());
        }
        self.phase = Phase::Ending;
        self.phase_ends = Instant::now() + END_TIME;
        self.grace_ends = None;
        if self.told.proxy_open {
            self.ends.proxy.send(&ToProxy::Close { run: self.job.run }, &[])?;
        }
        self.close_broker()?;
        if let Some(channel) = self.ends.terminal.as_ref().filter(|_| self.told.attach_sent) {
            channel.send(&ToTerminal::Finish, &[])?;
        }
        Ok(())
    }

    /// Ends the command for `reason`, once.
    fn end(&mut self, reason: Ended) -> Result<(), Fatal> {
        self.ended.get_or_insert(reason);
        if !self.told.asked_to_end && !self.told.exited {
            self.told.asked_to_end = true;
            self.phase_ends = Instant::now() + END_TIME;
            self.ends.launcher.send(&ToLauncher::End(self.job.run), &[])?;
        }
        Ok(())
    }
}

fn os(what: &'static str) -> impl Fn(rustix::io::Errno) -> Fatal {
    move |errno| Fatal::System { what, errno }
}
