//! anet-launcher: starts programs in a sandbox, and ends them. It knows no key, reads no file of ours, and has no network.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use confine::sys::inherited;
use confine::sys::signal::{Signal, Signals};
use confine::{Paths, Role};
use ipc_proto::Channel;
use ipc_proto::descriptors::{CHANNEL, LOG};
use ipc_proto::init::{NamespaceId, NamespaceKind};
use ipc_proto::launcher::FromLauncher;
use launcher::serve::Launcher;
use launcher::{Fatal, Log, Surroundings};
use rustix::fs::{Mode, OFlags, open, stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{getpid, set_child_subreaper};

/// EX_SOFTWARE of sysexits.h: something that must not be.
const SOFTWARE: u8 = 70;
/// The first Landlock version with scopes.
const SCOPES: u8 = 6;

fn main() -> ExitCode {
    let log = Log::new(inherited::take(LOG).ok());
    match live(&log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fatal) => {
            log.line(&fatal.to_string());
            ExitCode::from(SOFTWARE)
        }
    }
}

/// Enter, confine, serve, leave. When this ends, the kernel ends every run: they are in our process namespace, or die with
/// their parent.
fn live(log: &Log) -> Result<(), Fatal> {
    let (supervisor, children, surroundings, hello) = enter()?;
    if !proc_is_ours() {
        // bwrap opens /proc/N/ns of its child, by the number that it knows; where that number is free in the other namespace
        // (a gap among the kernel's threads, or a host without any) it ends with `open /proc/N/ns/ns failed`.
        return Err(Fatal::ForeignProc);
    }
    supervisor.send(&hello, &[])?;
    Launcher::new(supervisor, children, surroundings, log).serve()
}

type Entered = (launcher::run::Supervisor, Signals, Surroundings, FromLauncher);

fn enter() -> Result<Entered, Fatal> {
    if rustix::process::getuid().is_root() {
        return Err(Fatal::Root);
    }
    let supervisor = Channel::from_fd(inherited::take(CHANNEL).map_err(Fatal::system("the channel"))?)?;
    // While we may still look at ourselves.
    let namespaces = own_namespaces();
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(Fatal::system("/dev/null"))?;
    let own_pid_namespace = getpid().as_raw_nonzero().get() == 1;
    let own_network = has_no_network();
    let apart = own_pid_namespace && own_network;
    launcher::room::raise().map_err(Fatal::system("raising the limit on open descriptors"))?;
    let report = confine::enter(Role::Launcher, &Paths { apart, ..Paths::default() })?;
    let file_rules = apart || report.landlock_abi < SCOPES;
    // Where we are not process 1, what bwrap leaves behind comes to us all the same.
    set_child_subreaper(Some(getpid())).map_err(Fatal::system("becoming the reaper"))?;
    let children = Signals::block(&[Signal::SIGCHLD])
        .map_err(|errno| Fatal::System { what: "signals", errno: Errno::from_raw_os_error(errno as i32) })?;
    let hello = FromLauncher::Hello {
        namespaces: namespaces.clone(),
        own_pid_namespace,
        own_network,
        landlock: report.landlock_abi,
    };
    Ok((supervisor, children, Surroundings { namespaces, null, file_rules }, hello))
}

fn own_namespaces() -> Vec<NamespaceId> {
    let id = |kind: NamespaceKind| {
        let found = stat(format!("/proc/self/ns/{}", kind.as_str())).ok()?;
        Some(NamespaceId { kind, device: found.st_dev, inode: found.st_ino })
    };
    NamespaceKind::ALL.into_iter().filter_map(id).collect()
}

/// Processes have the same numbers below /proc and for us.
fn proc_is_ours() -> bool {
    std::fs::read_link("/proc/self")
        .is_ok_and(|link| link.to_str() == Some(&getpid().as_raw_nonzero().to_string()))
}

/// Not even a loopback that is up: the kernel knows no way anywhere.
fn has_no_network() -> bool {
    let Ok(probe) = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None) else {
        return true;
    };
    // TEST-NET-1 of RFC 5737; nothing is sent, connecting a datagram socket only looks for a route.
    let places = [std::net::Ipv4Addr::LOCALHOST, std::net::Ipv4Addr::new(192, 0, 2, 1)];
    places.into_iter().all(|place| {
        connect(&probe, &std::net::SocketAddr::from((place, 9)))
            .is_err_and(|errno| errno == Errno::NETUNREACH)
    })
}
