//! The last of a run: its record, and the last line of its evidence.

use super::*;

impl Run {
    /// How it ended, as far as is known.
    pub(crate) fn ended(&self) -> Ended {
        self.ended.unwrap_or(Ended::Failed(Code::ProcessDied))
    }

    /// Its record, and the last line of its evidence (`run.ended` or `run.interrupted`), on disk before anybody acts on it (EVI-1).
    pub(crate) fn close(&mut self, kind: &str, ended: Ended) -> (Record, Result<(), Fatal>) {
        let record = self.record(ended);
        let body = json!({
            "exit": record.exit, "limits": record.limits, "budget": record.budget, "model": record.model,
            "egress": record.egress.len() as u64 + record.egress_omitted,
            "violations": record.violations.len() as u64 + record.violations_omitted,
            "ended": record.ended,
        });
        let closed = self.append(kind, &body).and_then(|()| Ok(self.journal.close()?));
        (record, closed)
    }

    /// What a shell would say of a command that it cannot start.
    pub(in super::super) fn not_started(&self, ended: Ended) -> String {
        let why = match ended {
            Ended::NotFound => "not found in the sandbox, which sees /usr and what --ro or --rw opens",
            Ended::NotExecutable => "cannot be executed in the sandbox",
            Ended::Status(_) | Ended::Signal(_) | Ended::Limit(_) | Ended::Budget(_) | Ended::Failed(_) => {
                return String::new();
            }
        };
        let Purpose::Command(command) = &self.job.plan.purpose else { return String::new() };
        let name = command.argv.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        format!("anet: {}: {why}\n", one_line(&name))
    }

    fn record(&mut self, ended: Ended) -> Record {
        let elapsed =
            self.began.map_or(0, |began| u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let (totals, asked) = (self.attempts.totals, self.requests.totals);
        let reached = self.job.model.as_ref().map(|model| self.requests.egress(&model.upstream));
        let used = |name: LimitName| match name {
            LimitName::Memory => self.used.memory.unwrap_or(0),
            LimitName::Tasks => self.used.tasks.unwrap_or(0),
            LimitName::Growth => self.used.growth.unwrap_or(0),
            LimitName::TunnelsOpen => totals.open,
            LimitName::TunnelsTotal => totals.total,
            LimitName::TunnelSent => totals.sent,
            LimitName::TunnelReceived => totals.received,
            LimitName::EndpointConnections => totals.connections.max(asked.connections),
            LimitName::WallClock => elapsed,
            LimitName::ModelRequests => asked.requests,
            LimitName::RequestBody => asked.body,
            LimitName::RequestTotal => asked.total,
            // Of each answer alone, and the service's to count.
            LimitName::OutputTokens => 0,
        };
        let limits = (self.job.limits.iter())
            .map(|(name, limit)| (name.as_str(), Bound { limit, used: used(name) }))
            .collect();
        let budget = [
            ("destinations", self.job.budget.destinations, self.ledger.destinations()),
            ("bytes_out", self.job.budget.bytes_out, self.ledger.bytes_out()),
            ("window", self.job.budget.window, elapsed),
        ];
        Record {
            run: self.job.run.to_string(),
            agent: self.job.agent.clone(),
            started: rfc3339(at_unix_ms(self.job.started)),
            ended: rfc3339(SystemTime::now()),
            exit: ended.to_json(),
            limits,
            budget: (budget.into_iter())
                .filter_map(|(name, limit, used)| Some((name, Bound { limit: limit?, used })))
                .collect(),
            model: Model {
                requests: asked.requests,
                refused: asked.refused,
                rules: std::mem::take(&mut self.requests.refused),
                omitted: self.requests.omitted,
            },
            egress: reached.into_iter().flatten().chain(std::mem::take(&mut self.attempts.list)).collect(),
            egress_omitted: self.attempts.omitted,
            violations: std::mem::take(&mut self.violations.list),
            violations_omitted: self.violations.omitted,
            warnings: self.job.warnings.iter().map(|code| code.as_str()).collect(),
        }
    }
}
