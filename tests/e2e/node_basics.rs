//! The node from outside: a task in, an answer out; ACC, DIA-3, PRV-6's readiness, and what is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::harness::{self, Harness};
use tests::node::{Node, shell_agent, state_of, until};
use tests::person::{ORDINARY_UID, Outcome, Person, Who};
use tests::processes;
use tests::terminal::Terminal;

use crate::marker;

/// Another user of the machine.
const STRANGER_UID: u32 = ORDINARY_UID + 1;

/// The code in `anet: CODE: sentence`, where it is the last line on standard error.
#[track_caller]
pub(crate) fn code_of(outcome: &Outcome) -> String {
    let text = outcome.err();
    let line = text.lines().rev().find(|line| line.starts_with("anet: "));
    let line = line.unwrap_or_else(|| panic!("no line of anet's: {outcome}"));
    let mut parts = line.splitn(3, ": ");
    let (_, code, sentence) = (parts.next(), parts.next().unwrap_or_default(), parts.next());
    let sentence = sentence.unwrap_or_default();
    assert!(sentence.len() > 10 && sentence.contains(' '), "USE-1: a sentence: {outcome}");
    for raw in ["Error {", "Os {", "panicked", "RUST_BACKTRACE", "Err("] {
        assert!(!text.contains(raw), "USE-1: {raw}: {outcome}");
    }
    code.to_owned()
}

/// From nothing to an answered task: a configuration, a daemon, a task; no network and no model (USE-1, ACC-2).
#[test]
fn five_commands_from_nothing_to_an_answer() {
    for who in Who::all() {
        let person = Person::new(*who);
        let command = r#"["/bin/sh", "-c", "tr a-z A-Z"]"#;
        let text = "[auto_reply]\nagent = \"custom\"\nuntrusted = \"sandbox\"\n";
        let mut node = Node::new(&person, None, &format!("{text}command = {command}\n"));
        node.anet(["doctor"]).output().expect_code(0);
        node.start();
        node.ask("p1", "good day").expect_out("GOOD DAY");
        let list = node.anet(["inbox"]).output().expect_code(0);
        assert!(list.out().contains("p1") && list.out().contains("answered"), "{list}");
        let id = node.inbox()[0]["id"].as_str().expect("an id").to_owned();
        let shown = node.anet(["show", &id]).output().expect_code(0);
        assert!(shown.out().contains("GOOD DAY") && shown.out().contains(&id), "ACC-2: {shown}");
        assert!(node.stop().success(), "{}", node.log());
    }
}

/// CLI: the text as an argument; `--wait` prints the answer on standard output and nothing else there, exit 0; without it
/// the interaction's id.
#[test]
fn submit_takes_a_text_and_prints_an_id_or_an_answer() {
    for who in Who::all() {
        let person = Person::new(*who);
        let node = Node::serving(&person, None, &shell_agent("", ""));
        let asked = node.anet(["submit", "--peer", "p1", "--wait", "echo one; echo err >&2"]).output();
        asked.expect_out("one");
        let put = node.anet(["submit", "--peer", "p1", "echo two"]).output().expect_code(0);
        let id = put.out();
        assert_eq!(id.lines().count(), 1, "{put}");
        let story = node.wait_state(&id, "answered");
        assert_eq!(story["answer"].as_str().map(str::trim_end), Some("two"), "{story}");
        // The same id again, to wait for what is there already.
        let again = node.anet(["submit", "--peer", "p1", "--interaction", &id, "--wait", "echo two"]);
        again.output().expect_out("two");
        let named = node.anet(["submit", "--peer", "p1", "--interaction", "my.task-1", "echo three"]);
        named.output().expect_out("my.task-1");
        node.wait_state("my.task-1", "answered");
    }
}

