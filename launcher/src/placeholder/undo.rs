//! Putting back what the record says.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, readlinkat, statat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::{CONTENTS, Entry, UNFINISHED, content, locate};
use crate::remove::{self, is_file};

/// How many names are tried for what stood in the place of a link.
const KEPT_NAMES: u32 = 16;

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
    let shared: BTreeSet<&Path> = others.iter().filter_map(Entry::made).collect();
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
