//! An agent that is run, or that a command is set up for: found, given its task, its configuration, and a way for its answer.

use std::ffi::CString;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ipc_proto::Code;
use ipc_proto::broker::ModelPolicy;
use ipc_proto::job::AnswerFormat;
use ipc_proto::launcher::{HomeFile, INSIDE_HOME};
use rustix::pipe::{PipeFlags, pipe_with};

use super::identity::home_of;
use super::model;
use super::open::system;
use super::request::{AgentRequest, RunRequest};
use crate::agents::{self, Installed, Search, Setup, Stdin};
use crate::config::{Agent, AutoReply};
use crate::error::Trouble;

/// The longest task, in bytes: more than any model reads.
const MAX_TASK: usize = 1024 * 1024;

/// Where an operator's command finds the agent, below HOME.
const COMMANDS: &str = ".anet/bin";

/// What an agent adds to a run.
#[derive(Debug, Default)]
pub(super) struct Setting {
    /// What runs, where it is the agent itself.
    pub(super) argv: Option<Vec<CString>>,
    /// Variables, below those that the operator sets.
    pub(super) environment: Vec<(String, String)>,
    /// Directories of its program, which the sandbox sees.
    pub(super) visible: Vec<PathBuf>,
    /// One more directory for PATH, where the operator's command is to find the agent.
    pub(super) on_path: Option<PathBuf>,
    /// Files of its home.
    pub(super) home: Vec<HomeFile>,
    /// What its standard input is; none: the operator's.
    pub(super) input: Option<OwnedFd>,
    /// How its answer is read, and from where.
    pub(super) answer: Option<(AnswerFormat, Pipe)>,
}

/// The agent's standard output, and where it is read.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) reader: OwnedFd,
    pub(super) writer: OwnedFd,
}

/// Finds the program of an agent that runs itself; one that only lends its configuration to a command need not be there.
pub(super) fn find(
    asked: &AgentRequest,
    request: &RunRequest,
    auto_reply: &AutoReply,
) -> Result<Option<Installed>, Trouble> {
    if asked.agent == Agent::Custom {
        if request.command.is_empty() && auto_reply.command.is_empty() {
            return Err(Trouble::new(
                Code::BadOption,
                "a custom agent is a command: give one after --, or set auto_reply.command in anet.toml",
            ));
        }
        return Ok(None);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let more = &auto_reply.sandbox.read_only;
    let found = agents::find(asked.agent, &Search { path: &path, home: home.as_deref(), more });
    if request.command.is_empty() { found.map(Some) } else { Ok(found.ok()) }
}

/// Everything that the agent adds. `directory` is where it works, as seen inside.
pub(super) fn setting(
    asked: &AgentRequest,
    request: &RunRequest,
    installed: Option<&Installed>,
    policy: &ModelPolicy,
    auto_reply: &AutoReply,
    directory: &Path,
) -> Result<Setting, Trouble> {
    let url = model::url();
    let setup = Setup {
        model: policy.model.as_str(),
        model_url: &url,
        output_tokens: policy.output_tokens,
        directory,
    };
    let mut setting = Setting {
        environment: agents::environment(asked.agent, &setup),
        home: home_files(agents::home_files(asked.agent, &setup))?,
        visible: installed.map(|installed| installed.visible.clone()).unwrap_or_default(),
        ..Setting::default()
    };
    setting.environment.push(("ANET_MODEL_URL".to_owned(), url.clone()));
    if !request.command.is_empty() {
        if asked.prompt.is_some() {
            return Err(Trouble::new(
                Code::BadOption,
                "--prompt is the task of an agent that runs itself, and a command was given as well; leave one of them out",
            ));
        }
        if let Some(installed) = installed {
            setting.home.push(command_file(installed)?);
            setting.on_path = Some(Path::new(INSIDE_HOME).join(COMMANDS));
        }
        return Ok(setting);
    }
    let task = task(asked)?;
    let start = match installed {
        Some(installed) => agents::start(installed, &setup, &task)?,
        None => agents::start_custom(&auto_reply.command, &task)?,
    };
    setting.home.extend(home_files(start.files)?);
    setting.argv = Some(start.argv);
    setting.input = Some(match start.stdin {
        Stdin::Task => memory(&[start.before_task, &task])?,
        Stdin::Nothing => memory(&[])?,
    });
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| system("a pipe", &errno.into()))?;
    setting.answer = Some((start.answer, Pipe { reader, writer }));
    Ok(setting)
}

/// The agent under the name that people call it by: an operator's command does not know where it is installed, nor what
/// runs it.
fn command_file(installed: &Installed) -> Result<HomeFile, Trouble> {
    let words: Vec<Vec<u8>> =
        agents::invocation(installed)?.iter().map(|word| quoted(word.to_bytes())).collect();
    let contents = [b"#!/bin/sh\nexec ", &words.join(&b' ')[..], b" \"$@\"\n"].concat();
    let path = CString::new(format!("{COMMANDS}/{}", installed.agent.as_str())).unwrap_or_default();
    Ok(HomeFile { path, contents, executable: true })
}

