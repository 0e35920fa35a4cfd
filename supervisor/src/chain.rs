//! A hash-chained log: each line names the one before it, so nothing can be changed, removed or moved unseen.
//!
//! One JSON object a line, `{"seq","time","kind","body","prev","hash"}` in this order. `hash` is the SHA-256, in hex,
//! over the line's bytes without `,"hash":"..."`, and `prev` the hash of the line before (64 zeros in the first). A
//! chain that came to its end closes with a line of kind `run.sealed`, whose body counts the lines before it: a chain
//! without one was cut, or its run is still going.

pub mod record;

use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use self::record::{Hash, ORIGIN, Record};

/// The kind of a chain's last line.
pub const SEALED: &str = "run.sealed";
/// The longest line that is read, in bytes.
pub const MAX_LINE: usize = 1024 * 1024;
/// The last second that a time has four digits of a year for, since 1970.
const LAST_SECOND: u64 = 253_402_300_799;

/// A line as read back.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Counts from 0.
    pub seq: u64,
    /// RFC 3339, UTC, milliseconds.
    pub time: String,
    /// What happened, such as `run.admitted`.
    pub kind: String,
    /// What belongs to it.
    pub body: Value,
    /// The hash of the line before.
    pub prev: String,
    /// The hash of this one.
    pub hash: String,
}

/// What is wrong with a chain, and where.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be read.
    #[error("the chain cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A line that is none.
    #[error("record {seq} is not a line of a chain: it was changed or cut")]
    Malformed {
        /// Which.
        seq: u64,
    },
    /// A line whose hash is not its own.
    #[error("record {seq} was changed: its hash does not fit what it says")]
    Changed {
        /// Which.
        seq: u64,
    },
    /// A line that does not follow the one before it.
    #[error("record {seq} does not follow the one before it: a record was removed, added or moved")]
    Order {
        /// Which.
        seq: u64,
    },
    /// Something behind the seal, or a seal that counts other lines.
    #[error("record {seq} is behind the end of the chain, or the end counts other records")]
    Seal {
        /// Which.
        seq: u64,
    },
}

/// A chain that is being written.
#[derive(Debug)]
pub struct Chain {
    file: File,
    next: u64,
    head: Hash,
}

impl Chain {
    /// Starts a chain in an empty file.
    #[must_use]
    pub fn new(file: File) -> Chain {
        Chain { file, next: 0, head: ORIGIN }
    }

    /// Appends one line. It is on disk only after [`Chain::sync`].
    ///
    /// # Errors
    /// When the file cannot be written; the line is then not part of the chain.
    pub fn append(&mut self, at: SystemTime, kind: &str, body: &Value) -> io::Result<()> {
        let (line, hash) = record::write(self.next, at, kind, body, &self.head)?;
        self.file.write_all(line.as_bytes())?;
        self.head = hash;
        self.next += 1;
        Ok(())
    }

    /// Waits until everything appended is on disk.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Appends the last line.
    ///
    /// # Errors
    /// As [`Chain::append`].
    pub fn seal(mut self, at: SystemTime) -> io::Result<()> {
        let body = serde_json::json!({ "records": self.next });
        self.append(at, SEALED, &body)?;
        self.sync()
    }
}

/// Reads a chain and checks every line of it. The second value: it ends with its seal.
///
/// # Errors
/// The first [`Fault`], by the number of its record.
pub fn read(text: &[u8]) -> Result<(Vec<Line>, bool), Fault> {
    let mut lines: Vec<Line> = Vec::new();
    let mut sealed = false;
    let mut head = ORIGIN;
    let mut rest = text;
    while !rest.is_empty() {
        let seq = lines.len() as u64;
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or(Fault::Malformed { seq })?;
        let (raw, after) = rest.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        if raw.len() > MAX_LINE {
            return Err(Fault::Malformed { seq });
        }
        let record = Record::read(raw).ok_or(Fault::Malformed { seq })?;
        if !record.is_unchanged() {
            return Err(Fault::Changed { seq });
        }
        if record.seq != seq || record.prev != head {
            return Err(Fault::Order { seq });
        }
        let body = record.values();
        if sealed {
            return Err(Fault::Seal { seq });
        }
        if record.kind == SEALED {
            if body.get("records").and_then(Value::as_u64) != Some(seq) {
                return Err(Fault::Seal { seq });
            }
            sealed = true;
        }
        head = record.hash;
        lines.push(Line {
            seq,
            time: record.time.to_owned(),
            kind: record.kind.to_owned(),
            body,
            prev: hex(&record.prev),
            hash: hex(&record.hash),
        });
    }
    Ok((lines, sealed))
}

/// A time for people and records: UTC with milliseconds. A clock that is before 1970 or behind 9999 stands at that border.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    let at = at.clamp(UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(LAST_SECOND));
    humantime::format_rfc3339_millis(at).to_string()
}

/// The time of `unix_ms` milliseconds since 1970.
#[must_use]
pub fn at_unix_ms(unix_ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(unix_ms)
}

/// Bytes in lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain_of(bodies: &[&str]) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut chain = Chain::new(file.reopen().unwrap());
        for body in bodies {
            chain.append(at_unix_ms(1_000), "test", &serde_json::json!({ "text": body })).unwrap();
        }
        chain.seal(at_unix_ms(2_000)).unwrap();
        std::fs::read(file.path()).unwrap()
    }

    /// EVI-5: what was written reads back, sealed.
    #[test]
    fn a_sealed_chain_reads_back() {
        let (lines, sealed) = read(&chain_of(&["a", "b", ",\"hash\":\"x\"}"])).unwrap();
        assert!(sealed);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[1].time, "1970-01-01T00:00:01.000Z");
    }

    /// EVI-5: every changed byte is found.
    #[test]
    fn any_changed_byte_is_found() {
        let good = chain_of(&["a", "b"]);
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1;
            assert!(read(&bad).is_err(), "byte {place} changed unseen");
        }
    }

    /// EVI-5: a removed or moved line is named; a cut chain has no seal.
    #[test]
    fn removed_and_moved_lines_are_named() {
        let good = chain_of(&["a", "b", "c"]);
        let lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
        let removed: Vec<u8> = [lines[0], lines[2], lines[3]].concat();
        assert!(matches!(read(&removed), Err(Fault::Order { seq: 1 })));
        let moved: Vec<u8> = [lines[1], lines[0], lines[2], lines[3]].concat();
        assert!(matches!(read(&moved), Err(Fault::Order { seq: 0 })));
        let doubled: Vec<u8> = [&good, lines[3]].concat();
        assert!(matches!(read(&doubled), Err(Fault::Order { seq: 4 })));
        let cut: Vec<u8> = [lines[0], lines[1]].concat();
        assert!(!read(&cut).unwrap().1);
        assert!(matches!(read(&good[..good.len() - 3]), Err(Fault::Malformed { seq: 3 })));
    }
}
