//! One run: its list, its limits, what it has used, and what the supervisor is told of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ipc_proto::limits::LimitName;
use ipc_proto::proxy::{Debits, FromProxy, Reason, TunnelLimits, TunnelReport, TunnelTotals};
use ipc_proto::{HostName, RunId};
use tokio::sync::{OnceCell, mpsc, oneshot, watch};

use crate::gauge::{Gauge, Place};
use crate::meter::{Direction, Meter, Unasked};

/// Where messages to the supervisor wait. It is short: a run whose attempts come faster than they can be recorded waits.
pub type Outbox = mpsc::Sender<FromProxy>;

/// A run that is served.
#[derive(Debug)]
pub struct Run {
    id: RunId,
    hosts: Vec<HostName>,
    limits: TunnelLimits,
    debits: Debits,
    outbox: Outbox,
    /// What its tunnels carry.
    pub meter: Meter,
    connections: Rc<Gauge>,
    open: Rc<Gauge>,
    total: Cell<u64>,
    attempts: Cell<u32>,
    /// Each destination is asked for once, however many tunnels want it.
    destinations: RefCell<BTreeMap<HostName, Rc<OnceCell<bool>>>>,
    questions: RefCell<BTreeMap<u32, oneshot::Sender<bool>>>,
    closing: watch::Sender<bool>,
}

impl Run {
    /// A run with nothing used.
    #[must_use]
    pub fn new(
        id: RunId,
        hosts: Vec<HostName>,
        limits: TunnelLimits,
        debits: Debits,
        outbox: Outbox,
    ) -> Self {
        Run {
            id,
            hosts,
            limits,
            debits,
            outbox,
            meter: Meter::new(limits.sent, limits.received, debits.bytes_out),
            connections: Gauge::new(limits.connections),
            open: Gauge::new(limits.open),
            total: Cell::new(0),
            attempts: Cell::new(0),
            destinations: RefCell::default(),
            questions: RefCell::default(),
            closing: watch::Sender::new(false),
        }
    }

    /// The allowed hosts.
    #[must_use]
    pub fn hosts(&self) -> &[HostName] {
        &self.hosts
    }

    /// The entry that a requested name is, exactly (EGR-3).
    #[must_use]
    pub fn listed(&self, name: &str) -> Option<&HostName> {
        self.hosts.iter().find(|entry| entry.as_str() == name)
    }

    /// The value of the limit that a reason names.
    #[must_use]
    pub fn limit(&self, reason: Reason) -> Option<u64> {
        match reason.limit()? {
            LimitName::EndpointConnections => self.limits.connections,
            LimitName::TunnelsOpen => self.limits.open,
            LimitName::TunnelsTotal => self.limits.total,
            LimitName::TunnelSent => self.limits.sent,
            LimitName::TunnelReceived => self.limits.received,
            LimitName::Memory
            | LimitName::Tasks
            | LimitName::Growth
            | LimitName::ModelRequests
            | LimitName::RequestBody
            | LimitName::RequestTotal
            | LimitName::OutputTokens
            | LimitName::WallClock => None,
        }
    }

    /// A place for a connection.
    ///
    /// # Errors
    /// The limit.
    pub fn enter_connection(&self) -> Result<Place, Reason> {
        self.connections.enter().ok_or(Reason::LimitEndpointConnections)
    }

    /// A place for a tunnel that is about to be opened. It counts in all only once it stands.
    ///
    /// # Errors
    /// The limit, also one of bytes that is used up: such a tunnel could carry nothing.
    pub fn enter_tunnel(&self) -> Result<TunnelPlace<'_>, Reason> {
        if let Some(reason) = self.meter.spent() {
            return Err(reason);
        }
        let total = self.total.get() + 1;
        if self.limits.total.is_some_and(|limit| total > limit) {
            return Err(Reason::LimitTunnelsTotal);
        }
        let place = self.open.enter().ok_or(Reason::LimitTunnelsOpen)?;
        self.total.set(total);
        Ok(TunnelPlace { run: self, stands: false, _place: place })
    }

    /// The next attempt's number, from 1.
    pub fn next_attempt(&self) -> u32 {
        self.attempts.set(self.attempts.get().saturating_add(1));
        self.attempts.get()
    }

    /// Debits a destination before its name is looked up, where a budget asks for that.
    ///
    /// # Errors
    /// [`Reason::Budget`].
    pub async fn debit_destination(&self, attempt: u32, host: &HostName) -> Result<(), Reason> {
        if !self.debits.destinations {
            return Ok(());
        }
        let cell = Rc::clone(self.destinations.borrow_mut().entry(host.clone()).or_default());
        let granted = cell.get_or_init(|| self.ask_for_destination(attempt, host.clone())).await;
        if *granted { Ok(()) } else { Err(Reason::Budget) }
    }

    async fn ask_for_destination(&self, attempt: u32, host: HostName) -> bool {
        let (answer, granted) = oneshot::channel();
        self.questions.borrow_mut().insert(attempt, answer);
        self.tell(FromProxy::WantDestination { run: self.id, attempt, host }).await;
        // No answer is no.
        granted.await.unwrap_or(false)
    }

    /// The supervisor's answer to a question for a destination.
    ///
    /// # Errors
    /// Nobody asked.
    pub fn answer_destination(&self, attempt: u32, granted: bool) -> Result<(), Unasked> {
        let question = self.questions.borrow_mut().remove(&attempt).ok_or(Unasked)?;
        // Whoever asked may be gone with its run.
        let _ = question.send(granted);
        Ok(())
    }

    /// Asks for more bytes to lease.
    pub async fn ask_for_bytes(&self) {
        self.tell(FromProxy::WantBytes { run: self.id }).await;
    }

    /// Reports an attempt.
    pub async fn report(&self, report: TunnelReport) {
        self.tell(FromProxy::Tunnel { run: self.id, report }).await;
    }

    /// Says that everything of the run has ended.
    pub async fn report_closed(&self) {
        let totals = TunnelTotals {
            open: self.open.peak(),
            total: self.total.get(),
            sent: self.meter.used(Direction::Out),
            received: self.meter.used(Direction::In),
            connections: self.connections.peak(),
        };
        self.tell(FromProxy::Closed { run: self.id, totals, unused: self.meter.unused() }).await;
    }

    async fn tell(&self, message: FromProxy) {
        // Without a supervisor the process is about to end: there is nobody to tell.
        let _ = self.outbox.send(message).await;
    }

    /// Ends everything of the run.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Waits for the run's end.
    pub async fn closed(&self) {
        // The sender lives in this very run: it cannot be gone.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }
}