/// CLI: the fields of `anet status --json` and their types; DIA-3.
#[test]
fn status_has_the_shape_of_the_contract() {
    for who in Who::all() {
        let person = Person::new(*who);
        let node = Node::serving(&person, None, &shell_agent("", "egress_allow = [\"pkg.example.com\"]"));
        node.ask("p1", "true; echo x").expect_code(0);
        let status = node.status();
        assert!(status["version"].as_str().is_some_and(|v| v.contains('.')), "{status}");
        assert_eq!(status["mode"], "user", "{status}");
        assert!(status["uptime_seconds"].is_u64(), "{status}");
        let sandbox = &status["sandbox"];
        assert_eq!(sandbox["available"], true, "{status}");
        assert!(sandbox["code"].is_null() && sandbox["sentence"].is_null(), "{status}");
        assert!(["full", "partial"].contains(&sandbox["limits"].as_str().unwrap_or_default()), "{status}");
        assert!(sandbox["landlock_abi"].is_u64(), "{status}");
        assert!(sandbox["checked"].as_str().is_some_and(|t| t.starts_with("20")), "{status}");
        let warned = status["warnings"].as_array().expect("a list");
        for warning in warned {
            assert!(warning["code"].is_string() && warning["sentence"].is_string(), "{status}");
        }
        let partial = warned.iter().any(|w| w["code"] == "no_cgroup_limits");
        assert_eq!(partial, sandbox["limits"] == "partial", "LIM-2: {status}");
        let processes = status["processes"].as_array().expect("a list");
        let names: Vec<&str> = processes.iter().filter_map(|p| p["name"].as_str()).collect();
        for name in ["guard", "supervisor", "launcher", "proxy"] {
            assert!(names.contains(&name), "{name}: {status}");
        }
        for process in processes {
            let pid = process["pid"].as_u64().expect("a pid");
            assert!(process["uid"].is_u64(), "{status}");
            assert!(fs::metadata(format!("/proc/{pid}")).is_ok(), "there is no {process}: {status}");
        }
        assert_eq!(status["runs"], json!([]), "{status}");
        let day = &status["day"];
        assert_eq!(day["date"].as_str().map(str::len), Some(10), "{status}");
        assert!(day["ends"].as_str() > day["date"].as_str(), "{status}");
        assert_eq!(day["runs"], json!({ "used": 1, "limit": 20 }), "RUN-1: {status}");
        assert_eq!(day["peers"], json!([{ "aid": "p1", "used": 1, "limit": 5 }]), "RUN-1: {status}");
        assert_eq!(status["egress_allow"], json!(["pkg.example.com"]), "{status}");
        // The same for people.
        let table = node.anet(["status"]).output().expect_code(0);
        assert!(table.out().contains("supervisor") && !table.stdout.contains(&0x1b), "{table}");
    }
}

/// USE-2: `--watch` redraws on a terminal, fits it, and ends with Ctrl-C; the terminal is as it was.
#[test]
fn status_can_be_watched() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    let call = node.anet(["status", "--watch"]);
    let mut terminal = Terminal::start(&person, &call.command());
    let before = terminal.attributes();
    terminal.wait_for("supervisor");
    let mark = marker();
    let held = node.submit("p-watched", &format!("sleep {mark}; echo x"));
    terminal.wait_for("p-watched");
    terminal.resize(10, 60);
    terminal.wait_for("taller");
    terminal.type_in("\x03");
    let status = terminal.wait();
    assert!(
        status.code().is_some_and(|code| [0, 130].contains(&code)) || status.code().is_none(),
        "{status:?}"
    );
    assert_eq!(terminal.attributes(), before, "{}", terminal.shown());
    for sleeping in processes::with_argument(&mark).iter().filter(|p| p.name == "sleep") {
        processes::signal(sleeping.pid, Signal::SIGTERM);
    }
    node.wait_final(&held);
}

