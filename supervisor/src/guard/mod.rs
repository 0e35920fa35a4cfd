//! The guard: starts every process, wires their channels, waits, and ends all of them when one dies.
//!
//! It listens to nobody. What it knows comes from the operator's command line, configuration and file system, before
//! the first process is started; afterwards it hears one-byte words from the supervisor and the ends of processes.

mod agent;
mod bounds;
mod control_group;
mod directories;
mod environment;
mod ground;
mod host;
mod identity;
mod model;
pub mod node;
mod open;
mod paths;
mod plan;
mod probe;
mod processes;
mod programs;
mod record;
mod request;
mod terminal;
mod watch;

pub use directories::Directories;
pub use host::{ApparmorBlock, Host};
pub use probe::Checked;
pub use request::{AgentRequest, EnvOption, RunRequest, TerminalChoice, Work};

use std::path::Path;

use crate::config::{self, Config};
use crate::error::Trouble;

/// Which configuration holds, and its text (part of what a probe's result holds for).
///
/// # Errors
/// [`ipc_proto::Code::BadConfig`].
pub fn configuration(directories: &Directories, named: Option<&Path>) -> Result<(Config, String), Trouble> {
    match named {
        Some(path) => config::load(path, true),
        None => config::load(&directories.configuration.join("anet.toml"), false),
    }
}

/// Runs one command in the foreground. The exit status of `anet run`.
///
/// # Errors
/// Whatever kept it from starting; nothing was started then.
pub fn run(request: &RunRequest) -> Result<u8, Trouble> {
    let mut prepared = plan::prepare(request)?;
    let processes = processes::start(&mut prepared)?;
    warn(&prepared);
    Ok(watch::until_the_end(processes, prepared))
}

/// What the operator should know before the command speaks.
fn warn(prepared: &plan::Prepared) {
    for code in prepared.job.warnings.iter().filter(|_| !prepared.job.quiet) {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "anet: warning: {code}: {}", crate::explain::sentence(*code));
    }
}

/// Tries the sandbox as a run would use it, whatever an earlier try found (PRB-1).
///
/// # Errors
/// What is wrong with this host, by its code.
pub fn check(named: Option<&Path>) -> Result<Checked, Trouble> {
    let mut prepared = plan::prepare_check(named)?;
    let log = prepared.log_memory()?;
    let processes = processes::start(&mut prepared)?;
    let status = watch::until_the_end(processes, prepared);
    if status == 0 {
        return Ok(Checked { at: std::time::SystemTime::now() });
    }
    Err(probe::read_trouble(&log))
}
