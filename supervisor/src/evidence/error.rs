//! Why evidence cannot be opened or written.

use std::io;
use std::path::PathBuf;

use ipc_proto::Code;

use super::fault::Fault;
use crate::error::Trouble;

/// Why evidence cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// Two would break each other's chain.
    #[error("another node writes the evidence in {} already; use that one, or stop it first", .0.display())]
    Locked(PathBuf),
    /// The directory or a file in it.
    #[error("{}: {what} ({error}); see its owner, its mode and the free space", path.display())]
    Unusable {
        /// Where.
        path: PathBuf,
        /// What was to be done.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// What is there does not hold, so nothing is built on it.
    #[error(
        "the evidence does not verify: {0}; see `anet evidence verify`, keep a copy, and move the directory and its .pub file \
         elsewhere for a node to begin anew"
    )]
    Fault(#[from] Fault),
    /// A record was not written. Nothing of it is there.
    #[error("a record of the evidence cannot be written ({0}); see the free space of the state directory")]
    Write(io::Error),
    /// The disk did not take what was written, and what it has of it is not known (fsync(2)).
    #[error(
        "the disk did not take the evidence ({0}), and how much of it is there is not known; see the system's log, and start the \
         node again"
    )]
    Sync(io::Error),
    /// After an error that left unknown what the file holds.
    #[error("the evidence takes no more records after an error; start the node again")]
    Broken,
    /// A record that nobody could read back.
    #[error("a record of kind {kind:?} cannot be written: {why}; report this")]
    Unwritable {
        /// Its kind.
        kind: String,
        /// Why.
        why: &'static str,
    },
    /// A signature that nobody asked for.
    #[error("a checkpoint for record {0} was signed that nobody asked for; report this")]
    Unasked(u64),
    /// A signature that is not one.
    #[error("the signature of the checkpoint for record {0} is not the key's; report this")]
    Signature(u64),
    /// The node's key is another one than the evidence was signed with.
    #[error(
        "the evidence was signed with another key than the node has now; put the key back from a copy, or, if it is lost, move the \
         evidence and its .pub file elsewhere for a node to begin anew"
    )]
    OtherKey,
}

impl EvidenceError {
    /// What `anet doctor --explain` knows more about.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            EvidenceError::Locked(_) => Code::NodeRunning,
            EvidenceError::Unusable { .. } | EvidenceError::Fault(Fault::Unreadable { .. }) => {
                Code::StateUnusable
            }
            EvidenceError::Fault(Fault::NoKey(_) | Fault::Record { .. })
            | EvidenceError::Unasked(_)
            | EvidenceError::Signature(_)
            | EvidenceError::OtherKey => Code::BadEvidence,
            EvidenceError::Write(_)
            | EvidenceError::Sync(_)
            | EvidenceError::Broken
            | EvidenceError::Unwritable { .. } => Code::RecordFailed,
        }
    }

    /// The same for a person.
    #[must_use]
    pub fn trouble(&self) -> Trouble {
        Trouble::new(self.code(), self.to_string())
    }
}
