//! One life of the node: prepared, started, waited for, ended. Any death ends all.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use confine::Paths;
use confine::manifest::Role;
use confine::sys::signal::{Signal, Signals};
use confine::sys::spawn::Child;
use confine::sys::wait::{Ask, Status, wait};
use ipc_proto::Code;
use ipc_proto::job::Word;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal as RawSignal, pidfd_send_signal};

use super::super::watch::end_all;
use super::keys::Keys;
use super::past::Past;
use super::prepare::prepare;
use super::start::{Kept, Processes, hear, start};
use super::systemd::Manager;
use super::{DaemonRequest, STATUS_ANEW, STATUS_DIED, log};
use crate::error::Trouble;

/// How long the supervisor may take to end runs, record that and sign it.
const CLEAN_END: Duration = Duration::from_secs(15);
/// How long it may take when another process died.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How a life ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It was asked to.
    Stopped,
    /// What it was started from is not what is there now.
    Anew,
    /// One of the processes died: which, and of what.
    Died(String),
}

impl End {
    /// The exit status that says so.
    pub(super) fn status(&self) -> u8 {
        match self {
            End::Stopped => 0,
            End::Anew => STATUS_ANEW,
            End::Died(_) => STATUS_DIED,
        }
    }
}

/// Lives.
///
/// # Errors
/// What kept the node from coming up.
pub(super) fn live(request: &DaemonRequest, past: &Past, keys: Keys) -> Result<End, Trouble> {
    let signals = hear()?;
    // Both open sockets, which the guard may not do any more when it waits.
    log::speak();
    let manager = Manager::find();
    let prepared = prepare(request, past, &keys)?;
    if let Err(trouble) = &prepared.job.turn {
        tracing::warn!("{trouble}");
    }
    for warning in &prepared.job.warnings {
        tracing::warn!("{warning}");
    }
    // What only the others have need of goes with it: what is left is what the probe tries to reach.
    let (processes, kept) = start(prepared)?;
    drop(keys);
    let end = confine::enter(Role::Guard, &Paths::default())
        .map_err(|error| Trouble::new(Code::NotConfined, format!("the guard could not be confined: {error}")))
        .and_then(|_| Watch::new(&processes, &kept, &signals, &manager).until_the_end());
    manager.stopping();
    let everybody = processes.others.iter().map(|(_, child)| child).chain([&processes.supervisor]);
    end_all(everybody, processes.apart, &processes.strangers);
    kept.socket.remove();
    match &end {
        Ok(End::Died(reason)) => tracing::error!("process_died: {reason}; everything of the node was ended"),
        Ok(End::Anew) => {
            tracing::info!("the node starts anew: it was asked to, or what it was started from has changed")
        }
        Ok(End::Stopped) => tracing::info!("the node has stopped"),
        Err(_) => {}
    }
    end
}

/// A process that has ended.
type Dead = (&'static str, Option<Status>);

const SUPERVISOR: &str = "anet-supervisor";

struct Watch<'a> {
    processes: &'a Processes,
    kept: &'a Kept,
    signals: &'a Signals,
    manager: &'a Manager,
    /// The supervisor's words can come.
    speaks: bool,
    /// The node serves: the supervisor hears signals.
    serves: bool,
    /// It was asked to start anew before it could hear that.
    anew: bool,
    /// It was asked to end, and is ended then.
    stopping: Option<Instant>,
}

