//! An agent of the operator's own: a command line, with places for the task.

use std::ffi::CString;

use ipc_proto::Code;
use ipc_proto::launcher::INSIDE_HOME;

use super::{AnswerFormat, HomeFile, Start, Stdin, task_argument};
use crate::error::Trouble;

/// The file that has the task where a command asks for one, below HOME.
pub const TASK_FILE: &str = ".anet-task";
/// Where the name of that file is put.
const FILE_PLACE: &[u8] = b"{task_file}";
/// Where the task itself is put.
const TASK_PLACE: &[u8] = b"{task}";

/// How the command is started for one task in the sandbox, where a file with the task stands in its HOME.
///
/// # Errors
/// As [`start_custom_with`].
pub fn start_custom(command: &[String], task: &[u8]) -> Result<Start, Trouble> {
    start_custom_with(command, task, format!("{INSIDE_HOME}/{TASK_FILE}").as_bytes())
}

/// How the command is started for one task. `file`: the name that a file with the task has for the agent; it is wanted if
/// [`Start::files`] has one. The places are found in the operator's words only: a task that has such words in it is text.
///
/// # Errors
/// [`Code::BadOption`]: no command, or a task that cannot be part of an argument.
pub fn start_custom_with(command: &[String], task: &[u8], file: &[u8]) -> Result<Start, Trouble> {
    if command.first().is_none_or(String::is_empty) {
        return Err(Trouble::new(
            Code::BadOption,
            "agent custom has no command, so there is nothing to run; set auto_reply.command in anet.toml, or give a \
             command after --",
        ));
    }
    let mut argv = Vec::with_capacity(command.len());
    let (mut has_task, mut has_file) = (false, false);
    for argument in command {
        let mut filled = Filled::default();
        fill(argument.as_bytes(), task, file, &mut filled);
        has_task |= filled.has_task;
        has_file |= filled.has_file;
        argv.push(argument_of(filled)?);
    }
    let wanted = HomeFile { path: TASK_FILE, contents: task.to_vec() };
    Ok(Start {
        argv,
        stdin: if has_task || has_file { Stdin::Nothing } else { Stdin::Task },
        before_task: b"",
        answer: AnswerFormat::Text,
        files: if has_file { vec![wanted] } else { Vec::new() },
    })
}

#[derive(Default)]
struct Filled {
    bytes: Vec<u8>,
    has_task: bool,
    has_file: bool,
}

fn fill(mut rest: &[u8], task: &[u8], file: &[u8], filled: &mut Filled) {
    while let Some(first) = rest.first() {
        if let Some(after) = rest.strip_prefix(FILE_PLACE) {
            filled.bytes.extend_from_slice(file);
            filled.has_file = true;
            rest = after;
        } else if let Some(after) = rest.strip_prefix(TASK_PLACE) {
            filled.bytes.extend_from_slice(task);
            filled.has_task = true;
            rest = after;
        } else {
            filled.bytes.push(*first);
            rest = rest.get(1..).unwrap_or_default();
        }
    }
}

fn argument_of(filled: Filled) -> Result<CString, Trouble> {
    task_argument("this command", b"", &filled.bytes)
}
