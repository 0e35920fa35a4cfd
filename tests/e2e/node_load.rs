//! A day of mixed work: many peers, agents that finish, hang, crash, fork and write; nothing is lost, every count is exact, and
//! nothing is left. `ANET_NODE_TASKS` says how many tasks (some in a usual run).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::node::{Node, PATIENCE, descriptors, shell_agent, until};
use tests::person::{Person, Who};
use tests::processes;

use crate::marker;
use crate::node_basics::code_of;
use crate::node_kill::counts_are_exact;

/// Peers, the first ones trusted.
const PEERS: usize = 24;
const TRUSTED: [&str; 2] = ["friend", "buddy"];

fn tasks() -> usize {
    std::env::var("ANET_NODE_TASKS").ok().and_then(|text| text.parse().ok()).unwrap_or(120)
}

/// What an agent does, and what becomes of it: the code of its refusal, or none for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Deed {
    Finishes,
    SaysMuch,
    Fails,
    Dies,
    Hangs,
    Forks,
    Writes,
    Litters,
}

impl Deed {
    fn of(number: usize) -> Deed {
        // The slow ones are few: two places are what they share.
        match number % 24 {
            3 => Deed::Hangs,
            7 => Deed::Forks,
            11 => Deed::Writes,
            2 | 13 => Deed::Fails,
            5 | 17 => Deed::Dies,
            9 | 19 => Deed::SaysMuch,
            21 => Deed::Litters,
            _ => Deed::Finishes,
        }
    }

    fn script(self, words: &str, mark: &str) -> String {
        match self {
            Deed::Finishes => format!("echo {words}"),
            Deed::SaysMuch => format!("seq 1 20000; echo {words}"),
            Deed::Fails => format!("echo {words} >&2; exit 7"),
            Deed::Dies => format!("echo {words} >&2; kill -SEGV $$"),
            Deed::Hangs => format!("trap '' TERM; sleep {mark}; sleep {mark}"),
            Deed::Forks => format!("while :; do (setsid sleep {mark} &) ; sleep 0.05; done"),
            Deed::Writes => "cat /dev/zero > big".to_owned(),
            Deed::Litters => {
                format!(
                    "i=0; while [ $i -lt 60 ]; do mkdir d$i; echo > d$i/f; i=$((i+1)); done; mkfifo p; echo {words}"
                )
            }
        }
    }

    fn is_answered(self) -> bool {
        matches!(self, Deed::Finishes | Deed::SaysMuch | Deed::Litters)
    }
}

fn peer(number: usize) -> String {
    TRUSTED.get(number % PEERS).map_or_else(|| format!("peer-{}", number % PEERS), |name| (*name).to_owned())
}

/// Descriptors of each process of the node.
fn open(node: &Node) -> BTreeMap<String, Option<usize>> {
    node.pids().into_iter().map(|(name, pid)| (name, descriptors(pid))).collect()
}

