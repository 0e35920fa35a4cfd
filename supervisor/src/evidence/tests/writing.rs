//! What is written is there, in order, and goes on after any end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, UNIX_EPOCH};

use confine::sys::signal::{Signal, Signals};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::*;

/// EVI-1: records are one chain over all segments, each of which carries what was known when it began; a start reads the last.
#[test]
fn one_chain_over_all_segments() {
    let place = chain(100);
    let verified = place.verify().unwrap();
    assert!(verified.segments > 5, "{verified:?}");
    assert_eq!(verified.compared, verified.segments);
    assert_eq!(verified.key, Some(Signer::new(1).key()));
    assert_eq!(verified.records, place.lines().len() as u64);
    let mut expected = Counts::default();
    let mut seen = 0;
    for (seq, kind, body) in read_all(&place.directory) {
        assert_eq!(seq, seen);
        seen += 1;
        if ![OPENED, CHECKPOINT].contains(&kind.as_str()) {
            expected.apply(&kind, &body);
        }
    }
    assert_eq!(expected.kinds.values().sum::<u64>(), 100);
    // All but the last one could be gone: a start reads none of them whole.
    let segments = place.segments();
    for path in &segments[..segments.len() - 2] {
        fs::remove_file(path).unwrap();
    }
    let (evidence, opened) = place.open(SMALL);
    assert_eq!(*evidence.state(), expected);
    assert_eq!((opened.records, opened.torn, opened.recomputed), (seen, None, false));
    assert_eq!((evidence.records(), evidence.signed()), (seen, verified.signed));
}

/// EVI-1: the line of a record, to the byte; only its owner reads it.
#[test]
fn the_line_is_as_documented() {
    let place = Place::new();
    let (mut evidence, _) = place.open(WHOLE);
    assert_eq!(evidence.append(UNIX_EPOCH, "run.started", &json!({ "run": "r1", "a": 1 })).unwrap(), 1);
    let text = fs::read_to_string(place.last()).unwrap();
    let (first, second) = text.split_once('\n').unwrap();
    let zeros = "0".repeat(64);
    let carried = "{\"carried\":{\"kinds\":{},\"sum\":0},\"first\":0,\"format\":1,\"key\":null,\"signed\":null,\"state\":1}";
    let expected = format!(
        "{{\"seq\":0,\"time\":\"2023-11-14T22:13:20.000Z\",\"kind\":\"segment.opened\",\"body\":{carried},\"prev\":\"{zeros}\""
    );
    assert_eq!(first.split_once(",\"hash\"").unwrap().0, expected);
    assert!(second.starts_with(
        "{\"seq\":1,\"time\":\"1970-01-01T00:00:00.000Z\",\"kind\":\"run.started\",\"body\":{\"a\":1,\"run\":\"r1\"},\"prev\":\""
    ));
    let mode = fs::metadata(place.last()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(place.last().file_name().unwrap(), "00000000000000000000.jsonl");
}

/// EVI-1: what is not on disk yet is due within 100 ms, and what was appended survives the end of the process.
#[test]
fn records_are_committed_in_groups() {
    let place = Place::new();
    let (mut evidence, _) = place.open(WHOLE);
    assert_eq!(evidence.commit_due(), None);
    let before = std::time::Instant::now();
    evidence.append(time(1), "a", &json!({})).unwrap();
    let due = evidence.commit_due().unwrap();
    assert!(due <= std::time::Instant::now() + Duration::from_millis(100) && due >= before);
    evidence.append(time(2), "a", &json!({})).unwrap();
    assert_eq!(evidence.commit_due(), Some(due));
    // Without a sync, as a SIGKILL would leave it.
    assert_eq!(place.verify().unwrap().records, 3);
    evidence.sync().unwrap();
    assert_eq!(evidence.commit_due(), None);
}

/// EVI-1: a segment is followed by the next only between groups.
#[test]
fn no_group_is_in_two_segments() {
    let place = Place::new();
    let (mut evidence, _) = place.open(SMALL);
    for n in 0..50 {
        evidence.append(time(n), "a", &body(n)).unwrap();
    }
    assert_eq!(place.segments().len(), 1);
    evidence.sync().unwrap();
    assert_eq!(place.segments().len(), 2);
    assert_eq!(place.last().file_name().unwrap(), "00000000000000000051.jsonl");
    assert_eq!(evidence.records(), 52);
}

/// EVI-1: a clock that jumps changes what is written as time, and nothing else.
#[test]
fn the_clock_may_jump() {
    let place = Place::new();
    let (mut evidence, _) = place.open(WHOLE);
    let far = UNIX_EPOCH + Duration::from_secs(400_000_000_000);
    for at in [time(5), UNIX_EPOCH, UNIX_EPOCH - Duration::from_secs(5), far, time(1)] {
        evidence.append(at, "a", &json!({})).unwrap();
    }
    assert_eq!(place.verify().unwrap().records, 6);
    let times: Vec<String> = place
        .lines()
        .iter()
        .map(|line| Record::read(line.trim_ascii_end()).unwrap().time.to_owned())
        .collect();
    assert_eq!(
        times[2..5],
        ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.000Z"]
    );
}

/// EVI-1: two nodes never write one evidence.
#[test]
fn a_second_writer_is_kept_out() {
    let place = Place::new();
    let (evidence, _) = place.open(WHOLE);
    let second = Evidence::<Counts>::open(&place.directory, time(0));
    let error = second.err().unwrap();
    assert!(matches!(error, EvidenceError::Locked(_)));
    assert_eq!(error.code(), ipc_proto::Code::NodeRunning);
    assert!(place.verify().unwrap().live);
    drop(evidence);
    assert!(!place.verify().unwrap().live);
    assert!(!place.open(WHOLE).1.fresh);
}

/// PRV-6: a node that starts while the one before is ending waits for it.
#[test]
fn a_start_waits_for_an_end() {
    let place = Place::new();
    let (evidence, _) = place.open(WHOLE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            drop(evidence);
        });
        assert!(!place.open(WHOLE).1.fresh);
    });
}

