//! A turn outside of the sandbox, for a trusted peer in a user's node (SEL-4). `anet-outside` runs it; here is what is known of it.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use ipc_proto::init::Exit;
use ipc_proto::limits::LimitName;
use ipc_proto::outside::{FromOutside, ToOutside};
use ipc_proto::{Aid, Channel, ChannelError, Code, InteractionId, RunId};
use serde_json::{Value, json};

use crate::chain::{at_unix_ms, rfc3339};
use crate::record::{Bound, Ended, Model, Record};
use crate::run::one::Phase;
use crate::run::{Fatal, Journal};

/// From the order to the agent's start.
const START_TIME: Duration = Duration::from_secs(20);
/// From the order to end it to its end: it is asked before it is killed.
const END_TIME: Duration = Duration::from_secs(30);

/// One such run.
#[derive(Debug)]
pub(super) struct Direct {
    run: RunId,
    agent: String,
    started: u64,
    wall_clock: Option<u64>,
    channel: Rc<Channel<ToOutside, FromOutside>>,
    journal: Box<dyn Journal>,
    phase: Phase,
    over: bool,
    ended: Option<Ended>,
    asked_to_end: bool,
    began: Option<Instant>,
    phase_ends: Instant,
    wall_ends: Option<Instant>,
}

/// What it is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) run: RunId,
    pub(super) agent: String,
    pub(super) started: u64,
    /// Milliseconds.
    pub(super) wall_clock: Option<u64>,
    pub(super) channel: Rc<Channel<ToOutside, FromOutside>>,
    pub(super) journal: Box<dyn Journal>,
}

impl Direct {
    pub(super) fn new(parts: Parts) -> Direct {
        let Parts { run, agent, started, wall_clock, channel, journal } = parts;
        Direct {
            run,
            agent,
            started,
            wall_clock,
            channel,
            journal,
            phase: Phase::Starting,
            over: false,
            ended: None,
            asked_to_end: false,
            began: None,
            phase_ends: Instant::now() + START_TIME,
            wall_ends: None,
        }
    }

    /// EVI-1: admitted on disk, then started.
    pub(super) fn start(
        &mut self,
        peer: Aid,
        interaction: InteractionId,
        origin: Value,
        task: &OwnedFd,
        output: &OwnedFd,
        errors: &OwnedFd,
    ) -> Result<(), Fatal> {
        let mut body = json!({
            "run": self.run.to_string(), "agent": self.agent, "started": rfc3339(at_unix_ms(self.started)),
        });
        if let (Some(body), Some(origin)) = (body.as_object_mut(), origin.as_object()) {
            body.extend(origin.clone());
        }
        self.journal.append("run.admitted", &body)?;
        self.journal.sync()?;
        let order = ToOutside::Direct { run: self.run, peer, interaction };
        Ok(self.channel.send(&order, &[task.as_fd(), output.as_fd(), errors.as_fd()])?)
    }

    pub(super) fn hear(&mut self, message: &FromOutside) -> Result<(), Fatal> {
        match message {
            FromOutside::Started { run } if *run == self.run && self.phase == Phase::Starting => {
                self.journal.append("run.started", &json!({}))?;
                let now = Instant::now();
                self.phase = Phase::Running;
                self.began = Some(now);
                self.wall_ends = self.wall_clock.map(|ms| now + Duration::from_millis(ms));
                Ok(())
            }
            FromOutside::Failed { run, .. } if *run == self.run && self.phase == Phase::Starting => {
                self.ended.get_or_insert(Ended::Failed(Code::AgentMissing));
                self.phase = Phase::Ending;
                self.over = true;
                Ok(())
            }
            FromOutside::Exited { run, exit } if *run == self.run && !self.over => {
                self.ended.get_or_insert(match *exit {
                    Exit::Status(status) => Ended::Status(status),
                    Exit::Signal(signal) => Ended::Signal(signal),
                    Exit::NotFound => Ended::NotFound,
                    Exit::NotExecutable => Ended::NotExecutable,
                });
                self.phase = Phase::Ending;
                self.over = true;
                Ok(())
            }
            FromOutside::Hello
            | FromOutside::Started { .. }
            | FromOutside::Failed { .. }
            | FromOutside::Exited { .. }
            | FromOutside::Notified { .. }
            | FromOutside::Swept { .. } => Err(ChannelError::unexpected(message, self.phase.as_str()).into()),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn ended(&self) -> Ended {
        self.ended.unwrap_or(Ended::Failed(Code::ProcessDied))
    }

    pub(super) fn end(&mut self, reason: Ended) -> Result<(), Fatal> {
        self.ended.get_or_insert(reason);
        if !self.asked_to_end && !self.over {
            self.asked_to_end = true;
            self.phase_ends = Instant::now() + END_TIME;
            self.channel.send(&ToOutside::End { run: self.run }, &[])?;
        }
        Ok(())
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.phase == Phase::Running && !self.asked_to_end {
            self.wall_ends
        } else {
            Some(self.phase_ends)
        }
    }

    pub(super) fn look_at_clocks(&mut self, now: Instant) -> Result<(), Fatal> {
        if self.phase == Phase::Running && !self.asked_to_end {
            return match self.wall_ends {
                Some(at) if at <= now => self.end(Ended::Limit(LimitName::WallClock.as_str())),
                Some(_) | None => Ok(()),
            };
        }
        if self.phase_ends <= now && !self.over {
            return Err(Fatal::Late("an agent outside of the sandbox did not start or end in time"));
        }
        Ok(())
    }

    /// Its record, and its last line in the evidence.
    pub(super) fn close(&mut self, kind: &str) -> (Record, Result<(), Fatal>) {
        let elapsed =
            self.began.map_or(0, |began| u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let limits =
            self.wall_clock.map(|limit| (LimitName::WallClock.as_str(), Bound { limit, used: elapsed }));
        let record = Record {
            run: self.run.to_string(),
            agent: self.agent.clone(),
            started: rfc3339(at_unix_ms(self.started)),
            ended: rfc3339(SystemTime::now()),
            exit: self.ended().to_json(),
            limits: limits.into_iter().collect(),
            budget: std::collections::BTreeMap::new(),
            model: Model::default(),
            egress: Vec::new(),
            egress_omitted: 0,
            violations: Vec::new(),
            violations_omitted: 0,
            warnings: Vec::new(),
        };
        let body = json!({ "exit": record.exit, "limits": record.limits, "ended": record.ended });
        let closed = self.journal.append(kind, &body).and_then(|()| self.journal.close());
        (record, closed.map_err(Fatal::from))
    }
}
