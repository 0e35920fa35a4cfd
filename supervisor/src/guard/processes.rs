//! Starting the processes of one run, and wiring their channels: each gets its own ends and nothing else.

use std::os::fd::{AsFd, OwnedFd};

use confine::sys::signal::{Signal, Signals};
use confine::sys::spawn::{Child, Starting};
use ipc_proto::launcher::{FromLauncher, ToLauncher};
use ipc_proto::limits::LimitName;
use ipc_proto::proxy::{FromProxy, ToProxy};
use ipc_proto::terminal::{FromTerminal, ToTerminal};
use ipc_proto::{Channel, Code, descriptors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::control_group;
use super::ground::{BrokerEnds, Launched, channel, channel_errno, confirm, not_started, seal};
use super::plan::Prepared;
use super::record::RecordFile;
use crate::error::Trouble;
use crate::run::PASSED_ON;

/// How long the supervisor may take to give its first orders.
const ORDERS: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// What runs.
#[derive(Debug)]
pub(super) struct Processes {
    pub(super) supervisor: Child,
    /// Launcher, proxy and, if there is one, terminal, by name.
    pub(super) others: Vec<(&'static str, Child)>,
    pub(super) words: OwnedFd,
    pub(super) signals: Signals,
    /// The launcher is process 1 of a namespace of its own, whose end is the end of everything in it.
    pub(super) apart: bool,
    /// Children that this process had before.
    pub(super) strangers: Vec<Pid>,
    /// Kept open: removed by systemd when its last process is gone.
    pub(super) _group: Option<OwnedFd>,
}

/// Starts all of them, each beside the others: what counts is when the last is ready.
pub(super) fn start(prepared: &mut Prepared) -> Result<Processes, Trouble> {
    // One more is heard and not passed on: putting the terminal back never stops the guard.
    let heard: Vec<Signal> = PASSED_ON.into_iter().chain([Signal::SIGTTOU]).collect();
    let signals = Signals::block(&heard)
        .map_err(|errno| Trouble::new(Code::ProcessDied, format!("signals cannot be blocked ({errno})")))?;
    let strangers = super::watch::children();
    let (to_launcher, launcher_end) = Channel::<ToLauncher, FromLauncher>::pair().map_err(channel)?;
    let (to_proxy, proxy_end) = Channel::<ToProxy, FromProxy>::pair().map_err(channel)?;
    let (words, word_end) = pipe_with(PipeFlags::CLOEXEC).map_err(channel_errno)?;
    let launcher_end = launcher_end.into_fd();
    let to_terminal = match prepared.terminal {
        Some(_) => Some(Channel::<ToTerminal, FromTerminal>::pair().map_err(channel)?),
        None => None,
    };
    let (to_terminal, terminal_end) =
        to_terminal.map_or((None, None), |(near, far)| (Some(near.into_fd()), Some(far.into_fd())));
    let broker = prepared.model.is_some().then(BrokerEnds::make).transpose()?;
    let (to_broker, broker) = broker.unzip();
    let mut wires = Wires {
        launcher: to_launcher.into_fd(),
        proxy: to_proxy.into_fd(),
        broker: to_broker,
        words: word_end,
        terminal: to_terminal,
        group: None,
    };
    let (supervisor, launcher, mut apart);
    if prepared.wants_control_group {
        // systemd moves a process that runs, and the job says whether it did.
        let (starting, is_apart) = prepared.ground.start_launcher(&launcher_end, true)?;
        apart = is_apart;
        let running = prepared.ground.confirm_launcher(starting, &launcher_end, &mut apart)?;
        wires.group = find_control_group(prepared, &running);
        launcher = Launched::Running(running);
        supervisor = start_supervisor(prepared, &wires)?;
    } else {
        // The supervisor comes to its first word while the kernel makes the launcher's namespaces.
        supervisor = start_supervisor(prepared, &wires)?;
        (launcher, apart) = prepared.ground.start_launcher(&launcher_end, true)?;
    }
    let terminal = terminal_end.map(|end| start_terminal(prepared, &end)).transpose()?;

    let launcher = prepared.ground.confirm_launcher(launcher, &launcher_end, &mut apart)?;
    let supervisor = confirm("anet-supervisor", supervisor)?;
    wait_for_orders(&words, &supervisor, &launcher);
    let upstream = prepared.model.as_ref().map(|model| model.job.upstream.clone());
    let proxy = prepared.ground.start_proxy(&proxy_end.into_fd(), upstream, broker.as_ref())?;
    let broker = match (broker, &mut prepared.model) {
        (Some(ends), Some(model)) => {
            Some(prepared.ground.start_broker(&ends, &model.broker, model.key.take(), None)?)
        }
        (Some(_) | None, Some(_) | None) => None,
    };
    let mut others = vec![("anet-launcher", launcher), ("anet-proxy", confirm("anet-proxy", proxy)?)];
    if let Some(broker) = broker {
        others.push(("anet-broker", confirm("anet-broker", broker)?));
    }
    if let Some(terminal) = terminal {
        others.push(("anet-terminal", confirm("anet-terminal", terminal)?));
    }
    Ok(Processes { supervisor, others, words, signals, apart, strangers, _group: wires.group })
}

/// Until the supervisor has given the launcher its orders, which is the first thing that it says; or until one of them is
/// gone, or takes too long: then the rest is started all the same, and what is wrong shows.
fn wait_for_orders(words: &OwnedFd, supervisor: &Child, launcher: &Child) {
    let mut fds = [
        PollFd::new(words, PollFlags::IN),
        PollFd::new(&supervisor.pidfd, PollFlags::IN),
        PollFd::new(&launcher.pidfd, PollFlags::IN),
    ];
    let _ = poll(&mut fds, Some(&ORDERS));
}

/// The supervisor's ends.
struct Wires {
    launcher: OwnedFd,
    proxy: OwnedFd,
    broker: Option<OwnedFd>,
    words: OwnedFd,
    terminal: Option<OwnedFd>,
    group: Option<OwnedFd>,
}

fn start_supervisor(prepared: &Prepared, wires: &Wires) -> Result<Starting, Trouble> {
    let job = seal(&prepared.job)?;
    let [input, output, errors] = &prepared.stdio;
    let [to_input, to_output, to_errors] = descriptors::STDIO;
    let mut given = vec![
        (wires.launcher.as_fd(), descriptors::CHANNEL),
        (prepared.log.as_fd(), descriptors::LOG),
        (job.as_fd(), descriptors::JOB),
        (wires.proxy.as_fd(), descriptors::PROXY),
        (prepared.chain.as_fd(), descriptors::CHAIN),
        (wires.words.as_fd(), descriptors::GUARD),
        (input.as_fd(), to_input),
        (output.as_fd(), to_output),
        (errors.as_fd(), to_errors),
    ];
    let cache = prepared.probe_cache.as_ref().filter(|_| prepared.job.probe.is_some());
    for (fd, number) in [
        (prepared.record.as_ref().map(RecordFile::as_fd), descriptors::RECORD),
        (cache.map(AsFd::as_fd), descriptors::PROBE_CACHE),
        (wires.terminal.as_ref().map(AsFd::as_fd), descriptors::TERMINAL),
        (wires.group.as_ref().map(AsFd::as_fd), descriptors::CONTROL_GROUP),
        (wires.broker.as_ref().map(AsFd::as_fd), descriptors::BROKER),
        (prepared.answer.as_ref().map(|(reader, _)| reader.as_fd()), descriptors::ANSWER),
        (prepared.answer.as_ref().map(|(_, output)| output.as_fd()), descriptors::OUTPUT),
    ] {
        given.extend(fd.map(|fd| (fd, number)));
    }
    let ground = &prepared.ground;
    ground
        .command(&ground.programs.supervisor, c"anet-supervisor", given, ground.identities.supervisor)
        .start()
        .map_err(|error| not_started("anet-supervisor", &error))
}

/// The terminal process stays in our session and process group: the terminal is the group's to use.
fn start_terminal(prepared: &Prepared, channel: &OwnedFd) -> Result<Starting, Trouble> {
    let standard = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let mut given =
        vec![(channel.as_fd(), descriptors::CHANNEL), (prepared.ground.chatter.as_fd(), descriptors::LOG)];
    given.extend(standard.into_iter().zip(descriptors::OPERATOR));
    if let Some(joined) = &prepared.terminal {
        let pipes = joined.pipes.iter().zip(descriptors::RUN_PIPES);
        given.extend(pipes.filter_map(|(pipe, number)| Some((pipe.as_ref()?.as_fd(), number))));
    }
    let ground = &prepared.ground;
    let mut command = ground.command(&ground.programs.terminal, c"anet-terminal", given, None);
    command.new_session = false;
    command.start().map_err(|error| not_started("anet-terminal", &error))
}

/// LIM-2: where there is none, memory and tasks are not among the limits that hold.
fn find_control_group(prepared: &mut Prepared, launcher: &Child) -> Option<OwnedFd> {
    if !prepared.wants_control_group {
        return None;
    }
    let group = control_group::make(prepared.job.run, launcher.pid, prepared.ground.identities.run);
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
