//! enter(role): each role as the kernel and its neighbours see it afterwards.

use std::fs::File;
use std::io::{Read, Write};

use confine::sys::spawn::{Command, Identity, Namespaces};
use confine::sys::wait::Status;
use confine::{Paths, Role, enter, privileges};

use crate::attack::attack;
use crate::harness::{Action, NOBODY, Test, outcome, root, start, status_field};

pub(crate) const TESTS: &[Test] = &[
    ("prv_3_each_role_is_as_its_manifest_says", as_the_manifest_says),
    ("prv_2_nobody_of_the_same_user_reads_a_confined_process", not_dumpable),
    ("prv_4_a_forbidden_call_ends_a_process_of_ours", forbidden_calls),
    ("prv_4_an_allowed_call_works", allowed_calls),
    ("use_1_a_panic_under_the_filter_ends_in_abort", panics),
    ("enter_refuses_a_process_with_threads", threads),
    ("prv_4_the_guard_looks_nowhere", guard),
    ("prv_4_the_launcher_signals_only_its_own", launcher),
    ("launcher_still_starts_bwrap", bwrap),
    ("prv_4_the_proxy_connects_to_its_ports_only", proxy),
    ("enter_is_quick", quick),
];

pub(crate) const CHILDREN: &[Action] = &[
    ("enter", enter_and_wait),
    ("read_neighbour", read_neighbour),
    ("attack", enter_and_attack),
    ("panic", enter_and_panic),
    ("threads", enter_with_threads),
    ("bwrap", enter_and_bwrap),
    ("proxy", enter_and_connect),
    ("quick", enter_quickly),
];

const ALLOW_LISTS: [&str; 5] = ["supervisor", "node", "proxy", "broker", "terminal"];

fn role(name: &str) -> Role {
    *Role::ALL.iter().find(|role| role.name() == name).unwrap()
}

fn nobody(command: &mut Command<'_>) {
    command.identity = Some(Identity { uid: NOBODY, gid: NOBODY });
}

/// As an ordinary user, whoever runs the tests.
fn as_a_user(command: &mut Command<'_>) {
    if root() {
        nobody(command);
    }
}

