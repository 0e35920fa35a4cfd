//! Many runs in one launcher: at once, one after another, and more than there is room for.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::AsFd;

use ipc_proto::launcher::{Endpoints, Exceeded, FromLauncher, LaunchPlan, ToLauncher};
use ipc_proto::{Code, RunId, bulk};

use crate::node::{Node, c, eventually};

/// So many at once.
const AT_ONCE: usize = 20;
/// So many in all.
const RUNS: usize = 500;
/// Once everything was in use that stays in use, buffers of the allocator first of all.
const WARM: usize = 150;
/// As many closed runs as the launcher remembers.
const REMEMBERED: usize = 256;
/// How much its memory may grow afterwards, KiB.
const GROWTH: usize = 2048;

/// How a run of the mix comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// By itself, with this status.
    Exits(u8),
    /// On our word, once it runs.
    Ended,
    /// On our word, before it stands.
    EndedEarly,
    /// On our word, when it stands and was not told to go.
    EndedReady,
    /// By a signal.
    Signalled,
    /// It does not come to stand.
    Fails,
    /// It grows too far.
    Grows,
}

/// Chance enough: the same in every run of the test.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn launch(node: &Node, plan: &LaunchPlan) {
    let null = File::open("/dev/null").unwrap();
    node.launch(plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
}

fn planned(node: &Node, number: usize, fate: Fate) -> LaunchPlan {
    let script = match fate {
        Fate::Exits(status) => format!("sleep 0.0{}; exit {status}", number % 10),
        Fate::Ended | Fate::Signalled => "sleep 100".to_owned(),
        Fate::EndedEarly | Fate::EndedReady | Fate::Fails => "true".to_owned(),
        Fate::Grows => format!("head -c 4000000 /dev/zero > f{number}; sleep 100"),
    };
    // Every third of a task of its own, every third of one that had a run before, which then has ended or not.
    let mut plan = match number % 3 {
        0 => node.sh(&script),
        1 => node.kept("a", &format!("i{number}"), &script),
        _ => node.kept("b", &format!("i{}", number % 24), &script),
    };
    plan.endpoints = Endpoints { egress: number.is_multiple_of(2), model: number.is_multiple_of(4) };
    plan.growth = (fate == Fate::Grows || number % 2 == 1).then_some(1 << 20);
    if fate == Fate::Fails {
        match number % 3 {
            0 => plan.programs.bwrap = c("/no/bwrap"),
            1 => plan.files.read_only.push(c("/no/such/path")),
            _ => plan.programs.bwrap = c("/usr/bin/false"),
        }
    }
    plan
}

