//! The walk through a run's directories.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, Stat, StatxAttributes, StatxFlags, chmod, fstat, openat, statat,
    statx,
};
use rustix::io::Errno;

use crate::remove::{is_dots, open_directory};

/// What an inode counts beside its blocks, in bytes: about what it takes of a file system's own tables.
pub(super) const INODE: u64 = 4096;
/// st_blocks counts in these, whatever the file system's blocks are (stat(2)).
const BLOCK: u64 = 512;
/// Directories that are held open on the way down; above them only their names in the kernel's sense are remembered.
const MAX_OPEN: usize = 32;
/// The most descriptors that a walk has open beside the roots.
pub const DESCRIPTORS: usize = MAX_OPEN + 4;
/// Room for the names of one read of a directory, in bytes.
const BUFFER: usize = 32 * 1024;

/// A directory on the way down.
struct Level {
    /// Open, unless it is far above.
    directory: Option<OwnedFd>,
    device: u64,
    inode: u64,
    /// Its subdirectories that are still to be visited.
    left: Vec<CString>,
}

/// What the trees take, in bytes. Paths of one inode share it.
///
/// # Errors
/// When a tree was moved in such a way that the walk lost its place, when `stop` came true, and when descriptors are short.
pub(super) fn measure(roots: &[OwnedFd], stop: &AtomicBool) -> io::Result<u64> {
    let mut sum = 0;
    for root in roots {
        let stat = fstat(root)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            sum += size(&stat);
            continue;
        }
        let mut path = vec![level(root.try_clone()?, &mut sum)?];
        while let Some(here) = path.last_mut() {
            if stop.load(Ordering::Relaxed) {
                return Err(Errno::CANCELED.into());
            }
            let Some(name) = here.left.pop() else {
                climb(&mut path)?;
                continue;
            };
            let Some(directory) = &here.directory else { return Err(Errno::STALE.into()) };
            // Gone meanwhile, or no directory any more: whatever is there now is counted by the next walk.
            let Some(below) = enter(directory, &name)? else { continue };
            let below_stat = fstat(&below)?;
            if below_stat.st_dev != here.device && is_mount_point(&below) {
                continue;
            }
            sum += size(&below_stat);
            path.push(level(below, &mut sum)?);
            if let Some(far) = path.len().checked_sub(MAX_OPEN + 1).and_then(|above| path.get_mut(above)) {
                far.directory = None;
            }
        }
    }
    Ok(sum)
}

/// Whether something is mounted there. A kernel that cannot tell (before 5.8) is taken for saying yes: what is mounted may be
/// another's, of any size.
fn is_mount_point(directory: &OwnedFd) -> bool {
    const ROOT: StatxAttributes = StatxAttributes::MOUNT_ROOT;
    statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::empty()).map_or(true, |found| {
        !found.stx_attributes_mask.contains(ROOT) || found.stx_attributes.contains(ROOT)
    })
}

/// Reads a directory: adds its files, remembers its directories.
fn level(directory: OwnedFd, sum: &mut u64) -> io::Result<Level> {
    let stat = fstat(&directory)?;
    // A descriptor of its own: the place of reading belongs to the open file, and the root's is used again.
    let reading = openat(&directory, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); BUFFER];
    let mut entries = RawDir::new(&reading, &mut buffer);
    let mut left = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if is_dots(name) {
            continue;
        }
        if entry.file_type() == FileType::Directory {
            left.push(name.to_owned());
            continue;
        }
        let Ok(found) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(found.st_mode).is_dir() {
            left.push(name.to_owned());
        } else {
            *sum += size(&found);
        }
    }
    Ok(Level { directory: Some(directory), device: stat.st_dev, inode: stat.st_ino, left })
}

/// Back to the directory above, which has to be the one that was come from.
fn climb(path: &mut Vec<Level>) -> io::Result<()> {
    let Some(done) = path.pop() else { return Ok(()) };
    let Some(above) = path.last_mut().filter(|above| above.directory.is_none()) else { return Ok(()) };
    let Some(below) = done.directory else { return Err(Errno::STALE.into()) };
    let directory = openat(&below, c"..", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&directory)?;
    if (stat.st_dev, stat.st_ino) != (above.device, above.inode) {
        return Err(Errno::STALE.into());
    }
    above.directory = Some(directory);
    Ok(())
}

