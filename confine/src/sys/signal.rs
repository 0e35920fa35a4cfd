//! Signals as data on a descriptor, so that a process has one loop and no handler.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::signal::SigSet;
pub use nix::sys::signal::Signal;
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Blocked signals, read from a descriptor.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals for this thread (and those it will start) and opens the descriptor to read them from.
    pub fn block(signals: &[Signal]) -> Result<Self, Errno> {
        let set: SigSet = signals.iter().copied().collect();
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// The next signal that came, if any.
    pub fn next(&self) -> Result<Option<Signal>, Errno> {
        loop {
            match self.0.read_signal() {
                Ok(Some(info)) => {
                    return Ok(i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok()));
                }
                Ok(None) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
