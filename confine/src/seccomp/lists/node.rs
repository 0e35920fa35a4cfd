//! The supervisor of a node decides as a run's does, and keeps evidence and inbox for as long as it lives: files that it opens
//! itself, within its Landlock domain. It takes clients of the control socket. It connects to nothing, starts nothing, signals
//! nobody.

use super::super::rule::{Action, List, Rule, Test, allow, allow_if, decide};

/// Commands of fcntl(2): modes, close-on-exec, the locks of the database, and the seals of the memory that long values are
/// passed in.
const FCNTL: &[u32] = &[
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
    libc::F_SETFL as u32,
    libc::F_GETLK as u32,
    libc::F_SETLK as u32,
    libc::F_SETLKW as u32,
    libc::F_OFD_GETLK as u32,
    libc::F_OFD_SETLK as u32,
    libc::F_DUPFD_CLOEXEC as u32,
    libc::F_ADD_SEALS as u32,
    libc::F_GET_SEALS as u32,
];

/// std's switch between blocking and not.
const IOCTL: &[u32] = &[libc::FIONBIO as u32];

const EXECUTABLE: u32 = libc::PROT_EXEC as u32;
const SOCKET_LEVEL: &[u32] = &[libc::SOL_SOCKET as u32];

const RULES: &[Rule] = &[
    allow("accept4", "clients of the control socket"),
    allow("access", "whether the database has a journal"),
    allow("brk", "the allocator"),
    allow("clock_gettime", "time stamps and deadlines, where the vDSO asks the kernel"),
    allow("clock_nanosleep", "a wait for a lock of the database"),
    allow("close", "descriptors that were passed on or are done with"),
    allow("exit", "the end of a thread"),
    allow("exit_group", "the end of the process"),
    allow("faccessat", "as access, where there is no such call"),
    allow("faccessat2", "as access, where there is no such call"),
    allow("fchmod", "modes of its own files, through their descriptors"),
    allow("fchown", "as root the database gives its journal the owner of its file, through the descriptor"),
    decide(
        "fcntl",
        &[allow_if(&[Test::OneOf(1, FCNTL)])],
        "modes of descriptors; locks of the database; sealed memory for long values",
    ),
    allow("fdatasync", "evidence and inbox are on disk before their effect"),
    allow("flock", "a second writer of evidence or inbox is kept out"),
    allow("fstat", "lengths of its files and of passed memory"),
    allow("fsync", "evidence and inbox, and their directories, are on disk before their effect"),
    allow("ftruncate", "the length of memory before it is sealed; a torn last line; the database's journal"),
    allow("futex", "locks of std and of the database, uncontended in one thread"),
    allow("getcwd", "the database asks where it is"),
    allow("getdents64", "the segments of the evidence; time zones"),
    allow("geteuid", "the database asks whether it is root's"),
    allow("getpid", "abort() of a panic; the database's own names"),
    allow("getrandom", "run ids; seeds of hash maps"),
    decide(
        "getsockopt",
        &[allow_if(&[Test::OneOf(1, SOCKET_LEVEL)])],
        "the type of a channel that was passed; user and groups of a client",
    ),
    allow("gettid", "abort() and the message of a panic"),
    decide("ioctl", &[allow_if(&[Test::OneOf(1, IOCTL)])], "set_nonblocking of a channel"),
    allow("lseek", "places in its files"),
    allow("madvise", "the allocator gives memory back"),
    allow("memfd_create", "memory for a long value, sealed before it is passed"),
    decide("mmap", &[allow_if(&[Test::Bits(2, EXECUTABLE, 0)])], "the allocator; never executable"),
    decide("mprotect", &[allow_if(&[Test::Bits(2, EXECUTABLE, 0)])], "the allocator; never executable"),
    allow("mremap", "the allocator moves a large block"),
    allow("munmap", "the allocator"),
    allow(
        "newfstatat",
        "whether the files that it was started from are still the same; lengths of its files",
    ),
    allow("openat", "evidence, inbox and time zones; its domain refuses all else"),
    allow("pipe2", "an agent's output, which it reads"),
    allow("poll", "its one loop"),
    allow("ppoll", "its one loop"),
    allow("pread64", "long values, evidence and the database"),
    allow("pwrite64", "long values, evidence and the database"),
    allow("read", "its files, and the descriptor that signals come from"),
    allow("readlink", "which time zone is the system's; that the database's place has no link in it"),
    allow("readlinkat", "as readlink, where there is no such call"),
    allow("readv", "as read"),
    allow("recvfrom", "as recvmsg, without descriptors"),
    allow("recvmsg", "messages and the descriptors with them"),
    allow("rename", "what is written whole replaces what was there"),
    allow("renameat", "as rename, where there is no such call"),
    allow("restart_syscall", "the kernel's own, when a stopped process goes on in a wait"),
    allow("rt_sigaction", "abort() of a panic"),
    allow("rt_sigprocmask", "abort() of a panic; the signals that come through a descriptor"),
    allow("rt_sigreturn", "the return from a handler (std's for stack overflow)"),
    allow("sendmsg", "messages and the descriptors with them"),
    allow("sigaltstack", "std takes its handler's stack down at the end"),
    allow("signalfd4", "signals come through a descriptor"),
    allow("statx", "whether the files that it was started from are still the same; lengths of its files"),
    decide("tgkill", &[allow_if(&[Test::OwnProcess(0)])], "abort() of a panic, in itself only"),
    allow("unlink", "the database's journal; old segments' indexes"),
    allow("unlinkat", "as unlink, where there is no such call"),
    allow("write", "its files and its log"),
    allow("writev", "a panic's message"),
];

/// The list of a node's supervisor.
pub const LIST: List = List {
    name: "node",
    rules: RULES,
    otherwise: Action::KillProcess,
    unknown: Action::KillProcess,
    foreign: Action::KillProcess,
};