/// RUN-1, RUN-5, ACC-1, ACC-2, SBX-5, LIM-1.
#[test]
fn a_day_of_mixed_work_is_exact() {
    let person = Person::new(Who::User);
    let text = format!(
        "{}\n[auto_reply.sandbox.limits]\ngrowth = \"30MiB\"\n",
        shell_agent("api_timeout_seconds = 2", "runs_per_day = 100000\nruns_per_peer_per_day = 100000")
    );
    let mut node = Node::serving(&person, None, &text);
    // What is opened once and kept is there after the first runs.
    node.ask("friend", "echo warm").expect_out("warm");
    node.ask("peer-5", "echo warm").expect_out("warm");
    let mark = marker();
    let (count, start) = (tasks(), Instant::now());
    let before = open(&node);
    let pids = node.pids();
    let next = AtomicUsize::new(0);
    let acknowledged: Mutex<HashMap<String, usize>> = Mutex::default();
    let most = Mutex::new(0usize);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let task = Deed::of(number).script(&format!("words {number}"), &mark);
                    let id = node.submit(&peer(number), &task);
                    assert!(
                        acknowledged.lock().expect("lock").insert(id, number).is_none(),
                        "two tasks with one name"
                    );
                }
            });
        }
        // Whoever looks meanwhile never sees more than there are places for (RUN-5).
        scope.spawn(|| {
            until("all are done", Duration::from_secs(900), || {
                let status = node.status();
                let runs = status["runs"].as_array().expect("a list");
                let untrusted: Vec<&str> = runs
                    .iter()
                    .filter_map(|r| r["peer"].as_str())
                    .filter(|peer| !TRUSTED.contains(peer))
                    .collect();
                let distinct: HashSet<&str> = untrusted.iter().copied().collect();
                assert!(untrusted.len() <= 2 && distinct.len() == untrusted.len(), "RUN-5: {status}");
                let mut most = most.lock().expect("lock");
                *most = (*most).max(untrusted.len());
                drop(most);
                std::thread::sleep(Duration::from_millis(40));
                let idle = runs.is_empty() && status["queued"] == json!(0);
                if idle
                    && next.load(Ordering::Relaxed) >= count
                    && acknowledged.lock().expect("lock").len() == count
                {
                    Ok(())
                } else {
                    Err(format!("{status}"))
                }
            });
        });
    });
    let rows = node.wait_idle(PATIENCE);
    let took = start.elapsed();
    let acknowledged = acknowledged.into_inner().expect("lock");
    assert_eq!(acknowledged.len(), count);
    assert_eq!(*most.lock().expect("lock"), 2, "RUN-5: both places were used");
    let by_id: HashMap<&str, &Value> =
        rows.iter().filter_map(|row| Some((row["id"].as_str()?, row))).collect();
    let mut counted: BTreeMap<String, u64> = BTreeMap::from([("peer-5".to_owned(), 1)]);
    for (id, number) in &acknowledged {
        let deed = Deed::of(*number);
        if !TRUSTED.contains(&peer(*number).as_str()) {
            *counted.entry(peer(*number)).or_default() += 1;
        }
        let row = by_id.get(id.as_str()).unwrap_or_else(|| panic!("{id} is lost"));
        let state = if deed.is_answered() { "answered" } else { "refused" };
        assert_eq!(row["state"], state, "{deed:?}: {row}\n{}", node.log());
        // Each of many is looked at in the list, some in full.
        if count > 500 && number % 20 != 0 {
            continue;
        }
        let story = node.show(id);
        assert_eq!(story["interaction"]["peer"], peer(*number), "{story}");
        if deed.is_answered() {
            let answer =
                story["answer"].as_str().unwrap_or_else(|| panic!("{deed:?}: {story}\n{}", node.log()));
            assert_eq!(answer.lines().last(), Some(&*format!("words {number}")), "ACC-2: {deed:?}");
            assert_eq!(
                answer.lines().count(),
                if deed == Deed::SaysMuch { 20_001 } else { 1 },
                "ACC-2: {deed:?}"
            );
        } else {
            assert_eq!(story["refusal"]["code"], "agent_failed", "{deed:?}: {story}\n{}", node.log());
            let why = story.to_string();
            match deed {
                Deed::Hangs | Deed::Forks => assert!(why.contains("wall_clock"), "LIM-1: {deed:?}: {why}"),
                Deed::Writes => assert!(why.contains("growth") || why.contains("wall_clock"), "LIM-1: {why}"),
                Deed::Finishes | Deed::SaysMuch | Deed::Fails | Deed::Dies | Deed::Litters => {}
            }
        }
    }
    let status = node.status();
    assert_eq!(status["day"]["runs"]["used"], counted.values().sum::<u64>(), "RUN-1: {status}");
    for entry in status["day"]["peers"].as_array().expect("a list") {
        let aid = entry["aid"].as_str().unwrap_or_default();
        assert_eq!(entry["used"].as_u64(), counted.get(aid).copied(), "RUN-1: {aid}");
    }
    counts_are_exact(&node);
    assert_eq!(node.pids(), pids, "no process of the node was replaced\n{}", node.log());
    assert_eq!(processes::wait_gone(Duration::from_secs(5), || processes::with_argument(&mark)), [], "SBX-5");
    // Whatever was opened for a run is closed with it.
    until("descriptors are back", Duration::from_secs(20), || {
        let now = open(&node);
        let more =
            |(name, was): (&String, &Option<usize>)| now.get(name).copied().flatten() > was.map(|n| n + 1);
        if before.iter().any(more) { Err(format!("before {before:?}, now {now:?}")) } else { Ok(()) }
    });
    let outcome = node.verify().expect_code(0);
    eprintln!("{count} tasks in {took:?}; {}", outcome.out());
    assert!(node.stop().success(), "{}", node.log());
    // RUN-4: the same after a start, from the evidence.
    node.start();
    assert_eq!(node.status()["day"], status["day"], "RUN-4");
}

/// Many at once: each client gets the answer of its own task.
#[test]
fn many_clients_at_once_get_their_own_answers() {
    let person = Person::new(Who::User);
    let sandbox = "runs_per_day = 100000\nruns_per_peer_per_day = 100000";
    let node = Node::serving(&person, None, &shell_agent("", sandbox));
    std::thread::scope(|scope| {
        for n in 0..40 {
            let node = &node;
            scope.spawn(move || {
                let peer = if n % 2 == 0 { "friend".to_owned() } else { format!("p{}", n % 7) };
                let call = node.anet(["submit", "--peer", &peer, "--wait"]).stdin(format!("echo answer {n}"));
                call.timeout(PATIENCE).output().expect_out(&format!("answer {n}"));
            });
        }
    });
    assert_eq!(node.inbox().len(), 40);
    counts_are_exact(&node);
}

/// The inbox is bounded: a flood of tasks that nobody runs is refused in words, and the node serves on.
#[test]
fn a_flood_of_waiting_tasks_is_bounded() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("untrusted = \"off\"", ""));
    let task = "x".repeat(1024 * 1024);
    let full = until("the inbox is full", PATIENCE, || {
        let outcome = node.anet(["submit", "--peer", "p1"]).stdin(task.as_str()).output();
        if outcome.code() == 0 { Err(node.status()["queued"].to_string()) } else { Ok(outcome) }
    });
    assert_eq!(code_of(&full), "inbox_full", "{full}");
    assert_eq!(full.code(), 75, "{full}");
    // One peer's flood is not another's, and trusted ones are served.
    node.submit("p2", "echo later");
    node.ask("friend", "echo on").expect_out("on");
}
