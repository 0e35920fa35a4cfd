//! SEL-4: trusted peers' tasks outside of the sandbox, in a user's node alone, in a root of their own (FS-3).

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::harness::{self, Harness};
use tests::node::{Node, PATIENCE, shell_agent, until};
use tests::person::{Person, Who};
use tests::processes;

use crate::marker;
use crate::node_basics::code_of;

/// Direct for trusted peers, the sandbox for the others.
fn direct(more: &str) -> String {
    shell_agent(&format!("trusted = \"direct\"\n{more}"), "")
}

/// SEL-4, FS-3: as the operator's own user, with their home and environment, under `work/` and not under `work-sandbox/`; it
/// counts in no budget (RUN-1).
#[test]
fn a_trusted_peers_task_runs_as_the_operator() {
    for who in Who::all() {
        let person = Person::new(*who);
        fs::write(person.path("home").join("mine"), "of the operator").expect("a file");
        person.give(&person.path("home").join("mine"));
        let mut node = Node::new(&person, None, &direct("")).env("OF_THE_OPERATOR", "variable");
        node.start();
        let own = person.command("id").arg("-u").output().expect("id");
        let own = String::from_utf8_lossy(&own.stdout).trim().to_owned();
        let id = node
            .submit("friend", "id -u; pwd; cat $HOME/mine; echo; echo kept > kept; readlink /proc/self/ns/*");
        let story = node.wait_state(&id, "answered");
        let answer = story["answer"].as_str().expect("text").to_owned();
        let mut lines = answer.lines();
        assert_eq!(lines.next(), Some(own.as_str()), "SEL-4: {answer}");
        let work = lines.next().unwrap_or_default().to_owned();
        let dir = node.direct_dir("friend", &id);
        assert!(work.starts_with(dir.to_str().expect("text")), "FS-3: {work} in {}", dir.display());
        assert_eq!(lines.next(), Some("of the operator"), "SEL-4: {answer}");
        // The namespaces of whoever started the daemon.
        let net = fs::read_link("/proc/self/ns/net").expect("a namespace");
        let user = fs::read_link("/proc/self/ns/user").expect("a namespace");
        assert!(answer.contains(net.to_str().expect("text")), "SEL-4: without the sandbox: {answer}");
        let same = harness::kind() != Harness::Root || answer.contains(user.to_str().expect("text"));
        assert!(same, "SEL-4: without the sandbox: {answer}");
        assert!(fs::read_to_string(format!("{work}/kept")).is_ok(), "FS-3: kept");
        assert!(!node.sandbox_dir("friend", &id).exists(), "FS-3");
        assert_eq!(story["runs"][0]["way"], "direct", "{story}");
        assert_eq!(node.status()["day"]["runs"]["used"], 0, "RUN-1");
        // The others are where they were.
        node.ask("p1", "id -u; ls -d /home/anet").expect_out("1000\n/home/anet");
        node.verify().expect_code(0);
    }
}

/// SEL-2, SEL-4: without a sandbox trusted peers' direct runs go on, and an untrusted peer's task never becomes one.
#[test]
fn an_untrusted_task_never_runs_outside() {
    let Some(net) = tests::internet::Internet::new() else { return };
    net.change_here("/usr/bin");
    let person = Person::new(Who::User);
    net.inside(|| fs::remove_file("/usr/bin/bwrap")).expect("remove");
    let node = Node::serving(&person, Some(&net), &direct(""));
    node.ask("friend", "echo direct").expect_out("direct");
    let file = person.path("home").join("ran");
    let outcome = node.ask("p1", &format!("touch {}; echo x", file.display())).expect_code(75);
    assert_eq!(code_of(&outcome), "sandbox_unavailable", "SEL-2: {outcome}");
    assert!(!file.exists(), "SEL-2");
}