/// CLI: what `inbox` and `show` say of a task that waits, one that runs, and one that has its answer.
#[test]
fn inbox_and_show_follow_a_task() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    let mark = marker();
    let held = node.submit("p1", &format!("sleep {mark}; echo over"));
    node.wait_state(&held, "running");
    let second = node.submit("p1", "echo second");
    let status = node.wait_status("the run is shown", |s| s["runs"][0]["state"] == "running");
    let run = &status["runs"][0];
    assert_eq!((&run["interaction"], &run["peer"]), (&json!(held), &json!("p1")), "{status}");
    assert!(run["started"].as_str().is_some_and(|t| t.starts_with("20")), "{status}");
    // One place a peer (RUN-5): the second waits.
    assert_eq!(node.state(&second), "queued");
    let rows = node.inbox();
    let ids: Vec<&str> = rows.iter().filter_map(|row| row["id"].as_str()).collect();
    assert_eq!(ids, [second.as_str(), held.as_str()], "newest first");
    assert!(rows.iter().all(|row| row["peer"] == "p1" && row["code"].is_null()), "{rows:?}");
    let run = run["run"].as_str().expect("a name").to_owned();
    let by_run = node.show(&run);
    assert!(by_run.to_string().contains(&held), "CLI: show takes a run too: {by_run}");
    for sleeping in processes::with_argument(&mark).iter().filter(|p| p.name == "sleep") {
        processes::signal(sleeping.pid, Signal::SIGTERM);
    }
    let story = node.wait_state(&held, "answered");
    assert!(
        story["answer"].as_str().is_some_and(|a| a.ends_with("over\n") || a.ends_with("over")),
        "{story}"
    );
    assert!(story["task"].as_str().is_some_and(|t| t.contains(&mark)), "{story}");
    let record = &story["runs"][0]["record"];
    // The record is JSON in the story, or its text.
    let text = record.as_str().map(|text| serde_json::from_str(text).expect("JSON"));
    let record: Value = text.unwrap_or_else(|| record.clone());
    assert_eq!((&record["run"], &record["exit"]["status"]), (&json!(run), &json!(0)), "{story}");
    node.wait_state(&second, "answered");
    node.anet(["show", "no-such-thing"]).output().expect_failure_of_anet(125);
}

/// CLI: a custom agent finds the task on standard input, in place of `{task}`, or in the file named by `{task_file}`; a task
/// that has such words in it is text.
#[test]
fn a_task_comes_on_stdin_as_argument_or_as_file() {
    let person = Person::new(Who::User);
    let task = "a 'task' with {task_file} and $(id) in it";
    let cases = [
        r#"["/bin/sh", "-c", "cat"]"#,
        r#"["/bin/sh", "-c", "printf %s \"$1\"", "sh", "{task}"]"#,
        r#"["/bin/cat", "{task_file}"]"#,
    ];
    for command in cases {
        let text = shell_agent(&format!("command = {command}"), "");
        let mut node = Node::serving(&person, None, &text);
        node.ask("p1", task).expect_out(task);
        node.stop();
    }
}

/// ACC-1: the same id with the same text is the same task; with another text, or of another peer, it is refused.
#[test]
fn an_id_names_one_task() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    let put = |peer: &str, text: &str| {
        node.anet(["submit", "--peer", peer, "--interaction", "task-1", text]).output()
    };
    put("p1", "echo once").expect_out("task-1");
    put("p1", "echo once").expect_out("task-1");
    node.wait_state("task-1", "answered");
    put("p1", "echo once").expect_out("task-1");
    for (peer, text) in [("p1", "echo other"), ("p2", "echo once")] {
        let outcome = put(peer, text);
        assert_ne!(outcome.code(), 0, "ACC-1: {outcome}");
        assert_eq!(code_of(&outcome), "other_task", "ACC-1: {outcome}");
    }
    assert_eq!(node.inbox().len(), 1, "{:?}", node.inbox());
    assert_eq!(node.status()["day"]["runs"]["used"], 1, "it ran once");
    for bad in ["", "..", "a/b", "-a", &"a".repeat(65)] {
        let args = ["submit", "--peer", "p1", &format!("--interaction={bad}"), "echo x"];
        assert_ne!(node.anet(args).output().code(), 0, "FS-5: {bad:?}");
        let peer = format!("--peer={bad}");
        assert_ne!(node.anet(["submit", &peer, "echo x"]).output().code(), 0, "FS-5: {bad:?}");
    }
    assert_eq!(node.inbox().len(), 1, "{:?}", node.inbox());
}

/// ACC-2: the answer is what the agent wrote, to the byte.
#[test]
fn an_answer_is_what_the_agent_wrote() {
    for who in Who::all() {
        let person = Person::new(*who);
        let node = Node::serving(&person, None, &shell_agent("", ""));
        let script = "printf ' two\\n\\n\\tlines \\303\\244\\342\\202\\254 \\033[31mred\\033[0m\\n'";
        let wanted = " two\n\n\tlines \u{e4}\u{20ac} \u{1b}[31mred\u{1b}[0m";
        let outcome = node.ask("friend", script).expect_code(0);
        let got = String::from_utf8(outcome.stdout.clone()).expect("UTF-8");
        assert_eq!(got.strip_suffix('\n').unwrap_or(&got), wanted, "ACC-2: {outcome}");
        let id = node.inbox()[0]["id"].as_str().expect("an id").to_owned();
        let kept = node.show(&id)["answer"].as_str().unwrap_or_default().to_owned();
        assert_eq!(kept.strip_suffix('\n').unwrap_or(&kept), wanted, "ACC-2");
        // A terminal is not steered by what a stranger's task made an agent say: see the lines of a table.
        let table = node.anet(["inbox"]).output().expect_code(0);
        assert!(!table.stdout.contains(&0x1b), "{table}");
    }
}

