//! A channel for a runtime to wait on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::net::{TcpListener, UnixDatagram};

use crate::channel::{Channel, ChannelError, Message, Received};

/// A channel, and a duplicate of its descriptor that the runtime waits for: the runtime knows no sequenced packets, and
/// takes the socket for one of datagrams, which makes no difference to waiting.
#[derive(Debug)]
pub struct Line<Out, In> {
    channel: Channel<Out, In>,
    readiness: UnixDatagram,
}

impl<Out: Message, In: Message> Line<Out, In> {
    /// Takes the channel; inside a runtime that has its I/O driver on.
    ///
    /// # Errors
    /// [`ChannelError::Io`] when there are no descriptors left.
    pub fn new(channel: Channel<Out, In>) -> Result<Self, ChannelError> {
        channel.set_nonblocking(true)?;
        let duplicate = channel.as_fd().try_clone_to_owned().map_err(waiting::<In>)?;
        let readiness = UnixDatagram::from_std(duplicate.into()).map_err(waiting::<In>)?;
        Ok(Line { channel, readiness })
    }

    /// Waits for one message; may find that there is none after all ([`Received::Empty`]). Nothing is lost when the
    /// future is dropped before it is done.
    ///
    /// # Errors
    /// Any [`ChannelError`]; after one the channel must not be used again.
    pub async fn receive(&self) -> Result<Received<In>, ChannelError> {
        self.readiness.readable().await.map_err(waiting::<In>)?;
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
            (Some(error), _) => Err(error),
            (None, Ok(received)) => Ok(received),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Empty),
            (None, Err(error)) => Err(waiting::<In>(error)),
        }
    }

    /// Sends one message with its descriptors, waiting for room. A future that is dropped has sent all of it or nothing.
    ///
    /// # Errors
    /// As [`Channel::send`], but never because the queue is full.
    pub async fn send(&self, message: &Out, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        loop {
            self.readiness.writable().await.map_err(waiting::<Out>)?;
            let sent =
                self.readiness.try_io(Interest::WRITABLE, || match self.channel.send(message, descriptors) {
                    Err(error) if error.is_full() => Err(io::ErrorKind::WouldBlock.into()),
                    sent => Ok(sent),
                });
            match sent {
                Ok(sent) => return sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(waiting::<Out>(error)),
            }
        }
    }
}

/// A run's listener, out of the descriptors that came with a message: one of TCP, and one that listens.
///
/// # Errors
/// When it is anything else.
pub fn passed_listener(descriptors: Vec<OwnedFd>) -> io::Result<TcpListener> {
    let descriptor = descriptors.into_iter().next().ok_or(io::ErrorKind::InvalidInput)?;
    if !rustix::net::sockopt::socket_acceptconn(&descriptor)? {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let listener = std::net::TcpListener::from(descriptor);
    listener.set_nonblocking(true)?;
    // Refuses what is no socket of TCP, such as a listener of AF_UNIX.
    listener.local_addr()?;
    TcpListener::from_std(listener)
}

fn waiting<Direction: Message>(source: io::Error) -> ChannelError {
    ChannelError::Io { direction: Direction::DIRECTION, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dial::{FromDialer, ToDialer};

    /// MOD-12: a message and its descriptor arrive; a sender that found the queue full goes on when there is room; an end
    /// that is gone is seen.
    #[tokio::test]
    async fn messages_wait_for_room_and_bring_their_descriptors() {
        let (asks, answers) = Channel::<ToDialer, FromDialer>::pair().unwrap();
        let (asks, answers) = (Line::new(asks).unwrap(), Line::new(answers).unwrap());
        let all: u32 = 2000;
        let sender = async {
            for dial in 1..=all {
                asks.send(&ToDialer::Dial { dial }, &[]).await.unwrap();
            }
        };
        let receiver = async {
            let mut next = 1;
            while next <= all {
                match answers.receive().await.unwrap() {
                    Received::Message(ToDialer::Dial { dial }, _) => {
                        assert_eq!(dial, next);
                        next += 1;
                    }
                    Received::Empty => {}
                    Received::Closed => panic!("closed early"),
                }
            }
        };
        tokio::join!(sender, receiver);

        let file = std::fs::File::open("/dev/null").unwrap();
        answers.send(&FromDialer::Dialled { dial: 1 }, &[file.as_fd()]).await.unwrap();
        let received = asks.receive().await.unwrap();
        assert!(
            matches!(&received, Received::Message(FromDialer::Dialled { dial: 1 }, held) if held.len() == 1),
            "{received:?}"
        );
        drop(answers);
        assert!(matches!(asks.receive().await.unwrap(), Received::Closed));
    }
}
