//! sys::spawn: what a started program gets, and nothing else.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;

use confine::sys::spawn::{Command, Identity, Namespaces, ProcessGroup, Program, SpawnError, Step};
use confine::sys::wait::{Ask, Status, wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};

use crate::harness::{Action, NOBODY, Test, c, outcome, root, start, status_field};

pub(crate) const TESTS: &[Test] = &[
    ("spawn_gives_arguments_and_environment_exactly", arguments_and_environment),
    ("spawn_runs_a_path", runs_a_path),
    ("sbx_8_spawn_closes_every_other_descriptor", descriptors),
    ("spawn_places_descriptors_that_collide", collisions),
    ("spawn_refuses_a_number_given_twice", twice),
    ("spawn_tells_missing_forbidden_and_no_program_apart", exec_errors),
    ("spawn_resets_signals", signals),
    ("spawn_changes_the_user_for_good", identity),
    ("spawn_without_privilege_cannot_change_the_user", identity_refused),
    ("sbx_5_spawned_programs_die_with_their_parent", parent_death),
    ("sbx_5_no_moment_of_a_start_leaves_a_child_behind", parent_death_while_starting),
    ("spawn_makes_namespaces_as_root_and_as_a_user", namespaces),
    ("spawn_names_refused_namespaces", namespaces_refused),
    ("spawn_makes_a_session_with_a_terminal", session),
    ("spawn_makes_a_foreground_process_group", foreground),
    ("spawn_sets_no_new_privs_and_directory", no_new_privs_and_directory),
    ("wait_tells_stopped_killed_and_exited_apart", waits),
];

pub(crate) const CHILDREN: &[Action] = &[
    ("words", words),
    ("descriptors", list_descriptors),
    ("contents", contents),
    ("status", print_status),
    ("become_root", become_root),
    ("spawn_from_groups", spawn_from_groups),
    ("parent", be_parent),
    ("sleep", sleep),
    ("namespaces", print_namespaces),
    ("spawn_namespaces", spawn_namespaces),
    ("spawn_as_root", spawn_as_root),
    ("session", print_session),
    ("foreground", start_foreground),
    ("exit", exit),
    ("collide", collide),
];

fn exited(code: i32) -> Status {
    Status::Exited(code)
}

fn words(words: &[&str]) {
    println!("{words:?} {:?}", std::env::vars_os().collect::<Vec<_>>());
}

fn arguments_and_environment() {
    let told = outcome("words", &["a", "", "b c"], |command| command.env = vec![c("ONE=1"), c("EMPTY=")]);
    assert_eq!(told.status, exited(0));
    assert_eq!(told.text, "[\"a\", \"\", \"b c\"] [(\"ONE\", \"1\"), (\"EMPTY\", \"\")]\n");
}

fn runs_a_path() {
    let mut command = Command::new(Program::Path(c("/bin/sh")));
    command.argv = ["sh", "-c", "exit 7"].map(c).to_vec();
    let child = command.spawn().unwrap();
    assert_eq!(wait(child.pidfd.as_fd(), Ask::default()), Ok(Some(exited(7))));
}

fn exit(words: &[&str]) {
    std::process::exit(words[0].parse().unwrap());
}

/// The open descriptors, asked one by one: a listing of /proc would have one of its own.
fn list_descriptors(_: &[&str]) {
    let open = |fd: &i32| {
        // SAFETY: only asked whether it is open.
        let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
        rustix::io::fcntl_getfd(fd).is_ok()
    };
    println!("{:?}", (0..1024).filter(open).collect::<Vec<_>>());
}

