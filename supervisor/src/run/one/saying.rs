//! What it says of itself in the evidence.

use super::*;

impl Run {
    pub(super) fn unexpected<M: Message>(&self, message: &M) -> Fatal {
        ChannelError::unexpected(message, self.phase.as_str()).into()
    }

    /// What the budget leaves after a debit (BUD-6).
    pub(super) fn remaining(&self) -> Value {
        let (destinations, bytes_out) = self.ledger.remaining();
        json!({ "destinations": destinations, "bytes_out": bytes_out })
    }

    pub(super) fn append(&mut self, kind: &str, body: &Value) -> Result<(), Fatal> {
        Ok(self.journal.append(kind, body)?)
    }

    /// When [`Run::commit`] has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.journal.due()
    }

    /// EVI-1: what was decided is on disk soon.
    pub(crate) fn commit(&mut self, now: Instant) -> Result<(), Fatal> {
        match self.journal.due() {
            Some(due) if due <= now => Ok(self.journal.sync()?),
            Some(_) | None => Ok(()),
        }
    }

    /// A connection to the model's service, in the evidence.
    pub(in super::super) fn journal_dial(&mut self, report: &DialReport) -> Result<(), Fatal> {
        let body = json!({
            "decision": report.decision, "reason": report.reason.as_str(), "addresses": report.addresses,
        });
        self.append("model.dialled", &body)
    }

    /// Which walls hold for the launcher.
    pub(in super::super) fn stands_on(&mut self, walls: Value, apart: bool) {
        self.walls = walls;
        if !apart {
            self.job.warnings.push(Code::LauncherNotApart);
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
        let mut body = json!({
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
        });
        if let (Some(body), Some(origin)) = (body.as_object_mut(), self.origin.as_object()) {
            body.extend(origin.clone());
        }
        body
    }
}