/// A task of one mebibyte goes through whole; one byte more is refused, in words, and is not in the inbox.
#[test]
fn a_large_task_is_whole_and_a_too_large_one_refused() {
    let person = Person::new(Who::User);
    let text = shell_agent(r#"command = ["/usr/bin/sha256sum"]"#, "");
    let node = Node::serving(&person, None, &text);
    // Not one letter over and over: what is lost or doubled shows.
    let numbers: String = (0..200_000u32).map(|n| format!("{n:06}\n")).collect();
    let mut task = numbers[..1024 * 1024].to_owned();
    let digest = <sha2::Sha256 as sha2::Digest>::digest(task.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    node.ask("p1", &task).expect_out(&format!("{hex}  -"));
    task.push('x');
    let outcome = node.ask("p1", &task);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert_eq!(code_of(&outcome), "bad_task", "{outcome}");
    assert_eq!(node.inbox().len(), 1);
}

/// DIA-1: an agent that says nothing, fails, is killed or writes no text is told apart, by a code and a sentence; the run
/// counts, since its agent started (RUN-1).
#[test]
fn an_agent_without_an_answer_is_a_refusal() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    let scripts = ["true", "echo half >&2; exit 3", "echo half; kill -KILL $$", "exec /no/such/program"];
    for (peer, script) in scripts.iter().enumerate() {
        let outcome = node.ask(&format!("p{peer}"), script).expect_code(75);
        assert_eq!(code_of(&outcome), "agent_failed", "{script}: {outcome}");
        assert_eq!(outcome.out(), "", "{script}: {outcome}");
        let row = node.inbox()[0].clone();
        assert_eq!((&row["state"], &row["code"]), (&json!("refused"), &json!("agent_failed")), "{row}");
    }
    // Bytes that are no text: an answer or a refusal, but one that can be shown, and the node lives.
    let outcome = node.ask("p9", "head -c 4096 /dev/urandom");
    assert!([0, 75].contains(&outcome.code()), "{outcome}");
    node.show(node.inbox()[0]["id"].as_str().expect("an id"));
    let status = node.status();
    assert_eq!(status["day"]["runs"]["used"], 5, "RUN-1: {status}");
    assert_eq!(status["restarts"], 0, "{status}\n{}", node.log());
    node.ask("friend", "echo on").expect_out("on");
}

/// The wall clock of LIM ends a run of a node, and whatever it started.
#[test]
fn a_run_that_takes_too_long_is_ended() {
    for who in Who::all() {
        let person = Person::new(*who);
        let node = Node::serving(&person, None, &shell_agent("api_timeout_seconds = 1", ""));
        let mark = marker();
        let script = format!("(setsid sleep {mark} &); trap '' TERM INT HUP; sleep {mark}; sleep {mark}");
        let outcome = node.ask("p1", &script).expect_code(75);
        assert_eq!(code_of(&outcome), "agent_failed", "{outcome}");
        assert!(outcome.took < Duration::from_secs(20), "{outcome}");
        let gone = processes::wait_gone(Duration::from_secs(5), || processes::with_argument(&mark));
        assert_eq!(gone, [], "SBX-5");
        let story = node.show(node.inbox()[0]["id"].as_str().expect("an id"));
        assert!(story.to_string().contains("wall_clock"), "LIM-1: the record says which: {story}");
    }
}

/// CLI: without a node, what asks it exits with 69 and says so.
#[test]
fn without_a_node_everything_says_so() {
    for who in Who::all() {
        let person = Person::new(*who);
        for args in [
            &["submit", "--peer", "p1", "x"][..],
            &["submit", "--peer", "p1", "--wait", "x"],
            &["status"],
            &["inbox"],
        ] {
            let outcome = person.anet(args.iter().copied()).output();
            assert_eq!(outcome.code(), 69, "{args:?}: {outcome}");
            assert_eq!(code_of(&outcome), "no_node", "{args:?}: {outcome}");
            assert_eq!(outcome.out(), "", "{args:?}: {outcome}");
        }
    }
}

/// CLI: a configuration that does not parse, has an unknown key or a bad value names file, line and key, and nothing starts.
#[test]
fn a_wrong_configuration_starts_nothing() {
    let person = Person::new(Who::User);
    let cases = [
        ("[auto_reply]\nuntrused = \"sandbox\"\n", 2, "untrused"),
        ("\n\n[auto_reply\n", 3, ""),
        ("[auto_reply]\nagent = \"custom\"\nuntrusted = \"always\"\n", 3, "untrusted"),
        ("[auto_reply.sandbox]\nruns_per_day = -1\n", 2, "runs_per_day"),
        ("[auto_reply.sandbox]\negress_allow = [\"*.example.com\"]\n", 2, "egress_allow"),
        ("trust = [\"a/b\"]\n", 1, "trust"),
    ];
    for (text, line, key) in cases {
        let node = Node::new(&person, None, text);
        let outcome = node.anet(["daemon"]).timeout(Duration::from_secs(20)).output();
        assert_ne!(outcome.code(), 0, "{text}: {outcome}");
        assert_eq!(code_of(&outcome), "bad_config", "{text}: {outcome}");
        let said = outcome.err();
        let file = node.configuration();
        assert!(said.contains(file.to_str().expect("text")) && said.contains(key), "{text}: {outcome}");
        // A value that parses and means nothing may be named by its key alone.
        assert!(said.contains(&format!("line {line}")) || key == "trust", "{text}: {outcome}");
        assert!(node.try_status().is_none());
    }
    assert!(!person.path("state").join("anet/evidence").exists(), "nothing starts");
}

/// A configuration that becomes wrong while the node serves: it is said in the status, and nothing is run by half of it; mended,
/// the node works on.
#[test]
fn a_configuration_that_breaks_later_is_said() {
    let person = Person::new(Who::User);
    let good = shell_agent("", "");
    let node = Node::serving(&person, None, &good);
    node.ask("p1", "echo one").expect_out("one");
    node.configure(&format!("{good}\nno_such_key = 1\n"));
    until("bad_config is said", tests::node::PATIENCE, || {
        let said = node.anet(["status"]).attempt();
        let text = format!("{} {}", said, node.log());
        if text.contains("bad_config") { Ok(()) } else { Err(text) }
    });
    node.configure(&good);
    until("the node works again", tests::node::PATIENCE, || {
        let outcome = node.anet(["submit", "--peer", "p1", "--wait", "echo two"]).attempt();
        if outcome.code() == 0 && outcome.out() == "two" { Ok(()) } else { Err(outcome.to_string()) }
    });
}

/// One node a user: a second daemon is told, and the first one serves on.
#[test]
fn two_daemons_at_once() {
    for who in Who::all() {
        let person = Person::new(*who);
        let node = Node::serving(&person, None, &shell_agent("", ""));
        let second = node.anet(["daemon"]).timeout(Duration::from_secs(20)).output();
        assert_ne!(second.code(), 0, "{second}");
        assert_eq!(code_of(&second), "node_running", "{second}");
        let guard = node.pids()["guard"];
        node.ask("p1", "echo on").expect_out("on");
        assert_eq!(node.pids()["guard"], guard, "the first one is untouched");
    }
}

/// Two that start in the same moment: one serves, the other is told, and what is left is one node.
#[test]
fn two_daemons_that_start_together() {
    let person = Person::new(Who::User);
    for _ in 0..3 {
        let mut one = Node::new(&person, None, &shell_agent("", ""));
        let mut two = Node::new(&person, None, &shell_agent("", ""));
        one.spawn();
        two.spawn();
        let status = until("one of them serves", tests::node::PATIENCE, || one.try_status().ok_or(one.log()));
        // The loser ends by itself.
        let (one_ended, two_ended) =
            until("one of them ends", tests::node::PATIENCE, || match (one.has_ended(), two.has_ended()) {
                (false, false) => Err(one.log()),
                ended => Ok(ended),
            });
        assert_ne!(one_ended, two_ended, "{}", one.log());
        let winner = if two_ended { &mut one } else { &mut two };
        assert!(winner.log().contains("node_running"), "{}", winner.log());
        winner.wait_serving();
        winner.ask("friend", "echo on").expect_out("on");
        drop(status);
        assert!(winner.stop().success(), "{}", winner.log());
    }
}

/// ACC-1: only the operator may put a task into the inbox, whatever the modes of files say.
#[test]
fn another_user_may_not_connect() {
    if harness::kind() != Harness::Root {
        return harness::skip("the control socket and other users", "only root can be two users");
    }
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    // As if everything were open: then the socket itself has to say no.
    let runtime = person.path("runtime");
    for path in walk(&runtime) {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("mode");
    }
    let stranger = |args: &[&str]| {
        let call = node.anet(args.iter().copied());
        let inner = call.command();
        // The last of the operator's own call is `-- ANET ARGS`: the same as somebody else.
        let program = inner.get_args().skip_while(|arg| *arg != "--").skip(1);
        let mut command = Command::new("setpriv");
        let uid = STRANGER_UID.to_string();
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]).args(program);
        command.env_clear().envs(person.environment()).current_dir("/");
        command.output().expect("setpriv of util-linux")
    };
    for args in [
        &["submit", "--peer", "friend", "echo x"][..],
        &["status"],
        &["inbox"],
        &["submit", "--peer", "p", "--wait", "echo x"],
    ] {
        let output = stranger(args);
        assert!(!output.status.success(), "ACC-1: {args:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(["not_allowed", "no_node"].iter().any(|code| said.contains(code)), "{args:?}: {said}");
    }
    assert_eq!(node.inbox().len(), 0, "ACC-1");
    // The stranger speaks to the socket without asking `anet`: nothing comes back that is the operator's.
    let socket = walk(&runtime).into_iter().find(|p| p.extension().is_some_and(|e| e == "sock"));
    let socket = socket.expect("a control socket below the runtime directory");
    let script = format!(
        "import socket,sys\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n\
         s.settimeout(5)\ns.connect('{}')\ns.send(b'\\0\\1\\0')\nwhile True:\n d=s.recv(65536)\n \
         if not d: break\n sys.stdout.buffer.write(d)\n",
        socket.display()
    );
    let uid = STRANGER_UID.to_string();
    let mut python = Command::new("setpriv");
    python.args([
        "--reuid",
        &uid,
        "--regid",
        &uid,
        "--clear-groups",
        "--",
        "/usr/bin/python3",
        "-c",
        &script,
    ]);
    let said = python.env_clear().output().expect("setpriv of util-linux");
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(!text.contains("p1") && said.stdout.len() < 2048, "{text}");
    node.ask("p1", "echo on").expect_out("on");
}

