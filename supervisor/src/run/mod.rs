//! Runs, decided step by step: one in the foreground ([`Foreground`]), or as many as a node has.

pub(crate) mod answer;
mod egress;
mod foreground;
mod numbered;
pub(crate) mod one;
mod probe;
mod requests;
mod summary;
pub(crate) mod trial;
mod violations;

pub use answer::tame;
pub use foreground::{Ends, Foreground};
pub use probe::{FILE_LIMIT as PROBE_FILE_LIMIT, remember as probe_text, remembered as probe_remembered};
pub(crate) use requests::check_broker;

use std::io;
use std::time::Instant;

use confine::sys::signal::Signal;
use ipc_proto::broker::{FromBroker, ToBroker};
use ipc_proto::launcher::{FromLauncher, ToLauncher};
use ipc_proto::proxy::{FromProxy, ToProxy};
use ipc_proto::{Channel, ChannelError, Code};
use serde_json::Value;

use crate::error::Trouble;

/// The signals that come to anet and go on to the command: from the guard to the supervisor to the launcher.
pub const PASSED_ON: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// The channels to those who serve runs.
#[derive(Debug)]
pub struct Lines {
    /// To the launcher.
    pub launcher: Channel<ToLauncher, FromLauncher>,
    /// To the proxy.
    pub proxy: Channel<ToProxy, FromProxy>,
    /// To the broker, where there is one.
    pub broker: Option<Channel<ToBroker, FromBroker>>,
}

/// Where a run's evidence goes: a chain of its own, or the node's.
pub(crate) trait Journal: std::fmt::Debug {
    /// Adds a line. It is on disk only after [`Journal::sync`].
    fn append(&mut self, kind: &str, body: &Value) -> io::Result<()>;
    /// Waits until everything is on disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Nothing more comes of this run.
    fn close(&mut self) -> io::Result<()>;
    /// When [`Journal::sync`] is due at the latest (EVI-1).
    fn due(&self) -> Option<Instant>;
}

/// Why a run cannot go on. Whatever it is, everything of the run ends with it.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// A channel broke, or carried what does not belong there.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A plan could not be passed.
    #[error(transparent)]
    Bulk(#[from] ipc_proto::bulk::BulkError),
    /// The other end of a channel is gone.
    #[error("{0} ended; the run was ended with it")]
    Gone(&'static str),
    /// A step took longer than it ever does.
    #[error("{0}; the run was ended")]
    Late(&'static str),
    /// The evidence cannot be written.
    #[error("the run's chain or record cannot be written ({0}); see the free space of the state directory")]
    Evidence(#[from] std::io::Error),
    /// The system refused something else.
    #[error("{what}: {errno}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        errno: rustix::io::Errno,
    },
    /// The sandbox cannot be used, said with its own code.
    #[error("{}", .0.sentence)]
    Unavailable(Trouble),
}

impl Fatal {
    /// The code to print in front of it.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Fatal::Channel(_) | Fatal::Bulk(_) | Fatal::Gone(_) | Fatal::Late(_) | Fatal::System { .. } => {
                Code::ProcessDied
            }
            Fatal::Evidence(_) => Code::RecordFailed,
            Fatal::Unavailable(trouble) => trouble.code,
        }
    }
}
