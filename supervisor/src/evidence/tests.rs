//! Chains that the tests are made with.

mod crash;
mod damage;
mod python;
mod signing;
mod writing;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ipc_proto::broker::{PublicKey, Signature, checkpoint_message};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::log::Sizes;
use super::*;
use crate::chain::at_unix_ms;
use crate::chain::record::{Record, write};

/// Segments of a few records, a checkpoint every seven.
const SMALL: Sizes = Sizes { segment: 2000, every: 7 };
/// One segment, and a checkpoint only when asked.
const WHOLE: Sizes = Sizes { segment: u64::MAX, every: u64::MAX };

/// What of each kind has come, and a sum.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Counts {
    kinds: BTreeMap<String, u64>,
    sum: u64,
}

impl State for Counts {
    fn apply(&mut self, kind: &str, body: &Value) {
        *self.kinds.entry(kind.to_owned()).or_default() += 1;
        self.sum = self.sum.wrapping_add(body.get("n").and_then(Value::as_u64).unwrap_or_default());
    }
}

/// As the broker signs.
struct Signer(Ed25519KeyPair);

impl Signer {
    fn new(seed: u8) -> Signer {
        Signer(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    fn key(&self) -> PublicKey {
        self.0.public_key().as_ref().try_into().unwrap()
    }

    fn sign(&self, seq: u64, hash: &[u8; 32]) -> Signature {
        let signature = self.0.sign(&checkpoint_message(seq, hash));
        let (r, s) = signature.as_ref().split_at(32);
        Signature { r: r.try_into().unwrap(), s: s.try_into().unwrap() }
    }
}

/// As the node writes it down.
fn write_key(path: &Path, key: &PublicKey) -> std::io::Result<()> {
    fs::write(path, format!("{}\n", key_text(key)))
}

fn time(n: u64) -> SystemTime {
    at_unix_ms(1_700_000_000_000 + n)
}

/// The evidence's directory in a place of its own.
struct Place {
    _root: TempDir,
    directory: PathBuf,
}

impl Place {
    fn new() -> Place {
        // In memory where there is such a place: nothing here is about the disk itself, and each chain is synchronised often.
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let directory = root.path().join("evidence");
        fs::create_dir(&directory).unwrap();
        Place { directory, _root: root }
    }

    fn open(&self, sizes: Sizes) -> (Evidence<Counts>, Opened) {
        Evidence::open_with(&self.directory, read_key(&key_file(&self.directory)).unwrap(), time(0), sizes)
            .unwrap()
    }

    fn verify(&self) -> Result<Verified, Fault> {
        verify::<Counts>(&self.directory, None, &mut |_| {})
    }

    fn segments(&self) -> Vec<PathBuf> {
        segment::list(&self.directory).unwrap().into_iter().map(|segment| segment.path).collect()
    }

    fn last(&self) -> PathBuf {
        self.segments().pop().unwrap()
    }

    /// The lines of all segments, with their newlines.
    fn lines(&self) -> Vec<Vec<u8>> {
        let texts = self.segments().into_iter().map(|path| fs::read(path).unwrap());
        texts
            .flat_map(|text| {
                text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>()
            })
            .collect()
    }

    fn copy(&self) -> Place {
        let copy = Place::new();
        for entry in fs::read_dir(&self.directory).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.directory.join(entry.file_name())).unwrap();
        }
        let key = key_file(&self.directory);
        if key.exists() {
            fs::copy(key, key_file(&copy.directory)).unwrap();
        }
        copy
    }
}

/// A body with everything that JSON has.
fn body(n: u64) -> Value {
    json!({ "n": n, "run": format!("r{n}"), "list": [1, -2, null, true], "of": { "text": "a \"b\" \u{1f600}\n,\"hash\":\"" } })
}

/// Writes so many records, as a node does: committed now and then, signed when a checkpoint is wanted.
fn fill(evidence: &mut Evidence<Counts>, count: u64, signer: Option<&Signer>) {
    for n in 0..count {
        let kind = ["run.admitted", "egress.decided", "run.ended"][usize::try_from(n % 3).unwrap()];
        evidence.append(time(n), kind, &body(n)).unwrap();
        if n % 2 == 1 {
            evidence.sync().unwrap();
        }
        if let (Some(signer), Some((seq, hash))) = (signer, evidence.wants_checkpoint()) {
            assert!(evidence.checkpoint(time(n), seq, &signer.key(), &signer.sign(seq, &hash)).unwrap());
        }
    }
    evidence.sync().unwrap();
}

/// A signed chain over some segments.
fn chain(count: u64) -> Place {
    let place = Place::new();
    let (mut evidence, opened) = place.open(SMALL);
    assert!(opened.fresh);
    fill(&mut evidence, count, Some(&Signer::new(1)));
    drop(evidence);
    place
}

/// The records, hashed anew from one on, as somebody would who can write the files. `change` may change kind and body.
fn forge(place: &Place, from: u64, mut change: impl FnMut(u64, &mut String, &mut Value)) {
    let mut head = None;
    for path in place.segments() {
        let text = fs::read(&path).unwrap();
        let mut forged = Vec::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let record = Record::read(line.strip_suffix(b"\n").unwrap()).unwrap();
            if record.seq < from {
                forged.extend_from_slice(line);
                head = Some(record.hash);
                continue;
            }
            let at = humantime::parse_rfc3339(record.time).unwrap();
            let (mut kind, mut body) = (record.kind.to_owned(), record.values());
            change(record.seq, &mut kind, &mut body);
            let (line, hash) = write(record.seq, at, &kind, &body, &head.unwrap_or([0; 32])).unwrap();
            forged.extend_from_slice(line.as_bytes());
            head = Some(hash);
        }
        fs::write(&path, forged).unwrap();
    }
}

fn read_all(path: &Path) -> Vec<(u64, String, Value)> {
    let mut records = Vec::new();
    walk::<()>(path, Begin::Origin, None, &mut |record: &Record<'_>, _: &[u8], _| {
        records.push((record.seq, record.kind.to_owned(), record.values()));
        ControlFlow::Continue(())
    })
    .unwrap();
    records
}
