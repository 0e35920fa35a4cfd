//! The checks of PRB-1, by a child that was started as the program would be: what it cannot do, the program cannot.
//!
//! Each is really tried. Where two walls stand one behind the other, as mounts and Landlock do, the outer is looked at by
//! itself: the inner would hide that it is missing.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use confine::sys::spawn::{Command, Namespaces, Program};
use confine::sys::{inherited, key_store};
use ipc_proto::descriptors::{CHANNEL, INIT_PLAN};
use ipc_proto::init::{FromInit, InitStep, NamespaceId, NamespaceKind, ProbeFailure, ProbePlan, ToInit};
use ipc_proto::launcher::INSIDE_USER;
use ipc_proto::{Channel, Received, bulk};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatVfsMountFlags, stat, statat, statfs, statvfs};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use rustix::process::{getgid, getpid, getuid};

use super::{Launcher, PROBE, Stop, at};

/// How long an answer from outside is waited for. Inside, a way that is closed says so at once.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
/// TMPFS_MAGIC of linux/magic.h: bwrap's root is in memory, made for this sandbox.
const TMPFS: u64 = 0x0102_1994;
/// Where nothing can be written, not even by who gets past Landlock.
const READ_ONLY: &[&str] = &["/", "/usr", "/dev", "/proc/sys"];
/// Where nothing can be made.
const CLOSED: &[&str] = &["/", "/usr", "/etc", "/dev", "/proc", "/home", "/sys/devices/system/cpu"];

/// Runs the checks in a child, and tells what did not hold.
pub(super) fn run(plan: &ProbePlan, launcher: &Launcher) -> Result<(), Stop> {
    let step = at(InitStep::Spawn);
    let (near, far) = Channel::<ToInit, FromInit>::pair()?;
    let plan = bulk::seal(plan).map_err(|_| step(Errno::NOMEM))?;
    let mut command = Command::new(Program::Path(c"/proc/self/exe".to_owned()));
    command.argv = vec![PROBE.to_owned()];
    command.descriptors = vec![(far.as_fd(), CHANNEL), (plan.as_fd(), INIT_PLAN)];
    command.spawn().map_err(|error| step(error.exec().unwrap_or(Errno::AGAIN)))?;
    drop(far);
    match near.receive()? {
        Received::Message(FromInit::Probed(failures), _) => {
            Ok(launcher.send(&FromInit::Probed(failures), &[])?)
        }
        // A check that ended its process, or one that never answered, did not hold. Which, nobody can say.
        Received::Message(..) | Received::Closed | Received::Empty => Err(step(Errno::CHILD)),
    }
}

/// The child.
///
/// # Errors
/// When it was not started as such.
pub fn child() -> Result<(), Stop> {
    let init: Channel<FromInit, ToInit> =
        Channel::from_fd(inherited::take(CHANNEL).map_err(|_| Stop::Alone)?)?;
    let memory = inherited::take(INIT_PLAN).map_err(|_| Stop::Alone)?;
    let plan: ProbePlan = bulk::open(memory.as_fd()).map_err(|_| at(InitStep::Plan)(Errno::INVAL))?;
    Ok(init.send(&FromInit::Probed(checks(&plan)), &[])?)
}

fn checks(plan: &ProbePlan) -> Vec<ProbeFailure> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut failures = Vec::new();
    let mut check = |holds: bool, failure: ProbeFailure| {
        if !holds && !failures.contains(&failure) {
            failures.push(failure);
        }
    };
    check(loopback_works(), ProbeFailure::Loopback);
    check(plan.tcp.iter().all(|address| is_closed(*address)) && has_no_route(), ProbeFailure::HostPort);
    check(plan.abstract_sockets.iter().all(|name| is_absent(name)), ProbeFailure::AbstractSocket);
    check(key_store_refuses(), ProbeFailure::KeyStore);
    check(user_namespace_is_refused(), ProbeFailure::NewUserNamespace);
    for kind in shared(&plan.outside) {
        check(false, ProbeFailure::SharedNamespace(kind));
    }
    check(has_no_capability(&status), ProbeFailure::Capabilities);
    check(field(&status, "NoNewPrivs") == Some("1"), ProbeFailure::NewPrivileges);
    // SECCOMP_MODE_FILTER.
    check(field(&status, "Seccomp") == Some("2"), ProbeFailure::NoFilter);
    check(is_nobody_of_the_host(), ProbeFailure::User);
    check(is_read_only(), ProbeFailure::Writable);
    failures
}

fn loopback_works() -> bool {
    let ping = || -> std::io::Result<bool> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        let (mut far, _) = listener.accept()?;
        far.set_read_timeout(Some(Duration::from_millis(300)))?;
        near.write_all(b"?")?;
        let mut byte = [0u8];
        far.read_exact(&mut byte)?;
        Ok(byte == *b"?")
    };
    ping().unwrap_or(false)
}

