//! SEL, PRB, FS-3 and DIA of a node: when the sandbox is used, what is said where it cannot be, and what a run sees of the
//! node.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tests::installed::{copy_program, write_script};
use tests::internet::Internet;
use tests::node::{Node, PATIENCE, is_final, shell_agent, until};
use tests::person::{Person, Who};
use tests::processes;

use crate::marker;
use crate::node_basics::code_of;

/// What an agent says of where it is: in the sandbox the user is 1000 and the work directory `/work`.
const WHERE: &str = "echo $(id -u) $(pwd)";
const INSIDE: &str = "1000 /work";

/// SEL-1: by default nothing is run for untrusted peers: a task waits in the inbox; it is not refused.
#[test]
fn untrusted_peers_are_off_by_default() {
    let person = Person::new(Who::User);
    let text = "trust = [\"friend\"]\n[auto_reply]\nagent = \"custom\"\ncommand = [\"/bin/sh\"]\n";
    let node = Node::serving(&person, None, &format!("{text}trusted = \"sandbox\"\n"));
    let mark = marker();
    let waiting = node.submit("p1", &format!("sleep {mark}"));
    node.ask("friend", WHERE).expect_out(INSIDE);
    // Again: this one is decided in a scan that saw the waiting one too.
    node.ask("friend", WHERE).expect_out(INSIDE);
    assert_eq!(node.state(&waiting), "queued", "SEL-1");
    assert!(processes::with_argument(&mark).is_empty(), "SEL-1");
    assert_eq!(node.status()["day"]["runs"]["used"], 0);
}

/// SEL-1: `off` for trusted peers, `sandbox` for both: a peer is trusted only if it is named, letter by letter.
#[test]
fn trust_is_by_name() {
    let person = Person::new(Who::User);
    let text = shell_agent("trusted = \"off\"\nuntrusted = \"sandbox\"", "");
    let node = Node::serving(&person, None, &text);
    let waiting = node.submit("friend", WHERE);
    for peer in ["Friend", "friend2", "frien", "friend.", "friend@node"] {
        node.ask(peer, WHERE).expect_out(INSIDE);
    }
    assert_eq!(node.state(&waiting), "queued", "SEL-1");
    assert_eq!(node.status()["day"]["runs"]["used"], 5, "RUN-1: they are all untrusted");
    let rows = node.inbox();
    let trusted = |peer: &str| rows.iter().find(|row| row["peer"] == peer).map(|row| row["trusted"].clone());
    assert_eq!(trusted("Friend"), Some(json!(false)), "{rows:?}");
}

/// SEL-2, DIA-1, DIA-2: bubblewrap removed while the node runs: the peer gets `sandbox_unavailable`, no agent starts, status and
/// doctor say `no_bwrap` and what to do; back again, the node works without anybody's hand.
#[test]
fn without_bubblewrap_nothing_runs_until_it_is_back() {
    for who in Who::all() {
        let Some(net) = Internet::new() else { return };
        net.change_here("/usr/bin");
        let person = Person::new(*who);
        let kept = person.path("bwrap-kept");
        copy_program(Path::new("/usr/bin/bwrap"), &kept);
        let node = Node::serving(&person, Some(&net), &shell_agent("", ""));
        node.ask("p1", WHERE).expect_out(INSIDE);
        net.inside(|| fs::remove_file("/usr/bin/bwrap")).expect("remove");
        let mark = marker();
        for peer in ["p1", "friend"] {
            let outcome = node.ask(peer, &format!("sleep {mark}"));
            let outcome = outcome.expect_code(75);
            assert_eq!(code_of(&outcome), "sandbox_unavailable", "DIA-1: {outcome}");
            assert_eq!(outcome.out(), "", "{outcome}");
            // To the peer no more than that: what is wrong here is the operator's.
            assert!(!outcome.err().contains("bwrap"), "{outcome}");
        }
        assert!(processes::with_argument(&mark).is_empty(), "SEL-2: no agent starts");
        let status = node.wait_status("no_bwrap", |s| s["sandbox"]["code"] == "no_bwrap");
        assert_eq!(status["sandbox"]["available"], false, "{status}");
        let sentence = status["sandbox"]["sentence"].as_str().unwrap_or_default();
        assert!(sentence.contains("bubblewrap") && sentence.contains("install"), "DIA-2: {status}");
        assert_eq!(status["day"]["runs"]["used"], 1, "RUN-1: {status}");
        let doctor = node.anet(["doctor"]).output();
        assert_ne!(doctor.code(), 0, "DIA-2: {doctor}");
        assert!((doctor.out() + &doctor.err()).contains("no_bwrap"), "DIA-2: {doctor}");
        let test = node.anet(["autoreply", "test"]).output();
        assert_ne!(test.code(), 0, "{test}");
        net.inside(|| {
            fs::copy(&kept, "/usr/bin/bwrap.new")
                .and_then(|_| fs::rename("/usr/bin/bwrap.new", "/usr/bin/bwrap"))
        })
        .expect("back again");
        node.wait_status("it is back", |s| s["sandbox"]["available"] == true);
        node.ask("p1", WHERE).expect_out(INSIDE);
        node.anet(["doctor"]).output().expect_code(0);
        assert_eq!(node.status()["day"]["runs"]["used"], 2, "RUN-1");
    }
}

