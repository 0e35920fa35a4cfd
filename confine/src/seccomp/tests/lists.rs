//! What the lists must and must not hold, said a second time and apart from them: a rule that goes missing is noticed.

use super::super::rule::{Action, List};
use super::{AARCH64, X86_64, answer, data};
use crate::seccomp::calls::CALLS;

const ALLOWED: u32 = 0x7fff_0000;
const KILLED: u32 = 0x8000_0000;
const NOT_PERMITTED: u32 = 0x0005_0001;
const NOT_THERE: u32 = 0x0005_0026;

/// Each answer of the list on the architectures that have the call; fails where none has.
fn expect(list: &List, name: &str, arguments: [u64; 6], expected: u32) {
    let answers = [X86_64, AARCH64].map(|architecture| answer(architecture, list, name, arguments));
    assert!(answers.iter().any(Option::is_some), "no architecture has {name}");
    for answer in answers.into_iter().flatten() {
        assert_eq!(answer, expected, "{} {name} {arguments:x?}", list.name);
    }
}

fn with(arguments: &[u64]) -> [u64; 6] {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    all
}

/// PRV-3: a reviewer finds a call where the alphabet says, once, with a reason; and it is a call.
#[test]
fn lists_are_sorted_and_argued() {
    assert!(CALLS.windows(2).all(|two| two[0].name < two[1].name));
    for list in data::ALL {
        for two in list.rules.windows(2) {
            assert!(two[0].call < two[1].call, "{}: {} before {}", list.name, two[0].call, two[1].call);
        }
        for rule in list.rules {
            assert!(CALLS.iter().any(|call| call.name == rule.call), "{}: {}", list.name, rule.call);
            assert!(rule.reason.len() > 5, "{}: {}", list.name, rule.call);
        }
    }
}

/// SBX-4: what the requirement names, by any arguments, with the answer it asks for.
#[test]
fn the_run_is_refused_what_sbx_4_names() {
    let eperm = "setns mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick \
        mount_setattr ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd init_module \
        finit_module delete_module bpf perf_event_open userfaultfd add_key request_key keyctl kexec_load \
        kexec_file_load open_by_handle_at modify_ldt";
    let enosys = "clone3 io_uring_setup io_uring_enter io_uring_register";
    for arguments in [with(&[]), [u64::MAX; 6], with(&[1, 2, 3, 4, 5, 6])] {
        for name in eperm.split_whitespace() {
            expect(&data::run::LIST, name, arguments, NOT_PERMITTED);
        }
        for name in enosys.split_whitespace() {
            expect(&data::run::LIST, name, arguments, NOT_THERE);
        }
    }
}

