//! Placeholders: names in the operator's directories that must not come into being during a run (FS-4), and links that
//! must not change. What is done to the host for it is written down before it is done, in the run's own directory, and
//! undone at the run's end; after a crash by the next start.
//!
//! A placeholder is an empty directory, also where a file would usually be: git shows and commits no empty directories,
//! and no program takes one for its settings. Only where the operator's own programs would stumble over a directory, in his
//! home and in a repository's own files, it is a file, which says to them what a missing one would.
//!
//! The operator goes on working in the same directories. So nothing of his is ever removed: a placeholder goes only if it
//! is still the one that was made, and still as it was made; what stands in the place of a link is renamed. After a crash,
//! when nobody knows how long ago the run ended, links stay as they are.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, open, openat, openat2,
    readlinkat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::remove;

/// The name of the record in a run's directory.
const RECORD: &str = "placeholders";
/// The longest record that is read back, in bytes.
const MAX_RECORD: u64 = 4 * 1024 * 1024;
/// A placeholder's mode: the operator's own programs may look into it.
const MODE: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);
/// The same for one that is a file.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);
/// How a placeholder's name begins until its number is in the record: by this and by being as it was made it is known after
/// a crash in between.
const UNFINISHED: &str = ".anet-new-";
/// How many names are tried for what stood in the place of a link.
const KEPT_NAMES: u32 = 16;

/// What a placeholder that is a file says, by the end of its path: what programs do where there is none.
const CONTENTS: &[(&str, &str)] = &[
    // bash reads the first that exists of these two and .profile; tcsh takes .cshrc where there is no .tcshrc.
    (".bash_profile", "if [ -r ~/.bash_login ]; then . ~/.bash_login; fi\n"),
    (".bash_login", "if [ -r ~/.profile ]; then . ~/.profile; fi\n"),
    (".tcshrc", "if ( -r ~/.cshrc ) source ~/.cshrc\n"),
    // An empty file is no JSON.
    (".mcp.json", "{}\n"),
    (".claude/settings.json", "{}\n"),
    (".claude/settings.local.json", "{}\n"),
    // gitrepository-layout(5): the directory that holds what work trees share. The same one, as without this file.
    ("commondir", ".\n"),
];

fn content(path: &Path) -> &'static str {
    CONTENTS.iter().find(|(end, _)| path.ends_with(end)).map_or("", |(_, content)| content)
}

/// Something done to the host, or to be put right at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// About to be made, under a name that only placeholders have.
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
    /// The same for a file.
    File {
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
}

/// What a placeholder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
}

/// The record of one run.
#[derive(Debug)]
pub struct Record {
    file: std::fs::File,
    entries: Vec<Entry>,
    serial: u64,
}

impl Record {
    /// Starts a record in a run's directory.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn create(directory: &OwnedFd) -> io::Result<Record> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(directory, RECORD, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Record { file: file.into(), entries: Vec::new(), serial: 0 })
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
        self.make_as(path, Kind::Directory)
    }

    /// The same, but that the last name is one of a file.
    ///
    /// # Errors
    /// As for a directory.
    pub fn make_file(&mut self, path: &Path) -> io::Result<bool> {
        self.make_as(path, Kind::File)
    }

    fn make_as(&mut self, path: &Path, last: Kind) -> io::Result<bool> {
        let Some((mut parent, missing)) = deepest(path)? else { return Ok(false) };
        let mut here = path.ancestors().nth(missing.len()).unwrap_or(Path::new("/")).to_owned();
        let mut left = missing.len();
        for name in missing {
            here.push(OsStr::from_bytes(name.as_bytes()));
            left -= 1;
            let kind = if left == 0 { last } else { Kind::Directory };
            match self.make_one(&parent, &name, &here, kind) {
                Ok(made) => parent = made,
                // Somebody was faster: then it is theirs.
                Err(Errno::EXIST) => return Ok(true),
                Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Makes one placeholder: under a name of ours first, until the record says which one it is.
    fn make_one(&mut self, parent: &OwnedFd, name: &CStr, path: &Path, kind: Kind) -> Result<OwnedFd, Errno> {
        let written = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        self.serial += 1;
        let first = format!("{UNFINISHED}{}-{}", std::process::id(), self.serial);
        self.note(Entry::Intent(path.with_file_name(&first))).map_err(written)?;
        let first = CString::new(first).map_err(|_| Errno::INVAL)?;
        let made = new(parent, &first, kind, content(path))?;
        let stat = fstat(&made)?;
        let (path, device, inode) = (path.to_owned(), stat.st_dev, stat.st_ino);
        let entry = match kind {
            Kind::Directory => Entry::Made { path, device, inode },
            Kind::File => Entry::File { path, device, inode },
        };
        self.note(entry).map_err(written)?;
        if let Err(error) = remove::rename_new(parent, &first, parent, name) {
            // It is ours, and nobody has seen it.
            let flags = if kind == Kind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            let _ = unlinkat(parent, &first, flags);
            return Err(error);
        }
        Ok(made)
    }

    /// Takes part in a placeholder that another run made and still needs: whoever ends last removes it.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn share(&mut self, roots: &[PathBuf], others: &[Entry]) -> io::Result<()> {
        for entry in others {
            let within = |path: &Path| roots.iter().any(|root| path != root && path.starts_with(root));
            if made(entry).is_some_and(within) && !self.entries.contains(entry) {
                self.note(entry.clone())?;
            }
        }
        Ok(())
    }

    /// Notes links that have to be as they are at the end.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn watch(&mut self, links: &[(PathBuf, PathBuf)]) -> io::Result<()> {
        for (path, target) in links {
            self.note(Entry::Link { path: path.clone(), target: target.clone() })?;
        }
        Ok(())
    }

    /// What was noted.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// Makes a placeholder.
fn new(parent: &OwnedFd, name: &CStr, kind: Kind, content: &str) -> Result<OwnedFd, Errno> {
    match kind {
        Kind::Directory => {
            mkdirat(parent, name, MODE)?;
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(parent, name, flags, Mode::empty())
        }
        Kind::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(parent, name, flags, FILE_MODE)?;
            let mut rest = content.as_bytes();
            while !rest.is_empty() {
                rest = rest.get(rustix::io::write(&file, rest)?..).unwrap_or_default();
            }
            Ok(file)
        }
    }
}

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

