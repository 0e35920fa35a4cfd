//! Launcher and anet-init, the first program inside the sandbox.
//!
//! Order: init makes what the plan asks for and says `Ready`; the launcher says `Go`; init starts the program (or the
//! probe's checks) and reports how it goes. Init never waits for anything but the launcher's words and its child.

use std::ffi::CString;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::channel::Message;

/// The port of the run's egress endpoint on its own loopback: above the kernel's range of ephemeral ports
/// (32768-60999), so that no connection of the run's own takes it first, and unassigned by IANA.
pub const EGRESS_PORT: u16 = 61_080;
/// The port of the run's model endpoint.
pub const MODEL_PORT: u16 = 61_081;
/// Connections that may wait for accept on an endpoint.
pub const BACKLOG: i32 = 64;

/// What anet-init does: passed in sealed memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InitPlan {
    /// What runs.
    pub purpose: Purpose,
    /// The loopback ports to listen on, in the order in which the listeners are passed out.
    pub ports: Vec<u16>,
    /// The directories (as seen inside) beneath which the second wall admits writing.
    pub writable: Vec<CString>,
    /// The second wall has rules on files: not where the launcher is in a Landlock domain itself, below which those would
    /// forbid every move between directories.
    pub file_rules: bool,
    /// What the operator opened, to be compared with what was mounted; none: nothing was.
    pub expected: Option<ExpectedMounts>,
    /// The largest file that the run may make, in bytes: its limit on growth.
    pub largest_file: Option<u64>,
}

/// bubblewrap mounts by name, and a run that goes on in the same directory can put another name in its place: what was
/// mounted is looked at from inside before anything starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExpectedMounts {
    /// The paths that the operator opened.
    pub opened: Vec<ExpectedMount>,
    /// What was mounted outside before: a mount of it below an opened path must have been there outside as well.
    pub outside: Vec<OutsideMount>,
}

/// A path that the operator opened, and the file or directory that it was when it was looked up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExpectedMount {
    /// Its name, inside as outside.
    pub path: CString,
    /// stat(2)'s device.
    pub device: u64,
    /// stat(2)'s inode.
    pub inode: u64,
}

/// One line of `/proc/self/mountinfo` outside.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutsideMount {
    /// `major:minor`.
    pub device: String,
    /// The directory of that file system that is mounted.
    pub root: CString,
    /// Where.
    pub place: CString,
}

/// What a start is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// A program.
    Command(CommandPlan),
    /// The checks of PRB-1.
    Probe(ProbePlan),
}

/// A program to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommandPlan {
    /// Its arguments; the first is the name looked up in PATH, or a path.
    pub argv: Vec<CString>,
    /// Its environment, each `NAME=VALUE`.
    pub environment: Vec<CString>,
    /// Where it starts, as seen inside.
    pub directory: CString,
    /// A pseudo-terminal of its own, if any.
    pub terminal: Option<TerminalPlan>,
}

/// A pseudo-terminal made inside the sandbox.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TerminalPlan {
    /// Which of 0, 1 and 2 are the terminal; the others are what the launcher was given.
    pub stdio: [bool; 3],
    /// Rows and columns at the start.
    pub size: WindowSize,
    /// Whether the terminal echoes: not where the operator's own terminal already does.
    pub echo: bool,
}

/// A terminal's size, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// What the probe tries (PRB-1). All of it really answers outside while the probe runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbePlan {
    /// Listening TCP sockets of the host.
    pub tcp: Vec<SocketAddr>,
    /// Listening abstract sockets, of the host and of the launcher's own network namespace.
    pub abstract_sockets: Vec<Vec<u8>>,
    /// Namespaces that the sandbox must not share: those of the guard and of the launcher.
    pub outside: Vec<NamespaceId>,
}

/// A namespace, as stat(2) of `/proc/PID/ns/KIND` names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamespaceId {
    /// Which kind.
    pub kind: NamespaceKind,
    /// The device of nsfs.
    pub device: u64,
    /// The namespace's inode.
    pub inode: u64,
}

