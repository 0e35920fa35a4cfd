//! One program and everything that it starts, to the last of it.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use confine::sys::signal::{Signal as Blocked, Signals};
use ipc_proto::init::Exit;
use ipc_proto::{Channel, ChannelError, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, wait};

use super::order::{FromMinder, MinderPlan, ToMinder};
use super::program;
use super::tree::signal_descendants;

/// Between the signal that asks and the one that does not.
const GRACE: Duration = Duration::from_secs(5);
/// Between two rounds of SIGKILL: what forked away from one is met by the next. Then, where something does not end (it waits for
/// a disk that is away), less often.
const AGAIN: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(500);
/// How long another user's processes are waited for after everything else has ended. Within what the supervisor waits for an
/// end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a minder ends without having minded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that every process can do was refused.
    #[error("{what} failed ({errno}); look at the limits on processes and descriptors")]
    System {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The channel failed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

fn system(what: &'static str) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::System { what, errno }
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The program runs.
    Running,
    /// All were asked to end; from then on they are killed.
    Asked(Instant),
    /// Since then they are killed.
    Killing(Instant),
}

/// Starts the program and stays until it has ended, and everything that it has started.
///
/// # Errors
/// [`Error`]; what was started is not minded then, and comes to our parent.
pub fn mind(
    channel: &Channel<FromMinder, ToMinder>,
    plan: &MinderPlan,
    stdio: [OwnedFd; 3],
    log: &mut Option<File>,
) -> Result<(), Error> {
    set_child_subreaper(Some(getpid())).map_err(system("becoming a child subreaper"))?;
    let signals = Signals::block(&[Blocked::SIGCHLD])
        .map_err(|errno| Errno::from_raw_os_error(errno as i32))
        .map_err(system("blocking a signal"))?;
    let child = match program::start(plan, &stdio) {
        Ok(child) => child,
        Err(error) => return Ok(channel.send(&FromMinder::Failed(error.to_string()), &[])?),
    };
    // Whoever reads the program's output sees its end when the program has ended.
    drop(stdio);
    channel.send(&FromMinder::Started, &[])?;
    let mut minder = Minder { program: child.pid, exit: None, phase: Phase::Running };
    loop {
        if minder.reap()? {
            break;
        }
        if minder.push(log) {
            break;
        }
        minder.wait(channel, &signals)?;
    }
    // Killed with our own hands if it did not say anything else.
    let exit = minder.exit.unwrap_or(Exit::Signal(9));
    match channel.send(&FromMinder::Exited(exit), &[]) {
        Err(error) if error.is_closed() => Ok(()),
        sent => Ok(sent?),
    }
}

struct Minder {
    program: Pid,
    exit: Option<Exit>,
    phase: Phase,
}

impl Minder {
    /// Asks how every child that has ended did. True: there is none left, and so no descendant either: each of them would have
    /// come to us.
    fn reap(&mut self) -> Result<bool, Error> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.program => {
                    let number = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
                    self.exit = match (status.exit_status(), status.terminating_signal()) {
                        (Some(status), _) => Some(Exit::Status(number(status))),
                        (None, Some(signal)) => Some(Exit::Signal(number(signal))),
                        (None, None) => self.exit,
                    };
                    if self.exit.is_some() && self.phase == Phase::Running {
                        self.ask();
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Ok(false),
                Err(Errno::CHILD) => return Ok(true),
                Err(errno) => return Err(system("waiting for children")(errno)),
            }
        }
    }

    fn ask(&mut self) {
        signal_descendants(Signal::TERM, &|_| false);
        // What is stopped hears nothing until it goes on.
        signal_descendants(Signal::CONT, &|_| false);
        self.phase = Phase::Asked(Instant::now() + GRACE);
    }

    /// Kills where it is time for that. True: whatever is left is not ours to end.
    fn push(&mut self, log: &mut Option<File>) -> bool {
        match self.phase {
            Phase::Running => false,
            Phase::Asked(until) => {
                if until <= Instant::now() {
                    self.phase = Phase::Killing(Instant::now());
                    return self.push(log);
                }
                false
            }
            Phase::Killing(since) => {
                let round = signal_descendants(Signal::KILL, &|_| false);
                let stuck = round.reached == 0 && since.elapsed() >= PATIENCE;
                if let (true, Some(log)) = (stuck, log) {
                    let what = match round.refused {
                        1 => "a process that a program started is another user's".to_owned(),
                        count => format!("{count} processes that a program started are another user's"),
                    };
                    let _ = writeln!(log, "anet-outside: {what}, and could not be ended");
                }
                stuck
            }
        }
    }

    fn wait(&mut self, channel: &Channel<FromMinder, ToMinder>, signals: &Signals) -> Result<(), Error> {
        let time = match self.phase {
            Phase::Running => None,
            Phase::Asked(until) => Some(until.saturating_duration_since(Instant::now())),
            Phase::Killing(since) => Some(if since.elapsed() < PATIENCE { AGAIN } else { LATER }),
        };
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let mut waiting =
            [PollFd::new(channel, PollFlags::IN), PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        // After its last word the channel is of no interest, and would be ready for ever.
        let (first, count) = if matches!(self.phase, Phase::Killing(_)) { (1, 1) } else { (0, 2) };
        let sources = waiting.get_mut(first..first + count).unwrap_or_default();
        match poll(sources, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(system("waiting")(errno)),
        }
        while let Ok(Some(_)) = signals.next() {}
        if matches!(self.phase, Phase::Killing(_)) {
            return Ok(());
        }
        match channel.try_receive()? {
            Received::Message(ToMinder::End, _) => {
                if self.phase == Phase::Running {
                    self.ask();
                }
            }
            Received::Empty => {}
            Received::Closed => self.phase = Phase::Killing(Instant::now()),
        }
        Ok(())
    }
}
