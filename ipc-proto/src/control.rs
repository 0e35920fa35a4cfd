//! The control socket: what `anet` asks of a running node.
//!
//! A client connects, says `Hello` with its version, and then one request after the other, each answered before the next is
//! read. Long values travel in sealed memory ([`crate::bulk`]). Whoever sends what does not belong there is told so and
//! disconnected: a client is no part of the node, and nothing it says ends the node.

use serde::{Deserialize, Serialize};

use crate::channel::Message;
use crate::codes::Code;
use crate::ids::{Aid, InteractionId};

/// The version of these messages. Another one is refused with [`Code::OtherVersion`].
pub const VERSION: u16 = 1;
/// The longest task, in bytes.
pub const MAX_TASK: usize = 1024 * 1024;
/// The most rows of one `Inbox`.
pub const MAX_ROWS: u16 = 1000;
/// The longest identifier that `Show` takes, in bytes.
pub const MAX_ID: usize = 64;

/// `anet` to the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToNode {
    /// First word.
    Hello {
        /// The client's [`VERSION`].
        version: u16,
    },
    /// Take a task (one descriptor: `Vec<u8>` in sealed memory, at most [`MAX_TASK`]). Answer: `Submitted`, when it is on disk.
    Submit {
        /// Whose task.
        peer: Aid,
        /// Its name; none: the node makes one.
        interaction: Option<InteractionId>,
    },
    /// Say how it ended, when it has. Answer: `Outcome`.
    Wait {
        /// Which.
        interaction: InteractionId,
    },
    /// The interactions, newest first. Answer: `Document` with `Vec<Row>`.
    Inbox {
        /// Only those older than this row ([`Row::number`]); none: from the newest.
        before: Option<u64>,
        /// At most so many, at most [`MAX_ROWS`].
        most: u16,
    },
    /// One interaction or run. Answer: `Document` with [`Story`].
    Show {
        /// Its name, at most [`MAX_ID`].
        id: String,
    },
    /// Answer: `Document` with [`Status`].
    Status,
    /// Try the sandbox now (PRB-1). Answer: `Document` with [`Sandbox`].
    Check,
    /// Run one sandboxed turn, uncounted (one descriptor: the task, as for `Submit`). Answer: `Step` as they come, then
    /// `Outcome`.
    Test,
}

/// The node to `anet`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromNode {
    /// First word.
    Hello {
        /// The node's [`VERSION`].
        version: u16,
        /// The program's version, such as `0.1.0`.
        program: String,
    },
    /// The task is on disk.
    Submitted {
        /// Its name.
        interaction: InteractionId,
        /// The same task was there already.
        known: bool,
    },
    /// What `Test` is doing, in words for a person, at most 1 KiB.
    Step {
        /// The words.
        text: String,
    },
    /// How an interaction ended (one descriptor: [`Outcome`] in sealed memory).
    Outcome,
    /// What was asked for (one descriptor: in sealed memory).
    Document,
    /// The request is refused; the next may follow.
    Refused {
        /// The code.
        code: Code,
        /// The sentence, at most 1 KiB.
        sentence: String,
    },
}

/// Where an interaction is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits.
    Queued,
    /// Its agent runs.
    Running,
    /// It has its answer.
    Answered,
    /// It was refused, with a code.
    Refused,
    /// Its run used up a budget.
    Exhausted,
    /// Its run was interrupted by the node's end. It is not run again by itself.
    Interrupted,
}

impl State {
    /// Every state.
    pub const ALL: [State; 6] = [
        State::Queued,
        State::Running,
        State::Answered,
        State::Refused,
        State::Exhausted,
        State::Interrupted,
    ];

    /// The state as it is printed and kept.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Running => "running",
            State::Answered => "answered",
            State::Refused => "refused",
            State::Exhausted => "exhausted",
            State::Interrupted => "interrupted",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Nothing more becomes of it by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            State::Queued | State::Running => false,
            State::Answered | State::Refused | State::Exhausted | State::Interrupted => true,
        }
    }
}

/// What a peer is told in place of an answer (DIA-1).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// `sandbox_unavailable`, `budget` or `agent_failed`.
    pub code: String,
    /// With `budget`: `runs` or `egress`; with `agent_failed`: what ended it.
    pub kind: Option<String>,
    /// With `budget` of kind `runs`: when the day ends, RFC 3339 with the local offset.
    pub until: Option<String>,
    /// One sentence.
    pub sentence: String,
}

/// How an interaction ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Which.
    pub interaction: String,
    /// How.
    pub state: State,
    /// The agent's text, with [`State::Answered`].
    pub answer: Option<String>,
    /// In the other final states.
    pub refusal: Option<Refusal>,
}

