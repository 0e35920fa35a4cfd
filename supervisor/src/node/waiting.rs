//! The node's one loop's waiting: for whoever has something to say, and for the clocks.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::clients::ClientId;
use super::*;

/// Who can have something to say; heard in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Launcher,
    Proxy,
    Broker,
    Outside,
    Output(RunId),
    Signals,
    Processes,
    Door,
    Client(ClientId),
}

impl Node {
    pub(super) fn wait(&mut self) -> Result<(), Fatal> {
        let timeout = self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        for source in self.ready(timeout)? {
            match source {
                Source::Launcher => self.hear_launcher()?,
                Source::Proxy => self.hear_proxy()?,
                Source::Broker => self.hear_broker()?,
                Source::Outside => self.hear_outside()?,
                Source::Output(run) => self.desk.read(run),
                Source::Signals => self.hear_signals()?,
                Source::Processes => self.hear_processes(),
                Source::Door => self.clients.accept(),
                Source::Client(client) => self.hear_client(client)?,
            }
        }
        self.look_at_clocks()
    }

    fn ready(&self, timeout: Option<Duration>) -> Result<Vec<Source>, Fatal> {
        let fixed: [(Source, Option<BorrowedFd<'_>>); 7] = [
            (Source::Launcher, Some(self.lines.launcher.as_fd())),
            (Source::Proxy, Some(self.lines.proxy.as_fd())),
            (Source::Broker, self.lines.broker.as_ref().map(AsFd::as_fd)),
            (Source::Outside, self.desk.outside()),
            (Source::Signals, Some(self.signals.as_fd())),
            (Source::Processes, self.processes_from.as_ref().map(AsFd::as_fd)),
            (Source::Door, self.clients.listener()),
        ];
        let outputs = self.desk.outputs().map(|(run, fd)| (Source::Output(run), fd));
        let clients = self.clients.descriptors().map(|(id, fd)| (Source::Client(id), fd));
        let fixed = fixed.into_iter().filter_map(|(source, fd)| Some((source, fd?)));
        let (sources, waits): (Vec<Source>, Vec<_>) = fixed.chain(outputs).chain(clients).unzip();
        let mut fds: Vec<PollFd<'_>> =
            waits.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        match poll(&mut fds, timeout.and_then(|left| Timespec::try_from(left).ok()).as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(Fatal::System { what: "waiting", errno }),
        }
        let ready = sources.into_iter().zip(fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(source, _)| source).collect())
    }

    /// At the end: for the broker alone.
    pub(super) fn wait_for_broker(&mut self, until: Instant) -> Result<(), Fatal> {
        let Some(channel) = &self.lines.broker else { return Ok(()) };
        let mut fds = [PollFd::new(channel, PollFlags::IN)];
        let left = until.saturating_duration_since(Instant::now());
        let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
        let [fd] = fds;
        if fd.revents().is_empty() { Ok(()) } else { self.hear_broker() }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let due = self.store.as_ref().ok().and_then(|store| store.evidence.borrow().commit_due());
        let (sandbox, clients) = (self.sandbox.deadline(), self.clients.deadline());
        let clocks = [Some(self.scan_at), self.desk.next_deadline(), sandbox, clients, due, self.store_again];
        clocks.into_iter().flatten().min()
    }

    fn look_at_clocks(&mut self) -> Result<(), Fatal> {
        let now = Instant::now();
        self.sandbox.look_at_clocks(now)?;
        self.desk.look_at_clocks(now)?;
        self.clients.look_at_clocks(now);
        let due = self.store.as_ref().ok().and_then(|store| store.evidence.borrow().commit_due());
        if due.is_some_and(|due| due <= now) {
            self.sync()?;
        }
        if self.store_again.is_some_and(|at| at <= now) {
            // What could not be opened is tried again by a new life, which takes everything up from the start.
            self.store_again = None;
            self.anew = true;
        }
        Ok(())
    }
}
