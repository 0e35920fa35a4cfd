//! Checkpoints: what is signed cannot be replaced.

use super::*;

/// EVI-1: a checkpoint is wanted after so many records, at a new segment, at a clean stop, and after a crash.
#[test]
fn checkpoints_are_wanted_in_time() {
    let signer = Signer::new(1);
    let place = Place::new();
    let (mut evidence, _) = place.open(Sizes { segment: u64::MAX, every: 10 });
    // The first record binds the key to the chain.
    let (seq, hash) = evidence.wants_checkpoint().unwrap();
    assert_eq!(seq, 0);
    assert!(evidence.checkpoint(time(0), seq, &signer.key(), &signer.sign(seq, &hash)).unwrap());
    assert_eq!((evidence.wants_checkpoint(), evidence.signed()), (None, Some(0)));
    for n in 2..10 {
        assert_eq!(evidence.append(time(n), "a", &json!({})).unwrap(), n);
        assert_eq!(evidence.wants_checkpoint(), None, "{n}");
    }
    evidence.append(time(10), "a", &json!({})).unwrap();
    assert_eq!(evidence.wants_checkpoint().unwrap().0, 10);
    // Records go on while the broker signs; a stop asks for the newest.
    let (seq, hash) = evidence.wants_checkpoint().unwrap();
    evidence.append(time(11), "a", &json!({})).unwrap();
    evidence.ask_checkpoint();
    let (last, last_hash) = evidence.wants_checkpoint().unwrap();
    assert_eq!(last, 11);
    assert!(evidence.checkpoint(time(12), seq, &signer.key(), &signer.sign(seq, &hash)).unwrap());
    assert!(evidence.checkpoint(time(13), last, &signer.key(), &signer.sign(last, &last_hash)).unwrap());
    evidence.sync().unwrap();
    evidence.ask_checkpoint();
    assert_eq!((evidence.wants_checkpoint(), evidence.signed()), (None, Some(11)));
    drop(evidence);
    let verified = place.verify().unwrap();
    assert_eq!((verified.unsigned, verified.checkpoints, verified.signed), (0, 3, Some(11)));
    // After a clean stop there is nothing to sign; after any other end there is.
    let (mut evidence, _) = place.open(SMALL);
    assert_eq!((evidence.wants_checkpoint(), evidence.key()), (None, Some(signer.key())));
    evidence.append(time(0), "a", &json!({})).unwrap();
    drop(evidence);
    assert_eq!(place.verify().unwrap().unsigned, 1);
    let (evidence, _) = place.open(SMALL);
    assert_eq!(evidence.wants_checkpoint().unwrap().0, evidence.records() - 1);
}

/// EVI-1: a new segment is signed from its first record on.
#[test]
fn a_new_segment_is_signed() {
    let signer = Signer::new(1);
    let place = Place::new();
    let (mut evidence, _) = place.open(Sizes { segment: 1, every: u64::MAX });
    let (seq, hash) = evidence.wants_checkpoint().unwrap();
    evidence.checkpoint(time(0), seq, &signer.key(), &signer.sign(seq, &hash)).unwrap();
    assert_eq!(evidence.wants_checkpoint(), None);
    evidence.sync().unwrap();
    assert_eq!(place.segments().len(), 2);
    let (seq, hash) = evidence.wants_checkpoint().unwrap();
    assert_eq!(seq, 2);
    evidence.checkpoint(time(0), seq, &signer.key(), &signer.sign(seq, &hash)).unwrap();
    drop(evidence);
    let verified = place.verify().unwrap();
    assert_eq!((verified.signed, verified.unsigned, verified.segments), (Some(2), 0, 2));
}