/// SBX-4: namespaces, alone and hidden among other flags.
#[test]
fn the_run_makes_no_namespace() {
    // CLONE_NEW: time, mount, cgroup, host name, IPC, user, process, network (linux/sched.h).
    let new = [0x80, 0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
    // Of pthread_create: CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID, CHILD_CLEARTID.
    let thread = 0x003d_0f00;
    for flag in new {
        expect(&data::run::LIST, "unshare", with(&[flag]), NOT_PERMITTED);
        expect(&data::run::LIST, "unshare", with(&[flag | 0x400]), NOT_PERMITTED);
        if flag != 0x80 {
            for flags in [flag, flag | 17, flag | thread, flag | 1 << 40] {
                expect(&data::run::LIST, "clone", with(&[flags]), NOT_PERMITTED);
            }
        }
    }
    for flags in [17, thread, 0x4111, 0x0120_0011, thread | 1 << 40] {
        expect(&data::run::LIST, "clone", with(&[flags]), ALLOWED);
    }
    // CLONE_FS, CLONE_FILES.
    for flags in [0, 0x200, 0x400, 0x600] {
        expect(&data::run::LIST, "unshare", with(&[flags]), ALLOWED);
    }
}

/// SBX-4: terminal injection, also with bits that the kernel does not look at; other commands pass.
#[test]
fn the_run_types_into_no_terminal() {
    for command in [0x5412, 0x541c, 0x5423] {
        for high in [0, 1 << 32, 0xffff_ffff << 32, 1 << 63] {
            expect(&data::run::LIST, "ioctl", with(&[0, command | high, 0]), NOT_PERMITTED);
        }
    }
    for command in [0x5401, 0x5413, 0x5410, 0x541b, 0x5421] {
        expect(&data::run::LIST, "ioctl", with(&[0, command, 0]), ALLOWED);
    }
}

/// SBX-2, SBX-4: sockets that stay in the namespace, and no others.
#[test]
fn the_run_has_ordinary_sockets_only() {
    let flags = 0o2_000_000 | 0o4000;
    let allowed = [
        (1, 1, 0), // AF_UNIX stream
        (1, 5, 0), // AF_UNIX seqpacket
        (2, 1, 0), // TCP
        (2, 1, 6),
        (2, 1, 262), // MPTCP
        (10, 2, 17), // UDP
        (2, 2, 1),   // ping
        (16, 3, 0),  // NETLINK_ROUTE
        (16, 2, 0),
    ];
    let refused = [
        (40, 1, 0),      // AF_VSOCK
        (17, 3, 0x0300), // AF_PACKET
        (17, 2, 0),
        (38, 5, 0), // AF_ALG
        (2, 3, 1),  // raw
        (2, 3, 255),
        (10, 3, 58),
        (2, 10, 0),  // SOCK_PACKET
        (2, 1, 132), // SCTP
        (2, 5, 132),
        (2, 6, 33),  // DCCP
        (2, 1, 256), // SMC
        (16, 3, 4),  // NETLINK_SOCK_DIAG
        (16, 3, 12), // NETLINK_NETFILTER
        (16, 3, 16), // NETLINK_GENERIC
        (29, 3, 1),  // AF_CAN
        (30, 1, 0),  // AF_TIPC
        (31, 5, 0),  // AF_BLUETOOTH
        (44, 3, 0),  // AF_XDP
        (0, 1, 0),
    ];
    for high in [0, 1 << 32, 0xffff_ffff << 32] {
        for (family, kind, protocol) in allowed {
            for kind in [kind, kind | flags] {
                let arguments = with(&[family | high, kind | high, protocol | high]);
                expect(&data::run::LIST, "socket", arguments, ALLOWED);
            }
        }
        for (family, kind, protocol) in refused {
            for kind in [kind, kind | flags] {
                let arguments = with(&[family | high, kind | high, protocol | high]);
                expect(&data::run::LIST, "socket", arguments, NOT_PERMITTED);
            }
        }
        expect(&data::run::LIST, "socketpair", with(&[1 | high, 1]), ALLOWED);
        expect(&data::run::LIST, "socketpair", with(&[30 | high, 1]), NOT_PERMITTED);
    }
}

/// SBX-4: address space randomisation and memory protection stay on.
#[test]
fn the_run_keeps_its_personality() {
    for allowed in [0, 8, 0x20000, 0x20008, 0xffff_ffff] {
        expect(&data::run::LIST, "personality", with(&[allowed]), ALLOWED);
    }
    for refused in [0x0004_0000, 0x0040_0000, 0x0010_0000, 4, 0x0004_0008] {
        expect(&data::run::LIST, "personality", with(&[refused]), NOT_PERMITTED);
    }
}

/// What agents, compilers and test suites use works: the list must not grow into that.
#[test]
fn the_run_can_work() {
    let names = "read write openat execve wait4 mmap mprotect futex epoll_wait epoll_pwait inotify_add_watch memfd_create \
        memfd_secret name_to_handle_at prctl seccomp landlock_restrict_self fork vfork kill tgkill setpgid setsid \
        renameat2 statx sched_setaffinity prlimit64 getrandom mknodat fallocate copy_file_range pidfd_open \
        pidfd_send_signal clock_nanosleep rseq set_robust_list mlock shmget semop msgget arch_prctl";
    for name in names.split_whitespace() {
        expect(&data::run::LIST, name, with(&[1, 2, 3]), ALLOWED);
    }
}

/// SBX-9: what the run's filter answers must come from it alone: an errno of the launcher's, entered before, would win.
#[test]
fn the_launchers_list_and_the_runs_have_no_call_in_common() {
    for rule in data::launcher::LIST.rules {
        assert!(data::run::LIST.rules.iter().all(|other| other.call != rule.call), "{}", rule.call);
    }
}

/// What bwrap needs stays open under the launcher's filter.
#[test]
fn the_launcher_can_start_bwrap() {
    let names = "clone clone3 unshare setns mount umount2 pivot_root chroot sethostname capset capget prctl bind sendto \
        setsid eventfd2 signalfd4 mkdir mkdirat symlink symlinkat execve seccomp landlock_restrict_self \
        pidfd_send_signal kill socket socketpair";
    for name in names.split_whitespace() {
        for arguments in [with(&[]), with(&[16, 3, 0]), with(&[0x7e02_0000])] {
            expect(&data::launcher::LIST, name, arguments, ALLOWED);
        }
    }
}

/// PRV-4: what no process with a list of what it may do may ever do.
#[test]
fn confined_processes_can_do_nothing_else() {
    let never = "open openat openat2 creat open_by_handle_at execve execveat fork vfork clone clone3 kill tkill \
        rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal pidfd_open pidfd_getfd ptrace process_vm_readv \
        process_vm_writev process_madvise prlimit64 setrlimit bpf perf_event_open userfaultfd keyctl add_key \
        request_key io_uring_setup io_uring_enter mount umount2 pivot_root chroot chdir setns unshare capset \
        setuid setresuid setgid setgroups prctl seccomp landlock_restrict_self unlink unlinkat rename renameat2 \
        link linkat symlink symlinkat mkdir mkdirat mknod mknodat chmod fchmodat truncate ftruncate64 socketpair \
        listen memfd_secret shmget shmat kcmp personality execve init_module reboot syslog";
    // The one that keeps files of its own: within its domain.
    let of_the_node = ["openat", "unlink", "unlinkat", "rename", "renameat"];
    for list in [
        &data::supervisor::LIST,
        &data::node::LIST,
        &data::proxy::LIST,
        &data::broker::LIST,
        &data::terminal::LIST,
    ] {
        for name in never.split_whitespace().filter(|name| CALLS.iter().any(|call| call.name == *name)) {
            if list.name == "node" && of_the_node.contains(&name) {
                expect(list, name, with(&[1, 2, 3]), ALLOWED);
                continue;
            }
            for arguments in [with(&[]), with(&[1, 2, 3]), [u64::MAX; 6]] {
                expect(list, name, arguments, KILLED);
            }
        }
        // PROT_EXEC, alone and with others.
        for protection in [4, 5, 7, 4 | 1 << 32] {
            expect(list, "mmap", with(&[0, 4096, protection, 0x22]), KILLED);
            expect(list, "mprotect", with(&[0, 4096, protection]), KILLED);
        }
        expect(list, "mmap", with(&[0, 4096, 3, 0x22]), ALLOWED);
        // Signals to itself only: abort() works, nobody else is reached.
        expect(list, "tgkill", with(&[u64::from(super::OWN), 1, 6]), ALLOWED);
        expect(list, "tgkill", with(&[u64::from(super::OWN) + 1, 1, 9]), KILLED);
        // TIOCSTI, TIOCSCTTY, TIOCSPGRP, TIOCLINUX.
        for command in [0x5412, 0x540e, 0x5410, 0x541c] {
            expect(list, "ioctl", with(&[0, command]), KILLED);
            expect(list, "ioctl", with(&[0, command | 1 << 32]), KILLED);
        }
    }
}

/// PRV-4: only the proxy has sockets, and only of TCP and UDP over IP.
#[test]
fn sockets_belong_to_the_proxy() {
    for (family, kind, protocol) in [(2, 1, 0), (2, 1, 6), (10, 1, 6), (2, 2, 0), (10, 2, 17)] {
        for kind in [kind, kind | 0o2_004_000] {
            expect(&data::proxy::LIST, "socket", with(&[family, kind, protocol]), ALLOWED);
            expect(&data::supervisor::LIST, "socket", with(&[family, kind, protocol]), KILLED);
            expect(&data::node::LIST, "socket", with(&[family, kind, protocol]), KILLED);
            expect(&data::terminal::LIST, "socket", with(&[family, kind, protocol]), KILLED);
            expect(&data::broker::LIST, "socket", with(&[family, kind, protocol]), KILLED);
            expect(&data::guard::LIST, "socket", with(&[family, kind, protocol]), NOT_PERMITTED);
        }
    }
    let refused = [
        (1, 1, 0),
        (16, 3, 0),
        (40, 1, 0),
        (17, 3, 3),
        (2, 3, 1),
        (2, 1, 132),
        (2, 2, 1),
        (10, 5, 132),
        (2, 1, 17),
        (38, 5, 0),
    ];
    for (family, kind, protocol) in refused {
        expect(&data::proxy::LIST, "socket", with(&[family, kind, protocol]), KILLED);
    }
}

/// PRV-4, MOD-1: whoever takes the broker over has the key and nowhere to carry it: no socket, no address, no file, no
/// memory that others could open by a name or run.
#[test]
fn the_broker_reaches_nobody_by_itself() {
    for name in
        "socket connect bind listen sendmmsg pipe2 splice process_madvise getdents64 readlink".split(' ')
    {
        for arguments in [with(&[]), with(&[2, 1, 6]), [u64::MAX; 6]] {
            if CALLS.iter().any(|call| call.name == name) {
                expect(&data::broker::LIST, name, arguments, KILLED);
            }
        }
    }
    // MFD_CLOEXEC with MFD_ALLOW_SEALING, and nothing else: MFD_HUGETLB, MFD_EXEC.
    expect(&data::broker::LIST, "memfd_create", with(&[0, 3]), ALLOWED);
    for flags in [0, 1, 2, 7, 0x13, 3 | 1 << 26] {
        expect(&data::broker::LIST, "memfd_create", with(&[0, flags]), KILLED);
    }
    for name in "accept4 recvmsg sendmsg mlock".split(' ') {
        expect(&data::broker::LIST, name, with(&[5]), ALLOWED);
    }
}

/// The guard still starts, waits and ends, and can look nowhere.
#[test]
fn the_guard_waits_and_ends() {
    for name in
        "clone execve execveat kill pidfd_send_signal waitid ppoll read write close".split_whitespace()
    {
        expect(&data::guard::LIST, name, with(&[0x7000_0000]), ALLOWED);
    }
    for name in
        "ptrace process_vm_readv pidfd_getfd bpf mount keyctl userfaultfd socket setns".split_whitespace()
    {
        expect(&data::guard::LIST, name, with(&[]), NOT_PERMITTED);
    }
}

/// Deny lists never end a program.
#[test]
fn programs_that_are_not_ours_are_never_killed() {
    for list in [&data::run::LIST, &data::launcher::LIST, &data::guard::LIST] {
        let arms = list.rules.iter().flat_map(|rule| rule.arms).map(|arm| arm.then);
        for action in arms.chain([list.otherwise, list.unknown, list.foreign]) {
            assert_ne!(action, Action::KillProcess, "{}", list.name);
        }
    }
}
