//! Placeholders: names in the operator's directories that must not come into being during a run (FS-4), and links that
//! must not change. What is done to the host for it is written down before it is done, in the run's own directory, and
//! undone at the run's end; after a crash by the next start.
//!
//! A placeholder is an empty directory, also where a file would usually be: git shows and commits no empty directories,
//! and no program takes one for its settings. It is removed only if it is still that directory, and still empty.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, mkdirat, open, openat, openat2, readlinkat, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use crate::remove;

/// The name of the record in a run's directory.
const RECORD: &str = "placeholders";
/// The longest record that is read back, in bytes.
const MAX_RECORD: u64 = 4 * 1024 * 1024;
/// A placeholder's mode: the operator's own programs may look into it.
const MODE: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

/// Something done to the host, or to be put right at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// About to be made.
    Intent(PathBuf),
    /// Made, and which directory it is.
    Made {
        /// Where.
        path: PathBuf,
        /// Its file system.
        device: u64,
        /// Its number there.
        inode: u64,
    },
    /// A link, and what it says.
    Link {
        /// Where.
        path: PathBuf,
        /// What it says.
        target: PathBuf,
    },
    /// Not there.
    Absent(PathBuf),
}

/// The record of one run.
#[derive(Debug)]
pub struct Record {
    file: std::fs::File,
    entries: Vec<Entry>,
}

impl Record {
    /// Starts a record in a run's directory.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn create(directory: &OwnedFd) -> io::Result<Record> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(directory, RECORD, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Record { file: file.into(), entries: Vec::new() })
    }

    fn note(&mut self, entry: Entry) -> io::Result<()> {
        self.file.write_all(&encode(&entry))?;
        self.entries.push(entry);
        Ok(())
    }

    /// Makes the directories of `path` that are missing, below one that exists. Says no where we have not the right to, as
    /// then the run, which has the same user, has not either.
    ///
    /// # Errors
    /// When the record cannot be written, or the disk is full.
    pub fn make(&mut self, path: &Path) -> io::Result<bool> {
        let Some((mut parent, missing)) = deepest(path)? else { return Ok(false) };
        let mut here = path.ancestors().nth(missing.len()).unwrap_or(Path::new("/")).to_owned();
        for name in missing {
            here.push(OsStr::from_bytes(name.as_bytes()));
            self.note(Entry::Intent(here.clone()))?;
            match mkdirat(&parent, &name, MODE) {
                Ok(()) => {}
                // Somebody was faster: then it is theirs.
                Err(Errno::EXIST) => return Ok(true),
                Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            parent = remove::open_directory(parent.as_fd(), &name)?;
            let stat = rustix::fs::fstat(&parent)?;
            self.note(Entry::Made { path: here.clone(), device: stat.st_dev, inode: stat.st_ino })?;
        }
        Ok(true)
    }

    /// Takes part in a placeholder that another run made and still needs: whoever ends last removes it.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn share(&mut self, roots: &[PathBuf], others: &[Entry]) -> io::Result<()> {
        for entry in others {
            let within = |path: &Path| roots.iter().any(|root| path != root && path.starts_with(root));
            if matches!(entry, Entry::Made { path, .. } if within(path)) && !self.entries.contains(entry) {
                self.note(entry.clone())?;
            }
        }
        Ok(())
    }

    /// Notes links that have to be as they are at the end, and names that must not be there then.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn watch(&mut self, links: &[(PathBuf, PathBuf)], absent: &[PathBuf]) -> io::Result<()> {
        for (path, target) in links {
            self.note(Entry::Link { path: path.clone(), target: target.clone() })?;
        }
        for path in absent {
            self.note(Entry::Absent(path.clone()))?;
        }
        Ok(())
    }

    /// What was noted.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// Reads the record in a run's directory; there may be none.
///
/// # Errors
/// When it cannot be read.
pub fn read(directory: &OwnedFd) -> io::Result<Vec<Entry>> {
    let file = match openat(directory, RECORD, OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(std::fs::File::from(file), MAX_RECORD), &mut bytes)?;
    Ok(decode(&bytes))
}

