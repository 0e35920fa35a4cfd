//! The desk: everything that comes of tasks. The inbox, the turns, whoever waits for an answer, and the process that starts
//! programs outside of the sandbox. A build without auto-reply has `left_out.rs` in its place, behind the same door: the
//! [`Desk`], the [`Inbox`] in the store, and the methods of the node that are visible outside of this directory.

mod concluding;
mod direct;
mod outside;
mod requests;
mod scanning;
mod setup;
mod starting;
mod turns;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use ipc_proto::control::{AutoReply, Running};
use std::path::PathBuf;

use self::turns::{Turn, Work};
use super::clients::ClientId;
use super::job::Policy;
use super::*;
use crate::admission;
use crate::chain::{at_unix_ms, rfc3339};
use crate::config::{Backend, Trusted, Untrusted};
use crate::record::Ended;
use crate::run::one::Run;

use crate::inbox::DATABASE;
pub(super) use crate::inbox::Inbox;

/// What is under way.
#[derive(Debug)]
pub(super) struct Desk {
    turns: BTreeMap<RunId, Turn>,
    /// The process outside of the sandbox, where there is one.
    outside: Option<Rc<Channel<ToOutside, FromOutside>>>,
    outside_hello: bool,
    /// Tests that wait until the sandbox was tried.
    tests: Vec<(ClientId, Vec<u8>)>,
    events: u64,
    last_event: Option<String>,
}

impl Desk {
    pub(super) fn new(outside: Option<Channel<ToOutside, FromOutside>>) -> Desk {
        Desk {
            turns: BTreeMap::new(),
            outside: outside.map(Rc::new),
            outside_hello: false,
            tests: Vec::new(),
            events: 0,
            last_event: None,
        }
    }

    /// All that it needs has said that it is there.
    pub(super) fn is_ready(&self) -> bool {
        self.outside_hello || self.outside.is_none()
    }

    /// Nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.turns.is_empty()
    }

    /// Ends all turns.
    pub(super) fn stop(&mut self) -> Result<(), Fatal> {
        // One whose agent has ended has its answer.
        for turn in self.turns.values_mut().filter(|turn| !turn.is_ending()) {
            turn.interrupted = true;
            turn.end(Ended::Failed(Code::SandboxUnavailable))?;
        }
        Ok(())
    }

    /// A run of launcher, proxy and broker.
    pub(super) fn run(&mut self, run: RunId) -> Option<&mut Run> {
        self.turns.get_mut(&run)?.run()
    }

    /// All of these.
    pub(super) fn runs(&mut self) -> impl Iterator<Item = &mut Run> {
        self.turns.values_mut().filter_map(Turn::run)
    }

    /// What `anet status` shows of them.
    pub(super) fn running(&self) -> Vec<Running> {
        let running = self.turns.iter().map(|(run, turn)| {
            let task = turn.task.as_ref();
            Running {
                run: run.to_string(),
                interaction: task.map(|task| task.interaction.to_string()).unwrap_or_default(),
                peer: task.map(|task| task.peer.clone()).unwrap_or_default(),
                state: turn.state().to_owned(),
                started: rfc3339(at_unix_ms(turn.started)),
            }
        });
        running.collect()
    }

    /// The process outside of the sandbox, to be waited for.
    pub(super) fn outside(&self) -> Option<BorrowedFd<'_>> {
        self.outside.as_ref().map(|outside| outside.as_fd())
    }

    /// What agents say, to be waited for.
    pub(super) fn outputs(&self) -> impl Iterator<Item = (RunId, BorrowedFd<'_>)> {
        self.turns.iter().filter_map(|(run, turn)| Some((*run, turn.output.as_ref()?.waits()?)))
    }

    /// An agent has said something.
    pub(super) fn read(&mut self, run: RunId) {
        if let Some(output) = self.turns.get_mut(&run).and_then(|turn| turn.output.as_mut()) {
            output.read();
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.turns.values().filter_map(Turn::next_deadline).min()
    }

    pub(super) fn look_at_clocks(&mut self, now: Instant) -> Result<(), Fatal> {
        self.turns.values_mut().try_for_each(|turn| turn.look_at_clocks(now))
    }
}

/// Opens the inbox of a node.
///
/// # Errors
/// [`Code::BadDatabase`] or [`Code::StateUnusable`].
pub(super) fn open(job: &NodeJob) -> Result<Inbox, Trouble> {
    Inbox::open(&job.inbox).map_err(|error| error.trouble())
}

/// Ends what was under way when the node ended; names the runs.
///
/// # Errors
/// As in [`open`].
pub(super) fn interrupted(inbox: &mut Inbox, now_ms: u64) -> Result<Vec<RunId>, Trouble> {
    let running = inbox.interrupted(now_ms, &admission::sandbox_unavailable());
    let running = running.map_err(|error| error.trouble())?;
    Ok(running.into_iter().map(|(_, run)| run).collect())
}

/// The inbox's file.
pub(super) fn database(job: &NodeJob) -> Option<PathBuf> {
    Some(job.inbox.join(DATABASE))
}

/// How many tasks wait.
pub(super) fn queued(inbox: &Inbox) -> u64 {
    inbox.queued_count().unwrap_or(0)
}

/// How tasks are answered, for `anet status`.
pub(super) fn auto_reply(policy: &Policy) -> AutoReply {
    let backend = match policy.backend {
        Backend::Exec => "exec",
        Backend::Openai => "openai",
    };
    let trusted = match policy.trusted {
        Trusted::Off => "off",
        Trusted::Direct => "direct",
        Trusted::Sandbox => "sandbox",
    };
    let untrusted = match policy.untrusted {
        Untrusted::Off => "off",
        Untrusted::Sandbox => "sandbox",
    };
    AutoReply {
        backend: backend.to_owned(),
        agent: policy.agent.as_str().to_owned(),
        trusted: trusted.to_owned(),
        untrusted: untrusted.to_owned(),
    }
}
