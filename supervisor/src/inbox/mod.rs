//! The inbox: tasks and what became of them, durable (ACC-1, ACC-2).
//!
//! One SQLite database, `inbox.db`, in a directory of its own; one process, the node's supervisor, has it for as long as it
//! lives. What a call changes is on disk when it returns, all of it or nothing. A change that an interaction's state does not
//! allow is refused by the statement that would make it.
//!
//! ```text
//! submit → queued → begin → running → finish → answered | refused | exhausted | interrupted
//!            └────── refuse ──────────────────────────────→ refused       ↑
//!                               running, at the node's start ─────────────┘
//! ```

mod error;
mod open;
mod prune;
mod read;
mod schema;
mod waiting;
mod write;

#[cfg(test)]
mod tests;

use std::path::Path;

use ipc_proto::control::{Outcome, Refusal, State};
use ipc_proto::{Aid, InteractionId};
use rusqlite::Connection;

pub use error::InboxError;
pub use prune::Pruned;
pub use waiting::Turn;

use waiting::Waiting;

/// The database's file name.
pub const DATABASE: &str = "inbox.db";

/// What the inbox takes at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Waiting tasks.
    pub waiting: u64,
    /// Waiting tasks of one peer.
    pub waiting_of_peer: u64,
    /// Their texts, bytes.
    pub bytes: u64,
    /// The texts of one peer, bytes.
    pub bytes_of_peer: u64,
    /// The database, for a task to be taken, bytes.
    pub database: u64,
    /// The database, for answers and records of what was taken, bytes.
    pub reserve: u64,
}

impl Bounds {
    /// Those of a node. One peer cannot take all the room that there is for everybody.
    pub const NODE: Bounds = Bounds {
        waiting: 10_000,
        waiting_of_peer: 1_000,
        bytes: 512 * 1024 * 1024,
        bytes_of_peer: 64 * 1024 * 1024,
        database: 4 * 1024 * 1024 * 1024,
        reserve: 6 * 1024 * 1024 * 1024,
    };
}

/// The inbox of a node.
#[derive(Debug)]
pub struct Inbox {
    connection: Connection,
    bounds: Bounds,
    waiting: Waiting,
    /// The disk failed: nothing is written any more.
    lost: Option<String>,
}

/// A task that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    /// The same task was there already.
    pub known: bool,
    /// Its number: counts the tasks of the node from 1.
    pub number: u64,
}

/// A task that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queued {
    /// Its number.
    pub number: u64,
    /// Its name.
    pub interaction: InteractionId,
    /// Whose.
    pub peer: Aid,
    /// When it came, milliseconds since 1970.
    pub submitted_ms: u64,
    /// The length of its text.
    pub task_bytes: u64,
    /// Where its peer stands in the line.
    pub turn: Turn,
}

/// How a task is run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Way {
    /// An agent in the sandbox.
    Sandbox,
    /// An agent as the operator, for a trusted peer only.
    Direct,
    /// The node itself asks the model.
    Openai,
}

impl Way {
    /// As it is printed and kept.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Way::Sandbox => "sandbox",
            Way::Direct => "direct",
            Way::Openai => "openai",
        }
    }
}

/// How an interaction ends: with an answer if it is answered, with a refusal otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending<'a> {
    /// A final state.
    pub state: State,
    /// The agent's text.
    pub answer: Option<&'a str>,
    /// What the peer is told in its place.
    pub refusal: Option<&'a Refusal>,
}

/// What is known of an interaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Known {
    /// It came to its end.
    Final(Outcome),
    /// It waits or runs.
    Open,
    /// There is none of that name.
    No,
}

impl Inbox {
    /// Opens the inbox in `dir`, a directory that nobody else can use; makes it where there is none.
    ///
    /// # Errors
    /// [`InboxError::InUse`] when another process has it and does not let go within two seconds. [`InboxError::Newer`] and
    /// [`InboxError::Damaged`] leave the file as it is. [`InboxError::Unusable`] and [`InboxError::NoSpace`].
    pub fn open(dir: &Path) -> Result<Inbox, InboxError> {
        Inbox::open_with(dir, schema::STEPS, Bounds::NODE)
    }

    fn open_with(dir: &Path, steps: &[&str], bounds: Bounds) -> Result<Inbox, InboxError> {
        let connection = open::open(dir, steps, bounds.reserve)?;
        let waiting = Waiting::load(&connection)?;
        Ok(Inbox { connection, bounds, waiting, lost: None })
    }
}
