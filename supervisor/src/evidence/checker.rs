//! Record after record, whether each is what belongs there. All readers of evidence go through it.

use std::collections::VecDeque;

use ipc_proto::broker::{PublicKey, Signature, checkpoint_message};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

use super::fault::{CheckpointFault, OpeningFault, What};
use super::{CHECKPOINT, FORMAT, OPENED, REACH, State, TORN};
use crate::chain::record::{Hash, ORIGIN, Record, unhex};

/// Where a record stands in its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The first one of a segment.
    First,
    /// Any other one.
    Inside,
    /// In a file that holds all segments.
    Anywhere,
}

/// What has been read so far.
#[derive(Debug)]
pub(super) struct Checker<S> {
    next: u64,
    /// The hash of the record before the next.
    head: Hash,
    /// It begins with a segment that is not the first one, and nothing was read yet.
    takes_over: bool,
    state: Option<S>,
    trusted: Option<PublicKey>,
    key: Option<PublicKey>,
    /// The hashes of the last [`REACH`] records that were read.
    hashes: VecDeque<Hash>,
    /// The checkpoints behind the record that the last one vouches for.
    marks: VecDeque<u64>,
    signed: Option<u64>,
    checkpoints: u64,
    compared: u64,
}

/// The body of a `segment.opened`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    carried: Value,
    first: u64,
    #[serde(rename = "format")]
    _format: u64,
    key: Option<String>,
    signed: Option<u64>,
    state: u32,
}

/// The body of a `checkpoint`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    hash: String,
    key: String,
    seq: u64,
    signature: String,
}

impl<S: State> Checker<S> {
    /// From the first record on.
    pub(super) fn new(trusted: Option<PublicKey>) -> Checker<S> {
        Checker {
            next: 0,
            head: ORIGIN,
            takes_over: false,
            state: Some(S::default()),
            trusted,
            key: None,
            hashes: VecDeque::new(),
            marks: VecDeque::new(),
            signed: None,
            checkpoints: 0,
            compared: 0,
        }
    }

    /// From the segment on that begins with the record `first`, behind the one with this hash. What its opening says is taken
    /// over.
    pub(super) fn from(first: u64, before: Hash, trusted: Option<PublicKey>) -> Checker<S> {
        Checker { next: first, head: before, takes_over: true, state: None, ..Checker::new(trusted) }
    }

    /// The number of the record that belongs next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The hash of the last record.
    pub(super) fn head(&self) -> Hash {
        self.head
    }

    /// What the records made of it; none: it was carried by another version, and not all records were read.
    pub(super) fn take_state(&mut self) -> Option<S> {
        self.state.take()
    }

    pub(super) fn has_state(&self) -> bool {
        self.state.is_some()
    }

    /// The key of the checkpoints.
    pub(super) fn key(&self) -> Option<PublicKey> {
        self.key
    }

    /// The last record that a checkpoint vouches for.
    pub(super) fn signed(&self) -> Option<u64> {
        self.signed
    }

    /// How many records no checkpoint vouches for. A checkpoint is none of them: its own signature is in it.
    pub(super) fn unsigned(&self) -> u64 {
        let behind = self.next - self.signed.map_or(0, |signed| signed + 1);
        behind.saturating_sub(self.marks.len() as u64)
    }

    /// The checkpoints behind the record that the last one vouches for.
    pub(super) fn marks(&self) -> &VecDeque<u64> {
        &self.marks
    }

    pub(super) fn checkpoints(&self) -> u64 {
        self.checkpoints
    }

