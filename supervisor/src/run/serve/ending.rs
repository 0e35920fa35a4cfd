//! The last of a run: its chain sealed, its record written, its operator told.

use super::super::answer::Told;
use super::*;

impl Foreground {
    /// The last of it: chain sealed, record written, the operator told.
    pub(super) fn finish(&mut self) -> Result<u8, Fatal> {
        if self.job.probe_only {
            return Ok(self.ended.map_or(0, Ended::exit_status));
        }
        let ended = self.tell_answer(self.ended.unwrap_or(Ended::Failed(Code::ProcessDied)))?;
        let record = self.record(ended);
        let sealed = self.seal(&record);
        let not_started = self.not_started(ended);
        self.say(&not_started);
        if !self.job.quiet {
            let text = summary::refusals(self.job.run, &record.egress);
            self.say(&text);
            let text = self.requests.refusals(self.job.run);
            self.say(&text);
        }
        if let Some(model) = &self.job.model {
            let text = self.requests.failures(self.job.run, model);
            self.say(&text);
        }
        if let Some(file) = &mut self.ends.record {
            let mut text = serde_json::to_vec(&record).map_err(std::io::Error::other)?;
            text.push(b'\n');
            // A pipe or a terminal cannot be cut, and needs not to be.
            let _ = file.set_len(0);
            file.write_all(&text)?;
        }
        sealed?;
        Ok(ended.exit_status())
    }

    /// The agent's answer, where one is read from its output. An agent that ends well without one has failed all the same.
    fn tell_answer(&mut self, ended: Ended) -> Result<Ended, Fatal> {
        let Some(mut output) = self.output.take() else { return Ok(ended) };
        let Ended::Status(status) = ended else { return Ok(ended) };
        match output.finish()? {
            Told::Answer => Ok(ended),
            Told::Nothing(why) => {
                self.say(&format!("anet: {}: {why}\n", self.job.agent));
                Ok(Ended::Status(status.max(1)))
            }
        }
    }

    /// The last lines of the chain.
    fn seal(&mut self, record: &Record) -> Result<(), Fatal> {
        let Some(mut chain) = self.chain.take() else { return Ok(()) };
        let body = json!({
            "exit": record.exit, "limits": record.limits, "budget": record.budget, "model": record.model,
            "egress": record.egress.len() as u64 + record.egress_omitted,
            "violations": record.violations.len() as u64 + record.violations_omitted,
            "ended": record.ended,
        });
        chain.append(SystemTime::now(), "run.ended", &body)?;
        Ok(chain.seal(SystemTime::now())?)
    }

    /// What a shell would say of a command that it cannot start.
    fn not_started(&self, ended: Ended) -> String {
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
