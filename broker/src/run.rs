//! One run: what it may ask, its limits, what it has used, and what the supervisor is told of it.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use ipc_proto::RunId;
use ipc_proto::broker::{
    FromBroker, LARGEST_BODY, MOST_CONNECTIONS, ModelLimits, ModelPolicy, ModelTotals, RequestReport,
};
use tokio::sync::{Notify, oneshot, watch};

use crate::policy::{Policy, Refusal, Rule, Service, amount};
use crate::room::{Room, Taken};

/// Messages of a run that may wait for the supervisor before its next request waits too.
const MOST_WAITING: usize = 32;
/// How much of bodies a run may have under way at once, in KiB, counted as they came: two of the largest. A body waits for its
/// room until the service has answered the one before. In memory each is once what came, then what goes out, and in between
/// both and its values ([`json::MAX_VALUES`](crate::policy::json::MAX_VALUES)): for one body at a time, since nobody waits
/// while it is rewritten.
const ROOM: u32 = 64 * 1024;

/// Nobody asked for what was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unasked;

/// A run that is served.
#[derive(Debug)]
pub struct Run {
    id: RunId,
    /// What holds for each of its requests.
    pub policy: Policy,
    /// How long the service may be silent.
    pub silence: Duration,
    limits: ModelLimits,
    debits: bool,
    totals: Cell<ModelTotals>,
    connections: Cell<u64>,
    requests: Cell<u32>,
    room: Room,
    questions: RefCell<HashMap<u32, oneshot::Sender<bool>>>,
    waiting: RefCell<VecDeque<FromBroker>>,
    /// Something waits for the supervisor.
    filled: Notify,
    /// Something of it has gone.
    taken: Notify,
    closing: watch::Sender<bool>,
}

impl Run {
    /// A run with nothing used.
    #[must_use]
    pub fn new(id: RunId, service: Service, policy: &ModelPolicy, limits: ModelLimits, debits: bool) -> Self {
        Run {
            id,
            policy: Policy {
                service,
                model: policy.model.as_str().to_owned(),
                output_tokens: policy.output_tokens,
            },
            silence: Duration::from_millis(policy.silence),
            limits,
            debits,
            totals: Cell::default(),
            connections: Cell::new(0),
            requests: Cell::new(0),
            room: Room::new(ROOM),
            questions: RefCell::default(),
            waiting: RefCell::default(),
            filled: Notify::new(),
            taken: Notify::new(),
            closing: watch::Sender::new(false),
        }
    }

