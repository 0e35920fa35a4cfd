//! What a node's supervisor is started with: everything that the guard knows of the configuration and the host.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use ipc_proto::Aid;
use ipc_proto::HostName;
use ipc_proto::init::ProbePlan;
use ipc_proto::job::{Budget, ModelJob};
use ipc_proto::launcher::LaunchPlan;
use ipc_proto::limits::Limits;
use serde::{Deserialize, Serialize};

use crate::agents::Installed;
use crate::config::{Agent, Backend, Trusted, Untrusted};
use crate::error::Trouble;

/// What kind of node it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Mode {
    /// One user's own.
    User,
    /// A service.
    System,
}

impl Mode {
    /// The mode as `anet status` prints it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::User => "user",
            Mode::System => "system",
        }
    }
}

/// A node's job: passed in sealed memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeJob {
    /// A user's or a service.
    pub mode: Mode,
    /// When this life of the node began, milliseconds since 1970.
    pub started: u64,
    /// How often the node came up again by itself since `anet daemon` was started.
    pub restarts: u32,
    /// Why the life before this one ended, if it ended by itself: one line.
    pub last_end: Option<String>,
    /// Who may command it.
    pub operator: u32,
    /// A group that may as well.
    pub group: Option<u32>,
    /// The host's user that runs have.
    pub user: u32,
    /// Where the evidence is kept: a directory, there already, private.
    pub evidence: PathBuf,
    /// Where the inbox's database is kept: a directory, there already, private.
    pub inbox: PathBuf,
    /// What may be done for whom.
    pub policy: Policy,
    /// What a sandboxed run is made from; or why none can be. With the `openai` backend only its model counts.
    pub turn: Result<Turn, Trouble>,
    /// Whether a process for `direct` runs and `notify` is there (`descriptors::OUTSIDE`), and for which of the two.
    pub outside: Outside,
    /// How the sandbox is tried.
    pub probe: ProbeSetup,
    /// What the node was started from: when one of them is not what it was, it starts anew ([`ipc_proto::job::Word::Anew`]).
    pub watched: Vec<Watched>,
    /// SHA-256 of the configuration's text, in hex; for the evidence.
    pub config_sha256: String,
    /// The operator's `TZ`; none: the system's time zone.
    pub zone: Option<String>,
    /// Known before the start.
    pub warnings: Vec<Trouble>,
}

impl NodeJob {
    /// The directories that the node writes in: the inbox's only where there is one.
    pub fn kept(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.evidence), crate::AUTO_REPLY.then_some(&self.inbox)]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
    }
}

/// What may be done for whom.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// The trusted peers.
    pub trust: Vec<Aid>,
    /// How their tasks are run.
    pub trusted: Trusted,
    /// How anybody else's are.
    pub untrusted: Untrusted,
    /// What answers.
    pub backend: Backend,
    /// Which agent.
    pub agent: Agent,
    /// Runs a local day, all untrusted peers together.
    pub runs_per_day: u32,
    /// Runs a local day of one untrusted peer.
    pub runs_per_peer_per_day: u32,
    /// The allowed hosts.
    pub hosts: Vec<HostName>,
    /// The limits of a run.
    pub limits: Limits,
    /// The budget of a run.
    pub budget: Budget,
    /// The budget of a peer's day.
    pub peer_day: PeerDay,
    /// How long work directories, tasks and answers are kept after an interaction's end, days.
    pub retention_days: u32,
}

/// How far one peer may reach in a local day (BUD-3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerDay {
    /// Distinct destinations.
    pub destinations: u64,
    /// Bytes outward.
    pub bytes_out: u64,
}

/// What a sandboxed run is made from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// The agent's program; none: a custom one, started by `command`.
    pub installed: Option<Installed>,
    /// A custom agent's command line, as the operator wrote it.
    pub command: Vec<String>,
    /// The environment without what the agent adds and without `ANET_RUN`, as `NAME=value`.
    pub environment: Vec<CString>,
    /// The launcher's plan of a run: its run, purpose, home and work directory are each run's own.
    pub plan: LaunchPlan,
    /// The model that a run reaches; none: a custom agent that needs none.
    pub model: Option<ModelJob>,
}

/// What the process outside of the sandbox may start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Outside {
    /// The agent, for trusted peers.
    pub direct: bool,
    /// The operator's `notify` command.
    pub notify: bool,
}

/// How the sandbox is tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeSetup {
    /// What the probe tries; the host's half of it listens as long as the guard lives.
    pub plan: ProbePlan,
    /// What a result holds for.
    pub key: String,
    /// When it was last found good for this key, milliseconds since 1970, if that is less than five minutes ago.
    pub good: Option<u64>,
}

/// A file that the node was started from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watched {
    /// Which: absolute.
    pub path: PathBuf,
    /// As it was; none: it was not there.
    pub seen: Option<Seen>,
}

/// A file as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Seen {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub modified: (i64, i64),
    pub changed: (i64, i64),
}

impl Watched {
    /// Looks at a file.
    #[must_use]
    pub fn look(path: PathBuf) -> Watched {
        let seen = Seen::of(&path);
        Watched { path, seen }
    }

    /// It is not what it was.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        Seen::of(&self.path) != self.seen
    }
}

impl Seen {
    fn of(path: &std::path::Path) -> Option<Seen> {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(path).ok()?;
        Some(Seen {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            mode: found.mode(),
            uid: found.uid(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}
