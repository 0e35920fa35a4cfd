//! The proxy resolves names, connects to what it verified, and passes bytes on: a tokio runtime of one thread, over
//! AF_INET and AF_INET6. It opens no file, listens nowhere, starts nothing, signals nobody. Without AF_UNIX it cannot ask
//! a service of the same user to do what it may not (Landlock stops that only from ABI 9 on).

use super::super::rule::{Action, List, Rule, Test, allow, allow_if, decide};

/// Commands of fcntl(2): modes, close-on-exec, and the size of the pipe between two splices.
const FCNTL: &[u32] = &[
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
    libc::F_SETFL as u32,
    libc::F_DUPFD_CLOEXEC as u32,
    libc::F_GETPIPE_SZ as u32,
    libc::F_SETPIPE_SZ as u32,
    libc::F_GET_SEALS as u32,
];

/// std's switch between blocking and not; how much of the outward bytes a peer has not taken yet.
const IOCTL: &[u32] = &[libc::FIONBIO as u32, libc::FIONREAD as u32, libc::TIOCOUTQ as u32];

const FAMILIES: &[u32] = &[libc::AF_INET as u32, libc::AF_INET6 as u32];
/// The low four bits of a socket's type; above them are SOCK_CLOEXEC and SOCK_NONBLOCK.
const TYPE_MASK: u32 = 0xf;
const STREAM: u32 = libc::SOCK_STREAM as u32;
const DATAGRAM: u32 = libc::SOCK_DGRAM as u32;
const TCP: &[u32] = &[0, libc::IPPROTO_TCP as u32];
const UDP: &[u32] = &[0, libc::IPPROTO_UDP as u32];

const EXECUTABLE: u32 = libc::PROT_EXEC as u32;

const RULES: &[Rule] = &[
    allow("accept4", "the run's connections, from a listener that was passed"),
    allow("bind", "a random source port for each DNS question (Landlock refuses it for TCP)"),
    allow("brk", "the allocator"),
    allow("clock_gettime", "deadlines, where the vDSO asks the kernel"),
    allow("close", "connections that ended"),
    allow("connect", "to addresses that were verified, to name servers; a UDP one to learn an own address"),
    allow("epoll_create1", "the runtime, where it is built after the filter"),
    allow("epoll_ctl", "the runtime's loop"),
    allow("epoll_pwait", "the runtime's loop, on aarch64 and by newer glibc"),
    allow("epoll_wait", "the runtime's loop"),
    allow("eventfd2", "the runtime's waker"),
    allow("exit", "the end of a thread"),
    allow("exit_group", "the end of the process"),
    decide(
        "fcntl",
        &[allow_if(&[Test::OneOf(1, FCNTL)])],
        "modes of descriptors; the size of a relay's pipe",
    ),
    allow("fstat", "the length of passed memory"),
    allow("futex", "locks of std, uncontended in one thread"),
    allow("getpeername", "the address of a connection, for the record"),
    allow("getpid", "abort() of a panic"),
    allow("getrandom", "DNS question numbers and ports; seeds of hash maps"),
    allow("getsockname", "own addresses, which no run may reach"),
    allow("getsockopt", "how a connect without waiting ended"),
    allow("gettid", "abort() and the message of a panic"),
    decide(
        "ioctl",
        &[allow_if(&[Test::OneOf(1, IOCTL)])],
        "set_nonblocking; what of a tunnel is still queued",
    ),
    allow("madvise", "the allocator gives memory back"),
    decide("mmap", &[allow_if(&[Test::Bits(2, EXECUTABLE, 0)])], "the allocator; never executable"),
    decide("mprotect", &[allow_if(&[Test::Bits(2, EXECUTABLE, 0)])], "the allocator; never executable"),
    allow("mremap", "the allocator moves a large block"),
    allow("munmap", "the allocator"),
    allow("pipe2", "the pipe between the two splices of a relay"),
    allow("poll", "a wait outside the runtime"),
    allow("ppoll", "a wait outside the runtime"),
    allow("pread64", "a run's policy in sealed memory"),
    allow("read", "a tunnel's first bytes; the runtime's waker"),
    allow("readv", "as read"),
    allow("recvfrom", "bytes of a tunnel; DNS answers"),
    allow("recvmsg", "messages of the supervisor and the listeners with them"),
    allow("restart_syscall", "the kernel's own, when a stopped process goes on in a wait"),
    allow("rt_sigaction", "abort() of a panic"),
    allow("rt_sigprocmask", "abort() of a panic"),
    allow("rt_sigreturn", "the return from a handler (std's for stack overflow)"),
    allow("sched_yield", "a spinning lock of the resolver"),
    allow("sendmsg", "messages to the supervisor"),
    allow("sendto", "bytes of a tunnel; DNS questions"),
    allow("setsockopt", "no delay, keep-alive, linger of a tunnel"),
    allow("shutdown", "one direction of a tunnel has ended"),
    allow("sigaltstack", "std takes its handler's stack down at the end"),
    decide(
        "socket",
        &[
            allow_if(&[Test::OneOf(0, FAMILIES), Test::Bits(1, TYPE_MASK, STREAM), Test::OneOf(2, TCP)]),
            allow_if(&[Test::OneOf(0, FAMILIES), Test::Bits(1, TYPE_MASK, DATAGRAM), Test::OneOf(2, UDP)]),
        ],
        "tunnels and DNS: TCP and UDP over IPv4 and IPv6, nothing else",
    ),
    allow("splice", "a relay's bytes, from kernel to kernel"),
    decide("tgkill", &[allow_if(&[Test::OwnProcess(0)])], "abort() of a panic, in itself only"),
    allow("write", "bytes of a tunnel; its log"),
    allow("writev", "a panic's message; an answer's head and body"),
];

/// The proxy's list.
pub const LIST: List = List {
    name: "proxy",
    rules: RULES,
    otherwise: Action::KillProcess,
    unknown: Action::KillProcess,
    foreign: Action::KillProcess,
};
