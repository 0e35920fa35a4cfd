//! What `anet run` was asked for, checked for form by the command line.

use std::ffi::CString;
use std::path::PathBuf;
use std::time::Duration;

use ipc_proto::HostName;
use ipc_proto::Upstream;
use ipc_proto::limits::LimitName;

use crate::config::Agent;
use crate::credentials::Name;

/// One run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The configuration file, where one was named.
    pub configuration: Option<PathBuf>,
    /// The command and its arguments; at least one, unless an agent runs itself.
    pub command: Vec<CString>,
    /// The agent that model access is set up for.
    pub agent: Option<AgentRequest>,
    /// Where it works.
    pub work: Work,
    /// More paths to write below.
    pub read_write: Vec<PathBuf>,
    /// More paths to read.
    pub read_only: Vec<PathBuf>,
    /// Closed paths.
    pub deny: Vec<PathBuf>,
    /// Variables.
    pub environment: Vec<EnvOption>,
    /// Allowed hosts.
    pub hosts: Vec<HostName>,
    /// Wall clock.
    pub timeout: Option<Duration>,
    /// With the limits and budgets of somebody untrusted.
    pub untrusted: bool,
    /// Limits by name.
    pub limits: Vec<(LimitName, u64)>,
    /// Distinct destinations.
    pub budget_destinations: Option<u64>,
    /// Bytes outward.
    pub budget_bytes_out: Option<u64>,
    /// Milliseconds.
    pub budget_window: Option<u64>,
    /// Where the record goes.
    pub record: Option<PathBuf>,
    /// The terminal.
    pub terminal: TerminalChoice,
    /// No summary.
    pub quiet: bool,
    /// What anet's own processes say of themselves goes to standard error.
    pub verbose: bool,
}

/// An agent, and what it is given.
#[derive(Clone, Debug)]
pub struct AgentRequest {
    /// Which one.
    pub agent: Agent,
    /// Its task; none: what comes on standard input.
    pub prompt: Option<String>,
    /// The model; none: the configured one.
    pub model: Option<String>,
    /// The service; none: the configured one.
    pub api_base: Option<Upstream>,
    /// The stored credential that is the key; none: the service's usual variable, else the stored one of its name.
    pub credential: Option<Name>,
}

/// Where a command works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// In a new directory, removed at the end.
    Fresh,
    /// In the current directory.
    Here,
    /// In this one.
    Directory(PathBuf),
}

/// A variable of the command's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvOption {
    /// Passed on from the operator's.
    Pass(String),
    /// Set.
    Set(String, Vec<u8>),
}

/// `--tty`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalChoice {
    /// Where one of 0, 1 and 2 is a terminal, it is the run's own pseudo-terminal instead.
    Auto,
    /// All three are.
    Always,
    /// None is: terminals are joined by pipes.
    Never,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// `anet run -- true`.
    pub(in super::super) fn request() -> RunRequest {
        RunRequest {
            configuration: None,
            command: vec![c"true".into()],
            agent: None,
            work: Work::Fresh,
            read_write: vec![],
            read_only: vec![],
            deny: vec![],
            environment: vec![],
            hosts: vec![],
            timeout: None,
            untrusted: false,
            limits: vec![],
            budget_destinations: None,
            budget_bytes_out: None,
            budget_window: None,
            record: None,
            terminal: TerminalChoice::Auto,
            quiet: false,
            verbose: false,
        }
    }
}
