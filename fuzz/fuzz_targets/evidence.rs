//! A node's evidence, as somebody may have changed it or a crash may have left it: never a panic; what verifies is what was
//! written, or its beginning; and what verifies can be gone on with.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::SystemTime;

use ipc_proto::broker::{PublicKey, Signature, checkpoint_message};
use libfuzzer_sys::fuzz_target;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;
use supervisor::evidence::{Evidence, Verified, verify};

/// A directory of this process's own, in memory where there is such a place.
static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
    // Those of processes that are gone.
    for left in fs::read_dir(&root).unwrap().flatten() {
        let name = left.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix("anet-fuzz-evidence-"));
        if owner.is_some_and(|owner| !std::path::Path::new("/proc").join(owner).exists()) {
            let _ = fs::remove_dir_all(left.path());
        }
    }
    let place = root.join(format!("anet-fuzz-evidence-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    place
});

/// The one segment of a good, signed chain.
static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let key: PublicKey = pair.public_key().as_ref().try_into().unwrap();
    empty();
    let (mut evidence, _) = Evidence::<()>::open(&PLACE, SystemTime::UNIX_EPOCH).unwrap();
    for n in 0..8 {
        evidence.append(SystemTime::UNIX_EPOCH, "run.ended", &json!({ "run": "r1", "n": n })).unwrap();
        evidence.ask_checkpoint();
        if n % 3 == 0
            && let Some((seq, hash)) = evidence.wants_checkpoint()
        {
            let signature = pair.sign(&checkpoint_message(seq, &hash));
            let (r, s) = signature.as_ref().split_at(32);
            let signature = Signature { r: r.try_into().unwrap(), s: s.try_into().unwrap() };
            evidence.checkpoint(SystemTime::UNIX_EPOCH, seq, &key, &signature).unwrap();
        }
    }
    evidence.sync().unwrap();
    fs::read(segment()).unwrap()
});

fn segment() -> PathBuf {
    PLACE.join("00000000000000000000.jsonl")
}

fn empty() {
    for entry in fs::read_dir(&*PLACE).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

/// No longer than that by lines that stand twice, in bytes.
const LONGEST: usize = 64 * 1024;

/// Changes a good chain: each edit is a place, what is done there, and a byte.
fn edited(edits: &[u8]) -> Vec<u8> {
    let mut text = GOOD.clone();
    for edit in edits.chunks_exact(4) {
        let [high, low, what, byte] = edit else { continue };
        let at = usize::from(u16::from_be_bytes([*high, *low])) % (text.len() + 1);
        let (begin, end) = line(&text, at);
        match what % 6 {
            0 if at < text.len() => text[at] = *byte,
            1 => text.insert(at, *byte),
            2 => text.truncate(at),
            3 => drop(text.drain(begin..end)),
            // A line may be all there is, and double each time.
            4 if text.len() < LONGEST => {
                let copy = text[begin..end].to_vec();
                text.splice(begin..begin, copy);
            }
            5 => {
                let zeros = usize::from(*byte).min(text.len() - at);
                text[at..at + zeros].fill(0);
            }
            _ => {}
        }
    }
    text
}

/// The line around a place.
fn line(text: &[u8], at: usize) -> (usize, usize) {
    let begin = text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let end = text[at..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| at + end + 1);
    (begin, end)
}

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let good = &*GOOD;
    let text = if first % 2 == 0 { edited(rest) } else { rest.to_vec() };

    // As a file of all segments.
    empty();
    let file = PLACE.join("export");
    fs::write(&file, &text).unwrap();
    if let Ok(Verified { records, .. }) = verify::<()>(&file, None, &mut |_| {}) {
        let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
        assert!(records == lines || records + 1 == lines && !text.starts_with(b"{\"seq\""));
        assert!(first % 2 == 1 || good.starts_with(&text));
    }

    // As the segment of a node that ended at some moment.
    fs::write(segment(), &text).unwrap();
    let Ok(before) = verify::<()>(&PLACE, None, &mut |_| {}) else {
        assert!(Evidence::<()>::open(&PLACE, SystemTime::UNIX_EPOCH).is_err());
        return;
    };
    let length = before.tail.as_ref().map_or(text.len() as u64, |tail| tail.offset);
    assert!(first % 2 == 1 || good.starts_with(&text[..length as usize]));
    let (mut evidence, opened) = Evidence::<()>::open(&PLACE, SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!((opened.records, opened.torn.is_some()), (before.records, before.tail.is_some()));
    evidence.append(SystemTime::UNIX_EPOCH, "node.started", &json!({})).unwrap();
    evidence.sync().unwrap();
    let after = verify::<()>(&PLACE, None, &mut |_| {}).unwrap();
    assert_eq!((after.records, after.tail), (evidence.records(), None));
});
