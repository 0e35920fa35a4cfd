//! How a child ended or stopped, asked through its pidfd: a number that was reused can never be meant by mistake.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};

/// What happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It ended with this exit status.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// This signal stopped it; it can go on.
    Stopped(i32),
}

/// Which changes to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Return `None` at once when nothing happened, instead of waiting.
    pub no_hang: bool,
    /// Report a stopped child too.
    pub stopped: bool,
}

/// Waits for the child behind `pidfd` and, if it ended, reaps it.
pub fn wait(pidfd: BorrowedFd<'_>, ask: Ask) -> Result<Option<Status>, Errno> {
    let mut options = WaitIdOptions::EXITED;
    options.set(WaitIdOptions::NOHANG, ask.no_hang);
    options.set(WaitIdOptions::STOPPED, ask.stopped);
    let status = loop {
        match waitid(WaitId::PidFd(pidfd), options) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    Ok(status.and_then(|status| {
        (status.exit_status().map(Status::Exited))
            .or_else(|| status.terminating_signal().map(Status::Killed))
            .or_else(|| status.stopping_signal().map(Status::Stopped))
    }))
}
