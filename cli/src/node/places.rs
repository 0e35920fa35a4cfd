//! Where a node listens, and whether one is about to.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ipc_proto::control::{FromNode, ToNode};
use ipc_proto::{Channel, Code};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use supervisor::error::Trouble;
use supervisor::explain;
use supervisor::guard::Directories;
use supervisor::node::job::Mode;

use super::{Failure, Node, PAUSE, PROMPT, RETURN, silent};
use crate::arguments::Anet;

/// The file below the state that a node holds a lock on.
const LOCK: &str = "node.lock";

/// Where nodes listen, the first choice first.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(super) sockets: Vec<PathBuf>,
    /// What a node holds as long as it is there, between two lives of it as well.
    pub(super) locks: Vec<PathBuf>,
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
    pub(super) fn is_expected(&self) -> bool {
        let held = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        self.locks.iter().filter_map(|path| path.metadata().ok()).any(|file| is_locked(&held, &file))
    }

    /// Connects to the first at which somebody listens, and greets.
    pub(crate) fn connect(&self) -> Result<Node, Failure> {
        let mut refused = Failure::Absent;
        for socket in &self.sockets {
            match open(socket) {
                Ok(channel) => {
                    return Node::greeted(channel);
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

/// Whether the kernel's list (`/proc/locks`, proc(5)) has a lock of flock(2) on the file.
pub(super) fn is_locked(list: &str, file: &Metadata) -> bool {
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
