//! Supervisor and broker, and what the guard starts a broker with.
//!
//! Per run: `Open` with its listener, `Opened`; then a `Want` before each request that a budget bounds, and a report of each
//! request as it is decided and as it ends; `Close`, the last reports, `Closed`, after which the run's name is free.
//! An `Ask` is a request of the node's own for a run that has no listener: one `Answered`, and the run's name is free.
//!
//! No message carries a key, and none asks for one.

use serde::{Deserialize, Serialize};

use crate::channel::Message;
use crate::ids::RunId;
use crate::proxy::{Decision, Reason};
use crate::upstream::Upstream;

/// The longest model identifier, in bytes.
pub const MAX_MODEL: usize = 128;
/// The longest name of a rule in a report, in bytes.
pub const MAX_RULE: usize = 64;
/// The largest body that a request may have where no limit is set, in bytes: the services take no larger one (Anthropic:
/// 32 MB, as of 2026-11), and the broker holds it in memory.
pub const LARGEST_BODY: u64 = 32 * 1024 * 1024;
/// The most connections of one run at once where no limit is set: each may hold a body in the broker's memory.
pub const MOST_CONNECTIONS: u64 = 64;
/// The longest answer that `Ask` takes, in bytes.
pub const LARGEST_ANSWER: u64 = 1024 * 1024;

/// What a broker is started with, in sealed memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BrokerPlan {
    /// The service, the only one that it ever speaks to; none: the node's agent needs no model, and no run is served.
    pub upstream: Option<Upstream>,
    /// Whether the node's signing key comes with it ([`crate::descriptors::SIGNING_KEY`]).
    pub signs: bool,
    /// Whether a key comes with it ([`crate::descriptors::KEY`]).
    pub has_key: bool,
}

/// What a run may ask of the model.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModelPolicy {
    /// The model's identifier: every request asks for it, whatever it asked for (MOD-2).
    pub model: ModelId,
    /// The most tokens of one answer (MOD-3).
    pub output_tokens: u64,
    /// How long the service may be silent, milliseconds: until its head comes, and between two pieces of an answer.
    pub silence: u64,
}

/// A model's identifier: 1 to [`MAX_MODEL`] printable ASCII characters without space, quote and backslash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModelId(String);

/// Text that names no model.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error(
    "a model's identifier has 1 to 128 letters, digits and - . _ : / @ + characters, such as claude-sonnet-4-5"
)]
pub struct ModelIdError;

impl ModelId {
    /// The identifier.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ModelId {
    type Error = ModelIdError;

    fn try_from(text: String) -> Result<ModelId, ModelIdError> {
        let fits = (1..=MAX_MODEL).contains(&text.len())
            // A leading dash would be an option to the agent that is told the name.
            && !text.starts_with('-')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:/@+".contains(&byte));
        if fits { Ok(ModelId(text)) } else { Err(ModelIdError) }
    }
}

impl From<ModelId> for String {
    fn from(model: ModelId) -> String {
        model.0
    }
}

/// The limits that the broker counts; none: no such limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ModelLimits {
    /// Requests that go out.
    pub requests: Option<u64>,
    /// One body, bytes.
    pub body: Option<u64>,
    /// All bodies that go out, bytes.
    pub total: Option<u64>,
    /// Connections to the endpoint at once.
    pub connections: Option<u64>,
}

/// What a run reached, for the record.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ModelTotals {
    /// Requests that went out.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// The largest body that was taken from the agent, bytes.
    pub body: u64,
    /// All bodies that went out, bytes.
    pub total: u64,
    /// Most connections at once.
    pub connections: u64,
}

/// The key, as the broker found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KeyState {
    /// Read.
    Ready,
    /// None was given, and none is needed.
    None,
    /// What was given is empty.
    Empty,
    /// It has characters that no header can carry, or is too long.
    Malformed,
}

/// Which of the service's interfaces a request was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interface {
    /// Anthropic Messages.
    Messages,
    /// Anthropic's counting of tokens.
    CountTokens,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions.
    ChatCompletions,
}

/// Why a request that was let through did not end well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum UpstreamTrouble {
    /// No connection to the service, for the proxy's reason.
    Unreachable(Reason),
    /// TLS failed: the certificate is not for this name, not trusted, or out of date.
    Untrusted,
    /// The service was silent for too long.
    Silent,
    /// The service ended the connection before its answer was whole.
    Cut,
    /// What came was no HTTP.
    Malformed,
    /// (`Ask`) The service's content filter took the task or the answer away.
    Filtered,
    /// (`Ask`) The answer has no text.
    Empty,
    /// (`Ask`) The answer is longer than [`LARGEST_ANSWER`].
    TooLong,
    /// (`Ask`) What came with status 200 is no answer of this interface.
    NoCompletion,
}

impl UpstreamTrouble {
    /// The name that the record, the operator's line and, but for the reasons of the proxy, the agent's sentence use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            UpstreamTrouble::Unreachable(reason) => reason.as_str(),
            UpstreamTrouble::Untrusted => "upstream_tls",
            UpstreamTrouble::Silent => "upstream_timeout",
            UpstreamTrouble::Cut => "upstream_closed",
            UpstreamTrouble::Malformed => "upstream_malformed",
            UpstreamTrouble::Filtered => "upstream_filtered",
            UpstreamTrouble::Empty => "upstream_empty",
            UpstreamTrouble::TooLong => "upstream_too_long",
            UpstreamTrouble::NoCompletion => "upstream_no_completion",
        }
    }
}

