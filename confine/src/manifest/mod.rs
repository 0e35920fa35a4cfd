//! The privileges of each process, as data: [`enter`](crate::enter) confines by it, and whoever describes or audits a
//! process reads the same.
//!
//! A new role is a file beside this one, a list in [`seccomp::lists`](crate::seccomp::lists), and a line in `roles!`.

mod broker;
mod describe;
mod guard;
mod keeper;
mod launcher;
mod node;
mod outside;
mod proxy;
mod supervisor;
mod terminal;

use std::fmt;

use rustix::process::Resource;
use rustix::thread::CapabilitySet;

use crate::seccomp::Filter;

pub use describe::{document, table};

macro_rules! roles {
    ($($(#[$doc:meta])* $variant:ident => $privileges:path,)*) => {
        /// A process of anet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Role {
            $($(#[$doc])* $variant,)*
        }

        impl Role {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }

        /// What `role` may do.
        pub fn privileges(role: Role) -> &'static Privileges {
            match role {
                $(Role::$variant => &$privileges,)*
            }
        }
    };
}

roles! {
    /// Starts all others, waits, and ends them. Reads nothing from anybody.
    Guard => guard::PRIVILEGES,
    /// Decides. Holds no secret, has no network, starts nothing.
    Supervisor => supervisor::PRIVILEGES,
    /// Decides for all runs of a node. Holds no secret, has no network, starts nothing.
    Node => node::PRIVILEGES,
    /// Starts programs in the sandbox.
    Launcher => launcher::PRIVILEGES,
    /// Connects to allowed hosts.
    Proxy => proxy::PRIVILEGES,
    /// Speaks to the model's service. Holds the key.
    Broker => broker::PRIVILEGES,
    /// Joins the operator's terminal to a run's pseudo-terminal.
    Terminal => terminal::PRIVILEGES,
    /// Starts what runs outside of the sandbox.
    Outside => outside::PRIVILEGES,
    /// Starts a user's guard again when it has ended.
    Keeper => keeper::PRIVILEGES,
}

impl Role {
    /// Its name in one word.
    pub fn name(self) -> &'static str {
        privileges(self).name
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a process may do.
#[derive(Debug)]
pub struct Privileges {
    /// Whose these are.
    pub role: Role,
    /// The role in one word.
    pub name: &'static str,
    /// The program's file name.
    pub program: &'static str,
    /// The mode of the program's file. What cannot be read is not dumpable from exec on, before `main`.
    pub file_mode: u32,
    /// The user that it runs as where there is a service. Otherwise all share the operator's.
    pub service_user: &'static str,
    /// The capabilities that it keeps, of those that it was started with. No other is left in any set; with all of them, no set
    /// is touched.
    pub capabilities: CapabilitySet,
    /// Whether no exec gives it more than it has.
    pub no_new_privs: bool,
    /// Whether its neighbours may trace it and read its memory.
    pub dumpable: bool,
    /// Its Landlock domain, if it has one.
    pub landlock: Option<Landlock>,
    /// Its system calls; none: not filtered, since what it starts would inherit that.
    pub seccomp: Option<&'static Filter>,
    /// What it can reach over a network, in words.
    pub network: &'static str,
    /// Its limits, never above those that it was started with.
    pub limits: &'static [Limit],
    /// The kinds of descriptors that it holds.
    pub descriptors: &'static [Descriptor],
    /// What it knows that nobody else may, in words.
    pub secrets: &'static str,
    /// Who speaks to it.
    pub talks_to: &'static [Peer],
}

/// A Landlock domain. Where the kernel has less, the rest holds ([`crate::landlock::missing`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landlock {
    /// Files that it may open.
    pub files: Files,
    /// Ports.
    pub network: Network,
    /// No signal to a process and no connection to an abstract socket outside the domain.
    pub scoped: bool,
}

/// Which files may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// As the user may. (A domain with rules on files cannot mount.)
    Unrestricted,
    /// Only what [`Paths`](crate::Paths) names; nothing is executed.
    Named,
}

/// Which ports may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Any.
    Unrestricted,
    /// None.
    None,
    /// Connections of TCP to these ports and those of [`Paths::ports`](crate::Paths), and no TCP listener. UDP is not restricted.
    ConnectTcp(&'static [u16]),
}

/// A resource limit, soft and hard.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Of what.
    pub resource: Resource,
    /// How much, in the unit of setrlimit(2).
    pub at_most: u64,
    /// Why so much.
    pub reason: &'static str,
}

/// A kind of descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// What it is.
    pub kind: Kind,
    /// What for.
    pub purpose: &'static str,
}

/// What the kernel says a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A socket of AF_UNIX without a name.
    Channel,
    /// A pipe.
    Pipe,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A terminal, or an end of a pseudo-terminal.
    Terminal,
    /// Memory without a name.
    Memory,
    /// A process.
    Process,
    /// A listening socket.
    Listener,
    /// A connected socket of AF_INET or AF_INET6, or one for DNS.
    Connection,
    /// What a loop waits on: epoll, eventfd, signalfd, timerfd.
    Event,
    /// /dev/null.
    Null,
}

/// Who is at the other end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Another process of anet.
    Process(Role),
    /// anet-init, in the sandbox.
    Init,
    /// The program in the sandbox, through its endpoints.
    Run,
    /// The operator's terminal.
    Operator,
    /// Whoever may connect to the control socket.
    Client,
    /// Hosts of the network.
    Network,
}

/// No core file: it would hold what the process holds. (A piped core_pattern ignores this; for that a process is not
/// dumpable.)
const NO_CORE: Limit = Limit { resource: Resource::Core, at_most: 0, reason: "memory is written to no file" };

const fn descriptor(kind: Kind, purpose: &'static str) -> Descriptor {
    Descriptor { kind, purpose }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRV-3: the table is complete and agrees with itself.
    #[test]
    fn each_role_has_its_own_privileges() {
        for role in Role::ALL {
            let own = privileges(*role);
            assert_eq!(own.role, *role);
            assert!(!own.dumpable, "{role}");
            match own.seccomp {
                Some(filter) => {
                    assert_eq!(filter.list.name, own.name, "{role} has the filter of its own name");
                    assert!(own.no_new_privs, "{role}: a filter needs it");
                }
                // Whoever starts programs that are not anet's, and those alone.
                None => assert!([Role::Outside, Role::Keeper].contains(role), "{role}"),
            }
            assert!(own.limits.iter().any(|limit| matches!(limit.resource, Resource::Core)), "{role}");
        }
    }

    /// PRV-1, PRV-4: who talks to whom is the same seen from both sides, and nobody talks to the guard.
    #[test]
    fn channels_have_two_ends() {
        for role in Role::ALL {
            for peer in privileges(*role).talks_to {
                if let Peer::Process(other) = peer {
                    assert!(![Role::Guard, Role::Keeper].contains(other));
                    assert!(
                        privileges(*other).talks_to.contains(&Peer::Process(*role)),
                        "{role} and {other}"
                    );
                }
            }
        }
        for alone in [Role::Guard, Role::Keeper] {
            assert!(privileges(alone).talks_to.is_empty());
        }
    }
}
