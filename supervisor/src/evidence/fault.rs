//! What can be wrong with evidence, and where.

use std::io;
use std::path::PathBuf;

/// The first thing that does not hold.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A file cannot be read at all.
    #[error("{} cannot be read ({error}); see its owner and its mode, or use sudo", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A file that should hold the public key holds something else.
    #[error("{} is not a public key: 64 digits 0-9 and a-f; put the node's own back", .0.display())]
    NoKey(PathBuf),
    /// A record does not hold, and with it nothing behind it.
    #[error("record {seq} {what} ({}, byte {offset})", segment.display())]
    Record {
        /// The number that belongs there.
        seq: u64,
        /// The file.
        segment: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What is wrong.
        what: What,
    },
}

/// What is wrong with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum What {
    /// The bytes are none.
    #[error("is not a record: it was changed or cut")]
    Malformed,
    /// Its hash is not its own.
    #[error("was changed: its hash does not fit what it says")]
    Changed,
    /// Another number.
    #[error("is not where it belongs: record {found} stands there, so records were removed, added or moved")]
    Order {
        /// What stands there.
        found: u64,
    },
    /// The right number, but not the one that was written there.
    #[error("does not follow the record before it: one of the two was replaced")]
    Unlinked,
    /// A file ends too early, or is not there.
    #[error(
        "is missing: the chain goes on with record {next} in the next file, so the end of a file or a whole one was removed"
    )]
    Missing {
        /// The next one that is there.
        next: u64,
    },
    /// The last records of a file that has a successor.
    #[error("is cut off in the middle, although the chain goes on in another file")]
    Cut,
    /// There is nothing.
    #[error("is missing, and every other one: there is no evidence")]
    Nothing,
    /// `segment.opened` inside of a segment, or none at the beginning.
    #[error("is not what belongs there: each file begins with `segment.opened`, and no other record is one")]
    Placement,
    /// `segment.opened` does not say what it should.
    #[error("opens its segment {0}")]
    Opening(#[from] OpeningFault),
    /// A checkpoint that is none.
    #[error("is a checkpoint {0}")]
    Checkpoint(#[from] CheckpointFault),
    /// Another format.
    #[error("is of format {0}, which this version of anet does not know; use the one that wrote it")]
    Format(u64),
}

/// What is wrong with a `segment.opened`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpeningFault {
    /// Not its fields.
    #[error("with a body that is none of this kind")]
    Unreadable,
    /// Another number.
    #[error("with another number than its own")]
    First,
    /// Another key.
    #[error("with another key than the checkpoints before it")]
    Key,
    /// Another checkpoint.
    #[error("with another checkpoint than the last one before it")]
    Signed,
    /// Another state.
    #[error("with a state that does not follow from the records before it")]
    Carried,
}

/// What is wrong with a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckpointFault {
    /// Not its fields.
    #[error("with a body that is none of this kind")]
    Unreadable,
    /// A record that cannot be known.
    #[error("for record {0}, which is not among the last ones before it")]
    Reach(u64),
    /// Another hash.
    #[error("for another record {0} than the one that stands there: everything up to it was replaced")]
    Hash(u64),
    /// Another key.
    #[error("of another key than the node's")]
    Key,
    /// A signature that is none.
    #[error("with a signature that is not the key's: somebody else made it")]
    Signature,
}

impl Fault {
    /// The number of the record, where it is about one.
    #[must_use]
    pub fn seq(&self) -> Option<u64> {
        match self {
            Fault::Record { seq, .. } => Some(*seq),
            Fault::Unreadable { .. } | Fault::NoKey(_) => None,
        }
    }
}
