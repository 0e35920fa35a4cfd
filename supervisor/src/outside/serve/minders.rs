//! The minders: started, heard, told to end, and what is said when one is over.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use confine::sys::spawn::{Command, Program, SpawnError};
use ipc_proto::init::Exit;
use ipc_proto::outside::FromOutside;
use ipc_proto::{Channel, ChannelError, Received, RunId, bulk, descriptors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use super::super::order::{FromMinder, MINDER, MinderPlan, STDIO, ToMinder};
use super::super::place::Place;
use super::super::tree::signal_descendants;
use super::{AGAIN, Error, Outside, system};

/// How long a minder may take to start its program, and to end all that is below it, before what it does not do is done here.
/// Within what the supervisor waits for either.
const MINDER_TIME: Duration = Duration::from_secs(15);
/// How long minders are waited for at the end: each kills what is below it as soon as its channel has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a minder minds.
#[derive(Debug)]
pub(super) enum What {
    Run { run: RunId, place: Place },
    Notify { event: u64, until: Instant, asked: bool },
}

#[derive(Debug)]
pub(super) struct Minder {
    pub(super) what: What,
    pub(super) channel: Channel<ToMinder, FromMinder>,
    /// The program runs.
    started: bool,
    /// It was told to end.
    ending: bool,
    /// The minder's last word.
    outcome: Option<Outcome>,
    /// It has to have started its program, or to have ended all that it started, by then.
    until: Option<Instant>,
}

impl Minder {
    pub(super) fn new(what: What, channel: Channel<ToMinder, FromMinder>) -> Minder {
        Minder {
            what,
            channel,
            started: false,
            ending: false,
            outcome: None,
            until: Some(Instant::now() + MINDER_TIME),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let notify = match self.what {
            What::Notify { until, asked: false, .. } => Some(until),
            What::Notify { asked: true, .. } | What::Run { .. } => None,
        };
        [self.until, notify].into_iter().flatten().min()
    }

    pub(super) fn is_of(&self, run: RunId) -> bool {
        matches!(&self.what, What::Run { run: own, .. } if *own == run)
    }

    /// After its last word a minder has only its end to come, which is a child's.
    pub(super) fn may_speak(&self) -> bool {
        self.outcome.is_none()
    }

    fn is_late(&self, now: Instant) -> bool {
        self.until.is_some_and(|at| at <= now)
    }
}

#[derive(Debug)]
pub(super) enum Outcome {
    Exited(Exit),
    Failed(String),
}

/// Why a minder could not be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum MindError {
    #[error(transparent)]
    Plan(#[from] bulk::BulkError),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

impl Outside {
    /// Starts a minder.
    pub(super) fn mind(
        &self,
        plan: &MinderPlan,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<(Pid, Channel<ToMinder, FromMinder>), MindError> {
        let plan = bulk::seal(plan)?;
        let (near, far) = Channel::pair()?;
        let far = far.into_fd();
        let mut command = Command::new(Program::Descriptor(self.program.as_fd()));
        command.argv = vec![c"anet-outside".to_owned(), CString::new(MINDER).unwrap_or_default()];
        let null = self.null.as_fd();
        command.descriptors = vec![
            (null, 0),
            (null, 1),
            (null, 2),
            (far.as_fd(), descriptors::CHANNEL),
            (self.log.as_ref().map_or(null, AsFd::as_fd), descriptors::LOG),
            (plan.as_fd(), descriptors::PLAN),
        ];
        command.descriptors.extend(stdio.into_iter().zip(STDIO));
        // No signal at our death: it would keep a minder from its work. It sees the end of the channel instead.
        command.new_session = true;
        command.working_directory = Some(c"/".to_owned());
        let child = command.spawn()?;
        Ok((child.pid, near))
    }

    pub(super) fn hear(&mut self, pid: Pid) -> Result<(), Error> {
        let Some(minder) = self.minders.get_mut(&pid) else { return Ok(()) };
        let received = match minder.channel.try_receive() {
            Ok(received) => received,
            // It is one of our own, and whatever it is, its end is near.
            Err(_) => Received::Closed,
        };
        match received {
            Received::Message(FromMinder::Started, _) => {
                minder.started = true;
                minder.until = if minder.ending { minder.until } else { None };
                if let What::Run { run, .. } = minder.what {
                    self.channel.send(&FromOutside::Started { run }, &[])?;
                }
            }
            Received::Message(FromMinder::Failed(text), _) => minder.outcome = Some(Outcome::Failed(text)),
            Received::Message(FromMinder::Exited(exit), _) => minder.outcome = Some(Outcome::Exited(exit)),
            Received::Empty => {}
            // The end of the process itself says more; but there has to be one.
            Received::Closed => {
                let _ = kill_process(pid, Signal::KILL);
                minder.outcome.get_or_insert_with(|| Outcome::Failed(String::new()));
            }
        }
        Ok(())
    }

    /// Asks for every child that has ended: minders, and what came to us from killed ones.
    pub(super) fn reap(&mut self) -> Result<(), Error> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) => {
                    // What it said last may wait to be read.
                    for _ in 0..3 {
                        self.hear(pid)?;
                    }
                    if let Some(minder) = self.minders.remove(&pid) {
                        self.conclude(minder)?;
                    }
                }
                Err(Errno::INTR) => {}
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(errno) => return Err(system("waiting for children")(errno)),
            }
        }
    }

    pub(super) fn conclude(&mut self, mut minder: Minder) -> Result<(), Error> {
        match minder.outcome.take() {
            Some(Outcome::Failed(text)) if !text.is_empty() && !minder.started => {
                self.finish(minder, Err(text))
            }
            Some(Outcome::Exited(exit)) => self.finish(minder, Ok(exit)),
            Some(Outcome::Failed(_)) | None => {
                self.say("a process of anet's above a program was killed, and what the program started is ended now");
                self.broken.push(minder);
                Ok(())
            }
        }
    }

    /// What killed minders left came to us: whatever is below us and below no minder is theirs.
    pub(super) fn end_broken(&mut self) -> Result<(), Error> {
        if self.broken.is_empty() {
            return Ok(());
        }
        let round = signal_descendants(Signal::KILL, &|child| self.minders.contains_key(&child));
        if round.reached > 0 {
            return Ok(());
        }
        for minder in std::mem::take(&mut self.broken) {
            let started = minder.started;
            let gone = "the process of anet's that was to start it was killed".to_owned();
            self.finish(minder, if started { Ok(Exit::Signal(9)) } else { Err(gone) })?;
        }
        Ok(())
    }

    /// Nothing of it is left.
    pub(super) fn finish(&mut self, minder: Minder, outcome: Result<Exit, String>) -> Result<(), Error> {
        match minder.what {
            What::Run { run, place } => {
                if let Err(error) = place.leave() {
                    self.say(&error.to_string());
                }
                drop(place);
                match outcome {
                    Ok(exit) => {
                        self.run_is_over(run);
                        Ok(self.channel.send(&FromOutside::Exited { run, exit }, &[])?)
                    }
                    Err(text) => self.run_failed(run, text),
                }
            }
            What::Notify { event, asked, .. } => {
                match &outcome {
                    _ if asked => self.say("the notify command took over 30 s for an event and was ended"),
                    Ok(Exit::Status(0)) => {}
                    Ok(exit) => self.say(&format!("the notify command failed: {}", words(*exit))),
                    Err(text) => self.say(&format!("the notify command could not be started: {text}")),
                }
                let well = !asked && outcome == Ok(Exit::Status(0));
                Ok(self.channel.send(&FromOutside::Notified { event, well }, &[])?)
            }
        }
    }

    pub(super) fn look_at_clocks(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let late = |(pid, minder): (&Pid, &Minder)| {
            minder.next_deadline().is_some_and(|at| at <= now).then_some(*pid)
        };
        for pid in self.minders.iter().filter_map(late).collect::<Vec<_>>() {
            let Some(minder) = self.minders.get_mut(&pid) else { continue };
            if minder.is_late(now) {
                minder.until = None;
                // It is stopped, or what is below it does not end by any signal: the next signals are ours.
                let _ = kill_process(pid, Signal::KILL);
            } else {
                if let What::Notify { asked, .. } = &mut minder.what {
                    *asked = true;
                }
                self.end(pid)?;
            }
        }
        Ok(())
    }

    /// Tells a minder to end what is below it.
    pub(super) fn end(&mut self, pid: Pid) -> Result<(), Error> {
        let Some(minder) = self.minders.get_mut(&pid) else { return Ok(()) };
        if !minder.ending {
            minder.ending = true;
            minder.until = Some(Instant::now() + MINDER_TIME);
        }
        // What is below it may have stopped it.
        let _ = kill_process(pid, Signal::CONT);
        match minder.channel.send(&ToMinder::End, &[]) {
            // It has just ended.
            Err(error) if error.is_closed() => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// Everything ends: each minder sees the end of its channel and kills what is below it.
    pub(super) fn farewell(&mut self) {
        let mut minders: Vec<Pid> = self.minders.drain().map(|(pid, _)| pid).collect();
        for minder in &minders {
            let _ = kill_process(*minder, Signal::CONT);
        }
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) => minders.retain(|minder| *minder != pid),
                Err(Errno::CHILD) => return,
                Ok(None) | Err(_) => {
                    // What killed ones have left.
                    signal_descendants(Signal::KILL, &|child| minders.contains(&child));
                    let time = Timespec::try_from(AGAIN).ok();
                    let mut waiting = [PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
                    let _ = poll(&mut waiting, time.as_ref());
                    while let Ok(Some(_)) = self.signals.next() {}
                }
            }
        }
    }
}

fn words(exit: Exit) -> String {
    match exit {
        Exit::Status(status) => format!("it ended with status {status}"),
        Exit::Signal(signal) => format!("signal {signal} ended it"),
        Exit::NotFound => "it is not there".to_owned(),
        Exit::NotExecutable => "it cannot be executed".to_owned(),
    }
}
