//! The agents that anet knows: how each is found, what it is given, how it is started, and where in its output the
//! answer stands.
//!
//! One file an agent: an upgrade of an agent that changes an option, a variable or a key of its configuration changes that
//! file and nothing else. Finding and starting are the guard's, before anything runs; [`answer`] is the supervisor's, and
//! reads bytes of somebody who is not trusted.
//!
//! What every adapter does: the model's address on the run's own loopback, a placeholder for a key (MOD-1), the operator's
//! model by name and the cap on its output, so that the agent plans with what it will get; the agent's own sandbox off,
//! since it cannot be made within ours and would fail each command; its telemetry, updates and web search off, since none
//! of them gets out; few retries, since a refusal of the broker stays one (MOD-10).

mod answer;
mod claude;
mod codex;
mod custom;
mod find;
mod hermes;
mod native;
mod node;
mod openclaw;
mod opencode;
mod reach;

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ipc_proto::Code;
use ipc_proto::job::AnswerFormat;

pub use answer::{Answer, MAX_OUTPUT, NoAnswer, answer};
pub use custom::{TASK_FILE, start_custom, start_custom_with};
pub use find::{Installed, Search, find};
pub use reach::reachable;

use crate::config::Agent;
use crate::error::Trouble;

/// What stands where an agent wants a key. It is no secret, and the broker removes it (MOD-7).
pub const PLACEHOLDER_KEY: &str = "anet-placeholder";

/// The longest argument that Linux takes, in bytes without its final NUL (`MAX_ARG_STRLEN`, 32 pages of 4 KiB).
const MAX_ARGUMENT: usize = 32 * 4096 - 1;

/// The context that agents are told a model of unknown size has, in tokens: what the models behind OpenAI-compatible
/// services have at least. An agent shortens its history before it is full; told too much, it would run into the service's
/// refusal instead.
const CONTEXT_TOKENS: u64 = 128_000;

/// What is reached without the proxy: the model. claude sends even plain http through `HTTPS_PROXY`.
const OWN_LOOPBACK: &str = "127.0.0.1";

/// What a run of an agent is set up with.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The model's identifier, as the broker pins it.
    pub model: &'a str,
    /// Where the model is reached, inside: `http://127.0.0.1:PORT`, without a path.
    pub model_url: &'a str,
    /// The cap on one answer of the model, in tokens.
    pub output_tokens: u64,
    /// Where the agent works, as seen inside.
    pub directory: &'a Path,
}

/// A file that is written into the run's HOME before the agent starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeFile {
    /// Below HOME; plain names only.
    pub path: &'static str,
    /// All of it.
    pub contents: Vec<u8>,
}

/// How an agent is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    /// The program, absolute as it is inside, and its arguments. Of a custom agent the program as the operator wrote it.
    pub argv: Vec<CString>,
    /// What its standard input is.
    pub stdin: Stdin,
    /// What stands before a task of somebody else on standard input, so that it is text and never one of the agent's own
    /// commands.
    pub before_task: &'static [u8],
    /// How its standard output is read.
    pub answer: AnswerFormat,
    /// More files for its HOME.
    pub files: Vec<HomeFile>,
}

/// What an agent's standard input is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stdin {
    /// The task, then its end.
    Task,
    /// `/dev/null`: the task is an argument or a file, and an agent that finds more would add it to the task.
    Nothing,
}

/// The variables of an agent, beyond those that every run has. `ANET_MODEL_URL` is the guard's to set.
#[must_use]
pub fn environment(agent: Agent, setup: &Setup<'_>) -> Vec<(String, String)> {
    let mut all = match agent {
        Agent::Claude => claude::environment(setup),
        Agent::Codex => codex::environment(),
        Agent::Opencode => opencode::environment(setup),
        Agent::Hermes => hermes::environment(),
        Agent::Openclaw => openclaw::environment(),
        Agent::Cursor | Agent::Custom => Vec::new(),
    };
    all.extend(variables(&[("NO_PROXY", OWN_LOOPBACK), ("no_proxy", OWN_LOOPBACK)]));
    all
}

/// The configuration that an agent finds in its HOME.
#[must_use]
pub fn home_files(agent: Agent, setup: &Setup<'_>) -> Vec<HomeFile> {
    match agent {
        Agent::Codex => codex::home_files(setup),
        Agent::Hermes => hermes::home_files(setup),
        Agent::Openclaw => openclaw::home_files(setup),
        Agent::Claude | Agent::Opencode | Agent::Cursor | Agent::Custom => Vec::new(),
    }
}

