//! Why the inbox does not do what it was asked.

use ipc_proto::control::{MAX_TASK, State};
use ipc_proto::{Aid, Code, InteractionId};
use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::error::Trouble;

/// Why the inbox does not do what it was asked. Nothing was changed by what was refused.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// ACC-1: a name means one task of one peer.
    #[error(
        "interaction {0} is known with another task or of another peer; choose another id, or let the node make one"
    )]
    OtherTask(InteractionId),
    /// Nothing, or too much.
    #[error(
        "a task has 1 to {MAX_TASK} bytes, and this one has {0}; put what is long into a file that the agent fetches"
    )]
    BadTask(usize),
    /// As many wait as may wait.
    #[error("{0} tasks are waiting, and no more are taken; see `anet inbox`, and send it again later")]
    Full(u64),
    /// As many of one peer wait as may wait.
    #[error(
        "{0} tasks of {1} are waiting, and no more of this peer are taken; see `anet inbox`, and send it again later"
    )]
    PeerFull(u64, Aid),
    /// Waiting tasks, or everything that is kept, is as much as may be.
    #[error(
        "the texts in the inbox have reached {limit} bytes{of}, and no more are taken until some are answered or removed; send \
         it again later, or keep them for a shorter time (auto_reply.retention_days)"
    )]
    TooMuch {
        /// The bound, bytes.
        limit: u64,
        /// Of what.
        of: &'static str,
    },
    /// No such interaction.
    #[error("there is no interaction {0} here; `anet inbox` lists them")]
    Unknown(InteractionId),
    /// The node wanted what this state does not allow.
    #[error("interaction {interaction} is {}, which allows no such change; report this", found.as_str())]
    NotInState {
        /// Which.
        interaction: InteractionId,
        /// As it is.
        found: State,
    },
    /// The node ended an interaction in a way that there is not.
    #[error("an interaction that is {} cannot have this answer and refusal; report this", .0.as_str())]
    BadEnding(State),
    /// A run that is not this interaction's open one, or a name that was used before.
    #[error("interaction {0} has no such open run, or another run has that name; report this")]
    OtherRun(InteractionId),
    /// Another process has it.
    #[error(
        "the inbox's database is in use by another process; end the other node first (`anet status` knows of it)"
    )]
    InUse,
    /// A later version of anet made it.
    #[error(
        "the inbox's database is of version {found}, and this program knows {known}; it is left as it is: use the anet that made \
         it, or move the file away to begin with an empty inbox"
    )]
    Newer {
        /// Its version.
        found: i32,
        /// The newest that this program reads.
        known: i32,
    },
    /// It is something else, or no longer what it was.
    #[error(
        "the inbox's database is damaged or no inbox ({0}); it is left as it is: bring it back from a copy, or move it and its \
         -wal file away to begin with an empty inbox"
    )]
    Damaged(String),
    /// No room.
    #[error(
        "there is no room left for the inbox's database; free some space in the state directory. Nothing of it is lost"
    )]
    NoSpace,
    /// The directory or file does not let it be used.
    #[error(
        "the inbox's database cannot be used ({0}); see the owner, the mode and the disk of the state directory"
    )]
    Unusable(String),
    /// The disk did not take what it had been given: what is on it is not known until the file is read anew.
    #[error(
        "the disk failed while the inbox was written ({0}); see the system's log, and start the node again"
    )]
    Lost(String),
}

impl InboxError {
    /// As it is told: to whoever submits, or to the operator.
    #[must_use]
    pub fn trouble(&self) -> Trouble {
        Trouble::new(self.code(), self.to_string())
    }

    /// What can be looked up about it.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            InboxError::OtherTask(_) => Code::OtherTask,
            InboxError::BadTask(_) => Code::BadTask,
            InboxError::Full(_) | InboxError::PeerFull(..) | InboxError::TooMuch { .. } => Code::InboxFull,
            InboxError::Unknown(_) => Code::NoSuchInteraction,
            InboxError::NoSpace => Code::StateUnusable,
            InboxError::NotInState { .. }
            | InboxError::BadEnding(_)
            | InboxError::OtherRun(_)
            | InboxError::InUse
            | InboxError::Newer { .. }
            | InboxError::Damaged(_)
            | InboxError::Unusable(_)
            | InboxError::Lost(_) => Code::BadDatabase,
        }
    }
}

impl From<std::io::Error> for InboxError {
    fn from(error: std::io::Error) -> InboxError {
        if error.kind() == std::io::ErrorKind::StorageFull {
            InboxError::NoSpace
        } else {
            InboxError::Unusable(error.to_string())
        }
    }
}

impl From<rusqlite::Error> for InboxError {
    fn from(error: rusqlite::Error) -> InboxError {
        let Some(failure) = error.sqlite_error() else {
            // A value that is not of its column's type: nobody but us writes here.
            return InboxError::Damaged(error.to_string());
        };
        let is = |codes: &[ErrorCode]| codes.contains(&failure.code);
        let synced = [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC].contains(&failure.extended_code);
        if is(&[ErrorCode::DiskFull]) {
            InboxError::NoSpace
        } else if is(&[ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked]) {
            InboxError::InUse
        } else if is(&[ErrorCode::DatabaseCorrupt, ErrorCode::NotADatabase]) {
            InboxError::Damaged(error.to_string())
        } else if synced {
            InboxError::Lost(error.to_string())
        } else {
            InboxError::Unusable(error.to_string())
        }
    }
}
