//! The launcher's privileges. What it enters, bwrap and the agent inherit.

use rustix::thread::CapabilitySet;

use super::{Files, Kind, Landlock, NO_CORE, Network, Peer, Privileges, Role, descriptor};
use crate::seccomp;

pub(super) static PRIVILEGES: Privileges = Privileges {
    role: Role::Launcher,
    name: "launcher",
    program: "anet-launcher",
    file_mode: 0o711,
    service_user: "anet-run",
    capabilities: CapabilitySet::empty(),
    no_new_privs: true,
    dumpable: false,
    // bwrap has to mount, which a domain with rules on files forbids; it configures a loopback, and the agent's own test
    // servers use any port of that. Entered only where the launcher has no namespaces of its own, which do the same: see
    // `enter`.
    landlock: Some(Landlock { files: Files::Unrestricted, network: Network::Unrestricted, scoped: true }),
    seccomp: Some(&seccomp::native::LAUNCHER),
    network: "a namespace of its own without an interface, where the host lets the guard make one",
    limits: &[NO_CORE],
    descriptors: &[
        descriptor(Kind::Channel, "the supervisor and each anet-init"),
        descriptor(Kind::Pipe, "its log; bwrap's options; the run's standard streams"),
        descriptor(Kind::File, "the run's standard streams, whatever they are"),
        descriptor(Kind::Terminal, "the run's pseudo-terminal"),
        descriptor(Kind::Directory, "the run's directories"),
        descriptor(Kind::Memory, "bwrap's options, small files of the sandbox"),
        descriptor(Kind::Listener, "a run's endpoints, on their way to the supervisor"),
        descriptor(Kind::Process, "bwrap"),
        descriptor(Kind::Event, "signals"),
        descriptor(Kind::Null, "0, 1 and 2"),
    ],
    secrets: "none",
    talks_to: &[Peer::Process(Role::Supervisor), Peer::Process(Role::Node), Peer::Init],
};
