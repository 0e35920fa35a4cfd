//! The operator's store of keys: a file each, which only the guard opens, and whose bytes only the broker reads.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use ipc_proto::Code;
use rustix::fs::OFlags;

use crate::error::Trouble;
use crate::guard::Directories;

/// The longest value, in bytes: more than any service's key.
pub const MAX_VALUE: usize = 8192;
/// The longest name, in bytes.
const MAX_NAME: usize = 64;
/// What a value is written as before it takes its name.
const UNFINISHED: &str = ".new-";
/// Longer than storing takes anywhere.
const STORING: Duration = Duration::from_secs(60);

/// The name of a credential: lower-case letters, digits, and `.`, `-`, `_` after the first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name(String);

impl Name {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = Trouble;

    fn from_str(text: &str) -> Result<Name, Trouble> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let first = text.bytes().next().is_some_and(plain);
        if first && text.len() <= MAX_NAME && text.bytes().all(|byte| plain(byte) || b".-_".contains(&byte)) {
            return Ok(Name(text.to_owned()));
        }
        // Not shown: whoever confuses name and value has put a key here.
        Err(Trouble::new(
            Code::BadOption,
            "a credential's name has 1 to 64 lower-case letters, digits and . - _, the first a letter or digit; the \
             value is never an argument: it is read from a prompt or from standard input",
        ))
    }
}

/// A stored credential, as it is listed: never its value.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its name.
    pub name: Name,
    /// When its value was stored.
    pub stored: SystemTime,
}

/// The directory of the store.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// The store of whoever runs anet; made where it is missing.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub fn open(directories: &Directories) -> Result<Store, Trouble> {
        let store = Store(directories.make_credentials()?);
        store.sweep();
        Ok(store)
    }

    /// Removes what a process that died while it stored a value left behind: a key under no name.
    fn sweep(&self) {
        let left = fs::read_dir(&self.0).into_iter().flatten().flatten().filter(|entry| {
            entry.file_name().to_string_lossy().starts_with(UNFINISHED)
                && entry
                    .metadata()
                    .and_then(|found| found.modified())
                    .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > STORING))
        });
        for entry in left {
            // What cannot be removed now is tried again at the next use.
            let _ = fs::remove_file(entry.path());
        }
    }

    /// Stores a value in place of whatever is there, whole or not at all. Says whether there was one.
    ///
    /// # Errors
    /// [`Code::BadOption`] for a value that no header can carry, [`Code::StateUnusable`].
    pub fn set(&self, name: &Name, value: &[u8]) -> Result<bool, Trouble> {
        let value = value.trim_ascii();
        if value.is_empty() || value.len() > MAX_VALUE || !value.iter().all(u8::is_ascii_graphic) {
            return Err(Trouble::new(
                Code::BadOption,
                format!(
                    "the value for {name} is empty, longer than {MAX_VALUE} bytes, or has a space or a character outside \
                         ASCII in it, which no key has; nothing was stored"
                ),
            ));
        }
        let path = self.0.join(name.as_str());
        let replaced = fs::symlink_metadata(&path).is_ok();
        let unfinished = self.0.join(format!("{UNFINISHED}{}", std::process::id()));
        let written = self.write(&unfinished, value).and_then(|()| fs::rename(&unfinished, &path));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written.map_err(|error| unusable(&path, &error))?;
        // The rename is on disk when the directory is.
        File::open(&self.0)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| unusable(&self.0, &error))?;
        Ok(replaced)
    }

    fn write(&self, path: &Path, value: &[u8]) -> io::Result<()> {
        // Of a process that died with this number.
        let _ = fs::remove_file(path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(value)?;
        file.sync_all()
    }

    /// Every name, in order.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub fn list(&self) -> Result<Vec<Stored>, Trouble> {
        let mut stored = Vec::new();
        for entry in fs::read_dir(&self.0).map_err(|error| unusable(&self.0, &error))? {
            let entry = entry.map_err(|error| unusable(&self.0, &error))?;
            let Some(name) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let found = entry.metadata().and_then(|found| found.modified());
            stored.push(Stored { name, stored: found.map_err(|error| unusable(&self.0, &error))? });
        }
        stored.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(stored)
    }

    /// Removes one. Says whether it was there.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub fn remove(&self, name: &Name) -> Result<bool, Trouble> {
        let path = self.0.join(name.as_str());
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(unusable(&path, &error)),
        }
    }

    /// Opens one, unread. None: there is none of that name.
    ///
    /// # Errors
    /// [`Code::StateUnusable`] when it is not a file that only its owner can read.
    pub fn find(&self, name: &Name) -> Result<Option<File>, Trouble> {
        let path = self.0.join(name.as_str());
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(&path, &error)),
        };
        let found = file.metadata().map_err(|error| unusable(&path, &error))?;
        let private = found.is_file()
            && found.uid() == rustix::process::geteuid().as_raw()
            && found.permissions().mode() & 0o077 == 0;
        if private {
            return Ok(Some(file));
        }
        Err(Trouble::new(
            Code::StateUnusable,
            format!(
                "{} is not a file that only you can read; store the key again: anet credential set {name}",
                path.display()
            ),
        ))
    }
}

