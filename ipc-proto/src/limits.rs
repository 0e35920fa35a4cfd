//! The limits of one run (LIM): names, values, units.

use serde::{Deserialize, Serialize};

const MIB: u64 = 1024 * 1024;

/// The most tokens of one answer of the model, unless the operator raises it for a run of their own (MOD-3).
pub const OUTPUT_TOKENS: u64 = 8192;

/// A limit by the name that `--limit`, the record and refusals use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitName {
    /// Memory of all processes of the run, bytes.
    Memory,
    /// Processes and threads of the run at once.
    Tasks,
    /// Growth of the run's directories, bytes.
    Growth,
    /// Requests to the model.
    ModelRequests,
    /// One request body, bytes.
    RequestBody,
    /// All request bodies together, bytes.
    RequestTotal,
    /// Tunnels open at once.
    TunnelsOpen,
    /// Tunnels in all.
    TunnelsTotal,
    /// Bytes sent through tunnels.
    TunnelSent,
    /// Bytes received through tunnels.
    TunnelReceived,
    /// Connections to an endpoint at once.
    EndpointConnections,
    /// Tokens of one answer of the model.
    OutputTokens,
    /// Time from the start, milliseconds.
    WallClock,
}

/// Every limit, in the order of the record.
pub const LIMIT_NAMES: [LimitName; 13] = [
    LimitName::Memory,
    LimitName::Tasks,
    LimitName::Growth,
    LimitName::ModelRequests,
    LimitName::RequestBody,
    LimitName::RequestTotal,
    LimitName::TunnelsOpen,
    LimitName::TunnelsTotal,
    LimitName::TunnelSent,
    LimitName::TunnelReceived,
    LimitName::EndpointConnections,
    LimitName::OutputTokens,
    LimitName::WallClock,
];

impl LimitName {
    /// The name as people write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LimitName::Memory => "memory",
            LimitName::Tasks => "tasks",
            LimitName::Growth => "growth",
            LimitName::ModelRequests => "model_requests",
            LimitName::RequestBody => "request_body",
            LimitName::RequestTotal => "request_total",
            LimitName::TunnelsOpen => "tunnels_open",
            LimitName::TunnelsTotal => "tunnels_total",
            LimitName::TunnelSent => "tunnel_sent",
            LimitName::TunnelReceived => "tunnel_received",
            LimitName::EndpointConnections => "endpoint_connections",
            LimitName::OutputTokens => "output_tokens",
            LimitName::WallClock => "wall_clock",
        }
    }

    /// What its numbers count.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            LimitName::Memory
            | LimitName::Growth
            | LimitName::RequestBody
            | LimitName::RequestTotal
            | LimitName::TunnelSent
            | LimitName::TunnelReceived => Unit::Bytes,
            LimitName::WallClock => Unit::Milliseconds,
            LimitName::Tasks
            | LimitName::ModelRequests
            | LimitName::TunnelsOpen
            | LimitName::TunnelsTotal
            | LimitName::EndpointConnections
            | LimitName::OutputTokens => Unit::Count,
        }
    }

    /// The value that holds for a task of somebody the operator does not trust (LIM). None: no limit of its own.
    #[must_use]
    pub fn untrusted(self) -> Option<u64> {
        match self {
            LimitName::Memory | LimitName::Growth => Some(2048 * MIB),
            LimitName::Tasks => Some(256),
            LimitName::ModelRequests => Some(60),
            LimitName::RequestBody => Some(8 * MIB),
            LimitName::RequestTotal => Some(16 * MIB),
            LimitName::TunnelsOpen => Some(16),
            LimitName::TunnelsTotal => Some(256),
            LimitName::TunnelSent => Some(32 * MIB),
            LimitName::TunnelReceived => Some(512 * MIB),
            LimitName::EndpointConnections => Some(32),
            LimitName::OutputTokens => Some(OUTPUT_TOKENS),
            LimitName::WallClock => Some(180_000),
        }
    }
}

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Things.
    Count,
}

/// The limits that hold for one run; a name without a value has none.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    values: std::collections::BTreeMap<LimitName, u64>,
}

impl Limits {
    /// None at all: the operator's own command.
    #[must_use]
    pub fn none() -> Self {
        Limits::default()
    }

    /// Those of a task of somebody untrusted.
    #[must_use]
    pub fn untrusted() -> Self {
        let values = LIMIT_NAMES.iter().filter_map(|name| Some((*name, name.untrusted()?))).collect();
        Limits { values }
    }

    /// The value of one limit.
    #[must_use]
    pub fn get(&self, name: LimitName) -> Option<u64> {
        self.values.get(&name).copied()
    }

    /// Sets one limit.
    pub fn set(&mut self, name: LimitName, value: u64) {
        self.values.insert(name, value);
    }

    /// Takes one limit away: nobody here can hold it.
    pub fn remove(&mut self, name: LimitName) {
        self.values.remove(&name);
    }

    /// All that are set, in the order of the record.
    pub fn iter(&self) -> impl Iterator<Item = (LimitName, u64)> + '_ {
        self.values.iter().map(|(name, value)| (*name, *value))
    }
}
