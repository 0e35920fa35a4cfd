//! The node's evidence: an append-only, hash-chained, signed log (EVI). docs/EVIDENCE.md says what is in its files.
//!
//! One chain over a directory of segments. [`Evidence`] writes it; [`verify`] reads it and names the first record that does
//! not hold. Every other reader ([`walk`], and a start of the node) checks as it reads, with the same code.

mod aside;
mod checker;
mod error;
mod fault;
mod key;
mod lines;
mod log;
mod open;
mod segment;
mod verify;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use error::EvidenceError;
pub use fault::{CheckpointFault, Fault, OpeningFault, What};
pub use key::{key_file, key_text, parse_key, read_key};
pub use log::Evidence;
pub use open::{Opened, Torn};
pub use verify::{Begin, KeySource, Progress, Tail, Verified, header, verify, walk};

/// The kind of each segment's first record.
pub const OPENED: &str = "segment.opened";
/// The kind of a signed checkpoint.
pub const CHECKPOINT: &str = "checkpoint";
/// The kind that says that a torn end was set aside.
pub const TORN: &str = "evidence.torn";

/// The format that is written and read.
pub const FORMAT: u64 = 1;
/// From this length on a segment is followed by the next, in bytes.
pub const SEGMENT: u64 = 8 * 1024 * 1024;
/// The longest record that is written or read, in bytes, with its newline.
pub const MAX_RECORD: usize = 8 * 1024 * 1024;
/// After so many records a checkpoint is wanted.
pub const EVERY: u64 = 1024;
/// A checkpoint vouches for a record that stands at most so many before it. Whoever verifies has to remember that many hashes.
pub const REACH: u64 = 65_536;

/// What has to be known of the evidence when a node starts, such as the counts of a day. It is carried from segment to segment,
/// so that a start reads one segment only.
pub trait State: Default + Serialize + DeserializeOwned {
    /// Another number for each change of what the state is made of or what records do to it: a state that was carried by another
    /// version is not taken over but made anew, from all records. 0: nothing is carried.
    const VERSION: u32 = 1;

    /// What one record changes, in the order of the records. The evidence's own kinds ([`OPENED`], [`CHECKPOINT`], [`TORN`])
    /// do not come here.
    fn apply(&mut self, kind: &str, body: &Value);

    /// Whether records of this kind change anything at all. `false` spares the reading of their bodies; each kind of which
    /// [`State::apply`] makes use must be `true`.
    #[must_use]
    fn heeds(kind: &str) -> bool {
        let _ = kind;
        true
    }
}

/// Nothing needs to be known.
impl State for () {
    const VERSION: u32 = 0;

    fn apply(&mut self, _: &str, _: &Value) {}

    fn heeds(_: &str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
