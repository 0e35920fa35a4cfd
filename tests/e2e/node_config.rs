//! The configuration of a node that serves: `anet autoreply`, EGR-1, and what takes effect when.

use std::fs;

use serde_json::json;
use tests::internet::{Internet, Response};
use tests::node::{Node, PATIENCE, shell_agent, until};
use tests::person::{Outcome, Person, Who};
use tests::processes;
use tests::terminal::Terminal;

use crate::marker;
use crate::node_basics::code_of;

const HOST: &str = "pkg.example.com";
const OTHER: &str = "other.example.com";

/// What a run of the node gets of a host.
fn fetch(node: &Node, host: &str) -> Outcome {
    node.ask("p1", &format!("curl -sS --max-time 20 https://{host}/ 2>&1"))
}

/// `set` changes one value and leaves every comment, the order and the spacing of the rest; `show` says what holds.
#[test]
fn a_set_keeps_the_files_comments() {
    for who in Who::all() {
        let person = Person::new(*who);
        let text = "# on top\ntrust = [\"friend\"]   # who\n\n[auto_reply]\nagent = \"custom\"  # mine\n\
                    command = [\"/bin/sh\"]\ntrusted = \"sandbox\"\nuntrusted = \"off\" # for now\n\n# the sandbox\n\
                    [auto_reply.sandbox]\n  runs_per_day    =   7   # few\n# at the end\n";
        let node = Node::new(&person, None, text);
        node.anet(["autoreply", "set", "--runs-per-day", "9"]).output().expect_code(0);
        let now = fs::read_to_string(node.configuration()).expect("the configuration");
        assert_eq!(now.replace('9', "7"), text, "nothing else was touched");
        node.anet(["autoreply", "set", "--untrusted", "sandbox", "--retention-days", "3"])
            .output()
            .expect_code(0);
        let now = fs::read_to_string(node.configuration()).expect("the configuration");
        for comment in ["# on top", "# who", "# mine", "# for now", "# the sandbox", "# few", "# at the end"]
        {
            assert!(now.contains(comment), "{comment}: {now}");
        }
        assert!(now.contains("untrusted = \"sandbox\"") && now.contains("retention_days = 3"), "{now}");
        let shown = node.anet(["autoreply", "show", "--json"]).output().expect_code(0).json();
        let shown = shown.to_string();
        assert!(shown.contains("\"untrusted\":\"sandbox\"") && shown.contains("9"), "{shown}");
        let shown = node.anet(["autoreply", "show"]).output().expect_code(0);
        assert!(shown.out().contains("untrusted") && shown.out().contains("custom"), "{shown}");
        // What is wrong changes nothing.
        for bad in [
            &["--untrusted", "always"][..],
            &["--runs-per-day", "-1"],
            &["--runs-per-day", "many"],
            &["--no-such-key", "1"],
        ] {
            let args = ["autoreply", "set"].into_iter().chain(bad.iter().copied());
            assert_ne!(node.anet(args).output().code(), 0, "{bad:?}");
        }
        assert_eq!(fs::read_to_string(node.configuration()).expect("the configuration"), now);
    }
}

/// A file that is not there yet is made, closed to others.
#[test]
fn a_set_makes_the_file() {
    let person = Person::new(Who::User);
    person.anet(["autoreply", "set", "--untrusted", "sandbox"]).output().expect_code(0);
    let file = person.path("config/anet/anet.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    assert!(text.contains("untrusted = \"sandbox\""), "{text}");
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(fs::metadata(&file).expect("the file").permissions().mode() & 0o022, 0);
}

/// EGR-1: without a terminal no host is added, whatever stands on standard input; removing needs none.
#[test]
fn a_host_is_added_on_a_terminal_alone() {
    for who in Who::all() {
        let person = Person::new(*who);
        let text = shell_agent("", &format!("egress_allow = [\"{HOST}\"]"));
        let node = Node::new(&person, None, &text);
        let both = format!("{HOST},{OTHER}");
        for input in ["", "yes\n", "y\n", "other.example.com\n"] {
            let call = node.anet(["autoreply", "set", "--egress-allow", &both]).stdin(input);
            let outcome = call.output();
            assert_ne!(outcome.code(), 0, "EGR-1: {outcome}");
            assert!(outcome.err().contains("terminal"), "EGR-1: {outcome}");
        }
        assert_eq!(fs::read_to_string(node.configuration()).expect("the configuration"), text, "EGR-1");
        for bad in [
            "*.example.com",
            "10.0.0.1",
            "localhost",
            "a.internal",
            "https://a.example.com",
            "a.example.com:443",
        ] {
            let outcome = node.anet(["autoreply", "set", "--egress-allow", bad]).output();
            assert_ne!(outcome.code(), 0, "EGR-2: {bad}: {outcome}");
        }
        // Another host beside a removed one is added all the same; the same hosts again are none.
        let swap = node.anet(["autoreply", "set", "--egress-allow", OTHER]).output();
        assert_ne!(swap.code(), 0, "EGR-1: {swap}");
        node.anet(["autoreply", "set", "--egress-allow", HOST]).output().expect_code(0);
        node.anet(["autoreply", "set", "--egress-allow", ""]).output().expect_code(0);
        let now = fs::read_to_string(node.configuration()).expect("the configuration");
        assert!(!now.contains(HOST), "EGR-1: {now}");
    }
}

