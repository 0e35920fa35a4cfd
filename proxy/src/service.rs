//! The life of the process: what the supervisor says, run by run.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use ipc_proto::line::{Line, passed_listener};
use ipc_proto::proxy::{FromProxy, MAX_HOSTS, MAX_HOSTS_A_MESSAGE, ToProxy, TunnelTotals};
use ipc_proto::{Channel, ChannelError, HostName, Received, RunId};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::gauge::Gauge;
use crate::meter::Unasked;
use crate::reach::Reach;
use crate::run::{Outbox, Run};
use crate::tunnel;
use crate::upstream::{self, Broker};

/// Messages that may wait for the supervisor before whoever has the next one waits too.
const OUTBOX: usize = 64;
/// How long accepting rests after it failed, for want of descriptors most likely.
const REST: Duration = Duration::from_millis(50);
/// Connections over the limit that are answered at once; more are closed without a word.
const TURNED_AWAY: u64 = 32;

/// Why the process ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A channel failed, or the supervisor or the broker broke its protocol.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A passed descriptor is no listener.
    #[error("protocol violation, supervisor to proxy: a run's listener cannot be used ({0})")]
    Listener(io::Error),
}

/// Serves until the supervisor is gone, inside a `LocalSet`. `landlock` is the level that holds for this process.
/// A broker that is gone changes nothing for the tunnels.
///
/// # Errors
/// Whatever is not as it must be: nothing is skipped.
pub async fn serve<R: Reach + 'static>(
    channel: Channel<FromProxy, ToProxy>,
    reach: R,
    landlock: u8,
    broker: Option<Broker>,
) -> Result<(), Error> {
    let line = Line::new(channel)?;
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let reach = Rc::new(reach);
    let mut service = Service {
        reach: Rc::clone(&reach),
        outbox: outbox.clone(),
        runs: HashMap::new(),
        tasks: JoinSet::new(),
    };
    service.tell(FromProxy::Hello { landlock }).await;
    tokio::select! {
        ended = send_all(&line, inbox) => ended,
        ended = service.listen(&line) => ended,
        Err(error) = dial_for(broker, reach, outbox) => Err(error.into()),
    }
}

/// Ends by an error only.
async fn dial_for<R: Reach + 'static>(
    broker: Option<Broker>,
    reach: Rc<R>,
    outbox: Outbox,
) -> Result<(), ChannelError> {
    if let Some(broker) = broker {
        upstream::serve(broker, reach, outbox).await?;
    }
    std::future::pending().await
}

/// Carries what waits to the supervisor.
async fn send_all(line: &Supervisor, mut inbox: mpsc::Receiver<FromProxy>) -> Result<(), Error> {
    while let Some(message) = inbox.recv().await {
        match line.send(&message, &[]).await {
            Err(error) if error.is_closed() => return Ok(()),
            sent => sent?,
        }
    }
    Ok(())
}

/// Where a run stands.
enum State {
    /// Its list is coming.
    Listing(Vec<HostName>),
    /// It is served.
    Open(Rc<Run>),
    /// It was told to end, and is ending.
    Closing,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            State::Listing(_) => "its list is coming",
            State::Open(_) => "the run is open",
            State::Closing => "the run is closing",
        }
    }
}

/// The channel to the supervisor.
type Supervisor = Line<FromProxy, ToProxy>;

struct Service<R> {
    reach: Rc<R>,
    outbox: Outbox,
    runs: HashMap<RunId, State>,
    tasks: JoinSet<RunId>,
}