/// An interaction in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Counts the tasks of the node from 1.
    pub number: u64,
    /// Its name.
    pub id: String,
    /// Whose.
    pub peer: String,
    /// The peer was trusted when it was decided; none: not decided yet.
    pub trusted: Option<bool>,
    /// Where it is.
    pub state: State,
    /// The refusal's code.
    pub code: Option<String>,
    /// When it came, RFC 3339, UTC.
    pub submitted: String,
    /// When it came to its final state.
    pub ended: Option<String>,
}

/// One interaction or run, whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Story {
    /// The interaction.
    pub interaction: Row,
    /// The task's length, bytes; its text is the operator's to read.
    pub task_bytes: u64,
    /// The task.
    pub task: String,
    /// The agent's text.
    pub answer: Option<String>,
    /// What the peer was told in its place.
    pub refusal: Option<Refusal>,
    /// The runs' records (CLI.md), each as JSON text, first to last. One that goes on has none yet.
    pub runs: Vec<RunStory>,
}

/// One run of an interaction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunStory {
    /// Its name.
    pub run: String,
    /// `sandbox`, `direct` or `openai`.
    pub way: String,
    /// When it was admitted, RFC 3339, UTC.
    pub started: String,
    /// Its record as JSON text, when it has ended.
    pub record: Option<String>,
}

/// `anet status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// `user` or `system`.
    pub mode: String,
    /// Since the node came up (this life of it).
    pub uptime_seconds: u64,
    /// How often the node came up again by itself since `anet daemon` was started.
    pub restarts: u32,
    /// Why the life before this one ended, if one did.
    pub last_end: Option<String>,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// anet's own processes.
    pub processes: Vec<Process>,
    /// What runs.
    pub runs: Vec<Running>,
    /// Tasks that wait.
    pub queued: u64,
    /// The local day.
    pub day: Day,
    /// The allowed hosts.
    pub egress_allow: Vec<String>,
    /// How tasks are answered.
    pub auto_reply: AutoReply,
    /// The evidence.
    pub evidence: EvidenceState,
    /// What the operator should know.
    pub warnings: Vec<Warning>,
}

/// Whether a sandboxed turn could run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sandbox {
    /// It could.
    pub available: bool,
    /// Why not, by a code of DIA-2.
    pub code: Option<String>,
    /// The code's sentence.
    pub sentence: Option<String>,
    /// `full` or `partial` (LIM-2).
    pub limits: String,
    /// The kernel's Landlock version; 0: none.
    pub landlock_abi: u8,
    /// When it was tried last, RFC 3339, UTC.
    pub checked: Option<String>,
}

/// One of anet's own processes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// `guard`, `supervisor`, `launcher`, `broker`, `proxy`, `outside`.
    pub name: String,
    /// Its number.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// A run that goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Running {
    /// Its name.
    pub run: String,
    /// Of which interaction.
    pub interaction: String,
    /// Whose.
    pub peer: String,
    /// `starting`, `running` or `ending`.
    pub state: String,
    /// When it was admitted, RFC 3339, UTC.
    pub started: String,
}

/// The local day and what is counted in it (RUN-1).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Day {
    /// Such as `2026-03-29`.
    pub date: String,
    /// When it ends, RFC 3339 with the local offset.
    pub ends: String,
    /// All untrusted peers together.
    pub runs: Used,
    /// Each that has one.
    pub peers: Vec<PeerUsed>,
}

/// So many of so many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Used {
    /// So many.
    pub used: u64,
    /// Of so many.
    pub limit: u64,
}

/// One peer's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerUsed {
    /// Who.
    pub aid: String,
    /// So many.
    pub used: u64,
    /// Of so many.
    pub limit: u64,
}

/// How tasks are answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AutoReply {
    /// `exec` or `openai`.
    pub backend: String,
    /// The agent.
    pub agent: String,
    /// `off`, `direct` or `sandbox`.
    pub trusted: String,
    /// `off` or `sandbox`.
    pub untrusted: String,
}

/// The chain, as the node writes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EvidenceState {
    /// How many records it has.
    pub records: u64,
    /// The last signed one; none: none is signed yet.
    pub signed: Option<u64>,
}

/// One thing that the operator should know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Warning {
    /// Its code.
    pub code: String,
    /// Its sentence.
    pub sentence: String,
}

impl Message for ToNode {
    const DIRECTION: &'static str = "client to node";

    fn descriptors(&self) -> usize {
        match self {
            ToNode::Submit { .. } | ToNode::Test => 1,
            ToNode::Hello { .. }
            | ToNode::Wait { .. }
            | ToNode::Inbox { .. }
            | ToNode::Show { .. }
            | ToNode::Status
            | ToNode::Check => 0,
        }
    }
}

impl Message for FromNode {
    const DIRECTION: &'static str = "node to client";

    fn descriptors(&self) -> usize {
        match self {
            FromNode::Outcome | FromNode::Document => 1,
            FromNode::Hello { .. }
            | FromNode::Submitted { .. }
            | FromNode::Step { .. }
            | FromNode::Refused { .. } => 0,
        }
    }
}
