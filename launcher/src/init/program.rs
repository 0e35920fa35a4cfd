//! Starting the program as a shell would: found along PATH, a text without `#!` given to sh, 126 and 127 told apart.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;

use confine::sys::spawn::{Command, ProcessGroup, Program, SpawnError};
use ipc_proto::init::{CommandPlan, Exit};
use ipc_proto::launcher::INSIDE_PATH;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::stdio::{stderr, stdin, stdout};

use super::terminal::Terminal;

/// What runs a text without `#!` (POSIX, execvp).
const SHELL: &CStr = c"/bin/sh";

/// What came of it.
pub(super) enum Started {
    /// It runs.
    Running(Pid),
    /// It could not be started.
    Not(Exit),
}

/// Starts it with our own standard streams, but for those that are the terminal.
pub(super) fn start(plan: &CommandPlan, terminal: Option<&Terminal>) -> Started {
    let Some(name) = plan.argv.first().filter(|name| !name.is_empty()) else {
        return Started::Not(Exit::NotFound);
    };
    let mut descriptors: Vec<(BorrowedFd<'_>, i32)> = vec![(stdin(), 0), (stdout(), 1), (stderr(), 2)];
    if let Some(terminal) = terminal {
        terminal.replace(&mut descriptors);
    }
    let mut worst = Errno::NOENT;
    // Looked at before a process is made for it; whether it can be executed, exec alone says.
    let is_there = |path: &CString| {
        !matches!(access(path.as_c_str(), Access::EXISTS), Err(Errno::NOENT | Errno::NOTDIR))
    };
    for path in candidates(name, &plan.environment).into_iter().filter(is_there) {
        let run = |program: CString, argv: Vec<CString>| {
            let mut command = Command::new(Program::Path(program));
            command.argv = argv;
            command.env.clone_from(&plan.environment);
            command.descriptors.clone_from(&descriptors);
            command.process_group = Some(ProcessGroup::New);
            command.controlling_terminal = terminal.and_then(Terminal::number);
            command.spawn()
        };
        let spawned = match run(path.clone(), plan.argv.clone()) {
            Err(error) if error.exec() == Some(Errno::NOEXEC) => {
                let mut argv = vec![SHELL.to_owned(), path.clone()];
                argv.extend(plan.argv.iter().skip(1).cloned());
                run(SHELL.to_owned(), argv)
            }
            other => other,
        };
        match spawned {
            Ok(child) => return Started::Running(child.pid),
            Err(error) => match failed(&error) {
                // Not here; perhaps further along.
                Errno::NOENT | Errno::NOTDIR => {}
                // Here and forbidden; one further along may not be.
                Errno::ACCESS => worst = Errno::ACCESS,
                _ => return Started::Not(Exit::NotExecutable),
            },
        }
    }
    Started::Not(if worst == Errno::ACCESS { Exit::NotExecutable } else { Exit::NotFound })
}

/// The error of exec; any other step's is one that the program is not to blame for, and its start is refused as 126.
fn failed(error: &SpawnError) -> Errno {
    error.exec().unwrap_or(Errno::AGAIN)
}

/// Where to look, in order.
fn candidates(name: &CStr, environment: &[CString]) -> Vec<CString> {
    if name.to_bytes().contains(&b'/') {
        return vec![name.to_owned()];
    }
    let path = environment.iter().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="));
    let path = path.unwrap_or(INSIDE_PATH.as_bytes());
    let directories = path.split(|byte| *byte == b':');
    let joined = directories.map(|directory| {
        // An empty part is the current directory (POSIX, 8.3).
        let directory = if directory.is_empty() { b"." } else { directory };
        [directory, b"/", name.to_bytes()].concat()
    });
    joined.filter_map(|path| CString::new(path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(name: &CStr, environment: &[&CStr]) -> Vec<String> {
        let environment: Vec<CString> = environment.iter().map(|entry| (*entry).to_owned()).collect();
        candidates(name, &environment).into_iter().map(|path| path.into_string().unwrap()).collect()
    }

    #[test]
    fn programs_are_looked_for_along_path() {
        assert_eq!(paths(c"ls", &[c"A=1", c"PATH=/a:/b"]), ["/a/ls", "/b/ls"]);
        assert_eq!(paths(c"ls", &[c"PATH=:/b"]), ["./ls", "/b/ls"]);
        assert_eq!(paths(c"./ls", &[c"PATH=/a"]), ["./ls"]);
        assert_eq!(paths(c"ls", &[]), ["/usr/local/bin/ls", "/usr/bin/ls", "/bin/ls"]);
    }
}
