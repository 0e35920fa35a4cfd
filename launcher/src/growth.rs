//! How much the directories of a run grew (LIM: growth).
//!
//! A thread walks them, at least every second, and earlier when the file system's free space says that much was written.
//! Counted are allocated blocks, and 4 KiB for each name that stands for an inode, so that millions of empty files are
//! growth too. Links are not followed and mount points not entered; whatever the run does to its tree meanwhile, the walk
//! stays inside: a directory that is left through `..` must be the one that was entered, else the walk begins anew. A btrfs
//! subvolume, which the run can make, has a device number of its own and is no mount point: it counts.
//!
//! The start is measured before the program runs; growth is looked for only from its start on, so none is seen before.
//!
//! A file that was removed and is still open takes its space and is in no directory. Where the file system lost more space
//! than the walk explains, the descriptors of the run's processes are looked through for such files. (What only a mapping or
//! a socket's queue still holds is not found that way.)

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, Stat, StatxAttributes, StatxFlags, chmod, fstat, fstatvfs, open,
    openat, stat, statat, statx,
};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::remove::{is_dots, open_directory};

/// What an inode counts beside its blocks, in bytes: about what it takes of a file system's own tables.
pub const INODE: u64 = 4096;
/// st_blocks counts in these, whatever the file system's blocks are (stat(2)).
const BLOCK: u64 = 512;
/// From the start of one walk to the start of the next.
const PERIOD: Duration = Duration::from_millis(500);
/// How often free space is looked at in between.
const GLANCE: Duration = Duration::from_millis(50);
/// Directories that are held open on the way down; above them only their names in the kernel's sense are remembered.
const MAX_OPEN: usize = 64;
/// Walks in a row that came to nothing since the tree was moved under them. After that many it counts as an attack on the
/// measure, and as growth.
const MAX_BROKEN: u32 = 20;
/// So much may a file system lose to others before open files are looked through, in bytes.
const UNEXPLAINED: u64 = 16 << 20;
/// Room for the names of one read of a directory, in bytes.
const BUFFER: usize = 32 * 1024;

/// What the thread has to say, one byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The start is measured: the run may begin.
    Ready,
    /// The limit is exceeded.
    Exceeded,
    /// The last walk, after the run's end, is done.
    Finished,
    /// Nobody measures any more, and the last walk was not done: what grew is not known. (The thread's end, not its word.)
    Gone,
}

impl Word {
    const ALL: [Word; 4] = [Word::Ready, Word::Exceeded, Word::Finished, Word::Gone];

    fn byte(self) -> u8 {
        match self {
            Word::Ready => b'R',
            Word::Exceeded => b'X',
            Word::Finished => b'F',
            Word::Gone => b'G',
        }
    }
}

/// The thread, seen from the launcher.
#[derive(Debug)]
pub struct Watch {
    words: OwnedFd,
    most: Arc<AtomicU64>,
    orders: Sender<Order>,
    // Ends by itself when `orders` is dropped; never waited for, since a walk may take long.
    _thread: JoinHandle<()>,
}

impl Watch {
    /// Starts to measure `directories`.
    ///
    /// # Errors
    /// When a directory cannot be opened, or no thread be started.
    pub fn start(directories: &[PathBuf], limit: u64) -> io::Result<Watch> {
        // Never waiting for the other end, should one of them be a FIFO.
        let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let roots: Vec<OwnedFd> =
            directories.iter().map(|path| open(path, flags, Mode::empty())).collect::<Result<_, _>>()?;
        let (words, report) = pipe_with(PipeFlags::CLOEXEC)?;
        let (sender, orders) = channel();
        let most = Arc::new(AtomicU64::new(0));
        let meter = Meter { roots, limit, report, orders, most: Arc::clone(&most), processes: None };
        let thread = std::thread::Builder::new().name("growth".into()).spawn(move || meter.run())?;
        Ok(Watch { words, most, orders: sender, _thread: thread })
    }

