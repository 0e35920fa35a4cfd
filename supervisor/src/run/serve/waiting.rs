//! Its one loop's waiting: for whoever has something to say, and for the clocks.

use super::*;

/// Who can have something to say; heard in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Launcher,
    Proxy,
    Broker,
    Output,
    Terminal,
    Signals,
}

impl Foreground {
    pub(super) fn wait(&mut self) -> Result<(), Fatal> {
        let ready = {
            let (ends, signals) = (&self.ends, self.signals.as_fd());
            let all = [
                (Source::Launcher, Some(ends.launcher.as_fd())),
                (Source::Proxy, Some(ends.proxy.as_fd())),
                (Source::Broker, ends.broker.as_ref().map(AsFd::as_fd)),
                (Source::Output, self.output.as_ref().and_then(Output::waits)),
                (Source::Terminal, ends.terminal.as_ref().map(AsFd::as_fd)),
                (Source::Signals, Some(signals)),
            ];
            let (sources, waits): (Vec<Source>, Vec<_>) =
                all.into_iter().filter_map(|(source, fd)| Some((source, fd?))).unzip();
            let mut fds: Vec<PollFd<'_>> =
                waits.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
            let timeout = self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
            // A time beyond the kernel's is no time-out.
            let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Fatal::System { what: "waiting", errno }),
            }
            let ready = sources.into_iter().zip(fds).filter(|(_, fd)| !fd.revents().is_empty());
            ready.map(|(source, _)| source).collect::<Vec<Source>>()
        };
        for source in ready {
            match source {
                Source::Launcher => self.hear_launcher()?,
                Source::Proxy => self.hear_proxy()?,
                Source::Broker => self.hear_broker()?,
                Source::Output => self.output.iter_mut().for_each(Output::read),
                Source::Terminal => self.hear_terminal()?,
                Source::Signals => self.hear_signals()?,
            }
        }
        self.look_at_clocks()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let running = self.phase == Phase::Running && !self.told.asked_to_end;
        let phase = (!running).then_some(self.phase_ends);
        let clocks = [self.wall_ends, self.window_ends].into_iter().flatten().filter(|_| running);
        phase.into_iter().chain(clocks).chain(self.grace_ends).chain(self.commit_due).min()
    }

    pub(super) fn look_at_clocks(&mut self) -> Result<(), Fatal> {
        let now = Instant::now();
        let is_over = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_over(self.commit_due) {
            self.sync()?;
        }
        if self.phase != Phase::Running || self.told.asked_to_end {
            if self.phase_ends <= now {
                return Err(Fatal::Late(match self.phase {
                    Phase::Probing | Phase::ProbeEnding => "the probe of the sandbox did not end in time",
                    Phase::Starting | Phase::Opening => "the sandbox did not start in time",
                    Phase::Running | Phase::Ending => {
                        "the run's processes or directories could not be removed in time"
                    }
                }));
            }
            return Ok(());
        }
        if is_over(self.grace_ends) {
            self.grace_ends = None;
            let signal = Ended::Signal(u8::try_from(rustix::process::Signal::KILL.as_raw()).unwrap_or(9));
            self.end(signal)?;
        }
        if !self.told.asked_to_end && is_over(self.wall_ends) {
            self.end(Ended::Limit(LimitName::WallClock.as_str()))?;
        } else if !self.told.asked_to_end && is_over(self.window_ends) {
            self.ledger.window_over();
            self.end(Ended::Budget("window"))?;
        }
        Ok(())
    }
}
