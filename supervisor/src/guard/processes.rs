//! Starting the processes of one run, and wiring their channels: each gets its own ends and nothing else.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use confine::sys::signal::{Signal, Signals};
use confine::sys::spawn::{Child, Command, Identity, Namespaces, Program, SpawnError, Starting};
use ipc_proto::broker::{FromBroker, ToBroker};
use ipc_proto::dial::{FromDialer, ToDialer};
use ipc_proto::launcher::{FromLauncher, ToLauncher};
use ipc_proto::limits::LimitName;
use ipc_proto::proxy::{FromProxy, ProxyPlan, ToProxy};
use ipc_proto::terminal::{FromTerminal, ToTerminal};
use ipc_proto::{Channel, Code, bulk, descriptors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::control_group;
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
        let (starting, is_apart) = start_launcher(prepared, &launcher_end, true)?;
        apart = is_apart;
        let running = confirm_launcher(prepared, starting, &launcher_end, &mut apart)?;
        wires.group = find_control_group(prepared, &running);
        launcher = Launched::Running(running);
        supervisor = start_supervisor(prepared, &wires)?;
    } else {
        // The supervisor comes to its first word while the kernel makes the launcher's namespaces.
        supervisor = start_supervisor(prepared, &wires)?;
        (launcher, apart) = start_launcher(prepared, &launcher_end, true)?;
    }
    let terminal = terminal_end.map(|end| start_terminal(prepared, &end)).transpose()?;

    let launcher = confirm_launcher(prepared, launcher, &launcher_end, &mut apart)?;
    let supervisor = confirm("anet-supervisor", supervisor)?;
    wait_for_orders(&words, &supervisor, &launcher);
    let proxy = start_proxy(prepared, &proxy_end.into_fd(), broker.as_ref())?;
    let broker = broker.map(|ends| start_broker(prepared, &ends)).transpose()?;
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

/// The broker's own ends, and the proxy's of the channel between the two.
struct BrokerEnds {
    channel: OwnedFd,
    dialer: OwnedFd,
    proxy: OwnedFd,
}

impl BrokerEnds {
    /// The supervisor's end first.
    fn make() -> Result<(OwnedFd, BrokerEnds), Trouble> {
        let (near, far) = Channel::<ToBroker, FromBroker>::pair().map_err(channel)?;
        let (dialer, proxy) = Channel::<ToDialer, FromDialer>::pair().map_err(channel)?;
        let ends = BrokerEnds { channel: far.into_fd(), dialer: dialer.into_fd(), proxy: proxy.into_fd() };
        Ok((near.into_fd(), ends))
    }
}

/// The launcher, before and after it is known to run.
enum Launched {
    Starting(Starting),
    Running(Child),
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
    let identity = prepared.identities.supervisor;
    command(prepared, &prepared.programs.supervisor, c"anet-supervisor", given, identity)
        .start()
        .map_err(|error| not_started("anet-supervisor", &error))
}