/// Puts everything back that `entries` say, but for what `others`, runs that still go on, share. Goes on where something
/// cannot be undone, and returns how many could not.
#[must_use]
pub fn undo(entries: &[Entry], others: &[Entry]) -> usize {
    let made: BTreeSet<&Path> = entries.iter().filter_map(made).collect();
    let shared: BTreeSet<&Path> = others.iter().filter_map(self::made).collect();
    let mut left = 0;
    for entry in entries.iter().rev() {
        let done = match entry {
            Entry::Intent(path) if made.contains(path.as_path()) => Ok(()),
            Entry::Intent(path) => remove_directory(path, None),
            Entry::Made { path, .. } if shared.contains(path.as_path()) => Ok(()),
            Entry::Made { path, device, inode } => remove_directory(path, Some((*device, *inode))),
            Entry::Link { path, target } => put_back(path, target),
            Entry::Absent(path) => take_away(path),
        };
        left += usize::from(done.is_err());
    }
    left
}

fn made(entry: &Entry) -> Option<&Path> {
    match entry {
        Entry::Made { path, .. } => Some(path),
        Entry::Intent(_) | Entry::Link { .. } | Entry::Absent(_) => None,
    }
}

fn remove_directory(path: &Path, which: Option<(u64, u64)>) -> io::Result<()> {
    let Some((parent, name)) = locate(path)? else { return Ok(()) };
    if let Some(which) = which {
        match statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == which => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    match unlinkat(&parent, &name, AtFlags::REMOVEDIR) {
        // Not empty any more: somebody outside uses it, or it lies on the way to what the run was free to make.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn put_back(path: &Path, target: &Path) -> io::Result<()> {
    let Some((parent, name)) = locate(path)? else { return Ok(()) };
    if readlinkat(&parent, &name, Vec::new())
        .is_ok_and(|found| found.as_bytes() == target.as_os_str().as_bytes())
    {
        return Ok(());
    }
    remove::remove_whole(&parent, &name)?;
    Ok(symlinkat(target, &parent, &name)?)
}

fn take_away(path: &Path) -> io::Result<()> {
    match locate(path)? {
        Some((parent, name)) => remove::remove_whole(&parent, &name),
        None => Ok(()),
    }
}

/// The directory that `path` is in, reached without a link on the way, and its name there.
fn locate(path: &Path) -> io::Result<Option<(OwnedFd, CString)>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let name = CString::new(name.as_bytes()).map_err(io::Error::other)?;
    match without_links(parent) {
        Ok(parent) => Ok(Some((parent, name))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The deepest directory of `path` that exists, and the names below it that do not.
fn deepest(path: &Path) -> io::Result<Option<(OwnedFd, Vec<CString>)>> {
    let mut missing = Vec::new();
    for directory in path.ancestors() {
        match without_links(directory) {
            Ok(found) => {
                missing.reverse();
                return Ok(Some((found, missing)));
            }
            Err(Errno::NOENT) => {
                let name = directory.file_name().map(OsStr::as_bytes).unwrap_or_default();
                missing.push(CString::new(name).map_err(io::Error::other)?);
            }
            Err(Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn without_links(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // A container's filter may not know the call. A name that was resolved a moment ago is as good as it gets then.
        Err(Errno::NOSYS | Errno::PERM) => open(directory, flags | OFlags::NOFOLLOW, Mode::empty()),
        other => other,
    }
}

/// A letter, then each field with a null behind it.
fn encode(entry: &Entry) -> Vec<u8> {
    let (kind, fields): (u8, Vec<Vec<u8>>) = match entry {
        Entry::Intent(path) => (b'I', vec![bytes(path)]),
        Entry::Made { path, device, inode } => {
            (b'M', vec![bytes(path), device.to_string().into_bytes(), inode.to_string().into_bytes()])
        }
        Entry::Link { path, target } => (b'L', vec![bytes(path), bytes(target)]),
        Entry::Absent(path) => (b'A', vec![bytes(path)]),
    };
    let mut line = vec![kind];
    for field in fields {
        line.extend_from_slice(&field);
        line.push(0);
    }
    line
}

/// Reads entries until one is cut off, as by a crash while it was written.
fn decode(mut bytes: &[u8]) -> Vec<Entry> {
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
            b'A' => field().map(path).map(Entry::Absent),
            b'L' => {
                field().map(path).zip(field().map(path)).map(|(path, target)| Entry::Link { path, target })
            }
            b'M' => (|| {
                let path = path(field()?);
                Some(Entry::Made { path, device: number(field()?)?, inode: number(field()?)? })
            })(),
            _ => None,
        };
        let Some(entry) = entry else { break };
        entries.push(entry);
        bytes = rest;
    }
    // Only absolute paths are ever written.
    entries.retain(|entry| match entry {
        Entry::Intent(path) | Entry::Absent(path) | Entry::Made { path, .. } | Entry::Link { path, .. } => {
            path.is_absolute()
        }
    });
    entries
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    struct Place {
        _keep: tempfile::TempDir,
        root: PathBuf,
        record: Record,
    }

    fn place() -> Place {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().canonicalize().unwrap();
        fs::create_dir(root.join("run")).unwrap();
        fs::create_dir(root.join("project")).unwrap();
        let directory = open(root.join("run"), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let record = Record::create(&directory).unwrap();
        Place { _keep: keep, root: root.join("project"), record }
    }

    /// FS-4: nothing is left behind on the host, whether the run ended or the launcher was killed.
    #[test]
    fn placeholders_are_removed_from_the_record_alone() {
        let mut place = place();
        assert!(place.record.make(&place.root.join(".claude/commands")).unwrap());
        assert!(place.record.make(&place.root.join(".claude/agents")).unwrap());
        assert!(place.root.join(".claude/agents").is_dir());
        let run = open(place.root.join("../run"), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let read = read(&run).unwrap();
        assert_eq!(read, place.record.entries());
        assert_eq!(undo(&read, &[]), 0);
        assert_eq!(fs::read_dir(&place.root).unwrap().count(), 0);
    }

    /// FS-4: what the run or the operator made meanwhile stays, and so does another directory of the same name.
    #[test]
    fn only_empty_placeholders_are_removed() {
        let mut place = place();
        for name in [".claude/commands", ".vscode", ".idea"] {
            place.record.make(&place.root.join(name)).unwrap();
        }
        fs::write(place.root.join(".claude/notes"), "").unwrap();
        fs::create_dir(place.root.join("new")).unwrap();
        fs::remove_dir(place.root.join(".idea")).unwrap();
        fs::rename(place.root.join("new"), place.root.join(".idea")).unwrap();
        assert_eq!(undo(place.record.entries(), &[]), 0);
        assert!(place.root.join(".claude/notes").exists() && place.root.join(".idea").exists());
        assert!(!place.root.join(".claude/commands").exists() && !place.root.join(".vscode").exists());
    }

    /// FS-4: two runs in one directory: the placeholder stays until the last of them ends.
    #[test]
    fn shared_placeholders_stay_until_the_last_run_ends() {
        let (mut first, mut second) = (place(), place());
        first.record.make(&first.root.join(".bashrc")).unwrap();
        second.record.share(std::slice::from_ref(&first.root), first.record.entries()).unwrap();
        assert_eq!(undo(first.record.entries(), second.record.entries()), 0);
        assert!(first.root.join(".bashrc").is_dir());
        assert_eq!(undo(second.record.entries(), &[]), 0);
        assert!(!first.root.join(".bashrc").exists());
    }

    /// FS-4, FS-5: a link is put back, whatever stands in its place; and no link leads the removal elsewhere.
    #[test]
    fn links_are_put_back_and_not_followed() {
        let mut place = place();
        let (link, outside) = (place.root.join(".bashrc"), place.root.join("../outside"));
        place.record.watch(&[(link.clone(), "dotfiles/rc".into())], &[place.root.join("commondir")]).unwrap();
        place.record.make(&place.root.join("a/b")).unwrap();
        fs::create_dir_all(link.join("deep/er")).unwrap();
        fs::write(place.root.join("commondir"), "/evil").unwrap();
        fs::create_dir_all(outside.join("b")).unwrap();
        fs::remove_dir_all(place.root.join("a")).unwrap();
        std::os::unix::fs::symlink(&outside, place.root.join("a")).unwrap();
        assert_eq!(undo(place.record.entries(), &[]), 0);
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("dotfiles/rc"));
        assert!(!place.root.join("commondir").exists());
        assert!(outside.join("b").is_dir());
    }

    proptest! {
        /// A record that a crash cut off gives the entries before the cut, and bytes of any kind no panic.
        #[test]
        fn records_are_read_as_far_as_they_go(cut in 0usize..80, noise in prop::collection::vec(any::<u8>(), 0..40)) {
            let entries = [
                Entry::Intent("/a/\n".into()),
                Entry::Made { path: "/a/\u{fffd}".into(), device: 7, inode: u64::MAX },
                Entry::Link { path: "/l".into(), target: "t/u".into() },
                Entry::Absent("/b".into()),
            ];
            let bytes: Vec<u8> = entries.iter().flat_map(encode).collect();
            prop_assert_eq!(decode(&bytes), entries.clone());
            let read = decode(bytes.get(..cut).unwrap_or(&bytes));
            prop_assert!(entries.starts_with(&read));
            decode(&noise);
        }
    }
}