    /// One whose thread is gone.
    #[cfg(test)]
    pub(crate) fn gone() -> Watch {
        let (words, report) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (orders, _) = channel();
        let thread = std::thread::spawn(move || drop(report));
        Watch { words, most: Arc::default(), orders, _thread: thread }
    }

    /// Says in which process namespace the run is, by its device and inode.
    pub fn look_into(&self, namespace: (u64, u64)) {
        self.order(Order::LookInto(namespace));
    }

    /// The program starts: from now on it is watched.
    pub fn begin(&self) {
        self.order(Order::Begin);
    }

    /// Asks for a last walk.
    pub fn finish(&self) {
        self.order(Order::Finish);
    }

    fn order(&self, order: Order) {
        // A thread that is gone has said so by closing its pipe.
        let _ = self.orders.send(order);
    }

    /// The next word, when the descriptor is readable.
    #[must_use]
    pub fn next(&self) -> Word {
        let mut byte = [0u8];
        match rustix::io::read(&self.words, &mut byte) {
            Ok(1) => Word::ALL.into_iter().find(|word| [word.byte()] == byte).unwrap_or(Word::Gone),
            Ok(_) | Err(_) => Word::Gone,
        }
    }

    /// The most growth seen, in bytes.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.words.as_fd()
    }
}

/// What the launcher wants of the thread.
#[derive(Clone, Copy, Debug)]
enum Order {
    LookInto((u64, u64)),
    Begin,
    Finish,
}

struct Meter {
    roots: Vec<OwnedFd>,
    limit: u64,
    report: OwnedFd,
    orders: Receiver<Order>,
    most: Arc<AtomicU64>,
    /// The process namespace of the run.
    processes: Option<(u64, u64)>,
}

impl Meter {
    fn run(mut self) {
        let start = self.first();
        let used_at_start = self.disk_use();
        self.say(Word::Ready);
        // A run that is over before it began has grown by nothing, and nobody asks for a last walk.
        if !self.wait_for_begin() {
            return;
        }
        let mut exceeded = false;
        let mut broken = 0;
        loop {
            let began = Instant::now();
            let grown = match measure(&self.roots) {
                Ok(size) => {
                    broken = 0;
                    Some(size.saturating_sub(start))
                }
                Err(_) => {
                    broken += 1;
                    None
                }
            };
            let used = self.disk_use();
            let mut grown = grown.unwrap_or(0);
            if used.saturating_sub(used_at_start) > grown.saturating_add(UNEXPLAINED) {
                grown = grown.saturating_add(self.removed_but_open());
            }
            self.most.fetch_max(grown, Ordering::Relaxed);
            if !exceeded && (grown > self.limit || broken >= MAX_BROKEN) {
                exceeded = true;
                self.say(Word::Exceeded);
            }
            // Half of what is left may be written before the next walk has to begin early.
            let allowance = self.limit.saturating_sub(grown) / 2;
            match self.pause(began, used.saturating_add(allowance), broken > 0) {
                Next::Walk => {}
                Next::Last => {
                    let grown = measure(&self.roots).unwrap_or(0).saturating_sub(start);
                    self.most.fetch_max(grown, Ordering::Relaxed);
                    if !exceeded && grown > self.limit {
                        self.say(Word::Exceeded);
                    }
                    return self.say(Word::Finished);
                }
                Next::Stop => return,
            }
        }
    }

    /// The start. Nobody of the run is there yet; the operator's own programs may be.
    fn first(&self) -> u64 {
        (0..MAX_BROKEN).find_map(|_| measure(&self.roots).ok()).unwrap_or(0)
    }

    /// Says no when the run ends before its program starts.
    fn wait_for_begin(&mut self) -> bool {
        loop {
            match self.orders.recv() {
                Ok(Order::LookInto(namespace)) => self.processes = Some(namespace),
                Ok(Order::Begin) => return true,
                Ok(Order::Finish) => {
                    self.say(Word::Finished);
                    return false;
                }
                Err(_) => return false,
            }
        }
    }

