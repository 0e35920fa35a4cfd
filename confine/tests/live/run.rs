//! The run's filter (SBX-4), live.

use std::os::fd::AsRawFd;

use confine::seccomp;
use confine::sys::spawn::{Command, Namespaces, Program};
use confine::sys::wait::Status;

use crate::attack::{attack, call_with};
use crate::harness::{Action, NOBODY, Test, c, outcome, root};

pub(crate) const TESTS: &[Test] = &[
    ("sbx_4_refused_calls_answer_and_do_not_kill", refused),
    ("sbx_4_terminal_injection_is_refused", terminal_injection),
    ("sbx_4_programs_work_under_the_filter", programs_work),
    ("sbx_4_threads_work_without_clone3", threads),
    ("sbx_4_the_filter_lies_under_the_launchers", both_filters),
];

pub(crate) const CHILDREN: &[Action] = &[
    ("run_attack", run_attack),
    ("type_into_terminal", type_into_terminal),
    ("run_sh", run_sh),
    ("run_threads", run_threads),
    ("refused_namespaces", refused_namespaces),
    ("both", both),
];

fn confine() {
    rustix::thread::set_no_new_privs(true).unwrap();
    seccomp::install_run().unwrap();
}

fn as_a_user(command: &mut Command<'_>) {
    if root() {
        command.identity = Some(confine::sys::spawn::Identity { uid: NOBODY, gid: NOBODY });
    }
}

/// `run_attack no|run NAME`.
fn run_attack(words: &[&str]) {
    if words[0] == "run" {
        confine();
    }
    println!("{}", attack(words[1]));
}

fn refused() {
    const EPERM: i64 = -1;
    const ENOSYS: i64 = -38;
    // Whether the same attack by the same user gets another answer without the filter, on any kernel.
    let attacks = [
        ("unshare_user", EPERM, true),
        ("clone_user", EPERM, true),
        ("clone3", ENOSYS, true),
        ("mount", EPERM, false),
        ("ptrace", EPERM, true),
        ("process_vm_readv", EPERM, true),
        ("kcmp", EPERM, true),
        ("socket_raw", EPERM, false),
        ("socket_packet", EPERM, false),
        ("socket_vsock", EPERM, false),
        ("socket_alg", EPERM, false),
        ("socket_netlink_high_bits", EPERM, false),
        ("io_uring_setup", ENOSYS, false),
        ("bpf", EPERM, false),
        ("keyctl", EPERM, true),
        ("perf_event_open", EPERM, true),
        ("userfaultfd", EPERM, false),
        ("open_by_handle_at", EPERM, false),
        ("personality", EPERM, true),
        ("beyond_the_last_call", ENOSYS, false),
        #[cfg(target_arch = "x86_64")]
        ("x32", ENOSYS, false),
        #[cfg(target_arch = "x86_64")]
        ("i386", ENOSYS, true),
    ];
    for (name, answer, differs) in attacks {
        let told = outcome("run_attack", &["run", name], as_a_user);
        assert_eq!((told.status, told.text), (Status::Exited(0), format!("{answer}\n")), "{name}");
        let free = outcome("run_attack", &["no", name], as_a_user);
        if differs {
            assert_ne!(free.text, format!("{answer}\n"), "{name} would fail anyway");
        }
    }
    for name in ["socket_inet", "socket_unix", "socket_netlink", "fork", "mmap_exec", "openat", "prctl"] {
        let told = outcome("run_attack", &["run", name], as_a_user);
        assert!(told.text.trim().parse::<i64>().unwrap() >= 0, "{name} {}", told.text);
    }
}

/// Types a letter into its own controlling terminal.
fn type_into_terminal(words: &[&str]) {
    if words[0] == "run" {
        confine();
    }
    let letter = b'x';
    let terminal = 3u64;
    for high in [0, 1 << 32, 0xffff_ffff << 32] {
        let command = libc::TIOCSTI | high;
        println!("{}", call_with(libc::SYS_ioctl, &[terminal, command, &raw const letter as u64]));
    }
}

fn terminal_injection() {
    let (near, far) = crate::spawn::pseudo_terminal();
    let far: &'static std::fs::File = Box::leak(Box::new(far));
    let with_terminal = |command: &mut Command<'_>| {
        command.descriptors.push((std::os::fd::AsFd::as_fd(far), 3));
        command.new_session = true;
        command.controlling_terminal = Some(3);
    };
    // Kernels since 6.2 may refuse it to all (EIO) but those with CAP_SYS_ADMIN: as whoever runs the tests.
    let free = outcome("type_into_terminal", &["no"], with_terminal).text;
    assert!(!free.contains("-1\n"), "the attack would get another answer: {free}");
    let told = outcome("type_into_terminal", &["run"], with_terminal);
    assert_eq!((told.status, told.text.as_str()), (Status::Exited(0), "-1\n-1\n-1\n"));
    assert!(near.as_raw_fd() > 2);
}

fn run_sh(words: &[&str]) {
    confine();
    let mut command = Command::new(Program::Path(c("/bin/sh")));
    command.argv = ["sh", "-c", words[0]].map(c).to_vec();
    command.env = vec![c("PATH=/usr/bin:/bin")];
    command.descriptors = vec![(rustix::stdio::stdout(), 1), (rustix::stdio::stderr(), 2)];
    let child = command.spawn().unwrap();
    let status = confine::sys::wait::wait(std::os::fd::AsFd::as_fd(&child.pidfd), Default::default());
    println!("{:?}", status.unwrap().unwrap());
}

fn programs_work() {
    let script =
        "for i in 1 2 3; do (echo $i | cat) & wait; done; ls / >/dev/null && uname >/dev/null && exit 3";
    assert_eq!(outcome("run_sh", &[script], as_a_user).text, "1\n2\n3\nExited(3)\n");
}

fn run_threads(_: &[&str]) {
    confine();
    let thread = std::thread::spawn(|| attack("unshare_user"));
    println!("{}", thread.join().unwrap());
}

fn threads() {
    let told = outcome("run_threads", &[], |_| ());
    assert_eq!((told.status, told.text.as_str()), (Status::Exited(0), "-1\n"));
}

/// What a caller gets where namespaces are forbidden.
fn refused_namespaces(_: &[&str]) {
    let mut command = Command::new(Program::Path(c("/bin/true")));
    command.argv = vec![c("true")];
    command.namespaces = Namespaces { user: false, pid: true, net: false, ..Namespaces::default() };
    println!("{:?}", command.spawn().map(|_| ()));
    confine();
    command.namespaces = Namespaces { user: true, pid: false, net: false, ..Namespaces::default() };
    println!("{:?}", command.spawn().map(|_| ()));
    command.namespaces = Namespaces::default();
    assert!(command.spawn().is_ok(), "and goes on without");
}

/// As in the sandbox: the launcher's filter, then the run's.
fn both(words: &[&str]) {
    confine::enter(confine::Role::Launcher, &confine::Paths::default()).unwrap();
    confine();
    println!("{}", attack(words[0]));
}

fn both_filters() {
    for (name, answer) in
        [("keyctl", "-1\n"), ("clone3", "-38\n"), ("fork", "1\n"), ("beyond_the_last_call", "-38\n")]
    {
        assert_eq!(outcome("both", &[name], as_a_user).text, answer, "{name}");
    }
}
