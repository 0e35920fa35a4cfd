//! The process that starts programs outside of the sandbox: what it may start, and its own start.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use confine::sys::spawn::Starting;
use ipc_proto::outside::Surroundings;
use ipc_proto::{Code, descriptors};

use super::super::ground::{not_started, seal};
use super::super::programs::{self, c_path};
use super::choices::Choices;
use super::prepare::{Prepared, entry, is_key};
use super::turn::{self, Facts};
use crate::config::Agent;
use crate::error::Trouble;
use crate::node::job::{Mode, Outside, Turn};
use crate::outside::{DirectAgent, KEYS, OutsidePlan};

/// The process, if there is one.
#[derive(Debug)]
pub(super) struct Started {
    program: CString,
    plan: OutsidePlan,
    /// The values of the variables that its plan names.
    keys: Vec<OwnedFd>,
}

impl Started {
    /// What runs outside of the sandbox; none: nothing does. What is missing for an agent is a warning.
    pub(super) fn prepare(
        facts: &Facts<'_>,
        choices: &Choices,
        turn: &Result<Turn, Trouble>,
        warnings: &mut Vec<Trouble>,
    ) -> Result<Option<Started>, Trouble> {
        let direct = direct_agent(facts, choices, turn, warnings);
        let words = &facts.config.auto_reply.notify;
        if direct.is_none() && words.is_empty() {
            return Ok(None);
        }
        let word = |word: &String| {
            CString::new(word.as_str())
                .map_err(|_| Trouble::new(Code::BadConfig, "auto_reply.notify: a word with a NUL byte"))
        };
        // An agent of the operator's finds its key where the operator keeps it; nobody else has need of one.
        let keys = if direct.is_some() { facts.keys.all()? } else { Vec::new() };
        let (names, keys): (Vec<CString>, Vec<OwnedFd>) = keys.into_iter().unzip();
        let environment = own_environment();
        let plan = OutsidePlan {
            surroundings: Surroundings { root: c_path(&choices.direct_root)?, environment },
            keys: names,
            notify: words.iter().map(word).collect::<Result<_, _>>()?,
            direct,
        };
        Ok(Some(Started { program: programs::find_outside()?, plan, keys }))
    }

    pub(super) fn program(&self) -> &CString {
        &self.program
    }

    /// What the supervisor may ask of it.
    pub(super) fn offers(&self) -> Outside {
        Outside { direct: self.plan.direct.is_some(), notify: !self.plan.notify.is_empty() }
    }

    /// What it starts is the operator's own and may do what the operator may: no_new_privs would hold for all of it.
    pub(super) fn start(&self, prepared: &Prepared, end: &OwnedFd) -> Result<Starting, Trouble> {
        let plan = seal(&self.plan)?;
        let mut given = vec![
            (end.as_fd(), descriptors::CHANNEL),
            (prepared.log.as_fd(), descriptors::LOG),
            (plan.as_fd(), descriptors::PLAN),
        ];
        given.extend(self.keys.iter().map(AsFd::as_fd).zip(KEYS..));
        // As a service it is no root's: it starts `notify` alone.
        let identity = match prepared.job.mode {
            Mode::User => None,
            Mode::System => prepared.ground.identities.supervisor,
        };
        let mut command = prepared.ground.command(&self.program, c"anet-outside", given, identity);
        command.no_new_privs = prepared.job.mode == Mode::System;
        command.start().map_err(|error| not_started("anet-outside", &error))
    }
}

/// The agent for trusted peers, where one runs outside of the sandbox. What is missing is a warning: the sandbox may do.
fn direct_agent(
    facts: &Facts<'_>,
    choices: &Choices,
    turn: &Result<Turn, Trouble>,
    warnings: &mut Vec<Trouble>,
) -> Option<DirectAgent> {
    if !choices.direct {
        return None;
    }
    let auto_reply = &facts.config.auto_reply;
    let found = match (auto_reply.agent, turn) {
        (Agent::Custom, _) => turn::check_command(auto_reply).map(|()| None),
        (_, Ok(Turn { installed: Some(installed), .. })) => Ok(Some(installed.clone())),
        (_, Ok(_) | Err(_)) => turn::find(facts).map(Some),
    };
    match found {
        Ok(installed) => {
            Some(DirectAgent { agent: auto_reply.agent, installed, command: auto_reply.command.clone() })
        }
        Err(trouble) => {
            // The turn says it already where it is the same.
            if turn.as_ref().err() != Some(&trouble) {
                warnings.push(trouble);
            }
            None
        }
    }
}

/// What the service manager says to the node alone.
const OF_THE_NODE: [&str; 8] = [
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// The environment of whoever started the node, for their own programs, without keys.
fn own_environment() -> Vec<CString> {
    let theirs = std::env::vars_os().filter(|(name, _)| !OF_THE_NODE.iter().any(|own| name == own));
    theirs.filter(|(name, _)| !is_key(name)).filter_map(|(name, value)| entry(name, value)).collect()
}