/// Opens a directory of the run, also one that it closed, which must hide no growth: opened for the moment of looking.
fn enter(parent: &OwnedFd, name: &CStr) -> io::Result<Option<OwnedFd>> {
    let opened = match open_directory(parent.as_fd(), name) {
        Err(Errno::ACCESS) => enter_closed(parent, name),
        other => other,
    };
    match opened {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if is_shortage(error) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

fn enter_closed(parent: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let closed = openat(parent, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(fstat(&closed)?.st_mode);
    let itself = format!("/proc/self/fd/{}", closed.as_raw_fd());
    chmod(&itself, mode | Mode::RUSR | Mode::XUSR)?;
    let opened = open_directory(parent.as_fd(), name);
    // Somebody else's change in between is overwritten: by a mode that was there a moment ago.
    chmod(&itself, mode)?;
    opened
}

/// We are short of something: what could not be opened may be there.
pub(super) fn is_shortage(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

pub(super) fn size(stat: &Stat) -> u64 {
    let whole = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK).saturating_add(INODE);
    if FileType::from_raw_mode(stat.st_mode).is_dir() {
        // A directory's links are its own entries.
        return whole;
    }
    // The type of st_nlink is another one on other processors.
    whole / u64::from(u32::try_from(stat.st_nlink).unwrap_or(u32::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use rustix::fs::{mkdirat, open};

    use super::*;

    fn open_root(path: &Path) -> OwnedFd {
        open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }
    fn total(path: &Path) -> u64 {
        measure(&[open_root(path)], &AtomicBool::new(false)).unwrap()
    }

    /// LIM: blocks and inodes count, links are not followed, hard links count once, closed directories hide nothing.
    #[test]
    fn growth_counts_blocks_and_inodes() {
        let place = tempfile::tempdir().unwrap();
        let before = total(place.path());
        fs::write(place.path().join("data"), vec![1u8; 1 << 20]).unwrap();
        fs::hard_link(place.path().join("data"), place.path().join("again")).unwrap();
        symlink("/usr", place.path().join("usr")).unwrap();
        let one = total(place.path()) - before;
        assert!((1 << 20..(1 << 20) + (1 << 18)).contains(&one), "{one}");
        fs::create_dir(place.path().join("d")).unwrap();
        for number in 0..1000 {
            fs::write(place.path().join(format!("d/{number}")), "").unwrap();
        }
        fs::set_permissions(place.path().join("d"), fs::Permissions::from_mode(0o0)).unwrap();
        assert!(total(place.path()) - before - one >= 1000 * INODE);
        let mode = fs::metadata(place.path().join("d")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0, "the mode is what the run made it");
    }

    /// LIM, FS-5: deeper than descriptors are held, and than any path can name.
    #[test]
    fn deep_trees_are_measured() {
        let place = tempfile::tempdir().unwrap();
        let mut here = open_root(place.path());
        for _ in 0..2000 {
            mkdirat(&here, c"a-rather-long-name-of-a-directory", Mode::RWXU).unwrap();
            mkdirat(&here, c"b", Mode::RWXU).unwrap();
            here = open_directory(here.as_fd(), c"a-rather-long-name-of-a-directory").unwrap();
        }
        assert!(total(place.path()) >= 4000 * INODE);
        crate::remove::remove_whole(&open_root(place.path()), c"a-rather-long-name-of-a-directory").unwrap();
    }

    /// LIM: a subvolume is told from a mount by the kernel, and not by its device number.
    #[test]
    fn mount_points_are_told_from_directories() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("below")).unwrap();
        assert!(is_mount_point(&open_root(Path::new("/proc"))));
        assert!(!is_mount_point(&open_root(&place.path().join("below"))));
        assert!(!is_mount_point(&open_root(Path::new("/proc/self"))));
    }

    /// LIM: nobody waits for a walk any more: it ends.
    #[test]
    fn a_walk_can_be_stopped() {
        let place = tempfile::tempdir().unwrap();
        let roots = [open_root(place.path())];
        assert!(measure(&roots, &AtomicBool::new(false)).is_ok());
        assert!(measure(&roots, &AtomicBool::new(true)).is_err());
    }

    /// LIM: what cannot be opened for want of descriptors is not taken for gone.
    #[test]
    fn a_shortage_hides_no_growth() {
        let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        assert!(shortages.into_iter().all(is_shortage));
        assert!([Errno::NOENT, Errno::LOOP, Errno::NOTDIR].into_iter().all(|error| !is_shortage(error)));
    }
}
