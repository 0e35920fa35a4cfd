//! RUN: the run budget of a node, exact over restarts; places; what counts and what does not.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::node::{Node, shell_agent, state_of, until};
use tests::person::{Person, Who};
use tests::processes;

use crate::marker;
use crate::node_basics::code_of;

/// `used` and `limit` of the day, over all peers.
fn day(node: &Node) -> (u64, u64) {
    let status = node.status();
    let runs = &status["day"]["runs"];
    (runs["used"].as_u64().expect("a number"), runs["limit"].as_u64().expect("a number"))
}

/// What one peer has used of the day.
fn of_peer(node: &Node, aid: &str) -> u64 {
    let status = node.status();
    let peers = status["day"]["peers"].as_array().expect("a list");
    peers.iter().find(|p| p["aid"] == aid).map_or(0, |p| p["used"].as_u64().expect("a number"))
}

/// The peer's day is used up: the code, the kind, and when the day ends, to the peer and on the command line.
#[track_caller]
fn is_used_up(node: &Node, peer: &str) {
    let mark = marker();
    let before = node.status();
    let outcome = node.ask(peer, &format!("sleep {mark}")).expect_code(75);
    assert_eq!(code_of(&outcome), "budget", "RUN-3: {outcome}");
    assert_eq!(outcome.out(), "", "{outcome}");
    assert!(processes::with_argument(&mark).is_empty(), "RUN-3: no agent starts");
    let row = node.inbox()[0].clone();
    assert_eq!((&row["state"], &row["code"]), (&json!("refused"), &json!("budget")), "{row}");
    let story = node.show(row["id"].as_str().expect("an id"));
    let refusal = &story["refusal"];
    assert_eq!((&refusal["code"], &refusal["kind"]), (&json!("budget"), &json!("runs")), "DIA-1: {story}");
    assert_eq!(refusal["until"], before["day"]["ends"], "RUN-3: when the day ends: {story}");
    let ends = before["day"]["ends"].as_str().expect("a time");
    assert!(outcome.err().contains(ends), "RUN-3: when the day ends: {outcome}");
    assert_eq!(story["runs"], json!([]), "RUN-3: no run: {story}");
}

/// RUN-1, RUN-3, RUN-4: five answers, then `budget`; the same after SIGKILL of every process, and after a clean stop.
#[test]
fn the_sixth_task_of_a_peer_is_refused_before_and_after_a_restart() {
    for who in Who::all() {
        let person = Person::new(*who);
        let mut node = Node::serving(&person, None, &shell_agent("", ""));
        for n in 1..=5 {
            node.ask("p1", &format!("echo answer {n}")).expect_out(&format!("answer {n}"));
            assert_eq!((of_peer(&node, "p1"), day(&node)), (n, (n, 20)), "RUN-1");
        }
        is_used_up(&node, "p1");
        node.kill_all();
        node.start();
        assert_eq!((of_peer(&node, "p1"), day(&node)), (5, (5, 20)), "RUN-4\n{}", node.log());
        is_used_up(&node, "p1");
        node.ask("p2", "echo other").expect_out("other");
        assert!(node.stop().success());
        node.start();
        assert_eq!((of_peer(&node, "p1"), of_peer(&node, "p2"), day(&node)), (5, 1, (6, 20)), "RUN-4");
        is_used_up(&node, "p1");
        assert_eq!(day(&node), (6, 20), "a refusal counts nothing");
        node.verify().expect_code(0);
    }
}

/// RUN-1: the day of all peers together; RUN-3 holds for each of them then. Tasks at once do not exceed it.
#[test]
fn the_day_of_all_peers_is_exact() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", "runs_per_day = 4\nruns_per_peer_per_day = 3"));
    let outcomes: Vec<(i32, String)> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..9)
            .map(|n| {
                let call = node.anet(["submit", "--peer", &format!("p{}", n % 3), "--wait", "echo x"]);
                scope.spawn(move || call.timeout(tests::node::PATIENCE).output())
            })
            .collect();
        let ended = calls.into_iter().map(|call| call.join().expect("a client"));
        ended.map(|o| (o.code(), if o.code() == 75 { code_of(&o) } else { o.out() })).collect()
    });
    let answered = outcomes.iter().filter(|(code, out)| *code == 0 && out == "x").count();
    let refused = outcomes.iter().filter(|(code, out)| *code == 75 && out == "budget").count();
    assert_eq!((answered, refused), (4, 5), "RUN-1: {outcomes:?}");
    assert_eq!(day(&node), (4, 4));
    is_used_up(&node, "p7");
}

