//! One direction of bytes, with what was read and not yet written.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::io::{Errno, read, write};

/// The most that is read at once, in bytes: what a pseudo-terminal or pipe hands over in one go.
const CHUNK: usize = 64 * 1024;
/// The most that is written at once to a descriptor that may block: what a terminal takes without waiting, once it says
/// that it takes something. A terminal whose reader has stopped must not stop this process.
const TASTE: usize = 1024;
/// End of file, as a terminal's line discipline understands it (VEOF, Ctrl-D).
const END_OF_FILE: u8 = 4;

/// From one descriptor to another.
#[derive(Debug)]
pub(crate) struct Flow {
    from: Option<Rc<OwnedFd>>,
    to: Option<Rc<OwnedFd>>,
    pending: Vec<u8>,
    /// The far side is a pseudo-terminal: its end of file is a byte.
    says_end: bool,
    /// The far side belongs to others too, so it cannot be made non-blocking.
    blocks: bool,
    /// Read only while the operator's terminal is ours.
    pub(crate) only_in_foreground: bool,
}

impl Flow {
    /// A flow into the run that has moved nothing.
    pub(crate) fn inward(
        from: &Rc<OwnedFd>,
        to: &Rc<OwnedFd>,
        says_end: bool,
        only_in_foreground: bool,
    ) -> Flow {
        let (from, to) = (Some(Rc::clone(from)), Some(Rc::clone(to)));
        Flow { from, to, pending: Vec::new(), says_end, blocks: false, only_in_foreground }
    }

    /// A flow to the operator that has moved nothing.
    pub(crate) fn outward(from: &Rc<OwnedFd>, to: &Rc<OwnedFd>) -> Flow {
        let (from, to) = (Some(Rc::clone(from)), Some(Rc::clone(to)));
        Flow { from, to, pending: Vec::new(), says_end: false, blocks: true, only_in_foreground: false }
    }

    /// What to wait for to read; nothing while something is still to be written.
    pub(crate) fn source(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.from.as_ref().filter(|_| self.pending.is_empty()).map(|from| from.as_fd())
    }

    /// What to wait for to write.
    pub(crate) fn sink(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.to.as_ref().filter(|_| !self.pending.is_empty()).map(|to| to.as_fd())
    }

    /// Everything that will ever come has been passed on.
    pub(crate) fn is_over(&self) -> bool {
        self.to.is_none() || (self.from.is_none() && self.pending.is_empty())
    }

    /// Reads what is there, and passes it on as far as it goes.
    pub(crate) fn pull(&mut self) {
        let Some(from) = &self.from else { return };
        let mut chunk = vec![0u8; CHUNK];
        match read(from, &mut chunk) {
            Ok(0) => self.end(),
            Ok(length) => {
                chunk.truncate(length);
                self.pending = chunk;
                // Whether a blocking side takes anything, only waiting for it says.
                if !self.blocks {
                    self.push();
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // EIO: nobody has the other side of the pseudo-terminal any more, or the operator's is gone.
            Err(_) => self.end(),
        }
    }

    /// Writes what waits.
    pub(crate) fn push(&mut self) {
        while let Some(to) = self.to.as_ref().filter(|_| !self.pending.is_empty()) {
            let most = if self.blocks { TASTE.min(self.pending.len()) } else { self.pending.len() };
            match write(to, self.pending.get(..most).unwrap_or_default()) {
                Ok(length) => {
                    self.pending.drain(..length.min(self.pending.len()));
                    if self.blocks {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Nobody reads it any more.
                Err(_) => {
                    self.pending.clear();
                    self.from = None;
                    self.to = None;
                }
            }
        }
        if self.from.is_none() && self.pending.is_empty() {
            self.to = None;
        }
    }

    fn end(&mut self) {
        self.from = None;
        if self.says_end {
            self.pending.push(END_OF_FILE);
        }
        self.push();
    }
}
