//! Starting a program: from a process that holds much to one that holds exactly what it was given.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::Pid;

/// What to execute.
#[derive(Clone, Debug)]
pub enum Program<'a> {
    /// An open executable (no script: its interpreter could not open it again).
    Descriptor(BorrowedFd<'a>),
    /// An absolute path.
    Path(CString),
}

/// New namespaces for the child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// A user namespace in which the child's own user and group are mapped to themselves, and nobody else.
    pub user: bool,
    /// A process namespace, the child its process 1: the kernel ends everything in it when the child ends.
    pub pid: bool,
    /// A network namespace with nothing but a loopback that is down.
    pub net: bool,
}

/// The user and group that the child becomes, with no supplementary group, before it runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The real, effective and saved user.
    pub uid: u32,
    /// The real, effective and saved group.
    pub gid: u32,
}

/// The process group that the child belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessGroup {
    /// A new one that the child leads.
    New,
    /// An existing one of the same session.
    Join(Pid),
}

/// A program to start, and with what. Nothing else reaches it: no other descriptor, variable, signal disposition.
#[derive(Clone, Debug)]
pub struct Command<'a> {
    /// The program.
    pub program: Program<'a>,
    /// Its arguments, its own name first.
    pub argv: Vec<CString>,
    /// Its whole environment, as `NAME=value`.
    pub env: Vec<CString>,
    /// Descriptors of ours and the numbers they have in the child; every other one is closed there.
    pub descriptors: Vec<(BorrowedFd<'a>, RawFd)>,
    /// New namespaces.
    pub namespaces: Namespaces,
    /// Another user, which only a privileged process can give.
    pub identity: Option<Identity>,
    /// SIGKILL for the child when the thread that spawned it ends.
    pub parent_death_signal: bool,
    /// A new session, without a controlling terminal.
    pub new_session: bool,
    /// A process group.
    pub process_group: Option<ProcessGroup>,
    /// The child's number of a terminal: with `new_session` it becomes the controlling one; with `process_group` that
    /// group becomes its foreground.
    pub controlling_terminal: Option<RawFd>,
    /// Set `no_new_privs` before the program runs.
    pub no_new_privs: bool,
    /// Every signal to its default disposition (Rust ignores SIGPIPE, and an ignored signal survives exec).
    pub reset_signals: bool,
    /// The directory to start in, entered as the child's user.
    pub working_directory: Option<CString>,
}

impl<'a> Command<'a> {
    /// A program with no argument, no variable and no descriptor.
    pub fn new(program: Program<'a>) -> Self {
        Self {
            program,
            argv: Vec::new(),
            env: Vec::new(),
            descriptors: Vec::new(),
            namespaces: Namespaces::default(),
            identity: None,
            parent_death_signal: false,
            new_session: false,
            process_group: None,
            controlling_terminal: None,
            no_new_privs: false,
            reset_signals: true,
            working_directory: None,
        }
    }

    /// Starts it. Returns when the program runs, or says which step failed.
    pub fn spawn(&self) -> Result<Child, SpawnError> {
        Err(SpawnError::Start { errno: Errno::NOSYS })
    }
}

/// A started program.
#[derive(Debug)]
pub struct Child {
    /// Its number in our process namespace.
    pub pid: Pid,
    /// The descriptor to wait on and to signal through.
    pub pidfd: OwnedFd,
}

/// What the child was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Running the program: ENOENT, EACCES and ENOEXEC say that it is missing, forbidden, no program.
    Exec,
}

/// Why a program could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// This host or user may not make the namespaces: the caller can go on without, and say so.
    #[error("the kernel refused new namespaces ({errno}); allow user namespaces for anet, or go on without them")]
    NamespacesRefused {
        /// The kernel's answer.
        errno: Errno,
    },
    /// The process could not be made at all.
    #[error("no process could be started ({errno}); see the limits on processes and descriptors")]
    Start {
        /// The kernel's answer.
        errno: Errno,
    },
    /// The child failed before the program ran.
    #[error("the program could not be started: {step:?} failed ({errno})")]
    Child {
        /// Where.
        step: Step,
        /// The kernel's answer.
        errno: Errno,
    },
}
