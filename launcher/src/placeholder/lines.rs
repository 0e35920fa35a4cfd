//! The record of a run as it is on disk, and reading it back.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use super::{Entry, RECORD};
use crate::remove::{self, is_file};

/// The longest record that is read back, in bytes.
const MAX_RECORD: u64 = 4 * 1024 * 1024;

/// Reads the record in a run's directory; there may be none. What is no record of ours counts as none.
///
/// # Errors
/// When it cannot be read.
pub fn read(directory: &OwnedFd) -> io::Result<Vec<Entry>> {
    // Nothing is waited for that a FIFO's other end could send.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(directory, RECORD, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let stat = fstat(&file)?;
    if !remove::is_private(&stat) || !is_file(&stat) || stat.st_nlink != 1 {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(MAX_RECORD).read_to_end(&mut bytes)?;
    Ok(decode(&bytes))
}

/// A letter, then each field with a null behind it.
pub(super) fn encode(entry: &Entry) -> Vec<u8> {
    let (kind, fields): (u8, Vec<Vec<u8>>) = match entry {
        Entry::Intent(path) => (b'I', vec![bytes(path)]),
        Entry::Made { path, device, inode } => (b'M', vec![bytes(path), digits(*device), digits(*inode)]),
        Entry::File { path, device, inode } => (b'F', vec![bytes(path), digits(*device), digits(*inode)]),
        Entry::Link { path, target } => (b'L', vec![bytes(path), bytes(target)]),
    };
    let mut line = vec![kind];
    for field in fields {
        line.extend_from_slice(&field);
        line.push(0);
    }
    line
}

/// Reads entries until one is cut off, as by a crash while it was written.
pub(super) fn decode(mut bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    while let Some((kind, rest)) = bytes.split_first() {
        let mut rest = rest;
        let mut field = || {
            let end = rest.iter().position(|byte| *byte == 0)?;
            let (field, after) = rest.split_at(end);
            rest = after.get(1..)?;
            Some(field.to_vec())
        };
        let path = |bytes: Vec<u8>| PathBuf::from(OsStr::from_bytes(&bytes));
        let number = |bytes: Vec<u8>| String::from_utf8(bytes).ok()?.parse().ok();
        let entry = match kind {
            b'I' => field().map(path).map(Entry::Intent),
            b'L' => {
                field().map(path).zip(field().map(path)).map(|(path, target)| Entry::Link { path, target })
            }
            b'M' => (|| {
                let path = path(field()?);
                Some(Entry::Made { path, device: number(field()?)?, inode: number(field()?)? })
            })(),
            b'F' => (|| {
                let path = path(field()?);
                Some(Entry::File { path, device: number(field()?)?, inode: number(field()?)? })
            })(),
            _ => None,
        };
        let Some(entry) = entry else { break };
        entries.push(entry);
        bytes = rest;
    }
    // Only absolute paths are ever written.
    entries.retain(|entry| match entry {
        Entry::Intent(path)
        | Entry::Made { path, .. }
        | Entry::File { path, .. }
        | Entry::Link { path, .. } => path.is_absolute(),
    });
    entries
}

fn digits(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}