    /// What files take that the run's processes hold open and no directory has any more.
    fn removed_but_open(&self) -> u64 {
        let Some(namespace) = self.processes else { return 0 };
        let devices: BTreeSet<u64> =
            self.roots.iter().filter_map(|root| Some(fstat(root).ok()?.st_dev)).collect();
        let mut seen = BTreeMap::new();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let path = process.path();
            if !stat(path.join("ns/pid")).is_ok_and(|found| (found.st_dev, found.st_ino) == namespace) {
                continue;
            }
            for descriptor in std::fs::read_dir(path.join("fd")).into_iter().flatten().flatten() {
                let Ok(file) = stat(descriptor.path()) else { continue };
                let is_file = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
                if is_file && file.st_nlink == 0 && devices.contains(&file.st_dev) {
                    seen.insert((file.st_dev, file.st_ino), size(&file));
                }
            }
        }
        seen.into_values().fold(0, u64::saturating_add)
    }

    fn pause(&mut self, began: Instant, threshold: u64, at_once: bool) -> Next {
        loop {
            let left = PERIOD.saturating_sub(began.elapsed());
            let now = left.is_zero() || at_once || self.disk_use() > threshold;
            match self.orders.recv_timeout(if now { Duration::ZERO } else { left.min(GLANCE) }) {
                Ok(Order::LookInto(namespace)) => self.processes = Some(namespace),
                Ok(Order::Begin) => {}
                Ok(Order::Finish) => return Next::Last,
                Err(RecvTimeoutError::Disconnected) => return Next::Stop,
                Err(RecvTimeoutError::Timeout) if now => return Next::Walk,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// What is used of the file systems that the directories are on: others write there too, so this only says when to look.
    fn disk_use(&self) -> u64 {
        let mut seen = BTreeMap::new();
        for root in &self.roots {
            if let Ok(disk) = fstatvfs(root) {
                let blocks = disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(disk.f_frsize);
                let inodes = disk.f_files.saturating_sub(disk.f_ffree).saturating_mul(INODE);
                seen.insert(disk.f_fsid, blocks.saturating_add(inodes));
            }
        }
        seen.into_values().fold(0, u64::saturating_add)
    }

    fn say(&self, word: Word) {
        // The launcher being gone, nobody listens, and this thread is about to end with it.
        let _ = rustix::io::write(&self.report, &[word.byte()]);
    }
}

enum Next {
    Walk,
    Last,
    Stop,
}

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
/// When a tree was moved in such a way that the walk lost its place.
pub fn measure(roots: &[OwnedFd]) -> io::Result<u64> {
    let mut sum = 0;
    for root in roots {
        let stat = fstat(root)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            sum += size(&stat);
            continue;
        }
        let mut path = vec![level(root.try_clone()?, &mut sum)?];
        while let Some(here) = path.last_mut() {
            let Some(name) = here.left.pop() else {
                climb(&mut path)?;
                continue;
            };
            let Some(directory) = &here.directory else { return Err(Errno::STALE.into()) };
            // Gone meanwhile, or no directory any more: whatever is there now is counted by the next walk.
            let Some(below) = enter(directory, &name) else { continue };
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
fn enter(parent: &OwnedFd, name: &CStr) -> Option<OwnedFd> {
    match open_directory(parent.as_fd(), name) {
        Ok(directory) => Some(directory),
        Err(Errno::ACCESS) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let closed = openat(parent, name, flags, Mode::empty()).ok()?;
            let mode = Mode::from_raw_mode(fstat(&closed).ok()?.st_mode);
            let itself = format!("/proc/self/fd/{}", closed.as_raw_fd());
            chmod(&itself, mode | Mode::RUSR | Mode::XUSR).ok()?;
            let opened = open_directory(parent.as_fd(), name).ok();
            // Somebody else's change in between is overwritten: by a mode that was there a moment ago.
            chmod(&itself, mode).ok()?;
            opened
        }
        Err(_) => None,
    }
}

fn size(stat: &Stat) -> u64 {
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

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::mkdirat;

    use super::*;

    fn open_root(path: &Path) -> OwnedFd {
        open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }
    fn total(path: &Path) -> u64 {
        measure(&[open_root(path)]).unwrap()
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

    fn next(watch: &Watch) -> Option<Word> {
        let five_seconds = Timespec { tv_sec: 5, tv_nsec: 0 };
        let mut fds = [PollFd::new(watch, PollFlags::IN)];
        (poll(&mut fds, Some(&five_seconds)).unwrap() > 0).then(|| watch.next())
    }

    /// LIM: before the program starts nothing is growth of it, however much others write; afterwards it is.
    #[test]
    fn nothing_is_exceeded_before_the_program_starts() {
        let place = tempfile::tempdir().unwrap();
        let watch = Watch::start(&[place.path().to_owned()], 1 << 20).unwrap();
        assert_eq!(next(&watch), Some(Word::Ready));
        fs::write(place.path().join("large"), vec![1u8; 2 << 20]).unwrap();
        let two_walks = Timespec { tv_sec: 1, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&two_walks)).unwrap(), 0);
        watch.begin();
        assert_eq!(next(&watch), Some(Word::Exceeded));
    }

    /// LIM: a thread that ended without its last walk is told from one that is done.
    #[test]
    fn a_thread_that_is_gone_has_not_finished() {
        assert_eq!(next(&Watch::gone()), Some(Word::Gone));
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

    /// LIM: what was there before is no growth; what is too much is seen within a second, once; the end is measured too.
    #[test]
    fn growth_beyond_the_limit_is_told() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("before"), vec![1u8; 4 << 20]).unwrap();
        let watch = Watch::start(&[place.path().to_owned()], 1 << 20).unwrap();
        assert_eq!(next(&watch), Some(Word::Ready));
        watch.begin();
        fs::write(place.path().join("small"), vec![1u8; 1 << 18]).unwrap();
        fs::write(place.path().join("large"), vec![1u8; 2 << 20]).unwrap();
        let began = Instant::now();
        assert_eq!(next(&watch), Some(Word::Exceeded));
        assert!(began.elapsed() < Duration::from_secs(1));
        watch.finish();
        assert_eq!(next(&watch), Some(Word::Finished));
        assert!((2 << 20..3 << 20).contains(&watch.most()), "{}", watch.most());
    }

    /// LIM: a file that was removed and is still open is growth.
    #[test]
    fn removed_files_count_while_they_are_open() {
        use std::io::Write;
        let place = tempfile::tempdir().unwrap();
        let watch = Watch::start(&[place.path().to_owned()], 32 << 20).unwrap();
        assert_eq!(next(&watch), Some(Word::Ready));
        watch.begin();
        let own = stat("/proc/self/ns/pid").unwrap();
        watch.look_into((own.st_dev, own.st_ino));
        let mut file = fs::File::create(place.path().join("hidden")).unwrap();
        fs::remove_file(place.path().join("hidden")).unwrap();
        file.write_all(&vec![1u8; 64 << 20]).unwrap();
        file.sync_all().unwrap();
        assert_eq!(next(&watch), Some(Word::Exceeded));
    }

    /// LIM: a run that ends before anybody looked has exceeded the limit all the same.
    #[test]
    fn the_end_is_measured() {
        let place = tempfile::tempdir().unwrap();
        let watch = Watch::start(&[place.path().to_owned()], 1 << 20).unwrap();
        assert_eq!(next(&watch), Some(Word::Ready));
        watch.begin();
        std::thread::sleep(Duration::from_millis(20));
        fs::write(place.path().join("large"), vec![1u8; 2 << 20]).unwrap();
        watch.finish();
        assert_eq!(next(&watch), Some(Word::Exceeded));
        assert_eq!(next(&watch), Some(Word::Finished));
    }
}