/// What putting everything back came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// How many entries could not be undone.
    pub left: usize,
    /// What stood in the place of a link, and what it is called now.
    pub kept: Vec<(PathBuf, PathBuf)>,
}

/// Puts everything back that `entries`, those of `run`, say, but for what `others`, runs that still go on, share. Goes on
/// where something cannot be undone.
#[must_use]
pub fn undo(entries: &[Entry], others: &[Entry], run: &str) -> Undone {
    let mut undone = Undone { left: sweep(entries, others), kept: Vec::new() };
    for entry in entries.iter().rev() {
        if let Entry::Link { path, target } = entry {
            match put_back(path, target, run) {
                Ok(kept) => undone.kept.extend(kept.map(|kept| (path.clone(), kept))),
                Err(_) => undone.left += 1,
            }
        }
    }
    undone
}

/// Removes the placeholders of `entries` that `others`, runs that still go on, do not share. That is all that may be done
/// for a run that ended nobody knows when, and for a record that nobody vouches for: what goes is empty, or says what only
/// placeholders say. Returns how many could not be removed.
#[must_use]
pub fn sweep(entries: &[Entry], others: &[Entry]) -> usize {
    let shared: BTreeSet<&Path> = others.iter().filter_map(made).collect();
    let mut left = 0;
    for entry in entries.iter().rev() {
        let done = match entry {
            Entry::Intent(path) => remove_unfinished(path),
            Entry::Made { path, .. } | Entry::File { path, .. } if shared.contains(path.as_path()) => Ok(()),
            Entry::Made { path, device, inode } => remove_directory(path, (*device, *inode)),
            Entry::File { path, device, inode } => remove_file(path, (*device, *inode)),
            Entry::Link { .. } => Ok(()),
        };
        left += usize::from(done.is_err());
    }
    left
}

