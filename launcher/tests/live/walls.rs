//! The walls of the sandbox, the probe that looks at them, and what becomes of a run when something ends.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::time::{Duration, Instant};

use ipc_proto::init::{NamespaceId, NamespaceKind, ProbeFailure, ProbePlan};
use ipc_proto::launcher::{Endpoints, Exceeded, FromLauncher, ToLauncher};

use crate::node::{Node, c, eventually, processes};

/// A number of seconds to sleep that no other test's sleeps are found by, nor those of the same tests as another user.
fn seconds(number: u32) -> String {
    format!("{number}.5{}", rustix::process::getuid().as_raw())
}

fn outside() -> Vec<NamespaceId> {
    let id = |kind: NamespaceKind| {
        let found = rustix::fs::stat(format!("/proc/self/ns/{}", kind.as_str())).unwrap();
        NamespaceId { kind, device: found.st_dev, inode: found.st_ino }
    };
    NamespaceKind::ALL.into_iter().map(id).collect()
}

struct Decoys {
    tcp: TcpListener,
    name: Vec<u8>,
    _abstract: UnixListener,
}

impl Decoys {
    fn new() -> Decoys {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = format!("anet-decoy-{}", tcp.local_addr().unwrap().port()).into_bytes();
        let address = UnixAddr::from_abstract_name(&name).unwrap();
        Decoys { tcp, name, _abstract: UnixListener::bind_addr(&address).unwrap() }
    }
    fn plan(&self) -> ProbePlan {
        let tcp = vec![self.tcp.local_addr().unwrap(), SocketAddr::from(([203, 0, 113, 7], 443))];
        ProbePlan { tcp, abstract_sockets: vec![self.name.clone()], outside: outside() }
    }
}

/// PRB-1: the sandbox holds what the probe asserts.
#[test]
fn the_probe_finds_nothing() {
    let (node, decoys) = (Node::start(), Decoys::new());
    let went = node.run(&node.probe(decoys.plan()));
    assert_eq!(went.probed, Some(vec![]), "{went:?} {}", node.log());
    assert!(went.failure.is_none() && went.exit.is_none());
}

/// PRB-3: a bwrap that drops an option makes the probe fail, each with its own word.
#[test]
fn a_weakened_sandbox_fails_the_probe() {
    let (node, decoys) = (Node::start(), Decoys::new());
    let weak = node.place.path().join("bwrap");
    for (dropped, words, expected) in [
        ("--unshare-net", 1, vec![ProbeFailure::SharedNamespace(NamespaceKind::Net)]),
        ("--unshare-ipc", 1, vec![ProbeFailure::SharedNamespace(NamespaceKind::Ipc)]),
        ("--unshare-cgroup", 1, vec![ProbeFailure::SharedNamespace(NamespaceKind::Cgroup)]),
        ("--remount-ro", 2, vec![ProbeFailure::Writable]),
        ("--uid", 2, vec![ProbeFailure::User]),
    ] {
        let script = format!(
            "#!/usr/bin/python3\nimport os\nargs = os.read(8, 1 << 20).split(b'\\0')[:-1]\nout = []\n\
             while args:\n    if args[0] == b'{dropped}':\n        args = args[{words}:]\n    else:\n        out.append(args.pop(0))\n\
             fd = os.memfd_create('a', 0)\nos.write(fd, b'\\0'.join(out) + b'\\0')\nos.lseek(fd, 0, 0)\nos.dup2(fd, 8, True)\n\
             os.execv('/usr/bin/bwrap', ['bwrap', '--args', '8', '--', os.sys.argv[-1]])\n"
        );
        std::fs::write(&weak, script).unwrap();
        std::fs::set_permissions(&weak, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut plan = node.probe(decoys.plan());
        plan.programs.bwrap = c(&weak);
        let went = node.run(&plan);
        let failures = went.probed.clone().unwrap_or_default();
        for failure in &expected {
            assert!(failures.contains(failure), "{dropped}: {went:?}");
        }
    }
}

/// SBX-3, SBX-4, SBX-7: the program has the walls.
#[test]
fn the_program_is_inside_the_walls() {
    let node = Node::start();
    let went = node
        .run(&node.sh("cat /proc/self/status; ls -l /proc/self/fd; cat /proc/sys/kernel/hostname; ps ax"));
    for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(went.output.contains(line), "{line}");
    }
    assert!(went.output.contains("\nanet\n"));
    // SBX-8: its own three, and the directory that is being listed.
    assert_eq!(node.run(&node.sh("ls /proc/self/fd")).output, "0\n1\n2\n3\n");
    for attack in [
        "unshare -U true",
        "mount -t tmpfs x /tmp",
        "cat /proc/keys",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sysrq-trigger",
        "cat /proc/1/environ",
        "ls /proc/1/fd",
        "kill -9 1 && sleep 1 && test ! -e /proc/1",
        "mknod n c 1 3",
        "ping -c1 127.0.0.1 >/dev/null && false",
        "python3 -c 'import socket; socket.create_connection((\"203.0.113.7\", 80), 1)'",
        "chmod u+w /etc/passwd",
        "umount /proc",
    ] {
        assert_ne!(node.run(&node.sh(attack)).status(), Some(0), "{attack}");
    }
}

