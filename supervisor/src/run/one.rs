//! The life of one run: start, open, run, end. One function a step, one handler a channel; whatever does not belong to the
//! step at hand is an error that ends everything.
//!
//! It is moved by its owner, who waits and passes on what was heard: `anet run`'s supervisor has one of it
//! ([`super::Foreground`]), a node's has many.

mod ending;
mod hearing;
mod model;
mod saying;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use ipc_proto::broker::{FromBroker, ToBroker};
use ipc_proto::init::{Exit, Purpose};
use ipc_proto::job::Job;
use ipc_proto::launcher::{Exceeded, Failure, FromLauncher, ToLauncher, Used};
use ipc_proto::limits::LimitName;
use ipc_proto::proxy::{Debits, DialReport, FromProxy, MAX_HOSTS_A_MESSAGE, ToProxy};
use ipc_proto::{ChannelError, Code, Message, bulk};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::egress::{Attempts, Taken, tunnel_limits};
use super::requests::{Requests, model_limits};
use super::violations::Violations;
use super::{Fatal, Journal, Lines};
use crate::chain::{at_unix_ms, hex, rfc3339};
use crate::error::{Trouble, one_line};
use crate::explain;
use crate::ledger::Ledger;
use crate::record::{Bound, Ended, Model, Record};

/// From the plan to a sandbox that waits: bubblewrap takes milliseconds, a machine under load seconds.
pub(super) const START_TIME: Duration = Duration::from_secs(20);
/// More for a run whose growth is limited: a million files take a minute.
const MEASURE_TIME: Duration = Duration::from_secs(120);
/// From the end of the command to its directories being gone: a million files take a minute.
pub(super) const END_TIME: Duration = Duration::from_secs(300);

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The run's plan is sent.
    Starting,
    /// The sandbox stands; proxy, broker and terminal are being told.
    Opening,
    /// The command runs.
    Running,
    /// It has ended; the others close.
    Ending,
}

impl Phase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Phase::Starting => "the sandbox starts",
            Phase::Opening => "the endpoints open",
            Phase::Running => "the command runs",
            Phase::Ending => "the run ends",
        }
    }
}

/// What its owner has to know or do.
#[derive(Debug)]
pub(crate) enum Event {
    /// The sandbox stands. Where the run has a terminal, this is its outer end, and Go waits for [`Run::attached`].
    Opened(Option<OwnedFd>),
    /// The command runs.
    Started,
    /// The command was stopped.
    Stopped,
    /// The command has ended, or never began.
    Ending,
}

/// What has been said by whom.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    proxy_open: bool,
    proxy_opened: bool,
    proxy_closed: bool,
    broker_open: bool,
    broker_opened: bool,
    broker_closed: bool,
    recalling: bool,
    attached: bool,
    launcher_closed: bool,
    exited: bool,
    asked_to_end: bool,
}

/// One run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(super) job: Job,
    /// More that its admission says: whose task it is for, what it is counted in.
    origin: Value,
    lines: Rc<Lines>,
    journal: Box<dyn Journal>,
    stdio: Option<[OwnedFd; 3]>,
    control_group: Option<OwnedFd>,
    phase: Phase,
    told: Told,
    ledger: Ledger,
    attempts: Attempts,
    pub(super) requests: Requests,
    /// Model requests that wait for their debit, in order, with their bytes.
    wanting: VecDeque<(u32, u64)>,
    /// The node itself asks the model ([`Run::ask`]).
    asking: bool,
    /// What the model answered it.
    answer: Option<String>,
    violations: Violations,
    used: Used,
    ended: Option<Ended>,
    unavailable: Option<Trouble>,
    walls: Value,
    pub(super) events: VecDeque<Event>,
    began: Option<Instant>,
    phase_ends: Instant,
    wall_ends: Option<Instant>,
    window_ends: Option<Instant>,
}

/// What a run is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Everything that was decided about it.
    pub(crate) job: Job,
    /// More that its admission says (a JSON object).
    pub(crate) origin: Value,
    /// The channels to launcher, proxy and broker.
    pub(crate) lines: Rc<Lines>,
    /// Where its evidence goes.
    pub(crate) journal: Box<dyn Journal>,
    /// What becomes 0, 1 and 2 of the command.
    pub(crate) stdio: [OwnedFd; 3],
    /// Its control group.
    pub(crate) control_group: Option<OwnedFd>,
    /// Which walls hold for the launcher, for the evidence.
    pub(crate) walls: Value,
}

