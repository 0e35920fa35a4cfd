//! The broker's privileges.

use rustix::process::Resource;
use rustix::thread::CapabilitySet;

use super::{Files, Kind, Landlock, Limit, NO_CORE, Network, Peer, Privileges, Role, descriptor};
use crate::seccomp;

pub(super) static PRIVILEGES: Privileges = Privileges {
    role: Role::Broker,
    name: "broker",
    program: "anet-broker",
    file_mode: 0o711,
    service_user: "anet-broker",
    capabilities: CapabilitySet::empty(),
    no_new_privs: true,
    dumpable: false,
    landlock: Some(Landlock { files: Files::Named, network: Network::None, scoped: true }),
    seccomp: Some(&seccomp::native::BROKER),
    network: "none of its own: it speaks over connections that are passed to it, and the proxy makes those to the \
        model's service only",
    limits: &[
        NO_CORE,
        // 64 connections of a run (where no limit is set) and as many to the service, for some dozens of runs.
        Limit {
            resource: Resource::Nofile,
            at_most: 4096,
            reason: "runs' connections and those to the service",
        },
        // 64 MiB of bodies of a run at once and 512 MiB of all, and for one of them at a time its values, several times as
        // large, and as much again as it is written anew.
        Limit {
            resource: Resource::Data,
            at_most: 1024 * 1024 * 1024,
            reason: "bodies: whatever a run sends, the host's memory is not its to take",
        },
    ],
    descriptors: &[
        descriptor(Kind::Channel, "the supervisor, the proxy"),
        descriptor(Kind::Pipe, "its log"),
        descriptor(Kind::File, "the service's key and the signing key, until they are read"),
        descriptor(Kind::Memory, "its service, a task, an answer, sealed"),
        descriptor(Kind::Listener, "a run's model endpoint"),
        descriptor(Kind::Connection, "runs, the model's service"),
        descriptor(Kind::Event, "the runtime's"),
        descriptor(Kind::Null, "0, 1 and 2"),
    ],
    secrets: "the key of the model's service, the key that signs the evidence",
    talks_to: &[
        Peer::Process(Role::Supervisor),
        Peer::Process(Role::Node),
        Peer::Process(Role::Proxy),
        Peer::Run,
        Peer::Network,
    ],
};
