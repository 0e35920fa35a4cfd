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

mod lines;
mod undo;

use std::ffi::{CStr, CString, OsStr};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat, openat2, unlinkat};
use rustix::io::Errno;

use crate::remove;
use lines::encode;
pub use lines::read;
pub use undo::{Undone, sweep, undo};

/// The name of the record in a run's directory.
const RECORD: &str = "placeholders";
/// A placeholder's mode: the operator's own programs may look into it.
const MODE: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);
/// The same for one that is a file.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);
/// How a placeholder's name begins until its number is in the record: by this and by being as it was made it is known after
/// a crash in between.
const UNFINISHED: &str = ".anet-new-";

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

impl Entry {
    /// The placeholder that it speaks of, once it has its name.
    fn made(&self) -> Option<&Path> {
        match self {
            Entry::Made { path, .. } | Entry::File { path, .. } => Some(path),
            Entry::Intent(_) | Entry::Link { .. } => None,
        }
    }
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
            if entry.made().is_some_and(within) && !self.entries.contains(entry) {
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

#[cfg(test)]
mod tests;
