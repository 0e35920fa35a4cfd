//! What the others say: one handler a channel. Whatever does not belong to the step at hand ends everything.

use super::*;

impl Run {
    pub(crate) fn hear_launcher(
        &mut self,
        message: &FromLauncher,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Fatal> {
        let (job, phase) = (self.job.run, self.phase);
        match message {
            FromLauncher::Ready { run, endpoints, terminal }
                if *run == job && phase == Phase::Starting && *endpoints == self.job.plan.endpoints =>
            {
                self.open(*terminal, descriptors)
            }
            FromLauncher::Failed { run, failure }
                if *run == job && matches!(phase, Phase::Starting | Phase::Opening) =>
            {
                self.ended.get_or_insert(Ended::Failed(failure.code));
                self.unavailable = Some(unavailable(failure));
                self.begin_ending()
            }
            FromLauncher::Stopped { run, .. } if *run == job && phase == Phase::Running => {
                self.events.push_back(Event::Stopped);
                Ok(())
            }
            FromLauncher::Over { run, exceeded } if *run == job && phase == Phase::Running => {
                let limit = match exceeded {
                    Exceeded::Growth => LimitName::Growth,
                    Exceeded::Memory => LimitName::Memory,
                };
                // What is exceeded says more than the command's end, which it caused.
                if !matches!(self.ended, Some(Ended::Limit(_) | Ended::Budget(_))) {
                    self.ended = Some(Ended::Limit(limit.as_str()));
                }
                Ok(())
            }
            FromLauncher::Exited { run, exit }
                if *run == job && matches!(phase, Phase::Starting | Phase::Opening | Phase::Running) =>
            {
                self.told.exited = true;
                self.ended.get_or_insert(ended(*exit));
                self.begin_ending()
            }
            FromLauncher::Closed { run, used } if *run == job && phase == Phase::Ending => {
                self.used = *used;
                self.told.launcher_closed = true;
                Ok(())
            }
            FromLauncher::Hello { .. }
            | FromLauncher::Ready { .. }
            | FromLauncher::Failed { .. }
            | FromLauncher::Probed { .. }
            | FromLauncher::Stopped { .. }
            | FromLauncher::Over { .. }
            | FromLauncher::Exited { .. }
            | FromLauncher::Swept { .. }
            | FromLauncher::Closed { .. } => Err(self.unexpected(message)),
        }
    }

    pub(crate) fn hear_proxy(&mut self, message: &FromProxy) -> Result<(), Fatal> {
        let job = self.job.run;
        let serving = self.told.proxy_opened && !self.told.proxy_closed;
        match message {
            FromProxy::Opened { run } if *run == job && self.told.proxy_open && !self.told.proxy_opened => {
                self.told.proxy_opened = true;
                self.go_if_ready()
            }
            FromProxy::Tunnel { run, report } if *run == job && serving => {
                match self.attempts.report(report, &mut self.violations) {
                    Taken::Contradiction => return Err(self.unexpected(message)),
                    Taken::Counted => return Ok(()),
                    Taken::Listed => {}
                }
                let body = json!({
                    "attempt": report.attempt, "host": report.host, "port": report.port, "class": report.class,
                    "decision": report.decision, "reason": report.reason.as_str(), "addresses": report.addresses,
                    "bytes_out": report.bytes_out, "bytes_in": report.bytes_in, "ended": report.ended,
                });
                self.append("egress.decided", &body)
            }
            FromProxy::WantDestination { run, attempt, host }
                if *run == job
                    && serving
                    && self.job.budget.destinations.is_some()
                    && self.job.hosts.contains(host) =>
            {
                let granted = self.ledger.destination(host);
                let body = json!({
                    "destination": host, "class": "third_party", "granted": granted, "remaining": self.remaining(),
                });
                self.append("egress.debited", &body)?;
                let answer = ToProxy::Destination { run: job, attempt: *attempt, granted };
                self.lines.proxy.send(&answer, &[])?;
                if granted { Ok(()) } else { self.exhausted() }
            }
            FromProxy::WantBytes { run } if *run == job && serving && self.job.budget.bytes_out.is_some() => {
                let bytes = self.ledger.lease().unwrap_or(0);
                self.append("egress.leased", &json!({ "bytes": bytes, "remaining": self.remaining() }))?;
                self.lines.proxy.send(&ToProxy::Lease { run: job, bytes }, &[])?;
                if bytes > 0 { Ok(()) } else { self.exhausted() }
            }
            FromProxy::Recalled { run, unused } if *run == job && serving && self.told.recalling => {
                self.told.recalling = false;
                if !self.ledger.give_back(*unused) {
                    return Err(self.unexpected(message));
                }
                self.append("egress.recalled", &json!({ "bytes": unused, "remaining": self.remaining() }))?;
                self.debit_requests()
            }
            FromProxy::Closed { run, totals, unused } if *run == job && serving => {
                if self.job.budget.bytes_out.is_some() && !self.ledger.give_back(*unused) {
                    return Err(self.unexpected(message));
                }
                self.attempts.totals = *totals;
                self.told.proxy_closed = true;
                Ok(())
            }
            FromProxy::Hello { .. }
            | FromProxy::Opened { .. }
            | FromProxy::Tunnel { .. }
            | FromProxy::WantDestination { .. }
            | FromProxy::WantBytes { .. }
            | FromProxy::Recalled { .. }
            | FromProxy::Dialled(_)
            | FromProxy::Closed { .. } => Err(self.unexpected(message)),
        }
    }

    /// A connection to the run's service was made, or failed: it may have been another run's, and is listed all the same.
    pub(crate) fn dialled(&mut self, report: &DialReport) -> Taken {
        match self.job.model {
            Some(_) => self.requests.dialled(report),
            None => Taken::Counted,
        }
    }
}

fn ended(exit: Option<Exit>) -> Ended {
    match exit {
        Some(Exit::Status(status)) => Ended::Status(status),
        Some(Exit::Signal(signal)) => Ended::Signal(signal),
        Some(Exit::NotFound) => Ended::NotFound,
        Some(Exit::NotExecutable) => Ended::NotExecutable,
        // Ended with its whole sandbox, by nobody's order: somebody killed it from outside.
        None => Ended::Signal(u8::try_from(rustix::process::Signal::KILL.as_raw()).unwrap_or(9)),
    }
}

fn unavailable(failure: &Failure) -> Trouble {
    Trouble::new(failure.code, explain::with_detail(failure.code, &failure.text))
}
