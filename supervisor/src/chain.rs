//! A hash-chained log: each line names the one before it, so nothing can be changed, removed or moved unseen.
//!
//! One JSON object a line, `{"seq","time","kind","body","prev","hash"}` in this order. `hash` is the SHA-256, in hex,
//! over the line's bytes without `,"hash":"..."`, and `prev` the hash of the line before (64 zeros in the first). A
//! chain that came to its end closes with a line of kind `run.sealed`, whose body counts the lines before it: a chain
//! without one was cut, or its run is still going.

use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The kind of a chain's last line.
pub const SEALED: &str = "run.sealed";
/// The longest line that is read, in bytes.
pub const MAX_LINE: usize = 1024 * 1024;

/// What stands before the first line.
const ORIGIN: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const HASH_KEY: &str = ",\"hash\":\"";

/// A line without its hash, in the order in which it is written.
#[derive(Serialize)]
struct Unhashed<'a> {
    seq: u64,
    time: &'a str,
    kind: &'a str,
    body: &'a Value,
    prev: &'a str,
}

/// A line as read back.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
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
    head: String,
}

impl Chain {
    /// Starts a chain in an empty file.
    #[must_use]
    pub fn new(file: File) -> Chain {
        Chain { file, next: 0, head: ORIGIN.to_owned() }
    }

    /// Appends one line. It is on disk only after [`Chain::sync`].
    ///
    /// # Errors
    /// When the file cannot be written; the line is then not part of the chain.
    pub fn append(&mut self, at: SystemTime, kind: &str, body: &Value) -> io::Result<()> {
        let time = rfc3339(at);
        let mut line =
            serde_json::to_string(&Unhashed { seq: self.next, time: &time, kind, body, prev: &self.head })
                .map_err(io::Error::other)?;
        let hash = hex(&Sha256::digest(line.as_bytes()));
        line.pop();
        line.push_str(HASH_KEY);
        line.push_str(&hash);
        line.push_str("\"}\n");
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
    let mut head = ORIGIN.to_owned();
    let mut rest = text;
    while !rest.is_empty() {
        let seq = lines.len() as u64;
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or(Fault::Malformed { seq })?;
        let (raw, after) = rest.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        let line = read_line(raw, seq)?;
        if line.seq != seq || line.prev != head {
            return Err(Fault::Order { seq });
        }
        if sealed {
            return Err(Fault::Seal { seq });
        }
        if line.kind == SEALED {
            if line.body.get("records").and_then(Value::as_u64) != Some(seq) {
                return Err(Fault::Seal { seq });
            }
            sealed = true;
        }
        head.clone_from(&line.hash);
        lines.push(line);
    }
    Ok((lines, sealed))
}

fn read_line(raw: &[u8], seq: u64) -> Result<Line, Fault> {
    if raw.len() > MAX_LINE {
        return Err(Fault::Malformed { seq });
    }
    let text = std::str::from_utf8(raw).map_err(|_| Fault::Malformed { seq })?;
    let line: Line = serde_json::from_str(text).map_err(|_| Fault::Malformed { seq })?;
    // The hash is over the bytes as written: the last key, cut off where it begins.
    let cut = text.rfind(HASH_KEY).ok_or(Fault::Malformed { seq })?;
    let (unhashed, tail) = text.split_at(cut);
    if tail.len() != HASH_KEY.len() + line.hash.len() + 2 {
        return Err(Fault::Malformed { seq });
    }
    let mut hasher = Sha256::new();
    hasher.update(unhashed.as_bytes());
    hasher.update(b"}");
    if hex(&hasher.finalize()) != line.hash {
        return Err(Fault::Changed { seq });
    }
    Ok(line)
}

/// A time for people and records: UTC with milliseconds.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
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