/// SEL-2: a node that starts without bubblewrap serves all the same: it says so, refuses, and runs when it is there.
#[test]
fn a_node_starts_without_bubblewrap() {
    let Some(net) = Internet::new() else { return };
    net.change_here("/usr/bin");
    let person = Person::new(Who::User);
    let kept = person.path("bwrap-kept");
    copy_program(Path::new("/usr/bin/bwrap"), &kept);
    net.inside(|| fs::remove_file("/usr/bin/bwrap")).expect("remove");
    let node = Node::serving(&person, Some(&net), &shell_agent("", ""));
    let status = node.wait_status("no_bwrap", |s| s["sandbox"]["code"] == "no_bwrap");
    assert_eq!(status["sandbox"]["available"], false, "{status}");
    let outcome = node.ask("p1", WHERE).expect_code(75);
    assert_eq!(code_of(&outcome), "sandbox_unavailable", "{outcome}");
    net.inside(|| {
        fs::copy(&kept, "/usr/bin/bwrap.new").and_then(|_| fs::rename("/usr/bin/bwrap.new", "/usr/bin/bwrap"))
    })
    .expect("there");
    node.wait_status("it is there", |s| s["sandbox"]["available"] == true);
    node.ask("p1", WHERE).expect_out(INSIDE);
}

/// PRB-2, PRB-3: a weakened bubblewrap takes the place of the good one while the node runs: nothing starts in it.
#[test]
fn a_weakened_bubblewrap_is_noticed() {
    let cases: [(&[&str], &[&str]); 2] = [
        (&["--unshare-net"], &["netns_failed"]),
        (&["--unshare-ipc"], &["sandbox_weak", "sandbox_start_failed"]),
    ];
    std::thread::scope(|scope| {
        for (drop, codes) in cases {
            let work = move || {
                let Some(net) = Internet::new() else { return };
                net.change_here("/usr/bin");
                let person = Person::new(Who::User);
                let real = crate::prb::real(&person);
                let node = Node::serving(&person, Some(&net), &shell_agent("", ""));
                node.ask("p1", WHERE).expect_out(INSIDE);
                let weak = person.path("weak");
                write_script(&crate::prb::weakened(&real, drop, &[]), &weak);
                net.inside(|| {
                    copy_program(&weak, Path::new("/usr/bin/bwrap.new"));
                    fs::rename("/usr/bin/bwrap.new", "/usr/bin/bwrap")
                })
                .expect("weaken");
                let mark = marker();
                let outcome = node.ask("p1", &format!("sleep {mark}")).expect_code(75);
                assert_eq!(code_of(&outcome), "sandbox_unavailable", "PRB-3: {drop:?} {outcome}");
                assert!(processes::with_argument(&mark).is_empty(), "SEL-2: {drop:?}");
                let status = node.wait_status("it is said", |s| s["sandbox"]["available"] == false);
                let code = status["sandbox"]["code"].as_str().unwrap_or_default();
                assert!(codes.contains(&code), "PRB-1: {drop:?} {status}");
            };
            // The name of the test: what runs it again in a user namespace needs it.
            let name = std::thread::current().name().map(str::to_owned);
            let builder = std::thread::Builder::new();
            let builder = name.into_iter().fold(builder, std::thread::Builder::name);
            builder.spawn_scoped(scope, work).expect("a thread");
        }
    });
}

