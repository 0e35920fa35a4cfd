//! FS-3: work directories of peers' tasks, which outlive their runs.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use ipc_proto::Code;
use ipc_proto::launcher::{FromLauncher, LaunchPlan, ToLauncher};

use crate::node::{Node, c, command, eventually};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Makes it look as if its last run had ended so long ago.
fn age(path: &Path, ago: Duration) {
    let lock = fs::File::options().write(true).open(path.join("lock")).unwrap();
    lock.set_modified(SystemTime::now() - ago).unwrap();
}

/// Starts it and waits until its program does what says that it runs.
fn start(node: &Node, plan: &LaunchPlan, runs: impl Fn() -> bool) {
    let null = fs::File::open("/dev/null").unwrap();
    node.launch(plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
    match node.receive().0 {
        FromLauncher::Ready { run, .. } => node.send(&ToLauncher::Go(run)),
        other => panic!("{other:?}"),
    }
    assert!(eventually(runs), "{}", node.log());
}

fn wait_for_closed(node: &Node) {
    while !matches!(node.receive().0, FromLauncher::Closed { .. }) {}
}

/// FS-3: a later run of a task finds what the last one left in /work, and everything else is new.
#[test]
fn work_stays_and_the_rest_is_fresh() {
    let node = Node::start();
    let script = "pwd; cat /work/* 2>/dev/null; ls -A $HOME $TMPDIR; echo one > file; echo x > $HOME/h; echo x > $TMPDIR/t";
    let first = node.run(&node.kept("a", "i1", script));
    assert_eq!(first.output, "/work\n/home/anet:\n\n/tmp:\n", "{}", node.log());
    assert_eq!(node.run(&node.kept("a", "i1", script)).output, "/work\none\n/home/anet:\n\n/tmp:\n");
    for (peer, interaction) in [("a", "i2"), ("b", "i1")] {
        assert_eq!(node.run(&node.kept(peer, interaction, "ls -A /work")).output, "", "another task's");
    }
    let at = node.kept_at("a", "i1");
    assert_eq!(fs::read_to_string(at.join("work/file")).unwrap(), "one\n");
    let mut names: Vec<_> = fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["lock", "work"]);
    assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(node.log(), "");
}

/// FS-3, FS-5: a run cannot reach what says how old its directory is and whether it is in use.
#[test]
fn a_run_sees_its_work_and_nothing_around_it() {
    let node = Node::start();
    let script = "ls -A ..; ls -A /work/../..| grep -c peer; mv /work /w || rmdir /work; \
                  touch -d 1990-01-01 . ; find / -xdev -name lock 2>/dev/null; chmod 0 /work";
    let went = node.run(&node.kept("a", "i1", script));
    assert!(!went.output.contains("peer-") && !went.output.contains("lock"), "{}", went.output);
    let lock = fs::metadata(node.kept_at("a", "i1").join("lock")).unwrap();
    assert!(lock.modified().unwrap().elapsed().unwrap() < Duration::from_secs(60));
    // It shut itself out, and its task is not shut out by that.
    assert_eq!(node.run(&node.kept("a", "i1", "echo back > x; cat x")).output, "back\n");
}

/// FS-3: one run of a task at a time; the second fails, the first goes on, and a third may come when it has ended.
#[test]
fn two_runs_of_one_task_do_not_meet() {
    let node = Node::start();
    let at = node.kept_at("a", "i1");
    start(&node, &node.kept("a", "i1", "touch on; while ! test -e go; do sleep 0.02; done"), || {
        at.join("work/on").exists()
    });
    let null = fs::File::open("/dev/null").unwrap();
    let second = node.kept("a", "i1", "touch second");
    node.launch(&second, [null.as_fd(), null.as_fd(), null.as_fd()]);
    match node.receive().0 {
        FromLauncher::Failed { run, failure } => {
            assert_eq!((run, failure.code), (second.run, Code::StateUnusable));
            assert!(failure.text.contains("another run of this task"), "{}", failure.text);
        }
        other => panic!("{other:?}"),
    }
    wait_for_closed(&node);
    assert_eq!(node.left().len(), 1, "only the first one's");
    fs::write(at.join("work/go"), "").unwrap();
    wait_for_closed(&node);
    assert_eq!(node.run(&node.kept("a", "i1", "ls")).output, "go\non\n");
}

