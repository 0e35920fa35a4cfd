//! The keeper's privileges: what of a user's `anet daemon` stays when the guard, which it starts again and again, is a process
//! of its own.

use rustix::thread::CapabilitySet;

use super::{Kind, NO_CORE, Privileges, Role, descriptor};

pub(super) static PRIVILEGES: Privileges = Privileges {
    role: Role::Keeper,
    name: "keeper",
    program: "anet",
    file_mode: 0o755,
    // systemd does this for a service.
    service_user: "none",
    // All that it starts inherits what it enters: bubblewrap needs what a filter would refuse, and the operator's own programs
    // must not know no_new_privs. It reads from nobody, and nobody can look into it.
    capabilities: CapabilitySet::all(),
    no_new_privs: false,
    dumpable: false,
    landlock: None,
    seccomp: None,
    network: "the operator's; it uses none",
    limits: &[NO_CORE],
    descriptors: &[
        descriptor(Kind::Terminal, "the operator's 0, 1 and 2, whatever they are"),
        descriptor(Kind::File, "the node's lock; the operator's 0, 1 and 2, whatever they are"),
        descriptor(Kind::Memory, "why the last life ended; keys that stood in variables, unread"),
        descriptor(Kind::Channel, "the journal's socket"),
        descriptor(Kind::Process, "the guard"),
        descriptor(Kind::Event, "signals"),
    ],
    secrets: "the operator's environment without the keys of model services, which are passed on unread",
    talks_to: &[],
};