/// FS-3: where a run works, what stays of it and what does not.
#[test]
fn a_runs_work_is_kept_and_its_home_is_not() {
    for who in Who::all() {
        let person = Person::new(*who);
        let mut node = Node::serving(&person, None, &shell_agent("", ""));
        let mark = marker();
        let script = format!(
            "echo kept > kept-{mark}; echo home > $HOME/home-{mark}; echo tmp > $TMPDIR/tmp-{mark}; \
             mkdir -p deep/er; ln -s /etc/passwd link; chmod 0 deep; echo $HOME $TMPDIR"
        );
        let id = node.submit("p1", &script);
        let story = node.wait_state(&id, "answered");
        assert_eq!(story["answer"].as_str().map(str::trim_end), Some("/home/anet /tmp"), "{story}");
        let dir = node.sandbox_dir("p1", &id);
        let found: Vec<PathBuf> = below(&dir);
        assert!(found.iter().any(|p| p.ends_with(format!("kept-{mark}"))), "FS-3: {found:?}");
        until("home and temporary directory are gone", PATIENCE, || {
            let all = below(&node.cache());
            let left = |p: &&PathBuf| {
                let name = p.to_string_lossy();
                name.ends_with(&format!("home-{mark}")) || name.ends_with(&format!("tmp-{mark}"))
            };
            let left: Vec<_> = all.iter().filter(left).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("FS-1: {left:?}")) }
        });
        // Nobody else can look at it.
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &Path| fs::metadata(path).map(|m| m.permissions().mode() & 0o077).unwrap_or(0);
        let closed =
            dir.ancestors().take_while(|p| p.starts_with(node.cache())).any(|p| mode(p) & 0o055 == 0);
        assert!(closed, "FS-1: {}", dir.display());
        node.stop();
    }
}

/// FS-3: work directories are removed when they are older than `retention_days`, whatever a run left in them, and nothing
/// else is.
#[test]
fn old_work_directories_are_removed() {
    let person = Person::new(Who::User);
    let mut node = Node::serving(&person, None, &shell_agent("retention_days = 2", ""));
    let outside = person.work_dir("outside");
    person.write_work(&outside.join("file"), "not theirs");
    let script = format!(
        "mkdir -p a/b/c; echo x > a/b/c/file; ln -s {0} out; ln -s {0}/file out-file; mkfifo pipe; chmod 0 a/b; \
         touch \"$(printf 'bad\\nname\\377')\"; echo done",
        outside.display()
    );
    let (old, fresh) = (node.submit("p1", &script), node.submit("p2", "echo x > file; echo done"));
    node.wait_state(&old, "answered");
    node.wait_state(&fresh, "answered");
    let (old_dir, fresh_dir) = (node.sandbox_dir("p1", &old), node.sandbox_dir("p2", &fresh));
    assert!(old_dir.is_dir() && fresh_dir.is_dir(), "FS-3: {}", old_dir.display());
    node.stop();
    let age = |dir: &Path, days: u64| {
        for path in below(dir).into_iter().rev() {
            let mut touch = std::process::Command::new("touch");
            let status = touch.args(["-h", "-d", &format!("-{days} days")]).arg(&path).status();
            assert!(status.is_ok_and(|s| s.success()), "touch {}", path.display());
        }
    };
    age(&old_dir, 3);
    age(&fresh_dir, 1);
    node.start();
    until("the old one is removed", PATIENCE, || {
        if old_dir.exists() { Err(format!("{:?}\n{}", below(&old_dir), node.log())) } else { Ok(()) }
    });
    assert!(
        fresh_dir.join("work/file").is_file() || !below(&fresh_dir).is_empty(),
        "FS-3: the young one stays"
    );
    assert_eq!(fs::read_to_string(outside.join("file")).ok().as_deref(), Some("not theirs"), "FS-5");
    // What the inbox knows of it is as old as the interaction itself, which is young.
    assert_eq!(node.state(&old), "answered");
}

/// FS-1, attacked twice: what a run's own user can reach outside (the inbox, the evidence, the control socket, another peer's
/// work), a run cannot.
#[test]
fn a_run_sees_nothing_of_the_node() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("", ""));
    let mark = marker();
    let other = node.submit("p2", &format!("echo of-p2 > secret-{mark}; sleep {mark}; echo x"));
    node.wait_state(&other, "running");
    let secret = until("the other run works", PATIENCE, || {
        let found = below(&node.cache()).into_iter().find(|p| p.ends_with(format!("secret-{mark}")));
        found.ok_or_else(|| node.log())
    });
    let socket =
        below(&person.path("runtime")).into_iter().find(|p| p.extension().is_some_and(|e| e == "sock"));
    let socket = socket.expect("a control socket");
    let mut files = vec![node.database(), secret, node.configuration()];
    files.extend(node.segments());
    assert!(files.len() >= 4, "there is evidence: {files:?}");
    let mut script = String::from("n=0\n");
    for file in &files {
        script +=
            &format!("head -c1 '{}' >/dev/null 2>&1 && echo 'read {}'\n", file.display(), file.display());
    }
    script += &format!(
        "/usr/bin/python3 -c \"import socket; s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET); s.connect('{}'); \
         print('connected')\" 2>/dev/null\n",
        socket.display()
    );
    // By number too: a path is one of many ways.
    script += &format!(
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; done | grep -c '[s]leep {}' \n\
         find / -xdev -name 'secret-{mark}' 2>/dev/null\n\
         cat /proc/net/unix | grep -c anet\n",
        mark
    );
    let script = script + "true\n";
    // Outside, as the same user.
    let outside = person.command("sh").args(["-c", &script]).output().expect("sh");
    let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
    for file in &files {
        assert!(outside.contains(&format!("read {}", file.display())), "attack twice: {outside}");
    }
    assert!(outside.contains("connected"), "attack twice: {outside}");
    let inside = node.ask("p1", &script).expect_code(0);
    assert!(!inside.out().contains("read ") && !inside.out().contains("connected"), "FS-1: {inside}");
    assert!(!inside.out().contains("secret-"), "FS-1: {inside}");
    let counts: Vec<&str> =
        inside.stdout.split(|b| *b == b'\n').filter_map(|l| std::str::from_utf8(l).ok()).collect();
    assert_eq!(&counts[..2], ["0", "0"], "SBX-1: neither its processes nor sockets: {inside}");
    assert!(!is_final(&node.state(&other)), "the other one was not disturbed");
}

