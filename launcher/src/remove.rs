//! Removing what a run left: any tree, of any depth, with names of any bytes, without leaving it (FS-5).
//!
//! A tree is not descended into but flattened: a directory that is not empty is moved up to the top and emptied there. So
//! a few descriptors are enough for any depth, no path is ever longer than one name, and no `..` is ever followed, which
//! somebody could have moved. Links are removed, never followed; everything is done relative to a directory's descriptor.
//!
//! A directory may refuse to be moved: one in a btrfs subvolume, which a run can make, cannot leave that. It is moved up as far
//! as it can be, and emptied where it is if it cannot be moved at all.
//!
//! It is done in steps, so that whoever else waits for the launcher does not wait long: a step goes on reading where the
//! last one stopped. (What was removed still takes its time to be read over, on file systems whose directories never shrink.)

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags, Stat, chmod, fchmod, fstat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

/// Room for the names of one read of a directory, in bytes.
const BUFFER: usize = 32 * 1024;
/// Passes over one directory without anything gone before it counts as one that cannot be emptied.
const PATIENCE: u32 = 3;
/// How deep directories are emptied that cannot be moved.
const MAX_INSIDE: usize = 16;

/// A directory on its way to being empty.
#[derive(Debug)]
pub struct Removal {
    top: OwnedFd,
    /// A name at the top that stays.
    keep: &'static CStr,
    /// The last name that a directory was given when it was moved up.
    serial: u64,
    /// Passes without progress.
    idle: u32,
    pass: Option<Pass>,
}

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The directory is empty.
    Done,
    /// There is more.
    More,
}

/// One reading of the top.
#[derive(Debug)]
struct Pass {
    top: Reading,
    /// The directory at the top that is being emptied, by its name there; and below it one that could not be moved up, and
    /// so on.
    inside: Vec<(CString, Reading)>,
    /// It had something in it.
    found: bool,
    /// Something of it is gone.
    progress: bool,
}

/// The names of a directory, read a little at a time.
#[derive(Debug)]
pub struct Reading {
    directory: OwnedFd,
    names: VecDeque<(CString, FileType)>,
    ended: bool,
}

impl Reading {
    /// Reads `directory`, which nobody else may read from, from where it stands.
    #[must_use]
    pub fn new(directory: OwnedFd) -> Reading {
        Reading { directory, names: VecDeque::new(), ended: false }
    }

    /// The directory itself.
    #[must_use]
    pub fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// The next name, and what the file system says that it is.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn next_name(&mut self) -> io::Result<Option<(CString, FileType)>> {
        while self.names.is_empty() && !self.ended {
            self.read()?;
        }
        Ok(self.names.pop_front())
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); BUFFER];
        let mut entries = RawDir::new(&self.directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if !is_dots(entry.file_name()) {
                self.names.push_back((entry.file_name().to_owned(), entry.file_type()));
            }
            if entries.is_buffer_empty() {
                return Ok(());
            }
        }
        self.ended = true;
        Ok(())
    }
}

impl Removal {
    /// Will empty `top` but for the name `keep`.
    #[must_use]
    pub fn new(top: OwnedFd, keep: &'static CStr) -> Removal {
        Removal { top, keep, serial: 0, idle: 0, pass: None }
    }

    /// Removes up to `budget` names. Nobody else may change the tree meanwhile.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn step(&mut self, mut budget: usize) -> io::Result<Progress> {
        self.step_within(&mut budget)
    }

    /// The same, and takes from the budget what it used of it.
    ///
    /// # Errors
    /// As above.
    pub fn step_within(&mut self, budget: &mut usize) -> io::Result<Progress> {
        while *budget > 0 {
            *budget -= 1;
            let pass = match &mut self.pass {
                Some(pass) => pass,
                none => none.insert(Pass {
                    top: Reading::new(reopen(&self.top)?),
                    inside: Vec::new(),
                    found: false,
                    progress: false,
                }),
            };
            if let Some((name, inside)) = pass.inside.last_mut() {
                match inside.next_name()? {
                    Some((inner, kind)) => {
                        if remove_one(&inside.directory, &inner, kind)?
                            || pass.move_up(&self.top, &inner, &mut self.serial)?
                        {
                            pass.progress = true;
                        }
                    }
                    None => {
                        let name = std::mem::take(name);
                        pass.inside.pop();
                        let above = pass.inside.last().map_or(&self.top, |(_, above)| &above.directory);
                        // What was added to a directory while it is read may be missed by the reading: the next pass
                        // finds it.
                        pass.progress |= remove_one(above, &name, FileType::Directory)?;
                    }
                }
                continue;
            }
            match pass.top.next_name()? {
                Some((name, _)) if *name == *self.keep => {}
                Some((name, kind)) => {
                    pass.found = true;
                    if remove_one(&self.top, &name, kind)? {
                        pass.progress = true;
                    } else {
                        let directory = enter(&self.top, &name)?;
                        pass.inside.push((name, Reading::new(directory)));
                    }
                }
                None => {
                    let (found, progress) = (pass.found, pass.progress);
                    self.pass = None;
                    if !found {
                        return Ok(Progress::Done);
                    }
                    // A pass may do nothing but move directories up; that is progress too, and bounded by their number.
                    self.idle = if progress { 0 } else { self.idle + 1 };
                    if self.idle >= PATIENCE {
                        return Err(Errno::NOTEMPTY.into());
                    }
                }
            }
        }
        Ok(Progress::More)
    }
}

