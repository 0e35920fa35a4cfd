//! The record of a run: CLI.md's shape.

use std::fs;

use serde_json::Value;
use tests::person::{Person, Who};

use crate::NONE;

#[test]
fn the_record_has_the_shape_of_the_contract() {
    for who in Who::all() {
        let person = Person::new(*who);
        let outcome = person.sh(["--untrusted"], "exit 5").output().expect_code(5);
        let record = outcome.record().as_object().expect("an object");
        for key in
            ["run", "agent", "started", "ended", "exit", "limits", "budget", "model", "egress", "violations"]
        {
            assert!(record.contains_key(key), "{key} is missing: {outcome}");
        }
        assert_eq!(record["agent"], "sh");
        assert_eq!(record["exit"]["status"], 5);
        for time in ["started", "ended"] {
            let text = record[time].as_str().expect("a time");
            assert!(
                text.len() >= 20 && text.as_bytes()[10] == b'T' && text.starts_with("20"),
                "RFC 3339: {text}"
            );
        }
        assert!(record["started"].as_str() <= record["ended"].as_str());
        for (name, bound) in record["limits"].as_object().expect("limits") {
            assert!(bound["limit"].is_u64() && bound["used"].is_u64(), "{name}: {bound}");
        }
        for (name, bound) in record["budget"].as_object().expect("budget") {
            assert!(bound["limit"].is_u64() && bound["used"].is_u64(), "{name}: {bound}");
        }
        assert!(record["model"]["requests"] == 0 && record["model"]["refused"] == 0);
        assert!(record["egress"].as_array().is_some_and(Vec::is_empty));
        assert!(record["violations"].as_array().is_some_and(Vec::is_empty));
    }
}

/// LIM and BUD: `--untrusted` has all limits and budgets; without it only those named hold.
#[test]
fn limits_hold_for_untrusted_runs_or_where_named() {
    let person = Person::new(Who::User);
    let names = |outcome: &tests::person::Outcome, what: &str| -> Vec<String> {
        outcome.record()[what].as_object().expect("an object").keys().cloned().collect()
    };
    let plain = person.run(NONE, ["true"]).output().expect_code(0);
    assert_eq!(names(&plain, "limits"), Vec::<String>::new(), "{plain}");
    assert_eq!(names(&plain, "budget"), Vec::<String>::new(), "{plain}");
    let options = ["--limit", "tunnels_open=3", "--limit", "growth=5MiB", "--timeout", "90s"];
    let named = person.run(options, ["true"]).output().expect_code(0);
    let limits = &named.record()["limits"];
    assert_eq!(limits["tunnels_open"]["limit"], 3, "{named}");
    assert_eq!(limits["growth"]["limit"], 5 * 1024 * 1024, "{named}");
    assert_eq!(limits["wall_clock"]["limit"], 90_000, "{named}");
    let untrusted = person.run(["--untrusted"], ["true"]).output().expect_code(0);
    let limits = &untrusted.record()["limits"];
    let expected = [
        ("tunnels_open", 16),
        ("tunnels_total", 256),
        ("tunnel_sent", 32 << 20),
        ("tunnel_received", 512 << 20),
        ("endpoint_connections", 32),
        ("growth", 2u64 << 30),
        ("wall_clock", 180_000),
    ];
    for (name, value) in expected {
        assert_eq!(limits[name]["limit"], Value::from(value), "{name}: {untrusted}");
    }
    let budget = &untrusted.record()["budget"];
    assert_eq!(budget["destinations"]["limit"], 16, "BUD-3: {untrusted}");
    assert_eq!(budget["bytes_out"]["limit"], 32 << 20, "BUD-3: {untrusted}");
}

#[test]
fn a_record_that_cannot_be_written_stops_the_run() {
    let person = Person::new(Who::User);
    let work = person.work_dir("work");
    let work = work.to_str().expect("text");
    let call = person.anet(["run", "--record", "/nowhere/at/all.json", "--work", work, "--", "touch", "ran"]);
    call.output().expect_failure_of_anet(125);
    assert!(!person.path("work").join("ran").exists(), "it ran without a record");
}

/// The run cannot reach its own record, even in its own directory.
#[test]
fn a_record_in_the_work_directory_is_written_after_the_run() {
    let person = Person::new(Who::User);
    let work = person.work_dir("work");
    let file = work.join("record.json");
    let args = [
        "run",
        "--here",
        "--record",
        "record.json",
        "--",
        "sh",
        "-c",
        "ln -sf /etc/hostname record.json; true",
    ];
    person.anet(args).cwd(&work).output().expect_code(0);
    let content = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        !fs::symlink_metadata(&file).is_ok_and(|m| m.is_symlink()) || !content.contains("\"run\""),
        "FS-5: {content}"
    );
}

/// ASK-3: what was refused is said on standard error at the end, and how to allow it; not with --quiet.
#[test]
fn the_summary_says_what_was_refused() {
    let Some(net) = tests::internet::Internet::new() else { return };
    for who in Who::all() {
        let person = Person::new(*who);
        let command = ["curl", "-sS", "--max-time", "10", "https://other.example.com/"];
        let loud = person.run(["--allow", "pkg.example.com"], command).within(&net).output();
        assert!(loud.err().contains("--allow other.example.com"), "{loud}");
        let run = loud.record()["run"].as_str().expect("a name").to_owned();
        assert!(loud.err().contains(&run), "by run id: {loud}");
        let quiet = person.run(["--quiet", "--allow", "pkg.example.com"], command).within(&net).output();
        assert!(!quiet.err().contains("--allow"), "{quiet}");
    }
}

/// EVI-5: a run keeps a sealed chain of its own, which `anet show` reads; EVI-2: a changed one is found out.
#[test]
fn a_run_leaves_a_sealed_chain() {
    for who in Who::all() {
        let person = Person::new(*who);
        let outcome = person.run(NONE, ["true"]).output().expect_code(0);
        let run = outcome.record()["run"].as_str().expect("a name").to_owned();
        let shown = person.anet(["show", "--json", &run]).output().expect_code(0);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {shown}"));
        assert_eq!(shown["sealed"], true, "{shown}");
        let kinds: Vec<&str> =
            shown["records"].as_array().expect("records").iter().filter_map(|r| r["kind"].as_str()).collect();
        assert_eq!((kinds.first(), kinds.contains(&"run.ended")), (Some(&"run.admitted"), true), "{kinds:?}");
        assert!(person.anet(["show", &run]).output().expect_code(0).out().contains(&run));
        let chain = person.path("state").join(format!("anet/runs/{run}.jsonl"));
        let text = fs::read_to_string(&chain).expect("the chain");
        let lines: Vec<&str> = text.lines().collect();
        let changed = text.replacen("\"true\"", "\"tru3\"", 1);
        assert_ne!(changed, text, "the chain names what ran");
        let removed = [&lines[..1], &lines[2..]].concat().join("\n") + "\n";
        for forged in [changed, removed] {
            fs::write(&chain, forged).expect("forge");
            assert_eq!(person.anet(["show", &run]).output().expect_failure_of_anet(125), "record_failed");
        }
        // Cut at the end: still a chain, but no sealed one.
        fs::write(&chain, lines[..lines.len() - 1].join("\n") + "\n").expect("cut");
        let cut = person.anet(["show", "--json", &run]).output().expect_code(0);
        assert!(cut.out().contains("\"sealed\":false"), "{cut}");
        let unknown = person.anet(["show", "r00000000000000"]).output();
        assert_eq!(unknown.expect_failure_of_anet(125), "no_such_run");
    }
}