/// EVI-1: nothing that could not be read back is written.
#[test]
fn only_records_are_written() {
    let place = Place::new();
    let (mut evidence, _) = place.open(WHOLE);
    let long = "x".repeat(MAX_RECORD);
    let before = fs::read(place.last()).unwrap();
    for (kind, body) in [
        ("", json!({})),
        ("Run", json!({})),
        ("a b", json!({})),
        (OPENED, json!({})),
        (CHECKPOINT, json!({})),
        (TORN, json!({})),
        (&"k".repeat(65), json!({})),
        ("a", json!(null)),
        ("a", json!([])),
        ("a", json!({ "long": long })),
    ] {
        let error = evidence.append(time(0), kind, &body).unwrap_err();
        assert!(matches!(error, EvidenceError::Unwritable { .. }), "{kind} {error}");
    }
    assert_eq!(fs::read(place.last()).unwrap(), before);
    assert_eq!(evidence.append(time(0), "a", &json!({})).unwrap(), 1);
    assert_eq!(*evidence.state(), Counts { kinds: [("a".to_owned(), 1)].into(), sum: 0 });
}

/// EVI-1: a disk that does not take what was written ends the writing; nothing is tried again as if it were there.
#[test]
fn a_failed_sync_is_the_end() {
    let place = Place::new();
    let (mut evidence, _) = place.open(WHOLE);
    // fdatasync(2) of it answers EINVAL.
    evidence.file = OpenOptions::new().write(true).open("/dev/null").unwrap();
    evidence.append(time(0), "a", &json!({})).unwrap();
    let error = evidence.sync().unwrap_err();
    assert!(matches!(error, EvidenceError::Sync(_)));
    assert_eq!(error.code(), ipc_proto::Code::RecordFailed);
    assert!(matches!(evidence.sync(), Err(EvidenceError::Broken)));
    assert!(matches!(evidence.append(time(0), "a", &json!({})), Err(EvidenceError::Broken)));
}

/// EVI-1: where it is not known what a failed write left, nothing is written any more.
#[test]
fn a_failed_write_that_cannot_be_undone_is_the_end() {
    let place = Place::new();
    let (mut evidence, _) = place.open(WHOLE);
    evidence.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = evidence.append(time(0), "a", &json!({})).unwrap_err();
    assert!(matches!(error, EvidenceError::Write(_)), "{error}");
    assert!(matches!(evidence.append(time(0), "a", &json!({})), Err(EvidenceError::Broken)));
    assert_eq!((evidence.records(), evidence.state().kinds.len()), (1, 0));
}

