//! What changes an interaction. Each call is one transaction.

use ipc_proto::control::{MAX_TASK, Refusal, State};
use ipc_proto::{Aid, InteractionId, RunId};
use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, named_params};

use super::waiting::{aid, interaction_id};
use super::{Ending, Inbox, InboxError, Submitted, Way};

/// A waiting task that waits no longer.
struct Gone {
    peer: Aid,
    bytes: u64,
}

impl Inbox {
    /// Takes a task; `sha256` is that of its text. It is on disk when this returns.
    ///
    /// # Errors
    /// [`InboxError::OtherTask`] when the name is known with another text or peer; [`InboxError::BadTask`];
    /// [`InboxError::Full`], [`InboxError::PeerFull`] and [`InboxError::TooMuch`] when no more are taken; what the disk says.
    pub fn submit(
        &mut self,
        now_ms: u64,
        peer: &Aid,
        interaction: &InteractionId,
        task: &[u8],
        sha256: &[u8; 32],
    ) -> Result<Submitted, InboxError> {
        if task.is_empty() || task.len() > MAX_TASK {
            return Err(InboxError::BadTask(task.len()));
        }
        let bytes = task.len() as u64;
        if let Some((number, same)) = self.look_up(interaction, peer, bytes, sha256)? {
            let known = Submitted { known: true, number };
            return if same { Ok(known) } else { Err(InboxError::OtherTask(interaction.clone())) };
        }
        self.waiting.admits(peer, bytes, &self.bounds)?;
        if self.used()?.saturating_add(bytes) > self.bounds.database {
            return Err(InboxError::TooMuch { limit: self.bounds.database, of: "" });
        }
        let number = self.change(|transaction| {
            transaction
                .prepare(
                    "INSERT INTO interaction (id, peer, state, submitted, task_bytes, task_sha256)
                     VALUES (:id, :peer, 'queued', :now, :bytes, :sha256)",
                )?
                .execute(named_params! {
                    ":id": interaction.as_str(), ":peer": peer.as_str(), ":now": time(now_ms), ":bytes": bytes,
                    ":sha256": sha256,
                })?;
            let number = transaction.last_insert_rowid();
            transaction
                .prepare("INSERT INTO task (number, text) VALUES (?, ?)")?
                .execute((number, task))?;
            Ok(number.unsigned_abs())
        })?;
        self.waiting.add(number, peer, bytes);
        Ok(Submitted { known: false, number })
    }

