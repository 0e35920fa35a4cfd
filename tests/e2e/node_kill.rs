//! SBX-5, PRV-6, EVI-3, RUN-1 for a node: whatever dies at whatever moment, no process of a run outlives it, nothing that was
//! acknowledged is lost, what was interrupted does not count, the chain verifies, and the node is back.
//!
//! `ANET_KILL_ROUNDS` says how often (a few in a usual run, 200 by hand).

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::harness::{self, Harness};
use tests::installed::{Installed, installed};
use tests::node::{Node, PATIENCE, is_final, shell_agent, state_of, until};
use tests::person::{Person, Who};
use tests::processes::{self, Process};

use crate::marker;

/// The time in which no process of a run may be alive any more; a loaded machine with two processors needs some of it.
const GONE: Duration = Duration::from_secs(5);
/// What the issue of the promise is on a machine that does nothing else.
const PROMISED: Duration = Duration::from_secs(1);
/// After so many deaths a daemon is started anew: one whose node dies again and again waits longer each time.
const LIVES: usize = 5;
/// anet's processes of a node that has all of them.
const ALL: [&str; 6] = ["guard", "supervisor", "launcher", "broker", "proxy", "outside"];

fn rounds() -> u32 {
    std::env::var("ANET_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// Numbers without a pattern that matters, the same in each run of the tests.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A node with every process that there can be: a model makes a broker, `notify` makes what starts it.
fn configuration() -> String {
    let model = "api_base = \"http://127.0.0.1:9\"\nmodel = \"m\"\nnotify = [\"/bin/true\"]";
    shell_agent(model, "runs_per_day = 100000\nruns_per_peer_per_day = 100000")
}

/// A caller whose programs are nobody else's, so that what is left of a node is seen by its program file.
struct Stage {
    person: Person,
    programs: HashSet<(u64, u64)>,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn new(who: Who) -> Stage {
        let dir = tempfile::Builder::new().prefix("anet-node-kill-").tempdir_in("/tmp").expect("a directory");
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
        let copy: Installed = installed().copy_to(&dir.path().join("bin"));
        let person = Person::with_programs(who, &copy);
        Stage { person, programs: copy.inodes().into_iter().collect(), _dir: dir }
    }

    /// anet's own processes that live.
    fn ours(&self) -> Vec<Process> {
        processes::executing(&self.programs)
    }
}

/// The counts of the day, made anew from the evidence and from the inbox, against what the node says (RUN-1, RUN-4).
#[track_caller]
pub(crate) fn counts_are_exact(node: &Node) {
    let rows = node.inbox();
    let status = node.status();
    let used = status["day"]["runs"]["used"].as_u64().expect("a number");
    let counted = |row: &&Value| {
        let state = row["state"].as_str().unwrap_or_default();
        let code = row["code"].as_str().unwrap_or_default();
        row["trusted"] == false
            && (matches!(state, "answered" | "exhausted" | "running")
                || (state == "refused" && code == "agent_failed"))
    };
    let kept: Vec<&Value> = rows.iter().filter(counted).collect();
    assert_eq!(used, kept.len() as u64, "RUN-1: against the inbox: {status}\n{}", node.log());
    let mut open: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut started = HashSet::new();
    let mut by_peer: BTreeMap<String, u64> = BTreeMap::new();
    let mut ended: BTreeMap<String, String> = BTreeMap::new();
    for record in node.evidence() {
        let body = &record["body"];
        let run = body["run"].as_str().unwrap_or_default().to_owned();
        match record["kind"].as_str().unwrap_or_default() {
            "run.admitted" => {
                let peer = body["counted"]["peer"].as_str().map(str::to_owned);
                assert!(open.insert(run, peer).is_none(), "admitted twice: {record}");
            }
            "run.started" => {
                started.insert(run);
            }
            "run.ended" => {
                let peer = open.remove(&run).unwrap_or_else(|| panic!("ended and not admitted: {record}"));
                if let (Some(peer), true) = (peer, started.contains(&run)) {
                    *by_peer.entry(peer.clone()).or_default() += 1;
                    ended.insert(run, peer);
                }
            }
            "run.interrupted" => {
                open.remove(&run);
                if let Some(peer) = ended.remove(&run) {
                    *by_peer.entry(peer).or_default() -= 1;
                }
            }
            _ => {}
        }
    }
    for peer in open.values().flatten() {
        *by_peer.entry(peer.clone()).or_default() += 1;
    }
    assert_eq!(used, by_peer.values().sum::<u64>(), "RUN-4: against the evidence: {status}\n{}", node.log());
    for peer in status["day"]["peers"].as_array().expect("a list") {
        let aid = peer["aid"].as_str().unwrap_or_default();
        assert_eq!(peer["used"].as_u64(), by_peer.get(aid).copied(), "RUN-4: {aid}: {status}");
    }
}

/// A task that waits until it is told, in a process that is known by its argument.
fn hold(mark: &str) -> String {
    format!("trap '' TERM HUP INT; (setsid sleep {mark} &); sleep {mark}; echo over")
}

/// Waits until the run's processes are seen: what is not seen while it lives would not be found as a survivor either.
#[track_caller]
fn wait_held(mark: &str, node: &Node) {
    until("the agent runs", PATIENCE, || {
        let found = processes::with_argument(&format!("sleep {mark}"));
        if found.len() >= 2 { Ok(()) } else { Err(format!("{found:?}\n{}", node.log())) }
    });
}

/// The node is back: every process is another one, and it serves.
#[track_caller]
fn wait_back(node: &Node, before: &BTreeMap<String, u32>) -> Duration {
    let start = Instant::now();
    node.wait_status("the node is back", |status| {
        let processes = status["processes"].as_array().map(Vec::as_slice).unwrap_or_default();
        processes.len() >= before.len()
            && processes.iter().all(|p| before.values().all(|pid| p["pid"].as_u64() != Some(u64::from(*pid))))
    });
    start.elapsed()
}

/// PRV-6, SBX-5, RUN-1: each process is killed while a run is active and another task waits.
#[test]
fn killing_any_process_interrupts_the_run_and_loses_nothing() {
    for who in Who::all() {
        let stage = Stage::new(*who);
        let node = Node::serving(&stage.person, None, &configuration());
        let mut used = 0;
        for name in ALL {
            let mark = marker();
            let held = node.submit("p1", &hold(&mark));
            wait_held(&mark, &node);
            let waiting = node.submit("p1", &format!("echo after {name}"));
            let before = node.pids();
            let pid = *before.get(name).unwrap_or_else(|| panic!("{name} is not among {before:?}"));
            processes::signal(pid, Signal::SIGKILL);
            let start = Instant::now();
            let left = processes::wait_gone(GONE, || processes::with_argument(&mark));
            let gone = start.elapsed();
            assert_eq!(left, [], "SBX-5: {who:?}: {name} killed\n{}", node.log());
            let back = wait_back(&node, &before);
            eprintln!(
                "{who:?}: {name} killed: the run's processes gone after {gone:?}, the node back after {back:?}"
            );
            if gone > PROMISED {
                eprintln!("{who:?}: {name}: longer than promised");
            }
            let story = node.wait_final(&held);
            assert_eq!(state_of(&story), "interrupted", "{name}: {story}\n{}", node.log());
            assert_eq!(story["refusal"]["code"], "sandbox_unavailable", "RUN-1: {name}: {story}");
            assert_eq!(story["runs"].as_array().map(Vec::len), Some(1), "{name}: {story}");
            let story = node.wait_state(&waiting, "answered");
            assert_eq!(
                story["answer"].as_str().map(str::trim_end),
                Some(&*format!("after {name}")),
                "{story}"
            );
            used += 1;
            assert_eq!(
                node.status()["day"]["runs"]["used"],
                used,
                "RUN-1: {name}: an interrupted run does not count"
            );
            node.verify().expect_code(0);
        }
        let status = node.status();
        assert_eq!(status["restarts"], ALL.len(), "{status}");
        assert!(
            status["last_end"].as_str().is_some_and(|why| !why.is_empty()),
            "PRV-6: it is said: {status}"
        );
        counts_are_exact(&node);
    }
}

/// SBX-5: the process that keeps the node dies: everything ends, nothing comes back by itself, and the next start goes on.
#[test]
fn killing_the_keeper_ends_the_node() {
    for who in Who::all() {
        let stage = Stage::new(*who);
        let mut node = Node::serving(&stage.person, None, &configuration());
        let mark = marker();
        let held = node.submit("p1", &hold(&mark));
        wait_held(&mark, &node);
        let waiting = node.submit("p1", "echo after");
        processes::signal(node.keeper(), Signal::SIGKILL);
        let left = processes::wait_gone(GONE, || processes::with_argument(&mark));
        assert_eq!(left, [], "SBX-5: {who:?}");
        assert_eq!(node.wait_ended().code(), None);
        if harness::kind() == Harness::Root {
            assert_eq!(processes::wait_gone(GONE, || stage.ours()), [], "{who:?}");
        }
        assert_eq!(node.anet(["status"]).output().code(), 69);
        node.verify().expect_code(0);
        node.start();
        assert_eq!(state_of(&node.wait_final(&held)), "interrupted");
        node.wait_state(&waiting, "answered");
        counts_are_exact(&node);
    }
}

/// SBX-5, PRV-6: any process of anet stopped, another one killed: the run ends all the same; continued, the node is back.
#[test]
fn killing_one_process_while_another_is_stopped_ends_the_run() {
    for who in Who::all() {
        let stage = Stage::new(*who);
        let mut node = Node::serving(&stage.person, None, &configuration());
        let mut pairs = Vec::new();
        for (number, stopped) in ALL.into_iter().chain(["keeper"]).enumerate() {
            let others: Vec<&str> = ALL.into_iter().filter(|name| *name != stopped).collect();
            // All of them by hand; in a usual run each is stopped once, and each killed once or twice.
            let some = if rounds() > 6 { others.len() } else { 1 };
            pairs.extend(others.iter().cycle().skip(number).take(some).map(|killed| (stopped, *killed)));
        }
        let mut wrong = Vec::new();
        for (number, (stopped, killed)) in pairs.into_iter().enumerate() {
            if number % LIVES == LIVES - 1 {
                node.stop();
                node.start();
            }
            let mark = marker();
            let held = node.submit("p1", &hold(&mark));
            wait_held(&mark, &node);
            let before = node.pids();
            let keeper = node.keeper();
            let pid = |name: &str| if name == "keeper" { keeper } else { before[name] };
            processes::signal(pid(stopped), Signal::SIGSTOP);
            processes::signal(pid(killed), Signal::SIGKILL);
            let left = processes::wait_gone(GONE, || processes::with_argument(&mark));
            if !left.is_empty() {
                wrong.push(format!("{who:?}: {stopped} stopped, {killed} killed: {left:?}"));
            }
            processes::signal(pid(stopped), Signal::SIGCONT);
            wait_back(&node, &before);
            let story = node.wait_final(&held);
            if state_of(&story) != "interrupted" {
                wrong.push(format!("{who:?}: {stopped} stopped, {killed} killed: {story}"));
            }
        }
        node.verify().expect_code(0);
        counts_are_exact(&node);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Tasks of many peers come all the time, and so many times a process dies.
fn disturb(node: &Node, rounds: u32, random: &mut Random, acknowledged: &Mutex<BTreeMap<String, String>>) {
    /// Also where the test fails: nobody waits for threads that never end.
    struct AtTheEnd<'a>(&'a AtomicBool);
    impl Drop for AtTheEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    let mark = marker();
    std::thread::scope(|scope| {
        let _end = AtTheEnd(&over);
        for thread in 0..2 {
            let (over, mark) = (&over, &mark);
            scope.spawn(move || {
                for n in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let peer = if n % 3 == 0 { "friend".to_owned() } else { format!("p{thread}-{}", n % 4) };
                    let id = format!("t{thread}-{n}-{mark}");
                    let words = format!("answer of {id}");
                    let task = match n % 5 {
                        0 => format!("echo {words}; sleep 0.05"),
                        1 => format!("sleep 0.1; echo {words}"),
                        _ => format!("echo {words}"),
                    };
                    let args = ["submit", "--peer", &peer, "--interaction", &id];
                    let outcome = node.anet(args).stdin(task).timeout(Duration::from_secs(20)).attempt();
                    if !outcome.timed_out() && outcome.code() == 0 {
                        acknowledged.lock().expect("lock").insert(id, words);
                    }
                    // Not faster than the node runs them: the end of the test waits for all.
                    std::thread::sleep(Duration::from_millis(60));
                }
            });
        }
        for round in 0..rounds {
            let before = node.pids();
            std::thread::sleep(Duration::from_micros(random.below(400_000)));
            let name = ALL[usize::try_from(random.below(ALL.len() as u64)).expect("small")];
            processes::signal(before[name], Signal::SIGKILL);
            // Twice at once now and then.
            if random.below(3) == 0 {
                processes::signal(before[ALL[(round as usize) % ALL.len()]], Signal::SIGKILL);
            }
            wait_back(node, &before);
        }
    });
}

/// EVI-1, EVI-3, RUN-4: tasks of many peers come all the time, and processes die at random moments of submitting, starting,
/// running and ending. What was acknowledged is there at the end, in a final state, with the answer of its own task.
#[test]
fn nothing_acknowledged_is_lost_whenever_something_dies() {
    for who in Who::all() {
        let stage = Stage::new(*who);
        let mut node = Node::serving(&stage.person, None, &configuration());
        let acknowledged: Mutex<BTreeMap<String, String>> = Mutex::default();
        let mut random = Random(0x5eed_0000_0000_0003);
        let mut left = rounds();
        while left > 0 {
            disturb(&node, left.min(LIVES as u32), &mut random, &acknowledged);
            left = left.saturating_sub(LIVES as u32);
            assert!(node.stop().success(), "{}", node.log());
            node.start();
        }
        let rows = node.wait_idle(Duration::from_secs(120));
        let acknowledged = acknowledged.into_inner().expect("lock");
        assert!(acknowledged.len() > rounds() as usize, "{}", acknowledged.len());
        let mut states: BTreeMap<String, u32> = BTreeMap::new();
        let by_id: BTreeMap<&str, &Value> =
            rows.iter().filter_map(|row| Some((row["id"].as_str()?, row))).collect();
        for (id, words) in &acknowledged {
            let story = match by_id.get(id.as_str()) {
                Some(_) => node.show(id),
                None => panic!("{id} was acknowledged and is not in the inbox\n{}", node.log()),
            };
            let state = state_of(&story);
            assert!(is_final(&state), "{story}");
            match state.as_str() {
                "answered" => {
                    assert_eq!(story["answer"].as_str().map(str::trim_end), Some(words.as_str()), "{story}");
                }
                "interrupted" | "refused" => {
                    assert_eq!(story["refusal"]["code"], "sandbox_unavailable", "{story}\n{}", node.log());
                }
                other => panic!("{other}: {story}"),
            }
            *states.entry(state).or_default() += 1;
        }
        eprintln!("{who:?}: {} tasks, {} rounds: {states:?}", acknowledged.len(), rounds());
        assert!(states.get("answered") > Some(&0), "{states:?}");
        node.verify().expect_code(0);
        counts_are_exact(&node);
        // Each ran at most once.
        for row in &rows {
            let story = node.show(row["id"].as_str().expect("an id"));
            assert!(
                story["runs"].as_array().is_some_and(|runs| runs.len() <= 1),
                "RUN-1: not run again: {story}"
            );
        }
        if harness::kind() == Harness::Root {
            // Nothing of the lives before: only what the node names, its keeper, and what they wait for.
            until("only one life is left", Duration::from_secs(10), || {
                let tree: HashSet<u32> = node.tree().iter().map(|p| p.pid).collect();
                let strange: Vec<_> = stage.ours().into_iter().filter(|p| !tree.contains(&p.pid)).collect();
                if strange.is_empty() { Ok(()) } else { Err(format!("{strange:?}")) }
            });
        }
    }
}

/// PRV-6: whatever dies while the node comes up, it comes up; what was there before is there.
#[test]
fn killing_anything_during_a_start_loses_nothing() {
    for who in Who::all() {
        let stage = Stage::new(*who);
        let mut node = Node::serving(&stage.person, None, &configuration());
        node.ask("p1", "echo first").expect_out("first");
        node.stop();
        let mut random = Random(0x5eed_0000_0000_0004);
        for round in 0..rounds() {
            node.spawn();
            std::thread::sleep(Duration::from_micros(random.below(150_000)));
            let tree = node.tree();
            let victim = &tree[usize::try_from(random.below(tree.len() as u64)).expect("small")];
            let is_keeper = victim.pid == node.keeper();
            processes::signal(victim.pid, Signal::SIGKILL);
            if is_keeper {
                assert_eq!(node.wait_ended().code(), None);
                // What it kept ends with it; until then a node is there.
                let alive = || processes::still(&tree);
                assert_eq!(processes::wait_gone(GONE, alive), []);
                node.start();
            } else {
                node.wait_serving();
            }
            let words = format!("round {round}");
            // What is put into a life that is about to end can be interrupted: then another task is put.
            let outcome = until("a task is answered", PATIENCE, || {
                let call = node.anet(["submit", "--peer", "p1", "--wait"]).stdin(format!("echo {words}"));
                let outcome = call.timeout(PATIENCE).attempt();
                if outcome.code() == 0 { Ok(outcome) } else { Err(format!("{outcome}\n{}", node.log())) }
            });
            outcome.expect_out(&words);
            node.stop();
        }
        node.start();
        counts_are_exact(&node);
        node.verify().expect_code(0);
        let used = node.status()["day"]["runs"]["used"].as_u64();
        assert!(used > Some(u64::from(rounds())), "RUN-4: {}", node.status());
    }
}

/// PRV-6: a node whose process dies again and again comes back more slowly each time, and says what happened; it does not burn
/// the machine.
#[test]
fn a_node_that_dies_all_the_time_slows_down() {
    let stage = Stage::new(Who::User);
    let node = Node::serving(&stage.person, None, &configuration());
    let start = Instant::now();
    let mut lives = 0;
    let mut last = 0;
    while start.elapsed() < Duration::from_secs(6) {
        let Some(status) = node.try_status() else { continue };
        let guard = status["processes"].as_array().into_iter().flatten().find(|p| p["name"] == "supervisor");
        let Some(pid) = guard.and_then(|p| p["pid"].as_u64()) else { continue };
        if pid != last {
            last = pid;
            lives += 1;
            processes::signal(u32::try_from(pid).expect("a pid"), Signal::SIGKILL);
        }
    }
    assert!((2..60).contains(&lives), "it came back {lives} times in 6 s\n{}", node.log());
    node.wait_status("it is back for good", |s| s["restarts"].as_u64() >= Some(u64::from(lives as u32)));
    node.ask("friend", "echo on").expect_out("on");
    assert!(node.log().contains("supervisor"), "which one died is said: {}", node.log());
}
