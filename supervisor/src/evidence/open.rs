//! Opening evidence to be written: what is there is checked, and what a crash left is set aside.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ipc_proto::broker::PublicKey;
use rustix::fs::ftruncate;
use serde_json::json;

use super::error::EvidenceError;
use super::fault::{Fault, What};
use super::key::{key_file, read_key};
use super::log::{self, Evidence, Sizes};
use super::segment::{self, Segment};
use super::verify::{self, Begin, KeySource, Progress, Walked};
use super::{State, TORN, aside};
use crate::chain::hex;
use crate::chain::record::{ORIGIN, Record};

/// How often the lock is tried, and how long is waited before: whoever verifies looks at it, and a node that was killed may take
/// a moment to be gone.
const LOCK: (u32, Duration) = (25, Duration::from_millis(20));

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// There was no evidence.
    pub fresh: bool,
    /// How many records there were, without those that were written now.
    pub records: u64,
    /// What a crash left of the last records, set aside and recorded.
    pub torn: Option<Torn>,
    /// The state was made anew from all records, since another version had carried it.
    pub recomputed: bool,
}

/// An end that was set aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Torn {
    /// Where it is now.
    pub file: PathBuf,
    /// How much it is.
    pub bytes: u64,
    /// The record that it would have been.
    pub seq: u64,
}

impl<S: State> Evidence<S> {
    /// Opens the evidence in a directory that is there, or begins it. Reads the last segment, or, where another version
    /// carried its state, all of them. `now` is the time of what is written: a first record, `evidence.torn`.
    ///
    /// # Errors
    /// [`EvidenceError::Locked`]: another one has it. [`EvidenceError::Fault`]: what is there does not hold; nothing is
    /// changed then. [`EvidenceError::Unusable`]; else as [`Evidence::sync`].
    pub fn open(directory: &Path, now: SystemTime) -> Result<(Evidence<S>, Opened), EvidenceError> {
        Evidence::open_with(directory, known_key(directory)?, now, Sizes::NODE)
    }

    /// The same, for whoever knows the key of the evidence and may not read the file beside the directory: a key means that
    /// there was evidence already.
    ///
    /// # Errors
    /// As [`Evidence::open`].
    pub fn open_known(
        directory: &Path,
        key: Option<PublicKey>,
        now: SystemTime,
    ) -> Result<(Evidence<S>, Opened), EvidenceError> {
        Evidence::open_with(directory, key, now, Sizes::NODE)
    }

    pub(super) fn open_with(
        directory: &Path,
        key: Option<PublicKey>,
        now: SystemTime,
        sizes: Sizes,
    ) -> Result<(Evidence<S>, Opened), EvidenceError> {
        let failed = |what| move |error| EvidenceError::Unusable { path: directory.to_owned(), what, error };
        let names = File::open(directory).map_err(failed("the directory cannot be opened"))?;
        let lock = lock(directory)?;
        segment::remove_new(directory).map_err(failed("an unfinished segment cannot be removed"))?;
        let list = || segment::list(directory).map_err(failed("the directory cannot be read"));
        let mut segments = list()?;
        let fresh = segments.is_empty();
        if fresh {
            begin::<S>(directory, &names, key, now)?;
            segments = list()?;
        }
        let Some(last) = segments.last() else { return Err(nothing(directory)) };
        let (mut walked, recomputed) = read(directory, key)?;
        let file = cut(directory, last, &walked).map_err(failed("what a crash left cannot be set aside"))?;
        // Records of a process that was killed may be in the system's memory alone.
        file.sync_data().map_err(EvidenceError::Sync)?;
        let next = walked.checker.next();
        let records = if fresh { 0 } else { next };
        let opened = Opened { fresh, records, torn: None, recomputed };
        let mut evidence = Evidence {
            directory: directory.to_owned(),
            names,
            _lock: lock,
            sizes,
            file,
            length: walked.length,
            next,
            head: walked.checker.head(),
            last: now,
            state: walked.checker.take_state().unwrap_or_default(),
            key: walked.checker.key().or(key),
            signed: walked.checker.signed(),
            marks: walked.checker.marks().clone(),
            asked: VecDeque::new(),
            dirty: None,
            broken: false,
        };
        let opened = evidence.record_torn(now, opened)?;
        if recomputed {
            // From here on it is carried again.
            evidence.rotate()?;
        }
        // After a clean stop there is nothing that is not signed.
        evidence.ask_checkpoint();
        Ok((evidence, opened))
    }

