//! The privileges of the process that starts what runs outside of the sandbox.

use rustix::thread::CapabilitySet;

use super::{Kind, NO_CORE, Peer, Privileges, Role, descriptor};

pub(super) static PRIVILEGES: Privileges = Privileges {
    role: Role::Outside,
    name: "outside",
    program: "anet-outside",
    file_mode: 0o711,
    // A service starts nothing outside of the sandbox but the operator's `notify` command.
    service_user: "anet",
    // What it starts is the operator's own, and may do what the operator may: a capability, a filter, a domain or
    // no_new_privs that it entered would hold for all of that. It is kept by what it knows: it starts the programs of its
    // plan, and the supervisor can name no other.
    capabilities: CapabilitySet::all(),
    no_new_privs: false,
    dumpable: false,
    landlock: None,
    seccomp: None,
    network: "the operator's; it uses none",
    limits: &[NO_CORE],
    descriptors: &[
        descriptor(Kind::Channel, "the supervisor"),
        descriptor(Kind::Pipe, "its log; the programs' standard streams"),
        descriptor(Kind::Memory, "its plan, tasks and events, sealed"),
        descriptor(Kind::Directory, "direct runs' work directories"),
        descriptor(Kind::Process, "what it started"),
        descriptor(Kind::Event, "signals"),
        descriptor(Kind::Null, "0, 1 and 2"),
    ],
    secrets: "the operator's environment, for the programs that are the operator's own",
    talks_to: &[Peer::Process(Role::Node)],
};
