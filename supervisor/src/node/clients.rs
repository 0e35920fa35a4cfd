//! Who is connected to the control socket, and how far each has got. Nothing that a client does ends the node: it is told, and
//! let go.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ipc_proto::control::{FromNode, ToNode, VERSION};
use ipc_proto::{Channel, Code, InteractionId, Received, RunId, bulk};
use rustix::net::{SocketFlags, accept_with, sockopt::socket_peercred};
use serde::Serialize;

use crate::error::{Trouble, one_line};
use crate::explain;

/// The most clients at once; the next ones wait in the socket's queue.
const MOST: usize = 384;
/// The most that wait for something: the rest is for those who ask and go.
const MOST_WAITING: usize = 320;
/// How long a client may be connected and ask nothing.
const IDLE: Duration = Duration::from_secs(30);
/// How long a client may take to say its first word.
const HELLO: Duration = Duration::from_secs(10);
/// The longest sentence that is sent, in bytes.
const MAX_SENTENCE: usize = 1024;

/// A client's number: never used twice.
pub(super) type ClientId = u64;

/// What a client waits for; meanwhile it is not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// An interaction's end.
    Interaction(InteractionId),
    /// Its own test's end.
    Test(RunId),
    /// The sandbox's trial.
    Check,
    /// The sandbox's trial, before its own test.
    Trial,
}

#[derive(Debug)]
struct Client {
    channel: Channel<FromNode, ToNode>,
    greeted: bool,
    since: Instant,
    waits: Option<Waits>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Clients {
    listener: OwnedFd,
    operator: u32,
    /// A service's socket belongs to a group, and its mode lets nobody else in.
    by_group: bool,
    all: BTreeMap<ClientId, Client>,
    next: ClientId,
}

impl Clients {
    pub(super) fn new(listener: OwnedFd, operator: u32, group: Option<u32>) -> Clients {
        Clients { listener, operator, by_group: group.is_some(), all: BTreeMap::new(), next: 0 }
    }

    /// To be waited for: the listener, where there is room for one more.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        (self.all.len() < MOST).then(|| self.listener.as_fd())
    }