    /// A waiting task's run begins. `trusted`: how its peer was seen when it was decided.
    ///
    /// # Errors
    /// [`InboxError::Unknown`] and [`InboxError::NotInState`]; [`InboxError::OtherRun`] when the run's name was used before;
    /// what the disk says.
    pub fn begin(
        &mut self,
        interaction: &InteractionId,
        run: RunId,
        way: Way,
        trusted: bool,
        now_ms: u64,
    ) -> Result<(), InboxError> {
        let gone = self.change(|transaction| {
            let changed = transaction
                .prepare(
                    "UPDATE interaction SET state = 'running', trusted = ?
                     WHERE id = ? AND state = 'queued' RETURNING number, peer, task_bytes",
                )?
                .query_row((trusted, interaction.as_str()), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?;
            let Some((number, peer, bytes)) = changed else { return Err(refused(transaction, interaction)) };
            let number: i64 = number;
            let begun = transaction
                .prepare(
                    "INSERT INTO run (id, interaction, way, started) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                )?
                .execute((run.to_string(), number, way.as_str(), time(now_ms)))?;
            if begun != 1 {
                return Err(InboxError::OtherRun(interaction.clone()));
            }
            Ok(Gone { peer: aid(peer)?, bytes })
        })?;
        self.waiting.remove(&gone.peer, gone.bytes, true);
        Ok(())
    }

    /// A running interaction ends, with its run's record, as JSON text.
    ///
    /// # Errors
    /// [`InboxError::Unknown`] and [`InboxError::NotInState`]; [`InboxError::BadEnding`]; [`InboxError::OtherRun`] when that is
    /// not its open run; what the disk says.
    pub fn finish(
        &mut self,
        interaction: &InteractionId,
        now_ms: u64,
        ending: &Ending<'_>,
        record: Option<(RunId, &str)>,
    ) -> Result<(), InboxError> {
        let fits = match ending.state {
            State::Queued | State::Running => false,
            State::Answered => ending.answer.is_some() && ending.refusal.is_none(),
            State::Refused | State::Exhausted | State::Interrupted => {
                ending.answer.is_none() && ending.refusal.is_some()
            }
        };
        if !fits {
            return Err(InboxError::BadEnding(ending.state));
        }
        self.change(|transaction| {
            let number =
                end(transaction, interaction, State::Running, now_ms, None, ending.state, ending.refusal)?;
            let Some((number, _)) = number else { return Err(refused(transaction, interaction)) };
            if let Some(answer) = ending.answer {
                transaction
                    .prepare("INSERT OR REPLACE INTO answer (number, text) VALUES (?, ?)")?
                    .execute((number, answer))?;
            }
            let (run, record) = record.map(|(run, record)| (run.to_string(), record)).unzip();
            let ended = transaction
                .prepare(
                    "UPDATE run SET ended = ?, record = ?
                     WHERE interaction = ? AND ended IS NULL AND id = coalesce(?, id)",
                )?
                .execute((time(now_ms), record, number, run))?;
            if ended == 1 { Ok(()) } else { Err(InboxError::OtherRun(interaction.clone())) }
        })
    }

    /// A waiting task is refused without a run.
    ///
    /// # Errors
    /// [`InboxError::Unknown`] and [`InboxError::NotInState`]; what the disk says.
    pub fn refuse(
        &mut self,
        interaction: &InteractionId,
        now_ms: u64,
        trusted: bool,
        refusal: &Refusal,
    ) -> Result<(), InboxError> {
        self.refuse_all(now_ms, [(interaction, trusted, refusal)])
    }

    /// Waiting tasks are refused without a run, all of them or none.
    ///
    /// # Errors
    /// As [`Inbox::refuse`].
    pub fn refuse_all<'a>(
        &mut self,
        now_ms: u64,
        refusals: impl IntoIterator<Item = (&'a InteractionId, bool, &'a Refusal)>,
    ) -> Result<(), InboxError> {
        let gone = self.change(|transaction| {
            let mut gone = Vec::new();
            for (interaction, trusted, refusal) in refusals {
                let ended = end(
                    transaction,
                    interaction,
                    State::Queued,
                    now_ms,
                    Some(trusted),
                    State::Refused,
                    Some(refusal),
                )?;
                gone.push(ended.ok_or_else(|| refused(transaction, interaction))?.1);
            }
            Ok(gone)
        })?;
        for Gone { peer, bytes } in gone {
            self.waiting.remove(&peer, bytes, false);
        }
        Ok(())
    }

    /// At the node's start: whatever ran when it ended is interrupted. Says what that was.
    ///
    /// # Errors
    /// What the disk says.
    pub fn interrupted(
        &mut self,
        now_ms: u64,
        refusal: &Refusal,
    ) -> Result<Vec<(InteractionId, RunId)>, InboxError> {
        self.change(|transaction| {
            let mut interrupted = Vec::new();
            let mut statement = transaction.prepare(
                "SELECT interaction.id, run.id FROM interaction JOIN run ON run.interaction = interaction.number
                 WHERE interaction.state = 'running' AND run.ended IS NULL ORDER BY interaction.number",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let run: String = row.get(1)?;
                let run = run.parse().map_err(|error| InboxError::Damaged(format!("{error}")))?;
                interrupted.push((interaction_id(row.get(0)?)?, run));
            }
            for (interaction, _) in &interrupted {
                end(transaction, interaction, State::Running, now_ms, None, State::Interrupted, Some(refusal))?;
            }
            transaction.execute("UPDATE run SET ended = ? WHERE ended IS NULL", [time(now_ms)])?;
            Ok(interrupted)
        })
    }

    /// Number of the interaction of this name, and whether it is this task of this peer.
    fn look_up(
        &self,
        interaction: &InteractionId,
        peer: &Aid,
        bytes: u64,
        sha256: &[u8; 32],
    ) -> Result<Option<(u64, bool)>, InboxError> {
        let found = self
            .connection
            .prepare(
                "SELECT number, peer = ? AND task_bytes = ? AND task_sha256 = ? FROM interaction WHERE id = ?",
            )?
            .query_row((peer.as_str(), bytes, sha256, interaction.as_str()), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        Ok(found)
    }

    /// Bytes of the database that are in use.
    fn used(&self) -> Result<u64, InboxError> {
        let of = |pragma| self.connection.pragma_query_value(None, pragma, |row| row.get::<_, u64>(0));
        Ok(of("page_count")?.saturating_sub(of("freelist_count")?).saturating_mul(of("page_size")?))
    }

    /// One transaction: on disk when this returns, or nothing of it is there.
    pub(super) fn change<T>(
        &mut self,
        act: impl FnOnce(&Transaction<'_>) -> Result<T, InboxError>,
    ) -> Result<T, InboxError> {
        if let Some(words) = &self.lost {
            return Err(InboxError::Lost(words.clone()));
        }
        let done = (|| {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = act(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })();
        // A disk that failed to take what it was given may say that all is well the next time.
        if let Err(InboxError::Lost(words)) = &done {
            self.lost = Some(words.clone());
        }
        done
    }
}

/// An interaction comes to its end, from the state that it has to be in. None: it is not in that state.
fn end(
    transaction: &Transaction<'_>,
    interaction: &InteractionId,
    from: State,
    now_ms: u64,
    trusted: Option<bool>,
    to: State,
    refusal: Option<&Refusal>,
) -> Result<Option<(i64, Gone)>, InboxError> {
    let ended = transaction
        .prepare(
            "UPDATE interaction SET state = :to, ended = :now, trusted = coalesce(:trusted, trusted),
                 code = :code, kind = :kind, until = :until, sentence = :sentence
             WHERE id = :id AND state = :from RETURNING number, peer, task_bytes",
        )?
        .query_row(
            named_params! {
                ":id": interaction.as_str(), ":from": from.as_str(), ":to": to.as_str(), ":now": time(now_ms),
                ":trusted": trusted, ":code": refusal.map(|refusal| &refusal.code),
                ":kind": refusal.and_then(|refusal| refusal.kind.as_ref()),
                ":until": refusal.and_then(|refusal| refusal.until.as_ref()),
                ":sentence": refusal.map(|refusal| &refusal.sentence),
            },
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let Some((number, peer, bytes)) = ended else { return Ok(None) };
    Ok(Some((number, Gone { peer: aid(peer)?, bytes })))
}

/// Why nothing was changed.
fn refused(transaction: &Transaction<'_>, interaction: &InteractionId) -> InboxError {
    let state = transaction
        .query_row("SELECT state FROM interaction WHERE id = ?", [interaction.as_str()], |row| {
            row.get::<_, String>(0)
        })
        .optional();
    match state.map(|state| state.as_deref().map(State::parse)) {
        Ok(Some(Some(found))) => InboxError::NotInState { interaction: interaction.clone(), found },
        Ok(Some(None)) => InboxError::Damaged("an interaction is in no state".to_owned()),
        Ok(None) => InboxError::Unknown(interaction.clone()),
        Err(error) => error.into(),
    }
}

/// A time as it is kept.
pub(super) fn time(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