/// RUN-1: trusted peers are not counted, and go on where the others are used up; a test is not counted.
#[test]
fn trusted_peers_and_tests_are_not_counted() {
    for who in Who::all() {
        let person = Person::new(*who);
        let node =
            Node::serving(&person, None, &shell_agent("", "runs_per_day = 1\nruns_per_peer_per_day = 1"));
        for n in 0..3 {
            node.ask("friend", &format!("echo {n}")).expect_out(&n.to_string());
        }
        let test = node.anet(["autoreply", "test"]).output();
        // The agent here is a shell, to which a sentence is no command: the turn may end without an answer, but it is tried.
        assert!(!test.out().is_empty() || !test.err().is_empty(), "it says each step: {test}");
        assert_eq!(day(&node), (0, 1), "RUN-1");
        node.ask("p1", "echo once").expect_out("once");
        is_used_up(&node, "p1");
        is_used_up(&node, "p2");
        node.ask("friend", "echo still").expect_out("still");
        node.anet(["autoreply", "test"]).output();
        assert_eq!(day(&node), (1, 1), "RUN-1");
        assert_eq!(of_peer(&node, "friend"), 0, "RUN-1");
    }
}

/// `anet autoreply test` runs one sandboxed turn end to end, saying each step, even where nothing is run for anybody.
#[test]
fn a_test_turn_says_each_step() {
    for who in Who::all() {
        let person = Person::new(*who);
        let command = r#"command = ["/bin/sh", "-c", "cat >/dev/null; echo the test was here"]"#;
        let node = Node::serving(&person, None, &shell_agent(&format!("{command}\nuntrusted = \"off\""), ""));
        let test = node.anet(["autoreply", "test"]).output().expect_code(0);
        let said = test.out() + &test.err();
        assert!(said.contains("the test was here"), "{test}");
        assert!(said.lines().count() >= 3, "it says each step: {test}");
        assert_eq!(day(&node), (0, 20), "RUN-1: {}", node.status());
        assert!(node.inbox().is_empty(), "a test is no peer's task: {:?}", node.inbox());
        node.verify().expect_code(0);
    }
}

/// RUN-2: with 0 nothing runs for untrusted peers, the task waits and is not refused; it runs once the configuration says so,
/// without a restart by hand.
#[test]
fn with_no_runs_a_day_tasks_wait_until_there_are() {
    for who in Who::all() {
        let person = Person::new(*who);
        let mut node = Node::serving(&person, None, &shell_agent("", "runs_per_day = 0"));
        let waiting = node.submit("p1", "echo at last");
        node.ask("friend", "echo trusted").expect_out("trusted");
        // Longer than a scan takes (RUN-5), shown by another task that a scan has to start.
        let start = Instant::now();
        until("a scan", Duration::from_secs(20), || {
            let story = node.show(&waiting);
            assert_eq!(
                (state_of(&story), &story["refusal"]),
                ("queued".into(), &Value::Null),
                "RUN-2: {story}"
            );
            if start.elapsed() > Duration::from_secs(6) { Ok(()) } else { Err(String::new()) }
        });
        assert_eq!(day(&node), (0, 0), "RUN-2: {}", node.status());
        node.kill_all();
        node.start();
        assert_eq!(node.state(&waiting), "queued", "RUN-2");
        node.anet(["autoreply", "set", "--runs-per-day", "3"]).output().expect_code(0);
        let story = node.wait_state(&waiting, "answered");
        assert_eq!(story["answer"].as_str().map(str::trim_end), Some("at last"), "{story}");
        node.wait_status("the new limit", |s| s["day"]["runs"] == json!({ "used": 1, "limit": 3 }));
    }
}

