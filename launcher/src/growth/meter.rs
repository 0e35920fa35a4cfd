//! The thread that measures, and when it does.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, fstat, fstatvfs, stat};
use rustix::io::Errno;

use super::walk::{INODE, is_shortage, measure, size};
use super::{Order, Word};

/// From the start of one walk to the start of the next.
const PERIOD: Duration = Duration::from_millis(500);
/// How often free space is looked at in between.
const GLANCE: Duration = Duration::from_millis(50);
/// Walks in a row that came to nothing since the tree was moved under them. After that many it counts as an attack on the
/// measure, and as growth.
const MAX_BROKEN: u32 = 20;
/// So much may a file system lose to others before open files are looked through, in bytes.
const UNEXPLAINED: u64 = 16 << 20;

pub(super) struct Meter {
    pub(super) roots: Vec<OwnedFd>,
    pub(super) limit: u64,
    pub(super) report: OwnedFd,
    pub(super) orders: Receiver<Order>,
    pub(super) most: Arc<AtomicU64>,
    /// Nobody wants to know any more.
    pub(super) dropped: Arc<AtomicBool>,
    /// The process namespace of the run.
    pub(super) processes: Option<(u64, u64)>,
}

impl Meter {
    pub(super) fn run(mut self) {
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
            let measured = measure(&self.roots, &self.dropped);
            broken = if measured.is_ok() { 0 } else { broken + 1 };
            // A tree that was moved is looked at anew at once; what we are short of, others may give back meanwhile.
            let at_once =
                measured.as_ref().is_err_and(|error| !Errno::from_io_error(error).is_some_and(is_shortage));
            let grown = measured.ok().map(|size| size.saturating_sub(start));
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
            match self.pause(began, used.saturating_add(allowance), at_once) {
                Next::Walk => {}
                Next::Last => {
                    let grown = measure(&self.roots, &self.dropped).unwrap_or(0).saturating_sub(start);
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
        (0..MAX_BROKEN).find_map(|_| measure(&self.roots, &self.dropped).ok()).unwrap_or(0)
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
