//! What stands in the desk's place in a build without auto-reply: no task is taken, and nothing comes of one.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use ipc_proto::control::{AutoReply, Running, ToNode};

use super::clients::ClientId;
use super::job::Policy;
use super::*;
use crate::explain;
use crate::run::one::Run;

/// Nothing is under way, ever.
#[derive(Debug)]
pub(super) struct Desk;

/// There is none.
#[derive(Debug)]
pub(super) struct Inbox;

impl Desk {
    /// The guard of such a build starts nothing outside of the sandbox.
    pub(super) fn new(_outside: Option<Channel<ToOutside, FromOutside>>) -> Desk {
        Desk
    }

    pub(super) fn is_ready(&self) -> bool {
        true
    }

    pub(super) fn is_idle(&self) -> bool {
        true
    }

    pub(super) fn stop(&mut self) -> Result<(), Fatal> {
        Ok(())
    }

    pub(super) fn run(&mut self, _run: RunId) -> Option<&mut Run> {
        None
    }

    pub(super) fn runs(&mut self) -> impl Iterator<Item = &mut Run> {
        std::iter::empty()
    }

    pub(super) fn running(&self) -> Vec<Running> {
        Vec::new()
    }

    pub(super) fn outside(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    pub(super) fn outputs(&self) -> impl Iterator<Item = (RunId, BorrowedFd<'_>)> {
        std::iter::empty()
    }

    pub(super) fn read(&mut self, _run: RunId) {}

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        None
    }

    pub(super) fn look_at_clocks(&mut self, _now: Instant) -> Result<(), Fatal> {
        Ok(())
    }
}

/// An inbox that another build kept stays as it is.
pub(super) fn open(_job: &NodeJob) -> Result<Inbox, Trouble> {
    Ok(Inbox)
}

pub(super) fn interrupted(_inbox: &mut Inbox, _now_ms: u64) -> Result<Vec<RunId>, Trouble> {
    Ok(Vec::new())
}

pub(super) fn database(_job: &NodeJob) -> Option<PathBuf> {
    None
}

pub(super) fn queued(_inbox: &Inbox) -> u64 {
    0
}

/// Off, whatever is configured.
pub(super) fn auto_reply(_policy: &Policy) -> AutoReply {
    let off = || "off".to_owned();
    AutoReply { backend: off(), agent: off(), trusted: off(), untrusted: off() }
}

impl Node {
    pub(super) fn hear_about_tasks(
        &mut self,
        client: ClientId,
        _message: ToNode,
        _descriptors: &[OwnedFd],
    ) -> Result<(), Fatal> {
        self.clients.refuse(client, &Trouble::new(Code::NoAutoReply, explain::sentence(Code::NoAutoReply)));
        Ok(())
    }

    pub(super) fn begin_tests(&mut self) -> Result<(), Fatal> {
        Ok(())
    }

    pub(super) fn scan(&mut self) -> Result<(), Fatal> {
        Ok(())
    }

    pub(super) fn prune(&mut self, _older_than: u64) -> Result<(), Fatal> {
        Ok(())
    }

    pub(super) fn conclude(&mut self) -> Result<(), Fatal> {
        Ok(())
    }

    pub(super) fn hear_outside(&mut self) -> Result<(), Fatal> {
        Ok(())
    }

    pub(super) fn sweep_outside(&self, _older_than: u64) -> Result<(), Fatal> {
        Ok(())
    }

    pub(super) fn notify(&mut self, _event: &str, _body: Value) -> Result<(), Fatal> {
        Ok(())
    }

    pub(super) fn notify_once(&mut self, _event: &str, _of: &str, _body: Value) -> Result<(), Fatal> {
        Ok(())
    }
}