impl<'a> Watch<'a> {
    fn new(
        processes: &'a Processes,
        kept: &'a Kept,
        signals: &'a Signals,
        manager: &'a Manager,
    ) -> Watch<'a> {
        Watch { processes, kept, signals, manager, speaks: true, serves: false, anew: false, stopping: None }
    }

    fn until_the_end(mut self) -> Result<End, Trouble> {
        loop {
            let words = self.sleep()?;
            if let Some(end) = self.ended() {
                return Ok(end);
            }
            if words && let Some(end) = self.hear_word() {
                return Ok(end);
            }
            while let Ok(Some(signal)) = self.signals.next() {
                self.heed(signal);
            }
            if self.stopping.is_some_and(|until| until <= Instant::now()) {
                tracing::warn!("the supervisor did not end in {} s and was ended", CLEAN_END.as_secs());
                return Ok(End::Stopped);
            }
        }
    }

    /// Until something happens. Whether the supervisor speaks.
    fn sleep(&self) -> Result<bool, Trouble> {
        let mut fds = vec![
            PollFd::new(&self.processes.supervisor.pidfd, PollFlags::IN),
            PollFd::new(self.signals, PollFlags::IN),
        ];
        fds.extend(self.processes.others.iter().map(|(_, child)| PollFd::new(&child.pidfd, PollFlags::IN)));
        if self.speaks {
            fds.push(PollFd::new(&self.processes.words, PollFlags::IN));
        }
        let timeout = self.stopping.map(|until| until.saturating_duration_since(Instant::now()));
        match poll(&mut fds, timeout.and_then(|left| Timespec::try_from(left).ok()).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                return Err(Trouble::new(Code::ProcessDied, format!("the guard cannot wait ({errno})")));
            }
        }
        let last = fds.last().is_some_and(|fd| !fd.revents().is_empty());
        Ok(self.speaks && last)
    }

    /// Whether one of them has ended, and what that means.
    fn ended(&self) -> Option<End> {
        let mut dead: Vec<Dead> = Vec::new();
        let mut look = |name: &'static str, child: &Child| {
            if has_ended(child) {
                dead.push((name, status(child)));
            }
        };
        self.processes.others.iter().for_each(|(name, child)| look(name, child));
        look(SUPERVISOR, &self.processes.supervisor);
        if dead.is_empty() {
            return None;
        }
        if self.stopping.is_some() && dead.iter().any(|(name, _)| *name == SUPERVISOR) {
            return Some(End::Stopped);
        }
        if !dead.iter().any(|(name, _)| *name == SUPERVISOR) {
            dead.extend(self.last_words());
        }
        if self.stopping.is_some() {
            return Some(End::Stopped);
        }
        Some(End::Died(reason(&dead)))
    }

    /// One of the others died first. The supervisor, who hears of it by its channel, records what that ended; the rest ends now.
    fn last_words(&self) -> Option<Dead> {
        for (_, child) in &self.processes.others {
            let _ = pidfd_send_signal(&child.pidfd, RawSignal::KILL);
        }
        let supervisor = &self.processes.supervisor;
        let deadline = Instant::now() + LAST_WORDS;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let mut fds = [PollFd::new(&supervisor.pidfd, PollFlags::IN)];
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) | Err(_) => {}
                Ok(_) => return Some((SUPERVISOR, status(supervisor))),
            }
        }
        None
    }

    /// What the supervisor says; none: it goes on.
    fn hear_word(&mut self) -> Option<End> {
        let mut byte = [0u8; 1];
        match rustix::io::read(&self.processes.words, &mut byte) {
            Ok(1) => {}
            // Its end is seen by its pidfd.
            Ok(_) | Err(_) => {
                self.speaks = false;
                return None;
            }
        }
        let [byte] = byte;
        match Word::parse(byte) {
            Some(Word::Launched) => None,
            Some(Word::Ready) => {
                self.serves = true;
                if self.anew {
                    self.pass_on(RawSignal::HUP);
                }
                self.manager.ready();
                tracing::info!("the node serves at {}", self.kept.socket);
                None
            }
            Some(Word::Anew) => Some(End::Anew),
            // Words of a run's supervisor, and none at all: it is not what it was.
            Some(Word::Started | Word::Stop) | None => {
                Some(End::Died(format!("{SUPERVISOR} said what none says (byte {byte})")))
            }
        }
    }

    fn heed(&mut self, signal: Signal) {
        if signal == Signal::SIGHUP {
            if self.serves {
                self.pass_on(RawSignal::HUP);
            }
            self.anew = true;
        } else if self.stopping.is_none() {
            self.manager.stopping();
            self.stopping = Some(Instant::now() + CLEAN_END);
            self.pass_on(RawSignal::TERM);
        }
    }

    fn pass_on(&self, signal: RawSignal) {
        let _ = pidfd_send_signal(&self.processes.supervisor.pidfd, signal);
    }
}

fn has_ended(child: &Child) -> bool {
    let mut fds = [PollFd::new(&child.pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

fn status(child: &Child) -> Option<Status> {
    wait(child.pidfd.as_fd(), Ask { no_hang: true, ..Ask::default() }).ok().flatten()
}

/// Which of those that are dead died first, as far as that can be told: one that was killed before one that gave up, and that
/// before one that ended because its peers had.
fn reason(dead: &[Dead]) -> String {
    let rank = |status: &Option<Status>| match status {
        Some(Status::Killed(_)) => 0,
        Some(Status::Exited(0)) => 2,
        Some(Status::Exited(_) | Status::Stopped(_)) | None => 1,
    };
    let first = dead.iter().min_by_key(|(_, status)| rank(status));
    first.map_or_else(|| "a process ended".to_owned(), |(name, status)| describe(name, *status))
}

/// A process's end in words.
pub(super) fn describe(name: &str, status: Option<Status>) -> String {
    match status {
        Some(Status::Killed(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("{name} was ended by {signal}"),
            Err(_) => format!("{name} was ended by signal {number}"),
        },
        Some(Status::Exited(number)) => format!("{name} ended with status {number}"),
        Some(Status::Stopped(_)) | None => format!("{name} ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRV-6: the operator reads which process died of what, and not which followed it.
    #[test]
    fn the_first_death_is_the_reason() {
        let launcher = ("anet-launcher", Some(Status::Killed(9)));
        let followed = ("anet-proxy", Some(Status::Exited(0)));
        let gave_up = (SUPERVISOR, Some(Status::Exited(125)));
        assert_eq!(reason(&[followed, launcher, gave_up]), "anet-launcher was ended by SIGKILL");
        assert_eq!(reason(&[followed, gave_up]), "anet-supervisor ended with status 125");
        assert_eq!(reason(&[followed]), "anet-proxy ended with status 0");
        assert_eq!(
            reason(&[("anet-broker", Some(Status::Killed(64)))]),
            "anet-broker was ended by signal 64"
        );
    }
}