/// SBX-6: nothing of the operator's environment is in a run of the node.
#[test]
fn a_runs_environment_is_made_from_nothing() {
    for who in Who::all() {
        let person = Person::new(*who);
        let mut node = Node::new(&person, None, &shell_agent("", ""))
            .env("ANTHROPIC_API_KEY", "sk-canary-of-the-operator")
            .env("HTTPS_PROXY", "http://proxy.example.com:1")
            .env("SECRET_THING", "sk-canary-of-the-operator");
        node.start();
        let outcome =
            node.ask("p1", "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; true").expect_code(0);
        let said = outcome.out();
        assert!(!said.contains("canary") && !said.contains("proxy.example.com"), "SBX-6: {outcome}");
        assert!(said.contains("ANET_RUN=r") && said.contains("HOME=/home/anet"), "{outcome}");
        let state = node.state_dir();
        for file in below(&state).into_iter().filter(|p| p.is_file()) {
            let bytes = fs::read(&file).unwrap_or_default();
            let found = bytes.windows(24).any(|w| w == b"sk-canary-of-the-operato");
            // The answer itself is kept; it has none.
            assert!(!found, "CRED-9: {}", file.display());
        }
        assert!(!node.log().contains("canary"), "{}", node.log());
    }
}

/// LIM: a run that writes without end is ended by growth, one that forks without end ends with its time: the node and the
/// other runs go on.
#[test]
fn runs_that_misbehave_are_ended() {
    let person = Person::new(Who::User);
    let text = format!(
        "{}\n[auto_reply.sandbox.limits]\ngrowth = \"20MiB\"\n",
        shell_agent("api_timeout_seconds = 4", "")
    );
    let node = Node::serving(&person, None, &text);
    let mark = marker();
    let fork = format!("while :; do (exec sleep {mark}) & sleep 0.02; done");
    let writes = node.submit("p1", "cat /dev/zero > big");
    let forks = node.submit("p2", &fork);
    let story = node.wait_final(&writes);
    assert_eq!(story["refusal"]["code"], "agent_failed", "{story}");
    assert!(story.to_string().contains("growth"), "LIM-1: the record says which: {story}");
    let story = node.wait_final(&forks);
    assert_eq!(story["refusal"]["code"], "agent_failed", "{story}");
    let gone = processes::wait_gone(Duration::from_secs(5), || processes::with_argument(&mark));
    assert_eq!(gone, [], "SBX-5");
    node.ask("p3", "echo on").expect_out("on");
    assert_eq!(node.status()["restarts"], 0, "{}", node.log());
}

/// An answer larger than any is: bounded, and the node goes on.
#[test]
fn an_endless_answer_is_bounded() {
    let person = Person::new(Who::User);
    let node = Node::serving(&person, None, &shell_agent("api_timeout_seconds = 20", ""));
    let outcome = node.ask("p1", "head -c 200000000 /dev/zero | tr '\\0' x");
    assert!([0, 75].contains(&outcome.code()), "{}", outcome.code());
    assert!(outcome.stdout.len() < 100_000_000, "{}", outcome.stdout.len());
    node.ask("p1", "echo on").expect_out("on");
    assert_eq!(node.status()["restarts"], 0, "{}", node.log());
}

/// Every path below, the directory first; what cannot be looked into has nothing below.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut at = 0;
    while at < found.len() {
        // No link is followed.
        let is_dir = fs::symlink_metadata(&found[at]).is_ok_and(|m| m.is_dir());
        for entry in is_dir.then(|| fs::read_dir(&found[at])).into_iter().flatten().flatten().flatten() {
            found.push(entry.path());
        }
        at += 1;
    }
    found
}
