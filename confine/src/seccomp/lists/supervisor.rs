//! The supervisor decides: it reads and writes messages and files whose descriptors it holds. It opens nothing, connects to
//! nothing, starts nothing, signals nobody.

use super::super::rule::{Action, List, Rule, Test, allow, allow_if, decide};

/// Commands of fcntl(2): modes, close-on-exec, and the seals of the memory that long values are passed in.
const FCNTL: &[u32] = &[
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
    libc::F_SETFL as u32,
    libc::F_DUPFD_CLOEXEC as u32,
    libc::F_ADD_SEALS as u32,
    libc::F_GET_SEALS as u32,
];

/// std's switch between blocking and not.
const IOCTL: &[u32] = &[libc::FIONBIO as u32];

const EXECUTABLE: u32 = libc::PROT_EXEC as u32;
const EMPTY_PATH: u32 = libc::AT_EMPTY_PATH as u32;
const SOCKET_LEVEL: &[u32] = &[libc::SOL_SOCKET as u32];

const RULES: &[Rule] = &[
    allow("brk", "the allocator"),
    allow("clock_gettime", "time stamps and deadlines, where the vDSO asks the kernel"),
    allow("close", "descriptors that were passed on or are done with"),
    allow("exit", "the end of a thread"),
    allow("exit_group", "the end of the process"),
    allow("fchmod", "the mode of the record, through its descriptor"),
    decide(
        "fcntl",
        &[allow_if(&[Test::OneOf(1, FCNTL)])],
        "modes of descriptors; sealed memory for long values",
    ),
    allow("fdatasync", "evidence is on disk before its effect"),
    allow("fstat", "the length of passed memory and of the record"),
    allow("fsync", "evidence is on disk before its effect"),
    allow("ftruncate", "the length of memory before it is sealed; a torn last line of the evidence"),
    allow("futex", "locks of std, uncontended in one thread"),
    allow("getpid", "abort() of a panic; names in the record"),
    allow("getrandom", "run ids; seeds of hash maps"),
    decide(
        "getsockopt",
        &[allow_if(&[Test::OneOf(1, SOCKET_LEVEL)])],
        "the type of a channel that was passed",
    ),
    allow("gettid", "abort() and the message of a panic"),
    decide("ioctl", &[allow_if(&[Test::OneOf(1, IOCTL)])], "set_nonblocking of a channel"),
    allow("lseek", "the end of the evidence file"),
    allow("madvise", "the allocator gives memory back"),
    allow("memfd_create", "memory for a long value, sealed before it is passed"),
    decide("mmap", &[allow_if(&[Test::Bits(2, EXECUTABLE, 0)])], "the allocator; never executable"),
    decide("mprotect", &[allow_if(&[Test::Bits(2, EXECUTABLE, 0)])], "the allocator; never executable"),
    allow("mremap", "the allocator moves a large block"),
    allow("munmap", "the allocator"),
    decide(
        "newfstatat",
        &[allow_if(&[Test::Bits(3, EMPTY_PATH, EMPTY_PATH)])],
        "fstat() of glibc 2.33 to 2.38",
    ),
    allow("poll", "its one loop"),
    allow("ppoll", "its one loop"),
    allow("pread64", "long values and evidence"),
    allow("pwrite64", "long values and evidence"),
    allow("read", "its files, and the descriptor that signals come from"),
    allow("readv", "as read"),
    allow("recvfrom", "as recvmsg, without descriptors"),
    allow("recvmsg", "messages and the descriptors with them"),
    allow("restart_syscall", "the kernel's own, when a stopped process goes on in a wait"),
    allow("rt_sigaction", "abort() of a panic"),
    allow("rt_sigprocmask", "abort() of a panic; the signals that come through a descriptor"),
    allow("rt_sigreturn", "the return from a handler (std's for stack overflow)"),
    allow("sendmsg", "messages and the descriptors with them"),
    allow("sigaltstack", "std takes its handler's stack down at the end"),
    allow("signalfd4", "signals come through a descriptor"),
    decide(
        "statx",
        &[allow_if(&[Test::Bits(2, EMPTY_PATH, EMPTY_PATH)])],
        "the length of an open file, by std",
    ),
    decide("tgkill", &[allow_if(&[Test::OwnProcess(0)])], "abort() of a panic, in itself only"),
    allow("write", "its files and its log"),
    allow("writev", "a panic's message"),
];

/// The supervisor's list.
pub const LIST: List = List {
    name: "supervisor",
    rules: RULES,
    otherwise: Action::KillProcess,
    unknown: Action::KillProcess,
    foreign: Action::KillProcess,
};