impl Pass {
    /// Gives a directory in the innermost one, which is not empty, a name at the top. Where that cannot be, it gets one in a
    /// directory as far up as can be, and where there is none, it is emptied where it is. Says no in that case.
    fn move_up(&mut self, top: &OwnedFd, name: &CStr, serial: &mut u64) -> io::Result<bool> {
        let Some(((_, from), above)) = self.inside.split_last() else { return Ok(false) };
        // To move a directory its own `..` is written, which wants the right to write it.
        let directory = enter(&from.directory, name)?;
        let mut refused = None;
        for to in std::iter::once(top).chain(above.iter().map(|(_, above)| &above.directory)) {
            match rename_to(&from.directory, name, to, serial) {
                Ok(()) => return Ok(true),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if self.inside.len() >= MAX_INSIDE => Err(error.into()),
            Some(_) | None => {
                self.inside.push((name.to_owned(), Reading::new(directory)));
                Ok(false)
            }
        }
    }
}

fn rename_to(from: &OwnedFd, name: &CStr, to: &OwnedFd, serial: &mut u64) -> Result<(), Errno> {
    loop {
        *serial += 1;
        let new = CString::new(format!("anet-removing-{serial}")).map_err(|_| Errno::INVAL)?;
        match rename_new(from, name, to, &new) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
}

/// Removes `name` in `parent`, whatever it is, at once: for tests alone, since nothing of the operator's goes this way.
///
/// # Errors
/// When something cannot be removed.
#[cfg(test)]
pub(crate) fn remove_whole(parent: &OwnedFd, name: &CStr) -> io::Result<()> {
    let mut removal = Removal::new(enter(parent, name)?, c".");
    while removal.step(usize::MAX)? == Progress::More {}
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Removes what is no directory, or an empty one. Says no for one that is not empty.
fn remove_one(parent: &OwnedFd, name: &CStr, kind: FileType) -> io::Result<bool> {
    if kind != FileType::Directory {
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            // The file system did not say what it is.
            Err(Errno::ISDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory with every right for its owner, whatever its mode was.
///
/// # Errors
/// When it is none, or cannot be opened.
pub fn enter(parent: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    const ALL: Mode = Mode::RWXU;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(parent, name, flags | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let closed = openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
            // A descriptor of a path has no fchmod; its link in /proc leads to exactly that directory.
            chmod(format!("/proc/self/fd/{}", closed.as_raw_fd()), ALL)?;
            openat(parent, name, flags | OFlags::RDONLY, Mode::empty())?
        }
        other => other?,
    };
    if !Mode::from_raw_mode(fstat(&directory)?.st_mode).contains(ALL) {
        fchmod(&directory, ALL)?;
    }
    Ok(directory)
}

/// The same directory, read from its beginning.
fn reopen(directory: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(openat(directory, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Gives what is called `name` in `from` a name in `to` that nothing has there.
///
/// # Errors
/// EXIST when something has it, or what the system says.
pub fn rename_new(from: &OwnedFd, name: &CStr, to: &OwnedFd, new: &CStr) -> Result<(), Errno> {
    match renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // A file system that knows no flags: between the look and the move is no time that somebody could wait for.
        Err(Errno::INVAL | Errno::NOSYS) => match statat(to, new, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => renameat(from, name, to, new),
            Err(error) => Err(error),
        },
        other => other,
    }
}

/// Whether it is ours, and nobody else gets at it.
#[must_use]
pub fn is_private(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0
}

/// Whether it is a file that holds something: no directory, link or FIFO.
#[must_use]
pub fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// The two names that every directory has.
#[must_use]
pub fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Opens a directory itself, not one that a link leads to.
///
/// # Errors
/// When it is none, or cannot be opened.
pub fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(parent, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use rustix::fs::{CWD, mkdirat, mkfifoat};

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn empty(path: &Path, budget: usize) -> usize {
        let mut removal = Removal::new(open(path), c"lock");
        let mut steps = 1;
        while removal.step(budget).unwrap() == Progress::More {
            steps += 1;
        }
        steps
    }

    /// FS-5: links, FIFOs, sockets, closed directories and odd names go; what links lead to stays, and so does the lock.
    #[test]
    fn hostile_trees_are_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let (tree, outside) = (place.path().join("tree"), place.path().join("outside"));
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        fs::write(tree.join("lock"), "").unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        symlink("..", tree.join("a/b/up")).unwrap();
        symlink("/", tree.join("root")).unwrap();
        fs::hard_link(outside.join("kept"), tree.join("a/hard")).unwrap();
        fs::write(tree.join(OsStr::from_bytes(b"a/\xff\n -rf *")), "").unwrap();
        mkfifoat(CWD, tree.join("a/fifo"), Mode::RWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(tree.join("a/b/socket")).unwrap();
        fs::create_dir_all(tree.join("closed/inner/deep")).unwrap();
        fs::write(tree.join("closed/inner/file"), "").unwrap();
        for path in ["closed/inner/deep", "closed/inner", "closed", "a/b"] {
            fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o0)).unwrap();
        }
        empty(&tree, usize::MAX);
        assert_eq!(fs::read_dir(&tree).unwrap().count(), 1);
        assert!(tree.join("lock").exists());
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "x");
    }

    /// FS-5: deeper than any path can name, with two descriptors and in small steps.
    #[test]
    fn deep_trees_are_removed_in_steps() {
        let place = tempfile::tempdir().unwrap();
        let mut here = open(place.path());
        for _ in 0..3000 {
            mkdirat(&here, c"a-rather-long-name-of-a-directory", Mode::RWXU).unwrap();
            mkdirat(&here, c"sibling", Mode::RWXU).unwrap();
            here = open_directory(std::os::fd::AsFd::as_fd(&here), c"a-rather-long-name-of-a-directory")
                .unwrap();
        }
        drop(here);
        assert!(empty(place.path(), 100) >= 60);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    /// FS-5: many names in one directory.
    #[test]
    fn wide_trees_are_removed() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..20_000 {
            let path = place.path().join(format!("{:03}", number % 100));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(format!("{number}")), "").unwrap();
        }
        empty(place.path(), 1000);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    /// FS-5: names that were taken before the first directory moves up.
    #[test]
    fn names_of_ours_may_be_taken() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("anet-removing-1/x/y/z")).unwrap();
        fs::create_dir_all(place.path().join("anet-removing-2/anet-removing-1/z")).unwrap();
        empty(place.path(), usize::MAX);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    /// A file system mounted for a test, where that can be done.
    struct Mounted(std::path::PathBuf);

    impl Mounted {
        /// What is in `lower` cannot be moved between directories in there: as with a subvolume, that would be EXDEV.
        fn overlay(place: &Path) -> Option<Mounted> {
            let at = |name: &str| place.join(name).display().to_string();
            for name in ["upper", "work", "merged"] {
                fs::create_dir(at(name)).unwrap();
            }
            let options = format!(
                "lowerdir={},upperdir={},workdir={},redirect_dir=off",
                at("lower"),
                at("upper"),
                at("work")
            );
            let mut mount = std::process::Command::new("mount");
            mount.args(["-t", "overlay", "overlay", "-o", &options, &at("merged")]);
            let mounted = mount.output().is_ok_and(|done| done.status.success());
            if !mounted {
                eprintln!("skipped: nothing can be mounted here");
            }
            mounted.then(|| Mounted(at("merged").into()))
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg(&self.0).status();
        }
    }

    /// FS-5: a directory that cannot be moved is emptied where it is, and one that can be moved a little is moved a little.
    #[test]
    fn what_cannot_be_moved_is_emptied_where_it_is() {
        let place = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
        let fixed = place.path().join("lower/a/b/c/d/e");
        fs::create_dir_all(&fixed).unwrap();
        for above in fixed.ancestors().take(5) {
            fs::write(above.join("file"), "x").unwrap();
        }
        let Some(mounted) = Mounted::overlay(place.path()) else { return };
        // What is made above it can be moved.
        let deep = mounted.0.join("a/b/c").join("x/".repeat(60));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "x").unwrap();
        let refused = fs::rename(mounted.0.join("a/b/c"), mounted.0.join("c")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::CrossesDevices);
        assert!(empty(&mounted.0, 10) > 5);
        assert_eq!(fs::read_dir(&mounted.0).unwrap().count(), 0);
    }

    /// FS-5: deeper than that it stays, and that is said.
    #[test]
    fn what_cannot_be_moved_is_not_followed_for_ever() {
        let place = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
        fs::create_dir_all(place.path().join("lower").join("x/".repeat(MAX_INSIDE + 2))).unwrap();
        let Some(mounted) = Mounted::overlay(place.path()) else { return };
        let mut removal = Removal::new(open(&mounted.0), c"lock");
        let refused = removal.step(usize::MAX).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::CrossesDevices);
    }
}
