//! The record of a run: what it was allowed, what it reached, how it ended.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipc_proto::Code;
use ipc_proto::proxy::{Class, Decision};
use serde::Serialize;
use serde_json::{Value, json};

/// The most attempts that a record lists; more are counted in `egress_omitted`. A run that tries hosts in a loop must
/// not fill the operator's memory or disk.
pub const MAX_EGRESS: usize = 4096;
/// The most violations that a record lists; more are counted in `violations_omitted`.
pub const MAX_VIOLATIONS: usize = 1024;

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The command exited.
    Status(u8),
    /// A signal ended the command.
    Signal(u8),
    /// The command is not there.
    NotFound,
    /// The command cannot be started.
    NotExecutable,
    /// A limit ended the run.
    Limit(&'static str),
    /// A budget ended the run.
    Budget(&'static str),
    /// anet ended it, for a failure of its own.
    Failed(Code),
}

impl Ended {
    /// The record's `exit`.
    #[must_use]
    pub fn to_json(self) -> Value {
        match self {
            Ended::Status(status) => json!({ "status": status }),
            Ended::Signal(signal) => json!({ "signal": signal }),
            Ended::NotFound => json!({ "status": crate::error::STATUS_NOT_FOUND, "reason": "not_found" }),
            Ended::NotExecutable => {
                json!({ "status": crate::error::STATUS_NOT_EXECUTABLE, "reason": "not_executable" })
            }
            Ended::Limit(name) => json!({ "limit": name }),
            Ended::Budget(name) => json!({ "budget": name }),
            Ended::Failed(code) => json!({ "failed": code.as_str() }),
        }
    }

    /// The exit status of `anet run`.
    #[must_use]
    pub fn exit_status(self) -> u8 {
        use crate::error as status;
        match self {
            Ended::Status(status) => status,
            Ended::Signal(signal) => status::STATUS_SIGNAL.saturating_add(signal),
            Ended::NotFound => status::STATUS_NOT_FOUND,
            Ended::NotExecutable => status::STATUS_NOT_EXECUTABLE,
            Ended::Limit("wall_clock") => status::STATUS_TIME,
            Ended::Limit(_) | Ended::Budget(_) => status::STATUS_LIMIT,
            Ended::Failed(_) => status::STATUS_FAILED,
        }
    }
}

/// A limit or budget and what was used of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bound {
    /// What holds.
    pub limit: u64,
    /// What was reached.
    pub used: u64,
}

/// One attempt to reach a host.
#[derive(Clone, Debug, Serialize)]
pub struct Egress {
    /// The host asked for.
    pub host: String,
    /// The port asked for; 0: none could be read.
    pub port: u16,
    /// Where it stands.
    pub class: Class,
    /// What became of it.
    pub decision: Decision,
    /// Why.
    pub reason: &'static str,
    /// What the name resolved to.
    pub addresses: Vec<IpAddr>,
    /// Bytes outward.
    pub bytes_out: u64,
    /// Bytes inward.
    pub bytes_in: u64,
}

/// Something that was refused.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// When.
    pub time: String,
    /// What kind: `egress`.
    pub kind: &'static str,
    /// The process, where it is known.
    pub process: String,
    /// What exactly.
    pub detail: String,
}

/// What the model was asked.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Model {
    /// Requests that went out.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// The rules that refused them, and how often each did.
    pub rules: BTreeMap<String, u64>,
    /// Requests beyond [`MAX_EGRESS`] of either kind, which the chain does not list.
    pub omitted: u64,
}

/// The whole, in the shape of the command line's contract.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Which run.
    pub run: String,
    /// What ran.
    pub agent: String,
    /// When it began.
    pub started: String,
    /// When it ended.
    pub ended: String,
    /// How.
    pub exit: Value,
    /// The limits that held.
    pub limits: BTreeMap<&'static str, Bound>,
    /// The budgets that held.
    pub budget: BTreeMap<&'static str, Bound>,
    /// The model.
    pub model: Model,
    /// Every attempt, in order.
    pub egress: Vec<Egress>,
    /// Attempts beyond [`MAX_EGRESS`].
    pub egress_omitted: u64,
    /// Everything refused.
    pub violations: Vec<Violation>,
    /// Violations beyond [`MAX_VIOLATIONS`].
    pub violations_omitted: u64,
    /// What the operator should know about this host.
    pub warnings: Vec<&'static str>,
}