fn descriptors() {
    // Inherited by an ordinary exec: not close-on-exec.
    let leaks: Vec<File> = (0..5).map(|_| File::open("/dev/null").unwrap()).collect();
    for leak in &leaks {
        rustix::io::fcntl_setfd(leak, rustix::io::FdFlags::empty()).unwrap();
    }
    let high = rustix::io::fcntl_dupfd_cloexec(&leaks[0], 500).unwrap();
    rustix::io::fcntl_setfd(&high, rustix::io::FdFlags::empty()).unwrap();
    let extra = File::open("/dev/zero").unwrap();
    assert_eq!(outcome("descriptors", &[], |_| ()).text, "[0, 1, 2]\n");
    let told = {
        let extra = extra.as_fd().try_clone_to_owned().unwrap();
        // Given for the test's length, as the command borrows it.
        let extra: &'static _ = Box::leak(Box::new(extra));
        outcome("descriptors", &[], |command| {
            command.descriptors.push((extra.as_fd(), 4));
            command.descriptors.push((extra.as_fd(), 900));
        })
    };
    assert_eq!(told.text, "[0, 1, 2, 4, 900]\n");
}

fn contents(numbers: &[&str]) {
    for number in numbers {
        let mut text = String::new();
        File::open(format!("/proc/self/fd/{number}")).unwrap().read_to_string(&mut text).unwrap();
        println!("{number} {text}");
    }
}

/// In a process of its own, where the low numbers are free: 3 goes to 4, 4 to 3, and both once more above.
fn collide(_: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let files: Vec<File> = ["three", "four"]
        .iter()
        .map(|name| {
            let path = directory.path().join(name);
            std::fs::write(&path, name).unwrap();
            File::open(path).unwrap()
        })
        .collect();
    assert_eq!([files[0].as_raw_fd(), files[1].as_raw_fd()], [3, 4]);
    let program = crate::harness::own_program();
    let mut command = Command::new(Program::Descriptor(program.as_fd()));
    command.argv = ["live", "child", "contents", "3", "4", "5", "6"].map(c).to_vec();
    command.descriptors = vec![
        (rustix::stdio::stdout(), 1),
        (rustix::stdio::stderr(), 2),
        (files[0].as_fd(), 4),
        (files[1].as_fd(), 3),
        // The number that the program itself has, and that of the pipe for the report.
        (files[0].as_fd(), 5),
        (files[1].as_fd(), 6),
    ];
    let child = command.spawn().unwrap();
    assert_eq!(wait(child.pidfd.as_fd(), Ask::default()), Ok(Some(exited(0))));
}

fn collisions() {
    let told = outcome("collide", &[], |_| ());
    assert_eq!(told.text, "3 four\n4 three\n5 three\n6 four\n");
    assert_eq!(told.status, exited(0));
}

fn twice() {
    let mut command = Command::new(Program::Path(c("/bin/true")));
    command.descriptors = vec![(rustix::stdio::stdin(), 0), (rustix::stdio::stdout(), 0)];
    let refused = SpawnError::Child { step: Step::Descriptors, errno: Errno::INVAL };
    assert_eq!(command.spawn().unwrap_err(), refused);
    command.descriptors = vec![(rustix::stdio::stdin(), -1)];
    assert_eq!(command.spawn().unwrap_err(), refused);
}

fn exec_errors() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    let try_path = |path: &str| {
        let mut command = Command::new(Program::Path(c(path)));
        command.argv = vec![c("it")];
        command.spawn().unwrap_err().exec()
    };
    assert_eq!(try_path("/nonexistent"), Some(Errno::NOENT));
    assert_eq!(try_path(text.to_str().unwrap()), Some(Errno::ACCESS));
    assert_eq!(try_path(directory.path().to_str().unwrap()), Some(Errno::ACCESS));
    std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(try_path(text.to_str().unwrap()), Some(Errno::NOEXEC));
    // What failed is not left as a zombie.
    assert_eq!(rustix::process::wait(rustix::process::WaitOptions::NOHANG).unwrap_err(), Errno::CHILD);
}

fn print_status(_: &[&str]) {
    print!("{}", std::fs::read_to_string("/proc/self/status").unwrap());
    println!("Directory:\t{}", std::env::current_dir().unwrap().display());
}