/// The endpoints are made inside and accepted on outside; they come in the order egress, model.
#[test]
fn listeners_are_passed_out() {
    let node = Node::start();
    let mut plan = node.sh("exec 3<>/dev/tcp/127.0.0.1/61080; echo hello >&3; cat <&3");
    crate::node::command(&mut plan).argv[0] = c("/bin/bash");
    plan.endpoints = Endpoints { egress: true, model: true };
    let (mut reader, writer) = std::io::pipe().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    node.launch(&plan, [null.as_fd(), writer.as_fd(), writer.as_fd()]);
    drop(writer);
    let (ready, mut listeners) = node.receive();
    assert!(matches!(ready, FromLauncher::Ready { terminal: false, .. }), "{ready:?}");
    assert_eq!(listeners.len(), 2);
    let model = TcpListener::from(listeners.pop().unwrap());
    let egress = TcpListener::from(listeners.pop().unwrap());
    assert_eq!((egress.local_addr().unwrap().port(), model.local_addr().unwrap().port()), (61080, 61081));
    node.send(&ToLauncher::Go(plan.run));
    let (mut stream, _) = egress.accept().unwrap();
    let mut line = [0u8; 6];
    std::io::Read::read_exact(&mut stream, &mut line).unwrap();
    stream.write_all(b"answer\n").unwrap();
    drop(stream);
    let mut output = String::new();
    std::io::Read::read_to_string(&mut reader, &mut output).unwrap();
    assert_eq!((&line, output.as_str()), (b"hello\n", "answer\n"));
    assert!(TcpStream::connect("127.0.0.1:61080").is_err(), "it is not the host's");
    while !matches!(node.receive().0, FromLauncher::Closed { .. }) {}
}

/// LIM: growth ends the run, and is told; what is used is told too.
#[test]
fn growth_ends_the_run() {
    let node = Node::start();
    let mut plan = node.sh("head -c 200M /dev/zero > big; sleep 60");
    plan.growth = Some(50 << 20);
    let began = Instant::now();
    let went = node.run(&plan);
    assert_eq!((went.over, went.exit), (Some(Exceeded::Growth), Some(None)), "{}", node.log());
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(went.used.unwrap().growth.unwrap() > 50 << 20);
    let mut plan = node.sh("exec 3> big; rm big; head -c 200M /dev/zero >&3; sleep 60");
    plan.growth = Some(50 << 20);
    assert_eq!(node.run(&plan).over, Some(Exceeded::Growth), "removed and still open");
    for script in ["head -c 100M /dev/zero > big", "mkdir m; cd m; for i in $(seq 20000); do : > $i; done"] {
        let mut plan = node.sh(script);
        plan.growth = Some(50 << 20);
        assert_eq!(
            node.run(&plan).over,
            Some(Exceeded::Growth),
            "{script}: too quick to be seen, or empty files"
        );
    }
    let mut plan = node.here("head -c 10M /dev/zero > small");
    plan.growth = Some(50 << 20);
    let went = node.run(&plan);
    assert_eq!((went.over, went.status()), (None, Some(0)));
    assert!((10 << 20..12 << 20).contains(&went.used.unwrap().growth.unwrap()), "{went:?}");
}

