//! A crash at any point leaves a chain that verifies and goes on.

use proptest::prelude::*;

use super::*;

fn truncate(path: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// The chain without its last records, torn at `length` of the last file: it verifies but for its end, is opened, and goes on.
fn goes_on(place: &Place, length: u64, text: &[u8]) {
    let whole =
        text[..usize::try_from(length).unwrap()].iter().rposition(|byte| *byte == b'\n').unwrap() as u64 + 1;
    let verified = place.verify().unwrap();
    let records = verified.records;
    let torn = (length > whole).then(|| Tail {
        seq: records,
        segment: place.last(),
        offset: whole,
        bytes: length - whole,
    });
    assert_eq!(verified.tail, torn);
    let (mut evidence, opened) = place.open(SMALL);
    assert_eq!(opened.records, records);
    match &torn {
        None => assert_eq!(opened.torn, None),
        Some(tail) => {
            let set_aside = opened.torn.unwrap();
            assert_eq!((set_aside.seq, set_aside.bytes), (tail.seq, tail.bytes));
            let kept = fs::read(&set_aside.file).unwrap();
            assert_eq!(kept, text[usize::try_from(whole).unwrap()..usize::try_from(length).unwrap()]);
            let (seq, kind, body) = read_all(&place.directory).pop().unwrap();
            assert_eq!((seq, kind.as_str()), (records, TORN));
            assert_eq!(body["bytes"], tail.bytes);
            assert_eq!(body["file"], set_aside.file.file_name().unwrap().to_str().unwrap());
            assert_eq!(
                body["sha256"],
                crate::chain::hex(&sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(
                    &kept
                )))
            );
        }
    }
    fill(&mut evidence, 3, None);
    let after = place.verify().unwrap();
    assert_eq!((after.records, after.tail), (evidence.records(), None));
}

/// EVI-3: a start does not wait for itself when it finds a torn end.
#[test]
fn a_torn_end_is_set_aside_at_once() {
    let place = chain(10);
    let text = fs::read(place.last()).unwrap();
    fs::write(place.last(), [&text[..], b"{\"seq\":"].concat()).unwrap();
    let before = std::time::Instant::now();
    assert!(place.open(SMALL).1.torn.is_some());
    assert!(before.elapsed() < std::time::Duration::from_millis(200), "{:?}", before.elapsed());
}

