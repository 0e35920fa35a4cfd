//! The client of a node's control socket: connect, greet, ask; and ask again where a node that is coming back by itself was lost.

use std::fs::Metadata;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipc_proto::control::{FromNode, ToNode, VERSION};
use ipc_proto::{Channel, ChannelError, Code, InteractionId, Received, bulk};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;
use supervisor::error::Trouble;
use supervisor::explain;
use supervisor::guard::Directories;
use supervisor::node::job::Mode;

use crate::arguments::Anet;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

/// The file below the state that a node holds a lock on.
const LOCK: &str = "node.lock";
/// How long a node may take for its first word, and for an answer that costs it nothing.
const PROMPT: Duration = Duration::from_secs(30);
/// How long a node that was lost may take to come back. It starts anew by itself, the second time after a pause.
const RETURN: Duration = Duration::from_secs(10);
/// Between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(50);
/// A connection that held so long was no part of the last trouble.
const SETTLED: Duration = Duration::from_secs(1);

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

/// Where nodes listen, the first choice first.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    sockets: Vec<PathBuf>,
    /// What a node holds as long as it is there, between two lives of it as well.
    locks: Vec<PathBuf>,
}

impl Places {
    /// What the operator chose with `--user` or `--system`; neither: their own node if it runs, else the service.
    pub(crate) fn chosen(anet: &Anet) -> Result<Places, Trouble> {
        let mut places = Places { sockets: Vec::new(), locks: Vec::new() };
        let mut add = |directories: &Directories| {
            places.sockets.extend(directories.control_sockets());
            places.locks.push(directories.state.join(LOCK));
        };
        if !anet.system {
            add(&Directories::find()?);
        }
        if !anet.user {
            add(&Directories::service());
        }
        Ok(places)
    }

    #[cfg(test)]
    pub(crate) fn of(socket: PathBuf) -> Places {
        Places { sockets: vec![socket], locks: Vec::new() }
    }

    /// Connects, and waits for a node that is starting, or between two lives: it has its lock, but does not listen yet.
    pub(crate) fn reach(&self) -> Result<Node, Failure> {
        let began = Instant::now();
        loop {
            match self.connect() {
                Err(Failure::Lost | Failure::Absent) if began.elapsed() < RETURN && self.is_expected() => {
                    std::thread::sleep(PAUSE);
                }
                reached => return reached,
            }
        }
    }

    /// Whether somebody holds the lock of a node. Looked up, not tried: trying it would keep a node from starting.
    fn is_expected(&self) -> bool {
        let held = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        self.locks.iter().filter_map(|path| path.metadata().ok()).any(|file| is_locked(&held, &file))
    }

    /// Connects to the first at which somebody listens, and greets.
    pub(crate) fn connect(&self) -> Result<Node, Failure> {
        let mut refused = Failure::Absent;
        for socket in &self.sockets {
            match open(socket) {
                Ok(channel) => {
                    let node = Node { channel, since: Instant::now() };
                    node.greet()?;
                    return Ok(node);
                }
                Err(Failure::Absent) => {}
                // Another may be open to us.
                Err(failure @ (Failure::Lost | Failure::Trouble(_))) => refused = failure,
            }
        }
        Err(refused)
    }
}

/// Which node's files are meant: the operator's own, unless they say the service, or are root where only the service runs.
pub(crate) fn mode(anet: &Anet) -> Result<Mode, Trouble> {
    if anet.system {
        return Ok(Mode::System);
    }
    if anet.user || !rustix::process::geteuid().is_root() {
        return Ok(Mode::User);
    }
    let listens = |directories: &Directories| {
        directories.control_sockets().iter().any(|socket| !matches!(open(socket), Err(Failure::Absent)))
    };
    let is_service = listens(&Directories::service()) && !listens(&Directories::find()?);
    Ok(if is_service { Mode::System } else { Mode::User })
}

/// A connection that greeted.
#[derive(Debug)]
pub(crate) struct Node {
    channel: Channel<ToNode, FromNode>,
    since: Instant,
}

