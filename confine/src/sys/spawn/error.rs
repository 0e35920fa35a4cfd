//! Why a program could not be started.

use std::fmt;

use rustix::io::Errno;

/// What was being done when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// Making the process, with its namespaces.
    Namespaces = 1,
    /// Mapping its own user and group into its user namespace.
    UserMaps,
    /// Mounting /proc of its process namespace.
    Proc,
    /// Moving descriptors to their numbers and marking the others to be closed.
    Descriptors,
    /// The session or process group.
    Session,
    /// Taking the terminal.
    Terminal,
    /// Becoming another user for good.
    Identity,
    /// Entering the working directory.
    Directory,
    /// The signal for the death of its parent.
    ParentDeath,
    /// `no_new_privs`.
    NoNewPrivs,
    /// Signal dispositions and mask.
    Signals,
    /// Running the program: ENOENT, EACCES and ENOEXEC say that it is missing, forbidden, no program.
    Exec,
}

impl Step {
    const ALL: [Self; 12] = [
        Self::Namespaces,
        Self::UserMaps,
        Self::Proc,
        Self::Descriptors,
        Self::Session,
        Self::Terminal,
        Self::Identity,
        Self::Directory,
        Self::ParentDeath,
        Self::NoNewPrivs,
        Self::Signals,
        Self::Exec,
    ];

    /// The step that a child reported. It reports no other number than ours.
    pub(super) fn from_number(number: u32) -> Self {
        Self::ALL.into_iter().find(|step| *step as u32 == number).unwrap_or(Self::Exec)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespaces => "making its namespaces",
            Self::UserMaps => "mapping its user",
            Self::Proc => "mounting its /proc",
            Self::Descriptors => "placing its descriptors",
            Self::Session => "making its session or process group",
            Self::Terminal => "taking the terminal",
            Self::Identity => "becoming its user",
            Self::Directory => "entering its working directory",
            Self::ParentDeath => "tying its life to its parent's",
            Self::NoNewPrivs => "setting no_new_privs",
            Self::Signals => "resetting its signals",
            Self::Exec => "running the program",
        })
    }
}

/// Why a program could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// This host or user may not make the namespaces: the caller can go on without, and say so.
    #[error(
        "the kernel refused new namespaces ({errno}): allow user namespaces for anet, or go on without them"
    )]
    NamespacesRefused {
        /// The kernel's answer.
        errno: Errno,
    },
    /// The process could not be made at all.
    #[error("no process could be started ({errno}): look at the limits on processes, memory and descriptors")]
    Start {
        /// The kernel's answer.
        errno: Errno,
    },
    /// The child failed before the program ran.
    #[error("the program could not be started: {step} failed ({errno})")]
    Child {
        /// Where.
        step: Step,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl SpawnError {
    /// The error of exec itself, if that is what failed.
    pub fn exec(&self) -> Option<Errno> {
        match self {
            Self::Child { step: Step::Exec, errno } => Some(*errno),
            Self::Child { .. } | Self::NamespacesRefused { .. } | Self::Start { .. } => None,
        }
    }

    pub(super) fn signals(errno: nix::errno::Errno) -> Self {
        Self::Child { step: Step::Signals, errno: Errno::from_raw_os_error(errno as i32) }
    }
}
