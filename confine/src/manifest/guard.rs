//! The guard's privileges, entered when all its children run.

use rustix::thread::CapabilitySet;

use super::{Kind, NO_CORE, Privileges, Role, descriptor};
use crate::seccomp;

pub(super) static PRIVILEGES: Privileges = Privileges {
    role: Role::Guard,
    name: "guard",
    program: "anet",
    file_mode: 0o755,
    service_user: "root",
    // It ends processes of other users; a child's parent-death signal too is checked against its credentials.
    capabilities: CapabilitySet::KILL,
    no_new_privs: true,
    dumpable: false,
    // Its children would inherit a domain; and one entered after they were started, with a signal scope, would keep its
    // parent-death signal from them.
    landlock: None,
    seccomp: Some(&seccomp::native::GUARD),
    network: "none: it makes no socket",
    limits: &[NO_CORE],
    descriptors: &[
        descriptor(Kind::Terminal, "the operator's 0, 1 and 2, whatever they are"),
        descriptor(Kind::File, "the operator's 0, 1 and 2, whatever they are"),
        descriptor(Kind::Pipe, "logs of its children; how the run ended"),
        descriptor(Kind::Process, "its children"),
        descriptor(Kind::Listener, "of a node: what a probe must not reach"),
        descriptor(
            Kind::Channel,
            "of a node: the service manager's and the journal's sockets, opened before",
        ),
        descriptor(Kind::Memory, "of a node: why this life ends, for the next"),
        descriptor(Kind::Event, "signals"),
    ],
    secrets: "none: keys are passed on unread",
    talks_to: &[],
};