    /// How many carried states were made again from the records, and found the same.
    pub(super) fn compared(&self) -> u64 {
        self.compared
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// [`What`] is wrong with it; nothing has changed then.
    pub(super) fn take<'a>(&mut self, line: &'a [u8], place: Place) -> Result<Record<'a>, What> {
        let record = Record::read(line).ok_or(What::Malformed)?;
        if !record.is_unchanged() {
            return Err(What::Changed);
        }
        if record.seq != self.next {
            return Err(What::Order { found: record.seq });
        }
        if self.head != record.prev {
            return Err(What::Unlinked);
        }
        let opens = record.kind == OPENED;
        let fits = match place {
            Place::First => opens,
            Place::Inside => !opens,
            Place::Anywhere => opens || record.seq != 0,
        };
        if !fits {
            return Err(What::Placement);
        }
        match record.kind {
            OPENED => self.open(&record)?,
            CHECKPOINT => self.checkpoint(&record)?,
            TORN => {}
            kind if S::heeds(kind) => {
                if let Some(state) = &mut self.state {
                    state.apply(kind, &record.values());
                }
            }
            _ => {}
        }
        if self.hashes.len() as u64 == REACH {
            self.hashes.pop_front();
        }
        self.hashes.push_back(record.hash);
        self.head = record.hash;
        self.next += 1;
        Ok(record)
    }

    fn open(&mut self, record: &Record<'_>) -> Result<(), What> {
        let body = record.values();
        match body.get("format").and_then(Value::as_u64) {
            Some(FORMAT) => {}
            Some(other) => return Err(What::Format(other)),
            None => return Err(OpeningFault::Unreadable.into()),
        }
        let opening: Opening = serde_json::from_value(body).map_err(|_| OpeningFault::Unreadable)?;
        let key = match &opening.key {
            Some(key) => Some(unhex(key).ok_or(OpeningFault::Unreadable)?),
            None => None,
        };
        if opening.first != record.seq {
            return Err(OpeningFault::First.into());
        }
        let known = opening.state == S::VERSION;
        if self.takes_over {
            if key.is_some() && self.trusted.is_some() && key != self.trusted {
                return Err(OpeningFault::Key.into());
            }
            if opening.signed.is_some_and(|signed| signed >= record.seq)
                || key.is_some() != opening.signed.is_some()
            {
                return Err(OpeningFault::Signed.into());
            }
            // A state that this version cannot read is as one of another version.
            self.state = serde_json::from_value(opening.carried).ok().filter(|_| known);
            (self.key, self.signed, self.takes_over) = (key, opening.signed, false);
            return Ok(());
        }
        if key != self.key {
            return Err(OpeningFault::Key.into());
        }
        if opening.signed != self.signed {
            return Err(OpeningFault::Signed.into());
        }
        if let (true, Some(state)) = (known && S::VERSION != 0, &self.state) {
            if serde_json::to_value(state).ok() != Some(opening.carried) {
                return Err(OpeningFault::Carried.into());
            }
            self.compared += 1;
        }
        Ok(())
    }

    fn checkpoint(&mut self, record: &Record<'_>) -> Result<(), What> {
        let unreadable = || What::from(CheckpointFault::Unreadable);
        let checkpoint: Checkpoint = serde_json::from_str(record.body).map_err(|_| unreadable())?;
        let hash: Hash = unhex(&checkpoint.hash).ok_or_else(unreadable)?;
        let key: PublicKey = unhex(&checkpoint.key).ok_or_else(unreadable)?;
        let signature: [u8; 64] = unhex(&checkpoint.signature).ok_or_else(unreadable)?;
        let seq = checkpoint.seq;
        // It vouches for a record before it, later than the last one did.
        if seq >= record.seq || record.seq - seq > REACH || self.signed.is_some_and(|signed| seq <= signed) {
            return Err(CheckpointFault::Reach(seq).into());
        }
        // Records before the first one that is read are not known: there the signature alone counts.
        let oldest = self.next - self.hashes.len() as u64;
        let stands = seq.checked_sub(oldest).and_then(|index| self.hashes.get(usize::try_from(index).ok()?));
        if stands.is_some_and(|stands| *stands != hash) {
            return Err(CheckpointFault::Hash(seq).into());
        }
        if self.trusted.or(self.key).is_some_and(|known| known != key) {
            return Err(CheckpointFault::Key.into());
        }
        if UnparsedPublicKey::new(&ED25519, key).verify(&checkpoint_message(seq, &hash), &signature).is_err()
        {
            return Err(CheckpointFault::Signature.into());
        }
        self.key = Some(key);
        self.signed = Some(seq);
        self.checkpoints += 1;
        self.marks.retain(|mark| *mark > seq);
        self.marks.push_back(record.seq);
        Ok(())
    }
}

/// Whether it is the key's signature of this checkpoint.
pub(super) fn is_signed(key: &PublicKey, seq: u64, hash: &Hash, signature: &Signature) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(&checkpoint_message(seq, hash), &signature.bytes()).is_ok()
}