/// SBX-5 for direct runs too: whatever it started ends with it, with its time, and with the node.
#[test]
fn a_direct_run_leaves_nothing() {
    for who in Who::all() {
        let person = Person::new(*who);
        let mut node = Node::serving(&person, None, &direct(""));
        let mark = marker();
        let flees = format!(
            "(setsid sh -c \"trap '' TERM HUP INT; exec sleep {mark}\" >/dev/null 2>&1 &); sleep 0.1; echo fled"
        );
        node.ask("friend", &flees).expect_out("fled");
        let gone = processes::wait_gone(Duration::from_secs(5), || processes::with_argument(&mark));
        assert_eq!(gone, [], "no process of it is left when it has ended");
        node.configure(&direct("api_timeout_seconds = 1"));
        let outcome =
            node.ask("friend", &format!("trap '' TERM; sleep {mark}; sleep {mark}")).expect_code(75);
        assert_eq!(code_of(&outcome), "agent_failed", "{outcome}");
        assert_eq!(processes::wait_gone(Duration::from_secs(5), || processes::with_argument(&mark)), []);
        node.configure(&direct(""));
        let running = node.submit("friend", &format!("trap '' TERM HUP; setsid sleep {mark} & sleep {mark}"));
        node.wait_state(&running, "running");
        processes::wait_for(PATIENCE, || processes::with_argument(&format!("sleep {mark}")));
        node.stop();
        assert_eq!(processes::wait_gone(Duration::from_secs(5), || processes::with_argument(&mark)), []);
        node.start();
        assert_eq!(node.state(&running), "interrupted");
    }
}

/// SBX-5: a direct run ends with any process of the node.
#[test]
fn a_direct_run_ends_with_any_process_of_the_node() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &direct(""));
    for name in ["guard", "supervisor", "launcher", "proxy", "outside"] {
        let mark = marker();
        let running =
            node.submit("friend", &format!("trap '' TERM HUP; (setsid sleep {mark} &); exec sleep {mark}"));
        node.wait_state(&running, "running");
        let up = processes::wait_for(PATIENCE, || {
            let found = processes::with_argument(&format!("sleep {mark}"));
            if found.len() < 2 { Vec::new() } else { found }
        });
        assert!(up.len() >= 2, "{name}: it runs");
        let pids = node.pids();
        let pid = *pids.get(name).unwrap_or_else(|| panic!("{name} is not among {pids:?}"));
        processes::signal(pid, Signal::SIGKILL);
        let gone = processes::wait_gone(Duration::from_secs(5), || processes::with_argument(&mark));
        assert_eq!(gone, [], "SBX-5: {name} killed");
        node.wait_state(&running, "interrupted");
    }
    node.ask("friend", "echo on").expect_out("on");
}

/// SEL-4: a service runs nothing outside of the sandbox.
#[test]
fn a_service_refuses_direct() {
    if harness::kind() != Harness::Root {
        return harness::skip("a service with direct runs", "only root starts a service");
    }
    let Some(net) = tests::internet::Internet::new() else { return };
    // A service's own places, for this test alone.
    for dir in ["/etc", "/var/lib", "/var/cache"] {
        net.change_here(dir);
    }
    let person = Person::new(Who::Root);
    net.inside(|| {
        fs::create_dir_all("/etc/anet").expect("a directory");
        fs::write("/etc/anet/anet.toml", direct("")).expect("a configuration");
    });
    let outcome = person.anet(["daemon", "--system"]).within(&net).timeout(Duration::from_secs(20)).output();
    assert_ne!(outcome.code(), 0, "{outcome}");
    let code = code_of(&outcome);
    if code == "not_in_this_version" {
        return harness::skip("a service with direct runs", "this version has no service yet");
    }
    assert_eq!(code, "direct_in_service", "SEL-4: {outcome}");
}

