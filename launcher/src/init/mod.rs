//! anet-init: process 1 of every sandbox. It makes what can only be made inside, confines itself, starts the program, and
//! says how that goes. When it ends, the kernel ends everything in the sandbox.

pub mod probe;
mod program;
mod terminal;

use std::ffi::{CStr, CString};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use confine::sys::inherited;
use confine::sys::signal::{Signal, Signals};
use ipc_proto::descriptors::{CHANNEL, INIT_PLAN, INIT_STDIO};
use ipc_proto::init::{BACKLOG, CommandPlan, Exit, FromInit, InitPlan, InitStep, Purpose, ToInit};
use ipc_proto::{Channel, ChannelError, Received, bulk};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::Signal as Raw;
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, WaitOptions, WaitStatus, chdir, getrlimit, kill_process_group,
    set_dumpable_behavior, setrlimit, wait,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::mounts;
use program::Started;
use terminal::Terminal;

/// Open descriptors of one process of the run, and what all of them may have in flight: the usual soft limit, a quarter of
/// what anet's own processes have.
const DESCRIPTORS: u64 = 1024;

/// The channel to the launcher.
pub type Launcher = Channel<FromInit, ToInit>;

/// Why anet-init cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The launcher is gone or broke the protocol.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    /// The launcher is gone.
    #[error("the launcher is gone")]
    Alone,
    /// A step failed; the launcher is told.
    #[error("{step:?}: {errno}")]
    Step {
        /// Which.
        step: InitStep,
        /// With what.
        errno: Errno,
    },
}

fn at(step: InitStep) -> impl Fn(Errno) -> Stop {
    move |errno| Stop::Step { step, errno }
}

/// Lives: reads the plan, makes what it asks for, confines itself, waits for the word, starts the program, reports.
///
/// # Errors
/// [`Stop`]; the launcher was told where there is something to tell.
pub fn live() -> Result<(), Stop> {
    // The run's processes have our user: none of them may look into us or take our descriptors.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at(InitStep::Confine))?;
    let launcher = Channel::from_fd(inherited::take(CHANNEL).map_err(|_| Stop::Alone)?)?;
    match make_ready(&launcher).and_then(|ready| ready.go(&launcher)) {
        Err(Stop::Step { step, errno }) => {
            launcher.send(&FromInit::Failed { step, errno: errno.raw_os_error() }, &[])?;
            Err(Stop::Step { step, errno })
        }
        other => other,
    }
}

/// Everything is made, nothing runs.
struct Ready {
    purpose: Purpose,
    terminal: Option<Terminal>,
    signals: Signals,
    null: OwnedFd,
}

fn make_ready(launcher: &Launcher) -> Result<Ready, Stop> {
    let memory = inherited::take(INIT_PLAN).map_err(at(InitStep::Plan))?;
    let plan: InitPlan = bulk::open(memory.as_fd()).map_err(|_| at(InitStep::Plan)(Errno::INVAL))?;
    let null =
        open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(at(InitStep::Plan))?;
    become_streams().map_err(at(InitStep::Plan))?;

    let listeners: Vec<OwnedFd> = plan
        .ports
        .iter()
        .map(|port| listener(*port))
        .collect::<Result<_, _>>()
        .map_err(at(InitStep::Listener))?;
    let mut terminal = None;
    let mut outer = None;
    if let Purpose::Command(command) = &plan.purpose {
        if let Some(wanted) = command.terminal {
            let (inner, far) = Terminal::open(wanted).map_err(at(InitStep::Terminal))?;
            terminal = Some(inner);
            outer = Some(far);
        }
        chdir(&command.directory).map_err(at(InitStep::Directory))?;
    }
    let signals = Signals::block(&[Signal::SIGCHLD, Signal::SIGTTOU])
        .map_err(|errno| at(InitStep::Confine)(Errno::from_raw_os_error(errno as i32)))?;
    if let Some(expected) = &plan.expected {
        let seen = mounts::verify(expected).map_err(|_| at(InitStep::Mounts)(Errno::IO))?;
        seen.map_err(|_| at(InitStep::Mounts)(Errno::XDEV))?;
    }
    limit(plan.largest_file).map_err(at(InitStep::Confine))?;
    // Before anybody is told that the sandbox stands: what cannot be confined never stands.
    confine_self(&plan.writable, plan.file_rules)?;

    let mut passed: Vec<BorrowedFd<'_>> = listeners.iter().map(AsFd::as_fd).collect();
    passed.extend(outer.as_ref().map(AsFd::as_fd));
    let count = u8::try_from(listeners.len()).unwrap_or(u8::MAX);
    launcher.send(&FromInit::Ready { listeners: count, terminal: outer.is_some() }, &passed)?;
    Ok(Ready { purpose: plan.purpose, terminal, signals, null })
}

