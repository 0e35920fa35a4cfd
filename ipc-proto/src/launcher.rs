//! Supervisor and launcher.
//!
//! Per run: `Plan`, `Launch` (and `ControlGroup` between them), then `Ready` or `Failed`; `Go`; `Stopped`, `Signal`,
//! `Resume` as they come; `Exited` or `Over`; and at last `Closed`, after which the run's name is free.

use std::ffi::CString;

use serde::{Deserialize, Serialize};

use crate::channel::Message;
use crate::codes::Code;
use crate::ids::{Aid, InteractionId, RunId};
use crate::init::{Exit, NamespaceId, ProbeFailure, Purpose};

/// HOME inside the sandbox.
pub const INSIDE_HOME: &str = "/home/anet";
/// TMPDIR inside the sandbox.
pub const INSIDE_TEMPORARY: &str = "/tmp";
/// The work directory inside the sandbox, unless the operator named one, which keeps its own name.
pub const INSIDE_WORK: &str = "/work";
/// PATH inside the sandbox.
pub const INSIDE_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The user and group inside the sandbox.
pub const INSIDE_USER: u32 = 1000;

/// The longest text of a failure, in bytes.
pub const MAX_TEXT: usize = 1024;

/// What to start and in which surroundings: passed in sealed memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// Which run.
    pub run: RunId,
    /// What runs inside.
    pub purpose: Purpose,
    /// Which endpoints the run has.
    pub endpoints: Endpoints,
    /// Files that are in its home from the start.
    pub home: Vec<HomeFile>,
    /// What it sees of the file system.
    pub files: FilePlan,
    /// Growth of its directories, in bytes, that ends it; none: not looked at.
    pub growth: Option<u64>,
    /// Memory, in bytes, where there is a control group.
    pub memory: Option<u64>,
    /// Tasks, where there is a control group.
    pub tasks: Option<u64>,
    /// The programs that the launcher starts.
    pub programs: Programs,
}

/// The most files that a home starts with.
pub const MAX_HOME_FILES: usize = 16;

/// A file that is in the run's home from the start: an agent's configuration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HomeFile {
    /// Its path below HOME: names joined by single slashes, none of them `.` or `..`.
    pub path: CString,
    /// What it holds.
    pub contents: Vec<u8>,
    /// It is a program.
    pub executable: bool,
}

/// Which endpoints exist on the run's loopback.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Endpoints {
    /// The egress proxy's.
    pub egress: bool,
    /// The model broker's.
    pub model: bool,
}

/// The programs that the launcher starts, by absolute path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Programs {
    /// bubblewrap.
    pub bwrap: CString,
    /// anet-init.
    pub init: CString,
}

/// What a run sees of the file system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FilePlan {
    /// Where the run's own directories are made (absolute; the launcher's user owns it).
    pub root: CString,
    /// The work directory.
    pub work: WorkDirectory,
    /// More paths to write below, in the order given.
    pub read_write: Vec<CString>,
    /// More paths to read.
    pub read_only: Vec<CString>,
    /// Paths that are closed even inside an open one.
    pub deny: Vec<CString>,
    /// anet's own directories: closed whatever else is said.
    pub masked: Vec<CString>,
}

/// Which directory a run works in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkDirectory {
    /// A new one, made by the launcher, seen as /work.
    Fresh,
    /// One that the operator named (absolute, resolved), seen under its own name.
    Named(CString),
    /// One of a peer's interaction, seen as /work: `ROOT/PEER/INTERACTION/work`, made if it is not there, and left when the run
    /// ends, until [`ToLauncher::Sweep`] finds it old enough (FS-3).
    Kept {
        /// Whose task.
        peer: Aid,
        /// Which task.
        interaction: InteractionId,
    },
}

/// Why a sandbox did not come to stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The code of DIA-2.
    pub code: Code,
    /// What bubblewrap or the system said, at most [`MAX_TEXT`] bytes.
    pub text: String,
}

/// What the launcher watches and ends a run for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Exceeded {
    /// Its directories grew beyond the limit.
    Growth,
    /// It needed more memory than the limit.
    Memory,
}

