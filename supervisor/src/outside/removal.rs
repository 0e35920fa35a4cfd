//! Removing what an agent left in a directory.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, chmod, openat};
use rustix::io::Errno;

/// How deep closed directories are opened, each of which keeps a descriptor open.
const DEEPEST: u32 = 200;

/// Removes a directory and all below it, and follows no link. Directories that are closed to their owner are no hindrance:
/// package managers make such (a cache of Go's modules is read-only).
///
/// # Errors
/// When something cannot be removed; what came before it is gone.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let top = enter(CWD, path)?;
            open_up(&top, 0)?;
            std::fs::remove_dir_all(path)
        }
        other => other,
    }
}

/// Gives its owner every right to each directory below.
fn open_up(directory: &OwnedFd, depth: u32) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(io::Error::other("its directories are nested too deeply"));
    }
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match entry.file_type() {
            FileType::Directory => open_up(&enter(directory.as_fd(), name)?, depth + 1)?,
            // Where the file system does not say, one that is none says so itself.
            FileType::Unknown => match enter(directory.as_fd(), name) {
                Ok(inner) => open_up(&inner, depth + 1)?,
                Err(Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(errno.into()),
            },
            FileType::RegularFile
            | FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice => {}
        }
    }
    Ok(())
}

trait Name: rustix::path::Arg + Copy {}
impl Name for &CStr {}
impl Name for &Path {}

/// Opens a directory itself, whatever its mode was, and not one that a link leads to.
fn enter(parent: BorrowedFd<'_>, name: impl Name) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let closed = openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
    // A descriptor of a path has no fchmod; its link in /proc leads to exactly that directory.
    chmod(format!("/proc/self/fd/{}", closed.as_raw_fd()), Mode::RWXU)?;
    openat(closed.as_fd(), c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// FS-5: what links lead to stays as it was, closed directories go. (Root needs no rights, so there it proves less.)
    #[test]
    fn closed_directories_go_and_links_lead_nowhere() {
        let place = tempfile::tempdir().unwrap();
        let (tree, outside) = (place.path().join("tree"), place.path().join("outside"));
        fs::create_dir_all(tree.join("a/closed/deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        fs::write(tree.join("a/closed/deep/file"), "x").unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        for (path, mode) in
            [(outside.clone(), 0o500), (tree.join("a/closed/deep"), 0o500), (tree.join("a/closed"), 0o0)]
        {
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        }
        open_up(&enter(CWD, tree.as_path()).unwrap(), 0).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&tree.join("a/closed")), mode(&tree.join("a/closed/deep"))), (0o700, 0o700));
        assert_eq!(mode(&outside), 0o500);
        fs::set_permissions(tree.join("a/closed"), PermissionsExt::from_mode(0o0)).unwrap();
        remove(&tree).unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());
        assert_eq!(remove(&tree).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::set_permissions(&outside, PermissionsExt::from_mode(0o700)).unwrap();
    }
}
