//! The keeper: starts the guard, and starts it again when it has ended (PRV-6). It has the node's lock, hears signals, and reads
//! from nobody.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use confine::Paths;
use confine::manifest::Role;
use confine::sys::signal::{Signal, Signals};
use confine::sys::spawn::{Child, Command, Program};
use confine::sys::wait::{Ask, Status, wait};
use ipc_proto::Code;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal as RawSignal, pidfd_send_signal};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::isatty;

use super::super::Directories;
use super::super::ground::not_started;
use super::super::programs::c_path;
use super::keys::Keys;
use super::lock::Lock;
use super::past::{Memory, PAST, Past};
use super::pause::Pauses;
use super::start::hear;
use super::{DaemonRequest, GUARD, STATUS_ANEW, life, log, prepare};
use crate::error::{STATUS_FAILED, Trouble};

/// How long the guard may take to end: it ends its supervisor after 15 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a life ended, as the keeper sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Ended {
    /// As it was asked to.
    Stopped,
    /// To begin anew.
    Anew,
    /// It could not begin; it has said why, and left it.
    Refused(String),
    /// One of its processes died, or itself.
    Died(String),
}

/// Keeps the node up until it is told to end.
///
/// # Errors
/// What kept the node from coming up the first time.
pub(super) fn keep(request: &DaemonRequest) -> Result<u8, Trouble> {
    let directories = Directories::of(request.mode)?;
    // Nothing is made for a configuration that is wrong.
    prepare::check(request, &directories)?;
    let _lock = Lock::take(&directories, request.mode)?;
    // By its name and not as the file that this process has: after an upgrade all programs are of the new version.
    let program = std::env::current_exe().map_err(|error| {
        Trouble::new(
            Code::ProgramMissing,
            format!("this program's own place is not known ({error}); mount /proc"),
        )
    })?;
    let keys = Keys::withdraw()?;
    log::speak();
    let keeper = Keeper { program, keys, signals: hear()?, terminal: has_terminal() };
    confine::enter(Role::Keeper, &Paths::default()).map_err(|error| {
        Trouble::new(Code::NotConfined, format!("the keeper could not be confined: {error}"))
    })?;
    keeper.keep()
}

struct Keeper {
    program: PathBuf,
    keys: Keys,
    signals: Signals,
    /// It was started from a terminal, which may go.
    terminal: bool,
}

impl Keeper {
    fn keep(&self) -> Result<u8, Trouble> {
        let mut past = Past::default();
        let mut pauses = Pauses::new();
        loop {
            let began = Instant::now();
            let memory = Memory::with(&past)?;
            let ended = match self.start(&memory) {
                Ok(guard) => self.wait(&guard, &memory)?,
                Err(trouble) if past.is_later => Ended::Refused(trouble.to_string()),
                Err(trouble) => return Err(trouble),
            };
            let pause = match ended {
                Ended::Stopped => return Ok(0),
                Ended::Refused(_) if !past.is_later => return Ok(STATUS_FAILED),
                Ended::Anew => {
                    past.last_end = None;
                    Pauses::anew(began.elapsed())
                }
                Ended::Refused(reason) | Ended::Died(reason) => {
                    let pause = pauses.after_death(began.elapsed());
                    tracing::warn!("the node starts again in {} ms: {reason}", pause.as_millis());
                    past.restarts = past.restarts.saturating_add(1);
                    past.last_end = Some(reason);
                    pause
                }
            };
            past.is_later = true;
            if self.rest(pause)? {
                return Ok(0);
            }
        }
    }