/// LIM: what others write before the program starts ends no run that nobody hears of: it is told once it can be.
#[test]
fn growth_is_told_only_while_the_program_runs() {
    let node = Node::start();
    let mut plan = node.here("sleep 60");
    plan.growth = Some(1 << 20);
    let went = node.run_with(&plan, |node, message| {
        if matches!(message, FromLauncher::Ready { .. }) {
            node.file("large", &"x".repeat(4 << 20));
            // Longer than the time from one look to the next.
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    assert_eq!((went.over, went.exit), (Some(Exceeded::Growth), Some(None)));
}

/// FS-5: whatever a run leaves is removed, and nothing else.
#[test]
fn hostile_leftovers_are_removed() {
    let node = Node::start();
    let script = "import os\n\
        for i in range(3000):\n    os.mkdir('d'*40); os.symlink('/', 'l'); os.chdir('d'*40)\n\
        os.chdir('/work')\nos.mkfifo('f'); os.mkdir('closed'); os.mkdir('closed/in'); os.chmod('closed/in', 0); os.chmod('closed', 0)\n\
        open(b'\\xff\\n*', 'w'); os.symlink('/home', 'h'); os.chmod('/work', 0)\n";
    let went = node.run(&node.plan(&["python3", "-c", script]));
    assert_eq!(went.status(), Some(0), "{went:?}");
}

/// SBX-5: background processes end with the program, and everything with the launcher.
#[test]
fn nothing_survives() {
    let node = Node::start();
    let time = seconds(61);
    let script = format!("setsid sleep {time} & trap '' TERM HUP; setsid sh -c 'sleep {time}; :' & exit 3");
    let went = node.run(&node.sh(&script));
    assert_eq!(went.status(), Some(3));
    assert!(processes(&time).is_empty());

    for kill in [true, false] {
        let time = seconds(62);
        let plan = node.sh(&format!("setsid sleep {time} & sleep {time}"));
        let null = std::fs::File::open("/dev/null").unwrap();
        let node = Node::start();
        let mut plan = plan;
        plan.files.root = c(node.place.path().canonicalize().unwrap().join("runs"));
        node.launch(&plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
        assert!(matches!(node.receive().0, FromLauncher::Ready { .. }));
        node.send(&ToLauncher::Go(plan.run));
        assert!(eventually(|| !processes(&time).is_empty()));
        if kill {
            node.kill();
        } else {
            assert_eq!(node.end(), Some(0));
        }
        assert!(eventually(|| processes(&time).is_empty()));
    }
}

/// SBX-5: the launcher, bwrap or process 1 killed at any moment of a start: nobody is left, and where the launcher lives it
/// says how the run ended and goes on.
#[test]
fn nothing_survives_a_kill_at_any_moment() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let time = seconds(64);
    for round in 0..60u64 {
        let node = Node::start();
        let plan = node.sh(&format!("setsid sleep {time} & sleep {time}"));
        node.launch(&plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
        let until = Instant::now() + Duration::from_micros(round * 977 % 15_000);
        let mut went = false;
        while Instant::now() < until {
            let mut fds = [rustix::event::PollFd::new(&node.channel, rustix::event::PollFlags::IN)];
            let soon = rustix::event::Timespec { tv_sec: 0, tv_nsec: 200_000 };
            if !went && rustix::event::poll(&mut fds, Some(&soon)).unwrap() > 0 {
                assert!(matches!(node.receive().0, FromLauncher::Ready { .. }));
                node.send(&ToLauncher::Go(plan.run));
                went = true;
            }
        }
        // Every other round bwrap or what it started, as many levels below the launcher as there are.
        let victims = node.below();
        match round % 3 {
            0 => node.kill(),
            level => match victims.get(usize::try_from(level).unwrap() - 1) {
                Some(victim) => {
                    let _ = rustix::process::kill_process(*victim, rustix::process::Signal::KILL);
                    loop {
                        match node.receive().0 {
                            FromLauncher::Ready { run, .. } => node.send(&ToLauncher::Go(run)),
                            FromLauncher::Closed { .. } => break,
                            FromLauncher::Failed { .. } | FromLauncher::Exited { exit: None, .. } => {}
                            other => panic!("{other:?}"),
                        }
                    }
                    let mut plan = node.sh("exit 4");
                    plan.files.root = c(node.place.path().canonicalize().unwrap().join("runs"));
                    assert_eq!(node.run(&plan).status(), Some(4), "{}", node.log());
                }
                None => node.kill(),
            },
        }
        drop(node);
        assert!(eventually(|| processes(&time).is_empty()), "round {round}");
    }
}

/// End ends a run at any time, and the launcher goes on with others.
#[test]
fn runs_are_ended_on_request() {
    let node = Node::start();
    let ended = node.run_with(&node.sh("sleep 60"), |node, message| {
        if let FromLauncher::Ready { run, .. } = message {
            node.send(&ToLauncher::Go(*run));
            std::thread::sleep(Duration::from_millis(50));
            node.send(&ToLauncher::End(*run));
        }
    });
    drop(ended);
}

/// A bwrap that never comes up is given up, and nothing of it is left.
#[test]
fn a_start_that_hangs_is_given_up() {
    let node = Node::start();
    let slow = node.place.path().join("bwrap");
    let time = seconds(63);
    std::fs::write(&slow, format!("#!/bin/sh\nsleep {time} & sleep {time}\n")).unwrap();
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut plan = node.sh("true");
    plan.programs.bwrap = c(&slow);
    let went = node.run(&plan);
    assert!(went.failure.unwrap().text.contains("ten seconds"));
    assert!(processes(&time).is_empty());
}

/// DIA-2: bwrap's own words come with the failure.
#[test]
fn bwraps_words_are_told() {
    let node = Node::start();
    let broken = node.place.path().join("bwrap");
    std::fs::write(&broken, "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
        .unwrap();
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut plan = node.sh("true");
    plan.programs.bwrap = c(&broken);
    let failure = node.run(&plan).failure.unwrap();
    assert_eq!(failure.code, ipc_proto::Code::UsernsBlocked);
    assert_eq!(failure.text, "bwrap: setting up uid map: Permission denied");
}

/// Two runs at once do not meet.
#[test]
fn runs_are_told_apart() {
    let node = Node::start();
    let (first, second) = (node.sh("sleep 0.3; exit 1"), node.sh("ls -A /work /tmp; exit 2"));
    let null = std::fs::File::open("/dev/null").unwrap();
    let stdio = || [null.as_fd(), null.as_fd(), null.as_fd()];
    node.launch(&first, stdio());
    node.launch(&second, stdio());
    let mut ends = Vec::new();
    let mut closed = 0;
    while closed < 2 {
        match node.receive().0 {
            FromLauncher::Ready { run, .. } => node.send(&ToLauncher::Go(run)),
            FromLauncher::Exited { run, exit } => ends.push((run, exit)),
            FromLauncher::Closed { .. } => closed += 1,
            other => panic!("{other:?}"),
        }
    }
    use ipc_proto::init::Exit;
    assert_eq!(ends, [(second.run, Some(Exit::Status(2))), (first.run, Some(Exit::Status(1)))]);
}

/// PRV-5: what is not expected ends the launcher, closed, with a line in its log.
#[test]
fn unexpected_messages_end_the_launcher() {
    type Attack = fn(&Node);
    let attacks: &[(&str, Attack)] = &[
        ("a word for no run", |node| node.send(&ToLauncher::Go(node.sh("").run))),
        ("go before ready", |node| {
            let plan = node.sh("true");
            let memory = ipc_proto::bulk::seal(&plan).unwrap();
            node.channel.send(&ToLauncher::Plan(plan.run), &[memory.as_fd()]).unwrap();
            node.send(&ToLauncher::Go(plan.run));
        }),
        ("another run's plan", |node| {
            let memory = ipc_proto::bulk::seal(&node.sh("true")).unwrap();
            node.channel.send(&ToLauncher::Plan(node.sh("").run), &[memory.as_fd()]).unwrap();
        }),
        ("a plan that can be changed", |node| {
            let file = tempfile::tempfile().unwrap();
            node.channel.send(&ToLauncher::Plan(node.sh("").run), &[file.as_fd()]).unwrap();
        }),
        ("noise", |node| {
            rustix::net::send(&node.channel, b"noise", rustix::net::SendFlags::empty()).unwrap();
        }),
    ];
    for (what, attack) in attacks {
        let node = Node::start();
        attack(&node);
        let Node { channel, child, place, .. } = node;
        assert_eq!(crate::node::wait_for_end(&child), Some(70), "{what}");
        let log = std::fs::read_to_string(place.path().join("log")).unwrap();
        assert_eq!(log.lines().filter(|line| !line.contains("Landlock")).count(), 1, "{what}: {log}");
        drop(channel);
    }
}
