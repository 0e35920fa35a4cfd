//! Reading all of the evidence, and finding the first record that does not hold.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipc_proto::broker::PublicKey;
use serde::{Deserialize, Serialize};

use super::checker::{Checker, Place};
use super::fault::{Fault, What};
use super::key::{key_file, key_text, parse_key, read_key};
use super::lines::{Lines, Next};
use super::segment::{self, Segment};
use super::{State, aside};
use crate::chain::record::Record;

/// How often a last line is read again that a node is writing just now, and how long is waited before.
const AGAIN: (u32, Duration) = (10, Duration::from_millis(20));
/// The progress is told after so many records.
const STEP: u64 = 8192;

/// The first line of a file that holds all segments.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    export: u64,
    key: Option<String>,
}

/// Where a walk begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// With the first record.
    Origin,
    /// With the segment that holds this record.
    Record(u64),
    /// With a segment that is followed by so many records, or more.
    Last(u64),
}

/// Where the key comes from that the checkpoints are compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// Whoever verifies gave it.
    Given,
    /// The file beside the directory.
    File,
    /// The first line of the file with all segments says so.
    Header,
    /// The first checkpoint: it proves only that one key signed them all.
    Checkpoint,
}

impl KeySource {
    /// The name that programs get.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            KeySource::Given => "given",
            KeySource::File => "file",
            KeySource::Header => "header",
            KeySource::Checkpoint => "checkpoint",
        }
    }
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Records so far.
    pub records: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// All bytes.
    pub of: u64,
}

/// The end of the last segment that is no whole record: a write that did not come to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tail {
    /// The record that belongs there.
    pub seq: u64,
    /// The file.
    pub segment: PathBuf,
    /// Where in the file.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
}

/// Evidence that holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// How many records it has. They count from 0.
    pub records: u64,
    /// In how many files.
    pub segments: u64,
    /// How many bytes were read.
    pub bytes: u64,
    /// How many signed checkpoints were checked.
    pub checkpoints: u64,
    /// The last record that a checkpoint vouches for.
    pub signed: Option<u64>,
    /// How many records no checkpoint vouches for yet: whoever can write the files can replace these unseen.
    pub unsigned: u64,
    /// The key that the checkpoints were compared with; none: there is no checkpoint, and no key is known.
    pub key: Option<PublicKey>,
    /// Where that key comes from.
    pub key_source: Option<KeySource>,
    /// How many carried states were made again from the records, and found the same.
    pub compared: u64,
    /// What a crash left of a last record. A node sets it aside when it starts.
    pub tail: Option<Tail>,
    /// A node is writing it.
    pub live: bool,
}

/// What a walk came to.
#[derive(Debug)]
pub(super) struct Walked<S> {
    pub(super) checker: Checker<S>,
    pub(super) tail: Option<Tail>,
    /// The length of what holds, in the last file.
    pub(super) length: u64,
    segments: u64,
    bytes: u64,
    key: Option<(PublicKey, KeySource)>,
    live: bool,
}

/// One walk.
struct Walk<'a, S> {
    checker: Checker<S>,
    each: &'a mut Each<'a>,
    bytes: u64,
    of: u64,
}

/// Hears each record and how far it is.
pub(super) type Each<'a> = dyn FnMut(&Record<'_>, &[u8], Progress) -> ControlFlow<()> + 'a;

/// How a file ended.
enum Ended {
    /// With a whole line; and the file's length.
    Whole(u64),
    /// With something else, at this offset.
    Torn(u64),
    /// Whoever listens has heard enough; and the length so far.
    Enough(u64),
}

/// Verifies the evidence of a directory, or of a file that holds all segments. `trusted` is the key that its checkpoints must
/// carry; none: that of the file beside the directory, else that of the first checkpoint.
///
/// # Errors
/// The first [`Fault`].
pub fn verify<S: State>(
    path: &Path,
    trusted: Option<PublicKey>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Verified, Fault> {
    walk::<S>(path, Begin::Origin, trusted, &mut |_, _, at| {
        if at.records.is_multiple_of(STEP) {
            progress(at);
        }
        ControlFlow::Continue(())
    })
}

/// Hands out record after record, each checked before, with its line, until `each` breaks off.
///
/// # Errors
/// The first [`Fault`]: nothing behind it is handed out.
pub fn walk<'a, S: State>(
    path: &Path,
    begin: Begin,
    trusted: Option<PublicKey>,
    each: &'a mut Each<'a>,
) -> Result<Verified, Fault> {
    let walked = start::<S>(path, begin, trusted, each)?;
    let checker = &walked.checker;
    let (key, key_source) = match (walked.key, checker.key()) {
        (Some((key, source)), _) => (Some(key), Some(source)),
        (None, Some(key)) => (Some(key), Some(KeySource::Checkpoint)),
        (None, None) => (None, None),
    };
    Ok(Verified {
        records: checker.next(),
        segments: walked.segments,
        bytes: walked.bytes,
        checkpoints: checker.checkpoints(),
        signed: checker.signed(),
        unsigned: checker.unsigned(),
        key,
        key_source,
        compared: checker.compared(),
        tail: walked.tail,
        live: walked.live,
    })
}