/// Nothing answers there, and no packet even left: refused only by our own loopback, otherwise unreachable.
fn is_closed(address: SocketAddr) -> bool {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(socket) = socket_with(family, SocketType::STREAM, flags, None) else { return true };
    let answer = match connect(&socket, &address) {
        Err(Errno::INPROGRESS) => {
            let mut fds = [PollFd::new(&socket, PollFlags::OUT)];
            match poll(&mut fds, Some(&PATIENCE)) {
                Ok(1..) => sockopt::socket_error(&socket).unwrap_or_else(Err),
                // Nobody said no: there is a way.
                Ok(_) | Err(_) => return false,
            }
        }
        other => other,
    };
    match answer {
        Err(Errno::CONNREFUSED) => is_loopback(address.ip()),
        Err(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ADDRNOTAVAIL | Errno::ACCESS | Errno::PERM) => {
            true
        }
        Ok(()) | Err(_) => false,
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// No way to anywhere: connecting a datagram socket sends nothing and looks for a route (the address is TEST-NET-1 of
/// RFC 5737).
fn has_no_route() -> bool {
    let Ok(socket) = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None) else {
        return true;
    };
    connect(&socket, &SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9))).is_err()
}

/// No such abstract socket in our network namespace, or Landlock keeps us from it. Any other answer is one.
fn is_absent(name: &[u8]) -> bool {
    let Ok(address) = SocketAddrUnix::new_abstract_name(name) else { return false };
    [SocketType::STREAM, SocketType::SEQPACKET].into_iter().all(|kind| {
        let Ok(socket) =
            socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
        else {
            return true;
        };
        matches!(connect(&socket, &address), Err(Errno::CONNREFUSED | Errno::PERM | Errno::ACCESS))
    })
}

/// Each call of it is refused: EPERM, as the filter says; a kernel without a key store says ENOSYS.
fn key_store_refuses() -> bool {
    key_store::attempts().iter().all(|answer| matches!(answer, Err(Errno::PERM | Errno::NOSYS)))
}

/// By unshare and by clone.
fn user_namespace_is_refused() -> bool {
    let mut command = Command::new(Program::Path(c"/proc/self/exe".to_owned()));
    command.argv = vec![CString::default()];
    command.namespaces = Namespaces { user: true, ..Namespaces::default() };
    let cloned = command.spawn();
    #[expect(deprecated, reason = "unsafe only for the flag FILES, which is not given")]
    let unshared = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWUSER);
    cloned.is_err() && unshared.is_err()
}

fn shared(outside: &[NamespaceId]) -> BTreeSet<NamespaceKind> {
    let own = |kind: NamespaceKind| stat(format!("/proc/self/ns/{}", kind.as_str()));
    let is_shared = |known: &&NamespaceId| {
        // One that cannot be looked at counts as shared.
        own(known.kind).map_or(true, |own| (own.st_dev, own.st_ino) == (known.device, known.inode))
    };
    outside.iter().filter(is_shared).map(|known| known.kind).collect()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

fn has_no_capability(status: &str) -> bool {
    ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].into_iter().all(|set| {
        field(status, set).is_some_and(|bits| !bits.is_empty() && bits.bytes().all(|bit| bit == b'0'))
    })
}

/// The user inside is the one that it should be, and no number inside means the host's user 0: the files of /proc/sys
/// belong to it, and would show a number that is mapped. (uid_map tells nothing: with a nested namespace it names the
/// outer one's numbers.)
fn is_nobody_of_the_host() -> bool {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let owner = stat("/proc/sys/kernel").map(|found| found.st_uid);
    user == INSIDE_USER && group == INSIDE_USER && owner.is_ok_and(|owner| owner != 0 && owner != user)
}

/// The root is bwrap's own and read-only, like the rest; and nothing can be made there either.
fn is_read_only() -> bool {
    let is_ours = statfs("/").is_ok_and(|root| u64::try_from(root.f_type) == Ok(TMPFS));
    let mounted = READ_ONLY
        .iter()
        .all(|path| statvfs(*path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY)));
    let refused = CLOSED.iter().all(|path| {
        let name = format!("{path}/.anet-probe");
        let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&name);
        if made.is_ok() {
            let _ = std::fs::remove_file(&name);
        }
        made.is_err()
    });
    let written = std::fs::OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern");
    let hidden =
        ["/etc/shadow", "/root", "/boot"].iter().all(|path| statat(CWD, *path, AtFlags::empty()).is_err());
    let own_processes = std::fs::read_link("/proc/self")
        .is_ok_and(|link| link.to_str() == Some(&getpid().as_raw_nonzero().to_string()));
    is_ours && mounted && refused && written.is_err() && hidden && own_processes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRB-1, PRB-3: outside a sandbox the checks find what a sandbox would have closed.
    #[test]
    fn the_checks_fail_outside() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let outside: Vec<NamespaceId> = NamespaceKind::ALL
            .into_iter()
            .map(|kind| {
                let found = stat(format!("/proc/self/ns/{}", kind.as_str())).unwrap();
                NamespaceId { kind, device: found.st_dev, inode: found.st_ino }
            })
            .collect();
        assert!(!is_closed(listener.local_addr().unwrap()));
        assert_eq!(shared(&outside).len(), NamespaceKind::ALL.len());
        assert!(!is_read_only() && !is_nobody_of_the_host());
        assert!(loopback_works());
        let name = format!("anet-test-{}", getpid().as_raw_nonzero());
        assert!(is_absent(name.as_bytes()));
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        assert!(!is_absent(name.as_bytes()));
    }

    #[test]
    fn status_is_read() {
        let status = "Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\nCapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t0001\nCapAmb:\t0000\n";
        assert_eq!(field(status, "Seccomp"), Some("2"));
        assert!(!has_no_capability(status));
        assert!(has_no_capability(&status.replace("0001", "0000")));
        assert!(!has_no_capability(""));
    }
}
