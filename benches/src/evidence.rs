//! The evidence of a busy node: how fast it is written, verified and opened.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use ipc_proto::broker::{PublicKey, Signature, checkpoint_message};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use supervisor::evidence::{Evidence, SEGMENT, State, verify};

use crate::median;

/// How many records.
const RECORDS: u64 = 1_000_000;
/// How many come between two commits.
const GROUP: u64 = 50;
/// How often each thing is measured.
const TIMES: usize = 3;

/// As much as a node carries: how often each kind came, by day and peer.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Counts(std::collections::BTreeMap<String, u64>);

impl State for Counts {
    fn apply(&mut self, kind: &str, body: &Value) {
        if kind == "run.admitted" {
            let peer = body.get("peer").and_then(Value::as_str).unwrap_or_default();
            *self.0.entry(peer.to_owned()).or_default() += 1;
        }
    }

    fn heeds(kind: &str) -> bool {
        kind == "run.admitted"
    }
}

pub(crate) fn print() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("evidence");
    std::fs::create_dir(&directory).unwrap();
    let begin = Instant::now();
    let synchronised = fill(&directory);
    let wrote = begin.elapsed().saturating_sub(synchronised);
    let bytes: u64 = segments(&directory).iter().map(|path| std::fs::metadata(path).unwrap().len()).sum();
    let count = segments(&directory).len();
    println!(
        "| evidence: records appended a second, fsync aside | {:.0} (of {} bytes each, {count} segments) | |",
        RECORDS as f64 / wrote.as_secs_f64(),
        bytes / RECORDS
    );
    let (mut verified, mut hashed, mut opened) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let begin = Instant::now();
        let found = verify::<Counts>(&directory, None, &mut |_| {}).unwrap();
        verified.push(begin.elapsed().as_secs_f64());
        assert!(found.records > RECORDS && found.compared == found.segments);
        hashed.push(sha256sum(&directory));
        let begin = Instant::now();
        let (evidence, _) = Evidence::<Counts>::open(&directory, SystemTime::now()).unwrap();
        opened.push(begin.elapsed().as_secs_f64());
        assert!(evidence.records() >= found.records);
    }
    let (verified, hashed) = (median(verified), median(hashed));
    println!(
        "| evidence: records verified a second | {:.0} ({:.1} × the time of sha256sum on the files) | ≥ 300,000 |",
        RECORDS as f64 / verified,
        verified / hashed
    );
    println!(
        "| evidence: a start with a million records | {:.0} ms (segments of {} MiB) | ≤ 1 s |",
        median(opened) * 1000.0,
        SEGMENT >> 20
    );
}

/// Writes what a node writes; how long the disk took.
fn fill(directory: &Path) -> Duration {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let key: PublicKey = pair.public_key().as_ref().try_into().unwrap();
    let (mut evidence, _) = Evidence::<Counts>::open(directory, SystemTime::now()).unwrap();
    let mut synchronised = Duration::ZERO;
    for n in 0..RECORDS {
        let run = format!("r{:016}", n / 100);
        let (kind, body) = match n % 100 {
            0 => (
                "run.admitted",
                json!({ "run": run, "peer": format!("p{}", n % 7), "budget": { "bytes_out": 33_554_432 } }),
            ),
            1 => ("run.started", json!({ "run": run })),
            99 => ("run.ended", json!({ "run": run, "exit": { "status": 0 } })),
            _ if n % 2 == 0 => (
                "egress.debited",
                json!({ "run": run, "destination": "pkg.example.com:443", "bytes": n, "granted": true, "left": 1_000_000 }),
            ),
            _ => (
                "egress.decided",
                json!({ "run": run, "host": "pkg.example.com", "port": 443, "class": "third_party", "decision": "allow" }),
            ),
        };
        let at = SystemTime::now();
        evidence.append(at, kind, &body).unwrap();
        if n % GROUP == 0 {
            let begin = Instant::now();
            evidence.sync().unwrap();
            synchronised += begin.elapsed();
        }
        if let Some((seq, hash)) = evidence.wants_checkpoint() {
            let signature = pair.sign(&checkpoint_message(seq, &hash));
            let (r, s) = signature.as_ref().split_at(32);
            let signature = Signature { r: r.try_into().unwrap(), s: s.try_into().unwrap() };
            evidence.checkpoint(at, seq, &key, &signature).unwrap();
        }
    }
    evidence.sync().unwrap();
    synchronised
}

fn segments(directory: &Path) -> Vec<std::path::PathBuf> {
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl")).collect()
}

/// Seconds that hashing alone takes.
fn sha256sum(directory: &Path) -> f64 {
    let begin = Instant::now();
    let status = Command::new("sha256sum").args(segments(directory)).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    begin.elapsed().as_secs_f64()
}