/// Every path below, directories too.
fn walk(path: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![path.to_owned()];
    let mut at = 0;
    while at < found.len() {
        for entry in fs::read_dir(&found[at]).into_iter().flatten().flatten() {
            found.push(entry.path());
        }
        at += 1;
    }
    found
}

/// The socket takes bytes from a client: whatever it says, the node lives and others are served.
#[test]
fn a_client_that_talks_nonsense_is_alone_with_it() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    let socket =
        walk(&person.path("runtime")).into_iter().find(|p| p.extension().is_some_and(|e| e == "sock"));
    let socket = socket.expect("a control socket below the runtime directory");
    let script = format!(
        "import socket,os,array\n\
         path='{}'\n\
         def c():\n s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET); s.settimeout(5); s.connect(path); return s\n\
         held=[c() for _ in range(8)]\n\
         import random\n\
         random.seed(7)\n\
         for n in range(300):\n\
         \x20s=c()\n\
         \x20try:\n\
         \x20 data=bytes(random.randrange(256) for _ in range(random.choice([0,1,2,3,7,40,4000,20000])))\n\
         \x20 if n%3==0:\n\
         \x20  r,w=os.pipe(); s.sendmsg([data or b'x'],[(socket.SOL_SOCKET,socket.SCM_RIGHTS,array.array('i',[r]*(n%5+1)))]); os.close(r); os.close(w)\n\
         \x20 else:\n\
         \x20  s.send(data)\n\
         \x20 if n%2: s.recv(65536)\n\
         \x20except OSError: pass\n\
         \x20s.close()\n\
         print('over')\n",
        socket.display()
    );
    let before = node.pids();
    let mut python = person.command("/usr/bin/python3");
    let output = python.args(["-c", &script]).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    node.ask("p1", "echo on").expect_out("on");
    assert_eq!(node.pids(), before, "nothing was started anew\n{}", node.log());
    let open = tests::node::descriptors(before["supervisor"]);
    until("descriptors are given back", Duration::from_secs(10), || {
        let now = tests::node::descriptors(before["supervisor"]);
        if now <= open { Ok(()) } else { Err(format!("{open:?} {now:?}")) }
    });
}

