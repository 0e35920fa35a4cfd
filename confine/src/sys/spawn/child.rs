//! The child, from its first instruction to exec: one straight line. Nothing here allocates, locks or unwinds.
//!
//! The order matters. User maps first, as they need /proc and a dumpable process. Descriptors before the terminal, which is
//! named by its number in the child. The identity before the directory, which is entered with the child's own rights, and
//! before the parent-death signal, which a change of user clears. Signals last: a pending one may end the child then.

use std::ffi::{CStr, c_char, c_int, c_long};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::process::PidfdFlags;

use super::{Command, Identity, Prepared, ProcessGroup, Program, Step};

/// The length of a report in bytes: step and errno.
pub(super) const REPORT: usize = 8;

/// A step and the errno that it failed with.
type Failure = (Step, c_int);

/// All that the child looks at.
pub(super) struct Plan<'a> {
    command: &'a Command<'a>,
    prepared: &'a mut Prepared,
    program: RawFd,
    report: RawFd,
    parent: c_int,
    /// Our process, to be asked by the child whether it has ended; -1 if nobody asks.
    parent_process: RawFd,
    /// Closes `parent_process` in the parent.
    _owner: Option<OwnedFd>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(command: &'a Command<'a>, prepared: &'a mut Prepared, report: RawFd) -> Self {
        let program = match &command.program {
            Program::Descriptor(fd) => fd.as_raw_fd(),
            Program::Path(_) => -1,
        };
        let own = rustix::process::getpid();
        // Without it the two other ways to see that the parent is gone remain.
        let owner = (command.parent_death_signal)
            .then(|| rustix::process::pidfd_open(own, PidfdFlags::empty()).ok())
            .flatten();
        let parent_process = owner.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let parent = own.as_raw_nonzero().get();
        Self { command, prepared, program, report, parent, parent_process, _owner: owner }
    }
}

/// Becomes the program, or reports why not and ends.
pub(super) fn run(plan: &mut Plan<'_>) -> ! {
    let (step, errno) = steps(plan);
    let mut message = [0u8; REPORT];
    let (first, second) = message.split_at_mut(4);
    first.copy_from_slice(&(step as u32).to_ne_bytes());
    second.copy_from_slice(&errno.to_ne_bytes());
    // SAFETY: the buffer lives through the call, which reads its length from it. _exit runs no handler of ours.
    unsafe {
        libc::write(plan.report, message.as_ptr().cast(), message.len());
        libc::_exit(127)
    }
}

/// Returns only on failure.
fn steps(plan: &mut Plan<'_>) -> Failure {
    match prepare(plan) {
        Ok(()) => exec(plan),
        Err(failure) => failure,
    }
}

fn prepare(plan: &mut Plan<'_>) -> Result<(), Failure> {
    if plan.command.namespaces.user {
        map_user(plan.prepared)?;
    }
    if plan.command.namespaces.proc {
        mount_proc()?;
    }
    reset_dispositions()?;
    place_descriptors(plan)?;
    group(plan.command)?;
    if plan.command.identity.is_some() || plan.command.namespaces.user {
        empty_bounding_set();
    }
    if let Some(identity) = plan.command.identity {
        become_user(identity)?;
    }
    if let Some(directory) = &plan.command.working_directory {
        // SAFETY: a C string that lives as long as the command.
        check(Step::Directory, unsafe { libc::chdir(directory.as_ptr()) }.into())?;
    }
    if plan.command.parent_death_signal {
        tie_to_parent(plan)?;
    }
    if plan.command.no_new_privs {
        // SAFETY: no pointer.
        check(Step::NoNewPrivs, unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    }
    unblock_signals()
}

fn check(step: Step, answer: c_long) -> Result<c_long, Failure> {
    if answer >= 0 {
        return Ok(answer);
    }
    // SAFETY: errno's place is this thread's own.
    Err((step, unsafe { *libc::__errno_location() }))
}

fn map_user(prepared: &Prepared) -> Result<(), Failure> {
    // Without this nobody without privilege may write a group map (CVE-2014-8989).
    write_file(c"/proc/self/setgroups", b"deny")?;
    write_file(c"/proc/self/uid_map", prepared.user_map.as_bytes())?;
    write_file(c"/proc/self/gid_map", prepared.group_map.as_bytes())
}

/// Nothing that is mounted here shows outside; what is mounted outside later still shows here.
fn mount_proc() -> Result<(), Failure> {
    let (none, slave) = (std::ptr::null(), libc::MS_SLAVE | libc::MS_REC);
    let hidden = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let (kind, place) = (c"proc".as_ptr(), c"/proc".as_ptr());
    // SAFETY: C strings of ours, and null where the kernel takes none.
    unsafe {
        check(Step::Proc, libc::mount(none, c"/".as_ptr(), none, slave, std::ptr::null()).into())?;
        check(Step::Proc, libc::mount(kind, place, kind, hidden, std::ptr::null()).into())?;
    }
    Ok(())
}

fn write_file(path: &CStr, text: &[u8]) -> Result<(), Failure> {
    // SAFETY: a C string and a buffer with its length; the descriptor is closed by exec or exit at the latest.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        check(Step::UserMaps, file.into())?;
        // A map is taken in one write or not at all.
        check(Step::UserMaps, libc::write(file, text.as_ptr().cast(), text.len()) as c_long)?;
        libc::close(file);
    }
    Ok(())
}

/// All to their default: handlers are ours, and what is ignored would stay ignored through exec.
fn reset_dispositions() -> Result<(), Failure> {
    /// The highest signal number, and the bytes of a set of so many (_NSIG of the kernel).
    const SIGNALS: c_int = 64;
    const SET: usize = 8;
    // struct sigaction of the kernel: SIG_DFL, no flags, no restorer, an empty mask.
    let default = [0u64; 4];
    for signal in 1..=SIGNALS {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: the structure is at least as long as the kernel's, which only reads it. The call itself, as glibc's
        // function refuses its own two signals.
        let answer = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null_mut::<u64>(), SET)
        };
        check(Step::Signals, answer)?;
    }
    Ok(())
}

