//! Privileges as data.

use std::fmt;

/// A process of anet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Starts all others, and ends them.
    Guard,
    /// Decides.
    Supervisor,
    /// Starts programs in the sandbox.
    Launcher,
    /// Connects to allowed hosts.
    Proxy,
    /// Holds the operator's terminal.
    Terminal,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guard => "guard",
            Self::Supervisor => "supervisor",
            Self::Launcher => "launcher",
            Self::Proxy => "proxy",
            Self::Terminal => "terminal",
        })
    }
}

/// What a role may do.
#[derive(Debug)]
pub struct Privileges {
    /// Whose these are.
    pub role: Role,
}

/// What `role` may do.
pub fn privileges(role: Role) -> &'static Privileges {
    let _ = role;
    &Privileges { role: Role::Guard }
}
