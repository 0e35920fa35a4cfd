//! anet-supervisor: decides. It holds no key, opens no network, starts nothing.
//!
//! Without an argument it serves one run in the foreground; as `anet-supervisor node` it serves a node.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use confine::manifest::Role;
use confine::sys::inherited::take;
use confine::sys::signal::{Signal, Signals};
use confine::{Paths, enter};
use ipc_proto::{Channel, Code, bulk, descriptors, job::Job};
use rustix::fs::{Mode, OFlags, open};
use supervisor::error::{STATUS_FAILED, Trouble};
use supervisor::node::{self, Node, NodeJob};
use supervisor::run::{Ends, Foreground, Lines, PASSED_ON};

/// The argument of a node's supervisor.
const NODE: &str = "node";
/// Where time zones are described, and which one is the system's.
const ZONES: [&str; 2] = ["/usr/share/zoneinfo", "/etc/localtime"];

fn main() -> ExitCode {
    let Ok(log) = take(descriptors::LOG).map(File::from) else { return ExitCode::from(STATUS_FAILED) };
    let mut arguments = std::env::args().skip(1);
    let status = match (arguments.next().as_deref(), arguments.next()) {
        (None, None) => start(log.try_clone()).map(Foreground::run),
        (Some(NODE), None) => start_node(log.try_clone()).map(Node::run),
        (Some(_), _) | (None, Some(_)) => Err(broken("it knows no such argument")),
    };
    match status {
        Ok(status) => ExitCode::from(status),
        Err(trouble) => {
            // One line for the operator; where it cannot be written there is nobody to tell.
            let _ = writeln!(&log, "anet: {trouble}");
            ExitCode::from(STATUS_FAILED)
        }
    }
}

fn broken(what: impl std::fmt::Display) -> Trouble {
    Trouble::new(
        Code::ProcessDied,
        format!("anet-supervisor was not started by anet: {what}; run `anet` instead"),
    )
}

fn fd(number: i32) -> Result<OwnedFd, Trouble> {
    take(number).map_err(|errno| broken(format!("descriptor {number}: {errno}")))
}

fn optional(wanted: bool, number: i32) -> Result<Option<OwnedFd>, Trouble> {
    if wanted { fd(number).map(Some) } else { Ok(None) }
}

fn job<T: serde::de::DeserializeOwned>() -> Result<T, Trouble> {
    bulk::open(fd(descriptors::JOB)?.as_fd()).map_err(broken)
}

fn channel<Out: ipc_proto::Message, In: ipc_proto::Message>(
    fd: OwnedFd,
) -> Result<Channel<Out, In>, Trouble> {
    Channel::from_fd(fd).map_err(broken)
}

fn lines(broker: bool) -> Result<Lines, Trouble> {
    Ok(Lines {
        launcher: channel(fd(descriptors::CHANNEL)?)?,
        proxy: channel(fd(descriptors::PROXY)?)?,
        broker: optional(broker, descriptors::BROKER)?.map(channel).transpose()?,
    })
}

/// What every thread of it holds back, to be read in turn.
fn blocked(signals: &[Signal]) -> Result<Signals, Trouble> {
    Signals::block(signals).map_err(broken)
}

fn confine(role: Role, paths: &Paths<'_>) -> Result<(), Trouble> {
    enter(role, paths).map(drop).map_err(|error| {
        Trouble::new(Code::NotConfined, format!("anet-supervisor could not be confined: {error}"))
    })
}

/// Takes what the guard gave, and nothing else ever again.
fn start(log: std::io::Result<File>) -> Result<Foreground, Trouble> {
    let job: Job = job()?;
    let [input, output, errors] = descriptors::STDIO;
    let ends = Ends {
        lines: lines(job.model.is_some())?,
        answer: match job.answer {
            Some(_) => Some((File::from(fd(descriptors::ANSWER)?), File::from(fd(descriptors::OUTPUT)?))),
            None => None,
        },
        terminal: optional(job.terminal.is_some(), descriptors::TERMINAL)?.map(channel).transpose()?,
        chain: File::from(fd(descriptors::CHAIN)?),
        guard: File::from(fd(descriptors::GUARD)?),
        stdio: [fd(input)?, fd(output)?, fd(errors)?],
        record: optional(job.record, descriptors::RECORD)?.map(File::from),
        probe_cache: optional(job.probe.is_some(), descriptors::PROBE_CACHE)?.map(File::from),
        control_group: optional(job.control_group, descriptors::CONTROL_GROUP)?,
        log: log.map_err(broken)?,
        null: null()?,
    };
    let signals = blocked(&PASSED_ON)?;
    confine(Role::Supervisor, &Paths::default())?;
    Foreground::new(job, ends, signals).map_err(|fatal| Trouble::new(fatal.code(), fatal.to_string()))
}

/// The same for a node, which opens files of its own: below two directories, and descriptions of time zones.
fn start_node(log: std::io::Result<File>) -> Result<Node, Trouble> {
    let job: NodeJob = job()?;
    let ends = node::Ends {
        lines: lines(true)?,
        outside: optional(job.outside.direct || job.outside.notify, descriptors::OUTSIDE)?
            .map(channel)
            .transpose()?,
        control: fd(descriptors::CONTROL)?,
        guard: File::from(fd(descriptors::GUARD)?),
        processes: File::from(fd(descriptors::PROCESSES)?),
        probe_cache: File::from(fd(descriptors::PROBE_CACHE)?),
        public_key: File::from(fd(descriptors::PUBLIC_KEY)?),
        log: log.map_err(broken)?,
        null: null()?,
    };
    let signals = blocked(&node::HEARD)?;
    let place = |path: &std::path::Path| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let mut own = Vec::new();
    for directory in job.kept() {
        let opened = place(directory).map_err(|errno| {
            let what = format!("{} cannot be opened ({errno}); see its owner", directory.display());
            Trouble::new(Code::StateUnusable, what)
        })?;
        own.push(opened);
    }
    // A system without descriptions of time zones has days of UTC.
    let zones: Vec<OwnedFd> = ZONES.iter().filter_map(|path| place(path.as_ref()).ok()).collect();
    let writable: Vec<BorrowedFd<'_>> = own.iter().map(AsFd::as_fd).collect();
    let readable: Vec<BorrowedFd<'_>> = zones.iter().map(AsFd::as_fd).collect();
    confine(Role::Node, &Paths { writable: &writable, readable: &readable, ..Paths::default() })?;
    Ok(Node::new(job, ends, signals))
}

/// Standard input is /dev/null in this process.
fn null() -> Result<OwnedFd, Trouble> {
    rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(broken)
}