fn signals() {
    // SIGPIPE is ignored by Rust already; SIGUSR1 by us, and SIGUSR2 blocked.
    // SAFETY: a disposition without a handler.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    let mut blocked = nix::sys::signal::SigSet::empty();
    blocked.add(nix::sys::signal::Signal::SIGUSR2);
    blocked.thread_block().unwrap();
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    assert_ne!(status_field(&own, "SigIgn"), "0000000000000000");
    assert_ne!(status_field(&own, "SigBlk"), "0000000000000000");
    // A shell has no handlers before its first line, and does not ignore SIGPIPE of its own as Rust does.
    let (mut read, write) =
        pipe_with(PipeFlags::CLOEXEC).map(|(read, write)| (File::from(read), write)).unwrap();
    let mut command = Command::new(Program::Path(c("/bin/cat")));
    command.argv = ["cat", "/proc/self/status"].map(c).to_vec();
    command.descriptors = vec![(write.as_fd(), 1)];
    let child = command.spawn().unwrap();
    drop(command);
    drop(write);
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    wait(child.pidfd.as_fd(), Ask::default()).unwrap();
    for field in ["SigIgn", "SigBlk", "SigCgt"] {
        assert_eq!(status_field(&text, field), "0000000000000000", "{field}");
    }
    // Ours are as they were.
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    assert_eq!(status_field(&own, "SigBlk"), "0000000000000800");
    blocked.thread_unblock().unwrap();
}

fn nobody(command: &mut Command<'_>) {
    command.identity = Some(Identity { uid: NOBODY, gid: NOBODY });
}

fn identity() {
    if !root() {
        return;
    }
    // From a process that has supplementary groups to lose.
    let told = outcome("spawn_from_groups", &[], |_| ());
    let (before, text) = told.text.split_once("--\n").unwrap();
    assert_eq!(status_field(before, "Groups"), "4 27");
    assert_eq!(status_field(text, "Uid"), "65534\t65534\t65534\t65534");
    assert_eq!(status_field(text, "Gid"), "65534\t65534\t65534\t65534");
    assert_eq!(status_field(text, "Groups"), "");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status_field(text, set), "0000000000000000", "{set}");
    }
    assert_eq!(outcome("become_root", &[], nobody).text, "-1 -1\n");
    // The same attack by one who still may.
    assert_eq!(outcome("become_root", &[], |_| ()).text, "0 0\n");
}

fn spawn_from_groups(_: &[&str]) {
    // SAFETY: two numbers, read by the call.
    assert_eq!(unsafe { libc::setgroups(2, [4, 27].as_ptr()) }, 0);
    print!("{}", std::fs::read_to_string("/proc/self/status").unwrap());
    println!("--");
    let program = crate::harness::own_program();
    let mut command = Command::new(Program::Descriptor(program.as_fd()));
    command.argv = ["live", "child", "status"].map(c).to_vec();
    command.descriptors = vec![(rustix::stdio::stdout(), 1), (rustix::stdio::stderr(), 2)];
    nobody(&mut command);
    let child = command.spawn().unwrap();
    assert_eq!(wait(child.pidfd.as_fd(), Ask::default()), Ok(Some(exited(0))));
}

fn become_root(_: &[&str]) {
    let uid = crate::attack::call_with(libc::SYS_setresuid, &[0, 0, 0]);
    let gid = crate::attack::call_with(libc::SYS_setresgid, &[0, 0, 0]);
    println!("{uid} {gid}");
}

fn identity_refused() {
    let told = outcome("spawn_as_root", &[], |command| {
        if root() {
            nobody(command);
        }
    });
    assert_eq!(
        told.text,
        "Err(Child { step: Identity, errno: Os { code: 1, kind: PermissionDenied, message: \"Operation not permitted\" } })\n"
    );
}