/// One request, at the moment that it was decided or that its answer ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RequestReport {
    /// Counts the requests of the run from 1. One that goes out is reported twice: when it does and when it has ended.
    pub request: u32,
    /// For which interface; none: for none.
    pub interface: Option<Interface>,
    /// What became of it.
    pub decision: Decision,
    /// The rule that refused it, at most [`MAX_RULE`] bytes; empty: none did.
    pub rule: String,
    /// What went wrong on the way, if anything did.
    pub trouble: Option<UpstreamTrouble>,
    /// The status that the agent got; 0: none yet.
    pub status: u16,
    /// Head and body as sent, before TLS.
    pub bytes_out: u64,
    /// The answer's body so far.
    pub bytes_in: u64,
    /// The request is over; no further report of it comes.
    pub ended: bool,
}

/// What became of an `Ask`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answered {
    /// The model answered (one descriptor: sealed memory with the text, at most [`LARGEST_ANSWER`]).
    Text,
    /// It was refused or failed; the report says how.
    Nothing,
}

/// Supervisor to broker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToBroker {
    /// Serve the run (one descriptor: its listener).
    Open {
        /// Which run.
        run: RunId,
        /// What it may ask.
        policy: ModelPolicy,
        /// What holds.
        limits: ModelLimits,
        /// Each request is asked for before it goes out.
        debits: bool,
    },
    /// Ask the model for this run, in place of an agent (one descriptor: sealed memory with the task's text).
    Ask {
        /// Which run.
        run: RunId,
        /// What may be asked.
        policy: ModelPolicy,
        /// What holds.
        limits: ModelLimits,
        /// The request is asked for before it goes out.
        debits: bool,
    },
    /// The answer to `Want`.
    Debit {
        /// Which run.
        run: RunId,
        /// Which request.
        request: u32,
        /// It is debited, and may go out.
        granted: bool,
    },
    /// End everything of the run, report, and forget it.
    Close {
        /// Which run.
        run: RunId,
    },
    /// Sign a checkpoint of the evidence (only to a broker with a signing key).
    Sign {
        /// The last record that it vouches for.
        seq: u64,
        /// That record's hash.
        hash: [u8; 32],
    },
}

/// An Ed25519 public key (RFC 8032), 32 bytes.
pub type PublicKey = [u8; 32];

/// An Ed25519 signature (RFC 8032).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Signature {
    /// Its first half.
    pub r: [u8; 32],
    /// Its second half.
    pub s: [u8; 32],
}

impl Signature {
    /// Its 64 bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let (r, s) = bytes.split_at_mut(32);
        r.copy_from_slice(&self.r);
        s.copy_from_slice(&self.s);
        bytes
    }
}

/// What a checkpoint's signature is over: a name that no other use of the key shares, the number as eight bytes big-endian,
/// the hash.
#[must_use]
pub fn checkpoint_message(seq: u64, hash: &[u8; 32]) -> Vec<u8> {
    [&b"anet-checkpoint-1"[..], &seq.to_be_bytes(), hash].concat()
}

/// Broker to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromBroker {
    /// First word: confined and ready.
    Hello {
        /// The Landlock version in force; 0: none.
        landlock: u8,
        /// The key.
        key: KeyState,
        /// Certificates of the system's store that are trusted.
        roots: u32,
        /// The public half of the key that it signs with (Ed25519); none: it signs nothing.
        signing: Option<PublicKey>,
    },
    /// A checkpoint is signed.
    Signed {
        /// The last record that it vouches for.
        seq: u64,
        /// Over [`checkpoint_message`].
        signature: Signature,
    },
    /// The run is served.
    Opened {
        /// Which run.
        run: RunId,
    },
    /// May this request be debited? (Only where `debits`.)
    Want {
        /// Which run.
        run: RunId,
        /// Which request waits.
        request: u32,
        /// Head and body as they will be sent.
        bytes: u64,
    },
    /// A request was decided, or ended.
    Request {
        /// Which run.
        run: RunId,
        /// The request.
        report: RequestReport,
    },
    /// An `Ask` is over (with [`Answered::Text`] one descriptor).
    Answered {
        /// Which run.
        run: RunId,
        /// What became of it.
        answered: Answered,
        /// What it reached.
        totals: ModelTotals,
    },
    /// Everything of the run has ended.
    Closed {
        /// Which run.
        run: RunId,
        /// What it reached.
        totals: ModelTotals,
    },
}

impl Message for ToBroker {
    const DIRECTION: &'static str = "supervisor to broker";
    fn descriptors(&self) -> usize {
        match self {
            ToBroker::Open { .. } | ToBroker::Ask { .. } => 1,
            ToBroker::Debit { .. } | ToBroker::Close { .. } | ToBroker::Sign { .. } => 0,
        }
    }
}

impl Message for FromBroker {
    const DIRECTION: &'static str = "broker to supervisor";
    fn descriptors(&self) -> usize {
        match self {
            FromBroker::Answered { answered: Answered::Text, .. } => 1,
            FromBroker::Answered { answered: Answered::Nothing, .. }
            | FromBroker::Hello { .. }
            | FromBroker::Signed { .. }
            | FromBroker::Opened { .. }
            | FromBroker::Want { .. }
            | FromBroker::Request { .. }
            | FromBroker::Closed { .. } => 0,
        }
    }
}
