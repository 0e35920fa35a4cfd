//! Somebody else's verifier, in another language, made from docs/EVIDENCE.md alone, comes to the same.

use std::process::Command;

use proptest::prelude::*;

use super::damage::{Damage, damage};
use super::*;

const VERIFIER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/evidence/verify.py");

/// What it says; none: there is no python3 here, which is said.
fn python(path: &Path, key: Option<&PublicKey>) -> Option<String> {
    let mut command = Command::new("python3");
    command.arg(VERIFIER).arg(path).args(key.map(key_text));
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
        }
        Err(error) => {
            eprintln!("skipped: python3 cannot be started ({error})");
            None
        }
    }
}

/// What we say, without looking at carried states: what those mean, nobody else knows.
fn ours(path: &Path, key: Option<&PublicKey>) -> String {
    match verify::<()>(path, key.copied(), &mut |_| {}) {
        Ok(Verified { records, tail: None, .. }) => format!("good {records}"),
        Ok(Verified { records, tail: Some(_), .. }) => format!("torn {records}"),
        Err(fault) => format!("bad {}", fault.seq().unwrap()),
    }
}

fn agree(path: &Path, key: Option<&PublicKey>) -> String {
    let ours = ours(path, key);
    if let Some(theirs) = python(path, key) {
        assert_eq!(theirs, ours);
    }
    ours
}

/// EVI-2: both find good evidence good, whole and in one file, with the right key and with another.
#[test]
fn both_find_it_good() {
    let place = chain(30);
    let (key, other) = (Signer::new(1).key(), Signer::new(2).key());
    assert!(agree(&place.directory, None).starts_with("good"));
    assert!(agree(&place.directory, Some(&key)).starts_with("good"));
    assert!(agree(&place.directory, Some(&other)).starts_with("bad"));
    let file = place.directory.with_extension("jsonl");
    let lines = place.lines().concat();
    for header in [header(Some(&key)), header(None), String::new()] {
        fs::write(&file, [header.as_bytes(), &lines].concat()).unwrap();
        assert!(agree(&file, None).starts_with("good"), "{header}");
    }
    fs::write(&file, [header(Some(&other)).as_bytes(), &lines].concat()).unwrap();
    assert!(agree(&file, None).starts_with("bad"));
    fs::write(&file, &lines[..lines.len() - 1]).unwrap();
    assert!(agree(&file, None).starts_with("bad"));
    for path in place.segments() {
        fs::remove_file(path).unwrap();
    }
    assert_eq!(agree(&place.directory, None), "bad 0");
}

/// EVI-2: both find what was hashed anew without the key, and what two readers could understand differently.
#[test]
fn both_find_forgeries() {
    let good = chain(30);
    for from in [0, 1, 5, 9, 20] {
        let place = good.copy();
        forge(&place, from, |seq, _, body| {
            if seq == from {
                body["n"] = json!(77);
            }
        });
        assert!(agree(&place.directory, None).starts_with("bad"), "{from}");
    }
    let line = |body: &str| {
        let unhashed = format!(
            "{{\"seq\":0,\"time\":\"2026-01-01T00:00:00.000Z\",\"kind\":\"segment.opened\",\"body\":{body},\"prev\":\"{}\"",
            "0".repeat(64)
        );
        let hash = crate::chain::hex(&<sha2::Sha256 as sha2::Digest>::digest(format!("{unhashed}}}")));
        format!("{unhashed},\"hash\":\"{hash}\"}}\n")
    };
    let place = Place::new();
    let file = place.directory.join(segment::name(0));
    let body = "{\"carried\":{\"kinds\":{},\"sum\":0},\"first\":0,\"format\":1,\"key\":null,\"signed\":null,\"state\":1}";
    fs::write(&file, line(body)).unwrap();
    assert_eq!(agree(&place.directory, None), "good 1");
    for (from, to) in [
        ("\"format\":1", "\"format\":2"),
        ("\"format\":1", "\"first\":0,\"format\":1"),
        ("\"first\":0,\"format\":1", "\"format\":1,\"first\":0"),
        ("\"state\":1", "\"state\":1,\"wide\":1"),
        ("\"state\":1", "\"state\":1},\"more\":{}"),
        ("\"sum\":0", "\"sum\":NaN"),
        ("\"sum\":0", "\"sum\":00"),
        ("\"sum\":0", "\"sum\":0,\"sum\":0"),
        ("{\"carried\"", "{{\"carried\""),
    ] {
        fs::write(&file, line(&body.replacen(from, to, 1))).unwrap();
        assert_eq!(agree(&place.directory, None), "bad 0", "{to}");
    }
}

/// EVI-3: both tell torn from changed.
#[test]
fn both_tell_torn_from_changed() {
    let good = Place::new();
    let (mut evidence, _) = good.open(WHOLE);
    fill(&mut evidence, 8, Some(&Signer::new(1)));
    drop(evidence);
    let text = fs::read(good.last()).unwrap();
    for cut in [1, 2, 60, 300, 500] {
        fs::write(good.last(), &text[..text.len() - cut]).unwrap();
        assert!(agree(&good.directory, None).starts_with("torn"), "{cut}");
    }
    let mut lost = text.clone();
    lost[1024..1536].fill(0);
    fs::write(good.last(), &lost).unwrap();
    assert!(agree(&good.directory, None).starts_with("torn"));
    lost[1024..1536].copy_from_slice(&text[1024..1536]);
    lost[1100..1200].fill(0);
    fs::write(good.last(), &lost).unwrap();
    assert!(agree(&good.directory, None).starts_with("bad"));
    fs::write(good.last(), [&text[..], &[0; 300]].concat()).unwrap();
    assert!(agree(&good.directory, None).starts_with("torn"));
    fs::write(good.last(), "{\"seq\"").unwrap();
    assert_eq!(agree(&good.directory, None), "bad 0");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// EVI-2: both name the same record, whatever was done to the files.
    #[test]
    fn both_name_the_same_record(change in damage()) {
        use std::sync::LazyLock;
        static GOOD: LazyLock<Place> = LazyLock::new(|| chain(15));
        let place = GOOD.copy();
        Damage::does(change, &place);
        agree(&place.directory, None);
    }
}
