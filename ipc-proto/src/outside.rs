//! Supervisor and `anet-outside`, the process that starts what runs outside of the sandbox: an agent for a trusted peer
//! (`direct`), and the operator's `notify` command.
//!
//! The programs and their environment are in its plan, which the guard took from the configuration at the start. The
//! supervisor says which of them to start and passes standard streams; it can name no program and no argument.

use std::ffi::CString;

use serde::{Deserialize, Serialize};

use crate::channel::Message;
use crate::ids::{Aid, InteractionId, RunId};
use crate::init::Exit;

/// Supervisor to outside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToOutside {
    /// Start the agent for a task (three descriptors: the task in sealed memory, as `bulk` of `Vec<u8>`; what becomes 1 and 2).
    Direct {
        /// Which run.
        run: RunId,
        /// Whose task.
        peer: Aid,
        /// Which task.
        interaction: InteractionId,
    },
    /// End it and whatever it started.
    End {
        /// Which run.
        run: RunId,
    },
    /// Start the operator's command with this event (one descriptor: sealed memory that becomes its 0).
    Notify {
        /// Counts the events.
        event: u64,
    },
    /// Remove direct runs' work directories whose last run ended longer ago than this.
    Sweep {
        /// Milliseconds.
        older_than: u64,
    },
}

/// Outside to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromOutside {
    /// First word.
    Hello,
    /// The agent runs.
    Started {
        /// Which run.
        run: RunId,
    },
    /// It could not be started.
    Failed {
        /// Which run.
        run: RunId,
        /// Why, at most 1 KiB.
        text: String,
    },
    /// It has ended, and no process of it is left.
    Exited {
        /// Which run.
        run: RunId,
        /// How.
        exit: Exit,
    },
    /// The command has ended, or was ended for taking too long.
    Notified {
        /// Which event.
        event: u64,
        /// It ended with status 0.
        well: bool,
    },
    /// A sweep has ended.
    Swept {
        /// Directories that were removed.
        removed: u64,
        /// Directories that should have been removed and could not.
        left: u64,
    },
}

/// Where a `direct` agent works, and what the operator's environment is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Surroundings {
    /// `ROOT/PEER/INTERACTION/work` is where a task's agent works.
    pub root: CString,
    /// The whole environment of the programs, as `NAME=value`.
    pub environment: Vec<CString>,
}

impl Message for ToOutside {
    const DIRECTION: &'static str = "supervisor to outside";

    fn descriptors(&self) -> usize {
        match self {
            ToOutside::Direct { .. } => 3,
            ToOutside::Notify { .. } => 1,
            ToOutside::End { .. } | ToOutside::Sweep { .. } => 0,
        }
    }
}

impl Message for FromOutside {
    const DIRECTION: &'static str = "outside to supervisor";

    fn descriptors(&self) -> usize {
        match self {
            FromOutside::Hello
            | FromOutside::Started { .. }
            | FromOutside::Failed { .. }
            | FromOutside::Exited { .. }
            | FromOutside::Notified { .. }
            | FromOutside::Swept { .. } => 0,
        }
    }
}