/// EVI-1: what the broker sends is checked before it is written.
#[test]
fn only_true_signatures_are_written() {
    let (signer, other) = (Signer::new(1), Signer::new(2));
    let place = Place::new();
    let (mut evidence, _) = place.open(WHOLE);
    let (seq, hash) = evidence.wants_checkpoint().unwrap();
    let before = place.lines();
    let key = signer.key();
    for (asked, key, signature) in [
        (seq, key, other.sign(seq, &hash)),
        (seq, key, signer.sign(seq + 1, &hash)),
        (seq, key, signer.sign(seq, &[0; 32])),
        (seq, other.key(), signer.sign(seq, &hash)),
    ] {
        let error = evidence.checkpoint(time(0), asked, &key, &signature).unwrap_err();
        assert!(matches!(error, EvidenceError::Signature(0)), "{error}");
    }
    let error = evidence.checkpoint(time(0), seq + 1, &key, &signer.sign(seq + 1, &hash)).unwrap_err();
    assert!(matches!(error, EvidenceError::Unasked(1)), "{error}");
    assert_eq!(place.lines(), before);
    evidence.checkpoint(time(0), seq, &key, &signer.sign(seq, &hash)).unwrap();
    // A second time nobody asked; and the key stays what it is, over restarts.
    let again = evidence.checkpoint(time(0), seq, &key, &signer.sign(seq, &hash)).unwrap_err();
    assert!(matches!(again, EvidenceError::Unasked(0)), "{again}");
    drop(evidence);
    let (mut evidence, _) = place.open(WHOLE);
    evidence.append(time(0), "a", &json!({})).unwrap();
    evidence.ask_checkpoint();
    let (seq, hash) = evidence.wants_checkpoint().unwrap();
    let error = evidence.checkpoint(time(0), seq, &other.key(), &other.sign(seq, &hash)).unwrap_err();
    assert!(matches!(error, EvidenceError::OtherKey), "{error}");
    assert!(evidence.expect_key(&other.key()).is_err() && evidence.expect_key(&key).is_ok());
}

/// EVI-1: a signature that comes too late is of no use, and another one is wanted.
#[test]
fn a_late_signature_is_not_written() {
    let signer = Signer::new(1);
    let place = Place::new();
    let (mut evidence, _) = place.open(Sizes { segment: u64::MAX, every: 1000 });
    let (seq, hash) = evidence.wants_checkpoint().unwrap();
    for n in 0..REACH {
        evidence.append(time(n), "a", &json!({})).unwrap();
    }
    let (wanted, _) = evidence.wants_checkpoint().unwrap();
    // REACH - 1 records are between, so its own would be the first that is too far.
    assert_eq!(evidence.records(), REACH + 1);
    assert!(!evidence.checkpoint(time(0), seq, &signer.key(), &signer.sign(seq, &hash)).unwrap());
    let (newest, hash) = evidence.wants_checkpoint().unwrap();
    assert!(newest > wanted && evidence.signed().is_none());
    assert!(evidence.checkpoint(time(0), newest, &signer.key(), &signer.sign(newest, &hash)).unwrap());
    drop(evidence);
    assert_eq!(place.verify().unwrap().signed, Some(newest));
}

/// EVI-2: whoever can write the files can hash them anew, but not sign them: what a checkpoint vouches for is found.
#[test]
fn what_is_signed_cannot_be_forged() {
    let good = chain(30);
    let records = read_all(&good.directory);
    let checkpoints: Vec<u64> =
        records.iter().filter(|(_, kind, _)| kind == CHECKPOINT).map(|(seq, _, _)| *seq).collect();
    let last = *checkpoints.last().unwrap();
    for (seq, kind, _) in &records {
        if kind == CHECKPOINT || kind == OPENED {
            continue;
        }
        let place = good.copy();
        forge(&place, *seq, |at, _, body| {
            if at == *seq {
                body["n"] = json!(1_000_000);
            }
        });
        // Without a state, since the carried one would tell as well.
        let found = verify::<()>(&place.directory, None, &mut |_| {});
        let vouching =
            records.iter().find(|(_, kind, body)| kind == CHECKPOINT && body["seq"].as_u64() >= Some(*seq));
        match vouching {
            Some((at, _, body)) => {
                let fault = found.unwrap_err();
                assert_eq!(fault.seq(), Some(*at), "{fault}");
                let what = What::Checkpoint(CheckpointFault::Hash(body["seq"].as_u64().unwrap()));
                assert!(matches!(fault, Fault::Record { what: found, .. } if found == what), "{fault}");
            }
            // Behind the last checkpoint hashes alone tell nothing: it is said how many records that are.
            None => assert!(*seq > last - 1 && found.unwrap().unsigned > 0),
        }
    }
}

/// EVI-2: signed anew with another key, it holds in itself; the key that was known before tells.
#[test]
fn another_key_is_found() {
    let place = Place::new();
    let (mut evidence, _) = place.open(SMALL);
    fill(&mut evidence, 30, Some(&Signer::new(2)));
    drop(evidence);
    let other = Signer::new(1).key();
    assert_eq!(place.verify().unwrap().key_source, Some(KeySource::Checkpoint));
    let first = read_all(&place.directory).iter().position(|(_, kind, _)| kind == CHECKPOINT).unwrap() as u64;
    let given = verify::<Counts>(&place.directory, Some(other), &mut |_| {}).unwrap_err();
    assert_eq!(given.seq(), Some(first), "{given}");
    write_key(&key_file(&place.directory), &other).unwrap();
    assert_eq!(place.verify().unwrap_err().seq(), Some(first));
    write_key(&key_file(&place.directory), &Signer::new(2).key()).unwrap();
    assert_eq!(place.verify().unwrap().key_source, Some(KeySource::File));
    // The end alone, as a start reads it, tells too.
    let end =
        walk::<()>(&place.directory, Begin::Last(1), Some(other), &mut |_: &Record<'_>, _: &[u8], _| {
            ControlFlow::Continue(())
        });
    assert!(end.is_err());
}

