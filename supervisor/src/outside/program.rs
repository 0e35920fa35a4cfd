//! Starting a program as a shell would: found along the PATH of its own environment, a text without `#!` given to sh.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use confine::sys::spawn::{Child, Command, Program, SpawnError};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::order::MinderPlan;
use crate::error::one_line;

/// What runs a text without `#!` (POSIX, execvp).
const SHELL: &CStr = c"/bin/sh";

/// Why a program does not run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum StartError {
    /// There is none.
    #[error("{0} is not there; see the command in anet.toml and the PATH that anet was started with")]
    NotFound(String),
    /// There is one, and it may not be executed.
    #[error("{0} cannot be executed ({1}); see its rights")]
    NotExecutable(String, Errno),
    /// A process could not be made.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// Starts it, in a session of its own, ended with this process.
pub(super) fn start(plan: &MinderPlan, stdio: &[OwnedFd; 3]) -> Result<Child, StartError> {
    let name = plan.argv.first().filter(|name| !name.is_empty());
    let shown = one_line(&name.map(|name| name.to_string_lossy()).unwrap_or_default());
    let mut forbidden = None;
    for path in candidates(name.map(CString::as_c_str), plan) {
        // Looked at before a process is made for it, and one in a directory that is closed to us is none, as to a shell; whether
        // it can be executed, exec alone says.
        if access(path.as_c_str(), Access::EXISTS).is_err() {
            continue;
        }
        let spawned = match run(&path, plan.argv.clone(), plan, stdio) {
            Err(error) if error.exec() == Some(Errno::NOEXEC) => {
                let words = [SHELL.to_owned(), path.clone()].into_iter();
                run(SHELL, words.chain(plan.argv.iter().skip(1).cloned()).collect(), plan, stdio)
            }
            other => other,
        };
        match spawned.map_err(|error| (error.exec(), error)) {
            Ok(child) => return Ok(child),
            // Not here, or its interpreter is not; perhaps further along.
            Err((Some(Errno::NOENT | Errno::NOTDIR), _)) => {}
            // Here and forbidden; one further along may not be.
            Err((Some(errno), _)) => forbidden = forbidden.or(Some(errno)),
            Err((None, error)) => return Err(error.into()),
        }
    }
    Err(match forbidden {
        Some(errno) => StartError::NotExecutable(shown, errno),
        None => StartError::NotFound(shown),
    })
}

fn run(
    program: &CStr,
    argv: Vec<CString>,
    plan: &MinderPlan,
    stdio: &[OwnedFd; 3],
) -> Result<Child, SpawnError> {
    let mut command = Command::new(Program::Path(program.to_owned()));
    command.argv = argv;
    command.env.clone_from(&plan.environment);
    command.descriptors = (0..).zip(stdio).map(|(number, file)| (file.as_fd(), number)).collect();
    command.new_session = true;
    command.parent_death_signal = true;
    command.working_directory = Some(plan.directory.clone());
    command.spawn()
}

/// Where to look, in order, each absolute: what is relative is so to where the program starts.
fn candidates(name: Option<&CStr>, plan: &MinderPlan) -> Vec<CString> {
    let Some(name) = name.map(CStr::to_bytes) else { return Vec::new() };
    let within = |directory: &[u8]| {
        let start = if directory.starts_with(b"/") { &b""[..] } else { plan.directory.as_bytes() };
        CString::new([start, if start.is_empty() { b"" } else { b"/" }, directory].concat()).ok()
    };
    if name.contains(&b'/') {
        return within(name).into_iter().collect();
    }
    let path = plan.environment.iter().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="));
    let parts = path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin").split(|byte| *byte == b':');
    // A part that is no absolute path would be one in a directory whose files a peer's earlier task has written.
    let parts = parts.filter(|part| part.starts_with(b"/"));
    parts.filter_map(|part| within(&[part, b"/", name].concat())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &[&CStr], environment: &[&CStr]) -> MinderPlan {
        let owned = |list: &[&CStr]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        MinderPlan { argv: owned(words), environment: owned(environment), directory: c"/work".to_owned() }
    }

    fn stdio() -> [OwnedFd; 3] {
        std::array::from_fn(|_| {
            std::fs::File::options().read(true).write(true).open("/dev/null").unwrap().into()
        })
    }

    /// SEL-4: a name is looked for along the PATH of the operator's environment, never where a task has written.
    #[test]
    fn programs_are_looked_for_along_path() {
        let paths = |name: &CStr, environment: &[&CStr]| -> Vec<String> {
            let plan = plan(&[name], environment);
            candidates(Some(name), &plan).into_iter().map(|path| path.into_string().unwrap()).collect()
        };
        assert_eq!(paths(c"ls", &[c"A=1", c"PATH=/a:/b"]), ["/a/ls", "/b/ls"]);
        assert_eq!(paths(c"ls", &[c"PATH=:.:bin:/b"]), ["/b/ls"]);
        assert_eq!(paths(c"./ls", &[c"PATH=/a"]), ["/work/./ls"]);
        assert_eq!(paths(c"/x/ls", &[]), ["/x/ls"]);
        assert_eq!(paths(c"ls", &[]), ["/usr/local/bin/ls", "/usr/bin/ls", "/bin/ls"]);
    }

    /// USE-1: what is not there and what may not be started are told apart, by name; one further along is taken.
    #[test]
    fn a_program_that_cannot_be_started_is_named() {
        let place = tempfile::tempdir().unwrap();
        let (first, second) = (place.path().join("first"), place.path().join("second"));
        for (directory, text, mode) in [(&first, "#!/bin/sh\n", 0o644), (&second, "exit 7\n", 0o755)] {
            std::fs::create_dir(directory).unwrap();
            let file = directory.join("agent");
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        }
        let path = CString::new(format!("PATH={}", first.display())).unwrap();
        let mut plan = plan(&[c"agent"], &[&path]);
        plan.directory = c"/".to_owned();
        let error = start(&plan, &stdio()).unwrap_err();
        assert_eq!(error, StartError::NotExecutable("agent".to_owned(), Errno::ACCESS));
        // A text without its first line is one for sh.
        plan.environment =
            vec![CString::new(format!("PATH={}:{}", first.display(), second.display())).unwrap()];
        let child = start(&plan, &stdio()).unwrap();
        let status = confine::sys::wait::wait(child.pidfd.as_fd(), confine::sys::wait::Ask::default());
        assert_eq!(status, Ok(Some(confine::sys::wait::Status::Exited(7))));
        for words in [vec![c"no-such-agent-at-all".to_owned()], vec![CString::default()], vec![]] {
            plan.argv = words;
            assert!(matches!(start(&plan, &stdio()), Err(StartError::NotFound(_))));
        }
    }
}
