//! The life of the process: what the supervisor says, run by run.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use ipc_proto::broker::{Answered, FromBroker, KeyState, PublicKey, ToBroker};
use ipc_proto::line::passed_listener;
use ipc_proto::{Channel, ChannelError, Line, Received, RunId};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::connection;
use crate::report::Report;
use crate::requests::Service;
use crate::run::{Run, Unasked};
use crate::signing::{Signer, SigningError};
use crate::{ask, upstream};

/// Messages that may wait for the supervisor before whoever has the next one waits too.
const OUTBOX: usize = 64;
/// How long accepting rests after it failed, for want of descriptors most likely.
const REST: Duration = Duration::from_millis(50);
/// Connections over the limit that are answered at once; more are closed without a word.
const TURNED_AWAY: usize = 32;
/// Runs whose `Close` may still be on its way after their `Answered`: an `Ask` ends by itself, and the two may cross.
const CROSSED: usize = 64;

/// Why the process ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The channel failed, or the supervisor broke its protocol.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The proxy did, or its channel failed.
    #[error(transparent)]
    Dialer(#[from] upstream::Error),
    /// A passed descriptor is no listener.
    #[error("protocol violation, supervisor to broker: a run's listener cannot be used ({0})")]
    Listener(io::Error),
    /// A passed task cannot be read.
    #[error("protocol violation, supervisor to broker: {0}")]
    Task(#[from] ipc_proto::bulk::BulkError),
    /// A checkpoint cannot be signed.
    #[error(transparent)]
    Signing(#[from] SigningError),
}

/// What the supervisor is told first.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The Landlock level that holds.
    pub landlock: u8,
    /// The key.
    pub key: KeyState,
    /// Certificates that are trusted.
    pub roots: u32,
    /// The public half of the signing key, if there is one.
    pub signing: Option<PublicKey>,
}

/// A message with its descriptor, if it has one.
type Letter = (FromBroker, Option<OwnedFd>);

/// Serves until the supervisor is gone, inside a `LocalSet`. Without a service no run is, without a signer nothing is
/// signed.
///
/// # Errors
/// Whatever is not as it must be: nothing is skipped.
pub async fn serve(
    channel: Channel<FromBroker, ToBroker>,
    service: Option<Service>,
    signer: Option<Signer>,
    facts: Facts,
) -> Result<(), Error> {
    let line = Line::new(channel)?;
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let mut broker = Broker {
        service: service.map(Rc::new),
        signer,
        outbox,
        runs: HashMap::new(),
        tasks: JoinSet::new(),
        answered: VecDeque::new(),
    };
    let Facts { landlock, key, roots, signing } = facts;
    broker.tell(FromBroker::Hello { landlock, key, roots, signing }).await;
    tokio::select! {
        ended = send_all(&line, inbox) => ended,
        ended = broker.listen(&line) => ended,
    }
}

/// Carries what waits to the supervisor.
async fn send_all(line: &Line<FromBroker, ToBroker>, mut inbox: mpsc::Receiver<Letter>) -> Result<(), Error> {
    while let Some((message, descriptor)) = inbox.recv().await {
        let sent = match &descriptor {
            Some(descriptor) => line.send(&message, &[descriptor.as_fd()]).await,
            None => line.send(&message, &[]).await,
        };
        match sent {
            Err(error) if error.is_closed() => return Ok(()),
            sent => sent?,
        }
    }
    Ok(())
}

/// Where a run stands.
enum State {
    /// Its agent is served.
    Open(Rc<Run>),
    /// Its one question is asked.
    Asking(Rc<Run>),
    /// It was told to end, and is ending.
    Closing,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            State::Open(_) => "the run is open",
            State::Asking(_) => "the run is asking",
            State::Closing => "the run is closing",
        }
    }
}

struct Broker {
    service: Option<Rc<Service>>,
    signer: Option<Signer>,
    outbox: mpsc::Sender<Letter>,
    runs: HashMap<RunId, State>,
    tasks: JoinSet<Ended>,
    /// The last runs that ended by their answer.
    answered: VecDeque<RunId>,
}

/// A task of a run that has ended.
enum Ended {
    Run(RunId),
    Ask(RunId),
}

impl Broker {
    async fn listen(&mut self, line: &Line<FromBroker, ToBroker>) -> Result<(), Error> {
        loop {
            let received = tokio::select! {
                biased;
                // A task that panicked has ended the process (panic = abort).
                Some(Ok(ended)) = self.tasks.join_next() => {
                    self.forget(&ended);
                    continue;
                }
                received = line.receive() => received?,
            };
            match received {
                Received::Message(message, descriptors) => self.obey(message, descriptors).await?,
                Received::Empty => {}
                Received::Closed => return Ok(()),
            }
        }
    }

    fn forget(&mut self, ended: &Ended) {
        let (Ended::Run(run) | Ended::Ask(run)) = ended;
        self.runs.remove(run);
        if matches!(ended, Ended::Ask(_)) {
            self.answered.truncate(CROSSED - 1);
            self.answered.push_front(*run);
        }
    }