impl<R: Reach + 'static> Service<R> {
    async fn listen(&mut self, line: &Supervisor) -> Result<(), Error> {
        loop {
            let received = tokio::select! {
                biased;
                // A task that panicked has ended the process (panic = abort).
                Some(Ok(ended)) = self.tasks.join_next() => {
                    self.runs.remove(&ended);
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

    /// The state table: one message in one state does one thing, and everything else ends the process.
    async fn obey(&mut self, message: ToProxy, descriptors: Vec<OwnedFd>) -> Result<(), Error> {
        let unexpected = |state: &'static str| Error::from(ChannelError::unexpected(&message, state));
        match &message {
            ToProxy::Hosts { run, hosts } => {
                match self.runs.entry(*run).or_insert_with(|| State::Listing(Vec::new())) {
                    State::Listing(list) if fits(list, hosts) => list.extend_from_slice(hosts),
                    State::Listing(_) => return Err(unexpected("its list is full")),
                    state @ (State::Open(_) | State::Closing) => return Err(unexpected(state.name())),
                }
            }
            ToProxy::Open { run, hosts, limits, debits } => {
                let list = match self.runs.remove(run) {
                    None => Vec::new(),
                    Some(State::Listing(list)) => list,
                    Some(state @ (State::Open(_) | State::Closing)) => return Err(unexpected(state.name())),
                };
                if list.len() != usize::from(*hosts) {
                    return Err(unexpected("its list is not whole"));
                }
                let listener = passed_listener(descriptors).map_err(Error::Listener)?;
                let state = Rc::new(Run::new(*run, list, *limits, *debits, self.outbox.clone()));
                self.runs.insert(*run, State::Open(Rc::clone(&state)));
                self.tell(FromProxy::Opened { run: *run }).await;
                self.tasks.spawn_local(serve_run(*run, state, Rc::clone(&self.reach), listener));
            }
            ToProxy::Destination { run, attempt, granted } => match self.runs.get(run) {
                Some(State::Open(state)) => {
                    let answered = state.answer_destination(*attempt, *granted);
                    answered.map_err(|Unasked| unexpected("nobody asked"))?;
                }
                // The answer and the run's end have crossed.
                Some(State::Closing) => {}
                Some(State::Listing(_)) | None => return Err(unexpected("the run is not open")),
            },
            ToProxy::Lease { run, bytes } => match self.runs.get(run) {
                Some(State::Open(state)) => {
                    state.meter.lease(*bytes).map_err(|Unasked| unexpected("nobody asked"))?;
                }
                Some(State::Closing) => {}
                Some(State::Listing(_)) | None => return Err(unexpected("the run is not open")),
            },
            ToProxy::Recall { run } => match self.runs.get(run) {
                Some(State::Open(state)) => {
                    let unused =
                        state.meter.recall().ok_or_else(|| unexpected("nothing is leased to the run"))?;
                    self.tell(FromProxy::Recalled { run: *run, unused }).await;
                }
                // Whoever closes a run has been promised what is left of its lease with its end.
                Some(State::Listing(_) | State::Closing) | None => {
                    return Err(unexpected("the run is not open"));
                }
            },
            ToProxy::Close { run } => match self.runs.insert(*run, State::Closing) {
                Some(State::Open(state)) => state.close(),
                // Never opened: there is nothing to end.
                Some(State::Listing(_)) => {
                    self.runs.remove(run);
                    let totals = TunnelTotals::default();
                    self.tell(FromProxy::Closed { run: *run, totals, unused: 0 }).await;
                }
                Some(State::Closing) | None => return Err(unexpected("the run is not open")),
            },
        }
        Ok(())
    }

    async fn tell(&self, message: FromProxy) {
        // The other end of the outbox lives as long as this.
        let _ = self.outbox.send(message).await;
    }
}

fn fits(list: &[HostName], more: &[HostName]) -> bool {
    more.len() <= MAX_HOSTS_A_MESSAGE && list.len() + more.len() <= MAX_HOSTS
}

/// Serves a run's connections until it is told to end, and reports that everything of it has ended.
async fn serve_run<R: Reach + 'static>(
    id: RunId,
    run: Rc<Run>,
    reach: Rc<R>,
    listener: TcpListener,
) -> RunId {
    let mut connections = JoinSet::new();
    let turned_away = Gauge::new(Some(TURNED_AWAY));
    loop {
        tokio::select! {
            biased;
            () = run.closed() => break,
            () = run.meter.wanted() => run.ask_for_bytes().await,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else {
                    sleep(REST).await;
                    continue;
                };
                // A relay decides when to send; waiting for more helps nobody (RFC 896 is for people who type).
                let _ = client.set_nodelay(true);
                match run.enter_connection() {
                    Ok(place) => {
                        let (run, reach) = (Rc::clone(&run), Rc::clone(&reach));
                        connections.spawn_local(async move {
                            tunnel::serve(run, reach, client).await;
                            drop(place);
                        });
                    }
                    Err(reason) => {
                        run.report(tunnel::turned_away(&run, reason)).await;
                        if let Some(place) = turned_away.enter() {
                            let run = Rc::clone(&run);
                            connections.spawn_local(async move {
                                tunnel::turn_away(run, client, reason).await;
                                drop(place);
                            });
                        }
                    }
                }
            }
        }
    }
    // With the listener open the run's network namespace would live on.
    drop(listener);
    while connections.join_next().await.is_some() {}
    run.report_closed().await;
    id
}

#[cfg(test)]
mod tests;