/// Whether the kernel's list (`/proc/locks`, proc(5)) has a lock of flock(2) on the file.
fn is_locked(list: &str, file: &Metadata) -> bool {
    let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    list.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let (kind, place) = (words.nth(1), words.nth(3));
        let mut place = place.unwrap_or_default().split(':');
        let mut number = || u32::from_str_radix(place.next()?, 16).ok();
        let listed = number().zip(number());
        let inode = place.next().and_then(|inode| inode.parse().ok());
        // A file system without a device of its own may be listed with another than stat(2) says.
        kind == Some("FLOCK") && inode == Some(file.ino()) && (listed == Some(device) || device.0 == 0)
    })
}

fn open(socket: &Path) -> Result<Channel<ToNode, FromNode>, Failure> {
    let wrong = |code: Code, what: String| Failure::Trouble(Trouble::new(code, what));
    let shown = socket.display();
    let address = SocketAddrUnix::new(socket).map_err(|_| {
        wrong(
            Code::NoNode,
            format!("{shown} is longer than a socket's path can be; set XDG_RUNTIME_DIR to a shorter one"),
        )
    })?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let end = Instant::now() + PROMPT;
    loop {
        let system = |errno: Errno| wrong(Code::NoNode, format!("{shown} cannot be asked ({errno})"));
        let descriptor =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(system)?;
        match connect(&descriptor, &address) {
            Ok(()) => {
                return Channel::from_fd(descriptor).map_err(|error| wrong(Code::NoNode, error.to_string()));
            }
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR) => return Err(Failure::Absent),
            Err(Errno::ACCESS | Errno::PERM) => {
                return Err(wrong(Code::NotAllowed, explain::sentence(Code::NotAllowed).to_owned()));
            }
            // So many others are waiting that the queue is full.
            Err(Errno::AGAIN) if Instant::now() < end => std::thread::sleep(PAUSE),
            Err(Errno::AGAIN) => return Err(silent()),
            Err(Errno::PROTOTYPE) => {
                return Err(wrong(
                    Code::OtherVersion,
                    format!("{shown} is another program's socket; remove it"),
                ));
            }
            Err(errno) => return Err(system(errno)),
        }
    }
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

/// A client that outlives the node's lives: whatever it asks may be asked twice.
#[derive(Debug)]
pub(crate) struct Client {
    places: Places,
    node: Option<Node>,
    returns: Duration,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(places: Places) -> Result<Client, Failure> {
        let node = places.reach();
        // One that ends at this moment may be about to come back.
        let node = match node {
            Err(Failure::Lost) => None,
            connected => Some(connected?),
        };
        Ok(Client { places, node, returns: RETURN })
    }

    #[cfg(test)]
    pub(crate) fn patient_for(mut self, returns: Duration) -> Client {
        self.returns = returns;
        self
    }

    /// Asks, and asks again after a node that was lost has come back.
    pub(crate) fn ask<T>(&mut self, question: impl Fn(&Node) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut lost: Option<Instant> = None;
        loop {
            let node = match self.node.take() {
                Some(node) => Ok(node),
                None => self.places.connect(),
            };
            match node {
                Ok(node) => match question(&node) {
                    Err(Failure::Lost) if node.since.elapsed() >= SETTLED => lost = None,
                    Err(Failure::Lost) => {}
                    answer => {
                        self.node = Some(node);
                        return answer;
                    }
                },
                Err(Failure::Lost | Failure::Absent) => {}
                Err(failure @ Failure::Trouble(_)) => return Err(failure),
            }
            let since = *lost.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.returns {
                return Err(Failure::Lost);
            }
            // A node that is being started anew needs the processor more than we do.
            std::thread::sleep(PAUSE);
        }
    }
}

/// Text in memory that cannot be changed any more, as `Submit` and `Test` pass it.
pub(crate) fn sealed(task: &Vec<u8>) -> Result<OwnedFd, Trouble> {
    bulk::seal(task).map_err(|error| Trouble::new(Code::BadTask, error.to_string()))
}
