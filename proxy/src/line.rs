//! The channel to the supervisor, for a runtime to wait on.

use std::io;
use std::os::fd::AsFd;

use ipc_proto::proxy::{FromProxy, ToProxy};
use ipc_proto::{Channel, Received};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::service::Error;

/// The channel, and a duplicate of its descriptor that the runtime waits for: it knows no sequenced packets, and takes
/// the socket for one of datagrams, which makes no difference to waiting.
pub(crate) struct Line {
    channel: Channel<FromProxy, ToProxy>,
    readiness: UnixDatagram,
}

impl Line {
    pub(crate) fn new(channel: Channel<FromProxy, ToProxy>) -> Result<Self, Error> {
        channel.set_nonblocking(true)?;
        let duplicate = channel.as_fd().try_clone_to_owned().map_err(Error::Wait)?;
        let readiness = UnixDatagram::from_std(duplicate.into()).map_err(Error::Wait)?;
        Ok(Line { channel, readiness })
    }

    /// Waits for one message; may find that there is none after all.
    pub(crate) async fn receive(&self) -> Result<Received<ToProxy>, Error> {
        self.readiness.readable().await.map_err(Error::Wait)?;
        let mut failed = None;
        let received = self.readiness.try_io(Interest::READABLE, || match self.channel.try_receive() {
            Ok(Received::Empty) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(received) => Ok(received),
            Err(error) => {
                failed = Some(error);
                Ok(Received::Closed)
            }
        });
        match (failed, received) {
            (Some(error), _) => Err(error.into()),
            (None, Ok(received)) => Ok(received),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Empty),
            (None, Err(error)) => Err(Error::Wait(error)),
        }
    }

    /// Sends one message, waiting for room.
    pub(crate) async fn send(&self, message: &FromProxy) -> Result<(), Error> {
        loop {
            self.readiness.writable().await.map_err(Error::Wait)?;
            let sent = self.readiness.try_io(Interest::WRITABLE, || match self.channel.send(message, &[]) {
                Err(error) if error.is_full() => Err(io::ErrorKind::WouldBlock.into()),
                sent => Ok(sent),
            });
            match sent {
                Ok(sent) => return Ok(sent?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Error::Wait(error)),
            }
        }
    }
}
