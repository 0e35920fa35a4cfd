//! The supervisor's privileges.

use rustix::process::Resource;
use rustix::thread::CapabilitySet;

use super::{Files, Kind, Landlock, Limit, NO_CORE, Network, Peer, Privileges, Role, descriptor};
use crate::seccomp;

pub(super) static PRIVILEGES: Privileges = Privileges {
    role: Role::Supervisor,
    name: "supervisor",
    program: "anet-supervisor",
    file_mode: 0o711,
    service_user: "anet",
    capabilities: CapabilitySet::empty(),
    no_new_privs: true,
    dumpable: false,
    landlock: Some(Landlock { files: Files::Named, network: Network::None, scoped: true }),
    seccomp: Some(&seccomp::native::SUPERVISOR),
    network: "none",
    limits: &[
        NO_CORE,
        Limit {
            resource: Resource::Nofile,
            at_most: 1024,
            reason: "channels, files, and what is passed through",
        },
    ],
    descriptors: &[
        descriptor(Kind::Channel, "one to each process that it decides for"),
        descriptor(Kind::Pipe, "its log; the agent's output, and where its answer goes"),
        descriptor(Kind::File, "evidence and the run's record"),
        descriptor(Kind::Directory, "time zones, state"),
        descriptor(Kind::Memory, "long values, sealed"),
        descriptor(Kind::Listener, "a run's endpoints, on their way to proxy and broker"),
        descriptor(Kind::Terminal, "a run's pseudo-terminal, on its way to the terminal process"),
        descriptor(Kind::Event, "signals"),
        descriptor(Kind::Null, "0, 1 and 2"),
    ],
    secrets: "none",
    talks_to: &[
        Peer::Process(Role::Launcher),
        Peer::Process(Role::Proxy),
        Peer::Process(Role::Broker),
        Peer::Process(Role::Terminal),
    ],
};