/// Enters, says so, and waits for the end of its input.
fn enter_and_wait(words: &[&str]) {
    if words[0] != "none" {
        let report = enter(role(words[0]), &Paths::default()).unwrap();
        assert_eq!(report.role, role(words[0]));
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn as_the_manifest_says() {
    for role in Role::ALL {
        let wanted = privileges(*role);
        for user in [false, true] {
            if user && !root() {
                continue;
            }
            let change = if user { nobody } else { |_: &mut Command<'_>| () };
            let mut running = start("enter", &[role.name()], change);
            assert_eq!(running.line(), "ready", "{role}: {}", running.end().text);
            let pid = running.child.pid.as_raw_nonzero();
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            assert_eq!(
                status_field(&status, "NoNewPrivs"),
                u8::from(wanted.no_new_privs).to_string(),
                "{role}"
            );
            let (mode, filters) = if wanted.seccomp.is_some() { ("2", "1") } else { ("0", "0") };
            assert_eq!(status_field(&status, "Seccomp"), mode, "{role}");
            assert_eq!(status_field(&status, "Seccomp_filters"), filters, "{role}");
            for limit in wanted.limits {
                let got = limit_of(running.child.pid, limit.resource);
                assert!(got <= limit.at_most, "{role} {:?} {got}", limit.resource);
            }
            if wanted.capabilities.is_all() {
                // Those that start the operator's own programs are as they were started.
                let own = std::fs::read_to_string("/proc/self/status").unwrap();
                let sets: &[&str] =
                    if user { &["CapInh"] } else { &["CapPrm", "CapEff", "CapBnd", "CapInh"] };
                for set in sets {
                    assert_eq!(status_field(&status, set), status_field(&own, set), "{role} {set}");
                }
                assert_eq!(running.end().status, Status::Exited(0), "{role} ends in order");
                continue;
            }
            // Root's guard keeps what its manifest names; nobody has anything to keep.
            let kept = if user || !root() { 0 } else { wanted.capabilities.bits() };
            // An ordinary user cannot empty the bounding set; no_new_privs makes it meaningless.
            let sets = if root() { &["CapPrm", "CapEff", "CapBnd"][..] } else { &["CapPrm", "CapEff"] };
            for set in sets {
                assert_eq!(status_field(&status, set), format!("{kept:016x}"), "{role} {set} {user}");
            }
            for set in ["CapInh", "CapAmb"] {
                assert_eq!(status_field(&status, set), "0000000000000000", "{role} {set}");
            }
            assert_eq!(running.end().status, Status::Exited(0), "{role} ends in order");
        }
    }
}

/// Tries what a neighbour of the same user may try.
fn read_neighbour(words: &[&str]) {
    let pid = words[0];
    let opens = |path: &str| File::open(format!("/proc/{pid}/{path}")).is_ok();
    let links = |path: &str| std::fs::read_link(format!("/proc/{pid}/{path}")).is_ok();
    let number: u64 = pid.parse().unwrap();
    let attach = crate::attack::call_with(libc::SYS_ptrace, &[libc::PTRACE_SEIZE.into(), number, 0, 0]);
    println!("{} {} {} {}", opens("mem"), opens("environ"), links("fd/0"), attach == 0);
}

fn not_dumpable() {
    for name in ["none"].into_iter().chain(Role::ALL.iter().map(|role| role.name())) {
        let mut running = start("enter", &[name], as_a_user);
        assert_eq!(running.line(), "ready");
        let pid = running.child.pid.as_raw_nonzero().to_string();
        let told = outcome("read_neighbour", &[&pid], as_a_user);
        // The unconfined one shows that the neighbour could. (Whether it may trace depends on Yama.)
        let expected = if name == "none" { "true true true" } else { "false false false false" };
        assert!(told.text.starts_with(expected), "{name}: {}", told.text);
        running.end();
    }
}

/// `attack ROLE NAME`: enters unless the role is `none`, attacks, prints the answer.
fn enter_and_attack(words: &[&str]) {
    if words[0] != "none" {
        enter(role(words[0]), &Paths::default()).unwrap();
    }
    println!("{}", attack(words[1]));
}

fn forbidden_calls() {
    let forbidden = "openat socket_unix socket_netlink socket_raw socket_packet socket_vsock execve kill_parent \
        tgkill_parent fork ptrace process_vm_readv mmap_exec prctl prlimit setresuid capset mount unshare_user clone3 \
        io_uring_setup bpf keyctl listen beyond_the_last_call i386 x32";
    for role in ALLOW_LISTS {
        for name in forbidden.split_whitespace() {
            if cfg!(not(target_arch = "x86_64")) && matches!(name, "i386" | "x32") {
                continue;
            }
            let told = outcome("attack", &[role, name], as_a_user);
            if (role, name) == ("node", "openat") {
                // It opens files of its own; its domain, without a rule here, refuses this one.
                let expected = if confine::landlock::abi() >= 1 { "-13\n" } else { &told.text };
                assert_eq!((told.status, told.text.as_str()), (Status::Exited(0), expected));
                continue;
            }
            assert_eq!(told.status, Status::Killed(libc::SIGSYS), "{role} {name}: {}", told.text);
        }
    }
    for role in ["supervisor", "node", "broker", "terminal"] {
        assert_eq!(outcome("attack", &[role, "socket_inet"], as_a_user).status, Status::Killed(libc::SIGSYS));
    }
    // Without the filter the process lives.
    for name in ["openat", "socket_unix", "fork", "mmap_exec", "execve", "kill_parent", "clone3", "x32"] {
        assert_eq!(outcome("attack", &["none", name], as_a_user).status, Status::Exited(0), "{name}");
    }
}

fn allowed_calls() {
    for role in ALLOW_LISTS {
        let told = outcome("attack", &[role, "mmap_data"], as_a_user);
        assert_eq!((told.status, told.text.as_str()), (Status::Exited(0), "1\n"), "{role}");
    }
    let told = outcome("attack", &["proxy", "socket_inet"], as_a_user);
    assert_eq!((told.status, told.text.trim().parse::<i64>().unwrap() > 2), (Status::Exited(0), true));
}

/// As a program built with `panic = "abort"`, which this one cannot be.
fn enter_and_panic(words: &[&str]) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        std::process::abort();
    }));
    enter(role(words[0]), &Paths::default()).unwrap();
    panic!("on purpose");
}