impl Run {
    /// A run that has not begun.
    pub(crate) fn new(parts: Parts) -> Run {
        let Parts { job, origin, lines, journal, stdio, control_group, walls } = parts;
        let ledger = Ledger::new(job.budget);
        Run {
            told: Told { attached: job.terminal.is_none(), ..Told::default() },
            job,
            origin,
            lines,
            journal,
            stdio: Some(stdio),
            control_group,
            phase: Phase::Starting,
            ledger,
            attempts: Attempts::default(),
            requests: Requests::default(),
            wanting: VecDeque::new(),
            asking: false,
            answer: None,
            violations: Violations::default(),
            used: Used::default(),
            ended: None,
            unavailable: None,
            walls,
            events: VecDeque::new(),
            began: None,
            phase_ends: Instant::now() + START_TIME,
            wall_ends: None,
            window_ends: None,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// What happened since the last time.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Nothing of it is left anywhere.
    pub(crate) fn is_over(&self) -> bool {
        let Told { launcher_closed, proxy_open, proxy_closed, broker_open, broker_closed, .. } = self.told;
        self.phase == Phase::Ending
            && launcher_closed
            && (!proxy_open || proxy_closed)
            && (!broker_open || broker_closed)
    }

    /// What the model answered, where the node asked it itself.
    pub(crate) fn take_answer(&mut self) -> Option<String> {
        self.answer.take()
    }

    /// Why its sandbox could not be used.
    pub(crate) fn take_unavailable(&mut self) -> Option<Trouble> {
        self.unavailable.take()
    }

    // ---- the steps -------------------------------------------------------------------------------------------

    /// EVI-1: admitted, with what it may use, before anything of it happens.
    pub(crate) fn start(&mut self) -> Result<(), Fatal> {
        // A limit on growth needs to know what was there before, file by file.
        let measuring = if self.job.plan.growth.is_some() { MEASURE_TIME } else { Duration::ZERO };
        self.phase_ends = Instant::now() + START_TIME + measuring;
        let run = self.job.run;
        let memory = bulk::seal(&self.job.plan)?;
        self.lines.launcher.send(&ToLauncher::Plan(run), &[memory.as_fd()])?;
        if let Some(group) = self.control_group.take() {
            self.lines.launcher.send(&ToLauncher::ControlGroup(run), &[group.as_fd()])?;
        }
        if let Some([input, output, errors]) = &self.stdio {
            self.lines
                .launcher
                .send(&ToLauncher::Launch(run), &[input.as_fd(), output.as_fd(), errors.as_fd()])?;
        }
        Ok(())
    }

    /// SEL-3: the node asks the model itself; no program is started and no sandbox made. To be called after [`Run::admit`].
    pub(crate) fn ask(&mut self, task: &OwnedFd) -> Result<(), Fatal> {
        let (Some(channel), Some(model)) = (&self.lines.broker, &self.job.model) else {
            return Err(Fatal::Gone("anet-broker"));
        };
        let run = self.job.run;
        let ask = ToBroker::Ask {
            run,
            policy: model.policy.clone(),
            limits: model_limits(&self.job.limits),
            debits: self.debits_requests(),
        };
        channel.send(&ask, &[task.as_fd()])?;
        self.told.launcher_closed = true;
        self.told.broker_open = true;
        self.told.broker_opened = true;
        self.asking = true;
        self.stdio = None;
        self.begin(Value::Null)
    }

    /// It runs from now on.
    fn begin(&mut self, walls: Value) -> Result<(), Fatal> {
        self.append("run.started", &json!({ "walls": walls }))?;
        let now = Instant::now();
        self.phase = Phase::Running;
        self.began = Some(now);
        self.wall_ends = self.job.limits.get(LimitName::WallClock).map(|ms| now + Duration::from_millis(ms));
        self.window_ends = self.job.budget.window.map(|ms| now + Duration::from_millis(ms));
        self.events.push_back(Event::Started);
        Ok(())
    }

    /// The other half of the start: the disk works while bubblewrap does, and nothing starts before Go.
    pub(crate) fn admit(&mut self) -> Result<(), Fatal> {
        let admitted = self.admission();
        self.append("run.admitted", &admitted)?;
        Ok(self.journal.sync()?)
    }

    /// The sandbox stands: everybody who serves it is told, and has to say so.
    fn open(&mut self, terminal: bool, descriptors: Vec<OwnedFd>) -> Result<(), Fatal> {
        self.phase = Phase::Opening;
        let run = self.job.run;
        let mut passed = descriptors.into_iter();
        if let Some(listener) = self.job.plan.endpoints.egress.then(|| passed.next()).flatten() {
            for hosts in self.job.hosts.chunks(MAX_HOSTS_A_MESSAGE) {
                self.lines.proxy.send(&ToProxy::Hosts { run, hosts: hosts.to_vec() }, &[])?;
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
            self.lines.proxy.send(&open, &[listener.as_fd()])?;
            self.told.proxy_open = true;
        }
        if let Some(listener) = self.job.plan.endpoints.model.then(|| passed.next()).flatten() {
            self.open_broker(&listener)?;
        }
        self.events.push_back(Event::Opened(if terminal { passed.next() } else { None }));
        // The command has its own copies now; ours would keep a reader waiting for an end that never comes.
        self.stdio = None;
        self.go_if_ready()
    }

    /// The terminal process holds its end.
    pub(crate) fn attached(&mut self) -> Result<(), Fatal> {
        self.told.attached = true;
        self.go_if_ready()
    }

    fn go_if_ready(&mut self) -> Result<(), Fatal> {
        let Told { proxy_open, proxy_opened, broker_open, broker_opened, attached, .. } = self.told;
        let waits = (proxy_open && !proxy_opened) || (broker_open && !broker_opened) || !attached;
        if self.phase != Phase::Opening || waits {
            return Ok(());
        }
        let walls = std::mem::take(&mut self.walls);
        self.begin(walls)?;
        Ok(self.lines.launcher.send(&ToLauncher::Go(self.job.run), &[])?)
    }

    /// The command has ended, or never began: the rest closes.
    fn begin_ending(&mut self) -> Result<(), Fatal> {
        if self.phase == Phase::Ending {
            return Ok(());
        }
        self.phase = Phase::Ending;
        self.phase_ends = Instant::now() + END_TIME;
        if self.told.proxy_open {
            self.lines.proxy.send(&ToProxy::Close { run: self.job.run }, &[])?;
        }
        self.close_broker()?;
        self.events.push_back(Event::Ending);
        Ok(())
    }

    /// Ends the command for `reason`, once.
    pub(crate) fn end(&mut self, reason: Ended) -> Result<(), Fatal> {
        self.ended.get_or_insert(reason);
        if !self.told.asked_to_end && !self.told.exited {
            self.told.asked_to_end = true;
            self.phase_ends = Instant::now() + END_TIME;
            if self.asking {
                self.told.exited = true;
                return self.begin_ending();
            }
            self.lines.launcher.send(&ToLauncher::End(self.job.run), &[])?;
        }
        Ok(())
    }

    /// It ended for a failure of ours, whatever it says itself.
    pub(super) fn failed(&mut self, code: Code) {
        self.ended = Some(Ended::Failed(code));
    }

    /// BUD-4: exhaustion is terminal.
    fn exhausted(&mut self) -> Result<(), Fatal> {
        match self.ledger.exhausted() {
            Some(dimension) if self.phase == Phase::Running => self.end(Ended::Budget(dimension.as_str())),
            Some(_) | None => Ok(()),
        }
    }

    // ---- the clocks ------------------------------------------------------------------------------------------

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let running = self.phase == Phase::Running && !self.told.asked_to_end;
        let phase = (!running).then_some(self.phase_ends);
        let clocks = [self.wall_ends, self.window_ends].into_iter().flatten().filter(|_| running);
        phase.into_iter().chain(clocks).min()
    }

    pub(crate) fn look_at_clocks(&mut self, now: Instant) -> Result<(), Fatal> {
        let is_over = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.phase != Phase::Running || self.told.asked_to_end {
            if self.phase_ends <= now {
                return Err(Fatal::Late(match self.phase {
                    Phase::Starting | Phase::Opening => "the sandbox did not start in time",
                    Phase::Running | Phase::Ending => {
                        "the run's processes or directories could not be removed in time"
                    }
                }));
            }
            return Ok(());
        }
        if is_over(self.wall_ends) {
            self.end(Ended::Limit(LimitName::WallClock.as_str()))
        } else if is_over(self.window_ends) {
            self.ledger.window_over();
            self.end(Ended::Budget("window"))
        } else {
            Ok(())
        }
    }
}
