//! The files of the evidence: one a segment, named for its first record.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::MAX_RECORD;

/// Digits of a name.
const DIGITS: usize = 20;
const SUFFIX: &str = ".jsonl";
/// What a segment is called until it has its first record.
const NEW: &str = "segment.new";
/// The file that a writer holds locked.
const LOCK: &str = "lock";
/// How much is read at once from a file's end.
const CHUNK: u64 = 64 * 1024;

/// One of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Segment {
    /// The number of its first record.
    pub(super) first: u64,
    pub(super) path: PathBuf,
}

/// The name of the segment that begins with this record.
pub(super) fn name(first: u64) -> String {
    format!("{first:0DIGITS$}{SUFFIX}")
}

fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let plain = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// All segments, in order.
pub(super) fn list(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Some(first) = entry.file_name().to_str().and_then(first_of) {
            segments.push(Segment { first, path: entry.path() });
        }
    }
    segments.sort();
    Ok(segments)
}

/// Opens a file to be read. It must be a regular one: a link or a pipe in its place leads whoever verifies elsewhere, or holds
/// them up.
pub(super) fn open(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true), path)
}

/// Opens a segment to be written at its end.
pub(super) fn open_end(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true).append(true), path)
}

fn regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(i32::try_from(flags.bits()).unwrap_or_default()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("no regular file")) }
}

/// Makes a segment with its first record, whole or not at all: no name is there before its bytes are on disk. The name itself is
/// only when the directory is synchronised.
pub(super) fn create(directory: &Path, first: u64, record: &[u8]) -> io::Result<File> {
    let (new, path) = (directory.join(NEW), directory.join(name(first)));
    remove_new(directory)?;
    if fs::symlink_metadata(&path).is_ok() {
        return Err(io::Error::other(format!("{} is there already", path.display())));
    }
    let mut file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(record)?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    Ok(file)
}

/// Removes what a crash left of a segment that never had its name.
pub(super) fn remove_new(directory: &Path) -> io::Result<()> {
    match fs::remove_file(directory.join(NEW)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The last line of a file, without its newline; none: the file does not end in one.
pub(super) fn last_line(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = open(path)?;
    let length = file.metadata()?.len();
    let mut from = length;
    let mut text = Vec::new();
    loop {
        from = from.saturating_sub(CHUNK.max(text.len() as u64));
        file.seek(SeekFrom::Start(from))?;
        text.clear();
        (&file).take(length - from).read_to_end(&mut text)?;
        let Some(line) = text.strip_suffix(b"\n") else { return Ok(None) };
        match line.iter().rposition(|byte| *byte == b'\n') {
            Some(before) => return Ok(line.get(before + 1..).map(<[u8]>::to_vec)),
            None if from == 0 => return Ok(Some(line.to_vec())),
            None if text.len() > MAX_RECORD => return Ok(None),
            None => {}
        }
    }
}

/// Keeps every other writer away for as long as it lives; none: another one is there.
pub(super) fn lock(directory: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = regular(&mut options, &directory.join(LOCK))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether somebody writes the evidence just now.
pub(super) fn is_locked(directory: &Path) -> bool {
    let Ok(file) = open(&directory.join(LOCK)) else { return false };
    matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(rustix::io::Errno::WOULDBLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EVI-1: names sort as numbers do, and nothing else is a segment.
    #[test]
    fn names_are_numbers() {
        assert_eq!(name(42), "00000000000000000042.jsonl");
        assert_eq!(name(u64::MAX), "18446744073709551615.jsonl");
        assert_eq!(first_of(&name(u64::MAX)), Some(u64::MAX));
        for other in
            ["42.jsonl", "0000000000000000004x.jsonl", "00000000000000000042", "+0000000000000000042.jsonl"]
        {
            assert_eq!(first_of(other), None, "{other}");
        }
        assert_eq!(first_of("99999999999999999999.jsonl"), None);
    }

    /// EVI-2: the last line of a file of any length is found, without reading it all.
    #[test]
    fn the_last_line_is_found() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let long = "x".repeat(300_000);
        for (text, last) in [
            ("a\n".to_owned(), Some("a")),
            ("a\nbc\n".to_owned(), Some("bc")),
            (format!("a\n{long}\n"), Some(long.as_str())),
            (format!("{long}\n"), Some(long.as_str())),
            (format!("{long}\nb\n"), Some("b")),
            ("a\nb".to_owned(), None),
            (String::new(), None),
        ] {
            fs::write(&path, &text).unwrap();
            let found = last_line(&path).unwrap();
            assert_eq!(found.as_deref(), last.map(str::as_bytes));
        }
    }

    /// EVI-2: what is read is a file, not what a link or a pipe stands for.
    #[test]
    fn only_regular_files_are_read() {
        let place = tempfile::tempdir().unwrap();
        let (link, pipe) = (place.path().join("link"), place.path().join("pipe"));
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for path in [&link, &pipe, &place.path().to_owned()] {
            assert!(open(path).is_err(), "{}", path.display());
        }
    }
}