/// What a run used in all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Used {
    /// Growth of its directories, bytes, where it was measured.
    pub growth: Option<u64>,
    /// Most memory, bytes, where there was a control group.
    pub memory: Option<u64>,
    /// Most tasks at once, where there was a control group.
    pub tasks: Option<u64>,
}

/// Supervisor to launcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToLauncher {
    /// A run's plan (one descriptor: sealed memory with a [`LaunchPlan`]).
    Plan(RunId),
    /// The control group that the run goes into (one descriptor: its directory).
    ControlGroup(RunId),
    /// Start it (three descriptors: what becomes 0, 1 and 2).
    Launch(RunId),
    /// Everybody is ready for it.
    Go(RunId),
    /// Pass a signal on.
    Signal(RunId, u8),
    /// Continue what was stopped.
    Resume(RunId),
    /// End it, whatever it does.
    End(RunId),
    /// Remove, when there is time, what kept work directories are left whose last run ended longer ago than this.
    Sweep {
        /// Where they are: a plan's root.
        root: CString,
        /// Milliseconds.
        older_than: u64,
    },
}

/// Launcher to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromLauncher {
    /// First word: which walls hold for the launcher itself, and the abstract socket that it listens on for probes.
    Hello {
        /// Its namespaces.
        namespaces: Vec<NamespaceId>,
        /// It is process 1 of a PID namespace of its own: the kernel ends what it started when it ends.
        own_pid_namespace: bool,
        /// It has no network.
        own_network: bool,
        /// The Landlock version that the kernel offers; 0: none.
        landlock: u8,
    },
    /// The sandbox stands and waits: the egress listener, the model listener, the terminal's outer end, each if asked.
    Ready {
        /// Which run.
        run: RunId,
        /// Which listeners come with it.
        endpoints: Endpoints,
        /// Whether a terminal comes with it.
        terminal: bool,
    },
    /// It did not come to stand.
    Failed {
        /// Which run.
        run: RunId,
        /// Why.
        failure: Failure,
    },
    /// What the probe found (in place of `Exited`).
    Probed {
        /// Which run.
        run: RunId,
        /// What did not hold.
        failures: Vec<ProbeFailure>,
    },
    /// The program was stopped.
    Stopped {
        /// Which run.
        run: RunId,
        /// By which signal.
        signal: u8,
    },
    /// The launcher ends the run for this.
    Over {
        /// Which run.
        run: RunId,
        /// What it exceeded.
        exceeded: Exceeded,
    },
    /// The program has ended.
    Exited {
        /// Which run.
        run: RunId,
        /// How; none when it was ended together with its sandbox.
        exit: Option<Exit>,
    },
    /// A sweep has ended.
    Swept {
        /// Directories that were removed.
        removed: u64,
        /// Directories that should have been removed and could not.
        left: u64,
    },
    /// No process of it is left and its directories are removed.
    Closed {
        /// Which run.
        run: RunId,
        /// What it used.
        used: Used,
    },
}

impl Message for ToLauncher {
    const DIRECTION: &'static str = "supervisor to launcher";
    fn descriptors(&self) -> usize {
        match self {
            ToLauncher::Plan(_) | ToLauncher::ControlGroup(_) => 1,
            ToLauncher::Launch(_) => 3,
            ToLauncher::Go(_) | ToLauncher::Signal(..) | ToLauncher::Resume(_) | ToLauncher::End(_) => 0,
            ToLauncher::Sweep { .. } => 0,
        }
    }
}

impl Message for FromLauncher {
    const DIRECTION: &'static str = "launcher to supervisor";
    fn descriptors(&self) -> usize {
        match self {
            FromLauncher::Ready { endpoints, terminal, .. } => {
                usize::from(endpoints.egress) + usize::from(endpoints.model) + usize::from(*terminal)
            }
            FromLauncher::Hello { .. }
            | FromLauncher::Failed { .. }
            | FromLauncher::Probed { .. }
            | FromLauncher::Stopped { .. }
            | FromLauncher::Over { .. }
            | FromLauncher::Exited { .. }
            | FromLauncher::Swept { .. }
            | FromLauncher::Closed { .. } => 0,
        }
    }
}