/// EVI-2: what the evidence's own records say is checked, though their hashes fit.
#[test]
fn its_own_records_are_checked() {
    let good = chain(30);
    let records = read_all(&good.directory);
    let second = |kind: &str| records.iter().filter(|(_, of, _)| of == kind).nth(1).unwrap().0;
    let found = |at: u64, field: &str, value: Value| {
        let place = good.copy();
        forge(&place, at, |seq, _, body| {
            if seq == at {
                if value.is_null() && body[field].is_null() {
                    body.as_object_mut().unwrap().remove(field);
                } else {
                    body[field] = value.clone();
                }
            }
        });
        match place.verify().unwrap_err() {
            Fault::Record { seq, what, .. } => {
                assert_eq!(seq, at, "{what}");
                what
            }
            other @ (Fault::Unreadable { .. } | Fault::NoKey(_)) => panic!("{other}"),
        }
    };
    let (opened, checkpoint) = (second(OPENED), second(CHECKPOINT));
    let opening = |fault| What::Opening(fault);
    assert_eq!(found(opened, "carried", json!({ "kinds": {}, "sum": 0 })), opening(OpeningFault::Carried));
    assert_eq!(found(opened, "first", json!(opened + 1)), opening(OpeningFault::First));
    assert_eq!(found(opened, "key", json!("00".repeat(32))), opening(OpeningFault::Key));
    assert_eq!(found(opened, "signed", json!(opened)), opening(OpeningFault::Signed));
    assert_eq!(found(opened, "more", json!(0)), opening(OpeningFault::Unreadable));
    assert_eq!(found(opened, "format", json!(2)), What::Format(2));
    let vouches = |fault| What::Checkpoint(fault);
    let signed = records[usize::try_from(checkpoint).unwrap()].2["seq"].as_u64().unwrap();
    assert_eq!(found(checkpoint, "hash", json!("00".repeat(32))), vouches(CheckpointFault::Hash(signed)));
    assert_eq!(found(checkpoint, "signature", json!("00".repeat(64))), vouches(CheckpointFault::Signature));
    assert_eq!(found(checkpoint, "key", json!("00".repeat(32))), vouches(CheckpointFault::Key));
    assert_eq!(found(checkpoint, "seq", json!(checkpoint)), vouches(CheckpointFault::Reach(checkpoint)));
    assert_eq!(found(checkpoint, "seq", json!(0)), vouches(CheckpointFault::Reach(0)));
    assert_eq!(found(checkpoint, "seq", json!("1")), vouches(CheckpointFault::Unreadable));
    assert_eq!(found(checkpoint, "more", json!(1)), vouches(CheckpointFault::Unreadable));
    // One that opens a segment where none begins, and a segment that none opens.
    let place = good.copy();
    forge(&place, 2, |seq, kind, body| {
        if seq == 2 {
            (*kind, *body) = (OPENED.to_owned(), records[0].2.clone());
        }
    });
    assert!(matches!(place.verify(), Err(Fault::Record { seq: 2, what: What::Placement, .. })));
    let place = good.copy();
    forge(&place, 0, |seq, kind, _| {
        if seq == 0 {
            "run.started".clone_into(kind);
        }
    });
    assert!(matches!(place.verify(), Err(Fault::Record { seq: 0, what: What::Placement, .. })));
}

/// EVI-2: a key that is known before anything was signed is expected, and is none of the chain's before it signed.
#[test]
fn a_key_may_be_known_before_it_signed() {
    let (signer, other) = (Signer::new(1), Signer::new(2));
    let place = Place::new();
    drop(place.open(SMALL));
    let open =
        || Evidence::<Counts>::open_with(&place.directory, Some(signer.key()), time(0), SMALL).unwrap().0;
    let mut evidence = open();
    assert_eq!(evidence.key(), Some(signer.key()));
    assert!(evidence.expect_key(&other.key()).is_err());
    fill(&mut evidence, 20, None);
    assert!(place.segments().len() > 1);
    assert_eq!((place.verify().unwrap().signed, evidence.signed()), (None, None));
    drop(evidence);
    let mut evidence = open();
    fill(&mut evidence, 20, Some(&signer));
    write_key(&key_file(&place.directory), &signer.key()).unwrap();
    assert!(place.verify().unwrap().signed.is_some());
}
