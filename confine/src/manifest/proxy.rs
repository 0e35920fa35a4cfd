//! The proxy's privileges.

use rustix::process::Resource;
use rustix::thread::CapabilitySet;

use super::{Files, Kind, Landlock, Limit, NO_CORE, Network, Peer, Privileges, Role, descriptor};
use crate::seccomp;

/// HTTPS (EGR-3) and DNS over TCP, for answers too long for UDP (RFC 7766). With a broker also the port of `api_base`, which
/// the program names when it enters its domain.
const PORTS: &[u16] = &[443, 53];

pub(super) static PRIVILEGES: Privileges = Privileges {
    role: Role::Proxy,
    name: "proxy",
    program: "anet-proxy",
    file_mode: 0o711,
    service_user: "anet-proxy",
    capabilities: CapabilitySet::empty(),
    no_new_privs: true,
    dumpable: false,
    landlock: Some(Landlock { files: Files::Named, network: Network::ConnectTcp(PORTS), scoped: true }),
    seccomp: Some(&seccomp::native::PROXY),
    network: "IPv4 and IPv6: TCP to ports 443, 53 and the one of `api_base`, UDP; it listens nowhere",
    limits: &[
        NO_CORE,
        // 32 connections and 16 tunnels of a run (LIM), each with two pipes of two ends, for some dozens of runs.
        Limit { resource: Resource::Nofile, at_most: 4096, reason: "connections, tunnels and their pipes" },
    ],
    descriptors: &[
        descriptor(Kind::Channel, "the supervisor; the broker"),
        descriptor(Kind::Pipe, "its log; between the two splices of a relay"),
        descriptor(Kind::Memory, "its plan, sealed"),
        descriptor(Kind::Listener, "a run's egress endpoint"),
        descriptor(Kind::Connection, "runs, hosts, the model service and name servers"),
        descriptor(Kind::Event, "the runtime's"),
        descriptor(Kind::Null, "0, 1 and 2"),
    ],
    secrets: "none",
    talks_to: &[
        Peer::Process(Role::Supervisor),
        Peer::Process(Role::Node),
        Peer::Process(Role::Broker),
        Peer::Run,
        Peer::Network,
    ],
};
