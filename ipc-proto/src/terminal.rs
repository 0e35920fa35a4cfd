//! Supervisor and the terminal process, which joins the operator's terminal to a run's own pseudo-terminal.
//!
//! `Attach`, `Attached`; `Suspend`, `Suspended`, `Resume` as often as the program stops; `Finish`, `Finished`.

use serde::{Deserialize, Serialize};

use crate::channel::Message;
use crate::init::WindowSize;

/// How the operator's descriptors and the run's are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TerminalMode {
    /// Which of the operator's 0, 1 and 2 are terminals.
    pub operator: [bool; 3],
    /// Which of the run's 0, 1 and 2 are its pseudo-terminal; the others go around the terminal process.
    pub run: [bool; 3],
    /// The operator's terminal is put into raw mode, so that every key reaches the run.
    pub raw: bool,
    /// Rows and columns at the start.
    pub size: WindowSize,
}

/// Supervisor to terminal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToTerminal {
    /// Join (one descriptor: the outer end of the run's pseudo-terminal; /dev/null where the run has none and is
    /// joined by the pipes that the process was started with).
    Attach(TerminalMode),
    /// The program stopped: give the operator's terminal back.
    Suspend,
    /// It goes on: take the terminal again.
    Resume,
    /// The program has ended: pass on what is left of its output, and give the terminal back.
    Finish,
}

/// Terminal to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromTerminal {
    /// Joined: the program can start.
    Attached,
    /// The operator has the terminal back.
    Suspended,
    /// Everything is passed on, and the operator has the terminal back.
    Finished,
}

impl Message for ToTerminal {
    const DIRECTION: &'static str = "supervisor to terminal";
    fn descriptors(&self) -> usize {
        match self {
            ToTerminal::Attach(_) => 1,
            ToTerminal::Suspend | ToTerminal::Resume | ToTerminal::Finish => 0,
        }
    }
}

impl Message for FromTerminal {
    const DIRECTION: &'static str = "terminal to supervisor";
    fn descriptors(&self) -> usize {
        match self {
            FromTerminal::Attached | FromTerminal::Suspended | FromTerminal::Finished => 0,
        }
    }
}
