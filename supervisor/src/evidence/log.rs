//! The evidence that a node writes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use ipc_proto::broker::{PublicKey, Signature};
use rustix::fs::ftruncate;
use serde_json::{Value, json};

use super::checker::is_signed;
use super::error::EvidenceError;
use super::key::key_text;
use super::segment;
use super::{CHECKPOINT, EVERY, FORMAT, MAX_RECORD, OPENED, REACH, SEGMENT, State, TORN};
use crate::chain::hex;
use crate::chain::record::{self, Hash, Record};

/// How long a record may wait until it is on disk (EVI-1).
pub(super) const COMMIT: Duration = Duration::from_millis(100);
/// So many records that a checkpoint is wanted for are remembered, since a signature may come late.
const ASKED: usize = 128;

/// When something is due; for tests other than a node's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The length of a segment from which on the next one follows, bytes.
    pub(super) segment: u64,
    /// Records between checkpoints.
    pub(super) every: u64,
}

impl Sizes {
    /// A node's.
    pub(super) const NODE: Sizes = Sizes { segment: SEGMENT, every: EVERY };
}

/// The evidence, open to be written. Nobody else writes it for as long as this lives.
#[derive(Debug)]
pub struct Evidence<S> {
    pub(super) directory: PathBuf,
    /// The directory itself: a new name in it is there only once it is synchronised.
    pub(super) names: File,
    pub(super) _lock: File,
    pub(super) sizes: Sizes,
    /// The segment that is written.
    pub(super) file: File,
    /// Its length: whole records.
    pub(super) length: u64,
    /// The number of the next record, and the hash of the one before.
    pub(super) next: u64,
    pub(super) head: Hash,
    /// When the last one was written, by the clock.
    pub(super) last: SystemTime,
    pub(super) state: S,
    pub(super) key: Option<PublicKey>,
    pub(super) signed: Option<u64>,
    /// The checkpoints behind the record that the last one vouches for.
    pub(super) marks: VecDeque<u64>,
    /// The records that a checkpoint is wanted for.
    pub(super) asked: VecDeque<(u64, Hash)>,
    /// When the first record that is not on disk was written.
    pub(super) dirty: Option<Instant>,
    /// What the file holds is not known.
    pub(super) broken: bool,
}

