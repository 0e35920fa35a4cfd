//! The life of the process: what the supervisor says, what minders say, and which of our children have ended.

mod events;
mod minders;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use confine::sys::signal::{Signal as Blocked, Signals};
use ipc_proto::outside::{FromOutside, ToOutside};
use ipc_proto::{Channel, ChannelError, Received, RunId, bulk};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, getpid, set_child_subreaper};

use self::minders::{Minder, What};
use super::OutsidePlan;
use super::place::{Places, Swept};
use super::starting::{self, Order, Ready, short};

/// The events that wait for the `notify` command before the oldest is dropped.
const MOST_EVENTS: usize = 100;
/// Runs whose `End` may still be on its way after their `Exited` or `Failed`.
const CROSSED: usize = 64;
/// Sweeps that may wait for the one before.
const MOST_SWEEPS: usize = 8;
/// Between two looks at what a killed minder left.
const AGAIN: Duration = Duration::from_millis(10);

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
        for (pid, minder) in self.minders.iter().filter(|(_, minder)| minder.may_speak()) {
            sources.push(Source::Minder(*pid));
            waiting.push(PollFd::new(&minder.channel, PollFlags::IN));
        }
        let now = Instant::now();
        let clocks = self.minders.values().filter_map(Minder::next_deadline);
        let times = clocks.map(|at| at.saturating_duration_since(now));
        let time = times.chain((!self.broken.is_empty()).then_some(AGAIN)).min();
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
                if self.pid_of(*run).is_some() || self.is_broken(*run) {
                    return unexpected("the run is under way");
                }
                let order = Order { run: *run, peer: peer.clone(), interaction: interaction.clone() };
                self.direct(&order, descriptors)
            }
            ToOutside::End { run } => match self.pid_of(*run) {
                Some(pid) => self.end(pid),
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
        minders.find_map(|(pid, minder)| minder.is_of(run).then_some(*pid))
    }

    fn is_broken(&self, run: RunId) -> bool {
        self.broken.iter().any(|minder| minder.is_of(run))
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
                        self.minders.insert(pid, Minder::new(what, channel));
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

    fn say(&mut self, text: &str) {
        say(&mut self.log, text);
    }
}

fn say(log: &mut Option<File>, text: &str) {
    if let Some(log) = log {
        // Nobody may be reading.
        let _ = writeln!(log, "anet-outside: {text}");
    }
}
