//! SEL-5: a build without auto-reply, beside the whole one.

use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tests::harness;
use tests::installed::{Installed, installed, left_out};
use tests::node::{Node, PATIENCE, shell_agent, until};
use tests::person::{Person, Who};

/// The build, or words on why it is not tested.
fn build() -> Option<Installed> {
    let found = left_out();
    if found.is_none() {
        harness::skip("a build without auto-reply", "ANET_LEFT_OUT_DIR is not set (scripts/test builds one)");
    }
    found
}

fn holds(programs: &Installed, text: &[u8]) -> bool {
    let program = fs::read(programs.dir().join("anet-supervisor")).expect("a program");
    program.windows(text.len()).any(|part| part == text)
}

/// SEL-5: the inbox's database is not in it; `anet run`, `anet doctor` and `anet show RUN` work, and what belongs to
/// auto-reply says in one line that it is not there.
#[test]
fn what_is_left_works() {
    let Some(build) = build() else { return };
    assert!(holds(installed(), b"SQLite format 3") && !holds(&build, b"SQLite format 3"));
    for who in Who::all() {
        let person = Person::with_programs(*who, &build);
        let run = person.sh(["--untrusted"], "id -u").output().expect_out("1000");
        let name = run.record()["run"].as_str().expect("a run").to_owned();
        let shown = person.anet(["show", &name]).output().expect_code(0);
        assert!(shown.out().contains("run.ended"), "{shown}");
        let doctor = person.anet(["doctor", "--json"]).output().expect_code(0).json();
        assert_eq!(doctor["sandbox"]["available"], true, "{doctor}");
        assert!(doctor.to_string().contains("left out of this build"), "{doctor}");
        let calls: [&[&str]; 5] = [
            &["submit", "--peer", "friend", "true"],
            &["inbox"],
            &["autoreply", "show"],
            &["autoreply", "set", "--untrusted", "sandbox"],
            &["autoreply", "test", "true"],
        ];
        for call in calls {
            let outcome = person.anet(call.iter().copied()).output();
            assert_eq!(outcome.expect_failure_of_anet(125), "no_auto_reply");
            assert!(outcome.err().contains("this build of anet has no auto-reply"), "{outcome}");
        }
        assert!(!person.path("config").join("anet/anet.toml").exists(), "nothing was set");
    }
}

/// SEL-5, FS-3: a node of such a build serves where a whole one did. It takes no task, whoever asks, leaves the inbox alone,
/// goes on with the evidence, and removes the work directories whose time is over, and those alone.
#[test]
fn a_node_without_auto_reply_serves_and_tidies_up() {
    let Some(build) = build() else { return };
    for who in Who::all() {
        let mut person = Person::new(*who);
        let config = shell_agent("untrusted = \"off\"", "");
        let (old, young, inbox) = {
            let mut node = Node::serving(&person, None, &config);
            let left = ["old", "young"].map(|text| {
                let id = node.submit("friend", &format!("echo {text} > file; echo done"));
                node.wait_state(&id, "answered");
                person.cache().join("work-sandbox/friend").join(id)
            });
            // One that waits for ever.
            node.submit("p1", "true");
            node.stop();
            let [old, young] = left;
            (old, young, person.path("state").join("anet/inbox/inbox.db"))
        };
        assert!(old.join("work/file").exists() && young.join("work/file").exists());
        let lock = fs::File::options().write(true).open(old.join("lock")).expect("the directory's lock");
        lock.set_modified(SystemTime::now() - Duration::from_secs(8 * 24 * 3600)).expect("its time");
        let kept = fs::read(&inbox).expect("the inbox");

        person.use_programs(&build);
        let mut node = Node::serving(&person, None, &config);
        until(
            "the old directory is removed",
            PATIENCE,
            || {
                if old.exists() { Err(node.log()) } else { Ok(()) }
            },
        );
        assert!(young.join("work/file").exists(), "FS-3: its time is not over");
        let status = node.wait_status("a tried sandbox", |status| status["sandbox"]["available"] == true);
        assert_eq!((&status["runs"], &status["queued"]), (&json!([]), &json!(0)), "{status}");
        for key in ["backend", "trusted", "untrusted"] {
            assert_eq!(status["auto_reply"][key], "off", "{status}");
        }
        let page = node.anet(["status"]).output().expect_code(0);
        assert!(page.out().contains("left out of this build"), "{page}");
        let doctor = node.anet(["doctor", "--json"]).output().expect_code(0);
        assert_eq!(doctor.json()["sandbox"]["available"], true, "{doctor}");
        // The node itself says no, to whoever has the whole `anet`.
        let calls: [&[&str]; 4] = [
            &["submit", "--peer", "friend", "true"],
            &["inbox"],
            &["show", "i1"],
            &["autoreply", "test", "true"],
        ];
        for call in calls {
            let outcome = node.anet(call.iter().copied()).by(installed()).output();
            assert_eq!(outcome.expect_failure_of_anet(125), "no_auto_reply");
        }
        node.stop();
        assert_eq!(fs::read(&inbox).expect("the inbox"), kept, "another build's inbox stays as it is");
        let kinds: Vec<String> =
            node.evidence().iter().filter_map(|record| Some(record["kind"].as_str()?.to_owned())).collect();
        assert_eq!(kinds.iter().filter(|kind| *kind == "node.started").count(), 2, "{kinds:?}");
        assert_eq!(kinds.iter().filter(|kind| *kind == "node.stopped").count(), 2, "{kinds:?}");
        node.verify().expect_code(0);
    }
}
