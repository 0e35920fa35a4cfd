//! The terminal process's privileges.

use rustix::process::Resource;
use rustix::thread::CapabilitySet;

use super::{Files, Kind, Landlock, Limit, NO_CORE, Network, Peer, Privileges, Role, descriptor};
use crate::seccomp;

pub(super) static PRIVILEGES: Privileges = Privileges {
    role: Role::Terminal,
    name: "terminal",
    program: "anet-terminal",
    file_mode: 0o711,
    // A service has no terminal.
    service_user: "none",
    capabilities: CapabilitySet::empty(),
    no_new_privs: true,
    dumpable: false,
    landlock: Some(Landlock { files: Files::Named, network: Network::None, scoped: true }),
    seccomp: Some(&seccomp::native::TERMINAL),
    network: "none",
    limits: &[
        NO_CORE,
        Limit { resource: Resource::Nofile, at_most: 64, reason: "two terminals, a channel, a log, signals" },
    ],
    descriptors: &[
        descriptor(Kind::Channel, "the supervisor"),
        descriptor(Kind::Pipe, "its log; standard streams that are no terminal"),
        descriptor(Kind::File, "standard streams that are no terminal"),
        descriptor(Kind::Terminal, "the operator's, and the run's pseudo-terminal"),
        descriptor(Kind::Event, "signals"),
        descriptor(Kind::Null, "standard streams that are no terminal"),
    ],
    secrets: "what the operator types",
    talks_to: &[Peer::Process(Role::Supervisor), Peer::Operator, Peer::Run],
};
