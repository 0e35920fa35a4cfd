//! One run in the foreground, decided step by step.

mod answer;
mod egress;
mod numbered;
mod probe;
mod requests;
mod serve;
mod summary;
mod violations;

pub use probe::{FILE_LIMIT as PROBE_FILE_LIMIT, remembered as probe_remembered};
pub use serve::{Ends, Foreground};

use confine::sys::signal::Signal;
use ipc_proto::{ChannelError, Code};

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
