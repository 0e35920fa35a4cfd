//! Landlock: rules on files, ports and scopes that a process lays on itself and on all that it starts.
//!
//! Kernels differ in what they have (5.15: ABI 1, 6.1: 2, 6.8: 4, 6.12: 6); each domain asks for all and gets what there is.

use std::os::fd::{AsFd, BorrowedFd};

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

use crate::manifest::{Files, Landlock, Network};
use crate::{Error, Paths};

/// The newest level that the rules here were written for.
const NEWEST: ABI = ABI::V10;

/// The level that the kernel offers, 0 for none.
pub fn abi() -> u8 {
    crate::sys::landlock_abi()
}

/// What `domain` wants and a kernel of level `abi` does not have.
pub fn missing(domain: &Landlock, abi: u8) -> Vec<&'static str> {
    let files = domain.files == Files::Named;
    let network = domain.network != Network::Unrestricted;
    let wanted = [
        (files, 1, "files"),
        (files, 2, "moves between directories"),
        (files, 3, "truncation"),
        (network, 4, "TCP ports"),
        (files, 5, "device commands"),
        (domain.scoped, 6, "abstract sockets"),
        (domain.scoped, 6, "signals"),
    ];
    wanted.into_iter().filter(|(wanted, since, _)| *wanted && abi < *since).map(|(_, _, name)| name).collect()
}

/// Enters a role's domain; [`enter`](crate::enter) does it. Needs `no_new_privs`.
pub fn restrict(domain: &Landlock, paths: &Paths<'_>) -> Result<(), Error> {
    let mut rules = Ruleset::default();
    if domain.files == Files::Named {
        rules = rules.handle_access(AccessFs::from_all(NEWEST))?;
    }
    rules = match domain.network {
        Network::Unrestricted => rules,
        Network::None => rules.handle_access(AccessNet::from_all(NEWEST))?,
        Network::ConnectTcp(_) => rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?,
    };
    if domain.scoped {
        rules = rules.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    }
    let mut rules = rules.create()?;
    if domain.files == Files::Named {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        rules = beneath(rules, paths.readable, read)?;
        rules = beneath(rules, paths.writable, read | creating())?;
    }
    if let Network::ConnectTcp(ports) = domain.network {
        for port in ports.iter().chain(paths.ports) {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    // From which level on some of it can hold.
    let since =
        [(domain.files == Files::Named, 1), (domain.network != Network::Unrestricted, 4), (domain.scoped, 6)];
    let enforceable = since.into_iter().any(|(wanted, since)| wanted && abi() >= since);
    enforce(rules, enforceable)
}

/// Enters the domain. The crate degrades in silence, down to nothing: that is accepted only from a kernel that has nothing.
fn enforce(rules: RulesetCreated, enforceable: bool) -> Result<(), Error> {
    let status = rules.restrict_self()?;
    if enforceable && status.ruleset == RulesetStatus::NotEnforced {
        return Err(Error::LandlockIgnored { abi: abi() });
    }
    Ok(())
}

/// Writing, making and removing; no device node, no command to a device, no socket of somebody else.
fn creating() -> BitFlags<AccessFs> {
    let never = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev | AccessFs::ResolveUnix;
    AccessFs::from_write(NEWEST) & !never
}

/// The second wall inside the sandbox (SBX-7), entered by anet-init for the agent: it reads and executes what the mounts
/// show, and writes only beneath `writable`, to terminals and to the harmless devices. Returns the level that holds.
///
/// No rule on TCP ports, so that a project's own test servers work. Scopes alone where the launcher had to enter a domain of
/// its own: rules on files below that one would forbid every move between directories, and the mounts stand anyway.
pub fn restrict_run(writable: &[BorrowedFd<'_>], files: bool) -> Result<u8, Error> {
    let abi = abi();
    if abi == 0 {
        return Ok(0);
    }
    let scopes = Scope::AbstractUnixSocket | Scope::Signal;
    if !files {
        enforce(Ruleset::default().scope(scopes)?.create()?, abi >= 6)?;
        return Ok(abi);
    }
    let mut rules = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?.scope(scopes)?.create()?;

    let root = open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Error::Step { what: "opening the sandbox's root", errno })?;
    let read = AccessFs::from_read(NEWEST);
    rules = beneath(rules, &[root.as_fd()], read)?;
    rules = beneath(rules, writable, read | creating() | AccessFs::ResolveUnix)?;
    for path in DEVICES {
        // A terminal is there only if the run has one.
        if let Ok(device) = open(*path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            rules = beneath(rules, &[device.as_fd()], AccessFs::WriteFile | AccessFs::IoctlDev)?;
        }
    }
    rules = standard_streams(rules)?;
    enforce(rules, true)?;
    Ok(abi)
}

/// What the run may write of /dev. (/dev/fd and its like are links; for them see [`standard_streams`].)
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// Scripts write to /dev/stderr, which opens the file behind descriptor 2 anew. That file lies outside all mounts of the
/// sandbox: without a rule of its own it could not be opened. The rule gives what the descriptor gives, and no more: who was
/// handed a file for reading must not open it for writing that way.
fn standard_streams(mut rules: RulesetCreated) -> Result<RulesetCreated, Error> {
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let (Ok(flags), Ok(stat)) = (rustix::fs::fcntl_getfl(stream), fstat(stream)) else {
            continue;
        };
        // Pipes and sockets have no path and need no rule; a directory would open all that is in it.
        if !matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::CharacterDevice)
        {
            continue;
        }
        let rights = match flags & OFlags::RWMODE {
            OFlags::WRONLY => AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev,
            OFlags::RDWR => {
                AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
            }
            _ => AccessFs::ReadFile | AccessFs::IoctlDev,
        };
        let before = rules.try_clone().map_err(step("copying a ruleset"))?;
        rules = match beneath(rules, &[stream], rights) {
            // Memory (memfd) is on no mount that a rule can name; the kernel lets every domain open it.
            Err(error) if is_unnameable(&error) => before,
            added => added?,
        };
    }
    Ok(rules)
}

/// Whether the kernel's answer to a rule was that its file is on no mount of anybody's.
fn is_unnameable(error: &RulesetError) -> bool {
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.any(|cause| {
        let system = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        system == Some(Errno::BADFD.raw_os_error())
    })
}

fn step(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::Step { what, errno: Errno::from_io_error(&error).unwrap_or(Errno::INVAL) }
}

fn beneath(
    mut rules: RulesetCreated,
    places: &[BorrowedFd<'_>],
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    for place in places {
        // A file has fewer rights than a directory, and the kernel refuses a rule with one too many.
        let is_directory = fstat(place).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
        let rights = if is_directory { rights } else { rights & AccessFs::from_file(NEWEST) };
        rules = rules.add_rule(PathBeneath::new(place, rights))?;
    }
    Ok(rules)
}
