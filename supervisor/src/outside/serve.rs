//! The life of the process: what the supervisor says, what minders say, and which of our children have ended.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use confine::sys::signal::{Signal as Blocked, Signals};
use confine::sys::spawn::{Command, Program, SpawnError};
use ipc_proto::init::Exit;
use ipc_proto::outside::{FromOutside, ToOutside};
use ipc_proto::{Channel, ChannelError, Received, RunId, bulk, descriptors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, wait};

use super::OutsidePlan;
use super::order::{FromMinder, MINDER, MinderPlan, STDIO, ToMinder};
use super::place::{Place, Places, Swept};
use super::starting::{self, Order, Ready, short};
use super::tree::signal_descendants;

/// The events that wait for the `notify` command before the oldest is dropped.
const MOST_EVENTS: usize = 100;
/// How long the `notify` command may take for one event.
const NOTIFY_TIME: Duration = Duration::from_secs(30);
/// Runs whose `End` may still be on its way after their `Exited` or `Failed`.
const CROSSED: usize = 64;
/// Sweeps that may wait for the one before.
const MOST_SWEEPS: usize = 8;
/// Between two looks at what a killed minder left.
const AGAIN: Duration = Duration::from_millis(10);
/// How long minders are waited for at the end: each kills what is below it as soon as its channel has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// Why the process ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A channel failed, or the supervisor broke its protocol.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A passed task cannot be read.
    #[error("protocol violation, supervisor to outside: {0}")]
    Task(#[from] bulk::BulkError),
    /// Something that every process can do was refused.
    #[error("{what} failed ({errno}); look at the limits on processes and descriptors")]
    System {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

fn system(what: &'static str) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::System { what, errno }
}

/// Starts and ends what the supervisor says, until it is gone. `program`: our own, to start minders with.
///
/// # Errors
/// Whatever is not as it must be; what was started is ended all the same, as minders see the end of their channels.
pub fn serve(
    channel: Channel<FromOutside, ToOutside>,
    plan: OutsidePlan,
    program: OwnedFd,
    log: Option<File>,
) -> Result<(), Error> {
    set_child_subreaper(Some(getpid())).map_err(system("becoming a child subreaper"))?;
    let signals = Signals::block(&[Blocked::SIGCHLD])
        .map_err(|errno| system("blocking a signal")(Errno::from_raw_os_error(errno as i32)))?;
    let null = File::options().read(true).write(true).open("/dev/null");
    let null =
        null.map_err(|error| system("opening /dev/null")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let (swept, sweeper) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(system("making a pipe"))?;
    let root = PathBuf::from(OsStr::from_bytes(plan.surroundings.root.as_bytes()));
    let mut outside = Outside {
        channel,
        plan,
        program,
        log,
        null: null.into(),
        signals,
        places: Places::new(root),
        minders: HashMap::new(),
        broken: Vec::new(),
        over: VecDeque::new(),
        events: VecDeque::new(),
        sweeps: VecDeque::new(),
        sweep: None,
        swept,
        sweeper,
    };
    outside.channel.send(&FromOutside::Hello, &[])?;
    let ended = outside.live();
    outside.farewell();
    ended
}

/// What a minder minds.
#[derive(Debug)]
enum What {
    Run { run: RunId, place: Place },
    Notify { event: u64, until: Instant, asked: bool },
}

#[derive(Debug)]
struct Minder {
    what: What,
    channel: Channel<ToMinder, FromMinder>,
    /// The program runs.
    started: bool,
    /// The minder's last word.
    outcome: Option<Outcome>,
}

#[derive(Debug)]
enum Outcome {
    Exited(Exit),
    Failed(String),
}

struct Outside {
    channel: Channel<FromOutside, ToOutside>,
    plan: OutsidePlan,
    program: OwnedFd,
    log: Option<File>,
    null: OwnedFd,
    signals: Signals,
    places: Places,
    minders: HashMap<Pid, Minder>,
    /// Minders that ended without a last word: over when what they left has ended.
    broken: Vec<Minder>,
    /// The last runs that are over.
    over: VecDeque<RunId>,
    /// Events that wait, the oldest first.
    events: VecDeque<(u64, OwnedFd)>,
    /// Sweeps that wait, in milliseconds.
    sweeps: VecDeque<u64>,
    sweep: Option<std::thread::JoinHandle<Swept>>,
    /// Is ready when a sweep has ended.
    swept: OwnedFd,
    sweeper: OwnedFd,
}

/// What is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Supervisor,
    Children,
    Sweep,
    Minder(Pid),
}

impl Outside {
    fn live(&mut self) -> Result<(), Error> {
        loop {
            for source in self.wait()? {
                match source {
                    Source::Supervisor => match self.channel.try_receive()? {
                        Received::Message(message, descriptors) => self.obey(&message, descriptors)?,
                        Received::Empty => {}
                        Received::Closed => return Ok(()),
                    },
                    Source::Children => while let Ok(Some(_)) = self.signals.next() {},
                    Source::Sweep => self.end_sweep()?,
                    Source::Minder(pid) => self.hear(pid)?,
                }
            }
            self.reap()?;
            self.end_broken()?;
            self.look_at_clocks()?;
            self.next_event()?;
            self.next_sweep()?;
        }
    }

    fn wait(&self) -> Result<Vec<Source>, Error> {
        let mut sources = vec![Source::Supervisor, Source::Children, Source::Sweep];
        let mut waiting = vec![
            PollFd::new(&self.channel, PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            PollFd::new(&self.swept, PollFlags::IN),
        ];
        // After its last word a minder has only its end to come, which is a child's.
        for (pid, minder) in self.minders.iter().filter(|(_, minder)| minder.outcome.is_none()) {
            sources.push(Source::Minder(*pid));
            waiting.push(PollFd::new(&minder.channel, PollFlags::IN));
        }
        let now = Instant::now();
        let clocks = self.minders.values().filter_map(|minder| match minder.what {
            What::Notify { until, asked: false, .. } => Some(until.saturating_duration_since(now)),
            What::Notify { asked: true, .. } | What::Run { .. } => None,
        });
        let time = clocks.chain((!self.broken.is_empty()).then_some(AGAIN)).min();
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut waiting, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(system("waiting")(errno)),
        }
        let ready = sources.into_iter().zip(&waiting).filter(|(_, waited)| !waited.revents().is_empty());
        Ok(ready.map(|(source, _)| source).collect())
    }

    /// One message in one state does one thing, and everything else ends the process.
    fn obey(&mut self, message: &ToOutside, descriptors: Vec<OwnedFd>) -> Result<(), Error> {
        let unexpected = |state| Err(Error::from(ChannelError::unexpected(message, state)));
        match message {
            ToOutside::Direct { run, peer, interaction } => {
                if self.plan.direct.is_none() {
                    return unexpected("no agent may run outside of the sandbox");
                }
                if self.pid_of(*run).is_some() {
                    return unexpected("the run is under way");
                }
                let order = Order { run: *run, peer: peer.clone(), interaction: interaction.clone() };
                self.direct(&order, descriptors)
            }
            ToOutside::End { run } => match self.pid_of(*run).and_then(|pid| self.minders.get(&pid)) {
                Some(minder) => end(minder),
                None if self.over.contains(run) || self.is_broken(*run) => Ok(()),
                None => unexpected("there is no such run"),
            },
            ToOutside::Notify { event } => {
                if self.plan.notify.is_empty() {
                    return unexpected("there is no notify command");
                }
                self.events.extend(descriptors.into_iter().next().map(|memory| (*event, memory)));
                if self.events.len() > MOST_EVENTS
                    && let Some((dropped, _)) = self.events.pop_front()
                {
                    self.say(&format!(
                        "{MOST_EVENTS} events wait for the notify command: event {dropped} is dropped"
                    ));
                    self.channel.send(&FromOutside::Notified { event: dropped, well: false }, &[])?;
                }
                Ok(())
            }
            ToOutside::Sweep { older_than } => {
                if self.sweeps.len() >= MOST_SWEEPS {
                    return unexpected("as many sweeps as may wait are waiting");
                }
                self.sweeps.push_back(*older_than);
                Ok(())
            }
        }
    }

    fn pid_of(&self, run: RunId) -> Option<Pid> {
        let mut minders = self.minders.iter();
        minders.find_map(|(pid, minder)| is_of(&minder.what, run).then_some(*pid))
    }

    fn is_broken(&self, run: RunId) -> bool {
        self.broken.iter().any(|minder| is_of(&minder.what, run))
    }

    fn direct(&mut self, order: &Order, descriptors: Vec<OwnedFd>) -> Result<(), Error> {
        let Ok([task, output, errors]) = <[OwnedFd; 3]>::try_from(descriptors) else { return Ok(()) };
        let task: Vec<u8> = bulk::open(task.as_fd())?;
        let Some(agent) = &self.plan.direct else { return Ok(()) };
        let environment = &self.plan.surroundings.environment;
        let failed = match starting::prepare(agent, environment, &self.places, order, &task) {
            Ok(Ready { plan, place, input }) => {
                let input = input.as_ref().map_or(self.null.as_fd(), AsFd::as_fd);
                match self.mind(&plan, [input, output.as_fd(), errors.as_fd()]) {
                    Ok((pid, channel)) => {
                        let what = What::Run { run: order.run, place };
                        self.minders.insert(pid, Minder { what, channel, started: false, outcome: None });
                        return Ok(());
                    }
                    Err(error) => {
                        let left = place.leave();
                        left.unwrap_or_else(|error| self.say(&error.to_string()));
                        error.to_string()
                    }
                }
            }
            Err(error) => error.to_string(),
        };
        self.run_failed(order.run, failed)
    }

    fn run_failed(&mut self, run: RunId, text: String) -> Result<(), Error> {
        self.run_is_over(run);
        Ok(self.channel.send(&FromOutside::Failed { run, text: short(text) }, &[])?)
    }

    fn run_is_over(&mut self, run: RunId) {
        self.over.truncate(CROSSED - 1);
        self.over.push_front(run);
    }

    /// Starts a minder.
    fn mind(
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
        let child = command.spawn()?;
        Ok((child.pid, near))
    }

    fn hear(&mut self, pid: Pid) -> Result<(), Error> {
        let Some(minder) = self.minders.get_mut(&pid) else { return Ok(()) };
        let received = match minder.channel.try_receive() {
            Ok(received) => received,
            // It is one of our own, and whatever it is, its end is near.
            Err(_) => Received::Closed,
        };
        match received {
            Received::Message(FromMinder::Started, _) => {
                minder.started = true;
                if let What::Run { run, .. } = minder.what {
                    self.channel.send(&FromOutside::Started { run }, &[])?;
                }
            }
            Received::Message(FromMinder::Failed(text), _) => minder.outcome = Some(Outcome::Failed(text)),
            Received::Message(FromMinder::Exited(exit), _) => minder.outcome = Some(Outcome::Exited(exit)),
            Received::Empty => {}
            // The end of the process itself says more; but there has to be one.
            Received::Closed => {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                minder.outcome.get_or_insert_with(|| Outcome::Failed(String::new()));
            }
        }
        Ok(())
    }

    /// Asks for every child that has ended: minders, and what came to us from killed ones.
    fn reap(&mut self) -> Result<(), Error> {
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

    fn conclude(&mut self, mut minder: Minder) -> Result<(), Error> {
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
    fn end_broken(&mut self) -> Result<(), Error> {
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
    fn finish(&mut self, minder: Minder, outcome: Result<Exit, String>) -> Result<(), Error> {
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

    fn look_at_clocks(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        for minder in self.minders.values_mut() {
            if let What::Notify { until, asked: asked @ false, .. } = &mut minder.what
                && *until <= now
            {
                *asked = true;
                end(minder)?;
            }
        }
        Ok(())
    }

    /// Starts the `notify` command for the oldest event, if it is not at work.
    fn next_event(&mut self) -> Result<(), Error> {
        let is_notify = |minder: &Minder| matches!(minder.what, What::Notify { .. });
        while !self.minders.values().chain(&self.broken).any(is_notify) {
            let Some((event, memory)) = self.events.pop_front() else { return Ok(()) };
            // Whoever filled it may have left it at its end.
            let _ = seek(&memory, SeekFrom::Start(0));
            let plan = MinderPlan {
                argv: self.plan.notify.clone(),
                environment: self.plan.surroundings.environment.clone(),
                directory: c"/".to_owned(),
            };
            let errors = self.log.as_ref().map_or(self.null.as_fd(), AsFd::as_fd);
            match self.mind(&plan, [memory.as_fd(), self.null.as_fd(), errors]) {
                Ok((pid, channel)) => {
                    let what = What::Notify { event, until: Instant::now() + NOTIFY_TIME, asked: false };
                    self.minders.insert(pid, Minder { what, channel, started: false, outcome: None });
                }
                Err(error) => {
                    self.say(&format!("the notify command could not be started: {error}"));
                    self.channel.send(&FromOutside::Notified { event, well: false }, &[])?;
                }
            }
        }
        Ok(())
    }

    /// Begins the next sweep, beside everything else: there may be a great deal to remove.
    fn next_sweep(&mut self) -> Result<(), Error> {
        if self.sweep.is_some() {
            return Ok(());
        }
        let Some(older_than) = self.sweeps.pop_front() else { return Ok(()) };
        let cloned = |file: &OwnedFd| {
            file.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))
        };
        let done = cloned(&self.sweeper).map_err(system("making a descriptor"))?;
        let (places, mut log) = (self.places.clone(), self.log.as_ref().and_then(|log| log.try_clone().ok()));
        let sweep = move || {
            let swept = places.sweep(Duration::from_millis(older_than), &mut |text| say(&mut log, text));
            // Its reader lives as long as the process.
            let _ = rustix::io::write(&done, b".");
            swept
        };
        let thread = std::thread::Builder::new().name("sweep".to_owned()).spawn(sweep);
        self.sweep = Some(thread.map_err(|error| {
            system("starting a thread")(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
        })?);
        Ok(())
    }

    fn end_sweep(&mut self) -> Result<(), Error> {
        let _ = rustix::io::read(&self.swept, &mut [0; 1]);
        let Some(thread) = self.sweep.take() else { return Ok(()) };
        // A panic of it would have ended the process.
        let Swept { removed, left } = thread.join().unwrap_or_default();
        Ok(self.channel.send(&FromOutside::Swept { removed, left }, &[])?)
    }

    /// Everything ends: each minder sees the end of its channel and kills what is below it.
    fn farewell(&mut self) {
        let mut minders: Vec<Pid> = self.minders.drain().map(|(pid, _)| pid).collect();
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

    fn say(&mut self, text: &str) {
        say(&mut self.log, text);
    }
}

/// Why a minder could not be started.
#[derive(Debug, thiserror::Error)]
enum MindError {
    #[error(transparent)]
    Plan(#[from] bulk::BulkError),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

fn is_of(what: &What, run: RunId) -> bool {
    matches!(what, What::Run { run: own, .. } if *own == run)
}

fn end(minder: &Minder) -> Result<(), Error> {
    match minder.channel.send(&ToMinder::End, &[]) {
        // It has just ended.
        Err(error) if error.is_closed() => Ok(()),
        sent => Ok(sent?),
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

fn say(log: &mut Option<File>, text: &str) {
    if let Some(log) = log {
        // Nobody may be reading.
        let _ = writeln!(log, "anet-outside: {text}");
    }
}
