//! What the others say: one handler a channel. Whatever does not belong to the step at hand ends everything.

use super::*;

impl Foreground {
    pub(super) fn hear_launcher(&mut self) -> Result<(), Fatal> {
        let (message, descriptors) = match self.ends.launcher.try_receive()? {
            Received::Message(message, descriptors) => (message, descriptors),
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-launcher")),
        };
        let (job, probe) = (self.job.run, self.job.probe.as_ref().map(|probe| probe.run));
        let phase = self.phase;
        match &message {
            FromLauncher::Hello { own_pid_namespace, own_network, landlock, .. }
                if !self.told.launcher_hello =>
            {
                self.told.launcher_hello = true;
                if !own_pid_namespace || !own_network {
                    self.job.warnings.push(Code::LauncherNotApart);
                }
                self.walls = json!({
                    "own_pid_namespace": own_pid_namespace, "own_network": own_network, "landlock": landlock,
                });
                Ok(())
            }
            FromLauncher::Ready { run, .. }
                if Some(*run) == probe
                    && phase == Phase::Probing
                    && self.told.launcher_hello
                    && !self.told.probing =>
            {
                self.told.probing = true;
                Ok(self.ends.launcher.send(&ToLauncher::Go(*run), &[])?)
            }
            FromLauncher::Ready { run, endpoints, terminal }
                if *run == job
                    && phase == Phase::Starting
                    && self.told.launcher_hello
                    && *endpoints == self.job.plan.endpoints =>
            {
                self.open(*terminal, descriptors)
            }
            FromLauncher::Failed { run, failure } if Some(*run) == probe && phase == Phase::Probing => {
                self.unavailable = Some(unavailable(failure));
                self.phase = Phase::ProbeEnding;
                Ok(())
            }
            FromLauncher::Failed { run, failure }
                if *run == job && matches!(phase, Phase::Starting | Phase::Opening) =>
            {
                self.ended.get_or_insert(Ended::Failed(failure.code));
                self.unavailable = Some(unavailable(failure));
                self.begin_ending()
            }
            FromLauncher::Probed { run, failures } if Some(*run) == probe && phase == Phase::Probing => {
                self.unavailable = probe::trouble(failures);
                self.phase = Phase::ProbeEnding;
                Ok(())
            }
            FromLauncher::Stopped { run, .. } if *run == job && phase == Phase::Running => self.suspend(),
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
            FromLauncher::Closed { run, .. } if Some(*run) == probe && phase == Phase::ProbeEnding => {
                self.after_probe()
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
            | FromLauncher::Closed { .. } => Err(self.unexpected(&message)),
        }
    }

    fn after_probe(&mut self) -> Result<(), Fatal> {
        if self.unavailable.is_some() {
            self.phase = Phase::Ending;
            self.told.launcher_closed = true;
            return Ok(());
        }
        if let (Some(file), Some(probe)) = (&mut self.ends.probe_cache, &self.job.probe) {
            let text = probe::remember(&probe.key, SystemTime::now());
            // A result that cannot be kept costs the next run a probe, nothing else.
            let _ = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        }
        self.start_run()
    }

    pub(super) fn hear_proxy(&mut self) -> Result<(), Fatal> {
        let message = match self.ends.proxy.try_receive()? {
            Received::Message(message, _) => message,
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-proxy")),
        };
        let job = self.job.run;
        let serving = self.told.proxy_opened && !self.told.proxy_closed;
        match &message {
            FromProxy::Hello { .. } if !self.told.proxy_hello => {
                self.told.proxy_hello = true;
                Ok(())
            }
            FromProxy::Opened { run } if *run == job && self.told.proxy_open && !self.told.proxy_opened => {
                self.told.proxy_opened = true;
                self.go_if_ready()
            }
            FromProxy::Tunnel { run, report } if *run == job && serving => {
                match self.attempts.report(report, &mut self.violations) {
                    Taken::Contradiction => return Err(self.unexpected(&message)),
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
                self.ends.proxy.send(&answer, &[])?;
                if granted { Ok(()) } else { self.exhausted() }
            }
            FromProxy::WantBytes { run } if *run == job && serving && self.job.budget.bytes_out.is_some() => {
                let bytes = self.ledger.lease().unwrap_or(0);
                self.append("egress.leased", &json!({ "bytes": bytes, "remaining": self.remaining() }))?;
                self.ends.proxy.send(&ToProxy::Lease { run: job, bytes }, &[])?;
                if bytes > 0 { Ok(()) } else { self.exhausted() }
            }
            FromProxy::Recalled { run, unused } if *run == job && serving && self.told.recalling => {
                self.told.recalling = false;
                if !self.ledger.give_back(*unused) {
                    return Err(self.unexpected(&message));
                }
                self.append("egress.recalled", &json!({ "bytes": unused, "remaining": self.remaining() }))?;
                self.debit_requests()
            }
            FromProxy::Dialled(report) if self.job.model.is_some() => match self.requests.dialled(report) {
                Taken::Listed => {
                    let body = json!({
                        "decision": report.decision, "reason": report.reason.as_str(),
                        "addresses": report.addresses,
                    });
                    self.append("model.dialled", &body)
                }
                Taken::Counted | Taken::Contradiction => Ok(()),
            },
            FromProxy::Closed { run, totals, unused } if *run == job && serving => {
                if self.job.budget.bytes_out.is_some() && !self.ledger.give_back(*unused) {
                    return Err(self.unexpected(&message));
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
            | FromProxy::Closed { .. } => Err(self.unexpected(&message)),
        }
    }

    /// BUD-4: exhaustion is terminal.
    pub(super) fn exhausted(&mut self) -> Result<(), Fatal> {
        match self.ledger.exhausted() {
            Some(dimension) if self.phase == Phase::Running => self.end(Ended::Budget(dimension.as_str())),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn hear_terminal(&mut self) -> Result<(), Fatal> {
        let Some(channel) = &self.ends.terminal else { return Ok(()) };
        let message = match channel.try_receive()? {
            Received::Message(message, _) => message,
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-terminal")),
        };
        match &message {
            FromTerminal::Attached if self.told.attach_sent && !self.told.attached => {
                self.told.attached = true;
                self.go_if_ready()
            }
            FromTerminal::Suspended if self.suspending > 0 => {
                self.suspending -= 1;
                // What was continued meanwhile does not stop the guard any more.
                if self.stopped { self.word(Word::Stop) } else { Ok(()) }
            }
            FromTerminal::Finished if self.phase == Phase::Ending && !self.told.finished => {
                self.told.finished = true;
                Ok(())
            }
            FromTerminal::Attached | FromTerminal::Suspended | FromTerminal::Finished => {
                Err(self.unexpected(&message))
            }
        }
    }

    pub(super) fn hear_signals(&mut self) -> Result<(), Fatal> {
        while let Ok(Some(signal)) = self.signals.next() {
            let number = u8::try_from(signal as i32).unwrap_or(0);
            if matches!(self.phase, Phase::Starting | Phase::Opening) && is_last_word(signal) {
                // Not under way yet: there is nobody to pass it on to, and what was prepared is undone.
                self.end(Ended::Signal(number))?;
            }
            if self.phase != Phase::Running {
                continue;
            }
            if signal == Signal::SIGCONT {
                self.resume()?;
                continue;
            }
            self.ends.launcher.send(&ToLauncher::Signal(self.job.run, number), &[])?;
            let ends = matches!(signal, Signal::SIGTERM | Signal::SIGHUP)
                || (self.job.terminal.is_none() && matches!(signal, Signal::SIGINT | Signal::SIGQUIT));
            if ends {
                self.grace_ends.get_or_insert(Instant::now() + GRACE);
            }
        }
        Ok(())
    }

    fn suspend(&mut self) -> Result<(), Fatal> {
        // Without a terminal a stopped command is the operator's own doing, and nobody waits in a shell for it.
        if let Some(channel) = self.ends.terminal.as_ref().filter(|_| !self.stopped) {
            self.stopped = true;
            self.suspending += 1;
            channel.send(&ToTerminal::Suspend, &[])?;
        }
        Ok(())
    }

    fn resume(&mut self) -> Result<(), Fatal> {
        if let Some(channel) = self.ends.terminal.as_ref().filter(|_| self.stopped) {
            channel.send(&ToTerminal::Resume, &[])?;
        }
        self.stopped = false;
        Ok(self.ends.launcher.send(&ToLauncher::Resume(self.job.run), &[])?)
    }
}

/// Whoever sends it means the end, unless the command thinks otherwise.
fn is_last_word(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT)
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