/// RUN-5: two active runs for untrusted peers, one a peer; what waits for a place is no refusal and comes within a scan.
#[test]
fn there_are_two_places_and_one_a_peer() {
    for who in Who::all() {
        let person = Person::new(*who);
        let node = Node::serving(&person, None, &shell_agent("", ""));
        let mark = marker();
        let hold = |n: u32| format!("sleep {mark}{n} || true; echo over {n}");
        let first = [node.submit("p1", &hold(1)), node.submit("p1", &hold(2)), node.submit("p1", &hold(3))];
        let other = [node.submit("p2", &hold(4)), node.submit("p3", &hold(5))];
        let running = |status: &Value| -> Vec<String> {
            let runs = status["runs"].as_array().expect("a list").iter();
            runs.map(|r| r["peer"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let sleeping = || -> Vec<processes::Process> {
            processes::with_argument(&mark).into_iter().filter(|p| p.name == "sleep").collect()
        };
        let status = node.wait_status("two runs", |s| running(s).len() == 2 && sleeping().len() == 2);
        let mut peers = running(&status);
        peers.sort();
        assert_eq!(peers, ["p1", "p2"], "RUN-5: {status}");
        // A trusted peer needs no place of theirs.
        node.ask("friend", "echo trusted").expect_out("trusted");
        // Never more than two, whatever comes and goes: each that ends makes room for one.
        let mut ended = 0;
        until("all have run", Duration::from_secs(60), || {
            let status = node.status();
            let mut peers = running(&status);
            let count = peers.len();
            peers.sort();
            peers.dedup();
            assert!(count <= 2 && peers.len() == count, "RUN-5: {status}");
            let now = sleeping();
            assert!(now.len() <= 2, "RUN-5: {now:?}");
            if let Some(process) = now.first() {
                processes::signal(process.pid, nix::sys::signal::Signal::SIGTERM);
                ended += 1;
            }
            let open = first.iter().chain(&other).filter(|id| node.state(id) != "answered").count();
            if open == 0 { Ok(()) } else { Err(format!("{open} are open, {ended} were ended")) }
        });
        assert_eq!(day(&node), (5, 20));
        // In the order in which they came, for one peer.
        let numbers: Vec<&str> = vec!["over 1", "over 2", "over 3"];
        for (id, words) in first.iter().zip(numbers) {
            assert_eq!(node.show(id)["answer"].as_str().map(str::trim_end), Some(words));
        }
    }
}

/// RUN-5: a turn that waits for a place starts within five seconds of there being one.
#[test]
fn a_turn_that_waits_starts_within_a_scan() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    let mark = marker();
    let held = node.submit("p1", &format!("sleep {mark}; echo x"));
    let next = node.submit("p1", "echo next");
    node.wait_state(&held, "running");
    let up =
        processes::wait_for(Duration::from_secs(20), || processes::with_argument(&format!("sleep {mark}")));
    assert_eq!(node.state(&next), "queued");
    let freed = Instant::now();
    for process in up.iter().filter(|p| p.name == "sleep") {
        processes::signal(process.pid, nix::sys::signal::Signal::SIGTERM);
    }
    node.wait_state(&next, "answered");
    assert!(freed.elapsed() < Duration::from_secs(8), "RUN-5: {:?}", freed.elapsed());
}

/// A lowered limit holds at once, a raised one too; what was used stays used (RUN-4).
#[test]
fn a_changed_limit_counts_what_was_used() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    for _ in 0..2 {
        node.ask("p1", "echo x").expect_out("x");
    }
    node.anet(["autoreply", "set", "--runs-per-peer-per-day", "2"]).output().expect_code(0);
    node.wait_status("the new limit", |s| s["day"]["peers"][0]["limit"] == 2);
    is_used_up(&node, "p1");
    node.anet(["autoreply", "set", "--runs-per-peer-per-day", "3"]).output().expect_code(0);
    node.wait_status("the new limit", |s| s["day"]["peers"][0]["limit"] == 3);
    node.ask("p1", "echo again").expect_out("again");
    is_used_up(&node, "p1");
    assert_eq!(day(&node), (3, 20));
}

/// RUN-1: the day is the operator's local one: `TZ` says where, and the day's end is said with that zone's offset.
#[test]
fn the_day_is_local() {
    let person = Person::new(Who::User);
    for (zone, offset) in [("Pacific/Kiritimati", "+14:00"), ("Pacific/Pago_Pago", "-11:00")] {
        let mut node = Node::new(&person, None, &shell_agent("", "")).env("TZ", zone);
        node.start();
        let status = node.status();
        let ends = status["day"]["ends"].as_str().expect("a time").to_owned();
        assert!(ends.ends_with(offset) && ends.contains("T00:00:00"), "RUN-1: {status}");
        // One day's runs are not the other's: these zones are 25 hours apart, so their dates differ at any moment.
        assert_eq!(day(&node).0, 0, "RUN-1: {status}");
        node.ask("p1", "echo x").expect_out("x");
        assert_eq!(day(&node).0, 1, "RUN-1");
        node.stop();
    }
}
