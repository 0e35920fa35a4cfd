//! The launcher: starts programs in a sandbox and ends them, on the supervisor's word. And anet-init, the first program in
//! every sandbox.
//!
//! `main.rs` of each tells its life; here is what they do it with.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod bwrap;
pub mod cleaning;
pub mod control_group;
pub mod directories;
pub mod failure;
pub mod files;
pub mod growth;
pub mod home;
pub mod init;
pub mod mounts;
pub mod placeholder;
pub mod remove;
pub mod room;
pub mod run;
pub mod serve;
pub mod system;

use std::os::fd::OwnedFd;

use ipc_proto::init::NamespaceId;
use ipc_proto::{ChannelError, RunId};
use rustix::io::{Errno, write};

/// What ends a process: its last line in the log.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// A channel cannot be used any longer.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    /// A plan cannot be read.
    #[error("{0}")]
    Plans(#[from] ipc_proto::bulk::BulkError),
    /// A plan is another run's.
    #[error("protocol violation, supervisor to launcher: the plan that came for {run} is another run's")]
    Plan {
        /// Which run it came for.
        run: RunId,
    },
    /// A message about a run that there is not.
    #[error("protocol violation, supervisor to launcher: {message} for {run}, which is not there")]
    NoSuchRun {
        /// Which run.
        run: RunId,
        /// The message, by name.
        message: &'static str,
    },
    /// The process could not be confined.
    #[error("{0}")]
    NotConfined(#[from] confine::Error),
    /// It would run as root.
    #[error("the launcher was started as root; a run never has the host's user 0")]
    Root,
    /// Whoever made its process namespace did not mount /proc in it.
    #[error(
        "/proc is that of another process namespace than the launcher's; report this as a defect of anet"
    )]
    ForeignProc,
    /// What was done to the operator's directories could not be undone; the next start does it.
    #[error("placeholders could not be removed: {text}")]
    Undo {
        /// Why.
        text: String,
    },
    /// The system refused something that always works.
    #[error("{what}: {errno}")]
    System {
        /// What.
        what: &'static str,
        /// Its answer.
        errno: Errno,
    },
}

impl Fatal {
    /// A step that the system refused.
    pub fn system(what: &'static str) -> impl FnOnce(Errno) -> Fatal {
        move |errno| Fatal::System { what, errno }
    }
}

/// The log: a line for each thing that goes wrong, for a person.
#[derive(Debug)]
pub struct Log(Option<OwnedFd>);

impl Log {
    /// Writes to `file`, or nowhere.
    #[must_use]
    pub fn new(file: Option<OwnedFd>) -> Log {
        Log(file)
    }

    /// Writes a line, escaped.
    pub fn line(&self, text: &str) {
        if let Some(file) = &self.0 {
            let line = format!("launcher: {}\n", failure::escape(text.as_bytes()));
            // A log that cannot be written has nobody to be told.
            let _ = write(file, line.as_bytes());
        }
    }
}

/// What the launcher knows of itself.
#[derive(Debug)]
pub struct Surroundings {
    /// Its own namespaces.
    pub namespaces: Vec<NamespaceId>,
    /// /dev/null.
    pub null: OwnedFd,
    /// Whether a run's second wall has rules on files (`init::InitPlan::file_rules`).
    pub file_rules: bool,
}
