//! The broker serves the connections that a run makes to a listener which was passed to it, and speaks to the model's
//! service over sockets which were passed to it: a tokio runtime of one thread. It makes no socket, connects nowhere, binds
//! and listens nowhere, opens no file, starts nothing, signals nobody. Whoever takes it over has the key, and nowhere to
//! carry it but to that service.

use super::super::rule::{Action, List, Rule, Test, allow, allow_if, decide};

/// Commands of fcntl(2): modes, close-on-exec, and the seals of memory that is passed.
const FCNTL: &[u32] = &[
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
    libc::F_SETFL as u32,
    libc::F_DUPFD_CLOEXEC as u32,
    libc::F_GET_SEALS as u32,
    libc::F_ADD_SEALS as u32,
];

/// std's switch between blocking and not.
const IOCTL: &[u32] = &[libc::FIONBIO as u32];

/// MFD_CLOEXEC and MFD_ALLOW_SEALING: neither huge pages nor memory that could be executed.
const MEMFD: &[u32] = &[libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING];

const EXECUTABLE: u32 = libc::PROT_EXEC as u32;

const RULES: &[Rule] = &[
    allow("accept4", "a run's connections, from a listener that was passed"),
    allow("brk", "the allocator"),
    allow("clock_gettime", "deadlines and the validity of certificates, where the vDSO asks the kernel"),
    allow("close", "connections that ended; the key's descriptor"),
    allow("epoll_create1", "the runtime, where it is built after the filter"),
    allow("epoll_ctl", "the runtime's loop"),
    allow("epoll_pwait", "the runtime's loop, on aarch64 and by newer glibc"),
    allow("epoll_wait", "the runtime's loop"),
    allow("eventfd2", "the runtime's waker"),
    allow("exit", "the end of a thread"),
    allow("exit_group", "the end of the process"),
    decide("fcntl", &[allow_if(&[Test::OneOf(1, FCNTL)])], "modes of descriptors; seals of passed memory"),
    allow("fstat", "the length of passed memory"),
    allow("ftruncate", "the length of the memory that an answer is passed in"),
    allow("futex", "locks of std, uncontended in one thread"),
    allow("getpeername", "whether a passed socket is connected"),
    allow("getpid", "abort() of a panic"),
    allow("getrandom", "TLS; seeds of hash maps"),
    allow("getsockname", "the address of a listener: what a Host header must say"),
    allow("getsockopt", "whether a passed socket is what it should be; a socket's error"),
    allow("gettid", "abort() and the message of a panic"),
    decide("ioctl", &[allow_if(&[Test::OneOf(1, IOCTL)])], "set_nonblocking"),
    allow("madvise", "the allocator gives memory back; the key's memory is kept out of dumps"),
    decide(
        "memfd_create",
        &[allow_if(&[Test::OneOf(1, MEMFD)])],
        "the model's answer to the node's own question, which fits in no message",
    ),
    allow("mlock", "the key's memory is never written to swap"),
    decide("mmap", &[allow_if(&[Test::Bits(2, EXECUTABLE, 0)])], "the allocator; never executable"),
    decide("mprotect", &[allow_if(&[Test::Bits(2, EXECUTABLE, 0)])], "the allocator; never executable"),
    allow("mremap", "the allocator moves a large block"),
    allow("munlock", "the key's memory, wiped"),
    allow("munmap", "the allocator"),
    allow("poll", "a wait outside the runtime"),
    allow("ppoll", "a wait outside the runtime"),
    allow("pread64", "a task in sealed memory"),
    allow("pwrite64", "an answer into the memory that is passed"),
    allow("read", "the key, once; the runtime's waker"),
    allow("readv", "as read"),
    allow("recvfrom", "bytes of connections"),
    allow("recvmsg", "messages of supervisor and proxy, and the descriptors with them"),
    allow("restart_syscall", "the kernel's own, when a stopped process goes on in a wait"),
    allow("rt_sigaction", "abort() of a panic"),
    allow("rt_sigprocmask", "abort() of a panic"),
    allow("rt_sigreturn", "the return from a handler (std's for stack overflow)"),
    allow("sched_yield", "a spinning lock of a library"),
    allow("sendmsg", "messages to supervisor and proxy"),
    allow("sendto", "bytes of connections"),
    allow("setsockopt", "no delay on a connection"),
    allow("shutdown", "one direction of a connection has ended"),
    allow("sigaltstack", "std takes its handler's stack down at the end"),
    decide("tgkill", &[allow_if(&[Test::OwnProcess(0)])], "abort() of a panic, in itself only"),
    allow("write", "its log; the runtime's waker"),
    allow("writev", "heads and bodies; a panic's message"),
];

/// The broker's list.
pub const LIST: List = List {
    name: "broker",
    rules: RULES,
    otherwise: Action::KillProcess,
    unknown: Action::KillProcess,
    foreign: Action::KillProcess,
};