/// SBX-5, FS-3: five hundred runs, twenty at a time, that end in every way and in any order: each is told of right, and the
/// launcher has what it had before: descriptors, threads, memory, directories.
#[test]
fn many_runs_leave_nothing_in_the_launcher() {
    let node = Node::start();
    let mut chance = Chance(1);
    let mut fates: BTreeMap<RunId, Fate> = BTreeMap::new();
    let mut closed = VecDeque::new();
    let mut told: BTreeMap<RunId, FromLauncher> = BTreeMap::new();
    let mut over = Vec::new();
    let (mut started, mut done, mut most) = (0, 0, 0);
    let mut warm = None;
    let mut taken = 0;
    while done < RUNS {
        while fates.len() < AT_ONCE && started < RUNS {
            let fate = match chance.below(20) {
                0..8 => Fate::Exits(chance.below(100) as u8),
                8..11 => Fate::Ended,
                11..13 => Fate::EndedEarly,
                13..15 => Fate::EndedReady,
                15..17 => Fate::Signalled,
                17..19 => Fate::Fails,
                _ => Fate::Grows,
            };
            let plan = planned(&node, started, fate);
            launch(&node, &plan);
            if fate == Fate::EndedEarly {
                node.send(&ToLauncher::End(plan.run));
            }
            fates.insert(plan.run, fate);
            started += 1;
        }
        let (message, _descriptors) = node.receive();
        match message {
            FromLauncher::Ready { run, .. } => {
                most = most.max(node.descriptors().unwrap_or(0));
                match fates[&run] {
                    Fate::EndedReady => node.send(&ToLauncher::End(run)),
                    fate => {
                        node.send(&ToLauncher::Go(run));
                        if fate == Fate::Ended {
                            node.send(&ToLauncher::End(run));
                        }
                        if fate == Fate::Signalled {
                            node.send(&ToLauncher::Signal(run, 15));
                        }
                    }
                }
            }
            FromLauncher::Over { run, exceeded: Exceeded::Growth } => over.push(run),
            FromLauncher::Exited { run, .. } | FromLauncher::Failed { run, .. } => {
                assert!(told.insert(run, message).is_none(), "told once");
            }
            FromLauncher::Closed { run, .. } => {
                let fate = fates.remove(&run).expect("one that was started");
                let refused = matches!(told.get(&run), Some(FromLauncher::Failed { failure, .. })
                    if failure.text.contains("another run of this task"));
                taken += usize::from(refused);
                let right = match (fate, told.remove(&run)) {
                    (_, Some(FromLauncher::Failed { .. })) if refused => true,
                    (Fate::Fails, Some(FromLauncher::Failed { .. })) => true,
                    (Fate::Exits(status), Some(FromLauncher::Exited { exit, .. })) => {
                        exit == Some(ipc_proto::init::Exit::Status(status))
                    }
                    (Fate::Signalled, Some(FromLauncher::Exited { exit, .. })) => exit.is_some(),
                    (Fate::Grows, Some(FromLauncher::Exited { .. })) => over.contains(&run),
                    (
                        Fate::Ended | Fate::EndedEarly | Fate::EndedReady,
                        Some(FromLauncher::Exited { exit, .. }),
                    ) => exit.is_none(),
                    (_, _) => false,
                };
                assert!(right, "{fate:?}: {}", node.log());
                done += 1;
                closed.push_back(run);
                // Others may have closed that we have not heard of.
                if closed.len() > REMEMBERED - AT_ONCE {
                    closed.pop_front();
                }
                // A word that was under way when its run ended.
                let late = closed[chance.below(closed.len())];
                node.send(&match chance.below(3) {
                    0 => ToLauncher::End(late),
                    1 => ToLauncher::Signal(late, 15),
                    _ => ToLauncher::Go(late),
                });
                if done == WARM {
                    warm = Some(node.status_of("VmRSS"));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(eventually(|| node.status_of("Threads") == 1), "{}", node.status_of("Threads"));
    assert!(eventually(|| node.left().is_empty()), "{:?}; {}", node.left(), node.log());
    let memory = (warm.unwrap(), node.status_of("VmRSS"));
    println!("descriptors: {most} at most; memory {memory:?} KiB; {taken} refused as their task had a run");
    assert!(memory.1 < memory.0 + GROWTH, "{memory:?}");
    assert!(taken > 0, "two runs of one task were tried");
    if let Some(left) = node.descriptors() {
        // 0 to 4, signals, the null device, a root with its lock.
        assert!(eventually(|| node.descriptors() <= Some(9)), "{left} descriptors stay");
        assert!(most > 3 * AT_ONCE, "{most}");
    }
    assert_eq!(node.end(), Some(0));
}

/// SBX-5: a word for a run that closed long ago is one for a run that never was.
#[test]
fn closed_runs_are_remembered_for_a_while() {
    let node = Node::start();
    let mut closed = Vec::new();
    for _ in 0..REMEMBERED {
        let mut plan = node.sh("");
        plan.programs.bwrap = c("/no/bwrap");
        assert_eq!(node.run(&plan).failure.unwrap().code, Code::NoBwrap);
        closed.push(plan.run);
    }
    for run in &closed {
        node.send(&ToLauncher::End(*run));
    }
    assert_eq!(node.run(&node.sh("echo on")).output, "on\n");
    // One more closed: the first is forgotten.
    node.send(&ToLauncher::End(closed[0]));
    assert_eq!(node.end(), Some(70));
}

/// SBX-5: thirty-two runs at once, each measured and with both endpoints, come to stand, and all end with the launcher.
#[test]
fn thirty_two_runs_fit() {
    let node = Node::start();
    let word = format!("63.3{}", rustix::process::getuid().as_raw());
    let mut held = Vec::new();
    for number in 0..32 {
        let mut plan = node.kept("a", &format!("i{number}"), &format!("exec sleep {word}"));
        plan.endpoints = Endpoints { egress: true, model: true };
        plan.growth = Some(1 << 30);
        launch(&node, &plan);
    }
    while held.len() < 32 {
        match node.receive() {
            (FromLauncher::Ready { run, .. }, descriptors) => {
                node.send(&ToLauncher::Go(run));
                held.push(descriptors);
            }
            (other, _) => panic!("{other:?}"),
        }
    }
    let running = || crate::node::processes(&word).len();
    assert!(eventually(|| running() == 32), "{}", running());
    if let Some(open) = node.descriptors() {
        println!("{open} descriptors for 32 runs");
        assert!(open < 1024);
    }
    node.kill();
    assert!(eventually(|| crate::node::processes(&word).is_empty()));
}

/// SBX-5, LIM: where there are not descriptors enough for one run more, that one fails; those that go on are measured, however
/// deep their trees, and the launcher lives.
#[test]
fn without_room_only_the_new_run_fails() {
    let node = Node::start_limited(Some(300));
    let deep = "i=0; while test $i -lt 200; do mkdir d; cd d; i=$((i+1)); done; cd /work; touch on; \
                while ! test -e go; do sleep 0.02; done";
    let plans: Vec<LaunchPlan> = (0..6)
        .map(|number| {
            let mut plan = node.kept("a", &format!("i{number}"), deep);
            plan.growth = Some(1 << 30);
            plan.endpoints = Endpoints { egress: true, model: true };
            plan
        })
        .collect();
    for plan in &plans {
        launch(&node, plan);
    }
    let (mut ready, mut failed, mut closed) = (Vec::new(), 0, 0);
    while ready.len() + closed < plans.len() {
        match node.receive().0 {
            FromLauncher::Ready { run, .. } => {
                node.send(&ToLauncher::Go(run));
                ready.push(run);
            }
            FromLauncher::Failed { failure, .. } => {
                assert_eq!(failure.code, Code::SandboxStartFailed);
                assert!(failure.text.contains("300 open files"), "{}", failure.text);
                failed += 1;
            }
            FromLauncher::Closed { .. } => closed += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((ready.len(), failed), (3, 3));
    let at = |run: &RunId| {
        let plan = plans.iter().position(|plan| plan.run == *run).unwrap();
        node.kept_at("a", &format!("i{plan}")).join("work")
    };
    assert!(eventually(|| ready.iter().all(|run| at(run).join("on").exists())));
    // Words come with descriptors all the time.
    for _ in 0..30 {
        let mut plan = node.sh("true");
        plan.growth = Some(1 << 30);
        assert!(node.run_beside(&plan).failure.is_some());
    }
    for run in &ready {
        std::fs::write(at(run).join("go"), "").unwrap();
    }
    let mut ended = 0;
    while ended < 3 {
        match node.receive().0 {
            FromLauncher::Exited { exit, .. } => assert_eq!(exit, Some(ipc_proto::init::Exit::Status(0))),
            FromLauncher::Closed { used, .. } => {
                // The last walk went down to the ground.
                assert!(used.growth.unwrap() >= 200 * 4096, "{used:?}");
                ended += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(node.run(&node.sh("echo on")).output, "on\n");
}

/// SBX-5: a plan without a start, and a group that cannot be used, keep nothing.
#[test]
fn starts_that_come_to_nothing_keep_no_descriptor() {
    let node = Node::start();
    node.run(&node.sh("true"));
    // A run is forgotten right after it has said that it is closed.
    node.sweep(std::time::Duration::from_secs(3600));
    let before = node.descriptors();
    for number in 0..100 {
        let mut plan = node.kept("a", "i1", "true");
        match number % 4 {
            0 => plan.programs.bwrap = c("/no/bwrap"),
            1 => plan.files.read_write.push(c("/dev/null")),
            2 => plan.programs.init = c("/no/init"),
            _ => plan.home.push(ipc_proto::launcher::HomeFile {
                path: c("../out"),
                contents: Vec::new(),
                executable: false,
            }),
        }
        plan.growth = Some(1 << 20);
        assert!(node.run(&plan).failure.is_some());
    }
    let group = File::open(node.place.path()).unwrap();
    for _ in 0..20 {
        let mut plan = node.sh("true");
        plan.memory = Some(1 << 30);
        let memory = bulk::seal(&plan).unwrap();
        node.channel.send(&ToLauncher::Plan(plan.run), &[memory.as_fd()]).unwrap();
        node.channel.send(&ToLauncher::ControlGroup(plan.run), &[group.as_fd()]).unwrap();
        node.send(&ToLauncher::End(plan.run));
        assert!(matches!(node.receive().0, FromLauncher::Exited { exit: None, .. }));
        assert!(matches!(node.receive().0, FromLauncher::Closed { .. }));
    }
    assert!(eventually(|| node.status_of("Threads") == 1));
    assert!(eventually(|| node.descriptors() == before), "{:?} and {before:?}", node.descriptors());
    assert!(node.left().is_empty() && !node.kept_at("a", "i1").exists());
}
