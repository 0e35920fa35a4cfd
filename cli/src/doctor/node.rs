//! What a running node says of its own sandbox.

use ipc_proto::Code;
use ipc_proto::control::{Sandbox, Status, ToNode};
use supervisor::error::Trouble;

use super::Verdict;
use super::checks::Check;
use crate::arguments::Anet;
use crate::node::{Client, Failure, Patience, Places};

/// What it said.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) status: Status,
    /// Its own launcher's trial, just now.
    pub(super) sandbox: Sandbox,
}

/// Asks, where one runs.
pub(super) fn ask(anet: &Anet) -> Result<Option<Asked>, Trouble> {
    let mut client = match Client::connect(Places::chosen(anet)?) {
        Ok(client) => client,
        Err(Failure::Absent) => return Ok(None),
        Err(failure @ (Failure::Lost | Failure::Trouble(_))) => return Err(failure.into()),
    };
    let sandbox = client.ask(|node| node.document(&ToNode::Check, Patience::Long))?;
    let status = client.ask(|node| node.document(&ToNode::Status, Patience::Prompt))?;
    Ok(Some(Asked { status, sandbox }))
}

/// Whether it runs. One that does not listen to us keeps no sandbox from running: the trial is our own then.
pub(super) fn check(asked: &Result<Option<Asked>, Trouble>) -> Check {
    match asked {
        Ok(Some(asked)) => {
            let whose = if asked.status.mode == "system" { "the service" } else { "a user's" };
            Check::good("node", format!("{whose}, version {}: it was asked", asked.status.version))
        }
        Ok(None) => Check::good("node", "none is running; start one with `anet daemon` to answer peers"),
        Err(trouble) => Check::note("node", trouble.clone()),
    }
}

impl Asked {
    /// What is wrong, by its code.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        let code = self.sandbox.code.as_deref()?;
        let sentence = self.sandbox.sentence.clone().unwrap_or_default();
        Some(match Code::parse(code) {
            Some(code) => Trouble::new(code, sentence),
            None => Trouble::new(Code::SandboxStartFailed, format!("{code}: {sentence}")),
        })
    }

    /// What it says of the sandbox; none: it was not tried, since something else is wrong.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        if self.sandbox.available {
            return Some(Ok(self.sandbox.checked.clone()));
        }
        self.trouble().filter(|trouble| super::setup::check_of(trouble.code).is_none()).map(Err)
    }

    /// Whether it answers anybody in the sandbox.
    pub(super) fn uses_sandbox(&self) -> bool {
        let reply = &self.status.auto_reply;
        reply.trusted == "sandbox" || reply.untrusted == "sandbox"
    }
}
