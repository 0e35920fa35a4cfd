//! What is done one after the other: events for the `notify` command, and sweeps.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ipc_proto::outside::FromOutside;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::super::order::MinderPlan;
use super::super::place::Swept;
use super::minders::{Minder, What};
use super::{Error, Outside, say, system};

/// How long the `notify` command may take for one event.
const NOTIFY_TIME: Duration = Duration::from_secs(30);

impl Outside {
    /// Starts the `notify` command for the oldest event, if it is not at work.
    pub(super) fn next_event(&mut self) -> Result<(), Error> {
        let is_notify = |minder: &Minder| matches!(minder.what, What::Notify { .. });
        while !self.minders.values().chain(&self.broken).any(is_notify) {
            let Some((event, memory)) = self.events.pop_front() else { return Ok(()) };
            // Whoever filled it may have left it at its end.
            let _ = seek(&memory, SeekFrom::Start(0));
            let plan = MinderPlan {
                argv: self.plan.notify.clone(),
                environment: self.plan.surroundings.environment.clone(),
                directory: c"/".to_owned(),
            };
            let errors = self.log.as_ref().map_or(self.null.as_fd(), AsFd::as_fd);
            match self.mind(&plan, [memory.as_fd(), self.null.as_fd(), errors]) {
                Ok((pid, channel)) => {
                    let what = What::Notify { event, until: Instant::now() + NOTIFY_TIME, asked: false };
                    self.minders.insert(pid, Minder::new(what, channel));
                }
                Err(error) => {
                    self.say(&format!("the notify command could not be started: {error}"));
                    self.channel.send(&FromOutside::Notified { event, well: false }, &[])?;
                }
            }
        }
        Ok(())
    }

    /// Begins the next sweep, beside everything else: there may be a great deal to remove.
    pub(super) fn next_sweep(&mut self) -> Result<(), Error> {
        if self.sweep.is_some() {
            return Ok(());
        }
        let Some(older_than) = self.sweeps.pop_front() else { return Ok(()) };
        let cloned = |file: &OwnedFd| {
            file.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))
        };
        let done = cloned(&self.sweeper).map_err(system("making a descriptor"))?;
        let (places, mut log) = (self.places.clone(), self.log.as_ref().and_then(|log| log.try_clone().ok()));
        let sweep = move || {
            let swept = places.sweep(Duration::from_millis(older_than), &mut |text| say(&mut log, text));
            // Its reader lives as long as the process.
            let _ = rustix::io::write(&done, b".");
            swept
        };
        let thread = std::thread::Builder::new().name("sweep".to_owned()).spawn(sweep);
        self.sweep = Some(thread.map_err(|error| {
            system("starting a thread")(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
        })?);
        Ok(())
    }

    pub(super) fn end_sweep(&mut self) -> Result<(), Error> {
        let _ = rustix::io::read(&self.swept, &mut [0; 1]);
        let Some(thread) = self.sweep.take() else { return Ok(()) };
        // A panic of it would have ended the process.
        let Swept { removed, left } = thread.join().unwrap_or_default();
        Ok(self.channel.send(&FromOutside::Swept { removed, left }, &[])?)
    }
}