fn spawn_as_root(_: &[&str]) {
    let mut command = Command::new(Program::Path(c("/bin/true")));
    command.identity = Some(Identity { uid: 0, gid: 0 });
    println!("{:?}", command.spawn().map(|_| ()));
}

/// A parent that starts a sleeper and then is killed or ends, as its words say.
fn be_parent(words: &[&str]) {
    let program = crate::harness::own_program();
    let mut command = Command::new(Program::Descriptor(program.as_fd()));
    command.argv = ["live", "child", "sleep"].map(c).to_vec();
    // The sleeper holds our standard output: whoever reads it sees the end of both.
    command.descriptors = vec![(rustix::stdio::stdout(), 1)];
    command.parent_death_signal = words.contains(&"tied");
    command.namespaces.pid = words.contains(&"pid");
    command.namespaces.user = words.contains(&"user");
    if words.contains(&"nobody") {
        command.identity = Some(Identity { uid: NOBODY, gid: NOBODY });
    }
    let child = command.spawn().unwrap();
    println!("{}", child.pid.as_raw_nonzero());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn sleep(_: &[&str]) {
    std::thread::sleep(std::time::Duration::from_secs(20));
}

/// Whether the sleeper is gone soon after its parent.
fn sleeper_dies(words: &[&str], kill: bool, change: fn(&mut Command<'_>)) -> bool {
    let mut parent = start("parent", words, change);
    let sleeper: i32 = parent.line().parse().unwrap();
    let sleeper = rustix::process::Pid::from_raw(sleeper).unwrap();
    let sleeper = rustix::process::pidfd_open(sleeper, rustix::process::PidfdFlags::empty()).unwrap();
    if kill {
        pidfd_send_signal(&parent.child.pidfd, Signal::KILL).unwrap();
    } else {
        drop(std::mem::replace(&mut parent.input, File::open("/dev/null").unwrap().into()));
    }
    wait(parent.child.pidfd.as_fd(), Ask::default()).unwrap();
    let mut ends = [PollFd::new(&sleeper, PollFlags::IN)];
    let gone = poll(&mut ends, Some(&Timespec { tv_sec: 2, tv_nsec: 0 })).unwrap() == 1;
    if !gone {
        pidfd_send_signal(&sleeper, Signal::KILL).unwrap();
    }
    gone
}

fn parent_death() {
    for kill in [true, false] {
        // Without it the sleeper survives: the test can see one.
        assert!(!sleeper_dies(&[], kill, |_| ()));
        assert!(sleeper_dies(&["tied"], kill, |_| ()));
        assert!(sleeper_dies(&["tied", "user", "pid"], kill, |_| ()));
        if root() {
            assert!(
                sleeper_dies(&["tied", "nobody"], kill, |_| ()),
                "a root parent may end any user's child"
            );
            assert!(sleeper_dies(&["tied", "nobody", "pid"], kill, |_| ()));
            assert!(sleeper_dies(&["tied"], kill, nobody));
            assert!(sleeper_dies(&["tied", "user", "pid"], kill, nobody));
        }
    }
}

/// The parent is killed at 120 moments spread over the time in which it starts its child. Who is left would hold our pipe.
fn parent_death_while_starting() {
    const MOMENTS: u64 = 120;
    const LONGEST_MICROSECONDS: u64 = 10_000;
    for words in [&["tied", "user", "pid"][..], &["tied"]] {
        let mut started = 0;
        for moment in 0..MOMENTS {
            let parent = start("parent", words, |_| ());
            std::thread::sleep(std::time::Duration::from_micros(moment * LONGEST_MICROSECONDS / MOMENTS));
            pidfd_send_signal(&parent.child.pidfd, Signal::KILL).unwrap();
            let output = parent.output();
            let mut ends = [PollFd::new(&output, PollFlags::IN)];
            let mut read = [0; 64];
            loop {
                let ready = poll(&mut ends, Some(&Timespec { tv_sec: 3, tv_nsec: 0 })).unwrap();
                assert_eq!(ready, 1, "somebody is left after {words:?}, moment {moment}");
                if rustix::io::read(&output, &mut read).unwrap() == 0 {
                    break;
                }
                started += 1;
            }
        }
        assert!(started > 0 && started < MOMENTS, "the moments lie before and after the start: {started}");
    }
}

fn print_namespaces(_: &[&str]) {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    let groups = std::fs::read_to_string("/proc/self/setgroups").unwrap();
    let interfaces = std::fs::read_to_string("/proc/self/net/dev").unwrap().lines().count() - 2;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!(
        "pid {} parent {:?} map {} setgroups {} interfaces {interfaces} caps {} {}",
        rustix::process::getpid().as_raw_nonzero(),
        rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get() == 0),
        map.split_whitespace().collect::<Vec<_>>().join(" "),
        groups.trim(),
        status_field(&status, "CapPrm"),
        status_field(&status, "CapBnd"),
    );
}

/// Starts this program with an action in all namespaces, as an ordinary user's guard starts the launcher.
fn spawn_namespaces(words: &[&str]) {
    let program = crate::harness::own_program();
    let mut command = Command::new(Program::Descriptor(program.as_fd()));
    command.argv = ["live", "child", words[0]].map(c).to_vec();
    command.descriptors = vec![(rustix::stdio::stdout(), 1), (rustix::stdio::stderr(), 2)];
    command.namespaces = Namespaces { user: true, pid: true, net: true, ..Namespaces::default() };
    command.parent_death_signal = true;
    match command.spawn() {
        Ok(child) => println!("{:?}", wait(child.pidfd.as_fd(), Ask::default()).unwrap().unwrap()),
        Err(error) => println!("{error:?}"),
    }
}

fn namespaces() {
    if root() {
        let told = outcome("spawn_namespaces", &["namespaces"], nobody);
        assert_eq!(
            told.text,
            "pid 1 parent None map 65534 65534 1 setgroups deny interfaces 1 caps 0000000000000000 0000000000000000\nExited(0)\n"
        );
        // As root without a user namespace, as a service does.
        let told = outcome("namespaces", &[], |command| {
            nobody(command);
            command.namespaces = Namespaces { user: false, pid: true, net: true, ..Namespaces::default() };
        });
        assert!(told.text.starts_with("pid 1 parent None map 0 0 4294967295 "), "{}", told.text);
        assert!(
            told.text.ends_with("interfaces 1 caps 0000000000000000 0000000000000000\n"),
            "{}",
            told.text
        );
    } else {
        let told = outcome("spawn_namespaces", &["namespaces"], |_| ());
        assert!(told.text.starts_with("pid 1 parent None map "), "{}", told.text);
    }
}

fn namespaces_refused() {
    // An ordinary user without a user namespace; a user namespace under the run's filter. The second is refused for root
    // too, so that the first cannot hide it.
    let told = outcome("refused_namespaces", &[], |command| {
        if root() {
            nobody(command);
        }
    });
    assert_eq!(told.text.matches("NamespacesRefused").count(), 2, "{}", told.text);
}

fn print_session(_: &[&str]) {
    let own = rustix::process::getpid();
    let terminal = open("/dev/tty", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    println!(
        "session {} group {} terminal {} foreground {}",
        rustix::process::getsid(None) == Ok(own),
        rustix::process::getpgrp() == own,
        terminal.is_ok(),
        terminal.is_ok_and(|terminal| rustix::termios::tcgetpgrp(terminal) == Ok(own)),
    );
}

/// A pseudo-terminal, both ends.
pub(crate) fn pseudo_terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let near = openpt(flags).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let far = ioctl_tiocgptpeer(&near, flags).unwrap();
    (File::from(near), File::from(far))
}

fn session() {
    let (_near, far) = pseudo_terminal();
    let far: &'static File = Box::leak(Box::new(far));
    let told = outcome("session", &[], |command| {
        command.descriptors.push((far.as_fd(), 3));
        command.new_session = true;
        command.controlling_terminal = Some(3);
    });
    assert_eq!(told.text, "session true group true terminal true foreground true\n");
    let told = outcome("session", &[], |command| command.new_session = true);
    assert_eq!(told.text, "session true group true terminal false foreground false\n");
    // What is no terminal cannot become one.
    let mut command = Command::new(Program::Path(c("/bin/true")));
    command.new_session = true;
    command.controlling_terminal = Some(0);
    let null = File::open("/dev/null").unwrap();
    command.descriptors = vec![(null.as_fd(), 0)];
    let refused = SpawnError::Child { step: Step::Terminal, errno: Errno::NOTTY };
    assert_eq!(command.spawn().unwrap_err(), refused);
}

/// In a session of its own: a job that becomes the foreground, started by a shell that then is in the background.
fn start_foreground(_: &[&str]) {
    let program = crate::harness::own_program();
    let mut command = Command::new(Program::Descriptor(program.as_fd()));
    command.argv = ["live", "child", "session"].map(c).to_vec();
    // SAFETY: this process was started with a terminal there.
    let terminal = unsafe { BorrowedFd::borrow_raw(3) };
    command.descriptors = vec![(rustix::stdio::stdout(), 1), (rustix::stdio::stderr(), 2), (terminal, 0)];
    command.process_group = Some(ProcessGroup::New);
    command.controlling_terminal = Some(0);
    for _ in 0..2 {
        // The second time we are in the background ourselves.
        let child = command.spawn().unwrap();
        assert_eq!(wait(child.pidfd.as_fd(), Ask::default()), Ok(Some(exited(0))));
    }
}

fn foreground() {
    let (_near, far) = pseudo_terminal();
    let far: &'static File = Box::leak(Box::new(far));
    let told = outcome("foreground", &[], |command| {
        command.descriptors.push((far.as_fd(), 3));
        command.new_session = true;
        command.controlling_terminal = Some(3);
    });
    assert_eq!(told.text, "session false group true terminal true foreground true\n".repeat(2));
}

fn no_new_privs_and_directory() {
    let told = outcome("status", &[], |command| {
        command.no_new_privs = true;
        command.working_directory = Some(c("/usr"));
    });
    assert_eq!(status_field(&told.text, "NoNewPrivs"), "1");
    assert_eq!(status_field(&told.text, "Directory"), "/usr");
    assert_eq!(status_field(&outcome("status", &[], |_| ()).text, "NoNewPrivs"), "0");
    if root() {
        // The directory is entered as the child's user.
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = Command::new(Program::Path(c("/bin/true")));
        command.working_directory = Some(c(directory.path().to_str().unwrap()));
        assert!(command.spawn().is_ok());
        nobody(&mut command);
        let refused = SpawnError::Child { step: Step::Directory, errno: Errno::ACCESS };
        assert_eq!(command.spawn().unwrap_err(), refused);
    }
}

fn waits() {
    let sleeper = start("sleep", &[], |_| ());
    let fd = sleeper.child.pidfd.as_fd();
    let ask = Ask { no_hang: true, stopped: true };
    assert_eq!(wait(fd, ask), Ok(None));
    pidfd_send_signal(fd, Signal::STOP).unwrap();
    assert_eq!(wait(fd, Ask { no_hang: false, stopped: true }), Ok(Some(Status::Stopped(libc::SIGSTOP))));
    pidfd_send_signal(fd, Signal::KILL).unwrap();
    assert_eq!(wait(fd, Ask::default()), Ok(Some(Status::Killed(libc::SIGKILL))));
    assert_eq!(outcome("exit", &["9"], |_| ()).status, exited(9));
    std::io::stdout().flush().unwrap();
}