    /// The guard: this program again, with the same words and the operator's environment. It has no terminal, so that what is
    /// typed there reaches the keeper alone.
    fn start(&self, memory: &Memory) -> Result<Child, Trouble> {
        let arguments = std::env::args_os().skip(1).map(|word| CString::new(word.into_vec()).ok());
        let (input, output, errors) = (stdin(), stdout(), stderr());
        let mut command = Command::new(Program::Path(c_path(&self.program)?));
        command.argv = CString::new(GUARD).ok().into_iter().chain(arguments.flatten()).collect();
        // What was withdrawn reads as empty, and was not so.
        let variables =
            std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(|name| self.keys.has(name)));
        command.env = variables.filter_map(|(name, value)| prepare::entry(name, value)).collect();
        command.descriptors = vec![(input, 0), (output, 1), (errors, 2), (memory.as_fd(), PAST)];
        command.descriptors.extend(self.keys.descriptors());
        command.parent_death_signal = true;
        command.new_session = true;
        command.spawn().map_err(|error| not_started(&self.program.display().to_string(), &error))
    }

    /// Until the guard has ended; passes on what is asked of the node.
    fn wait(&self, guard: &Child, memory: &Memory) -> Result<Ended, Trouble> {
        let mut stopping: Option<Instant> = None;
        loop {
            let left = stopping.map(|until| until.saturating_duration_since(Instant::now()));
            self.sleep(Some(guard), left)?;
            let ended = wait(guard.pidfd.as_fd(), Ask { no_hang: true, ..Ask::default() });
            match ended {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) if stopping.is_some() => return Ok(Ended::Stopped),
                Ok(status) => return Ok(after(status, memory.reason())),
                Err(_) => return Ok(after(None, memory.reason())),
            }
            while let Ok(Some(signal)) = self.signals.next() {
                let passed = if self.is_end(signal) {
                    stopping.get_or_insert_with(|| Instant::now() + PATIENCE);
                    RawSignal::TERM
                } else {
                    RawSignal::HUP
                };
                let _ = pidfd_send_signal(&guard.pidfd, passed);
            }
            if stopping.is_some_and(|until| until <= Instant::now()) {
                let _ = pidfd_send_signal(&guard.pidfd, RawSignal::KILL);
            }
        }
    }

    /// Waits before the next life. Whether the node is to end instead; a wish to begin anew ends the pause.
    fn rest(&self, pause: Duration) -> Result<bool, Trouble> {
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.sleep(None, Some(left))?;
            if let Ok(Some(signal)) = self.signals.next() {
                return Ok(self.is_end(signal));
            }
        }
    }

    fn sleep(&self, guard: Option<&Child>, left: Option<Duration>) -> Result<(), Trouble> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        fds.extend(guard.map(|guard| PollFd::new(&guard.pidfd, PollFlags::IN)));
        match poll(&mut fds, left.and_then(|left| Timespec::try_from(left).ok()).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(Trouble::new(Code::ProcessDied, format!("the keeper cannot wait ({errno})"))),
        }
    }

    /// Whether the signal ends the node. SIGHUP begins anew; but from a terminal that is gone it is the terminal's end.
    fn is_end(&self, signal: Signal) -> bool {
        signal != Signal::SIGHUP || (self.terminal && !has_terminal())
    }
}

/// One of 0, 1 and 2 is a terminal that is still there.
fn has_terminal() -> bool {
    isatty(stdin()) || isatty(stdout()) || isatty(stderr())
}

/// What the guard's end means.
fn after(status: Option<Status>, reason: Option<String>) -> Ended {
    const ANEW: i32 = STATUS_ANEW as i32;
    const REFUSED: i32 = STATUS_FAILED as i32;
    let told = || reason.clone().unwrap_or_else(|| life::describe("the guard", status));
    match status {
        Some(Status::Exited(0)) => Ended::Stopped,
        Some(Status::Exited(ANEW)) => Ended::Anew,
        // Asked to begin anew before it could hear that.
        Some(Status::Killed(signal)) if signal == Signal::SIGHUP as i32 => Ended::Anew,
        Some(Status::Exited(REFUSED)) => Ended::Refused(told()),
        Some(Status::Exited(_)) => Ended::Died(told()),
        // It did not come to leave a reason, whatever stands there.
        Some(Status::Killed(_) | Status::Stopped(_)) | None => {
            Ended::Died(life::describe("the guard", status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRV-6: what a guard's end means for the node.
    #[test]
    fn the_guards_end_is_understood() {
        let reason = || Some("anet-proxy was ended by SIGKILL".to_owned());
        assert_eq!(after(Some(Status::Exited(0)), None), Ended::Stopped);
        assert_eq!(after(Some(Status::Exited(75)), None), Ended::Anew);
        assert_eq!(after(Some(Status::Killed(1)), None), Ended::Anew);
        assert_eq!(after(Some(Status::Exited(125)), reason()), Ended::Refused(reason().unwrap()));
        assert_eq!(after(Some(Status::Exited(70)), reason()), Ended::Died(reason().unwrap()));
        assert_eq!(
            after(Some(Status::Exited(70)), None),
            Ended::Died("the guard ended with status 70".into())
        );
        assert_eq!(
            after(Some(Status::Killed(9)), reason()),
            Ended::Died("the guard was ended by SIGKILL".into())
        );
    }
}