/// `sd_notify`: ready when it serves, stopping when it is told to end.
#[test]
fn systemd_is_told_when_it_serves_and_stops() {
    for who in Who::all() {
        let person = Person::new(*who);
        let path = person.path("notify.sock");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("mode");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("time-out");
        let heard = |wanted: &str| {
            let mut buffer = [0; 4096];
            loop {
                let length = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{wanted}: {e}"));
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if text.lines().any(|line| line == wanted) {
                    return;
                }
            }
        };
        let mut node = Node::new(&person, None, &shell_agent("", "")).env("NOTIFY_SOCKET", &path);
        node.spawn();
        heard("READY=1");
        assert!(node.try_status().is_some(), "ready, and not there: {}", node.log());
        processes::signal(node.keeper(), Signal::SIGTERM);
        heard("STOPPING=1");
        assert!(node.wait_ended().success(), "{}", node.log());
    }
}

/// SIGTERM and SIGINT end it cleanly: runs end, nothing is left, it is recorded, the state says interrupted.
#[test]
fn it_stops_cleanly() {
    for who in Who::all() {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let person = Person::new(*who);
            let mut node = Node::serving(&person, None, &shell_agent("", ""));
            let mark = marker();
            let running = node.submit("p1", &format!("trap '' TERM; sleep {mark}; sleep {mark}"));
            node.wait_state(&running, "running");
            let up = processes::wait_for(Duration::from_secs(20), || processes::with_argument(&mark));
            assert!(!up.is_empty(), "the agent runs");
            let queued = node.submit("p1", "echo later");
            let tree = node.tree();
            processes::signal(node.keeper(), signal);
            assert!(node.wait_ended().success(), "{signal:?}: {}", node.log());
            assert_eq!(processes::with_argument(&mark), [], "{signal:?}: SBX-5");
            let left = processes::still(&tree);
            assert_eq!(left, [], "{signal:?}");
            let sockets = walk(&person.path("runtime")).into_iter().filter(|p| p.is_file());
            assert_eq!(sockets.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
            assert_eq!(code_of(&node.anet(["status"]).output()), "no_node");
            node.verify().expect_code(0);
            node.start();
            let story = node.show(&running);
            assert_eq!(state_of(&story), "interrupted", "{story}");
            assert_eq!(story["refusal"]["code"], "sandbox_unavailable", "RUN-1: {story}");
            // What waited is still there, and runs; what was interrupted does not by itself.
            node.wait_state(&queued, "answered");
            assert_eq!(node.state(&running), "interrupted");
            assert_eq!(node.status()["day"]["runs"]["used"], 1, "RUN-1: {}", node.status());
            let kinds: Vec<String> = node
                .evidence()
                .iter()
                .filter_map(|record| record["kind"].as_str().map(str::to_owned))
                .collect();
            assert!(kinds.iter().any(|k| k.contains("stop")), "the stop is recorded: {kinds:?}");
        }
    }
}

/// A client that waits is told when the node ends under it: an exit status that is no answer.
#[test]
fn a_waiting_client_hears_of_the_nodes_end() {
    let person = Person::new(Who::User);
    let mut node = Node::serving(&person, None, &shell_agent("", ""));
    let mark = marker();
    let task = format!("sleep {mark}");
    std::thread::scope(|scope| {
        let call = node.anet(["submit", "--peer", "p1", "--interaction", "w1", "--wait", &task]);
        let waiting = scope.spawn(move || call.output());
        node.wait_state("w1", "running");
        node.stop();
        let outcome = waiting.join().expect("the client");
        assert!([69, 75].contains(&outcome.code()), "{outcome}");
        assert_eq!(outcome.out(), "", "{outcome}");
        code_of(&outcome);
    });
}