    /// Which run.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.id
    }

    /// What it reached so far.
    #[must_use]
    pub fn totals(&self) -> ModelTotals {
        self.totals.get()
    }

    fn count(&self, change: impl FnOnce(&mut ModelTotals)) {
        let mut totals = self.totals.get();
        change(&mut totals);
        self.totals.set(totals);
    }

    /// The next request's number, from 1.
    #[must_use]
    pub fn next_request(&self) -> u32 {
        self.requests.set(self.requests.get().saturating_add(1));
        self.requests.get()
    }

    /// A place for a connection.
    ///
    /// # Errors
    /// The limit.
    pub fn enter_connection(self: &Rc<Self>) -> Result<ConnectionPlace, Refusal> {
        let limit = self.limits.connections.unwrap_or(MOST_CONNECTIONS);
        let now = self.connections.get() + 1;
        if now > limit {
            return Err(Refusal::of(Rule::LimitEndpointConnections, &limit.to_string()));
        }
        self.connections.set(now);
        self.count(|totals| totals.connections = totals.connections.max(now));
        Ok(ConnectionPlace(Rc::clone(self)))
    }

    /// Whether another request may go out at all: what can be said before its body has come.
    ///
    /// # Errors
    /// The limit.
    pub fn check_requests(&self) -> Result<(), Refusal> {
        match self.limits.requests {
            Some(limit) if self.totals.get().requests >= limit => {
                Err(Refusal::of(Rule::LimitModelRequests, &limit.to_string()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a body of this length may be, as the agent sends it: that it grows when it is rewritten is none of its doing.
    ///
    /// # Errors
    /// The limit.
    pub fn check_body(&self, bytes: u64) -> Result<(), Refusal> {
        let limit = self.limits.body.unwrap_or(LARGEST_BODY);
        if bytes > limit { Err(Refusal::of(Rule::LimitRequestBody, &amount(limit))) } else { Ok(()) }
    }

    /// Counts a request that is about to go out. Dropped before it [goes](RequestPlace::goes), it was none.
    ///
    /// # Errors
    /// The limit. No other request can come between the question and the counting.
    pub fn enter_request(self: &Rc<Self>, bodies: Bodies) -> Result<RequestPlace, Refusal> {
        self.check_requests()?;
        let total = self.totals.get().total.saturating_add(bodies.outgoing);
        if let Some(limit) = self.limits.total.filter(|limit| total > *limit) {
            return Err(Refusal::of(Rule::LimitRequestTotal, &amount(limit)));
        }
        self.count(|totals| {
            totals.requests += 1;
            totals.total = total;
        });
        Ok(RequestPlace { run: Rc::clone(self), bodies, gone: false })
    }

    /// Counts a refusal.
    pub fn refused(&self) {
        self.count(|totals| totals.refused += 1);
    }

    /// Waits until the run may have a body of this length under way.
    pub async fn room_for(&self, bytes: u64) -> Option<Taken> {
        self.room.take(bytes).await
    }

    /// Debits a request, where a budget asks for that. No answer is no.
    ///
    /// # Errors
    /// [`Rule::Budget`].
    pub async fn debit(&self, request: u32, bytes: u64) -> Result<(), Refusal> {
        if !self.debits {
            return Ok(());
        }
        let (answer, granted) = oneshot::channel();
        self.questions.borrow_mut().insert(request, answer);
        self.tell(FromBroker::Want { run: self.id, request, bytes });
        if granted.await.unwrap_or(false) { Ok(()) } else { Err(Refusal::plain(Rule::Budget)) }
    }

    /// The supervisor's answer.
    ///
    /// # Errors
    /// Nobody asked.
    pub fn answer_debit(&self, request: u32, granted: bool) -> Result<(), Unasked> {
        let question = self.questions.borrow_mut().remove(&request).ok_or(Unasked)?;
        // Whoever asked may be gone with its agent.
        let _ = question.send(granted);
        Ok(())
    }

    /// Reports a request.
    pub fn report(&self, report: RequestReport) {
        self.tell(FromBroker::Request { run: self.id, report });
    }

    fn tell(&self, message: FromBroker) {
        self.waiting.borrow_mut().push_back(message);
        self.filled.notify_one();
    }

    /// Waits until little enough waits for the supervisor: a run whose requests come faster than they can be recorded waits.
    /// That bounds what waits at all, since a request and its connection leave two messages at most.
    pub async fn may_ask(&self) {
        loop {
            let taken = self.taken.notified();
            if self.waiting.borrow().len() < MOST_WAITING {
                return;
            }
            taken.await;
        }
    }

    /// The next message for the supervisor, if there is one.
    pub fn try_next_message(&self) -> Option<FromBroker> {
        let message = self.waiting.borrow_mut().pop_front();
        self.taken.notify_waiters();
        message
    }

    /// Waits for the next message for the supervisor.
    pub async fn next_message(&self) -> FromBroker {
        loop {
            let filled = self.filled.notified();
            if let Some(message) = self.try_next_message() {
                return message;
            }
            filled.await;
        }
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

/// A connection that is there.
#[derive(Debug)]
pub struct ConnectionPlace(Rc<Run>);

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get().saturating_sub(1));
    }
}

/// The length of one request's body, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bodies {
    /// As the agent sent it.
    pub asked: u64,
    /// As it goes out.
    pub outgoing: u64,
}

/// A request that counts.
#[derive(Debug)]
pub struct RequestPlace {
    run: Rc<Run>,
    bodies: Bodies,
    gone: bool,
}

impl RequestPlace {
    /// It goes out, and counts from now on whatever becomes of it.
    pub fn goes(mut self) {
        self.gone = true;
        self.run.count(|totals| totals.body = totals.body.max(self.bodies.asked));
    }
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        if !self.gone {
            self.run.count(|totals| {
                totals.requests = totals.requests.saturating_sub(1);
                totals.total = totals.total.saturating_sub(self.bodies.outgoing);
            });
        }
    }
}

#[cfg(test)]
mod tests;