/// FS-3: the roots of direct and sandboxed runs never overlap: equal, nested or through a link; refused at the start.
#[test]
fn overlapping_roots_are_refused() {
    let person = Person::new(Who::User);
    let sandboxed = person.path("cache/anet/work-sandbox");
    fs::create_dir_all(&sandboxed).expect("the root of sandboxed runs");
    for path in [person.path("cache/anet"), sandboxed.clone()] {
        person.give(&path);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("mode");
    }
    let link = person.path("home").join("link");
    std::os::unix::fs::symlink(&sandboxed, &link).expect("a link");
    person.give(&link);
    let below = link.join("p1");
    let dotted = person.path("cache/anet/work/../work-sandbox");
    for root in [
        sandboxed.clone(),
        sandboxed.join("below"),
        person.path("cache/anet"),
        person.path("cache"),
        link,
        below,
        dotted,
    ] {
        let node = Node::new(&person, None, &direct(&format!("work_dir = \"{}\"", root.display())));
        let outcome = node.anet(["daemon"]).timeout(Duration::from_secs(20)).output();
        assert_ne!(outcome.code(), 0, "FS-3: {}: {outcome}", root.display());
        assert_eq!(code_of(&outcome), "roots_overlap", "FS-3: {}: {outcome}", root.display());
    }
    // One of its own is taken.
    let own = person.work_dir("own");
    let node = Node::serving(&person, None, &direct(&format!("work_dir = \"{}\"", own.display())));
    let outcome = node.ask("friend", "pwd").expect_code(0);
    assert!(outcome.out().starts_with(own.to_str().expect("text")), "FS-3: {outcome}");
}

/// `notify`: the operator's command gets one JSON event on its standard input.
#[test]
fn the_operators_command_hears_of_events() {
    for who in Who::all() {
        let person = Person::new(*who);
        let events = person.path("home").join("events");
        // Each event in a file of its own, whole or not there.
        let script = format!("f=$(mktemp {0}.XXXXXX); cat > $f; mv $f {0}-$$", events.display());
        let command = serde_json::to_string(&["/bin/sh", "-c", &script]).expect("JSON");
        let text = shell_agent(&format!("notify = {command}"), "runs_per_peer_per_day = 1");
        let node = Node::serving(&person, None, &text);
        node.ask("p1", "echo once").expect_out("once");
        node.ask("p1", "echo twice").expect_code(75);
        let heard = || -> Vec<Value> {
            let files = fs::read_dir(person.path("home")).expect("home").flatten().map(|e| e.path());
            let ours =
                files.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("events-")));
            ours.filter_map(|p| serde_json::from_slice(&fs::read(p).ok()?).ok()).collect()
        };
        let event = until("an event", PATIENCE, || {
            heard().into_iter().find(|e| e.to_string().contains("p1")).ok_or_else(|| node.log())
        });
        assert!(event.is_object(), "one JSON event: {event}");
        assert!(!event.to_string().contains("echo once"), "EVI-4: {event}");
        // A process that dies is one too (PRV-6).
        let before = heard().len();
        processes::signal(node.pids()["launcher"], Signal::SIGKILL);
        until("an event of the restart", PATIENCE, || {
            if heard().len() > before { Ok(()) } else { Err(format!("{:?}\n{}", heard(), node.log())) }
        });
    }
}

/// A `notify` command that hangs, fails or is not there disturbs nothing.
#[test]
fn a_bad_notify_command_disturbs_nothing() {
    let person = Person::new(Who::User);
    let mark = marker();
    for command in [
        format!("[\"/bin/sleep\", \"{mark}\"]"),
        r#"["/no/such/program"]"#.into(),
        r#"["/bin/false"]"#.into(),
    ] {
        let text = shell_agent(&format!("notify = {command}"), "runs_per_peer_per_day = 1");
        let mut node = Node::serving(&person, None, &text);
        for n in 0..4 {
            let peer = format!("p{n}");
            let outcome = node.ask(&peer, "echo x");
            assert!([0, 75].contains(&outcome.code()), "{command}: {outcome}");
            node.ask(&peer, "echo x").expect_code(75);
        }
        assert_eq!(node.status()["restarts"], 0, "{command}: {}", node.log());
        assert!(node.stop().success(), "{command}: {}", node.log());
        assert_eq!(processes::with_argument(&mark), [], "{command}");
    }
}