impl<S: State> Evidence<S> {
    /// What the records made of the state.
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// How many records there are.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.next
    }

    /// The last record that a checkpoint vouches for.
    #[must_use]
    pub fn signed(&self) -> Option<u64> {
        self.signed
    }

    /// The key of the checkpoints; none: nothing is signed yet, and nobody said which key it will be.
    #[must_use]
    pub fn key(&self) -> Option<PublicKey> {
        self.key
    }

    /// Writes a record, and returns its number. The system has it when this returns, so that the end of this process loses
    /// nothing; the disk has it after [`Evidence::sync`].
    ///
    /// # Errors
    /// [`EvidenceError::Write`]: nothing of it is there, and the next may be tried. [`EvidenceError::Broken`]: that is not
    /// known, and nothing is written any more. [`EvidenceError::Unwritable`].
    pub fn append(&mut self, at: SystemTime, kind: &str, body: &Value) -> Result<u64, EvidenceError> {
        if [OPENED, CHECKPOINT, TORN].contains(&kind) {
            return Err(unwritable(kind, "that kind is the evidence's own"));
        }
        let seq = self.write(at, kind, body)?;
        if S::heeds(kind) {
            self.state.apply(kind, body);
        }
        Ok(seq)
    }

    /// When what was appended is due on disk; none: all of it is there.
    #[must_use]
    pub fn commit_due(&self) -> Option<Instant> {
        self.dirty.map(|since| since + COMMIT)
    }

    /// Waits until everything appended is on disk. A segment that is long enough is then followed by the next.
    ///
    /// # Errors
    /// [`EvidenceError::Sync`]: what the disk has is not known, and nothing is written any more, since a second attempt may
    /// succeed without the lost pages (fsync(2)). [`EvidenceError::Unusable`]: no next segment can be made for a long time.
    pub fn sync(&mut self) -> Result<(), EvidenceError> {
        self.usable()?;
        if self.dirty.is_none() {
            return Ok(());
        }
        self.file.sync_data().map_err(|error| self.break_off(error))?;
        self.dirty = None;
        if self.length >= self.sizes.segment { self.rotate() } else { Ok(()) }
    }

    /// Asks for a checkpoint of everything so far, as before a clean stop.
    pub fn ask_checkpoint(&mut self) {
        if self.unsigned() > 0 {
            self.ask();
        }
    }

    /// What is to be signed with the node's key: the number and the hash of the last record that a checkpoint is wanted for.
    /// It stays so until [`Evidence::checkpoint`] has its signature.
    #[must_use]
    pub fn wants_checkpoint(&self) -> Option<(u64, Hash)> {
        self.asked.back().copied()
    }

    /// Writes a checkpoint, after checking that it is one. `false`: the signature came so late that it is of no use any more, and
    /// another one is wanted.
    ///
    /// # Errors
    /// [`EvidenceError::Unasked`], [`EvidenceError::Signature`] or [`EvidenceError::OtherKey`]: nothing is written. Else as
    /// [`Evidence::append`].
    pub fn checkpoint(
        &mut self,
        at: SystemTime,
        seq: u64,
        key: &PublicKey,
        signature: &Signature,
    ) -> Result<bool, EvidenceError> {
        self.expect_key(key)?;
        if seq < self.next && self.next - seq > REACH {
            self.asked.retain(|(asked, _)| *asked > seq);
            self.ask();
            return Ok(false);
        }
        let asked = self.asked.iter().find(|(asked, _)| *asked == seq);
        let (_, hash) = *asked.ok_or(EvidenceError::Unasked(seq))?;
        if !is_signed(key, seq, &hash, signature) {
            return Err(EvidenceError::Signature(seq));
        }
        let body = json!({
            "seq": seq, "hash": hex(&hash), "key": key_text(key), "signature": hex(&signature.bytes()),
        });
        self.asked.retain(|(asked, _)| *asked > seq);
        let mark = self.write(at, CHECKPOINT, &body)?;
        (self.key, self.signed) = (Some(*key), Some(seq));
        self.marks.retain(|mark| *mark > seq);
        self.marks.push_back(mark);
        Ok(true)
    }

    /// Looks whether the node's key is the one that the evidence was signed with. Whoever knows the key early asks early.
    ///
    /// # Errors
    /// [`EvidenceError::OtherKey`].
    pub fn expect_key(&self, key: &PublicKey) -> Result<(), EvidenceError> {
        if self.key.is_some_and(|known| known != *key) { Err(EvidenceError::OtherKey) } else { Ok(()) }
    }

    /// How many records no checkpoint vouches for.
    fn unsigned(&self) -> u64 {
        let behind = self.next - self.signed.map_or(0, |signed| signed + 1);
        behind.saturating_sub(self.marks.len() as u64)
    }

    fn ask(&mut self) {
        let Some(seq) = self.next.checked_sub(1) else { return };
        if self.asked.back().is_some_and(|(asked, _)| *asked == seq) {
            return;
        }
        if self.asked.len() == ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back((seq, self.head));
    }

    /// Writes a record of any kind.
    pub(super) fn write(&mut self, at: SystemTime, kind: &str, body: &Value) -> Result<u64, EvidenceError> {
        self.usable()?;
        let (line, hash) = compose(self.next, at, kind, body, &self.head)?;
        self.put(line.as_bytes())?;
        let seq = self.next;
        (self.next, self.head, self.last) = (seq + 1, hash, at);
        self.dirty.get_or_insert_with(Instant::now);
        let since = self.asked.back().map(|(asked, _)| *asked).max(self.signed).map_or(0, |seq| seq + 1);
        if self.next - since >= self.sizes.every {
            self.ask();
        }
        Ok(seq)
    }

    /// Appends bytes, all or none.
    fn put(&mut self, bytes: &[u8]) -> Result<(), EvidenceError> {
        if let Err(error) = self.file.write_all(bytes) {
            // A part of a record may be there. It must go, or the next one would stand behind it.
            self.broken = ftruncate(&self.file, self.length).is_err();
            return Err(EvidenceError::Write(error));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Begins the next segment. One that cannot be made leaves the old one in use, until that is far too long.
    pub(super) fn rotate(&mut self) -> Result<(), EvidenceError> {
        // A key that is known otherwise, but signed nothing yet, is none of the chain's.
        let key = self.key.filter(|_| self.signed.is_some());
        let made = opening(self.next, self.last, &self.head, &self.state, key.as_ref(), self.signed);
        let (line, hash) = match made {
            Ok(made) => made,
            Err(error) => return self.postpone(error),
        };
        let file = match segment::create(&self.directory, self.next, line.as_bytes()) {
            Ok(file) => file,
            Err(error) => {
                let path = self.directory.clone();
                return self.postpone(EvidenceError::Unusable {
                    path,
                    what: "a new segment cannot be made",
                    error,
                });
            }
        };
        self.names.sync_all().map_err(|error| self.break_off(error))?;
        (self.file, self.length) = (file, line.len() as u64);
        (self.next, self.head) = (self.next + 1, hash);
        self.ask();
        Ok(())
    }

    fn postpone(&self, error: EvidenceError) -> Result<(), EvidenceError> {
        if self.length < self.sizes.segment.saturating_mul(4) { Ok(()) } else { Err(error) }
    }

    fn usable(&self) -> Result<(), EvidenceError> {
        if self.broken { Err(EvidenceError::Broken) } else { Ok(()) }
    }

    fn break_off(&mut self, error: io::Error) -> EvidenceError {
        self.broken = true;
        EvidenceError::Sync(error)
    }
}

/// The first record of a segment.
pub(super) fn opening<S: State>(
    seq: u64,
    at: SystemTime,
    head: &Hash,
    state: &S,
    key: Option<&PublicKey>,
    signed: Option<u64>,
) -> Result<(String, Hash), EvidenceError> {
    let carried = serde_json::to_value(state).map_err(|_| unwritable(OPENED, "the state is no JSON"))?;
    let body = json!({
        "format": FORMAT, "first": seq, "state": S::VERSION, "carried": carried,
        "key": key.map(key_text), "signed": signed,
    });
    compose(seq, at, OPENED, &body, head)
}

/// The line of a record, read back with the eyes of whoever verifies it.
fn compose(
    seq: u64,
    at: SystemTime,
    kind: &str,
    body: &Value,
    head: &Hash,
) -> Result<(String, Hash), EvidenceError> {
    let (line, hash) =
        record::write(seq, at, kind, body, head).map_err(|_| unwritable(kind, "its body is no JSON"))?;
    if line.len() > MAX_RECORD {
        return Err(unwritable(kind, "it is too long"));
    }
    let read = line.as_bytes().split_last().and_then(|(_, line)| Record::read(line));
    if read.is_none_or(|read| read.hash != hash) {
        return Err(unwritable(kind, "its kind or body is not as it has to be"));
    }
    Ok((line, hash))
}

fn unwritable(kind: &str, why: &'static str) -> EvidenceError {
    EvidenceError::Unwritable { kind: kind.to_owned(), why }
}
