//! The descriptors that a program was started with, each taken once.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, FdFlags, fcntl_setfd};

/// Which numbers were taken: two owners of one descriptor would close each other's files.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Takes the descriptor that this process was started with under `number` (3 to 63), and makes it close-on-exec.
///
/// # Errors
/// `EBADF` when there is none, or it was taken before.
pub fn take(number: RawFd) -> Result<OwnedFd, Errno> {
    let bit = match number {
        3..=63 => 1u64 << number,
        _ => return Err(Errno::BADF),
    };
    if TAKEN.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: borrowed only for the fcntl below, which fails cleanly on a number that is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is open (fcntl succeeded), and the bit above makes this the only owner: programs call
    // `take` first thing, before anything else opens descriptors.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
