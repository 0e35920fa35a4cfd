//! `anet-outside`: starts what runs outside of the sandbox, as the operator's own user: an agent for a trusted peer in a user's
//! node (SEL-4), and the operator's `notify` command.
//!
//! What may be started is in the [`OutsidePlan`], which the guard took from the configuration. The supervisor says which of it
//! to start, with which task or event, and where its output goes; it can name no program, no argument and no directory.
//!
//! Each program has a process of ours above it, the [`minder`], which is the child subreaper of everything that the program
//! starts: whatever detaches itself, in a session of its own, with its parents gone, is the minder's child in the end. So it is
//! known exactly whose a process is with several programs at once, and a program has ended when its minder has no child left.
//! If a minder is killed, what was below it comes to `anet-outside`, which ends it; if `anet-outside` is, each minder sees the
//! end of its channel and ends what is below it.

pub mod minder;
mod order;
mod place;
mod program;
mod removal;
mod serve;
mod starting;
mod tree;

use std::ffi::CString;
use std::os::fd::RawFd;

use ipc_proto::outside::Surroundings;
use serde::{Deserialize, Serialize};

use crate::agents::Installed;
use crate::config::Agent;

pub use order::{MINDER, MinderPlan, STDIO};
pub use serve::{Error, serve};

/// Where the values of [`OutsidePlan::keys`] are: the first, and so on.
pub const KEYS: RawFd = 20;

/// What the process is started with, in sealed memory (`descriptors::PLAN`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutsidePlan {
    /// Where agents work, and the environment of all programs.
    pub surroundings: Surroundings,
    /// Variables of that environment whose values are not in this plan: the operator's keys, each in memory of its own, from
    /// [`KEYS`] on in this order.
    pub keys: Vec<CString>,
    /// The `notify` command's words; none: there is no such command.
    pub notify: Vec<CString>,
    /// The agent for trusted peers; none: no task runs outside of the sandbox.
    pub direct: Option<DirectAgent>,
}

/// The agent that runs for trusted peers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectAgent {
    /// Which.
    pub agent: Agent,
    /// Where it is; none: a custom one.
    pub installed: Option<Installed>,
    /// A custom agent's command line, as the operator wrote it.
    pub command: Vec<String>,
}