fn start<'a, S: State>(
    path: &Path,
    begin: Begin,
    trusted: Option<PublicKey>,
    each: &'a mut Each<'a>,
) -> Result<Walked<S>, Fault> {
    let found = std::fs::metadata(path).map_err(unreadable(path))?;
    if !found.is_dir() {
        return file(path, trusted, each);
    }
    let key = match trusted {
        Some(key) => Some((key, KeySource::Given)),
        None => read_key(&key_file(path))?.map(|key| (key, KeySource::File)),
    };
    directory(path, begin, key, segment::is_locked(path), each)
}

/// All segments of a directory. `live`: somebody else may be writing them.
pub(super) fn directory<'a, S: State>(
    directory: &Path,
    begin: Begin,
    key: Option<(PublicKey, KeySource)>,
    live: bool,
    each: &'a mut Each<'a>,
) -> Result<Walked<S>, Fault> {
    let mut segments = segment::list(directory).map_err(unreadable(directory))?;
    let trusted = key.map(|(key, _)| key);
    let checker = match begin {
        Begin::Origin => Checker::new(trusted),
        Begin::Record(seq) => from_segment_of(&mut segments, seq, trusted)?,
        Begin::Last(count) => {
            // The last segment may have one record alone.
            let wanted = segments.last().map_or(0, |last| last.first + 1).saturating_sub(count);
            from_segment_of(&mut segments, wanted, trusted)?
        }
    };
    let Some((last, rest)) = segments.split_last() else {
        return Err(record(0, directory, 0, What::Nothing));
    };
    let of =
        segments.iter().map(|segment| std::fs::metadata(&segment.path).map_or(0, |found| found.len())).sum();
    let mut walk = Walk { checker, each, bytes: 0, of };
    let mut begun = 0;
    let mut done = None;
    for segment in rest {
        begun += 1;
        match walk.segment(segment, false)? {
            Ended::Whole(_) => {}
            Ended::Torn(offset) => return Err(record(walk.checker.next(), &segment.path, offset, What::Cut)),
            Ended::Enough(length) => {
                done = Some((None, length));
                break;
            }
        }
    }
    let (tail, length) = match done {
        Some(done) => done,
        None => {
            begun += 1;
            walk.last(last, live)?
        }
    };
    let Walk { checker, bytes, .. } = walk;
    Ok(Walked { checker, tail, length, segments: begun, bytes, key, live })
}

/// Leaves out the segments before the one with the record `seq`. The last one that is left out must end where the first one
/// begins that is read; whatever else it holds is taken on trust.
fn from_segment_of<S: State>(
    segments: &mut Vec<Segment>,
    seq: u64,
    trusted: Option<PublicKey>,
) -> Result<Checker<S>, Fault> {
    let index = segments.iter().rposition(|segment| segment.first <= seq).unwrap_or(0);
    let Some(before) = index.checked_sub(1).and_then(|before| segments.get(before)).cloned() else {
        return Ok(Checker::new(trusted));
    };
    segments.drain(..index);
    let Some(begin) = segments.first() else { return Ok(Checker::new(trusted)) };
    let line = segment::last_line(&before.path).map_err(unreadable(&before.path))?;
    let line = line.ok_or_else(|| record(begin.first.saturating_sub(1), &before.path, 0, What::Cut))?;
    let ended = Record::read(&line).filter(Record::is_unchanged);
    let ended =
        ended.ok_or_else(|| record(begin.first.saturating_sub(1), &before.path, 0, What::Malformed))?;
    if ended.seq + 1 != begin.first {
        return Err(record(ended.seq + 1, &before.path, 0, What::Missing { next: begin.first }));
    }
    Ok(Checker::from(begin.first, ended.hash, trusted))
}