/// The namespaces of SBX-1, and the mounts'.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum NamespaceKind {
    User,
    Pid,
    Net,
    Ipc,
    Uts,
    Cgroup,
    Mount,
}

impl NamespaceKind {
    /// Every kind.
    pub const ALL: [NamespaceKind; 7] = [
        NamespaceKind::User,
        NamespaceKind::Pid,
        NamespaceKind::Net,
        NamespaceKind::Ipc,
        NamespaceKind::Uts,
        NamespaceKind::Cgroup,
        NamespaceKind::Mount,
    ];

    /// Its name below /proc/PID/ns.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            NamespaceKind::User => "user",
            NamespaceKind::Pid => "pid",
            NamespaceKind::Net => "net",
            NamespaceKind::Ipc => "ipc",
            NamespaceKind::Uts => "uts",
            NamespaceKind::Cgroup => "cgroup",
            NamespaceKind::Mount => "mnt",
        }
    }
}

/// A check of the probe that did not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProbeFailure {
    /// The run's own loopback does not work.
    Loopback,
    /// A port of the host answered, or the way there is open.
    HostPort,
    /// An abstract socket outside answered.
    AbstractSocket,
    /// The key store answered.
    KeyStore,
    /// A new user namespace could be made.
    NewUserNamespace,
    /// A namespace is shared with the outside.
    SharedNamespace(NamespaceKind),
    /// A capability is left.
    Capabilities,
    /// no_new_privs is not set.
    NewPrivileges,
    /// No filter is in force.
    NoFilter,
    /// The user inside is not 1000, or the host's user 0 is mapped.
    User,
    /// Something outside the run's directories could be written, or the root is not ours.
    Writable,
}

/// How a program came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Exit {
    /// It exited with this status.
    Status(u8),
    /// This signal ended it.
    Signal(u8),
    /// It is not there (127).
    NotFound,
    /// It is there and cannot be started (126).
    NotExecutable,
}

/// What anet-init could not do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InitStep {
    /// Read its plan.
    Plan,
    /// Make a listener.
    Listener,
    /// Make the pseudo-terminal.
    Terminal,
    /// Find what the operator opened mounted, and nothing else in its place.
    Mounts,
    /// Confine itself.
    Confine,
    /// Enter the directory that the program starts in.
    Directory,
    /// Start the program, for a reason that is not the program's.
    Spawn,
}

/// Launcher to anet-init.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToInit {
    /// Start.
    Go,
    /// Pass this signal to the program's process group.
    Signal(u8),
    /// Continue a stopped program, in the foreground of its terminal.
    Resume,
}

/// anet-init to launcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromInit {
    /// Everything is made: the listeners in the plan's order, then the terminal's outer end if the plan has one.
    Ready {
        /// How many listeners.
        listeners: u8,
        /// Whether a terminal comes with it.
        terminal: bool,
    },
    /// It cannot go on.
    Failed {
        /// At what.
        step: InitStep,
        /// With which errno.
        errno: i32,
    },
    /// The program was stopped by this signal.
    Stopped(u8),
    /// The program has ended; everything else in the sandbox ends with it.
    Exited(Exit),
    /// The probe's checks that did not hold.
    Probed(Vec<ProbeFailure>),
}

impl Message for ToInit {
    const DIRECTION: &'static str = "launcher to init";
    fn descriptors(&self) -> usize {
        match self {
            ToInit::Go | ToInit::Signal(_) | ToInit::Resume => 0,
        }
    }
}

impl Message for FromInit {
    const DIRECTION: &'static str = "init to launcher";
    fn descriptors(&self) -> usize {
        match self {
            FromInit::Ready { listeners, terminal } => usize::from(*listeners) + usize::from(*terminal),
            FromInit::Failed { .. } | FromInit::Stopped(_) | FromInit::Exited(_) | FromInit::Probed(_) => 0,
        }
    }
}
