//! The operator's terminal: ours while our process group is in its foreground, and given back as it was.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use ipc_proto::terminal::TerminalMode;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};

/// The terminal among the operator's descriptors.
#[derive(Debug)]
pub(crate) struct OperatorTerminal {
    /// None: no descriptor of the operator's is a terminal.
    fd: Option<Rc<OwnedFd>>,
    /// Our own process group, which never changes.
    group: Pid,
    wants_raw: bool,
    /// How it was before it was made raw.
    saved: Option<Termios>,
}

impl OperatorTerminal {
    pub(crate) fn new(mode: &TerminalMode, operator: &[Rc<OwnedFd>; 3], group: Pid) -> OperatorTerminal {
        let terminals = operator.iter().zip(mode.operator).filter(|(_, is_terminal)| *is_terminal);
        let fd = terminals.map(|(fd, _)| Rc::clone(fd)).next();
        OperatorTerminal { fd, group, wants_raw: mode.raw, saved: None }
    }

    /// Whether reading and changing it is ours to do.
    pub(crate) fn is_ours(&self) -> bool {
        self.fd.as_ref().is_none_or(|fd| tcgetpgrp(fd).is_ok_and(|group| group == self.group))
    }

    /// Raw mode, if it is wanted and ours to set.
    pub(crate) fn take(&mut self) -> Result<(), Errno> {
        let Some(fd) = self.fd.as_ref().filter(|_| self.wants_raw && self.saved.is_none()) else {
            return Ok(());
        };
        if !self.is_ours() {
            return Ok(());
        }
        let saved = tcgetattr(fd)?;
        let mut raw = saved.clone();
        raw.make_raw();
        tcsetattr(fd, OptionalActions::Drain, &raw)?;
        self.saved = Some(saved);
        Ok(())
    }

    /// It is still to be taken: it was not ours when it was wanted.
    pub(crate) fn is_awaited(&self) -> bool {
        self.wants_raw && self.saved.is_none()
    }

    /// As it was.
    pub(crate) fn give_back(&mut self) {
        if let (Some(fd), Some(saved)) = (&self.fd, self.saved.take()) {
            // A terminal that is gone needs nothing back.
            let _ = tcsetattr(fd, OptionalActions::Drain, &saved);
        }
    }

    /// Its size now.
    pub(crate) fn size(&self) -> Option<Winsize> {
        tcgetwinsize(self.fd.as_ref()?).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0)
    }
}
