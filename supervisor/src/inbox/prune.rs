//! Removing what is too old: texts, answers and runs of interactions that ended long ago.

use std::time::{Duration, Instant};

use super::write::time;
use super::{Inbox, InboxError};

/// Interactions that are removed in one transaction.
const BATCH: u64 = 64;
/// Bytes of texts that are removed in one transaction, if it is more than one interaction: each is overwritten.
const BYTES: u64 = 8 * 1024 * 1024;
/// How long one call may take, but for the batch that is under way: meanwhile the node does nothing else.
const LONGEST: Duration = Duration::from_millis(50);
/// Free pages that stay in the file for what comes next.
const SPARE: u64 = 1024;
/// Free pages that are given back to the file system in one go.
const PAGES: u64 = 2048;

/// What was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pruned {
    /// Interactions.
    pub removed: u64,
    /// There is more to do: ask again soon.
    pub more: bool,
}

impl Inbox {
    /// Removes interactions that ended longer ago than `retention_ms`, with all that belongs to them, and overwrites where it
    /// stood. It takes a short time and leaves the rest for the next call.
    ///
    /// # Errors
    /// What the disk says.
    pub fn prune(&mut self, now_ms: u64, retention_ms: u64) -> Result<Pruned, InboxError> {
        let begun = Instant::now();
        let before = time(now_ms.saturating_sub(retention_ms));
        let mut removed = 0;
        loop {
            let batch = self.remove_some(before)?;
            removed += batch;
            if batch == 0 {
                let more = self.give_back(removed > 0)?;
                return Ok(Pruned { removed, more });
            }
            if begun.elapsed() >= LONGEST {
                return Ok(Pruned { removed, more: true });
            }
        }
    }

    /// Removes the interactions that ended longest ago, in one transaction. Says how many.
    pub(super) fn remove_some(&mut self, before: i64) -> Result<u64, InboxError> {
        let (mut removed, mut bytes) = (0, 0);
        let numbers = self.ended(before)?;
        if numbers.is_empty() {
            return Ok(0);
        }
        self.change(|transaction| {
            for (number, length) in numbers {
                if removed > 0 && bytes + length > BYTES {
                    break;
                }
                bytes += length;
                removed += transaction.execute("DELETE FROM interaction WHERE number = ?", [number])? as u64;
            }
            Ok(removed)
        })
    }

    /// The interactions that ended longest ago, and how many bytes each has.
    fn ended(&self, before: i64) -> Result<Vec<(i64, u64)>, InboxError> {
        let mut statement = self.connection.prepare(
            "SELECT number, task_bytes
                 + coalesce((SELECT octet_length(text) FROM answer WHERE answer.number = interaction.number), 0)
                 + (SELECT coalesce(sum(octet_length(record)), 0) FROM run WHERE interaction = interaction.number)
             FROM interaction WHERE ended < ? ORDER BY ended, number LIMIT ?",
        )?;
        let rows = statement.query_map((before, BATCH), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The file has the room of what was removed, and its log the texts. True: there is more room to give back.
    fn give_back(&mut self, removed: bool) -> Result<bool, InboxError> {
        let free = self.free_pages()?.saturating_sub(SPARE);
        if free > 0 {
            let mut statement =
                self.connection.prepare(&format!("PRAGMA incremental_vacuum({})", free.min(PAGES)))?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
        }
        if free > 0 || removed {
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        }
        Ok(free > PAGES)
    }

    fn free_pages(&self) -> Result<u64, InboxError> {
        Ok(self.connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?)
    }
}
