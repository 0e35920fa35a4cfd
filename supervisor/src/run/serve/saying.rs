//! What it says: words to the guard, lines to the operator, records to the chain.

use super::*;

impl Foreground {
    pub(super) fn unexpected<M: Message>(&self, message: &M) -> Fatal {
        ChannelError::unexpected(message, self.phase.as_str()).into()
    }

    /// What the budget leaves after a debit (BUD-6).
    pub(super) fn remaining(&self) -> Value {
        let (destinations, bytes_out) = self.ledger.remaining();
        json!({ "destinations": destinations, "bytes_out": bytes_out })
    }

    pub(super) fn word(&mut self, word: Word) -> Result<(), Fatal> {
        self.ends.guard.write_all(&[word.byte()]).map_err(|_| Fatal::Gone("the guard"))
    }

    pub(super) fn say(&mut self, text: &str) {
        // Where nobody can hear it there is nobody to tell that.
        let _ = self.ends.log.write_all(text.as_bytes());
    }

    pub(super) fn append(&mut self, kind: &str, body: &Value) -> Result<(), Fatal> {
        if let Some(chain) = &mut self.chain {
            chain.append(SystemTime::now(), kind, body)?;
            self.commit_due.get_or_insert(Instant::now() + COMMIT);
        }
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<(), Fatal> {
        self.commit_due = None;
        match &self.chain {
            Some(chain) => Ok(chain.sync()?),
            None => Ok(()),
        }
    }
    /// What a run may use, as its first line says it; of the command only size and hash (EVI-4).
    pub(super) fn admission(&self) -> Value {
        let limits: BTreeMap<&str, u64> =
            self.job.limits.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let mut hasher = Sha256::new();
        let mut bytes = 0;
        if let Purpose::Command(command) = &self.job.plan.purpose {
            for argument in &command.argv {
                hasher.update(argument.as_bytes_with_nul());
                bytes += argument.as_bytes_with_nul().len();
            }
        }
        json!({
            "run": self.job.run.to_string(),
            "agent": self.job.agent,
            "started": rfc3339(at_unix_ms(self.job.started)),
            "operator": self.job.operator,
            "user": self.job.user,
            "command": { "bytes": bytes, "sha256": hex(&hasher.finalize()) },
            "egress_allow": self.job.hosts,
            "model": self.job.model.as_ref().map(|model| json!({
                "service": model.upstream.to_string(), "model": model.policy.model,
            })),
            "limits": limits,
            "budget": {
                "destinations": self.job.budget.destinations,
                "bytes_out": self.job.budget.bytes_out,
                "window": self.job.budget.window,
            },
            "warnings": self.job.warnings.iter().map(|code| code.as_str()).collect::<Vec<_>>(),
        })
    }
}
