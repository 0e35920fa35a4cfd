//! The launcher starts bwrap, and its filter is inherited by bwrap, anet-init and the agent. bwrap needs namespaces, mounts,
//! netlink and more; so this list holds only what no program under the launcher has a use for.
//!
//! No call is on this list and on the run's: an errno of this filter would come first, and what the run's filter has to
//! report would never reach it.

use super::super::rule::{Action, ENOSYS, List, Rule, refuse};

const RULES: &[Rule] = &[
    refuse("acct", "process accounting writes a file of the caller's choice as root"),
    refuse("clock_settime", "the host's clock"),
    refuse("ioperm", "the host's input and output ports"),
    refuse("iopl", "the host's input and output ports"),
    refuse("lookup_dcookie", "paths of other mount namespaces, on kernels before 6.8"),
    refuse("quotactl", "quotas of the host's file systems"),
    refuse("quotactl_fd", "quotas of the host's file systems"),
    refuse("reboot", "the host"),
    refuse("settimeofday", "the host's clock"),
    refuse("swapoff", "the host's memory"),
    refuse("swapon", "the host's memory"),
    refuse("syslog", "the host's kernel log"),
    refuse("uselib", "a loader of old formats, for nobody"),
    refuse("vhangup", "the host's terminals"),
];

/// The launcher's list.
pub const LIST: List = List {
    name: "launcher",
    rules: RULES,
    otherwise: Action::Allow,
    unknown: Action::Errno(ENOSYS),
    foreign: Action::Errno(ENOSYS),
};
