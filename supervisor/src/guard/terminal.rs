//! Which of the operator's descriptors are a terminal, and what the run has in their place (SBX-8).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ipc_proto::Code;
use ipc_proto::init::WindowSize;
use ipc_proto::terminal::TerminalMode;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use super::request::TerminalChoice;
use crate::error::Trouble;

/// A terminal that tells no size.
const USUAL_SIZE: WindowSize = WindowSize { rows: 24, columns: 80 };

/// What the terminal process is started with.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) mode: TerminalMode,
    /// The outer ends of pipes that stand for the run's 0, 1 and 2.
    pub(super) pipes: [Option<OwnedFd>; 3],
    /// How the operator's terminal was before, should the terminal process not live to restore it.
    saved: Option<Termios>,
}

impl Joined {
    /// Puts the operator's terminal back as it was.
    pub(super) fn restore(&self) {
        if let Some(saved) = &self.saved {
            // A terminal that is gone needs no restoring.
            let _ = tcsetattr(stdin(), OptionalActions::Now, saved);
        }
    }
}

/// Decides, and gives what becomes 0, 1 and 2 of the run. What stands in `instead` is none of the operator's, and never a
/// terminal.
pub(super) fn join(
    choice: TerminalChoice,
    null: &OwnedFd,
    instead: [Option<OwnedFd>; 3],
) -> Result<(Option<Joined>, [OwnedFd; 3]), Trouble> {
    let standard = [stdin(), stdout(), stderr()];
    let replaced = instead.each_ref().map(Option::is_some);
    let mut instead = instead.into_iter();
    let own = |place: usize| !replaced.get(place).copied().unwrap_or(false);
    let operator = [isatty(stdin()) && own(0), isatty(stdout()) && own(1), isatty(stderr()) && own(2)];
    let run = match choice {
        TerminalChoice::Auto => operator,
        TerminalChoice::Always => [own(0), own(1), own(2)],
        TerminalChoice::Never => [false; 3],
    };
    let mut pipes = [None, None, None];
    let mut given = Vec::with_capacity(3);
    for (place, fd) in standard.into_iter().enumerate() {
        let is = |what: [bool; 3]| what.get(place).copied().unwrap_or(false);
        given.push(if let Some(instead) = instead.next().flatten() {
            instead
        } else if is(run) {
            duplicate(null.as_fd())?
        } else if is(operator) {
            // The operator's terminal itself never enters.
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(closed)?;
            let (inner, outer) = if place == 0 { (reader, writer) } else { (writer, reader) };
            if let Some(pipe) = pipes.get_mut(place) {
                *pipe = Some(outer);
            }
            inner
        } else {
            duplicate(fd)?
        });
    }
    let stdio: [OwnedFd; 3] = given.try_into().map_err(|_| closed(rustix::io::Errno::BADF))?;
    if operator == [false; 3] && run == [false; 3] {
        return Ok((None, stdio));
    }
    let size = standard
        .iter()
        .find_map(|fd| tcgetwinsize(fd).ok())
        .filter(|size| size.ws_row > 0 && size.ws_col > 0);
    let [in_terminal, out_terminal, _] = operator;
    let [run_in, ..] = run;
    let raw = run_in && in_terminal && out_terminal;
    let mode = TerminalMode {
        operator,
        run,
        raw,
        size: size.map_or(USUAL_SIZE, |size| WindowSize { rows: size.ws_row, columns: size.ws_col }),
    };
    let saved = if raw { tcgetattr(stdin()).ok() } else { None };
    Ok((Some(Joined { mode, pipes, saved }), stdio))
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, Trouble> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(closed)
}

fn closed(errno: rustix::io::Errno) -> Trouble {
    Trouble::new(
        Code::BadOption,
        format!(
            "standard input, output and error have to be open ({errno}); redirect them to /dev/null instead"
        ),
    )
}
