//! What is asked of the inbox.

use ipc_proto::InteractionId;
use ipc_proto::control::{MAX_ROWS, Outcome, Refusal, Row, RunStory, State, Story};
use rusqlite::OptionalExtension;
use sha2::{Digest, Sha256};

use super::waiting::{aid, interaction_id};
use super::{Inbox, InboxError, Known, Queued};
use crate::chain::{at_unix_ms, rfc3339};

/// The columns of [`Head`].
macro_rules! head {
    ($rest:literal) => {
        concat!(
            "SELECT number, id, peer, trusted, state, submitted, ended, task_bytes, code, kind, until, sentence FROM \
             interaction ",
            $rest
        )
    };
}

/// An interaction without its texts.
struct Head {
    row: Row,
    number: i64,
    task_bytes: u64,
    refusal: Option<Refusal>,
}

impl Inbox {
    /// How many tasks wait.
    ///
    /// # Errors
    /// None so far.
    pub fn queued_count(&self) -> Result<u64, InboxError> {
        Ok(self.waiting.tasks())
    }

    /// The tasks that wait, oldest first.
    ///
    /// # Errors
    /// What the disk says.
    pub fn waiting(&self) -> Result<Vec<Queued>, InboxError> {
        let mut statement = self.connection.prepare(
            "SELECT number, id, peer, submitted, task_bytes FROM interaction WHERE state = 'queued' ORDER BY number",
        )?;
        let mut rows = statement.query([])?;
        let mut waiting = Vec::with_capacity(usize::try_from(self.waiting.tasks()).unwrap_or(0));
        while let Some(row) = rows.next()? {
            let peer = aid(row.get(2)?)?;
            let turn = self.waiting.turn(&peer);
            waiting.push(Queued {
                number: row.get(0)?,
                interaction: interaction_id(row.get(1)?)?,
                peer,
                submitted_ms: row.get(3)?,
                task_bytes: row.get(4)?,
                turn,
            });
        }
        Ok(waiting)
    }

    /// A task's text, as it was submitted.
    ///
    /// # Errors
    /// [`InboxError::Unknown`]; [`InboxError::Damaged`] when it is no longer what it was; what the disk says.
    pub fn task(&self, interaction: &InteractionId) -> Result<Vec<u8>, InboxError> {
        let found: Option<(Vec<u8>, [u8; 32])> = self
            .connection
            .prepare("SELECT text, task_sha256 FROM task JOIN interaction USING (number) WHERE id = ?")?
            .query_row([interaction.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let (text, sha256) = found.ok_or_else(|| InboxError::Unknown(interaction.clone()))?;
        // SQLite has no checksums of its own: an agent gets what was sent, or nothing.
        if <[u8; 32]>::from(Sha256::digest(&text)) != sha256 {
            return Err(InboxError::Damaged(format!("the text of {interaction} is not what was submitted")));
        }
        Ok(text)
    }

    /// Interactions, newest first: those before the one with this number, at most so many and at most [`MAX_ROWS`].
    ///
    /// # Errors
    /// What the disk says.
    pub fn rows(&self, before: Option<u64>, most: u16) -> Result<Vec<Row>, InboxError> {
        let before = before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
        let mut statement =
            self.connection.prepare(head!("WHERE number < ? ORDER BY number DESC LIMIT ?"))?;
        let mut rows = statement.query((before, most.min(MAX_ROWS)))?;
        let mut list = Vec::new();
        while let Some(row) = rows.next()? {
            list.push(head(row)?.row);
        }
        Ok(list)
    }

    /// An interaction, or the one of a run, whole. A name that both have is the interaction's.
    ///
    /// # Errors
    /// What the disk says.
    pub fn story(&self, id: &str) -> Result<Option<Story>, InboxError> {
        let of_run = head!("WHERE number = (SELECT interaction FROM run WHERE id = ?)");
        let found = match self.find(head!("WHERE id = ?"), id)? {
            Some(head) => Some(head),
            None => self.find(of_run, id)?,
        };
        let Some(Head { row, number, task_bytes, refusal }) = found else { return Ok(None) };
        let task: Vec<u8> = self
            .connection
            .prepare("SELECT text FROM task WHERE number = ?")?
            .query_row([number], |row| row.get(0))?;
        let task = String::from_utf8(task)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let mut statement = self
            .connection
            .prepare("SELECT id, way, started, record FROM run WHERE interaction = ? ORDER BY number")?;
        let runs = statement
            .query_map([number], |row| {
                Ok(RunStory {
                    run: row.get(0)?,
                    way: row.get(1)?,
                    started: shown(row.get(2)?),
                    record: row.get(3)?,
                })
            })?
            .collect::<Result<_, _>>()?;
        let answer = self.answer(number)?;
        Ok(Some(Story { interaction: row, task_bytes, task, answer, refusal, runs }))
    }

    /// How an interaction ended, if it has.
    ///
    /// # Errors
    /// What the disk says.
    pub fn outcome(&self, interaction: &InteractionId) -> Result<Known, InboxError> {
        let Some(Head { row, number, refusal, .. }) =
            self.find(head!("WHERE id = ?"), interaction.as_str())?
        else {
            return Ok(Known::No);
        };
        if !row.state.is_final() {
            return Ok(Known::Open);
        }
        let answer = self.answer(number)?;
        Ok(Known::Final(Outcome { interaction: row.id, state: row.state, answer, refusal }))
    }

    fn find(&self, query: &str, id: &str) -> Result<Option<Head>, InboxError> {
        let mut statement = self.connection.prepare(query)?;
        let mut rows = statement.query([id])?;
        rows.next()?.map(head).transpose()
    }

    fn answer(&self, number: i64) -> Result<Option<String>, InboxError> {
        let mut statement = self.connection.prepare("SELECT text FROM answer WHERE number = ?")?;
        Ok(statement.query_row([number], |row| row.get(0)).optional()?)
    }
}

fn head(row: &rusqlite::Row<'_>) -> Result<Head, InboxError> {
    let state: String = row.get("state")?;
    let state = State::parse(&state)
        .ok_or_else(|| InboxError::Damaged("an interaction is in no state".to_owned()))?;
    let number: i64 = row.get("number")?;
    let code: Option<String> = row.get("code")?;
    let refusal = match &code {
        Some(code) => Some(Refusal {
            code: code.clone(),
            kind: row.get("kind")?,
            until: row.get("until")?,
            sentence: row.get("sentence")?,
        }),
        None => None,
    };
    let ended: Option<u64> = row.get("ended")?;
    Ok(Head {
        number,
        task_bytes: row.get("task_bytes")?,
        refusal,
        row: Row {
            number: number.unsigned_abs(),
            id: row.get("id")?,
            peer: row.get("peer")?,
            trusted: row.get("trusted")?,
            state,
            code,
            submitted: shown(row.get("submitted")?),
            ended: ended.map(shown),
        },
    })
}

/// A time as it is shown: RFC 3339, UTC.
fn shown(ms: u64) -> String {
    /// The last one of the year 9999: RFC 3339 has no later years.
    const LAST: u64 = 253_402_300_799_999;
    rfc3339(at_unix_ms(ms.min(LAST)))
}
