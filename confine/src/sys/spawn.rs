//! Starting a program: from a process that holds much to one that holds exactly what it was given.
//!
//! The child runs on a copy of our memory until it executes the program, and does nothing there but system calls on data
//! that was prepared before ([`child`]): a lock that another thread held at the copy is held for ever.

mod child;
mod error;

use std::ffi::{CString, c_char};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::wait::{Ask, wait};
pub use error::{SpawnError, Step};

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
    /// A user namespace in which the child's own user and group are mapped to themselves, and nobody else. Our process
    /// must still be dumpable: the maps of one that is not belong to root. The child's bounding set is emptied.
    pub user: bool,
    /// A process namespace, the child its process 1: the kernel ends everything in it when the child ends.
    pub pid: bool,
    /// A mount namespace, whose /proc is that of the process namespace: who looks for processes by number finds its own.
    pub proc: bool,
    /// A network namespace with nothing but a loopback that is down.
    pub net: bool,
}

/// The user and group that the child becomes, with no supplementary group and an empty capability bounding set, before it
/// runs the program.
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

/// A program to start, and with what. Nothing else reaches it: no other descriptor, no variable, no blocked signal, none
/// ignored (Rust ignores SIGPIPE, and that would survive exec).
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
    /// A new session, without a controlling terminal. It has a process group of its own.
    pub new_session: bool,
    /// A process group.
    pub process_group: Option<ProcessGroup>,
    /// The child's number of a terminal: with `new_session` it becomes the controlling one, else the child's process group
    /// becomes its foreground.
    pub controlling_terminal: Option<RawFd>,
    /// Set `no_new_privs` before the program runs.
    pub no_new_privs: bool,
    /// The directory to start in, entered as the child's user.
    pub working_directory: Option<CString>,
}

/// A started program. Dropping it neither ends nor reaps the program.
#[derive(Debug)]
pub struct Child {
    /// Its number in our process namespace.
    pub pid: Pid,
    /// The descriptor to wait on ([`wait`]) and to signal through.
    pub pidfd: OwnedFd,
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
            working_directory: None,
        }
    }

    /// Starts it. Returns when the program runs, or says which step failed; no process is left then.
    pub fn spawn(&self) -> Result<Child, SpawnError> {
        self.start()?.confirm()
    }

    /// Starts it without waiting for the program to run, so that several start at once; [`Starting::confirm`] waits.
    pub fn start(&self) -> Result<Starting, SpawnError> {
        let (failures, report) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|errno| SpawnError::Start { errno })?;
        let mut prepared = Prepared::new(self)?;
        // A handler of ours must not run in the child, nor a signal end it half-way.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(SpawnError::signals)?;
        let started = start(self.namespaces, &mut child::Plan::new(self, &mut prepared, report.as_raw_fd()));
        mask.thread_set_mask().map_err(SpawnError::signals)?;
        let child = started.map_err(|errno| refused(self.namespaces, Step::Namespaces, errno))?;
        Ok(Starting { child, failures, namespaces: self.namespaces })
    }
}

/// A process on its way to its program.
#[derive(Debug)]
pub struct Starting {
    child: Child,
    /// Closed by exec; until then the child can say what failed.
    failures: OwnedFd,
    namespaces: Namespaces,
}

impl Starting {
    /// Waits until the program runs, or says which step failed; no process is left then.
    pub fn confirm(self) -> Result<Child, SpawnError> {
        match read_failure(&self.failures) {
            None => Ok(self.child),
            Some((step, errno)) => {
                // It has ended or is about to, and nobody else will ever ask how.
                let _ = wait(self.child.pidfd.as_fd(), Ask::default());
                Err(refused(self.namespaces, step, errno))
            }
        }
    }
}

