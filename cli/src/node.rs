//! The client of a node's control socket: connect, greet, ask; and ask again where a node that is coming back by itself was lost.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ipc_proto::control::{FromNode, ToNode, VERSION};
use ipc_proto::{Channel, ChannelError, Code, InteractionId, Received, bulk};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use supervisor::error::Trouble;
use supervisor::explain;

mod client;
#[cfg(test)]
pub(crate) mod fake;
mod places;
#[cfg(test)]
mod tests;

pub(crate) use client::Client;
pub(crate) use places::{Places, mode};

/// How long a node may take for its first word, and for an answer that costs it nothing.
const PROMPT: Duration = Duration::from_secs(30);
/// How long a node that was lost may take to come back. It starts anew by itself, the second time after a pause.
const RETURN: Duration = Duration::from_secs(10);
/// Between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(50);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Nobody listens.
    #[error("no node is running")]
    Absent,
    /// The node went away before it answered.
    #[error("the node ended before it answered")]
    Lost,
    /// Said by the node, or found here; trying again would not help.
    #[error("{0}")]
    Trouble(#[from] Trouble),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        match failure {
            Failure::Absent => Trouble::new(Code::NoNode, explain::sentence(Code::NoNode)),
            Failure::Lost => Trouble::new(
                Code::NoNode,
                "the node ended before it answered, and did not come back; see its log, and start it with `anet daemon`",
            ),
            Failure::Trouble(trouble) => trouble,
        }
    }
}

/// A connection that greeted.
#[derive(Debug)]
pub(crate) struct Node {
    channel: Channel<ToNode, FromNode>,
    since: Instant,
}

fn silent() -> Failure {
    Failure::Trouble(Trouble::new(
        Code::NoNode,
        "the node does not answer; one of its processes may be stopped or overloaded: see its log, or start it anew",
    ))
}

/// A word that does not belong there.
fn unexpected(word: &FromNode) -> Failure {
    let what = ChannelError::unexpected(word, "another answer was due");
    Failure::Trouble(Trouble::new(
        Code::OtherVersion,
        format!("{what}; see that node and command are of one version, and start the node anew"),
    ))
}

impl Node {
    /// Greets whoever listens at the other end.
    fn greeted(channel: Channel<ToNode, FromNode>) -> Result<Node, Failure> {
        let node = Node { channel, since: Instant::now() };
        node.greet()?;
        Ok(node)
    }

    fn greet(&self) -> Result<(), Failure> {
        self.send(&ToNode::Hello { version: VERSION }, None)?;
        match self.receive(Some(PROMPT))? {
            (FromNode::Hello { version: VERSION, .. }, _) => Ok(()),
            (FromNode::Hello { program, .. }, _) => Err(Failure::Trouble(Trouble::new(
                Code::OtherVersion,
                format!(
                    "the running node is of version {program} and this command of {}; start the node anew",
                    env!("CARGO_PKG_VERSION")
                ),
            ))),
            (other, _) => Err(unexpected(&other)),
        }
    }

    fn send(&self, message: &ToNode, memory: Option<BorrowedFd<'_>>) -> Result<(), Failure> {
        let descriptors: Vec<BorrowedFd<'_>> = memory.into_iter().collect();
        match self.channel.send(message, &descriptors) {
            Ok(()) => Ok(()),
            // What it said before it went, such as that it is of another version, is still there to be read.
            Err(error) if error.is_closed() => Ok(()),
            Err(error) if error.is_full() => Err(silent()),
            Err(error) => Err(Failure::Trouble(Trouble::new(Code::OtherVersion, error.to_string()))),
        }
    }

    /// The next word, a refusal being an error. Without patience it may take as long as it takes.
    fn receive(&self, patience: Option<Duration>) -> Result<(FromNode, Vec<OwnedFd>), Failure> {
        let end = patience.map(|patience| Instant::now() + patience);
        let mut closed = false;
        loop {
            match self.channel.try_receive() {
                Ok(Received::Message(FromNode::Refused { code, sentence }, _)) => {
                    return Err(Failure::Trouble(Trouble::new(code, sentence)));
                }
                Ok(Received::Message(message, descriptors)) => return Ok((message, descriptors)),
                // Where it left a word of ours unread, the kernel says so before it gives what the node said last.
                Ok(Received::Closed) if !closed => {
                    closed = true;
                    continue;
                }
                Ok(Received::Closed) => return Err(Failure::Lost),
                Ok(Received::Empty) => {}
                Err(error) if error.is_closed() => return Err(Failure::Lost),
                Err(error) => {
                    let what = format!("{error}; see that node and command are of one version");
                    return Err(Failure::Trouble(Trouble::new(Code::OtherVersion, what)));
                }
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(silent());
            }
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::new(&self.channel, PollFlags::IN)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    let what = format!("waiting for the node failed ({errno})");
                    return Err(Failure::Trouble(Trouble::new(Code::NoNode, what)));
                }
            }
        }
    }

    /// Asks for a document.
    pub(crate) fn document<T: DeserializeOwned>(
        &self,
        question: &ToNode,
        patience: Patience,
    ) -> Result<T, Failure> {
        self.send(question, None)?;
        match self.receive(patience.longest())? {
            (FromNode::Document, descriptors) => opened(&descriptors),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Puts a task into the inbox: its name, and whether it was there already.
    pub(crate) fn submit(
        &self,
        question: &ToNode,
        task: BorrowedFd<'_>,
    ) -> Result<(InteractionId, bool), Failure> {
        self.send(question, Some(task))?;
        match self.receive(Patience::Prompt.longest())? {
            (FromNode::Submitted { interaction, known }, _) => Ok((interaction, known)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Waits for an outcome, with whatever steps come before it.
    pub(crate) fn outcome(
        &self,
        question: &ToNode,
        task: Option<BorrowedFd<'_>>,
        mut step: impl FnMut(&str),
    ) -> Result<ipc_proto::control::Outcome, Failure> {
        self.send(question, task)?;
        loop {
            match self.receive(None)? {
                (FromNode::Step { text }, _) => step(&text),
                (FromNode::Outcome, descriptors) => return opened(&descriptors),
                (other, _) => return Err(unexpected(&other)),
            }
        }
    }
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// The node has it at hand.
    Prompt,
    /// The node has to try something first.
    Long,
}

impl Patience {
    fn longest(self) -> Option<Duration> {
        match self {
            Patience::Prompt => Some(PROMPT),
            Patience::Long => None,
        }
    }
}

fn opened<T: DeserializeOwned>(descriptors: &[OwnedFd]) -> Result<T, Failure> {
    let wrong = |what: String| Failure::Trouble(Trouble::new(Code::OtherVersion, what));
    let memory =
        descriptors.first().ok_or_else(|| wrong("the node's answer came without its memory".into()))?;
    bulk::open(memory.as_fd())
        .map_err(|error| wrong(format!("{error}; see that node and command are of one version")))
}

/// Text in memory that cannot be changed any more, as `Submit` and `Test` pass it.
pub(crate) fn sealed(task: &Vec<u8>) -> Result<OwnedFd, Trouble> {
    bulk::seal(task).map_err(|error| Trouble::new(Code::BadTask, error.to_string()))
}
