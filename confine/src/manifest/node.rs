//! The privileges of a node's supervisor: those of a run's, and its own files.

use rustix::process::Resource;
use rustix::thread::CapabilitySet;

use super::{Files, Kind, Landlock, Limit, NO_CORE, Network, Peer, Privileges, Role, descriptor};
use crate::seccomp;

pub(super) static PRIVILEGES: Privileges = Privileges {
    role: Role::Node,
    name: "node",
    program: "anet-supervisor",
    file_mode: 0o711,
    service_user: "anet",
    capabilities: CapabilitySet::empty(),
    no_new_privs: true,
    dumpable: false,
    landlock: Some(Landlock { files: Files::Named, network: Network::None, scoped: true }),
    seccomp: Some(&seccomp::native::NODE),
    network: "none: it makes no socket, and takes clients on a listener of AF_UNIX that was passed to it",
    limits: &[
        NO_CORE,
        // Some twenty of its own; a run passes six through at once (two listeners, three standard streams, a plan) and keeps
        // one; a client keeps one, and two while a long value is on its way: room for hundreds of clients.
        Limit { resource: Resource::Nofile, at_most: 1024, reason: "channels, files, runs and clients" },
    ],
    descriptors: &[
        descriptor(Kind::Channel, "one to each process that it decides for; clients of the control socket"),
        descriptor(Kind::Pipe, "its log; who the processes are; the agents' output"),
        descriptor(Kind::File, "evidence, inbox, the probe's result"),
        descriptor(Kind::Directory, "time zones, evidence, inbox"),
        descriptor(Kind::Memory, "long values, sealed"),
        descriptor(Kind::Listener, "the control socket; runs' endpoints, on their way to proxy and broker"),
        descriptor(Kind::Event, "signals"),
        descriptor(Kind::Null, "0, 1 and 2"),
    ],
    secrets: "none; tasks and answers",
    talks_to: &[
        Peer::Process(Role::Launcher),
        Peer::Process(Role::Proxy),
        Peer::Process(Role::Broker),
        Peer::Process(Role::Outside),
        Peer::Client,
    ],
};