/// SBX-5, FS-3: the launcher is killed: no process is left, home and temporary directory go at the next start, the work stays
/// and can be worked in again at once.
#[test]
fn work_survives_a_kill() {
    let node = Node::start();
    let at = node.kept_at("a", "i1");
    let script = format!("echo x > $HOME/h; touch on; sleep 61.7{}", rustix::process::getuid().as_raw());
    start(&node, &node.kept("a", "i1", &script), || at.join("work/on").exists());
    assert_eq!(node.left().len(), 1);
    node.kill();
    assert!(eventually(|| crate::node::processes(&script).is_empty()));
    let Node { place, .. } = node;
    let again = Node::start_in(place);
    let null = fs::File::open("/dev/null").unwrap();
    let plan = again.kept("a", "i1", "mv on off; ls -A $HOME > seen");
    again.launch(&plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
    match again.receive().0 {
        FromLauncher::Ready { run, .. } => again.send(&ToLauncher::Go(run)),
        other => panic!("{other:?}"),
    }
    wait_for_closed(&again);
    assert!(eventually(|| again.left().is_empty()), "{:?}", again.left());
    assert!(at.join("work/off").exists());
    assert_eq!(fs::read_to_string(at.join("work/seen")).unwrap(), "");
}

/// SBX-5: a start that fails leaves nothing behind, and takes nothing that was there.
#[test]
fn a_failed_start_leaves_nothing() {
    let node = Node::start();
    let failing = |interaction: &str| {
        let mut plan = node.kept("a", interaction, "true");
        plan.programs.bwrap = c("/no/bwrap");
        plan
    };
    assert_eq!(node.run(&failing("i1")).failure.unwrap().code, Code::NoBwrap);
    assert!(!node.kept_at("a", "i1").parent().unwrap().exists());
    node.run(&node.kept("a", "i1", "echo x > file"));
    assert!(node.run(&failing("i1")).failure.is_some());
    assert!(node.run(&failing("i2")).failure.is_some());
    assert!(node.kept_at("a", "i1").join("work/file").exists());
    assert!(!node.kept_at("a", "i2").exists());
}

/// FS-3, FS-5: what a run can leave to make a sweep or a later run reach outside.
#[test]
fn hostile_work_harms_nobody() {
    let node = Node::start();
    let outside = node.file("outside/kept", "x");
    let script = format!(
        "ln -s {0} out; ln -s {0}/kept kept; ln -s .. up; ln -s / root; mkfifo fifo; mkdir -p a/b/c; touch a/b/c/f; \
         ln a/b/c/f hard; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\"; \
         touch \"$(printf 'bad\\nname\\377 -rf *')\" lock placeholders; mkdir work home tmp; truncate -s 1T sparse; \
         python3 -c \"import os\nfor i in range(600): os.mkdir('d' * 28); os.chdir('d' * 28)\"; \
         i=0; while test $i -lt 3000; do : > f$i; i=$((i+1)); done; chmod 0 a/b a; echo made",
        outside.parent().unwrap().display()
    );
    let went = node.run(&node.kept("a", "i1", &script));
    assert_eq!(went.output, "made\n", "{}", node.log());
    // A later run, measured too, gets through it.
    let mut later = node.kept("a", "i1", "ls | wc -l");
    later.growth = Some(1 << 30);
    assert!(node.run(&later).output.trim().parse::<u32>().unwrap() > 3000);
    let at = node.kept_at("a", "i1");
    symlink(outside.parent().unwrap(), at.parent().unwrap().join("i2")).unwrap();
    age(&at, 8 * DAY);
    assert_eq!(node.sweep(7 * DAY), (1, 0), "{}", node.log());
    assert!(!at.exists() && outside.exists());
    assert_eq!(fs::read_to_string(&outside).unwrap(), "x");
}

/// FS-3: a sweep takes what is old, and never what a run works in; the run's own end counts, not its start.
#[test]
fn a_sweep_takes_what_is_old_and_idle() {
    let node = Node::start();
    node.run(&node.kept("a", "old", "echo x > file"));
    node.run(&node.kept("a", "young", "echo x > file"));
    let busy = node.kept_at("b", "busy");
    let plan = node.kept("b", "busy", "touch on; while ! test -e go; do sleep 0.02; done");
    start(&node, &plan, || busy.join("work/on").exists());
    age(&node.kept_at("a", "old"), 8 * DAY);
    age(&busy, 8 * DAY);
    assert_eq!(node.sweep(7 * DAY), (1, 0), "{}", node.log());
    assert!(!node.kept_at("a", "old").exists() && node.kept_at("a", "young").exists());
    assert!(busy.join("work/on").exists());
    let noted = fs::metadata(busy.join("lock")).unwrap().modified().unwrap();
    assert!(noted.elapsed().unwrap() < DAY, "a run that goes on says so at every sweep");
    age(&busy, 8 * DAY);
    fs::write(busy.join("work/go"), "").unwrap();
    wait_for_closed(&node);
    assert_eq!(node.sweep(7 * DAY), (0, 0), "it has ended just now");
    age(&busy, 8 * DAY);
    assert_eq!(node.sweep(7 * DAY), (1, 0));
    assert!(!busy.parent().unwrap().exists(), "the peer's own directory too");
    assert_eq!(node.sweep(Duration::MAX.min(900 * DAY)), (0, 0));
}

/// FS-3: a node that is never idle gets on with a sweep, and its runs start meanwhile.
#[test]
fn a_sweep_gets_on_beside_runs() {
    let node = Node::start();
    node.run(&node.kept(
        "a",
        "large",
        "mkdir d; cd d; i=0; while test $i -lt 20000; do : > f$i; i=$((i+1)); done",
    ));
    age(&node.kept_at("a", "large"), 8 * DAY);
    // Never idle: a run that waits for a bwrap that does not answer.
    let shim = node.file("bwrap", "#!/bin/sh\nexec sleep 60\n");
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).unwrap();
    let null = fs::File::open("/dev/null").unwrap();
    let mut waiting = Vec::new();
    let wait = |waiting: &mut Vec<ipc_proto::RunId>| {
        let mut plan = node.sh("true");
        plan.programs.bwrap = c(&shim);
        node.launch(&plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
        waiting.push(plan.run);
    };
    wait(&mut waiting);
    node.send(&ToLauncher::Sweep { root: c(node.runs()), older_than: 7 * 24 * 3600 * 1000 });
    let mut started = 0;
    let mut plan = node.plan(&["true"]);
    node.launch(&plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
    loop {
        match node.receive().0 {
            FromLauncher::Ready { run, .. } => node.send(&ToLauncher::Go(run)),
            FromLauncher::Closed { run, .. } if run == plan.run => {
                started += 1;
                if started % 20 == 0 {
                    // Before the ten seconds of the last one are over.
                    wait(&mut waiting);
                }
                plan = node.plan(&["true"]);
                command(&mut plan).argv = vec![c("true")];
                node.launch(&plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
            }
            FromLauncher::Swept { removed, left } => {
                assert_eq!((removed, left), (1, 0));
                break;
            }
            FromLauncher::Exited { .. } | FromLauncher::Failed { .. } | FromLauncher::Closed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(started > 10, "runs came and went meanwhile: {started}");
    assert!(!node.kept_at("a", "large").exists());
}

/// FS-3: somebody cleans the cache while the node lives: the next run works.
#[test]
fn a_root_that_was_removed_is_made_anew() {
    let node = Node::start();
    assert_eq!(node.run(&node.kept("a", "i1", "echo x > file; cat file")).output, "x\n");
    let anew = || {
        fs::create_dir(node.runs()).unwrap();
        fs::set_permissions(node.runs(), fs::Permissions::from_mode(0o700)).unwrap();
        node.own(&node.runs());
    };
    fs::remove_dir_all(node.runs()).unwrap();
    anew();
    assert_eq!(node.run(&node.kept("a", "i1", "ls; echo y")).output, "y\n");
    // Moved away, and another one in its place.
    fs::rename(node.runs(), node.place.path().join("moved")).unwrap();
    anew();
    assert_eq!(node.run(&node.sh("pwd")).output, "/work\n");
    assert_eq!(node.sweep(DAY), (0, 0));
    // Its lock alone.
    fs::remove_file(node.runs().join(".lock")).unwrap();
    assert_eq!(node.run(&node.sh("pwd")).output, "/work\n");
    assert!(node.runs().join(".lock").exists());
    // Only a run that is on its way in a root that goes is lost, and says so.
    start(&node, &node.kept("a", "i2", "touch on; while test -e on; do sleep 0.02; done"), || {
        node.kept_at("a", "i2").join("work/on").exists()
    });
    fs::remove_dir_all(node.runs()).unwrap();
    wait_for_closed(&node);
    anew();
    assert_eq!(node.run(&node.kept("a", "i2", "ls; echo z")).output, "z\n", "{}", node.log());
}

/// FS-3, SBX-5: the launcher is killed at any moment of a sweep: what is there is whole, and the next sweep finishes it.
#[test]
fn a_sweep_may_be_killed_at_any_moment() {
    let mut node = Node::start();
    let make = |node: &Node, number: usize| {
        let at = node.kept_at("a", &format!("i{number}"));
        fs::create_dir_all(at.join("work/d")).unwrap();
        fs::write(at.join("lock"), "").unwrap();
        for file in 0..20 {
            fs::write(at.join(format!("work/d/{file}")), "").unwrap();
        }
        age(&at, 8 * DAY);
        for path in [at.parent().unwrap(), &at, &at.join("lock"), &at.join("work"), &at.join("work/d")] {
            node.own(path);
            if path.is_dir() {
                fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
            }
        }
        at
    };
    let mut interrupted = 0;
    for round in 0..12u64 {
        let all: Vec<_> = (0..24).map(|number| make(&node, number)).collect();
        node.send(&ToLauncher::Sweep { root: c(node.runs()), older_than: 7 * 24 * 3600 * 1000 });
        if round.is_multiple_of(2) {
            std::thread::sleep(Duration::from_micros(400 * round));
        } else {
            // In the middle, however slow the machine is.
            let until = Instant::now() + Duration::from_secs(10);
            while (all.iter().filter(|at| !at.exists()).count() as u64) < round && Instant::now() < until {}
        }
        node.kill();
        let there = all.iter().filter(|at| at.exists()).inspect(|at| {
            let files = fs::read_dir(at.join("work/d")).unwrap().count();
            assert_eq!(files, 20, "half of it is gone: {}", at.display());
        });
        let there = there.count();
        interrupted += usize::from((1..24).contains(&there));
        let Node { place, .. } = node;
        node = Node::start_in(place);
        // A run takes one of them meanwhile.
        let went = node.run(&node.kept("a", "i23", "ls d 2>/dev/null | wc -l"));
        assert!(["20\n", "0\n"].contains(&went.output.as_str()), "{}", went.output);
        let (removed, left) = node.sweep(7 * DAY);
        assert_eq!(left, 0, "{}", node.log());
        assert!(removed as usize >= there.saturating_sub(1), "{removed} of {there}");
        let names: Vec<_> =
            fs::read_dir(node.runs().join("peer-a")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["i23"]);
        assert_eq!(fs::read_dir(node.runs().join(".removing")).unwrap().count(), 0);
        age(&node.kept_at("a", "i23"), 8 * DAY);
        assert_eq!(node.sweep(7 * DAY), (1, 0));
    }
    assert!(interrupted > 2, "some were interrupted: {interrupted}");
}

/// LIM, FS-3: what an earlier run left is no growth of a later one.
#[test]
fn what_was_there_is_no_growth() {
    let node = Node::start();
    let run = |script: &str, growth| {
        let mut plan = node.kept("a", "i1", script);
        plan.growth = Some(growth);
        node.run(&plan)
    };
    assert_eq!(run("head -c 4000000 /dev/zero > a", 8 << 20).status(), Some(0));
    let again = run("head -c 1000000 /dev/zero > b; sleep 0.7", 2 << 20);
    assert_eq!((again.status(), again.over), (Some(0), None), "{}", node.log());
    let much = run("head -c 4000000 /dev/zero > c; sleep 10", 2 << 20);
    assert_eq!(much.over, Some(ipc_proto::launcher::Exceeded::Growth));
    // It is what the run wrote, and so it stays.
    assert!(node.kept_at("a", "i1").join("work/c").exists());
}
