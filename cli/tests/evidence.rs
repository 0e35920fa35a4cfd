//! `anet evidence`, as a person or a script calls it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use supervisor::evidence::Evidence;
use supervisor::node::NodeState;
use tempfile::TempDir;

/// A state directory with the evidence of a node that ran twelve tasks.
struct Stage {
    root: TempDir,
}

/// What a call said: exit status, standard output, standard error.
struct Said(i32, String, String);

impl Stage {
    fn new() -> Stage {
        let root = tempfile::tempdir().unwrap();
        let stage = Stage { root };
        fs::create_dir_all(stage.evidence()).unwrap();
        let (mut evidence, _) = Evidence::<NodeState>::open(&stage.evidence(), stage.time(0)).unwrap();
        for n in 0..12u64 {
            let (run, interaction) = (format!("r{n}"), format!("i{n}"));
            let body = json!({ "run": run, "interaction": interaction, "peer": "p", "counted": null });
            evidence.append(stage.time(n), "run.admitted", &body).unwrap();
            evidence
                .append(stage.time(n), "run.ended", &json!({ "run": run, "exit": { "status": 0 } }))
                .unwrap();
        }
        evidence.sync().unwrap();
        stage
    }

    fn time(&self, minutes: u64) -> SystemTime {
        SystemTime::now() - Duration::from_secs(60 * (20 - minutes))
    }

    fn evidence(&self) -> PathBuf {
        self.root.path().join("anet/evidence")
    }

    fn segment(&self) -> PathBuf {
        self.evidence().join("00000000000000000000.jsonl")
    }

    fn anet(&self, arguments: &[&str]) -> Said {
        let output = Command::new(env!("CARGO_BIN_EXE_anet"))
            .args(["--user", "evidence"])
            .args(arguments)
            .env("XDG_STATE_HOME", self.root.path())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said(output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn change(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.segment()).unwrap();
        assert!(text.contains(from));
        fs::write(self.segment(), text.replacen(from, to, 1)).unwrap();
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// EVI-2: exit 0 where it holds; 1 where it does not, and the record is named for people and programs; 125 where there is none.
#[test]
fn verify_says_by_its_status_whether_it_holds() {
    let stage = Stage::new();
    let Said(status, output, _) = stage.anet(&["verify"]);
    assert_eq!(status, 0);
    assert!(
        output.contains("25 records in 1 file") && output.contains("25 records are not signed yet"),
        "{output}"
    );
    let Said(status, output, _) = stage.anet(&["verify", "--json"]);
    let document = &lines(&output)[0];
    assert_eq!((status, &document["ok"], &document["records"]), (0, &json!(true), &json!(25)));
    assert_eq!(document["states_compared"], 1);

    stage.change("\"run\":\"r3\"", "\"run\":\"r4\"");
    let Said(status, output, errors) = stage.anet(&["verify"]);
    assert_eq!((status, output.as_str()), (1, ""));
    assert!(errors.starts_with("anet: bad_evidence: record 7 was changed"), "{errors}");
    assert_eq!(errors.lines().count(), 1);
    let Said(status, output, _) = stage.anet(&["verify", "--json"]);
    let document = &lines(&output)[0];
    assert_eq!((status, &document["ok"], &document["fault"]["seq"]), (1, &json!(false), &json!(7)));

    let Said(status, _, errors) = stage.anet(&["verify", "/nonexistent/evidence"]);
    assert_eq!(status, 125);
    assert!(errors.contains("there is no evidence at /nonexistent/evidence"), "{errors}");
}

/// EVI-3: a torn end is said, and is no tampering.
#[test]
fn a_torn_end_is_said() {
    let stage = Stage::new();
    let text = fs::read(stage.segment()).unwrap();
    fs::write(stage.segment(), &text[..text.len() - 10]).unwrap();
    let Said(status, output, _) = stage.anet(&["verify"]);
    assert_eq!(status, 0);
    assert!(output.contains("24 records") && output.contains("as a crash leaves it (record 24"), "{output}");
    let Said(status, output, _) = stage.anet(&["verify", "--json"]);
    assert_eq!((status, &lines(&output)[0]["torn"]["seq"]), (0, &json!(24)));
}

/// EVI-2: an export verifies anywhere, and is there whole or not at all.
#[test]
fn an_export_verifies() {
    let stage = Stage::new();
    let file = stage.root.path().join("out.jsonl");
    let path = file.to_str().unwrap();
    assert_eq!(stage.anet(&["export", "--output", path]).0, 0);
    let Said(status, output, _) = stage.anet(&["verify", path]);
    assert!(status == 0 && output.contains("25 records"), "{output}");
    let Said(status, output, _) = stage.anet(&["export"]);
    assert_eq!((status, output), (0, fs::read_to_string(&file).unwrap()));
    let key = "ab".repeat(32);
    let Said(status, output, _) = stage.anet(&["verify", "--key", &key, path]);
    assert!(status == 0 && output.contains(&key), "{output}");
    assert_eq!(stage.anet(&["verify", "--key", "abc", path]).0, 125);

    stage.change("\"run\":\"r3\"", "\"run\":\"r4\"");
    let before = fs::read(&file).unwrap();
    let Said(status, _, errors) = stage.anet(&["export", "--output", path]);
    assert!(status == 1 && errors.contains("record 7"), "{errors}");
    assert_eq!(fs::read(&file).unwrap(), before);
    assert!(!Path::new(&format!("{path}.part")).exists());
}

/// EVI-2: records are shown by what they belong to; those before a fault are, and the fault ends it.
#[test]
fn records_are_shown() {
    let stage = Stage::new();
    let numbers = |arguments: &[&str]| {
        let Said(status, output, errors) = stage.anet(&[&["show", "--json"], arguments].concat());
        let seqs: Vec<u64> = lines(&output).iter().map(|line| line["seq"].as_u64().unwrap()).collect();
        (status, seqs, errors)
    };
    assert_eq!(numbers(&[]).1, (0..25).collect::<Vec<u64>>());
    assert_eq!(numbers(&["-n", "3"]).1, [22, 23, 24]);
    assert_eq!(numbers(&["--kind", "run.ended", "-n", "2"]).1, [22, 24]);
    assert_eq!(numbers(&["--run", "r3"]).1, [7, 8]);
    assert_eq!(numbers(&["--interaction", "i3"]).1, [7, 8]);
    assert_eq!(numbers(&["--since", "10m30s"]).0, 125);
    assert_eq!(numbers(&["--since", "630s"]).1, [21, 22, 23, 24]);
    let Said(_, output, _) = stage.anet(&["show", "-n", "1"]);
    assert!(output.contains("run.ended") && output.contains("run=r11"), "{output}");

    stage.change("\"run\":\"r3\"", "\"run\":\"r4\"");
    let (status, shown, errors) = numbers(&[]);
    assert_eq!((status, shown), (1, (0..7).collect::<Vec<u64>>()));
    assert!(errors.contains("record 7 was changed"), "{errors}");
}
