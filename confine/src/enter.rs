//! From a started process to a confined one.

use std::fmt;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::manifest::{Files, Landlock, Limit, Network, Role, privileges};
use crate::{landlock, seccomp, sys};

/// What a role's Landlock rules name at run time; nothing for most roles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paths<'a> {
    /// Directories (or files) to read and write, never to execute from.
    pub writable: &'a [BorrowedFd<'a>],
    /// Directories (or files) to read.
    pub readable: &'a [BorrowedFd<'a>],
    /// Ports that TCP may connect to beside the manifest's ([`Network::ConnectTcp`]); none for a role without any.
    pub ports: &'a [u16],
    /// The process is alone in a PID namespace and a network namespace: nobody outside is within reach of its signals
    /// and abstract sockets, and a domain of scopes alone is not entered.
    pub apart: bool,
}

/// What holds now. Its text is one line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which role was entered.
    pub role: Role,
    /// The capabilities that are left.
    pub capabilities: CapabilitySet,
    /// Whether the bounding set was emptied too: only a process with CAP_SETPCAP can do that.
    pub bounded: bool,
    /// The kernel's Landlock level, 0 for none.
    pub landlock_abi: u8,
    /// What the manifest wants of Landlock and this kernel does not have.
    pub landlock_missing: Vec<&'static str>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} confined: capabilities {:#x}", self.role, self.capabilities.bits())?;
        write!(f, ", Landlock ABI {}", self.landlock_abi)?;
        if !self.landlock_missing.is_empty() {
            write!(f, " (the kernel lacks: {})", self.landlock_missing.join(", "))?;
        }
        match privileges(self.role).seccomp {
            Some(_) => f.write_str(", system calls filtered"),
            None => f.write_str(", system calls not filtered"),
        }
    }
}

/// Why a process could not be confined. It must end then: nothing runs with more than its manifest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// seccomp and Landlock confine one thread: another one would stay free.
    #[error(
        "the {role} has more than one thread and cannot be confined: this is a defect of anet, report it"
    )]
    Threads {
        /// The role.
        role: Role,
    },
    /// A step failed.
    #[error("{what} failed ({errno}): anet needs Linux 5.15 or newer with seccomp filters")]
    Step {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A Landlock step failed although the kernel offers it.
    #[error("entering the Landlock domain failed ({0}): report this, with the kernel's version")]
    Landlock(#[from] ::landlock::RulesetError),
    /// No rule came to hold although the kernel has some of them.
    #[error(
        "the Landlock domain was not enforced on a kernel of ABI {abi}: report this, with the kernel's version"
    )]
    LandlockIgnored {
        /// The kernel's level.
        abi: u8,
    },
}

/// Gives up everything that the manifest does not grant to `role`, for good.
///
/// To be called once, first thing in `main`, when everything is open that only an unconfined process may open, and before
/// the first thread. On an error the process must end.
///
/// The order: each step is one that the next cannot undo and does not need. The memory is closed to neighbours first, so
/// that from then on nobody of the same user can be inside while the rest is given up. Capabilities go before
/// `no_new_privs`, which needs none. Landlock and seccomp need `no_new_privs`. seccomp is last, because it forbids all of
/// these steps. A second call ends a process with a list of what it may do, and gives the others the same filter again.
pub fn enter(role: Role, paths: &Paths<'_>) -> Result<Report, Error> {
    let wanted = privileges(role);
    if !sys::is_single_threaded() {
        return Err(Error::Threads { role });
    }
    if !wanted.dumpable {
        // Undone by exec and by a change of user: this is after both.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(step("closing its memory to others"))?;
    }
    wanted.limits.iter().try_for_each(limit)?;
    let (capabilities, bounded) = drop_capabilities(wanted.capabilities)?;
    if wanted.no_new_privs {
        rustix::thread::set_no_new_privs(true).map_err(step("setting no_new_privs"))?;
    }
    let landlock_abi = landlock::abi();
    // A domain of scopes alone, below which another one with rules on files is entered, forbids every move between
    // directories there: the right to that (REFER) is refused by each domain that does not name it, as soon as one of
    // the stack has rules on files. Namespaces that hold nobody else do what the scopes would.
    let scopes_alone =
        |domain: &Landlock| domain.files == Files::Unrestricted && domain.network == Network::Unrestricted;
    let landlock_missing = match &wanted.landlock {
        Some(domain) if paths.apart && scopes_alone(domain) => Vec::new(),
        Some(domain) => {
            landlock::restrict(domain, paths)?;
            landlock::missing(domain, landlock_abi)
        }
        None => Vec::new(),
    };
    seccomp::install(role)?;
    Ok(Report { role, capabilities, bounded, landlock_abi, landlock_missing })
}

fn step(what: &'static str) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::Step { what, errno }
}

fn limit(limit: &Limit) -> Result<(), Error> {
    // Raising a hard limit needs a capability; a lower one than the manifest's is nobody's harm.
    let old = getrlimit(limit.resource);
    let value = Some(old.maximum.map_or(limit.at_most, |maximum| maximum.min(limit.at_most)));
    setrlimit(limit.resource, Rlimit { current: value, maximum: value })
        .map_err(step("setting a resource limit"))
}

/// Keeps what is both held and granted. Says what that is, and whether the bounding set has nothing else either.
fn drop_capabilities(granted: CapabilitySet) -> Result<(CapabilitySet, bool), Error> {
    let held = rustix::thread::capabilities(None).map_err(step("asking for its capabilities"))?;
    if granted.is_all() {
        return Ok((held.permitted, false));
    }
    let bounded = held.effective.contains(CapabilitySet::SETPCAP);
    if bounded {
        drop_bounding_set(granted)?;
    }
    // Kernels have had the ambient set since 4.3.
    rustix::thread::clear_ambient_capability_set().map_err(step("clearing the ambient capabilities"))?;
    let kept = held.permitted & granted;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(step("dropping capabilities"))?;
    Ok((kept, bounded))
}

fn drop_bounding_set(granted: CapabilitySet) -> Result<(), Error> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if granted.contains(capability) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Beyond the kernel's last one.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(step("dropping the capability bounding set")(errno)),
        }
    }
    Ok(())
}