fn panics() {
    for role in Role::ALL {
        let told = outcome("panic", &[role.name()], as_a_user);
        assert_eq!(told.status, Status::Killed(libc::SIGABRT), "{role}");
        assert!(told.text.contains("on purpose"), "{role}: {}", told.text);
    }
}

fn enter_with_threads(_: &[&str]) {
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv().is_ok());
    for role in Role::ALL {
        println!("{}", enter(*role, &Paths::default()).unwrap_err());
    }
    drop(stop);
    thread.join().unwrap();
}

fn threads() {
    let told = outcome("threads", &[], |_| ());
    assert_eq!(told.status, Status::Exited(0), "{}", told.text);
    assert_eq!(told.text.matches("more than one thread").count(), Role::ALL.len(), "{}", told.text);
}

fn guard() {
    for name in ["ptrace", "process_vm_readv", "bpf", "keyctl", "socket_unix", "socket_inet", "mount", "kcmp"]
    {
        let told = outcome("attack", &["guard", name], |_| ());
        assert_eq!((told.status, told.text.as_str()), (Status::Exited(0), "-1\n"), "{name}");
    }
    for (name, answer) in [("kill_parent", "0\n"), ("fork", "1\n"), ("execve", "-2\n")] {
        assert_eq!(outcome("attack", &["guard", name], |_| ()).text, answer, "{name}");
    }
    let told = outcome("attack", &["none", "kcmp"], |_| ());
    assert_ne!(told.text, "-1\n", "the attack would work");
}

fn launcher() {
    // The test itself is the parent, and no part of the launcher's domain. As the same user, so that only the domain counts.
    assert_eq!(outcome("attack", &["none", "kill_parent"], |_| ()).text, "0\n");
    if confine::landlock::abi() >= 6 {
        assert_eq!(outcome("attack", &["launcher", "kill_parent"], |_| ()).text, "-1\n");
    }
    for name in ["fork", "unshare_user", "socket_netlink", "socket_unix"] {
        let told = outcome("attack", &["launcher", name], as_a_user);
        assert!(told.text.trim().parse::<i64>().unwrap() >= 0, "{name}: {}", told.text);
    }
    #[cfg(target_arch = "x86_64")]
    for name in ["i386", "x32"] {
        assert_eq!(outcome("attack", &["launcher", name], |_| ()).text, "-38\n", "{name}");
    }
}

fn enter_and_bwrap(_: &[&str]) {
    enter(Role::Launcher, &Paths::default()).unwrap();
    let mut bwrap = std::process::Command::new("/usr/bin/bwrap");
    bwrap.args(
        "--unshare-all --die-with-parent --cap-drop ALL --ro-bind / / --proc /proc --dev /dev".split(' '),
    );
    bwrap.args("--tmpfs /tmp --hostname box -- /bin/echo inside".split(' '));
    let output = bwrap.output().unwrap();
    std::io::stdout().write_all(&output.stdout).unwrap();
    std::io::stdout().write_all(&output.stderr).unwrap();
}

