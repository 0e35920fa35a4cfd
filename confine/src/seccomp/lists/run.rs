//! The sandbox's own filter (SBX-4), entered by anet-init and inherited by the agent and all it starts.
//!
//! Agents run compilers, browsers, test suites: what is not named here works. Refused is, with EPERM as the kernel itself
//! would: making namespaces, mounting, looking into other processes, the kernel's own programs, keys and modules, sockets
//! that reach beyond the network namespace, typing into a terminal. ENOSYS, with which programs fall back to an older call,
//! where they probe. Nothing ends the program.

use super::super::rule::{
    Action, ENOSYS, List, REFUSE, Rule, Test, absent, allow_if, decide, refuse, refuse_if,
};

/// CLONE_NEW*, one by one below. CLONE_NEWTIME (0x80) is a part of the exit signal for clone(2), which cannot make that one.
const NAMESPACES: [u32; 7] = [
    libc::CLONE_NEWNS as u32,
    libc::CLONE_NEWCGROUP as u32,
    libc::CLONE_NEWUTS as u32,
    libc::CLONE_NEWIPC as u32,
    libc::CLONE_NEWUSER as u32,
    libc::CLONE_NEWPID as u32,
    libc::CLONE_NEWNET as u32,
];

/// What unshare(2) may undo: sharing of the table of descriptors, of the current directory, of System V semaphore values.
const NOT_NAMESPACES: u32 = (libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_SYSVSEM) as u32;

/// Typing into a terminal (TIOCSTI), the console's selection (TIOCLINUX), which does the same by pasting, and line
/// disciplines (TIOCSETD), whose modules the kernel would load for anybody. The kernel looks at 32 bits of the command.
const TERMINAL_INJECTION: &[u32] = &[libc::TIOCSTI as u32, libc::TIOCLINUX as u32, libc::TIOCSETD as u32];

