//! How many wait, of whom, and whose turn it is: kept in memory, made from the database at the start.

use std::collections::HashMap;

use ipc_proto::{Aid, InteractionId};
use rusqlite::Connection;

use super::{Bounds, InboxError};

/// A place in the line of peers: a peer's oldest task stands where it came, or where the peer had its last start, whichever is
/// later. So a peer with many tasks stands at the end again after each start, and whoever waits is passed by nobody for ever.
///
/// After a start of the node, tasks stand where they came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Turn {
    /// The number of the last task that had come.
    came: u64,
    /// The starts since the node's own.
    started: u64,
}

impl Turn {
    /// Where a task that came with this number stands.
    #[must_use]
    pub fn came(number: u64) -> Turn {
        Turn { came: number, started: 0 }
    }

    /// The place behind every other one that there is.
    #[must_use]
    pub fn after(self) -> Turn {
        Turn { came: self.came, started: self.started + 1 }
    }
}

/// What waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Waiting {
    tasks: u64,
    bytes: u64,
    /// Only peers of whom something waits.
    peers: HashMap<Aid, OfPeer>,
    /// The end of the line.
    last: Turn,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct OfPeer {
    tasks: u64,
    bytes: u64,
    turn: Turn,
}

impl Waiting {
    pub(super) fn load(connection: &Connection) -> Result<Waiting, InboxError> {
        let mut waiting = Waiting::default();
        let mut statement =
            connection.prepare("SELECT number, peer, task_bytes FROM interaction WHERE state = 'queued'")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (number, peer, bytes): (u64, String, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            waiting.add(number, &aid(peer)?, bytes);
        }
        Ok(waiting)
    }

    pub(super) fn tasks(&self) -> u64 {
        self.tasks
    }

    pub(super) fn turn(&self, peer: &Aid) -> Turn {
        self.peers.get(peer).map_or(Turn::default(), |of| of.turn)
    }

    /// Whether one more of this length may wait.
    pub(super) fn admits(&self, peer: &Aid, bytes: u64, bounds: &Bounds) -> Result<(), InboxError> {
        let of = self.peers.get(peer).copied().unwrap_or_default();
        if self.tasks >= bounds.waiting {
            return Err(InboxError::Full(bounds.waiting));
        }
        if of.tasks >= bounds.waiting_of_peer {
            return Err(InboxError::PeerFull(bounds.waiting_of_peer, peer.clone()));
        }
        if self.bytes.saturating_add(bytes) > bounds.bytes {
            return Err(InboxError::TooMuch { limit: bounds.bytes, of: " that wait" });
        }
        if of.bytes.saturating_add(bytes) > bounds.bytes_of_peer {
            return Err(InboxError::TooMuch { limit: bounds.bytes_of_peer, of: " that wait of this peer" });
        }
        Ok(())
    }

    pub(super) fn add(&mut self, number: u64, peer: &Aid, bytes: u64) {
        self.tasks += 1;
        self.bytes += bytes;
        self.last = self.last.max(Turn::came(number));
        let of = self.peers.entry(peer.clone()).or_default();
        of.tasks += 1;
        of.bytes += bytes;
    }

    /// One waits no longer; `started`: since it runs.
    pub(super) fn remove(&mut self, peer: &Aid, bytes: u64, started: bool) {
        self.tasks = self.tasks.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        if started {
            self.last = self.last.after();
        }
        let Some(of) = self.peers.get_mut(peer) else { return };
        of.tasks = of.tasks.saturating_sub(1);
        of.bytes = of.bytes.saturating_sub(bytes);
        if started {
            of.turn = self.last;
        }
        // The next task of this peer comes with a number that is behind any turn.
        if of.tasks == 0 {
            self.peers.remove(peer);
        }
    }
}

pub(super) fn aid(text: String) -> Result<Aid, InboxError> {
    Aid::try_from(text).map_err(|error| InboxError::Damaged(error.to_string()))
}

pub(super) fn interaction_id(text: String) -> Result<InteractionId, InboxError> {
    InteractionId::try_from(text).map_err(|error| InboxError::Damaged(error.to_string()))
}