/// EVI-3: the power fails, or the process is killed, at any byte of the last record.
#[test]
fn a_record_may_be_torn_anywhere() {
    let good = chain(30);
    let text = fs::read(good.last()).unwrap();
    let before = text[..text.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() as u64 + 1;
    for length in before..=text.len() as u64 {
        let place = good.copy();
        truncate(&place.last(), length);
        goes_on(&place, length, &text);
    }
}

/// EVI-3: the same with the last group of records, at every byte of each.
#[test]
fn a_group_may_be_torn_anywhere() {
    let place = Place::new();
    let (mut evidence, _) = place.open(WHOLE);
    let begin = evidence.length;
    for n in 0..3 {
        evidence.append(time(n), "a", &json!({ "n": n })).unwrap();
    }
    drop(evidence);
    let text = fs::read(place.last()).unwrap();
    for length in begin..=text.len() as u64 {
        let copy = place.copy();
        truncate(&copy.last(), length);
        goes_on(&copy, length, &text);
    }
}

/// EVI-3: sectors that were never written read as zeros, whatever is behind them.
#[test]
fn lost_sectors_are_a_torn_end() {
    let good = Place::new();
    let (mut evidence, _) = good.open(WHOLE);
    fill(&mut evidence, 20, None);
    drop(evidence);
    let text = fs::read(good.last()).unwrap();
    let records = good.verify().unwrap().records;
    let lines: Vec<usize> =
        text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    let sector = text.len() / 512 * 512 - 512;
    let mut lost = text.clone();
    lost[sector..sector + 512].fill(0);
    let whole = lines.iter().filter(|at| **at < sector).count() as u64;
    fs::write(good.last(), &lost).unwrap();
    let verified = good.verify().unwrap();
    let tail = verified.tail.unwrap();
    assert_eq!(tail.seq, records - (lines.len() as u64 - whole));
    assert_eq!(verified.records, tail.seq);
    let (mut evidence, opened) = good.open(SMALL);
    assert_eq!(fs::read(opened.torn.unwrap().file).unwrap(), lost[usize::try_from(tail.offset).unwrap()..]);
    fill(&mut evidence, 3, None);
    assert_eq!(good.verify().unwrap().tail, None);
    // Zeros behind the last record alone.
    let good = chain(5);
    let text = fs::read(good.last()).unwrap();
    fs::write(good.last(), [&text[..], &[0; 300]].concat()).unwrap();
    assert_eq!(good.verify().unwrap().tail.unwrap().bytes, 300);
}

/// EVI-3: a crash while a torn end is set aside, at each of its steps.
#[test]
fn setting_aside_may_be_interrupted() {
    let good = chain(10);
    let text = fs::read(good.last()).unwrap();
    let records = good.verify().unwrap().records;
    let torn = || {
        let place = good.copy();
        fs::write(place.last(), [&text[..], b"{\"seq\":"].concat()).unwrap();
        place
    };
    let name = format!("torn-{records:020}");
    let check = |place: &Place| {
        let (evidence, opened) = place.open(SMALL);
        assert_eq!(opened.torn.unwrap().bytes, 7);
        drop(evidence);
        let kinds: Vec<String> = read_all(&place.directory).into_iter().map(|(_, kind, _)| kind).collect();
        assert_eq!(kinds.iter().filter(|kind| *kind == TORN).count(), 1);
        assert_eq!(place.open(SMALL).1.torn, None);
        assert_eq!(fs::read(place.directory.join(&name)).unwrap(), b"{\"seq\":");
    };
    // Not begun; the copy not complete; the copy made, but nothing cut off; cut off, but not recorded.
    check(&torn());
    let place = torn();
    fs::write(place.directory.join("torn.new"), b"{\"s").unwrap();
    check(&place);
    let place = torn();
    fs::write(place.directory.join(&name), b"{\"seq\":").unwrap();
    check(&place);
    let place = torn();
    fs::write(place.directory.join(&name), b"{\"seq\":").unwrap();
    fs::write(place.last(), &text).unwrap();
    check(&place);
}

/// EVI-3: a crash while a segment is begun leaves the one before the last.
#[test]
fn beginning_a_segment_may_be_interrupted() {
    let good = chain(10);
    fs::write(good.directory.join("segment.new"), b"{\"seq\":1").unwrap();
    let records = good.verify().unwrap().records;
    let (mut evidence, opened) = good.open(SMALL);
    assert_eq!(opened.records, records);
    assert!(!good.directory.join("segment.new").exists());
    fill(&mut evidence, 20, None);
    assert_eq!(good.verify().unwrap().tail, None);
}

/// EVI-1: evidence that does not hold is not built on, and is left as it is.
#[test]
fn what_does_not_hold_is_not_opened() {
    let refused = |change: &dyn Fn(&Place)| {
        let place = chain(30);
        change(&place);
        let before = place.lines();
        let error = Evidence::<Counts>::open(&place.directory, time(0)).err().unwrap();
        assert!(matches!(error, EvidenceError::Fault(_)), "{error}");
        assert_eq!(error.code(), ipc_proto::Code::BadEvidence);
        assert_eq!(place.lines(), before);
    };
    // A byte of the last segment, with its newline.
    refused(&|place| {
        let mut text = fs::read(place.last()).unwrap();
        let at = text.len() - 200;
        text[at] ^= 1;
        fs::write(place.last(), text).unwrap();
    });
    // The one before the last is gone, cut, or another one.
    refused(&|place| fs::remove_file(&place.segments()[place.segments().len() - 2]).unwrap());
    refused(&|place| {
        let path = &place.segments()[place.segments().len() - 2];
        truncate(path, fs::metadata(path).unwrap().len() - 5);
    });
    refused(&|place| {
        let segments = place.segments();
        fs::copy(&segments[0], &segments[segments.len() - 2]).unwrap();
    });
    // Everything is gone, but its key is known.
    refused(&|place| {
        write_key(&key_file(&place.directory), &Signer::new(1).key()).unwrap();
        for path in place.segments() {
            fs::remove_file(path).unwrap();
        }
    });
    // Whoever knows the key otherwise says so.
    let empty = Place::new();
    assert!(Evidence::<Counts>::open_known(&empty.directory, Some([7; 32]), time(0)).is_err());
    assert_eq!(empty.segments().len(), 0);
    // Another key is the node's.
    refused(&|place| write_key(&key_file(&place.directory), &Signer::new(2).key()).unwrap());
    // An empty file where a segment would be: it never has its name without its first record.
    refused(&|place| {
        let records = place.verify().unwrap().records;
        fs::write(place.directory.join(segment::name(records)), b"").unwrap();
    });
}

/// What a node does between two crashes, and how much of what it did not commit the disk has.
#[derive(Clone, Debug)]
struct Life {
    steps: Vec<Step>,
    lost: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(u64),
    Sync,
    Sign,
    AskCheckpoint,
}

fn life() -> impl Strategy<Value = Life> {
    let step = prop_oneof![
        6 => any::<u64>().prop_map(Step::Append),
        3 => Just(Step::Sync),
        2 => Just(Step::Sign),
        1 => Just(Step::AskCheckpoint),
    ];
    (proptest::collection::vec(step, 0..40), any::<usize>()).prop_map(|(steps, lost)| Life { steps, lost })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// EVI-1, EVI-3, RUN-4: over any number of crashes, whatever was committed is there, the chain verifies, and the state is what
    /// the records that are there make of it.
    #[test]
    fn what_was_committed_is_never_lost(lives in proptest::collection::vec(life(), 1..6)) {
        let signer = Signer::new(1);
        let place = Place::new();
        let mut committed: Vec<(u64, String, Value)> = Vec::new();
        for Life { steps, lost } in lives {
            let (mut evidence, _) = place.open(SMALL);
            // What was there at the start is committed by it.
            let mut synced = read_all(&place.directory);
            prop_assert!(synced.starts_with(&committed));
            for step in steps {
                match step {
                    Step::Append(n) => drop(evidence.append(time(n % 1_000_000), "run.ended", &body(n)).unwrap()),
                    Step::Sync => evidence.sync().unwrap(),
                    Step::AskCheckpoint => evidence.ask_checkpoint(),
                    Step::Sign => if let Some((seq, hash)) = evidence.wants_checkpoint() {
                        evidence.checkpoint(time(0), seq, &signer.key(), &signer.sign(seq, &hash)).unwrap();
                    },
                }
                if evidence.commit_due().is_none() {
                    synced = read_all(&place.directory);
                }
            }
            let state = evidence.state().clone();
            let all = read_all(&place.directory);
            let mut made = Counts::default();
            for (_, kind, body) in all.iter().filter(|(_, kind, _)| ![OPENED, CHECKPOINT, TORN].contains(&kind.as_str())) {
                made.apply(kind, body);
            }
            prop_assert_eq!(state, made);
            drop(evidence);
            // Of what was not committed the disk has a beginning.
            let last = fs::read(place.last()).unwrap();
            let uncommitted: usize = place.lines()[synced.len()..].iter().map(Vec::len).sum();
            truncate(&place.last(), (last.len() - lost % (uncommitted + 1)) as u64);
            place.verify().unwrap();
            committed = synced;
        }
        let (evidence, _) = place.open(SMALL);
        prop_assert!(read_all(&place.directory).starts_with(&committed));
        drop(evidence);
        let verified = place.verify().unwrap();
        prop_assert_eq!((verified.tail, verified.compared), (None, verified.segments));
    }
}