/// PER_LINUX, PER_LINUX32, the same with UNAME26, and the question which is set (linux/personality.h). The others turn off
/// address space randomisation or make all memory executable.
const PERSONALITIES: &[u32] = &[0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

const UNIX: &[u32] = &[libc::AF_UNIX as u32];
const INET: &[u32] = &[libc::AF_INET as u32, libc::AF_INET6 as u32];
const NETLINK: &[u32] = &[libc::AF_NETLINK as u32];
/// The interfaces and addresses of its own namespace, as getifaddrs(3) asks for.
const ROUTE: &[u32] = &[libc::NETLINK_ROUTE as u32];
/// The low four bits of a socket's type; above them are SOCK_CLOEXEC and SOCK_NONBLOCK.
const TYPE_MASK: u32 = 0xf;
const STREAM: u32 = libc::SOCK_STREAM as u32;
const DATAGRAM: u32 = libc::SOCK_DGRAM as u32;
/// Of the kernel's protocols over IP those that programs use: SCTP, DCCP, SMC and the like would be loaded as modules.
/// Go tries MPTCP for every listener.
const STREAM_PROTOCOLS: &[u32] = &[0, libc::IPPROTO_TCP as u32, libc::IPPROTO_MPTCP as u32];
const DATAGRAM_PROTOCOLS: &[u32] = &[
    0,
    libc::IPPROTO_UDP as u32,
    libc::IPPROTO_UDPLITE as u32,
    libc::IPPROTO_ICMP as u32,
    libc::IPPROTO_ICMPV6 as u32,
];

const RULES: &[Rule] = &[
    refuse("add_key", "the kernel's key store is not part of any namespace"),
    refuse("bpf", "programs in the kernel"),
    refuse("chroot", "mounting; a way out of a directory for whoever has a descriptor"),
    decide(
        "clone",
        &[
            refuse_if(&[Test::Bits(0, NAMESPACES[0], NAMESPACES[0])]),
            refuse_if(&[Test::Bits(0, NAMESPACES[1], NAMESPACES[1])]),
            refuse_if(&[Test::Bits(0, NAMESPACES[2], NAMESPACES[2])]),
            refuse_if(&[Test::Bits(0, NAMESPACES[3], NAMESPACES[3])]),
            refuse_if(&[Test::Bits(0, NAMESPACES[4], NAMESPACES[4])]),
            refuse_if(&[Test::Bits(0, NAMESPACES[5], NAMESPACES[5])]),
            refuse_if(&[Test::Bits(0, NAMESPACES[6], NAMESPACES[6])]),
        ],
        "a new user namespace gives every capability in it, and with that most of the kernel's attack surface",
    ),
    absent("clone3", "its flags are in memory, where no filter sees them; libraries fall back to clone"),
    refuse("delete_module", "kernel modules"),
    refuse("finit_module", "kernel modules"),
    refuse("fsconfig", "the new mount interface"),
    refuse("fsmount", "the new mount interface"),
    refuse("fsopen", "the new mount interface"),
    refuse("fspick", "the new mount interface"),
    refuse("init_module", "kernel modules"),
    absent("io_uring_enter", "its operations pass no filter; programs fall back to epoll"),
    absent("io_uring_register", "its operations pass no filter; programs fall back to epoll"),
    absent("io_uring_setup", "its operations pass no filter; programs fall back to epoll"),
    decide(
        "ioctl",
        &[refuse_if(&[Test::OneOf(1, TERMINAL_INJECTION)])],
        "input for whoever reads the terminal",
    ),
    refuse("kcmp", "tells what other processes hold, and where in the kernel"),
    refuse("kexec_file_load", "another kernel"),
    refuse("kexec_load", "another kernel"),
    refuse("keyctl", "the kernel's key store is not part of any namespace"),
    refuse("modify_ldt", "16-bit segments, a long source of kernel defects, for no program of today"),
    refuse("mount", "mounting"),
    refuse("mount_setattr", "the new mount interface"),
    refuse("move_mount", "the new mount interface"),
    refuse("open_by_handle_at", "opens files beside every mount and right"),
    refuse("open_tree", "the new mount interface"),
    refuse("open_tree_attr", "the new mount interface"),
    refuse("perf_event_open", "samples of the kernel and of other processes"),
    decide(
        "personality",
        &[allow_if(&[Test::OneOf(0, PERSONALITIES)]), REFUSE],
        "turns protections of the memory off",
    ),
    refuse("pidfd_getfd", "takes descriptors out of other processes"),
    refuse("pivot_root", "mounting"),
    refuse("process_madvise", "the memory of other processes"),
    refuse("process_vm_readv", "the memory of other processes"),
    refuse("process_vm_writev", "the memory of other processes"),
    refuse("ptrace", "other processes as a whole; the kernel's largest interface between two"),
    refuse("request_key", "the kernel's key store; starts a program of the host outside the sandbox"),
    refuse("setns", "other namespaces"),
    decide(
        "socket",
        &[
            allow_if(&[Test::OneOf(0, UNIX)]),
            allow_if(&[Test::OneOf(0, NETLINK), Test::OneOf(2, ROUTE)]),
            allow_if(&[
                Test::OneOf(0, INET),
                Test::Bits(1, TYPE_MASK, STREAM),
                Test::OneOf(2, STREAM_PROTOCOLS),
            ]),
            allow_if(&[
                Test::OneOf(0, INET),
                Test::Bits(1, TYPE_MASK, DATAGRAM),
                Test::OneOf(2, DATAGRAM_PROTOCOLS),
            ]),
            REFUSE,
        ],
        "AF_VSOCK reaches the hypervisor, AF_ALG and others rarely used code of the kernel; packet and raw sockets",
    ),
    decide("socketpair", &[allow_if(&[Test::OneOf(0, UNIX)]), REFUSE], "as socket: TIPC has pairs too"),
    refuse("umount2", "mounting: what was mounted over comes to light"),
    decide("unshare", &[allow_if(&[Test::Bits(0, !NOT_NAMESPACES, 0)]), REFUSE], "new namespaces, as clone"),
    refuse("userfaultfd", "stops the kernel in the middle of a copy, which makes its races easy to win"),
];

/// The run's list.
pub const LIST: List = List {
    name: "run",
    rules: RULES,
    otherwise: Action::Allow,
    unknown: Action::Errno(ENOSYS),
    foreign: Action::Errno(ENOSYS),
};
