//! Guard and supervisor: the job that the supervisor is started with, and the words it may say back.

use serde::{Deserialize, Serialize};

use crate::broker::ModelPolicy;
use crate::codes::Code;
use crate::host::HostName;
use crate::ids::RunId;
use crate::init::ProbePlan;
use crate::launcher::LaunchPlan;
use crate::limits::Limits;
use crate::terminal::TerminalMode;
use crate::upstream::Upstream;

/// One run in the foreground: passed in sealed memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Its name.
    pub run: RunId,
    /// When it was asked for, milliseconds since 1970.
    pub started: u64,
    /// What the record calls the agent: the command's first word without its path.
    pub agent: String,
    /// The host's user that the run has.
    pub user: u32,
    /// Who asked for it.
    pub operator: u32,
    /// What to start.
    pub plan: LaunchPlan,
    /// The allowed hosts.
    pub hosts: Vec<HostName>,
    /// What holds.
    pub limits: Limits,
    /// How far it may reach.
    pub budget: Budget,
    /// What the sandbox has to show first; none: it did so a short time ago.
    pub probe: Option<ProbeJob>,
    /// Known before the start; told once, and part of the record.
    pub warnings: Vec<Code>,
    /// Whether a record is wanted.
    pub record: bool,
    /// Whether there is a control group for the run.
    pub control_group: bool,
    /// The model that it reaches, if it reaches one.
    pub model: Option<ModelJob>,
    /// How the answer is found in the agent's output; none: the output is the operator's as it is.
    pub answer: Option<AnswerJob>,
    /// The terminal, if there is one.
    pub terminal: Option<TerminalMode>,
    /// No summary at the end.
    pub quiet: bool,
    /// Only the probe: nothing else is started (`anet doctor`).
    pub probe_only: bool,
}

/// The model that a run reaches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelJob {
    /// What may be asked.
    pub policy: ModelPolicy,
    /// Of whom.
    pub upstream: Upstream,
    /// Where the key came from, by name.
    pub key: KeySource,
}

/// Where a key came from: what to tell an operator whose key the service does not take.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KeySource {
    /// There is none.
    None,
    /// A variable of the operator's.
    Variable(String),
    /// A stored credential.
    Stored(String),
}

/// An answer that is read from the agent's output and written to the operator's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AnswerJob {
    /// How it is found.
    pub format: AnswerFormat,
    /// It is written to a terminal, which must not be steered by it.
    pub to_terminal: bool,
}

/// The form of an agent's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AnswerFormat {
    /// `claude --output-format json`: one object.
    Claude,
    /// `codex exec --json`: an event a line.
    Codex,
    /// `opencode run --format json`: an event a line.
    Opencode,
    /// `openclaw agent exec --json`: one object.
    Openclaw,
    /// All of it is the answer, unless it is one line that says in hermes's words that the model failed.
    Hermes,
    /// All of it is the answer.
    Text,
}

/// A probe that comes before the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeJob {
    /// Its name: it is a run like any other to the launcher.
    pub run: RunId,
    /// What it tries.
    pub plan: ProbePlan,
    /// What the result holds for: written in front of it.
    pub key: String,
}

/// How far a run may reach (BUD-1); none: not bounded by a budget.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Budget {
    /// Distinct destinations.
    pub destinations: Option<u64>,
    /// Bytes outward.
    pub bytes_out: Option<u64>,
    /// Milliseconds from the start.
    pub window: Option<u64>,
}

impl Budget {
    /// What a run of somebody untrusted has (BUD-3).
    #[must_use]
    pub fn untrusted(wall_clock: Option<u64>) -> Budget {
        Budget { destinations: Some(16), bytes_out: Some(32 * 1024 * 1024), window: wall_clock }
    }
}

/// What the supervisor may say to the guard, one byte each. There is no other word, and no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// The launcher has its orders: the rest can be started beside what it does.
    Launched,
    /// The program stopped: stop, so that the shell which started anet sees it.
    Stop,
    /// The run is under way: from now on signals are passed on.
    Started,
    /// A node serves: whoever waits for its readiness is told.
    Ready,
    /// A node has nothing under way, and what it was started from (configuration, programs) is not what is there now: end all
    /// and start anew.
    Anew,
}

impl Word {
    /// The word as a byte.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Word::Launched => b'L',
            Word::Stop => b'T',
            Word::Started => b'S',
            Word::Ready => b'R',
            Word::Anew => b'N',
        }
    }

    /// The word of that byte.
    #[must_use]
    pub fn parse(byte: u8) -> Option<Word> {
        match byte {
            b'L' => Some(Word::Launched),
            b'T' => Some(Word::Stop),
            b'S' => Some(Word::Started),
            b'R' => Some(Word::Ready),
            b'N' => Some(Word::Anew),
            _ => None,
        }
    }
}