fn refused(namespaces: Namespaces, step: Step, errno: Errno) -> SpawnError {
    // What a kernel answers that forbids namespaces, has no more of them, or was built without.
    let refusal = matches!(errno, Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::USERS | Errno::INVAL);
    match step {
        Step::Namespaces if refusal && namespaces != Namespaces::default() => {
            SpawnError::NamespacesRefused { errno }
        }
        Step::Namespaces => SpawnError::Start { errno },
        Step::UserMaps | Step::Proc => SpawnError::NamespacesRefused { errno },
        Step::Descriptors
        | Step::Session
        | Step::Terminal
        | Step::Identity
        | Step::Directory
        | Step::ParentDeath
        | Step::NoNewPrivs
        | Step::Signals
        | Step::Exec => SpawnError::Child { step, errno },
    }
}

/// What the child needs and may not allocate.
struct Prepared {
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    /// `ID ID 1`: this number inside is that number outside.
    user_map: String,
    group_map: String,
    /// Our descriptors, in the order of the command, and where each goes.
    sources: Vec<RawFd>,
    targets: Vec<RawFd>,
    /// The targets, ascending: what lies between them is closed.
    kept: Vec<RawFd>,
}

impl Prepared {
    fn new(command: &Command<'_>) -> Result<Self, SpawnError> {
        let targets: Vec<RawFd> = command.descriptors.iter().map(|(_, number)| *number).collect();
        let mut kept = targets.clone();
        kept.sort_unstable();
        kept.dedup();
        if kept.len() != targets.len() || kept.first().is_some_and(|first| *first < 0) {
            return Err(SpawnError::Child { step: Step::Descriptors, errno: Errno::INVAL });
        }
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Ok(Self {
            argv: pointers(&command.argv),
            env: pointers(&command.env),
            user_map: format!("{user} {user} 1"),
            group_map: format!("{group} {group} 1"),
            sources: command.descriptors.iter().map(|(fd, _)| fd.as_raw_fd()).collect(),
            targets,
            kept,
        })
    }
}

/// An array of strings as exec wants it: with a null at its end.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

fn start(namespaces: Namespaces, plan: &mut child::Plan<'_>) -> Result<Child, Errno> {
    let mut flags = libc::CLONE_PIDFD | libc::SIGCHLD;
    if namespaces.user {
        flags |= libc::CLONE_NEWUSER;
    }
    if namespaces.pid {
        flags |= libc::CLONE_NEWPID;
    }
    if namespaces.proc {
        flags |= libc::CLONE_NEWNS;
    }
    if namespaces.net {
        flags |= libc::CLONE_NEWNET;
    }
    let mut pidfd: RawFd = -1;
    // SAFETY: without CLONE_VM and with no stack given this is a fork: the child has its own copy of all memory. With
    // CLONE_PIDFD the kernel writes a descriptor where the third argument points. clone rather than clone3, which is
    // refused in many containers; its argument order is the same on x86_64 and aarch64 up to the third.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone, i64::from(flags), 0usize, &raw mut pidfd, 0usize, 0usize) };
    match i32::try_from(pid).ok().filter(|pid| *pid >= 0) {
        Some(0) => child::run(plan),
        Some(pid) => {
            // SAFETY: the kernel just made this descriptor for us, and nobody else knows it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Child { pid: Pid::from_raw(pid).ok_or(Errno::SRCH)?, pidfd })
        }
        None => Err(super::errno()),
    }
}

/// What the child reported; nothing when exec closed the pipe.
fn read_failure(pipe: &OwnedFd) -> Option<(Step, Errno)> {
    let mut message = [0u8; child::REPORT];
    let mut length = 0;
    while let Some(rest) = message.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(pipe, rest) {
            Ok(0) => return None,
            Ok(read) => length += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Some((Step::Exec, errno)),
        }
    }
    let [a, b, c, d, e, f, g, h] = message;
    let step = Step::from_number(u32::from_ne_bytes([a, b, c, d]));
    Some((step, Errno::from_raw_os_error(i32::from_ne_bytes([e, f, g, h]))))
}
