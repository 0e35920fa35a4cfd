//! The processes of one run: bwrap outside, process 1 of the sandbox, and how to be sure that both are gone.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use confine::sys::spawn::{Child, SpawnError};
use ipc_proto::Channel;
use ipc_proto::init::{FromInit, ToInit};
use ipc_proto::launcher::MAX_TEXT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::child::{self, Found};
use super::prepare::Prepared;
use crate::bwrap::{self, Start};

/// A sandbox that was started.
#[derive(Debug)]
pub(super) struct Sandbox {
    /// To anet-init.
    pub(super) channel: Channel<ToInit, FromInit>,
    /// bwrap, outside.
    bwrap: Child,
    /// It was reaped.
    bwrap_ended: bool,
    /// Process 1 of the sandbox, once it was found: with it everything inside ends.
    one: Option<OwnedFd>,
    errors: Pipe,
}

/// Why bwrap could not even be started.
#[derive(Debug)]
pub(super) enum StartError {
    /// Something of ours is missing.
    Ours(io::Error),
    /// The program.
    Spawn(SpawnError),
}

impl Sandbox {
    /// Starts bwrap with anet-init in it.
    ///
    /// # Errors
    /// [`StartError`]
    pub(super) fn start(
        bwrap: &CStr,
        prepared: &Prepared,
        stdio: [BorrowedFd<'_>; 3],
        null: BorrowedFd<'_>,
    ) -> Result<Sandbox, StartError> {
        let ours = |error: Errno| StartError::Ours(error.into());
        let (channel, inner) =
            Channel::<ToInit, FromInit>::pair().map_err(|error| StartError::Ours(io::Error::other(error)))?;
        let (errors, errors_end) = Pipe::new(MAX_TEXT * 2).map_err(ours)?;
        let start = Start {
            bwrap,
            init: &prepared.init,
            channel: inner.as_fd(),
            plan: prepared.init_plan.as_fd(),
            stdio,
            errors: errors_end.as_fd(),
            null,
        };
        let started = bwrap::start(&prepared.options, &start).map_err(StartError::Ours)?;
        let bwrap = started.map_err(StartError::Spawn)?;
        Ok(Sandbox { channel, bwrap, bwrap_ended: false, one: None, errors })
    }

    /// Finds process 1, which has spoken and so exists. (bwrap would tell its number, but reads about it below /proc first,
    /// where the numbers may be those of another namespace than ours.)
    pub(super) fn find_one(&mut self) -> Option<Found> {
        let found = child::only_child(&self.bwrap.pidfd)?;
        // bwrap reaps it, but not before it has ended: as long as bwrap lives the number means this process.
        self.one = pidfd_open(found.pid, PidfdFlags::empty()).ok();
        self.one.is_some().then_some(found)
    }

    /// Reads what bwrap complains of.
    pub(super) fn hear_errors(&mut self) {
        self.errors.take();
    }

    /// What bwrap complained of.
    #[must_use]
    pub(super) fn complaint(&self) -> &[u8] {
        &self.errors.bytes
    }

    /// A child of the launcher was reaped: was it this bwrap?
    pub(super) fn reaped(&mut self, pid: Pid) -> bool {
        if pid != self.bwrap.pid || self.bwrap_ended {
            return false;
        }
        self.bwrap_ended = true;
        // bwrap that fails early leaves a child behind which waits for it, for ever. It is in bwrap's group still, and as
        // long as it is nothing else can have the group's number.
        let _ = kill_process_group(self.bwrap.pid, Signal::KILL);
        true
    }

    /// bwrap and process 1 live: what bwrap guards ends with it, but only once it has come so far (it arms the signal for
    /// its own death late), so this is asked again right before the program starts.
    #[must_use]
    pub(super) fn is_whole(&self) -> bool {
        !self.bwrap_ended
            && !has_ended(&self.bwrap.pidfd)
            && self.one.as_ref().is_some_and(|one| !has_ended(one))
    }

    /// bwrap has ended.
    #[must_use]
    pub(super) fn bwrap_has_ended(&self) -> bool {
        self.bwrap_ended
    }

    /// Nobody is left.
    #[must_use]
    pub(super) fn is_gone(&self) -> bool {
        self.bwrap_ended && self.one.as_ref().is_none_or(has_ended)
    }

    /// Ends everybody in it. May be called again.
    pub(super) fn kill(&mut self) {
        // Each of these may be gone already, which is what is wanted.
        if let Some(one) = &self.one {
            let _ = pidfd_send_signal(one, Signal::KILL);
        }
        if !self.bwrap_ended {
            // Not reaped, so the number of the group means this one: bwrap, and its child until that has a session of its
            // own. Before process 1 has spoken its child is only reached this way.
            let _ = kill_process_group(self.bwrap.pid, Signal::KILL);
            let _ = pidfd_send_signal(&self.bwrap.pidfd, Signal::KILL);
        }
    }

    /// What to wait on: readable, when [`Sandbox::hear_errors`] or [`Sandbox::is_gone`] may
    /// have news.
    #[must_use]
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = Vec::new();
        all.extend(self.errors.descriptor());
        all.extend(self.one.as_ref().filter(|one| !has_ended(one)).map(AsFd::as_fd));
        all
    }
}

/// Whether the process behind a pidfd has ended.
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// The reading end of a pipe that a stranger writes to: as much as is wanted, then nothing.
#[derive(Debug)]
struct Pipe {
    end: Option<OwnedFd>,
    bytes: Vec<u8>,
    limit: usize,
}

impl Pipe {
    fn new(limit: usize) -> Result<(Pipe, OwnedFd), Errno> {
        let (end, far) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&end, OFlags::NONBLOCK)?;
        Ok((Pipe { end: Some(end), bytes: Vec::new(), limit }, far))
    }

    fn take(&mut self) {
        let mut buffer = [0u8; 1024];
        while let Some(end) = &self.end {
            match read(end, &mut buffer) {
                Ok(0) => self.end = None,
                Ok(length) => {
                    let room = self.limit.saturating_sub(self.bytes.len()).min(length);
                    self.bytes.extend_from_slice(buffer.get(..room).unwrap_or_default());
                    if self.bytes.len() >= self.limit {
                        self.end = None;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.end = None,
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_ref().map(AsFd::as_fd)
    }
}
