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

mod meter;
mod walk;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags, open};
use rustix::pipe::{PipeFlags, pipe_with};

use meter::Meter;
pub use walk::DESCRIPTORS;

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
    dropped: Arc<AtomicBool>,
    // Ends by itself when this is dropped; never waited for.
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
        let dropped = Arc::new(AtomicBool::new(false));
        let meter = Meter {
            roots,
            limit,
            report,
            orders,
            most: Arc::clone(&most),
            dropped: Arc::clone(&dropped),
            processes: None,
        };
        let thread = std::thread::Builder::new().name("growth".into()).spawn(move || meter.run())?;
        Ok(Watch { words, most, orders: sender, dropped, _thread: thread })
    }

    /// One whose thread is gone.
    #[cfg(test)]
    pub(crate) fn gone() -> Watch {
        let (words, report) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (orders, _) = channel();
        let thread = std::thread::spawn(move || drop(report));
        Watch { words, most: Arc::default(), orders, dropped: Arc::default(), _thread: thread }
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

impl Drop for Watch {
    fn drop(&mut self) {
        // A walk through a large tree would hold its descriptors long after the run.
        self.dropped.store(true, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::stat;

    use super::*;

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