fn bwrap() {
    if !std::path::Path::new("/usr/bin/bwrap").exists() {
        eprintln!("no bwrap here: not tested");
        return;
    }
    assert_eq!(outcome("bwrap", &[], as_a_user).text, "inside\n");
    // In the namespaces that a user's guard makes, and in those of a service's.
    assert_eq!(outcome("spawn_namespaces", &["bwrap"], as_a_user).text, "inside\nExited(0)\n");
    if root() {
        let told = outcome("bwrap", &[], |command| {
            nobody(command);
            command.namespaces = Namespaces { user: false, pid: true, net: true, ..Namespaces::default() };
        });
        assert_eq!(told.text, "inside\n");
    }
}

/// `proxy ROLE PORT...`: TCP to the allowed ports, to others, and a listener; the ports are named at the start. Nobody listens on this namespace's loopback, which is
/// down.
fn enter_and_connect(words: &[&str]) {
    use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, connect, socket};
    if words[0] != "none" {
        let ports: Vec<u16> = words[1..].iter().map(|port| port.parse().unwrap()).collect();
        enter(role(words[0]), &Paths { ports: &ports, ..Paths::default() }).unwrap();
    }
    let address = |port| SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port);
    for port in [443, 53, 80, 22] {
        let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        println!("connect {port} {:?}", connect(&tcp, &address(port)).map_err(|error| error.raw_os_error()));
    }
    let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    println!("listen {:?}", bind(&tcp, &address(4430)).map_err(|error| error.raw_os_error()));
    let udp = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    println!("udp {:?}", bind(&udp, &address(0)).map_err(|error| error.raw_os_error()));
}

fn proxy() {
    if confine::landlock::abi() < 4 || !root() {
        return;
    }
    let empty = |command: &mut Command<'_>| {
        nobody(command);
        command.namespaces = Namespaces { user: false, pid: false, net: true, ..Namespaces::default() };
    };
    // ENETUNREACH is the network's answer, EACCES the domain's.
    let free = outcome("proxy", &["none"], empty).text;
    assert_eq!(free.matches("Err(101)").count(), 4, "{free}");
    assert_eq!(free.matches("Err(13)").count(), 0, "{free}");
    // With a broker the service's port is one more, and only to connect to.
    for (words, port_80) in [(&["proxy"][..], 13), (&["proxy", "80", "4430"], 101)] {
        let confined = outcome("proxy", words, empty).text;
        assert_eq!(
            confined,
            format!(
                "connect 443 Err(101)\nconnect 53 Err(101)\nconnect 80 Err({port_80})\nconnect 22 Err(13)\nlisten Err(13)\n\
                 udp Ok(())\n"
            )
        );
    }
}

fn enter_quickly(words: &[&str]) {
    let before = std::time::Instant::now();
    enter(role(words[0]), &Paths::default()).unwrap();
    println!("{}", before.elapsed().as_micros());
}

/// The time of a start is counted in milliseconds; entering must not be seen in it. The bound is far above what was
/// measured (0.1 ms), for a loaded machine.
fn quick() {
    let mut all: Vec<u64> = (0..11)
        .flat_map(|_| {
            Role::ALL.iter().map(|role| outcome("quick", &[role.name()], |_| ()).text.trim().parse().unwrap())
        })
        .collect();
    all.sort_unstable();
    println!("enter: median {} µs, longest {} µs", all[all.len() / 2], all[all.len() - 1]);
    assert!(all[all.len() / 2] < 5_000);
}

/// A live process's hard limit, from /proc.
fn limit_of(pid: rustix::process::Pid, resource: rustix::process::Resource) -> u64 {
    let name = if matches!(resource, rustix::process::Resource::Core) {
        "Max core file size"
    } else {
        "Max open files"
    };
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap();
    let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
    let values: Vec<&str> = line[name.len()..].split_whitespace().collect();
    assert_eq!(values[0], values[1], "soft and hard");
    values[1].parse().unwrap_or(u64::MAX)
}