/// Every descriptor to its number, all others marked to be closed by exec.
fn place_descriptors(plan: &mut Plan<'_>) -> Result<(), Failure> {
    let above = plan.prepared.kept.last().map_or(0, |last| last + 1);
    // What we still need must be out of the way before a number is overwritten.
    let ours = [&mut plan.report, &mut plan.program, &mut plan.parent_process];
    let needed = plan.prepared.sources.iter_mut().chain(ours);
    for fd in needed {
        if *fd >= 0 && *fd < above {
            // SAFETY: no pointer; the old number stays open until it is overwritten or closed.
            let moved =
                check(Step::Descriptors, unsafe { libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, above) }.into())?;
            *fd = moved as RawFd;
        }
    }
    for (source, target) in plan.prepared.sources.iter().zip(&plan.prepared.targets) {
        // SAFETY: no pointer; the two differ, since every source is above all targets.
        check(Step::Descriptors, unsafe { libc::dup3(*source, *target, 0) }.into())?;
    }
    let mut from = 0;
    for kept in &plan.prepared.kept {
        if *kept > from {
            close_on_exec(from as u32, *kept as u32 - 1)?;
        }
        from = kept + 1;
    }
    close_on_exec(from as u32, u32::MAX)
}

fn close_on_exec(first: u32, last: u32) -> Result<(), Failure> {
    // Closed by exec, not now: the report and the program are among them. SAFETY: no pointer.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    check(Step::Descriptors, answer).map(|_| ())
}

/// Session, process group and terminal. SIGTTOU is blocked here, so a background group may take the foreground.
fn group(command: &Command<'_>) -> Result<(), Failure> {
    // SAFETY: of these calls only one takes a pointer, to a number of ours.
    unsafe {
        if command.new_session {
            check(Step::Session, libc::setsid().into())?;
        }
        if let Some(group) = command.process_group {
            let group = match group {
                ProcessGroup::New => 0,
                ProcessGroup::Join(leader) => leader.as_raw_nonzero().get(),
            };
            check(Step::Session, libc::setpgid(0, group).into())?;
        }
        if let Some(terminal) = command.controlling_terminal {
            let answer = if command.new_session {
                libc::ioctl(terminal, libc::TIOCSCTTY, 0)
            } else {
                let group = libc::getpgrp();
                libc::ioctl(terminal, libc::TIOCSPGRP, &raw const group)
            };
            check(Step::Terminal, answer.into())?;
        }
    }
    Ok(())
}

/// Without it no program file can give back the capabilities that a change of user, or exec in a new user namespace, takes.
/// Whoever lacks CAP_SETPCAP cannot, and needs not: its own set is what the service manager left it.
fn empty_bounding_set() {
    for capability in 0..u64::BITS {
        // SAFETY: no pointer.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } < 0 {
            break;
        }
    }
}

fn become_user(identity: Identity) -> Result<(), Failure> {
    let Identity { uid, gid } = identity;
    // The calls themselves: glibc's functions would stop all threads of a process that has one.
    // SAFETY: no pointer but a null one with a length of 0.
    unsafe {
        check(Step::Identity, libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
        check(Step::Identity, libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(Step::Identity, libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
        if uid != 0 && libc::syscall(libc::SYS_setresuid, 0, 0, 0) == 0 {
            return Err((Step::Identity, libc::ENOTRECOVERABLE));
        }
    }
    Ok(())
}

/// SIGKILL when the parent ends, unless it has ended already. That is seen by its number, which a new process namespace does
/// not show; by the pipe for the report, whose other end nobody has but the parent and a sibling that has not come to its
/// exec; and by its pidfd, which turns readable a moment later than the signal would have been sent.
fn tie_to_parent(plan: &Plan<'_>) -> Result<(), Failure> {
    // SAFETY: one pointer, to two structures of ours.
    unsafe {
        check(Step::ParentDeath, libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into())?;
        // poll passes over a negative descriptor.
        let mut ends = [
            libc::pollfd { fd: plan.report, events: 0, revents: 0 },
            libc::pollfd { fd: plan.parent_process, events: libc::POLLIN, revents: 0 },
        ];
        let alone = libc::poll(ends.as_mut_ptr(), 2, 0) > 0;
        if alone || (!plan.command.namespaces.pid && libc::getppid() != plan.parent) {
            return Err((Step::ParentDeath, libc::ESRCH));
        }
    }
    Ok(())
}

fn unblock_signals() -> Result<(), Failure> {
    let none = 0u64;
    // SAFETY: a set of the kernel's size, which is only read.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null_mut::<u64>(),
            size_of::<u64>(),
        )
    };
    check(Step::Signals, answer).map(|_| ())
}

fn exec(plan: &Plan<'_>) -> Failure {
    let (argv, env) = (plan.prepared.argv.as_ptr(), plan.prepared.env.as_ptr());
    // SAFETY: C strings and arrays of them, each with a null at its end, that live until this process ends or is replaced.
    let answer = unsafe {
        match &plan.command.program {
            Program::Descriptor(_) => {
                let empty: *const c_char = c"".as_ptr();
                libc::syscall(libc::SYS_execveat, plan.program, empty, argv, env, libc::AT_EMPTY_PATH)
            }
            Program::Path(path) => libc::execve(path.as_ptr(), argv, env).into(),
        }
    };
    match check(Step::Exec, answer) {
        Err(failure) => failure,
        Ok(_) => (Step::Exec, libc::EINVAL),
    }
}
