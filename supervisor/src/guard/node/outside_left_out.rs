//! What stands in its place in a build without auto-reply: nothing is started outside of the sandbox.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use confine::sys::spawn::Starting;
use ipc_proto::Code;

use super::choices::Choices;
use super::prepare::Prepared;
use super::turn::Facts;
use crate::error::Trouble;
use crate::node::job::{Outside, Turn};

/// There is none.
#[derive(Debug)]
pub(super) enum Started {}

impl Started {
    /// An operator who has a `notify` command is told that nothing calls it.
    pub(super) fn prepare(
        facts: &Facts<'_>,
        _choices: &Choices,
        _turn: &Result<Turn, Trouble>,
        warnings: &mut Vec<Trouble>,
    ) -> Result<Option<Started>, Trouble> {
        if !facts.config.auto_reply.notify.is_empty() {
            let what = "this build of anet has no auto-reply, so auto_reply.notify is not called; remove it, or use a build \
                        with the feature auto-reply";
            warnings.push(Trouble::new(Code::NoAutoReply, what));
        }
        Ok(None)
    }

    pub(super) fn program(&self) -> &CString {
        match *self {}
    }

    pub(super) fn offers(&self) -> Outside {
        match *self {}
    }

    pub(super) fn start(&self, _prepared: &Prepared, _end: &OwnedFd) -> Result<Starting, Trouble> {
        match *self {}
    }
}