/// EGR-1: confirmed on a terminal, a host is reached from the next run on; a run that goes on keeps what it had; removed, it is
/// reached no more.
#[test]
fn a_confirmed_host_is_reached_from_the_next_run_on() {
    let Some(net) = Internet::new() else { return };
    for who in Who::all() {
        net.https(HOST, |_| Response::ok("hello"));
        let person = Person::new(*who);
        let node = Node::serving(&person, Some(&net), &shell_agent("", "# hosts\negress_allow = []"));
        let outcome = fetch(&node, HOST);
        assert!(!outcome.out().contains("hello"), "{outcome}");
        let set = || {
            let call = node.anet(["autoreply", "set", "--egress-allow", HOST]);
            net.inside(|| Terminal::start(&person, &call.command()))
        };
        // Another word is no confirmation.
        let mut terminal = set();
        terminal.wait_for(HOST);
        terminal.type_in("no\n");
        assert_ne!(terminal.wait().code(), Some(0), "{}", terminal.shown());
        assert!(
            !fs::read_to_string(node.configuration()).expect("the configuration").contains(HOST),
            "EGR-1"
        );
        let mark = marker();
        let old = node.submit("p2", &format!("sleep {mark}; curl -sS --max-time 20 https://{HOST}/ 2>&1"));
        node.wait_state(&old, "running");
        let mut terminal = set();
        terminal.wait_for(HOST);
        terminal.type_in("yes\n");
        assert_eq!(terminal.wait().code(), Some(0), "{}", terminal.shown());
        assert!(fs::read_to_string(node.configuration()).expect("the configuration").contains("# hosts"));
        // The run that goes on is left to its end, with the list that it had.
        let up = processes::wait_for(PATIENCE, || processes::with_argument(&format!("sleep {mark}")));
        let next = node.submit("p1", &format!("curl -sS --max-time 20 https://{HOST}/ 2>&1"));
        for process in up.iter().filter(|p| p.name == "sleep") {
            processes::signal(process.pid, nix::sys::signal::Signal::SIGTERM);
        }
        let story = node.wait_final(&old);
        assert!(
            !story["answer"].as_str().unwrap_or_default().contains("hello"),
            "EGR-1: from the next run on: {story}"
        );
        let story = node.wait_state(&next, "answered");
        assert_eq!(story["answer"].as_str().map(str::trim_end), Some("hello"), "EGR-1: {story}");
        assert_eq!(node.status()["egress_allow"], json!([HOST]));
        node.anet(["autoreply", "set", "--egress-allow", ""]).output().expect_code(0);
        node.wait_status("it is removed", |s| s["egress_allow"] == json!([]));
        let outcome = fetch(&node, HOST);
        assert!(!outcome.out().contains("hello"), "EGR-1: {outcome}");
        let kinds: Vec<String> =
            node.evidence().iter().filter_map(|r| r["kind"].as_str().map(str::to_owned)).collect();
        assert!(kinds.iter().any(|k| k.contains("config")), "EVI-1: changes of the configuration: {kinds:?}");
        node.verify().expect_code(0);
    }
}

/// BUD-4, DIA-1: a run that uses up its egress budget is ended: `exhausted`, the peer told `budget` of kind `egress`.
#[test]
fn a_run_that_reaches_too_far_is_exhausted() {
    let Some(net) = Internet::new() else { return };
    for host in ["one.example.com", "two.example.com"] {
        net.https(host, |_| Response::ok("hello"));
    }
    for who in Who::all() {
        let person = Person::new(*who);
        let text = format!(
            "{}\n[auto_reply.sandbox.budget]\ndestinations = 1\n",
            shell_agent("", "egress_allow = [\"one.example.com\", \"two.example.com\"]")
        );
        let node = Node::serving(&person, Some(&net), &text);
        let mark = marker();
        let script = format!(
            "curl -sS --max-time 20 https://one.example.com/; curl -sS --max-time 20 https://two.example.com/; sleep {mark}"
        );
        let outcome = node.ask("p1", &script).expect_code(75);
        assert_eq!(code_of(&outcome), "budget", "BUD-4: {outcome}");
        let row = node.inbox()[0].clone();
        assert_eq!((&row["state"], &row["code"]), (&json!("exhausted"), &json!("budget")), "{row}");
        let story = node.show(row["id"].as_str().expect("an id"));
        assert_eq!(story["refusal"]["kind"], "egress", "DIA-1: {story}");
        assert!(processes::with_argument(&mark).is_empty(), "BUD-4: the run is ended");
        assert_eq!(node.status()["day"]["runs"]["used"], 1, "RUN-1: its agent started");
    }
}

/// A configuration that changes while runs go on: they are left to their end, what waits is not lost, and no run is started by
/// half of it.
#[test]
fn a_change_waits_for_runs_to_end() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    let mark = marker();
    let held = node.submit("p1", &format!("sleep {mark}; echo old"));
    node.wait_state(&held, "running");
    let guard = node.pids()["guard"];
    node.configure(&shell_agent("command = [\"/bin/sh\", \"-c\", \"echo new\"]", ""));
    let waiting = node.submit("p1", "echo what the task says");
    let up = processes::wait_for(PATIENCE, || processes::with_argument(&format!("sleep {mark}")));
    for process in up.iter().filter(|p| p.name == "sleep") {
        processes::signal(process.pid, nix::sys::signal::Signal::SIGTERM);
    }
    let story = node.wait_final(&held);
    assert_eq!(story["answer"].as_str().map(str::trim_end), Some("old"), "{story}");
    let story = node.wait_final(&waiting);
    let answer = story["answer"].as_str().map(str::trim_end).unwrap_or_default().to_owned();
    assert_eq!(answer, "new", "from the next run on: {story}");
    until("it is another life", PATIENCE, || {
        if node.pids()["guard"] == guard { Err("the same guard".to_owned()) } else { Ok(()) }
    });
    assert_eq!(node.inbox().len(), 2);
}