/// A tunnel's place.
#[derive(Debug)]
pub struct TunnelPlace<'a> {
    run: &'a Run,
    stands: bool,
    _place: Place,
}

impl TunnelPlace<'_> {
    /// The tunnel stands, and counts from now on.
    pub fn stands(&mut self) {
        self.stands = true;
    }
}

impl Drop for TunnelPlace<'_> {
    fn drop(&mut self) {
        if !self.stands {
            self.run.total.set(self.run.total.get().saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(limits: TunnelLimits) -> (Run, mpsc::Receiver<FromProxy>) {
        let (outbox, inbox) = mpsc::channel(8);
        let hosts = vec!["api.example.com".parse().unwrap(), "xn--bcher-kva.example".parse().unwrap()];
        let debits = Debits { destinations: true, bytes_out: None };
        (Run::new(RunId::new(1, [0; 4]), hosts, limits, debits, outbox), inbox)
    }

    /// EGR-3, table A 2, 6 to 9, 18: the list is compared exactly.
    #[test]
    fn the_list_is_compared_exactly() {
        let (run, _inbox) = run(TunnelLimits::default());
        assert!(run.listed("api.example.com").is_some());
        assert!(run.listed("xn--bcher-kva.example").is_some());
        for name in [
            "API.example.com",
            "evil-api.example.com",
            "xapi.example.com",
            "api.example.com.evil.com",
            "a.api.example.com",
            "example.com",
            "api_example.com",
            "api.example.com.",
            "api.example.co",
            "xn--pi-6kc.example.com",
            "",
        ] {
            assert!(run.listed(name).is_none(), "{name}");
        }
    }

    /// LIM-1: tunnels at once and in all, exactly; one that never stood is not counted in all.
    #[test]
    fn tunnels_are_counted_exactly() {
        let (run, _inbox) = run(TunnelLimits { open: Some(2), total: Some(3), ..TunnelLimits::default() });
        let mut first = run.enter_tunnel().unwrap();
        first.stands();
        let failed = run.enter_tunnel().unwrap();
        assert_eq!(run.enter_tunnel().unwrap_err(), Reason::LimitTunnelsOpen);
        drop(failed);
        for _ in 0..2 {
            run.enter_tunnel().unwrap().stands();
        }
        assert_eq!(run.enter_tunnel().unwrap_err(), Reason::LimitTunnelsTotal);
        drop(first);
        assert_eq!(run.enter_tunnel().unwrap_err(), Reason::LimitTunnelsTotal);
    }

    /// BUD-2: a destination is asked for once, and the answer holds for all who want it.
    #[test]
    fn a_destination_is_asked_for_once() {
        let (run, mut inbox) = run(TunnelLimits::default());
        let host: HostName = "api.example.com".parse().unwrap();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut one = std::pin::pin!(run.debit_destination(1, &host));
        let mut two = std::pin::pin!(run.debit_destination(2, &host));
        assert!(one.as_mut().poll(&mut cx).is_pending() && two.as_mut().poll(&mut cx).is_pending());
        assert!(matches!(inbox.try_recv(), Ok(FromProxy::WantDestination { attempt: 1, .. })));
        assert!(inbox.try_recv().is_err());
        assert_eq!(run.answer_destination(2, true), Err(Unasked));
        assert_eq!(run.answer_destination(1, false), Ok(()));
        assert_eq!(one.as_mut().poll(&mut cx), std::task::Poll::Ready(Err(Reason::Budget)));
        assert_eq!(two.as_mut().poll(&mut cx), std::task::Poll::Ready(Err(Reason::Budget)));
        assert_eq!(run.answer_destination(1, true), Err(Unasked));
    }
}