    /// The state table: one message in one state does one thing, and everything else ends the process.
    async fn obey(&mut self, message: ToBroker, descriptors: Vec<OwnedFd>) -> Result<(), Error> {
        let unexpected = |state: &'static str| Error::from(ChannelError::unexpected(&message, state));
        match &message {
            ToBroker::Open { run, policy, limits, debits } => {
                let service = self.service_for(*run).map_err(unexpected)?;
                let listener = passed_listener(descriptors).map_err(Error::Listener)?;
                let state = Rc::new(Run::new(*run, service.whose, policy, *limits, *debits));
                self.runs.insert(*run, State::Open(Rc::clone(&state)));
                self.tell(FromBroker::Opened { run: *run }).await;
                self.tasks.spawn_local(serve_run(service, state, listener, self.outbox.clone()));
            }
            ToBroker::Ask { run, policy, limits, debits } => {
                let service = self.service_for(*run).map_err(unexpected)?;
                let task = task(descriptors)?;
                let state = Rc::new(Run::new(*run, service.whose, policy, *limits, *debits));
                self.runs.insert(*run, State::Asking(Rc::clone(&state)));
                self.tasks.spawn_local(serve_ask(service, state, task, self.outbox.clone()));
            }
            ToBroker::Debit { run, request, granted } => match self.runs.get(run) {
                Some(State::Open(state) | State::Asking(state)) => {
                    let answered = state.answer_debit(*request, *granted);
                    answered.map_err(|Unasked| unexpected("nobody asked"))?;
                }
                // The answer and the run's end have crossed.
                Some(State::Closing) => {}
                None if self.answered.contains(run) => {}
                None => return Err(unexpected("the run is not open")),
            },
            ToBroker::Sign { seq, hash } => {
                let signer = self.signer.as_ref().ok_or_else(|| unexpected("there is no signing key"))?;
                let signature = signer.sign(*seq, hash)?;
                self.tell(FromBroker::Signed { seq: *seq, signature }).await;
            }
            ToBroker::Close { run } => match self.runs.insert(*run, State::Closing) {
                Some(State::Open(state) | State::Asking(state)) => state.close(),
                None if self.answered.contains(run) => {
                    self.runs.remove(run);
                }
                Some(State::Closing) | None => return Err(unexpected("the run is not open")),
            },
        }
        Ok(())
    }

    /// The service for a run that begins now.
    fn service_for(&self, run: RunId) -> Result<Rc<Service>, &'static str> {
        let service = self.service.as_ref().ok_or("there is no service that a run could reach")?;
        self.runs.get(&run).map_or_else(|| Ok(Rc::clone(service)), |state| Err(state.name()))
    }

    async fn tell(&self, message: FromBroker) {
        // The other end of the outbox lives as long as this.
        let _ = self.outbox.send((message, None)).await;
    }
}

fn task(descriptors: Vec<OwnedFd>) -> Result<String, Error> {
    let memory = descriptors.first().ok_or(ipc_proto::bulk::BulkError::NotSealed)?;
    Ok(ipc_proto::bulk::open(memory.as_fd())?)
}

/// The values of a Host header that mean this listener: a page that a browser in the sandbox got under another name has none
/// of them (DNS rebinding).
fn hosts(listener: &TcpListener) -> Rc<[String]> {
    match listener.local_addr() {
        Ok(address) => Rc::from([address.to_string(), format!("localhost:{}", address.port())]),
        Err(_) => Rc::from([]),
    }
}

/// Serves a run's connections until it is told to end, and reports that everything of it has ended.
async fn serve_run(
    service: Rc<Service>,
    run: Rc<Run>,
    listener: TcpListener,
    outbox: mpsc::Sender<Letter>,
) -> Ended {
    let hosts = hosts(&listener);
    let mut connections = JoinSet::new();
    let mut turned_away = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = run.closed() => break,
            message = run.next_message() => tell(&outbox, message).await,
            Some(_) = connections.join_next() => {}
            Some(_) = turned_away.join_next() => {}
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else {
                    sleep(REST).await;
                    continue;
                };
                // Pieces of a stream are to be seen as they come (RFC 896 is for people who type).
                let _ = client.set_nodelay(true);
                match run.enter_connection() {
                    Ok(place) => {
                        let (service, run, hosts) = (Rc::clone(&service), Rc::clone(&run), Rc::clone(&hosts));
                        connections.spawn_local(async move {
                            connection::serve(service, run, hosts, client).await;
                            drop(place);
                        });
                    }
                    Err(refusal) => {
                        Report::new(Rc::clone(&run)).refused(&refusal);
                        if turned_away.len() < TURNED_AWAY {
                            turned_away.spawn_local(connection::turn_away(Rc::clone(&run), refusal, client));
                        }
                    }
                }
            }
        }
    }
    // With the listener open the run's network namespace would live on.
    drop(listener);
    turned_away.shutdown().await;
    connections.shutdown().await;
    while let Some(message) = run.try_next_message() {
        tell(&outbox, message).await;
    }
    tell(&outbox, FromBroker::Closed { run: run.id(), totals: run.totals() }).await;
    Ended::Run(run.id())
}

/// Asks a run's one question, or ends it.
async fn serve_ask(service: Rc<Service>, run: Rc<Run>, task: String, outbox: mpsc::Sender<Letter>) -> Ended {
    let answer = {
        let mut answer = std::pin::pin!(ask::ask(&service, &run, task));
        loop {
            tokio::select! {
                biased;
                () = run.closed() => break None,
                message = run.next_message() => tell(&outbox, message).await,
                answer = &mut answer => break answer,
            }
        }
    };
    while let Some(message) = run.try_next_message() {
        tell(&outbox, message).await;
    }
    let answered = if answer.is_some() { Answered::Text } else { Answered::Nothing };
    let message = FromBroker::Answered { run: run.id(), answered, totals: run.totals() };
    // Without a supervisor the process is about to end: there is nobody to tell.
    let _ = outbox.send((message, answer)).await;
    Ended::Ask(run.id())
}

async fn tell(outbox: &mpsc::Sender<Letter>, message: FromBroker) {
    let _ = outbox.send((message, None)).await;
}