/// One file cannot pass the limit on all of them, not even in the time between two looks. And what is sent in flight through
/// sockets is counted for the user, against whose limit anet's own processes pass descriptors: the run's is lower.
fn limit(largest_file: Option<u64>) -> Result<(), Errno> {
    let lower = |resource: Resource, value: u64| {
        let hard = getrlimit(resource).maximum.map_or(value, |hard| hard.min(value));
        setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })
    };
    lower(Resource::Nofile, DESCRIPTORS)?;
    largest_file.map_or(Ok(()), |bytes| lower(Resource::Fsize, bytes))
}

/// SBX-4, SBX-7: the run's own filter and second wall, from here on for us and everything that we start.
fn confine_self(writable: &[CString], file_rules: bool) -> Result<(), Stop> {
    let open_place = |path: &CString| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let places: Vec<OwnedFd> =
        writable.iter().map(open_place).collect::<Result<_, _>>().map_err(at(InitStep::Confine))?;
    let borrowed: Vec<BorrowedFd<'_>> = places.iter().map(AsFd::as_fd).collect();
    let failed = |_: confine::Error| at(InitStep::Confine)(Errno::PERM);
    confine::landlock::restrict_run(&borrowed, file_rules).map_err(failed)?;
    confine::seccomp::install_run().map_err(failed)
}

/// The program's standard streams are ours until it has them: the second wall makes a rule for each.
fn become_streams() -> Result<(), Errno> {
    let [input, output, errors] = INIT_STDIO.map(inherited::take);
    dup2_stdin(input?)?;
    dup2_stdout(output?)?;
    dup2_stderr(errors?)
}

/// A listener on the run's own loopback, for broker or proxy to accept on from outside.
fn listener(port: u16) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

impl Ready {
    fn go(self, launcher: &Launcher) -> Result<(), Stop> {
        match launcher.receive()? {
            Received::Message(ToInit::Go, _) => {}
            Received::Message(message @ (ToInit::Signal(_) | ToInit::Resume), _) => {
                return Err(ChannelError::unexpected(&message, "waiting for Go").into());
            }
            Received::Closed | Received::Empty => return Err(Stop::Alone),
        }
        match &self.purpose {
            Purpose::Command(command) => self.run(command, launcher),
            Purpose::Probe(plan) => probe::run(plan, launcher),
        }
    }

    fn run(&self, command: &CommandPlan, launcher: &Launcher) -> Result<(), Stop> {
        let started = program::start(command, self.terminal.as_ref());
        // A reader of the program's output waits until the last holder has closed it, and that must not be us.
        let drop_streams = || {
            dup2_stdin(&self.null)?;
            dup2_stdout(&self.null)?;
            dup2_stderr(&self.null)
        };
        drop_streams().map_err(at(InitStep::Spawn))?;
        let exit = match started {
            Started::Running(child) => self.watch(child, launcher)?,
            Started::Not(exit) => exit,
        };
        Ok(launcher.send(&FromInit::Exited(exit), &[])?)
    }

    /// Waits for the program and for words, and reaps whoever is orphaned.
    fn watch(&self, program: Pid, launcher: &Launcher) -> Result<Exit, Stop> {
        loop {
            let mut fds = [PollFd::new(launcher, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(at(InitStep::Spawn)(errno)),
            }
            while matches!(self.signals.next(), Ok(Some(_))) {}
            while let Ok(Some((child, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                if child != program {
                    continue;
                }
                if let Some(signal) = status.stopping_signal() {
                    launcher.send(&FromInit::Stopped(u8::try_from(signal).unwrap_or(0)), &[])?;
                } else if let Some(exit) = exit(status) {
                    return Ok(exit);
                }
            }
            self.hear(program, launcher)?;
        }
    }

    fn hear(&self, program: Pid, launcher: &Launcher) -> Result<(), Stop> {
        loop {
            match launcher.try_receive()? {
                Received::Empty => return Ok(()),
                Received::Closed => return Err(Stop::Alone),
                Received::Message(ToInit::Signal(number), _) => {
                    // No name, no signal: there is none of that number that could be passed on. A group without a member
                    // has ended, which is about to be reported.
                    if let Some(signal) = Raw::from_named_raw(i32::from(number)) {
                        let _ = kill_process_group(program, signal);
                    }
                }
                Received::Message(ToInit::Resume, _) => {
                    if let Some(terminal) = &self.terminal {
                        terminal.give_to(program);
                    }
                    let _ = kill_process_group(program, Raw::CONT);
                }
                Received::Message(ToInit::Go, _) => {
                    return Err(ChannelError::unexpected(&ToInit::Go, "running").into());
                }
            }
        }
    }
}

fn exit(status: WaitStatus) -> Option<Exit> {
    let small = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
    status
        .exit_status()
        .map(small)
        .map(Exit::Status)
        .or_else(|| status.terminating_signal().map(small).map(Exit::Signal))
}

/// The name that the probe's child is started by.
pub const PROBE: &CStr = c"anet-probe";