fn made(entry: &Entry) -> Option<&Path> {
    match entry {
        Entry::Made { path, .. } | Entry::File { path, .. } => Some(path),
        Entry::Intent(_) | Entry::Link { .. } => None,
    }
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn remove_directory(path: &Path, which: (u64, u64)) -> io::Result<()> {
    let Some((parent, name)) = locate(path)? else { return Ok(()) };
    match statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if (stat.st_dev, stat.st_ino) == which => remove_empty(&parent, &name),
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn remove_empty(parent: &OwnedFd, name: &CStr) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        // Not empty any more: somebody outside uses it, or it lies on the way to what the run was free to make.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn remove_file(path: &Path, which: (u64, u64)) -> io::Result<()> {
    let Some((parent, name)) = locate(path)? else { return Ok(()) };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(&parent, &name, flags, Mode::empty()) else { return Ok(()) };
    let stat = fstat(&file)?;
    if (stat.st_dev, stat.st_ino) != which || !is_file(&stat) || stat.st_nlink != 1 {
        return Ok(());
    }
    // One byte more than it had tells whether something was written to it.
    let made = content(path).as_bytes();
    let mut found = Vec::new();
    std::fs::File::from(file).take(made.len() as u64 + 1).read_to_end(&mut found)?;
    match found == made {
        true => Ok(unlinkat(&parent, &name, AtFlags::empty())?),
        false => Ok(()),
    }
}

/// What a crash left before it had its name: it has nothing in it, or what we wrote, and a name of ours.
fn remove_unfinished(path: &Path) -> io::Result<()> {
    if !path.file_name().is_some_and(|name| name.as_bytes().starts_with(UNFINISHED.as_bytes())) {
        return Ok(());
    }
    let Some((parent, name)) = locate(path)? else { return Ok(()) };
    match statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if is_file(&stat) => {
            let longest = CONTENTS.iter().map(|(_, content)| content.len()).max().unwrap_or(0);
            match usize::try_from(stat.st_size).is_ok_and(|size| size <= longest) && stat.st_nlink == 1 {
                true => Ok(unlinkat(&parent, &name, AtFlags::empty())?),
                false => Ok(()),
            }
        }
        Ok(_) => remove_empty(&parent, &name),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Puts a link back, and says what is called what now that stood in its place.
fn put_back(path: &Path, target: &Path, run: &str) -> io::Result<Option<PathBuf>> {
    let Some((parent, name)) = locate(path)? else { return Ok(None) };
    if readlinkat(&parent, &name, Vec::new())
        .is_ok_and(|found| found.as_bytes() == target.as_os_str().as_bytes())
    {
        return Ok(None);
    }
    let mut kept = None;
    for number in 0..KEPT_NAMES {
        match symlinkat(target, &parent, &name) {
            Ok(()) => return Ok(kept),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let mut aside = name.as_bytes().to_vec();
        aside.extend_from_slice(format!(".anet-kept-{run}").as_bytes());
        if number > 0 {
            aside.extend_from_slice(format!("-{number}").as_bytes());
        }
        let aside = CString::new(aside).map_err(io::Error::other)?;
        match remove::rename_new(&parent, &name, &parent, &aside) {
            Ok(()) => kept = Some(path.with_file_name(OsStr::from_bytes(aside.as_bytes()))),
            Err(Errno::EXIST | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
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
        assert_eq!(sweep(&read, &[]), 0);
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
        assert_eq!(undo(place.record.entries(), &[], "RUN").left, 0);
        assert!(place.root.join(".claude/notes").exists() && place.root.join(".idea").exists());
        assert!(!place.root.join(".claude/commands").exists() && !place.root.join(".vscode").exists());
    }

    /// FS-4: two runs in one directory: the placeholder stays until the last of them ends.
    #[test]
    fn shared_placeholders_stay_until_the_last_run_ends() {
        let (mut first, mut second) = (place(), place());
        first.record.make(&first.root.join(".bashrc")).unwrap();
        second.record.share(std::slice::from_ref(&first.root), first.record.entries()).unwrap();
        assert_eq!(undo(first.record.entries(), second.record.entries(), "RUN").left, 0);
        assert!(first.root.join(".bashrc").is_dir());
        assert_eq!(undo(second.record.entries(), &[], "RUN").left, 0);
        assert!(!first.root.join(".bashrc").exists());
    }

    /// FS-4, FS-5: a link is put back, and what stands in its place is the operator's: it is kept, with all in it, and
    /// named; and no link leads the removal elsewhere.
    #[test]
    fn links_are_put_back_and_nothing_of_the_operators_is_removed() {
        let mut place = place();
        let (link, outside) = (place.root.join(".codex"), place.root.join("../outside"));
        place.record.watch(&[(link.clone(), "dot".into())]).unwrap();
        place.record.make(&place.root.join("a/b")).unwrap();
        fs::create_dir_all(link.join("sessions")).unwrap();
        fs::write(link.join("sessions/log"), "x").unwrap();
        fs::write(place.root.join(".codex.anet-kept-RUN"), "taken").unwrap();
        fs::create_dir_all(outside.join("b")).unwrap();
        fs::remove_dir(place.root.join("a/b")).unwrap();
        fs::remove_dir(place.root.join("a")).unwrap();
        std::os::unix::fs::symlink(&outside, place.root.join("a")).unwrap();
        let undone = undo(place.record.entries(), &[], "RUN");
        let kept = place.root.join(".codex.anet-kept-RUN-1");
        assert_eq!(undone, Undone { left: 0, kept: vec![(link.clone(), kept.clone())] });
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("dot"));
        assert_eq!(fs::read_to_string(kept.join("sessions/log")).unwrap(), "x");
        assert_eq!(fs::read_to_string(place.root.join(".codex.anet-kept-RUN")).unwrap(), "taken");
        assert!(outside.join("b").is_dir());
        // A link that is as it was, or only gone, is nothing to tell of.
        fs::remove_file(&link).unwrap();
        assert_eq!(undo(place.record.entries(), &[], "RUN"), Undone::default());
        assert_eq!(undo(place.record.entries(), &[], "RUN"), Undone::default());
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("dot"));
    }

    /// FS-4: after a crash what stands in a link's place is left alone: days may have passed.
    #[test]
    fn links_are_not_touched_after_a_crash() {
        let mut place = place();
        let link = place.root.join(".codex");
        place.record.watch(&[(link.clone(), "dot".into())]).unwrap();
        fs::create_dir(&link).unwrap();
        assert_eq!(sweep(place.record.entries(), &[]), 0);
        assert!(link.is_dir());
    }

    /// FS-4: a placeholder that is a file goes as long as it says what it said, and stays with what was written to it.
    #[test]
    fn files_are_removed_only_as_they_were_made() {
        let mut place = place();
        let names = [".gitconfig", ".git/commondir", ".bash_profile", ".npmrc", ".zshrc", ".profile"];
        for name in names {
            assert!(place.record.make_file(&place.root.join(name)).unwrap());
        }
        let at = |name: &str| place.root.join(name);
        assert_eq!(fs::read_to_string(at(".git/commondir")).unwrap(), ".\n");
        assert_eq!(fs::read_to_string(at(".gitconfig")).unwrap(), "");
        assert!(fs::read_to_string(at(".bash_profile")).unwrap().contains(".bash_login"));
        fs::write(at(".npmrc"), "written").unwrap();
        fs::hard_link(at(".zshrc"), at("other")).unwrap();
        fs::rename(at(".profile"), at("moved")).unwrap();
        fs::write(at(".profile"), "").unwrap();
        assert_eq!(sweep(place.record.entries(), &[]), 0);
        let there: Vec<bool> = names.iter().map(|name| at(name).exists()).collect();
        assert_eq!(there, [false, false, false, true, true, true]);
        assert!(!at(".git").exists());
    }

    /// FS-4: a crash between a placeholder and the line that says which one it is leaves nothing, and takes nothing.
    #[test]
    fn unfinished_placeholders_are_known_by_name() {
        let place = place();
        let at = |name: &str| place.root.join(name);
        fs::create_dir(at(".anet-new-1-1")).unwrap();
        fs::write(at(".anet-new-1-2"), "").unwrap();
        fs::create_dir_all(at(".anet-new-1-3/full")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        let names = [".anet-new-1-1", ".anet-new-1-2", ".anet-new-1-3", "empty"];
        let entries = names.map(|name| Entry::Intent(at(name)));
        assert_eq!(sweep(&entries, &[]), 0);
        assert_eq!(names.map(|name| at(name).exists()), [false, false, true, true]);
    }

    /// FS-4, FS-5: a record that is a link, a second name of another file, or a FIFO, is none.
    #[test]
    fn records_that_are_not_ours_are_not_read() {
        let place = place();
        let run = place.root.join("../run");
        let bytes = encode(&Entry::Intent("/x/.anet-new-1".into()));
        let forged = |make: &dyn Fn(&Path)| {
            let path = run.join(RECORD);
            fs::remove_file(&path).unwrap();
            make(&path);
            read(&open(&run, OFlags::DIRECTORY, Mode::empty()).unwrap()).unwrap().len()
        };
        let elsewhere = place.root.join("elsewhere");
        fs::write(&elsewhere, &bytes).unwrap();
        fs::set_permissions(&elsewhere, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(forged(&|path| std::os::unix::fs::symlink(&elsewhere, path).unwrap()), 0);
        assert_eq!(forged(&|path| fs::hard_link(&elsewhere, path).unwrap()), 0);
        assert_eq!(forged(&|path| rustix::fs::mkfifoat(CWD, path, Mode::RWXU).unwrap()), 0);
        assert_eq!(
            forged(&|path| fs::write(path, &bytes).unwrap()),
            0,
            "others may read it: not as we make it"
        );
        let ours = |path: &Path| assert!(fs::copy(&elsewhere, path).is_ok());
        assert_eq!(forged(&ours), 1);
    }

    proptest! {
        /// A record that a crash cut off gives the entries before the cut, and bytes of any kind no panic.
        #[test]
        fn records_are_read_as_far_as_they_go(cut in 0usize..80, noise in prop::collection::vec(any::<u8>(), 0..40)) {
            let entries = [
                Entry::Intent("/a/\n".into()),
                Entry::Made { path: "/a/\u{fffd}".into(), device: 7, inode: u64::MAX },
                Entry::Link { path: "/l".into(), target: "t/u".into() },
                Entry::File { path: "/b".into(), device: 0, inode: 1 },
            ];
            let bytes: Vec<u8> = entries.iter().flat_map(encode).collect();
            prop_assert_eq!(decode(&bytes), entries.clone());
            let read = decode(bytes.get(..cut).unwrap_or(&bytes));
            prop_assert!(entries.starts_with(&read));
            decode(&noise);
        }
    }
}
