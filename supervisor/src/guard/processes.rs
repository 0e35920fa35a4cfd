//! Starting the processes of one run, and wiring their channels: each gets its own ends and nothing else.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use confine::sys::signal::{Signal, Signals};
use confine::sys::spawn::{Child, Command, Identity, Namespaces, Program, SpawnError};
use ipc_proto::launcher::{FromLauncher, ToLauncher};
use ipc_proto::limits::LimitName;
use ipc_proto::proxy::{FromProxy, ToProxy};
use ipc_proto::terminal::{FromTerminal, ToTerminal};
use ipc_proto::{Channel, Code, bulk, descriptors};
use rustix::pipe::{PipeFlags, pipe_with};

use super::control_group;
use super::plan::Prepared;
use crate::error::Trouble;

/// The signals that the guard hears as data.
const HEARD: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    // Not passed on: heard, so that putting the terminal back never stops the guard.
    Signal::SIGTTOU,
];

/// What runs.
#[derive(Debug)]
pub(super) struct Processes {
    pub(super) supervisor: Child,
    /// Launcher, proxy and, if there is one, terminal, by name.
    pub(super) others: Vec<(&'static str, Child)>,
    pub(super) words: OwnedFd,
    pub(super) signals: Signals,
    /// Kept open: removed by systemd when its last process is gone.
    pub(super) _group: Option<OwnedFd>,
}

/// Starts all of them.
pub(super) fn start(prepared: &mut Prepared) -> Result<Processes, Trouble> {
    let signals = Signals::block(&HEARD)
        .map_err(|errno| Trouble::new(Code::ProcessDied, format!("signals cannot be blocked ({errno})")))?;
    // Whatever loses its parent becomes our child, so that none is out of reach.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let (to_launcher, launcher_end) = Channel::<ToLauncher, FromLauncher>::pair().map_err(channel)?;
    let (to_proxy, proxy_end) = Channel::<ToProxy, FromProxy>::pair().map_err(channel)?;
    let mut others = Vec::new();
    let launcher = start_launcher(prepared, &launcher_end.into_fd())?;
    let group = find_control_group(prepared, &launcher);
    others.push(("anet-launcher", launcher));
    others.push(("anet-proxy", start_proxy(prepared, &proxy_end.into_fd())?));
    let to_terminal = match prepared.terminal {
        Some(_) => {
            let (near, far) = Channel::<ToTerminal, FromTerminal>::pair().map_err(channel)?;
            others.push(("anet-terminal", start_terminal(prepared, &far.into_fd())?));
            Some(near.into_fd())
        }
        None => None,
    };
    let (words, word_end) = pipe_with(PipeFlags::CLOEXEC).map_err(channel_errno)?;
    let (launcher_fd, proxy_fd) = (to_launcher.into_fd(), to_proxy.into_fd());
    let job = bulk::seal(&prepared.job).map_err(|error| Trouble::new(Code::BadOption, error.to_string()))?;
    let [input, output, errors] = &prepared.stdio;
    let [to_input, to_output, to_errors] = descriptors::STDIO;
    let mut given = vec![
        (launcher_fd.as_fd(), descriptors::CHANNEL),
        (prepared.log.as_fd(), descriptors::LOG),
        (job.as_fd(), descriptors::JOB),
        (proxy_fd.as_fd(), descriptors::PROXY),
        (prepared.chain.as_fd(), descriptors::CHAIN),
        (word_end.as_fd(), descriptors::GUARD),
        (input.as_fd(), to_input),
        (output.as_fd(), to_output),
        (errors.as_fd(), to_errors),
    ];
    let cache = prepared.probe_cache.as_ref().filter(|_| prepared.job.probe.is_some());
    for (fd, number) in [
        (prepared.record.as_ref().map(AsFd::as_fd), descriptors::RECORD),
        (cache.map(AsFd::as_fd), descriptors::PROBE_CACHE),
        (to_terminal.as_ref().map(AsFd::as_fd), descriptors::TERMINAL),
        (group.as_ref().map(AsFd::as_fd), descriptors::CONTROL_GROUP),
    ] {
        given.extend(fd.map(|fd| (fd, number)));
    }
    let supervisor = spawn(
        prepared,
        &prepared.programs.supervisor,
        c"anet-supervisor",
        given,
        prepared.identities.supervisor,
    )?;
    Ok(Processes { supervisor, others, words, signals, _group: group })
}

/// The launcher: process 1 of namespaces of its own, where this host lets us make them.
fn start_launcher(prepared: &Prepared, channel: &OwnedFd) -> Result<Child, Trouble> {
    let root = rustix::process::geteuid().is_root();
    let given = vec![(channel.as_fd(), descriptors::CHANNEL), (prepared.log.as_fd(), descriptors::LOG)];
    let mut command =
        command(prepared, &prepared.programs.launcher, c"anet-launcher", given, prepared.identities.launcher);
    // Namespaces without a user namespace are root's to make.
    command.namespaces = Namespaces { user: !root, pid: true, net: true };
    match command.spawn() {
        Err(SpawnError::NamespacesRefused { .. }) => {
            command.namespaces = Namespaces::default();
            command.spawn().map_err(|error| not_started("anet-launcher", &error))
        }
        other => other.map_err(|error| not_started("anet-launcher", &error)),
    }
}

fn start_proxy(prepared: &Prepared, channel: &OwnedFd) -> Result<Child, Trouble> {
    let given = vec![(channel.as_fd(), descriptors::CHANNEL), (prepared.log.as_fd(), descriptors::LOG)];
    spawn(prepared, &prepared.programs.proxy, c"anet-proxy", given, prepared.identities.proxy)
}

/// The terminal process stays in our session and process group: the terminal is the group's to use.
fn start_terminal(prepared: &Prepared, channel: &OwnedFd) -> Result<Child, Trouble> {
    let standard = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let mut given = vec![(channel.as_fd(), descriptors::CHANNEL), (prepared.log.as_fd(), descriptors::LOG)];
    given.extend(standard.into_iter().zip(descriptors::OPERATOR));
    if let Some(joined) = &prepared.terminal {
        let pipes = joined.pipes.iter().zip(descriptors::RUN_PIPES);
        given.extend(pipes.filter_map(|(pipe, number)| Some((pipe.as_ref()?.as_fd(), number))));
    }
    let mut command = command(prepared, &prepared.programs.terminal, c"anet-terminal", given, None);
    command.new_session = false;
    command.spawn().map_err(|error| not_started("anet-terminal", &error))
}

fn spawn(
    prepared: &Prepared,
    program: &CStr,
    name: &'static CStr,
    given: Vec<(BorrowedFd<'_>, RawFd)>,
    identity: Option<Identity>,
) -> Result<Child, Trouble> {
    let started = command(prepared, program, name, given, identity).spawn();
    started.map_err(|error| not_started(name.to_str().unwrap_or_default(), &error))
}

/// What all of them have in common: nothing of ours but what is given, and no life after ours.
fn command<'a>(
    prepared: &'a Prepared,
    program: &CStr,
    name: &'static CStr,
    mut given: Vec<(BorrowedFd<'a>, RawFd)>,
    identity: Option<Identity>,
) -> Command<'a> {
    given.extend((0..3).map(|number| (prepared.null.as_fd(), number)));
    let mut command = Command::new(Program::Path(program.to_owned()));
    command.argv = vec![CString::from(name)];
    command.descriptors = given;
    command.identity = identity;
    command.parent_death_signal = true;
    command.new_session = true;
    command.no_new_privs = true;
    command.working_directory = Some(CString::from(c"/"));
    command
}

/// LIM-2: where there is none, memory and tasks are not among the limits that hold.
fn find_control_group(prepared: &mut Prepared, launcher: &Child) -> Option<OwnedFd> {
    if !prepared.wants_control_group {
        return None;
    }
    let group = control_group::make(prepared.job.run, launcher.pid, prepared.identities.run);
    prepared.job.control_group = group.is_some();
    if group.is_none() {
        prepared.job.warnings.push(Code::NoCgroupLimits);
        prepared.job.limits.remove(LimitName::Memory);
        prepared.job.limits.remove(LimitName::Tasks);
        prepared.job.plan.memory = None;
        prepared.job.plan.tasks = None;
    }
    group
}

fn not_started(name: &str, error: &SpawnError) -> Trouble {
    Trouble::new(Code::ProgramMissing, format!("{name}: {error}"))
}

fn channel(error: ipc_proto::ChannelError) -> Trouble {
    Trouble::new(Code::ProcessDied, format!("{error}; see the limits on open files"))
}

fn channel_errno(errno: rustix::io::Errno) -> Trouble {
    Trouble::new(Code::ProcessDied, format!("no pipe could be made ({errno}); see the limits on open files"))
}
