//! A pseudo-terminal made inside the sandbox (SBX-8). Its outer end is passed out; the operator's own terminal never
//! comes in.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use ipc_proto::init::TerminalPlan;
use rustix::io::Errno;
use rustix::process::{Pid, ioctl_tiocsctty};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetpgrp, tcsetwinsize};

/// The inner end. It is held as long as the sandbox lives: without it a program that closes its terminal would hang it up.
pub(super) struct Terminal {
    inner: OwnedFd,
    stdio: [bool; 3],
}

impl Terminal {
    /// Makes it our controlling terminal. Returns the outer end beside it.
    pub(super) fn open(plan: TerminalPlan) -> Result<(Terminal, OwnedFd), Errno> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let outer = openpt(flags)?;
        grantpt(&outer)?;
        unlockpt(&outer)?;
        let inner = ioctl_tiocgptpeer(&outer, flags)?;
        tcsetwinsize(
            &inner,
            Winsize { ws_row: plan.size.rows, ws_col: plan.size.columns, ws_xpixel: 0, ws_ypixel: 0 },
        )?;
        let mut modes = tcgetattr(&inner)?;
        modes.local_modes.set(LocalModes::ECHO, plan.echo);
        tcsetattr(&inner, OptionalActions::Now, &modes)?;
        // bwrap made us the leader of a session without a terminal.
        ioctl_tiocsctty(&inner)?;
        Ok((Terminal { inner, stdio: plan.stdio }, outer))
    }

    /// Puts the terminal in the place of those of 0, 1 and 2 that it is.
    pub(super) fn replace<'a>(&'a self, descriptors: &mut [(BorrowedFd<'a>, RawFd)]) {
        for ((source, _), is_terminal) in descriptors.iter_mut().zip(self.stdio) {
            if is_terminal {
                *source = self.inner.as_fd();
            }
        }
    }

    /// The number by which the program has it, if it has.
    pub(super) fn number(&self) -> Option<RawFd> {
        self.stdio.iter().zip(0..).find_map(|(is_terminal, number)| is_terminal.then_some(number))
    }

    /// Makes the program's group the foreground again. We are in the background, and SIGTTOU is blocked.
    pub(super) fn give_to(&self, program: Pid) {
        // A group that has ended is about to be reported.
        let _ = tcsetpgrp(self.inner.as_fd(), program);
    }
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Terminal({})", self.inner.as_raw_fd())
    }
}
