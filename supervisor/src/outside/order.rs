//! `anet-outside` and its minders.

use std::ffi::CString;

use ipc_proto::Message;
use ipc_proto::init::Exit;
use serde::{Deserialize, Serialize};

/// The word that makes `anet-outside` a minder.
pub const MINDER: &str = "mind";

/// What becomes 0, 1 and 2 of a program, in its minder.
pub const STDIO: [i32; 3] = [6, 7, 8];

/// What a minder starts, in sealed memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MinderPlan {
    /// The program as it was written, and its arguments.
    pub argv: Vec<CString>,
    /// Its whole environment, as `NAME=value`.
    pub environment: Vec<CString>,
    /// Where it starts; absolute.
    pub directory: CString,
}

/// To a minder. The end of the channel means: kill everything at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToMinder {
    /// End the program and all that it started.
    End,
}

/// From a minder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromMinder {
    /// The program runs.
    Started,
    /// It could not be started: why, at most [`super::starting::MAX_TEXT`] bytes.
    Failed(String),
    /// It has ended, and so has everything that it started.
    Exited(Exit),
}

impl Message for ToMinder {
    const DIRECTION: &'static str = "anet-outside to its minder";

    fn descriptors(&self) -> usize {
        match self {
            ToMinder::End => 0,
        }
    }
}

impl Message for FromMinder {
    const DIRECTION: &'static str = "a minder to anet-outside";

    fn descriptors(&self) -> usize {
        match self {
            FromMinder::Started | FromMinder::Failed(_) | FromMinder::Exited(_) => 0,
        }
    }
}
