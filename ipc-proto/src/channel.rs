//! A channel: two ends of a `SOCK_SEQPACKET` socketpair, each with its own two message types.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use serde::{Serialize, de::DeserializeOwned};

use crate::codec::{self, CodecError};
use crate::fdpass;

/// The longest message, in bytes. Larger things (a command line, a plan) travel as sealed memory: see [`crate::bulk`].
pub const MAX_MESSAGE: usize = 16 * 1024;

/// The most descriptors that one message carries.
pub const MAX_DESCRIPTORS: usize = 3;

/// A message of one direction of one channel.
pub trait Message: Serialize + DeserializeOwned + Debug {
    /// The direction, for errors: `"supervisor to launcher"`.
    const DIRECTION: &'static str;
    /// How many descriptors come with this message: neither more nor fewer.
    fn descriptors(&self) -> usize;
}

/// Why a channel cannot be used any longer. Each of these ends the process that sees it: nothing is retried.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The system refused.
    #[error("channel {direction}: {source}")]
    Io {
        /// Which channel and direction.
        direction: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The other end sent what is no message of this direction.
    #[error("protocol violation, {direction}: {source}")]
    Codec {
        /// Which channel and direction.
        direction: &'static str,
        /// What is wrong with the bytes.
        source: CodecError,
    },
    /// A packet that did not fit, or came with more descriptors than any message has.
    #[error("protocol violation, {direction}: a truncated packet")]
    Truncated {
        /// Which channel and direction.
        direction: &'static str,
    },
    /// A message with the wrong number of descriptors.
    #[error("protocol violation, {direction}: {actual} descriptors where {expected} belong")]
    Descriptors {
        /// Which channel and direction.
        direction: &'static str,
        /// How many came.
        actual: usize,
        /// How many the message declares.
        expected: usize,
    },
    /// A well-formed message in a state that does not expect it.
    #[error("protocol violation, {direction}: {message} while {state}")]
    Unexpected {
        /// Which channel and direction.
        direction: &'static str,
        /// The message, by name.
        message: String,
        /// The state that the receiver was in.
        state: &'static str,
    },
}

/// What a receive gave.
#[derive(Debug)]
pub enum Received<In> {
    /// A message with its descriptors, all of them close-on-exec.
    Message(In, Vec<OwnedFd>),
    /// Nothing yet (non-blocking receive only).
    Empty,
    /// The other end is gone.
    Closed,
}

/// One end of a channel: sends `Out`, receives `In`.
#[derive(Debug)]
pub struct Channel<Out, In> {
    socket: UnixDatagram,
    types: PhantomData<fn(Out) -> In>,
}

/// Both ends of one channel.
pub type Pair<Out, In> = (Channel<Out, In>, Channel<In, Out>);

impl<Out: Message, In: Message> Channel<Out, In> {
    /// Makes both ends, the types of the second turned round. Both are close-on-exec.
    ///
    /// # Errors
    /// [`ChannelError::Io`] when the system has no descriptors left.
    pub fn pair() -> Result<Pair<Out, In>, ChannelError> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| Self::io::<Out>(error.into()))?;
        Ok((Channel::wrap(near), Channel::wrap(far)))
    }

    /// Takes a descriptor that a process was started with as its end.
    ///
    /// # Errors
    /// [`ChannelError::Io`] when it is no `SOCK_SEQPACKET` socket.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, ChannelError> {
        match sockopt::socket_type(&fd) {
            Ok(SocketType::SEQPACKET) => Ok(Channel::wrap(fd)),
            Ok(_) => Err(Self::io::<In>(io::ErrorKind::InvalidInput.into())),
            Err(error) => Err(Self::io::<In>(error.into())),
        }
    }

    /// The end as a bare descriptor, to start a process with.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.socket.into()
    }

    /// Sends one message with exactly the descriptors that it declares. On a non-blocking socket with a full queue
    /// the error's kind is [`io::ErrorKind::WouldBlock`] and nothing was sent.
    ///
    /// # Errors
    /// [`ChannelError::Codec`] when it is too long, [`ChannelError::Descriptors`] on a wrong count,
    /// [`ChannelError::Io`] when the other end is gone (EPIPE).
    pub fn send(&self, message: &Out, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let direction = Out::DIRECTION;
        let expected = message.descriptors();
        if descriptors.len() != expected || expected > MAX_DESCRIPTORS {
            return Err(ChannelError::Descriptors { direction, actual: descriptors.len(), expected });
        }
        let bytes = codec::encode::<Out, MAX_MESSAGE>(message)
            .map_err(|source| ChannelError::Codec { direction, source })?;
        fdpass::send(&self.socket, &bytes, descriptors).map_err(Self::io::<Out>)
    }

    /// Waits for one message.
    ///
    /// # Errors
    /// Any [`ChannelError`]; after one the channel must not be used again.
    pub fn receive(&self) -> Result<Received<In>, ChannelError> {
        self.take(true)
    }

    /// Takes one message if there is one.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn try_receive(&self) -> Result<Received<In>, ChannelError> {
        self.take(false)
    }

    /// Sets the socket's own mode, for a receiver that waits in a runtime (sending then may report `WouldBlock`).
    ///
    /// # Errors
    /// [`ChannelError::Io`].
    pub fn set_nonblocking(&self, on: bool) -> Result<(), ChannelError> {
        self.socket.set_nonblocking(on).map_err(Self::io::<Out>)
    }

    fn take(&self, wait: bool) -> Result<Received<In>, ChannelError> {
        let direction = In::DIRECTION;
        // One byte more than a message may have: a longer one is seen as such.
        let mut buffer = [0u8; MAX_MESSAGE + 1];
        let packet = match fdpass::receive(&self.socket, &mut buffer, wait) {
            Ok(packet) => packet,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Empty),
            // The other end died with our words unread: that is its end, not ours.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(Received::Closed),
            Err(error) => return Err(Self::io::<In>(error)),
        };
        if packet.truncated {
            return Err(ChannelError::Truncated { direction });
        }
        if packet.length == 0 && packet.descriptors.is_empty() {
            return Ok(Received::Closed);
        }
        let bytes = buffer.get(..packet.length).unwrap_or_default();
        let message: In = codec::decode::<In, MAX_MESSAGE>(bytes)
            .map_err(|source| ChannelError::Codec { direction, source })?;
        let (actual, expected) = (packet.descriptors.len(), message.descriptors());
        if actual != expected {
            return Err(ChannelError::Descriptors { direction, actual, expected });
        }
        Ok(Received::Message(message, packet.descriptors))
    }

    fn wrap(fd: OwnedFd) -> Self {
        // sendfd speaks to std's socket types; the kernel does not care what std calls a descriptor.
        Channel { socket: UnixDatagram::from(fd), types: PhantomData }
    }

    fn io<Direction: Message>(source: io::Error) -> ChannelError {
        ChannelError::Io { direction: Direction::DIRECTION, source }
    }
}

impl<Out, In> AsFd for Channel<Out, In> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl ChannelError {
    /// A violation of the order of messages.
    #[must_use]
    pub fn unexpected<M: Message>(message: &M, state: &'static str) -> Self {
        // Only the variant's name: what it holds may be somebody's text.
        let text = format!("{message:?}");
        let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
        ChannelError::Unexpected {
            direction: M::DIRECTION,
            message: text.get(..end).unwrap_or_default().to_owned(),
            state,
        }
    }

    /// The queue of a non-blocking socket is full, and nothing was sent.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, ChannelError::Io { source, .. } if source.kind() == io::ErrorKind::WouldBlock)
    }

    /// The other end is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, ChannelError::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset))
    }
}
