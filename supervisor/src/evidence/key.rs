//! The public half of the key that checkpoints are signed with, as text.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ipc_proto::broker::PublicKey;

use super::fault::Fault;
use super::segment;
use crate::chain::hex;
use crate::chain::record::unhex;

/// The longest file of a key that is read, in bytes.
const MAX_FILE: u64 = 1024;

/// The key as people and files have it: 64 digits.
#[must_use]
pub fn key_text(key: &PublicKey) -> String {
    hex(key)
}

/// The key of a text; blanks around it do not count.
#[must_use]
pub fn parse_key(text: &str) -> Option<PublicKey> {
    unhex(text.trim())
}

/// Where the key of the evidence in `directory` is kept: `evidence.pub` beside `evidence`.
#[must_use]
pub fn key_file(directory: &Path) -> PathBuf {
    directory.with_extension("pub")
}

/// Reads a file with a key; none: there is no such file, or nothing was written into it yet.
///
/// # Errors
/// [`Fault::Unreadable`] or [`Fault::NoKey`].
pub fn read_key(path: &Path) -> Result<Option<PublicKey>, Fault> {
    let mut text = String::new();
    match segment::open(path).and_then(|file| file.take(MAX_FILE).read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(Fault::NoKey(path.to_owned()));
        }
        Err(error) => return Err(Fault::Unreadable { path: path.to_owned(), error }),
    }
    if text.trim().is_empty() {
        return Ok(None);
    }
    parse_key(&text).map(Some).ok_or_else(|| Fault::NoKey(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// EVI-2: a key reads back; no key and a wrong one are told apart.
    #[test]
    fn a_key_is_kept_in_a_file() {
        let place = tempfile::tempdir().unwrap();
        let path = key_file(&place.path().join("evidence"));
        assert_eq!(path, place.path().join("evidence.pub"));
        assert_eq!(read_key(&path).unwrap(), None);
        fs::write(&path, format!("{}\n", key_text(&[0xa5; 32]))).unwrap();
        assert_eq!(read_key(&path).unwrap(), Some([0xa5; 32]));
        fs::write(&path, "\n").unwrap();
        assert_eq!(read_key(&path).unwrap(), None);
        for wrong in ["a5", &"A5".repeat(32), &"a5".repeat(33), "\u{ff}"] {
            fs::write(&path, wrong).unwrap();
            assert!(matches!(read_key(&path), Err(Fault::NoKey(_))), "{wrong:?}");
        }
        fs::write(&path, [0xff]).unwrap();
        assert!(matches!(read_key(&path), Err(Fault::NoKey(_))));
    }
}