/// The launcher: process 1 of namespaces of its own, where this host lets us make them.
fn start_launcher(prepared: &Prepared, channel: &OwnedFd, apart: bool) -> Result<(Launched, bool), Trouble> {
    let given = vec![(channel.as_fd(), descriptors::CHANNEL), (prepared.chatter.as_fd(), descriptors::LOG)];
    let identity = prepared.identities.launcher;
    let mut command = command(prepared, &prepared.programs.launcher, c"anet-launcher", given, identity);
    if apart {
        // Namespaces without a user namespace are root's to make.
        command.namespaces =
            Namespaces { user: !rustix::process::geteuid().is_root(), pid: true, proc: true, net: true };
    }
    if !apart {
        // Whatever loses its parent becomes our child then, so that none is out of reach.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
    match command.start() {
        Err(SpawnError::NamespacesRefused { .. }) if apart => start_launcher(prepared, channel, false),
        Ok(starting) => Ok((Launched::Starting(starting), apart)),
        Err(error) => Err(not_started("anet-launcher", &error)),
    }
}

fn confirm_launcher(
    prepared: &Prepared,
    launcher: Launched,
    channel: &OwnedFd,
    apart: &mut bool,
) -> Result<Child, Trouble> {
    let starting = match launcher {
        Launched::Running(child) => return Ok(child),
        Launched::Starting(starting) => starting,
    };
    match starting.confirm() {
        Err(SpawnError::NamespacesRefused { .. }) => {
            let (again, _) = start_launcher(prepared, channel, false)?;
            *apart = false;
            match again {
                Launched::Running(child) => Ok(child),
                Launched::Starting(starting) => confirm("anet-launcher", starting),
            }
        }
        other => other.map_err(|error| not_started("anet-launcher", &error)),
    }
}

fn start_proxy(
    prepared: &Prepared,
    channel: &OwnedFd,
    broker: Option<&BrokerEnds>,
) -> Result<Starting, Trouble> {
    let upstream = prepared.model.as_ref().map(|model| model.job.upstream.clone());
    let plan = seal(&ProxyPlan { upstream })?;
    let mut given = vec![
        (channel.as_fd(), descriptors::CHANNEL),
        (prepared.chatter.as_fd(), descriptors::LOG),
        (plan.as_fd(), descriptors::PLAN),
    ];
    given.extend(broker.map(|ends| (ends.proxy.as_fd(), descriptors::DIAL)));
    command(prepared, &prepared.programs.proxy, c"anet-proxy", given, prepared.identities.proxy)
        .start()
        .map_err(|error| not_started("anet-proxy", &error))
}

/// The broker, with the key, of which the guard keeps nothing.
fn start_broker(prepared: &mut Prepared, ends: &BrokerEnds) -> Result<Starting, Trouble> {
    let Some(model) = &mut prepared.model else {
        return Err(Trouble::new(
            Code::ProcessDied,
            "a broker without a service; report this as a defect of anet",
        ));
    };
    let key = model.key.take();
    let plan = seal(&model.broker)?;
    let mut given = vec![
        (ends.channel.as_fd(), descriptors::CHANNEL),
        (prepared.chatter.as_fd(), descriptors::LOG),
        (plan.as_fd(), descriptors::PLAN),
        (ends.dialer.as_fd(), descriptors::DIAL),
    ];
    given.extend(key.as_ref().map(|key| (key.as_fd(), descriptors::KEY)));
    command(prepared, &prepared.programs.broker, c"anet-broker", given, prepared.identities.broker)
        .start()
        .map_err(|error| not_started("anet-broker", &error))
}

fn seal<T: serde::Serialize>(plan: &T) -> Result<OwnedFd, Trouble> {
    bulk::seal(plan).map_err(|error| Trouble::new(Code::BadOption, error.to_string()))
}

/// The terminal process stays in our session and process group: the terminal is the group's to use.
fn start_terminal(prepared: &Prepared, channel: &OwnedFd) -> Result<Starting, Trouble> {
    let standard = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let mut given =
        vec![(channel.as_fd(), descriptors::CHANNEL), (prepared.chatter.as_fd(), descriptors::LOG)];
    given.extend(standard.into_iter().zip(descriptors::OPERATOR));
    if let Some(joined) = &prepared.terminal {
        let pipes = joined.pipes.iter().zip(descriptors::RUN_PIPES);
        given.extend(pipes.filter_map(|(pipe, number)| Some((pipe.as_ref()?.as_fd(), number))));
    }
    let mut command = command(prepared, &prepared.programs.terminal, c"anet-terminal", given, None);
    command.new_session = false;
    command.start().map_err(|error| not_started("anet-terminal", &error))
}

fn confirm(name: &str, starting: Starting) -> Result<Child, Trouble> {
    starting.confirm().map_err(|error| not_started(name, &error))
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