/// A file that holds all segments.
fn file<'a, S: State>(
    path: &Path,
    trusted: Option<PublicKey>,
    each: &'a mut Each<'a>,
) -> Result<Walked<S>, Fault> {
    let mut lines = Lines::open(path).map_err(unreadable(path))?;
    let of = lines.length().map_err(unreadable(path))?;
    let header = match lines.next().map_err(unreadable(path))? {
        Next::Line(line) => serde_json::from_slice::<Header>(line).ok(),
        Next::Tail | Next::TooLong => None,
        Next::End => return Err(record(0, path, 0, What::Nothing)),
    };
    // A file without the first line is taken as well: all segments, one behind the other.
    let said = match header {
        Some(Header { export: super::FORMAT, key: Some(key) }) => {
            Some(parse_key(&key).ok_or_else(|| record(0, path, 0, What::Malformed))?)
        }
        Some(Header { export: super::FORMAT, key: None }) => None,
        Some(Header { export, .. }) => return Err(record(0, path, 0, What::Format(export))),
        None => {
            lines.again().map_err(unreadable(path))?;
            None
        }
    };
    let key = match (trusted, said) {
        (Some(key), _) => Some((key, KeySource::Given)),
        (None, Some(key)) => Some((key, KeySource::Header)),
        (None, None) => None,
    };
    let mut walk = Walk { checker: Checker::new(key.map(|(key, _)| key)), each, bytes: 0, of };
    let length = match walk.lines(path, &mut lines, |_| Place::Anywhere)? {
        Ended::Whole(length) | Ended::Enough(length) => length,
        Ended::Torn(offset) => return Err(record(walk.checker.next(), path, offset, What::Malformed)),
    };
    if walk.checker.next() == 0 {
        return Err(record(0, path, 0, What::Nothing));
    }
    let Walk { checker, bytes, .. } = walk;
    Ok(Walked { checker, tail: None, length, segments: 1, bytes, key, live: false })
}

impl<S: State> Walk<'_, S> {
    fn segment(&mut self, segment: &Segment, live: bool) -> Result<Ended, Fault> {
        let path = &segment.path;
        let expected = self.checker.next();
        if segment.first > expected {
            return Err(record(expected, path, 0, What::Missing { next: segment.first }));
        }
        if segment.first < expected {
            return Err(record(expected, path, 0, What::Order { found: segment.first }));
        }
        let mut lines = Lines::open(path).map_err(unreadable(path))?;
        let place = |seq| if seq == segment.first { Place::First } else { Place::Inside };
        let mut ended = self.lines(path, &mut lines, place)?;
        // What a node is writing just now is not torn.
        for _ in 0..AGAIN.0 {
            if !live || !matches!(ended, Ended::Torn(_)) {
                break;
            }
            std::thread::sleep(AGAIN.1);
            lines.again().map_err(unreadable(path))?;
            ended = self.lines(path, &mut lines, place)?;
        }
        Ok(ended)
    }

    /// The last segment, which alone may end in something else than a record.
    fn last(&mut self, segment: &Segment, live: bool) -> Result<(Option<Tail>, u64), Fault> {
        let (offset, fault) = match self.segment(segment, live) {
            Ok(Ended::Whole(length)) if self.checker.next() > segment.first => return Ok((None, length)),
            // It gets its name with its first record in it.
            Ok(Ended::Whole(_)) => return Err(record(segment.first, &segment.path, 0, What::Malformed)),
            Ok(Ended::Enough(length)) => return Ok((None, length)),
            Ok(Ended::Torn(offset)) => (offset, None),
            Err(Fault::Record { offset, what: What::Malformed, seq, segment }) => {
                (offset, Some(Fault::Record { offset, what: What::Malformed, seq, segment }))
            }
            Err(fault) => return Err(fault),
        };
        let (seq, path) = (self.checker.next(), &segment.path);
        let end = aside::look(path, offset).map_err(unreadable(path))?;
        if end.torn && seq > segment.first {
            return Ok((Some(Tail { seq, segment: path.clone(), offset, bytes: end.bytes }), offset));
        }
        Err(fault.unwrap_or_else(|| record(seq, path, offset, What::Malformed)))
    }

    fn lines(
        &mut self,
        path: &Path,
        lines: &mut Lines,
        place: impl Fn(u64) -> Place,
    ) -> Result<Ended, Fault> {
        loop {
            let at = lines.at_next();
            let line = match lines.next().map_err(unreadable(path))? {
                Next::Line(line) => line,
                Next::Tail => return Ok(Ended::Torn(at)),
                Next::TooLong => return Err(record(self.checker.next(), path, at, What::Malformed)),
                Next::End => return Ok(Ended::Whole(at)),
            };
            let seq = self.checker.next();
            let taken = self.checker.take(line, place(seq)).map_err(|what| record(seq, path, at, what))?;
            self.bytes += line.len() as u64 + 1;
            let progress = Progress { records: seq + 1, bytes: self.bytes, of: self.of };
            if (self.each)(&taken, line, progress).is_break() {
                return Ok(Ended::Enough(at + line.len() as u64 + 1));
            }
        }
    }
}

/// The first line of a file that holds all segments, with its newline.
#[must_use]
pub fn header(key: Option<&PublicKey>) -> String {
    let key = key.map_or(serde_json::Value::Null, |key| key_text(key).into());
    format!("{}\n", serde_json::json!({ "export": super::FORMAT, "key": key }))
}

fn record(seq: u64, segment: &Path, offset: u64, what: What) -> Fault {
    Fault::Record { seq, segment: segment.to_owned(), offset, what }
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> Fault + '_ {
    move |error| Fault::Unreadable { path: path.to_owned(), error }
}
