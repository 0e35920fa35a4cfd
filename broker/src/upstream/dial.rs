//! Connections to the service, made by the proxy.
//!
//! A question has a number, an answer has the same; there may be several at once, and they may be answered in any order.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use ipc_proto::dial::{FromDialer, MOST_DIALS, ToDialer};
use ipc_proto::line::Line;
use ipc_proto::proxy::Reason;
use ipc_proto::{Channel, ChannelError, Received};
use rustix::net::{AddressFamily, SocketType, sockopt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Why the broker ends: its proxy is not to be relied on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The channel failed, or the proxy broke its protocol.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// What came with an answer is no connection.
    #[error("protocol violation, proxy to broker: the descriptor of a connection cannot be used ({0})")]
    Connection(io::Error),
}

/// Asks the proxy for connections. Clones ask over the same channel.
#[derive(Clone, Debug)]
pub struct Dialer(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    line: Line<ToDialer, FromDialer>,
    asked: Cell<u32>,
    waiting: RefCell<HashMap<u32, oneshot::Sender<Result<TcpStream, Reason>>>>,
    /// A question is a place here until its answer has come, even if nobody wants it any more: the proxy still works on it.
    places: Semaphore,
    outbox: mpsc::Sender<u32>,
    /// What is taken from by [`Dialer::run`] alone.
    inbox: RefCell<Option<mpsc::Receiver<u32>>>,
}

impl Dialer {
    /// Takes the channel to the proxy; inside a runtime.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(channel: Channel<ToDialer, FromDialer>) -> Result<Self, Error> {
        let (outbox, inbox) = mpsc::channel(MOST_DIALS);
        Ok(Dialer(Rc::new(Shared {
            line: Line::new(channel)?,
            asked: Cell::new(0),
            waiting: RefCell::default(),
            places: Semaphore::new(MOST_DIALS),
            outbox,
            inbox: RefCell::new(Some(inbox)),
        })))
    }

    /// Carries questions and answers until the proxy is gone; to be driven once, beside everything that asks. After it has
    /// ended every question is answered with [`Reason::ConnectFailed`].
    ///
    /// # Errors
    /// Whatever is not as it must be: the process ends.
    pub async fn run(&self) -> Result<(), Error> {
        let Some(mut inbox) = self.0.inbox.take() else { return Ok(()) };
        let ended = tokio::select! {
            ended = self.0.ask_all(&mut inbox) => ended,
            ended = self.0.hear_all() => ended,
        };
        // Whoever waits learns it by the end of its question, and the next to ask by the closed outbox.
        self.0.waiting.borrow_mut().clear();
        ended
    }

    /// Asks for a connection.
    ///
    /// # Errors
    /// The proxy's reason.
    pub async fn connect(&self) -> Result<TcpStream, Reason> {
        let shared = &*self.0;
        let place = shared.places.acquire().await.map_err(|_| Reason::ConnectFailed)?;
        // Numbers wrap after 4 billion; there are never so many at once that one could be in use still.
        let dial = shared.asked.get().wrapping_add(1);
        shared.asked.set(dial);
        // Before the first await: from here on the place is given back by the answer, not by whoever asks.
        shared.outbox.try_send(dial).map_err(|_| Reason::ConnectFailed)?;
        let (answer, answered) = oneshot::channel();
        shared.waiting.borrow_mut().insert(dial, answer);
        place.forget();
        answered.await.unwrap_or(Err(Reason::ConnectFailed))
    }
}

impl Shared {
    async fn ask_all(&self, inbox: &mut mpsc::Receiver<u32>) -> Result<(), Error> {
        while let Some(dial) = inbox.recv().await {
            match self.line.send(&ToDialer::Dial { dial }, &[]).await {
                Err(error) if error.is_closed() => return Ok(()),
                sent => sent?,
            }
        }
        Ok(())
    }

    async fn hear_all(&self) -> Result<(), Error> {
        loop {
            match self.line.receive().await? {
                Received::Message(message, descriptors) => self.hear(message, descriptors)?,
                Received::Empty => {}
                Received::Closed => return Ok(()),
            }
        }
    }

    fn hear(&self, message: FromDialer, descriptors: Vec<OwnedFd>) -> Result<(), Error> {
        let unasked = || Error::from(ChannelError::unexpected(&message, "nobody asked"));
        let (FromDialer::Dialled { dial } | FromDialer::Failed { dial, .. }) = message;
        let answer = self.waiting.borrow_mut().remove(&dial).ok_or_else(unasked)?;
        self.places.add_permits(1);
        let result = match message {
            FromDialer::Dialled { .. } => Ok(connection(descriptors).map_err(Error::Connection)?),
            FromDialer::Failed { reason, .. } => Err(reason),
        };
        // Whoever asked may be gone with its agent; a connection that nobody wants is closed by this.
        let _ = answer.send(result);
        Ok(())
    }
}

fn connection(descriptors: Vec<OwnedFd>) -> io::Result<TcpStream> {
    let descriptor = descriptors.into_iter().next().ok_or(io::ErrorKind::InvalidInput)?;
    let family = sockopt::socket_domain(&descriptor)?;
    let is_tcp = matches!(family, AddressFamily::INET | AddressFamily::INET6)
        && sockopt::socket_type(&descriptor)? == SocketType::STREAM
        && !sockopt::socket_acceptconn(&descriptor)?;
    if !is_tcp {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let stream = std::net::TcpStream::from(descriptor);
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

#[cfg(test)]
mod tests;