fn unusable(path: &Path, error: &io::Error) -> Trouble {
    Trouble::new(
        Code::StateUnusable,
        format!("{} cannot be used ({error}); see its owner, its mode and the free space", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let place = tempfile::tempdir().unwrap();
        let store = Store(place.path().to_owned());
        (place, store)
    }

    /// CRED-9, MOD-1: a value is stored for its owner alone, replaced whole, and refused where it cannot be a key.
    #[test]
    fn values_are_stored_for_their_owner_alone() {
        let (place, store) = store();
        let name: Name = "anthropic".parse().unwrap();
        assert!(store.find(&name).unwrap().is_none());
        assert!(!store.set(&name, b"sk-one\n").unwrap());
        assert!(store.set(&name, b" sk-two \r\n").unwrap());
        let path = place.path().join("anthropic");
        assert_eq!(fs::read(&path).unwrap(), b"sk-two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for value in
            [&b""[..], b" \n", b"two words", b"two\nlines", "\u{e4}".as_bytes(), &[b'x'; MAX_VALUE + 1]]
        {
            assert_eq!(store.set(&name, value).unwrap_err().code, Code::BadOption);
        }
        assert_eq!(fs::read(&path).unwrap(), b"sk-two", "bad input never loses what was there");
        assert_eq!(store.list().unwrap().len(), 1);
        assert!(store.find(&name).unwrap().is_some());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(store.find(&name).unwrap_err().code, Code::StateUnusable);
        assert!(store.remove(&name).unwrap() && !store.remove(&name).unwrap());
    }

    /// CRED-9: a key that was being stored when its process died does not stay.
    #[test]
    fn what_a_dead_process_left_is_swept() {
        let (place, store) = store();
        let (old, new) = (place.path().join(".new-1"), place.path().join(".new-2"));
        fs::write(&old, "sk-old").unwrap();
        fs::write(&new, "sk-new").unwrap();
        File::options()
            .write(true)
            .open(&old)
            .unwrap()
            .set_modified(SystemTime::now() - 2 * STORING)
            .unwrap();
        store.sweep();
        assert!(!old.exists() && new.exists());
    }

    /// FS-5: a link in the store leads nowhere, and a name never leads out of it.
    #[test]
    fn names_stay_in_the_store() {
        let (place, store) = store();
        for text in ["", ".", "..", "../x", "a/b", "A", "sk-ANT", "a b", "-x", ".new-1", &"a".repeat(65)] {
            let trouble = text.parse::<Name>().unwrap_err();
            assert!(text.len() < 3 || !trouble.sentence.contains(text), "{trouble}");
        }
        std::os::unix::fs::symlink("/etc/passwd", place.path().join("link")).unwrap();
        assert_eq!(store.find(&"link".parse().unwrap()).unwrap_err().code, Code::StateUnusable);
    }
}