/// Within single quotes a shell reads everything as it stands but the quote itself.
fn quoted(word: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = word.split(|byte| *byte == b'\'').collect();
    [&b"'"[..], &parts.join(&b"'\\''"[..]), b"'"].concat()
}

/// The task: the operator's words or what comes on the operator's standard input, read to its end and not looked into.
fn task(asked: &AgentRequest) -> Result<Vec<u8>, Trouble> {
    let bad = |what: String| Trouble::new(Code::BadOption, what);
    let task = match &asked.prompt {
        Some(prompt) => prompt.as_bytes().to_vec(),
        None if rustix::termios::isatty(rustix::stdio::stdin()) => {
            return Err(
                bad("there is no task: give one with --prompt TEXT, or on standard input".to_owned()),
            );
        }
        None => {
            let mut task = Vec::new();
            let read = std::io::stdin().take(MAX_TASK as u64 + 1).read_to_end(&mut task);
            read.map_err(|error| bad(format!("the task cannot be read from standard input ({error})")))?;
            task
        }
    };
    if task.len() > MAX_TASK {
        return Err(
            bad("the task is longer than 1 MiB, which no model reads; give a shorter one".to_owned()),
        );
    }
    if task.trim_ascii().is_empty() {
        return Err(bad("the task is empty; give one with --prompt TEXT, or on standard input".to_owned()));
    }
    Ok(task)
}

/// Bytes to be read as a file.
fn memory(parts: &[&[u8]]) -> Result<OwnedFd, Trouble> {
    confine::memory::sealed(c"anet-task", parts).map_err(|errno| system("memory for the task", &errno.into()))
}

fn home_files(files: Vec<agents::HomeFile>) -> Result<Vec<HomeFile>, Trouble> {
    let convert = |file: agents::HomeFile| {
        let path = CString::new(file.path).map_err(|_| {
            Trouble::new(Code::BadPath, "a file of an agent's home has a NUL byte in its name")
        })?;
        Ok(HomeFile { path, contents: file.contents, executable: false })
    };
    files.into_iter().map(convert).collect()
}

/// Nothing is shown for an agent's sake that holds a home or the work directory: no agent is installed so, and a link that was
/// planted would have it so.
pub(super) fn check_narrow(installed: &Installed, work: Option<&Path>) -> Result<(), Trouble> {
    let named = std::env::var_os("HOME").map(PathBuf::from);
    let own = home_of(rustix::process::geteuid().as_raw());
    let homes: Vec<PathBuf> =
        named.into_iter().chain(own).filter_map(|home| home.canonicalize().ok()).collect();
    let held: Vec<&Path> = homes.iter().map(PathBuf::as_path).chain(work).collect();
    match too_wide(&installed.visible, &held) {
        None => Ok(()),
        Some((place, held)) => Err(Trouble::new(
            Code::AgentMissing,
            format!(
                "{} would have to be shown {}, which holds {}; install it in a directory of its own, and see who changed {}",
                installed.agent.as_str(),
                place.display(),
                held.display(),
                installed.program.display()
            ),
        )),
    }
}

/// The first of these places that holds one of those, and which.
fn too_wide<'a>(places: &'a [PathBuf], held: &[&'a Path]) -> Option<(&'a Path, &'a Path)> {
    let held_by =
        |place: &'a PathBuf| Some((place.as_path(), *held.iter().find(|held| held.starts_with(place))?));
    places.iter().find_map(held_by)
}

/// Whether the run's user can get to the agent's program: root may find one where nobody else may look.
pub(super) fn check_reachable(
    installed: &Installed,
    user: confine::sys::spawn::Identity,
) -> Result<(), Trouble> {
    let places = installed.visible.iter().chain([&installed.program]);
    for place in places {
        if !agents::reachable(place, user) {
            return Err(Trouble::new(
                Code::AgentMissing,
                format!(
                    "{} is installed at {}, where the run's user (uid {}) cannot read it; install it for all users, below \
                     /usr/local or /opt, or run anet as the user whose it is",
                    installed.agent.as_str(),
                    String::from_utf8_lossy(place.as_os_str().as_bytes()),
                    user.uid
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FS-1: a home and the work directory are shown for no agent's sake, nor what holds them.
    #[test]
    fn nothing_wide_is_shown_for_an_agent() {
        let (home, work) = (Path::new("/home/a"), Path::new("/srv/w"));
        let wide =
            |place: &str| too_wide(&[PathBuf::from("/opt/x"), PathBuf::from(place)], &[home, work]).is_some();
        assert!(["/", "/home", "/home/a", "/srv", "/srv/w"].into_iter().all(wide));
        assert!(!["/home/a/.npm/lib", "/home/ab", "/srv/w/node_modules", "/opt"].into_iter().any(wide));
    }

    /// MOD-14: whatever stands in a path is one word to the shell.
    #[test]
    fn an_agents_path_is_one_word() {
        assert_eq!(quoted(b"/opt/a b/claude"), b"'/opt/a b/claude'");
        assert_eq!(quoted(b"/opt/it's/$x"), br"'/opt/it'\''s/$x'");
    }
}
