//! What the others say, before it goes to the run.

use super::*;

impl Foreground {
    pub(super) fn hear_launcher(&mut self) -> Result<(), Fatal> {
        let (message, descriptors) = match self.lines.launcher.try_receive()? {
            Received::Message(message, descriptors) => (message, descriptors),
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-launcher")),
        };
        if let FromLauncher::Hello { own_pid_namespace, own_network, landlock, .. } = &message {
            if self.told.launcher_hello {
                return Err(self.unexpected(&message));
            }
            self.told.launcher_hello = true;
            let apart = *own_pid_namespace && *own_network;
            let walls = json!({
                "own_pid_namespace": own_pid_namespace, "own_network": own_network, "landlock": landlock,
            });
            if !apart {
                self.job.warnings.push(Code::LauncherNotApart);
            }
            match &mut self.run {
                Some(run) => run.stands_on(walls, apart),
                None => self.walls = walls,
            }
            return Ok(());
        }
        if !self.told.launcher_hello {
            return Err(self.unexpected(&message));
        }
        if let Some(trial) = &mut self.trial {
            return match trial.hear(&message, &self.lines)? {
                None => Ok(()),
                Some(Err(trouble)) => Err(Fatal::Unavailable(trouble)),
                Some(Ok(())) => self.after_probe(),
            };
        }
        match &mut self.run {
            Some(run) => run.hear_launcher(&message, descriptors)?,
            None => return Err(self.unexpected(&message)),
        }
        self.take_events()
    }

    fn after_probe(&mut self) -> Result<(), Fatal> {
        self.trial = None;
        if let (Some(file), Some(probe)) = (&mut self.probe_cache, &self.job.probe) {
            let text = probe::remember(&probe.key, SystemTime::now());
            // A result that cannot be kept costs the next run a probe, nothing else.
            let _ = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        }
        self.start_run()
    }

    pub(super) fn hear_proxy(&mut self) -> Result<(), Fatal> {
        let message = match self.lines.proxy.try_receive()? {
            Received::Message(message, _) => message,
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-proxy")),
        };
        match (&message, &mut self.run) {
            (FromProxy::Hello { .. }, _) if !self.told.proxy_hello => {
                self.told.proxy_hello = true;
                return Ok(());
            }
            (FromProxy::Dialled(report), Some(run)) if self.job.model.is_some() => {
                match run.dialled(report) {
                    Taken::Listed => run.journal_dial(report)?,
                    Taken::Counted | Taken::Contradiction => {}
                }
            }
            (_, Some(run)) => run.hear_proxy(&message)?,
            (_, None) => return Err(self.unexpected(&message)),
        }
        self.take_events()
    }

    pub(super) fn hear_broker(&mut self) -> Result<(), Fatal> {
        let Some(channel) = &self.lines.broker else { return Ok(()) };
        let (message, descriptors) = match channel.try_receive()? {
            Received::Message(message, descriptors) => (message, descriptors),
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-broker")),
        };
        match (&message, &mut self.run, &self.job.model) {
            (ipc_proto::broker::FromBroker::Hello { key, roots, .. }, _, Some(model))
                if !self.told.broker_hello =>
            {
                self.told.broker_hello = true;
                return super::super::requests::check_broker(model, *key, *roots).map_err(Fatal::Unavailable);
            }
            (_, Some(run), _) => run.hear_broker(&message, &descriptors)?,
            (_, None, _) => return Err(self.unexpected(&message)),
        }
        self.take_events()
    }

    pub(super) fn hear_terminal(&mut self) -> Result<(), Fatal> {
        let Some(channel) = &self.terminal else { return Ok(()) };
        let message = match channel.try_receive()? {
            Received::Message(message, _) => message,
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-terminal")),
        };
        match (&message, &mut self.run) {
            (FromTerminal::Attached, Some(run)) if self.told.attach_sent && !self.told.attached => {
                self.told.attached = true;
                run.attached()?;
                self.take_events()
            }
            (FromTerminal::Suspended, _) if self.suspending > 0 => {
                self.suspending -= 1;
                // What was continued meanwhile does not stop the guard any more.
                if self.stopped { self.word(Word::Stop) } else { Ok(()) }
            }
            (FromTerminal::Finished, Some(run)) if run.phase() == Phase::Ending && !self.told.finished => {
                self.told.finished = true;
                Ok(())
            }
            (FromTerminal::Attached | FromTerminal::Suspended | FromTerminal::Finished, _) => {
                Err(self.unexpected(&message))
            }
        }
    }

    pub(super) fn hear_signals(&mut self) -> Result<(), Fatal> {
        while let Ok(Some(signal)) = self.signals.next() {
            let Some(run) = &mut self.run else { continue };
            let number = u8::try_from(signal as i32).unwrap_or(0);
            if matches!(run.phase(), Phase::Starting | Phase::Opening) && is_last_word(signal) {
                // Not under way yet: there is nobody to pass it on to, and what was prepared is undone.
                run.end(Ended::Signal(number))?;
            }
            if run.phase() != Phase::Running {
                continue;
            }
            if signal == Signal::SIGCONT {
                self.resume()?;
                continue;
            }
            self.lines.launcher.send(&ToLauncher::Signal(self.job.run, number), &[])?;
            let ends = matches!(signal, Signal::SIGTERM | Signal::SIGHUP)
                || (self.job.terminal.is_none() && matches!(signal, Signal::SIGINT | Signal::SIGQUIT));
            if ends {
                self.grace_ends.get_or_insert(Instant::now() + GRACE);
            }
        }
        self.take_events()
    }

    pub(super) fn suspend(&mut self) -> Result<(), Fatal> {
        // Without a terminal a stopped command is the operator's own doing, and nobody waits in a shell for it.
        if let Some(channel) = self.terminal.as_ref().filter(|_| !self.stopped) {
            self.stopped = true;
            self.suspending += 1;
            channel.send(&ToTerminal::Suspend, &[])?;
        }
        Ok(())
    }

    fn resume(&mut self) -> Result<(), Fatal> {
        if let Some(channel) = self.terminal.as_ref().filter(|_| self.stopped) {
            channel.send(&ToTerminal::Resume, &[])?;
        }
        self.stopped = false;
        Ok(self.lines.launcher.send(&ToLauncher::Resume(self.job.run), &[])?)
    }
}

/// Whoever sends it means the end, unless the command thinks otherwise.
fn is_last_word(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT)
}