    /// To be waited for: whoever may speak, and whoever waits, since it may go.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (ClientId, BorrowedFd<'_>)> {
        self.all.iter().map(|(id, client)| (*id, client.channel.as_fd()))
    }

    /// Takes in who is at the door.
    pub(super) fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Whoever went away again, or a limit on descriptors, is no reason to end anything.
        let Ok(socket) = accept_with(&self.listener, flags) else { return };
        let Ok(who) = socket_peercred(&socket) else { return };
        let uid = who.uid.as_raw();
        let Ok(channel) = Channel::from_fd(socket) else { return };
        if uid != self.operator && uid != 0 && !self.by_group {
            let sentence = explain::sentence(Code::NotAllowed).to_owned();
            let _ = channel.send(&FromNode::Refused { code: Code::NotAllowed, sentence }, &[]);
            return;
        }
        let client = Client { channel, greeted: false, since: Instant::now(), waits: None };
        self.all.insert(self.next, client);
        self.next += 1;
    }

    /// One request of this client, with what came with it; none: there is none, or it was dealt with here.
    pub(super) fn hear(&mut self, id: ClientId) -> Option<(ToNode, Vec<OwnedFd>)> {
        let client = self.all.get_mut(&id)?;
        let (message, descriptors) = match client.channel.try_receive() {
            Ok(Received::Message(message, descriptors)) => (message, descriptors),
            Ok(Received::Empty) => return None,
            Ok(Received::Closed) => {
                self.all.remove(&id);
                return None;
            }
            Err(error) => {
                let sentence = format!("{error}; use the `anet` of the node's version");
                self.refuse(id, &Trouble::new(Code::OtherVersion, sentence));
                self.all.remove(&id);
                return None;
            }
        };
        let speaks_early = client.waits.is_some();
        client.since = Instant::now();
        match &message {
            ToNode::Hello { version } if !client.greeted => {
                if *version != VERSION {
                    self.refuse(id, &explained(Code::OtherVersion));
                    self.all.remove(&id);
                    return None;
                }
                client.greeted = true;
                let hello =
                    FromNode::Hello { version: VERSION, program: env!("CARGO_PKG_VERSION").to_owned() };
                self.send(id, &hello, None);
                None
            }
            ToNode::Submit { .. }
            | ToNode::Wait { .. }
            | ToNode::Inbox { .. }
            | ToNode::Show { .. }
            | ToNode::Status
            | ToNode::Check
            | ToNode::Test
                if client.greeted && !speaks_early =>
            {
                Some((message, descriptors))
            }
            ToNode::Hello { .. }
            | ToNode::Submit { .. }
            | ToNode::Wait { .. }
            | ToNode::Inbox { .. }
            | ToNode::Show { .. }
            | ToNode::Status
            | ToNode::Check
            | ToNode::Test => {
                let sentence = "a client says Hello first, and waits for each answer; use `anet`";
                self.refuse(id, &Trouble::new(Code::BadOption, sentence));
                self.all.remove(&id);
                None
            }
        }
    }

    /// Sends a message; a client that does not read is let go.
    pub(super) fn send(&mut self, id: ClientId, message: &FromNode, memory: Option<&OwnedFd>) {
        let Some(client) = self.all.get(&id) else { return };
        let descriptors: Vec<BorrowedFd<'_>> = memory.iter().map(|memory| memory.as_fd()).collect();
        if client.channel.send(message, &descriptors).is_err() {
            self.all.remove(&id);
        }
    }

    /// Sends a value in memory.
    pub(super) fn document<T: Serialize>(&mut self, id: ClientId, message: &FromNode, value: &T) {
        match bulk::seal(value) {
            Ok(memory) => self.send(id, message, Some(&memory)),
            Err(error) => {
                self.refuse(id, &Trouble::new(Code::StateUnusable, format!("{error}; ask for less")))
            }
        }
    }

    pub(super) fn refuse(&mut self, id: ClientId, trouble: &Trouble) {
        let sentence = shortened(&trouble.sentence);
        self.send(id, &FromNode::Refused { code: trouble.code, sentence }, None);
    }

    /// Whether this client is still connected.
    pub(super) fn is_there(&self, id: ClientId) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn waits(&mut self, id: ClientId, what: Waits) {
        if self.all.values().filter(|client| client.waits.is_some()).count() >= MOST_WAITING {
            let sentence =
                "so many clients wait for an answer that no further one may; ask again later, by `anet show`";
            self.refuse(id, &Trouble::new(Code::InboxFull, sentence));
            return;
        }
        if let Some(client) = self.all.get_mut(&id) {
            client.waits = Some(what);
        }
    }

    /// Whoever waits for this waits no longer.
    pub(super) fn waiting_for(&mut self, what: &Waits) -> Vec<ClientId> {
        let waiting = self.all.iter_mut().filter(|(_, client)| client.waits.as_ref() == Some(what));
        waiting
            .map(|(id, client)| {
                client.waits = None;
                client.since = Instant::now();
                *id
            })
            .collect()
    }

    /// Who waits for this, and goes on waiting.
    pub(super) fn who_waits_for(&self, what: &Waits) -> Vec<ClientId> {
        let waiting = self.all.iter().filter(|(_, client)| client.waits.as_ref() == Some(what));
        waiting.map(|(id, _)| *id).collect()
    }

    /// When somebody has been silent for too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all.values().filter_map(Client::deadline).min()
    }

    pub(super) fn look_at_clocks(&mut self, now: Instant) {
        self.all.retain(|_, client| client.deadline().is_none_or(|at| at > now));
    }
}

impl Client {
    /// Until when it has to say something; none: it waits for us.
    fn deadline(&self) -> Option<Instant> {
        let patience = if self.greeted { IDLE } else { HELLO };
        self.waits.is_none().then(|| self.since + patience)
    }
}

fn explained(code: Code) -> Trouble {
    Trouble::new(code, explain::sentence(code))
}

fn shortened(sentence: &str) -> String {
    let mut line = one_line(sentence);
    while line.len() > MAX_SENTENCE {
        line.pop();
    }
    line
}
