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
            let (lines, signals) = (&self.lines, self.signals.as_fd());
            let all = [
                (Source::Launcher, Some(lines.launcher.as_fd())),
                (Source::Proxy, Some(lines.proxy.as_fd())),
                (Source::Broker, lines.broker.as_ref().map(AsFd::as_fd)),
                (Source::Output, self.output.as_ref().and_then(Output::waits)),
                (Source::Terminal, self.terminal.as_ref().map(AsFd::as_fd)),
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

    fn next_deadline(&self) -> Option<Instant> {
        let run = self.run.as_ref().and_then(Run::next_deadline);
        let due = self.run.as_ref().and_then(Run::due);
        let trial = self.trial.as_ref().map(Trial::deadline);
        run.into_iter().chain(due).chain(trial).chain(self.grace_ends).min()
    }

    fn look_at_clocks(&mut self) -> Result<(), Fatal> {
        let now = Instant::now();
        if let Some(trial) = &self.trial {
            trial.look_at_clocks(now)?;
        }
        let Some(run) = &mut self.run else { return Ok(()) };
        run.commit(now)?;
        if self.grace_ends.is_some_and(|at| at <= now) {
            self.grace_ends = None;
            let signal = Ended::Signal(u8::try_from(rustix::process::Signal::KILL.as_raw()).unwrap_or(9));
            run.end(signal)?;
        }
        run.look_at_clocks(now)?;
        self.take_events()
    }
}