/// EVI-1, EVI-3: a disk that is full in the middle of a record leaves no part of it, and the chain goes on when there is room.
#[test]
fn a_full_disk_leaves_whole_records() {
    const AS_CHILD: &str = "ANET_TEST_FULL_DISK";
    if std::env::var_os(AS_CHILD).is_none() {
        // In a process of its own, since the limit is the process's.
        let name = "evidence::tests::writing::a_full_disk_leaves_whole_records";
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--test-threads=1"])
            .env(AS_CHILD, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let _blocked = Signals::block(&[Signal::SIGXFSZ]).unwrap();
    let limit = |bytes| setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    let place = Place::new();
    let (mut evidence, _) = place.open(WHOLE);
    let mut written = 1;
    // Every place within a record is once where the room ends.
    for room in 0..600 {
        limit(Some(evidence.length + room));
        match evidence.append(time(room), "a", &body(room)) {
            Ok(_) => written += 1,
            Err(EvidenceError::Write(_)) => {}
            Err(other) => panic!("{other}"),
        }
        assert_eq!(fs::metadata(place.last()).unwrap().len(), evidence.length);
        assert_eq!(evidence.records(), written);
    }
    assert!((2..600).contains(&written), "{written}");
    limit(None);
    evidence.append(time(0), "a", &json!({})).unwrap();
    evidence.sync().unwrap();
    assert_eq!(place.verify().unwrap().records, written + 1);
}

/// EVI-1: a segment that cannot be made leaves the one before in use, but not for ever.
#[test]
fn a_segment_that_cannot_be_made_is_put_off() {
    let place = Place::new();
    let (mut evidence, _) = place.open(SMALL);
    fs::create_dir(place.directory.join("segment.new")).unwrap();
    let mut failed = None;
    for n in 0..100 {
        evidence.append(time(n), "a", &body(n)).unwrap();
        if let Err(error) = evidence.sync() {
            failed = Some(error);
            break;
        }
    }
    let error = failed.unwrap();
    assert!(matches!(error, EvidenceError::Unusable { .. }), "{error}");
    assert!(evidence.length >= 4 * SMALL.segment);
    fs::remove_dir(place.directory.join("segment.new")).unwrap();
    evidence.append(time(0), "a", &json!({})).unwrap();
    evidence.sync().unwrap();
    assert_eq!(place.segments().len(), 2);
    assert_eq!(place.verify().unwrap().records, evidence.records());
}

/// The same with one field more.
#[derive(Default, Debug, Serialize, Deserialize)]
struct Newer {
    counts: Counts,
    last: String,
}

impl State for Newer {
    const VERSION: u32 = 2;

    fn apply(&mut self, kind: &str, body: &Value) {
        self.counts.apply(kind, body);
        kind.clone_into(&mut self.last);
    }
}

/// RUN-4: what another version of anet carried is made anew from all records, once.
#[test]
fn another_versions_state_is_made_anew() {
    let place = chain(60);
    let counts = place.open(SMALL).0.state().clone();
    let newer = || Evidence::<Newer>::open_with(&place.directory, None, time(9), SMALL).unwrap();
    let (evidence, opened) = newer();
    assert!(opened.recomputed);
    assert_eq!(evidence.state().counts, counts);
    assert_eq!(evidence.state().last, "run.ended");
    drop(evidence);
    let (evidence, opened) = newer();
    assert!(!opened.recomputed);
    assert_eq!(evidence.state().counts, counts);
    drop(evidence);
    // Each version compares what it carried itself.
    let verified = verify::<Newer>(&place.directory, None, &mut |_| {}).unwrap();
    assert_eq!(verified.compared, 1);
    assert_eq!(place.verify().unwrap().compared, verified.segments - 1);
}

/// EVI-2: evidence can be verified while a node writes it.
#[test]
fn a_growing_chain_verifies() {
    let place = Place::new();
    let (mut evidence, _) = place.open(Sizes { segment: 50_000, every: 100 });
    let signer = Signer::new(1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                fill(&mut evidence, 5, Some(&signer));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut before = 0;
        for _ in 0..40 {
            let verified = place.verify().unwrap();
            assert_eq!(verified.tail, None);
            assert!(verified.live && verified.records >= before);
            before = verified.records;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// EVI-2: all segments in one file are the same chain.
#[test]
fn one_file_holds_all() {
    let place = chain(40);
    let file = place.directory.with_extension("jsonl");
    let key = Signer::new(1).key();
    let text = [header(Some(&key)).into_bytes(), place.lines().concat()].concat();
    fs::write(&file, &text).unwrap();
    let verified = verify::<Counts>(&file, None, &mut |_| {}).unwrap();
    let directory = place.verify().unwrap();
    assert_eq!((verified.records, verified.signed), (directory.records, directory.signed));
    assert_eq!(verified.key_source, Some(KeySource::Header));
    assert_eq!(verified.compared, directory.segments);
    // Cut, it is not whole: no crash does that to it.
    fs::write(&file, &text[..text.len() - 1]).unwrap();
    let fault = verify::<Counts>(&file, None, &mut |_| {}).unwrap_err();
    assert_eq!(fault.seq(), Some(directory.records - 1));
    fs::write(&file, header(Some(&[7; 32])) + &String::from_utf8(place.lines().concat()).unwrap()).unwrap();
    assert!(verify::<Counts>(&file, None, &mut |_| {}).unwrap_err().to_string().contains("another key"));
    File::create(&file).unwrap();
    assert_eq!(verify::<Counts>(&file, None, &mut |_| {}).unwrap_err().seq(), Some(0));
}

/// EVI-2: the last records are found without reading the first ones.
#[test]
fn the_end_is_read_alone() {
    let place = chain(80);
    let all = read_all(&place.directory);
    for count in [1, 5, 20, 60, 1000] {
        let mut records = Vec::new();
        let last = walk::<()>(
            &place.directory,
            Begin::Last(count),
            None,
            &mut |record: &Record<'_>, _: &[u8], _| {
                records.push((record.seq, record.kind.to_owned(), record.values()));
                ControlFlow::Continue(())
            },
        );
        assert_eq!(last.unwrap().records, all.len() as u64);
        assert!(records.len() >= usize::try_from(count).unwrap().min(all.len()));
        assert!(all.ends_with(&records));
        assert!(count > 20 || records.len() < all.len());
    }
}