/// How an installed agent is started for one task. A custom one: [`start_custom`].
///
/// # Errors
/// [`Code::BadOption`]: a task that this agent takes as an argument only, and that cannot be one.
pub fn start(installed: &Installed, setup: &Setup<'_>, task: &[u8]) -> Result<Start, Trouble> {
    match installed.agent {
        Agent::Claude => claude::start(installed, setup),
        Agent::Codex => codex::start(installed, setup),
        Agent::Opencode => opencode::start(installed, setup),
        Agent::Hermes => hermes::start(installed, task),
        Agent::Openclaw => openclaw::start(installed, setup),
        Agent::Cursor | Agent::Custom => Err(unsupported(installed.agent)),
    }
}

/// How an installed agent is started for one task outside of the sandbox, as the operator's own (SEL-4): with the
/// operator's configuration, credentials and model, within whatever sandbox and permissions of its own that says, and with no
/// more options than it needs to answer one task on standard output, in the same format as inside. `directory`: where it
/// works. A custom one: [`start_custom_with`].
///
/// # Errors
/// As [`start`].
pub fn start_direct(installed: &Installed, directory: &Path, task: &[u8]) -> Result<Start, Trouble> {
    match installed.agent {
        Agent::Claude => claude::start_direct(installed),
        Agent::Codex => codex::start_direct(installed),
        Agent::Opencode => opencode::start_direct(installed),
        // It has no option of the sandbox's.
        Agent::Hermes => hermes::start(installed, task),
        Agent::Openclaw => openclaw::start_direct(installed, directory),
        Agent::Cursor | Agent::Custom => Err(unsupported(installed.agent)),
    }
}

/// How an agent's standard output is read.
#[must_use]
pub fn answer_format(agent: Agent) -> AnswerFormat {
    match agent {
        Agent::Claude => AnswerFormat::Claude,
        Agent::Codex => AnswerFormat::Codex,
        Agent::Opencode => AnswerFormat::Opencode,
        Agent::Openclaw => AnswerFormat::Openclaw,
        Agent::Hermes => AnswerFormat::Hermes,
        Agent::Cursor | Agent::Custom => AnswerFormat::Text,
    }
}

/// What starts an agent, before any argument of its own.
///
/// # Errors
/// [`Code::BadPath`]: a path that cannot be an argument.
pub fn invocation(installed: &Installed) -> Result<Vec<CString>, Trouble> {
    match installed.agent {
        Agent::Hermes => hermes::invocation(installed),
        Agent::Claude | Agent::Codex | Agent::Opencode | Agent::Openclaw | Agent::Cursor | Agent::Custom => {
            let script = installed.runtime.as_ref().map(|_| &installed.program);
            let first = installed.runtime.as_ref().unwrap_or(&installed.program);
            [Some(first), script].into_iter().flatten().map(word).collect()
        }
    }
}

/// Why nothing is found or started for this one.
fn unsupported(agent: Agent) -> Trouble {
    let sentence = match agent {
        Agent::Custom => {
            "a custom agent is a command line of yours: set auto_reply.command, or give a command after --"
                .to_owned()
        }
        Agent::Claude | Agent::Codex | Agent::Opencode | Agent::Hermes | Agent::Openclaw | Agent::Cursor => {
            crate::explain::sentence(Code::AgentUnsupported).to_owned()
        }
    };
    Trouble::new(Code::AgentUnsupported, sentence)
}

// ---- what the adapters share -----------------------------------------------------------------------------------

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn word(text: impl AsRef<OsStr>) -> Result<CString, Trouble> {
    let bytes = text.as_ref().as_bytes();
    CString::new(bytes).map_err(|_| {
        let shown = String::from_utf8_lossy(bytes).into_owned();
        Trouble::new(
            Code::BadPath,
            format!("{shown}: a NUL byte cannot stand in an argument; write it without"),
        )
    })
}

/// `program` and then `arguments`.
fn words(program: &Path, arguments: &[&str]) -> Result<Vec<CString>, Trouble> {
    let mut argv = vec![word(program)?];
    for argument in arguments {
        argv.push(word(argument)?);
    }
    Ok(argv)
}

/// One argument of `prefix` and the task.
fn task_argument(what: &str, prefix: &[u8], task: &[u8]) -> Result<CString, Trouble> {
    let argument = [prefix, task].concat();
    if argument.len() > MAX_ARGUMENT {
        return Err(Trouble::new(
            Code::BadOption,
            format!(
                "the task has {} bytes, and {what} takes it as one argument, which Linux limits to {MAX_ARGUMENT}; \
                 shorten it, or put the text into a file of the work directory and name that",
                task.len()
            ),
        ));
    }
    CString::new(argument).map_err(|_| {
        Trouble::new(
            Code::BadOption,
            format!(
                "the task has a NUL byte, and {what} takes it as an argument, where none can stand; remove it"
            ),
        )
    })
}

#[cfg(test)]
mod tests;
