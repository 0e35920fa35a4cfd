//! Starting the processes of a node and wiring their channels: each gets its own ends and nothing else.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use confine::sys::signal::{Signal, Signals};
use confine::sys::spawn::{Child, Starting};
use ipc_proto::control::Process;
use ipc_proto::launcher::{FromLauncher, ToLauncher};
use ipc_proto::outside::{FromOutside, ToOutside};
use ipc_proto::proxy::{FromProxy, ToProxy};
use ipc_proto::{Channel, Code, descriptors};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::super::ground::{BrokerEnds, channel, channel_errno, confirm, not_started, seal};
use super::super::probe::Listeners;
use super::super::watch::children;
use super::prepare::Prepared;
use super::socket::Name;
use crate::error::Trouble;
use crate::node::job::Mode;

/// What the guard hears.
pub(super) const HEARD: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// What runs.
#[derive(Debug)]
pub(super) struct Processes {
    pub(super) supervisor: Child,
    /// The others, by name.
    pub(super) others: Vec<(&'static str, Child)>,
    /// What the supervisor says.
    pub(super) words: OwnedFd,
    /// The launcher is process 1 of a namespace of its own, whose end is the end of everything in it.
    pub(super) apart: bool,
    /// Children that this process had before.
    pub(super) strangers: Vec<Pid>,
}

/// The supervisor's ends.
struct Wires {
    launcher: OwnedFd,
    proxy: OwnedFd,
    broker: OwnedFd,
    outside: Option<OwnedFd>,
    words: OwnedFd,
    processes: OwnedFd,
}

/// What stays with the guard when all are started.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) socket: Name,
    /// What the probe tries to reach, as often as it is made.
    _listeners: Listeners,
}

/// Starts all of them, each beside the others. The signals that the guard hears are blocked already.
pub(super) fn start(mut prepared: Prepared) -> Result<(Processes, Kept), Trouble> {
    let strangers = children();
    let (to_launcher, launcher_end) = Channel::<ToLauncher, FromLauncher>::pair().map_err(channel)?;
    let (to_proxy, proxy_end) = Channel::<ToProxy, FromProxy>::pair().map_err(channel)?;
    let (to_broker, broker_ends) = BrokerEnds::make()?;
    let outside = match &prepared.outside {
        Some(_) => Some(Channel::<ToOutside, FromOutside>::pair().map_err(channel)?),
        None => None,
    };
    let (to_outside, outside_end) = outside.map(|(near, far)| (near.into_fd(), far.into_fd())).unzip();
    let (words, word_end) = pipe_with(PipeFlags::CLOEXEC).map_err(channel_errno)?;
    let (processes_end, told) = pipe_with(PipeFlags::CLOEXEC).map_err(channel_errno)?;
    let wires = Wires {
        launcher: to_launcher.into_fd(),
        proxy: to_proxy.into_fd(),
        broker: to_broker,
        outside: to_outside,
        words: word_end,
        processes: processes_end,
    };
    let launcher_end = launcher_end.into_fd();

    let supervisor = start_supervisor(&prepared, &wires)?;
    let (launcher, mut apart) = prepared.ground.start_launcher(&launcher_end, true)?;
    let upstream = prepared.model.as_ref().map(|model| model.job.upstream.clone());
    let proxy = prepared.ground.start_proxy(&proxy_end.into_fd(), upstream, Some(&broker_ends))?;
    let plan = prepared.broker();
    let key = prepared.model.as_mut().and_then(|model| model.key.take());
    let broker = prepared.ground.start_broker(&broker_ends, &plan, key, Some(&prepared.signing))?;
    let outside = match (&prepared.outside, outside_end) {
        (Some(outside), Some(end)) => Some(outside.start(&prepared, &end)?),
        (Some(_) | None, Some(_) | None) => None,
    };

    let launcher = prepared.ground.confirm_launcher(launcher, &launcher_end, &mut apart)?;
    let supervisor = confirm("anet-supervisor", supervisor)?;
    let mut others = vec![
        (LAUNCHER, launcher),
        ("anet-proxy", confirm("anet-proxy", proxy)?),
        ("anet-broker", confirm("anet-broker", broker)?),
    ];
    if let Some(outside) = outside {
        others.push(("anet-outside", confirm("anet-outside", outside)?));
    }
    let processes = Processes { supervisor, others, words, apart, strangers };
    tell(&processes, &prepared, told);
    Ok((processes, Kept { socket: prepared.control.name, _listeners: prepared.listeners }))
}

const LAUNCHER: &str = "anet-launcher";

fn start_supervisor(prepared: &Prepared, wires: &Wires) -> Result<Starting, Trouble> {
    let job = seal(&prepared.job)?;
    let mut given = vec![
        (wires.launcher.as_fd(), descriptors::CHANNEL),
        (prepared.log.as_fd(), descriptors::LOG),
        (job.as_fd(), descriptors::JOB),
        (wires.proxy.as_fd(), descriptors::PROXY),
        (prepared.control.listener.as_fd(), descriptors::CONTROL),
        (wires.words.as_fd(), descriptors::GUARD),
        (wires.processes.as_fd(), descriptors::PROCESSES),
        (prepared.public_key.as_fd(), descriptors::PUBLIC_KEY),
        (prepared.probe_cache.as_fd(), descriptors::PROBE_CACHE),
        (wires.broker.as_fd(), descriptors::BROKER),
    ];
    given.extend(wires.outside.as_ref().map(|fd| (fd.as_fd(), descriptors::OUTSIDE)));
    let ground = &prepared.ground;
    let mut command =
        ground.command(&ground.programs.supervisor, c"anet-supervisor", given, ground.identities.supervisor);
    command.argv.push(c"node".into());
    command.start().map_err(|error| not_started("anet-supervisor", &error))
}

/// Tells the supervisor who they are, for `anet status`: the names without what all have in common.
fn tell(processes: &Processes, prepared: &Prepared, told: OwnedFd) {
    let own = rustix::process::geteuid().as_raw();
    let ids = &prepared.ground.identities;
    let uid = |identity: Option<confine::sys::spawn::Identity>| identity.map_or(own, |identity| identity.uid);
    let number = |pid: Pid| pid.as_raw_nonzero().get().cast_unsigned();
    let row = |name: &str, pid: Pid, uid: u32| Process { name: name.to_owned(), pid: number(pid), uid };
    let mut rows = Vec::new();
    rows.push(row("guard", rustix::process::getpid(), own));
    rows.push(row("supervisor", processes.supervisor.pid, uid(ids.supervisor)));
    for (name, child) in &processes.others {
        let identity = match *name {
            LAUNCHER => ids.launcher,
            "anet-proxy" => ids.proxy,
            "anet-broker" => ids.broker,
            _ if prepared.job.mode == Mode::System => ids.supervisor,
            _ => None,
        };
        rows.push(row(name.trim_start_matches("anet-"), child.pid, uid(identity)));
    }
    let mut line = serde_json::to_vec(&rows).unwrap_or_default();
    line.push(b'\n');
    // A supervisor that is gone already is seen as such.
    let _ = File::from(told).write_all(&line);
}

/// Blocks the signals that the guard hears.
pub(super) fn hear() -> Result<Signals, Trouble> {
    Signals::block(&HEARD)
        .map_err(|errno| Trouble::new(Code::ProcessDied, format!("signals cannot be blocked ({errno})")))
}
