//! The terminal process passes bytes and window sizes between the operator's terminal and the run's pseudo-terminal. Of
//! ioctl(2) it has modes and sizes alone: TIOCSTI on the operator's terminal would type into the operator's shell.

use super::super::rule::{Action, List, Rule, Test, allow, allow_if, decide};

/// Commands of fcntl(2): modes and close-on-exec.
const FCNTL: &[u32] = &[
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
    libc::F_SETFL as u32,
    libc::F_DUPFD_CLOEXEC as u32,
];

/// asm-generic/ioctls.h. The forms with a 2 are those of rustix and of glibc since 2.42.
const IOCTL: &[u32] = &[
    libc::TCGETS as u32,
    libc::TCSETS as u32,
    libc::TCSETSW as u32,
    libc::TCSETSF as u32,
    libc::TCGETS2 as u32,
    libc::TCSETS2 as u32,
    libc::TCSETSW2 as u32,
    libc::TCSETSF2 as u32,
    libc::TIOCGWINSZ as u32,
    libc::TIOCSWINSZ as u32,
    libc::TIOCGPGRP as u32,
    libc::FIONBIO as u32,
];

const EXECUTABLE: u32 = libc::PROT_EXEC as u32;
const SOCKET_LEVEL: &[u32] = &[libc::SOL_SOCKET as u32];

const RULES: &[Rule] = &[
    allow("brk", "the allocator"),
    allow("clock_gettime", "deadlines, where the vDSO asks the kernel"),
    allow("close", "an end that is done with"),
    allow("exit", "the end of a thread"),
    allow("exit_group", "the end of the process"),
    decide("fcntl", &[allow_if(&[Test::OneOf(1, FCNTL)])], "modes of descriptors"),
    allow("futex", "locks of std, uncontended in one thread"),
    allow("getpid", "abort() of a panic"),
    allow("getrandom", "seeds of hash maps"),
    decide("getsockopt", &[allow_if(&[Test::OneOf(1, SOCKET_LEVEL)])], "the type of the channel"),
    allow("gettid", "abort() and the message of a panic"),
    decide("ioctl", &[allow_if(&[Test::OneOf(1, IOCTL)])], "modes and window sizes of the two terminals"),
    allow("madvise", "the allocator gives memory back"),
    decide("mmap", &[allow_if(&[Test::Bits(2, EXECUTABLE, 0)])], "the allocator; never executable"),
    decide("mprotect", &[allow_if(&[Test::Bits(2, EXECUTABLE, 0)])], "the allocator; never executable"),
    allow("mremap", "the allocator moves a large block"),
    allow("munmap", "the allocator"),
    allow("poll", "its one loop"),
    allow("ppoll", "its one loop"),
    allow("read", "keys, output, and the descriptor that signals come from"),
    allow("readv", "as read"),
    allow("recvmsg", "messages of the supervisor and the descriptors with them"),
    allow("restart_syscall", "the kernel's own, when a stopped process goes on in a wait"),
    allow("rt_sigaction", "abort() of a panic"),
    allow("rt_sigprocmask", "abort() of a panic; the signals that come through a descriptor"),
    allow("rt_sigreturn", "the return from a handler (std's for stack overflow)"),
    allow("sendmsg", "messages to the supervisor"),
    allow("sigaltstack", "std takes its handler's stack down at the end"),
    allow("signalfd4", "a changed window size comes as a signal, and that through a descriptor"),
    decide("tgkill", &[allow_if(&[Test::OwnProcess(0)])], "abort() of a panic, in itself only"),
    allow("write", "keys, output and its log"),
    allow("writev", "a panic's message"),
];

/// The terminal process's list.
pub const LIST: List = List {
    name: "terminal",
    rules: RULES,
    otherwise: Action::KillProcess,
    unknown: Action::KillProcess,
    foreign: Action::KillProcess,
};
