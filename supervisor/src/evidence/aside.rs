//! The end of a file that a crash or a power failure tore: recognised, and set aside.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::segment;
use crate::chain::record::Hash;

/// What a torn end is called until it is copied whole.
const NEW: &str = "torn.new";
/// So many names are tried for one that is set aside.
const NAMES: u32 = 100;
/// Storage loses no less than a sector.
const SECTOR: u64 = 512;
/// So many zeros at a sector's end are a loss, not a change.
const ZEROS: u64 = 8;
const CHUNK: usize = 64 * 1024;

/// The end of a file behind its last good record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub(super) bytes: u64,
    pub(super) sha256: Hash,
    /// It has no whole line, as a write leaves it that did not come to its end; or it has sectors that were never written, which
    /// a file system reads as zeros. A line has no zero bytes, so whoever changed one did not leave them by chance.
    pub(super) torn: bool,
}

/// Looks at everything from `offset` on.
pub(super) fn look(path: &Path, offset: u64) -> io::Result<End> {
    let mut file = segment::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut hasher = Sha256::new();
    let (mut at, mut zeros, mut newline, mut lost) = (offset, 0u64, false, false);
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = file.read(&mut chunk)?;
        let Some(piece) = chunk.get(..read).filter(|piece| !piece.is_empty()) else { break };
        hasher.update(piece);
        for byte in piece {
            zeros = if *byte == 0 { zeros + 1 } else { 0 };
            newline |= *byte == b'\n';
            at += 1;
            lost |= zeros >= ZEROS && at % SECTOR == 0;
        }
    }
    Ok(End { bytes: at - offset, sha256: hasher.finalize().into(), torn: !newline || lost })
}

/// Where what is torn off before this record is kept.
fn name(seq: u64, number: u32) -> String {
    if number == 0 { format!("torn-{seq:020}") } else { format!("torn-{seq:020}.{number}") }
}

/// Copies the end of a file into one of its own, on disk when this returns. One that is there already with these bytes is it.
pub(super) fn keep(directory: &Path, seq: u64, from: &Path, offset: u64, end: &End) -> io::Result<String> {
    for number in 0..NAMES {
        let name = name(seq, number);
        let path = directory.join(&name);
        match look(&path, 0) {
            Ok(kept) if kept.sha256 == end.sha256 => return Ok(name),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                copy(directory, &path, from, offset, end.bytes)?;
                return Ok(name);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are too many files torn-{seq:020}; move them elsewhere")))
}

fn copy(directory: &Path, path: &Path, from: &Path, offset: u64, bytes: u64) -> io::Result<()> {
    let new = directory.join(NEW);
    let mut source = segment::open(from)?;
    source.seek(SeekFrom::Start(offset))?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    // Read and written piece by piece: the calls for copying inside the kernel are not among those a node may do.
    let mut chunk = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let read = source.read(&mut chunk)?;
        let piece = chunk.get(..read).filter(|piece| !piece.is_empty());
        let piece = piece.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        file.write_all(piece)?;
        left = left.saturating_sub(piece.len() as u64);
    }
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}

/// Those that were set aside before the record `seq`, in order: the record is about the first of them, if it is there.
pub(super) fn kept(directory: &Path, seq: u64) -> io::Result<Vec<(String, End)>> {
    let mut found = Vec::new();
    for number in 0..NAMES {
        let name = name(seq, number);
        match look(&directory.join(&name), 0) {
            Ok(end) => found.push((name, end)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torn(text: &[u8], offset: u64) -> bool {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, [&vec![b'x'; usize::try_from(offset).unwrap()], text].concat()).unwrap();
        let end = look(&path, offset).unwrap();
        assert_eq!(end.bytes, text.len() as u64);
        assert_eq!(end.sha256, Hash::from(Sha256::digest(text)));
        end.torn
    }

    /// EVI-3: an unfinished line and lost sectors are torn; a changed line is not.
    #[test]
    fn torn_is_told_from_changed() {
        assert!(torn(b"{\"seq\":", 3));
        assert!(torn(&[0; 700], 3));
        assert!(!torn(b"{\"seq\":\n", 3));
        assert!(!torn(b"{\"seq\":1}\n{\"seq\":2", 3));
        assert!(!torn(b"a\0\0\0\0\0\0\0\0\0b\n", 3));
        // A page that was never written, and one behind it that was.
        let lost = [&b"{\"se"[..], &vec![0; 4092], b"...}\n{\"seq\":1}\n"].concat();
        assert!(torn(&lost, 0) && torn(&lost, 512));
    }

    /// EVI-3: what is set aside is kept once, and never over something else.
    #[test]
    fn what_is_torn_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, b"good\ntorn").unwrap();
        let end = look(&path, 5).unwrap();
        let name = keep(place.path(), 7, &path, 5, &end).unwrap();
        assert_eq!(name, "torn-00000000000000000007");
        assert_eq!(fs::read(place.path().join(&name)).unwrap(), b"torn");
        assert_eq!(keep(place.path(), 7, &path, 5, &end).unwrap(), name);
        fs::write(&path, b"good\nother").unwrap();
        let other = look(&path, 5).unwrap();
        assert_eq!(keep(place.path(), 7, &path, 5, &other).unwrap(), format!("{name}.1"));
        assert_eq!(fs::read(place.path().join(&name)).unwrap(), b"torn");
        assert_eq!(kept(place.path(), 7).unwrap(), [(name.clone(), end), (format!("{name}.1"), other)]);
        assert_eq!(kept(place.path(), 8).unwrap(), []);
    }
}