    /// Records what was set aside: now, or by a start that did not come as far as that.
    fn record_torn(&mut self, now: SystemTime, mut opened: Opened) -> Result<Opened, EvidenceError> {
        let directory = self.directory.clone();
        let seq = self.next;
        let kept = aside::kept(&directory, seq).map_err(|error| EvidenceError::Unusable {
            path: directory.clone(),
            what: "what a crash left cannot be read",
            error,
        })?;
        for (file, end) in &kept {
            let body = json!({ "file": file, "bytes": end.bytes, "sha256": hex(&end.sha256) });
            self.write(now, TORN, &body)?;
        }
        if let Some((file, end)) = kept.last() {
            opened.torn = Some(Torn { file: directory.join(file), bytes: end.bytes, seq });
        }
        self.sync()?;
        Ok(opened)
    }
}

/// The first record of all.
fn begin<S: State>(
    directory: &Path,
    names: &File,
    key: Option<PublicKey>,
    now: SystemTime,
) -> Result<(), EvidenceError> {
    if key.is_some() {
        // There was evidence, since its key is known.
        return Err(nothing(directory));
    }
    let (line, _) = log::opening(0, now, &ORIGIN, &S::default(), None, None)?;
    segment::create(directory, 0, line.as_bytes()).and_then(|_| names.sync_all()).map_err(|error| {
        EvidenceError::Unusable { path: directory.to_owned(), what: "a first segment cannot be made", error }
    })
}

fn nothing(directory: &Path) -> EvidenceError {
    Fault::Record { seq: 0, segment: directory.to_owned(), offset: 0, what: What::Nothing }.into()
}

fn lock(directory: &Path) -> Result<File, EvidenceError> {
    let failed = |error: io::Error| EvidenceError::Unusable {
        path: directory.to_owned(),
        what: "the directory cannot be locked",
        error,
    };
    for _ in 0..LOCK.0 {
        if let Some(lock) = segment::lock(directory).map_err(failed)? {
            return Ok(lock);
        }
        std::thread::sleep(LOCK.1);
    }
    Err(EvidenceError::Locked(directory.to_owned()))
}

/// The key of the file beside the directory, where this process may read it.
fn known_key(directory: &Path) -> Result<Option<PublicKey>, EvidenceError> {
    match read_key(&key_file(directory)) {
        Err(Fault::Unreadable { error, .. }) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        other => Ok(other?),
    }
}

/// The last segment; all of them where its carried state is none of this version.
fn read<S: State>(directory: &Path, key: Option<PublicKey>) -> Result<(Walked<S>, bool), EvidenceError> {
    let key = key.map(|key| (key, KeySource::File));
    let mut each = |_: &Record<'_>, _: &[u8], _: Progress| ControlFlow::Continue(());
    let walked: Walked<S> = verify::directory(directory, Begin::Last(1), key, false, &mut each)?;
    if walked.checker.has_state() {
        return Ok((walked, false));
    }
    let mut each = |_: &Record<'_>, _: &[u8], _: Progress| ControlFlow::Continue(());
    Ok((verify::directory(directory, Begin::Origin, key, false, &mut each)?, true))
}

/// Opens the last segment at the end of its last good record. What is behind that is kept elsewhere first.
fn cut<S: State>(directory: &Path, last: &Segment, walked: &Walked<S>) -> io::Result<File> {
    let file = segment::open_end(&last.path)?;
    if let Some(tail) = &walked.tail {
        let end = aside::look(&last.path, tail.offset)?;
        aside::keep(directory, tail.seq, &last.path, tail.offset, &end)?;
        ftruncate(&file, tail.offset)?;
        file.sync_all()?;
    }
    Ok(file)
}
