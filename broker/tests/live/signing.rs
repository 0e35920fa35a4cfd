//! The key that signs the evidence.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use confine::sys::wait::Status;
use ipc_proto::RunId;
use ipc_proto::broker::{FromBroker, KeyState, ModelLimits, PublicKey, ToBroker, checkpoint_message};
use ring::signature::{ED25519, UnparsedPublicKey};

use crate::exchange::{CHAT, OK};
use crate::stage::{Broker, KEY, Model, Reach, Start, Terms, WAIT, policy};

fn key_file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).unwrap()
}

/// A broker that only signs.
fn signing(file: &File) -> Broker {
    let start = Start { upstream: None, key: None, signing: Some(file) };
    Broker::start_with(&start, Reach::Gone)
}

fn sign(broker: &Broker, seq: u64, hash: [u8; 32]) -> [u8; 64] {
    broker.supervisor.send(&ToBroker::Sign { seq, hash }, &[]).unwrap();
    let FromBroker::Signed { seq: signed, signature } = broker.next() else { panic!("no signature") };
    assert_eq!(signed, seq);
    signature.bytes()
}

fn verify(key: PublicKey, seq: u64, hash: [u8; 32], signature: &[u8; 64]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(&checkpoint_message(seq, &hash), signature).is_ok()
}

/// EVI-1: a node whose agent needs no model has a broker all the same: it makes the key, signs checkpoints with it, and has
/// the same one when it is started again. Nothing of the seed is in its memory map of files or its open descriptors.
#[test]
fn a_broker_without_a_service_signs() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("key");
    let file = key_file(&path);
    let mut broker = signing(&file);
    broker.greet();
    let key = broker.signing.unwrap();
    assert_eq!((broker.hello.1, broker.hello.2), (KeyState::None, 0));
    assert_eq!(std::fs::read(&path).unwrap().len(), 32);
    for seq in [0, 1, u64::MAX] {
        let hash = [u8::try_from(seq % 251).unwrap(); 32];
        let signature = sign(&broker, seq, hash);
        assert!(verify(key, seq, hash, &signature));
        assert!(!verify(key, seq ^ 1, hash, &signature));
    }
    // Root alone sees the list; where it can be seen the file is closed.
    for entry in
        std::fs::read_dir(format!("/proc/{}/fd", broker.child.pid.as_raw_nonzero())).into_iter().flatten()
    {
        let target = std::fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert!(!target.starts_with(place.path()), "{target:?}");
    }
    let (nobody, _) = ipc_proto::Channel::pair().unwrap();
    drop(std::mem::replace(&mut broker.supervisor, nobody));
    assert_eq!(broker.ended(), Status::Exited(0));

    let mut again = signing(&key_file(&path));
    again.greet();
    assert_eq!(again.signing, Some(key));
    assert_eq!(again.log(), "");
}

/// EVI-1: one broker serves runs and signs, confined.
#[test]
fn a_broker_with_a_service_signs_too() {
    let place = tempfile::tempdir().unwrap();
    let file = key_file(&place.path().join("key"));
    let model = Model::fixed(OK);
    let upstream = format!("http://{}/v1", model.address);
    let start = Start { upstream: Some(&upstream), key: Some(KEY), signing: Some(&file) };
    let mut broker = Broker::start_with(&start, Reach::To(model.address));
    broker.greet();
    assert_eq!(broker.hello.1, KeyState::Ready);
    let run = broker.open(1, &Terms::default());
    assert_eq!(run.chat(CHAT).status, 200);
    run.both_reports();
    let signature = sign(&broker, 7, [9; 32]);
    assert!(verify(broker.signing.unwrap(), 7, [9; 32], &signature));
    assert_eq!(broker.status("Seccomp:"), 2);
    run.close();
}

/// EVI-1: a file that is not a key ends the process before its first word, with a sentence, and is left as it was.
#[test]
fn a_file_that_is_no_key_ends_the_process() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("key");
    for (contents, words) in [(vec![1; 31], "31 bytes"), (vec![0; 32], "zeros"), (vec![1; 64], "64 bytes")] {
        drop(key_file(&path));
        std::fs::write(&path, &contents).unwrap();
        let broker = signing(&key_file(&path));
        assert_eq!(broker.ended(), Status::Exited(1));
        let log = broker.log();
        assert!(log.contains(words) && log.lines().count() == 1, "{log}");
        assert_eq!(std::fs::read(&path).unwrap(), contents);
    }
}

/// PRV-5: without a key nothing is signed, and without a service no run is served: each ends the process.
#[test]
fn what_was_not_given_is_not_done() {
    let place = tempfile::tempdir().unwrap();
    let model = Model::fixed(OK);
    let broker = model.broker();
    assert_eq!(broker.signing, None);
    broker.supervisor.send(&ToBroker::Sign { seq: 1, hash: [1; 32] }, &[]).unwrap();
    assert_eq!(broker.ended(), Status::Exited(1));
    assert!(broker.log().contains("Sign while there is no signing key"), "{}", broker.log());

    let (run, limits) = (RunId::new(1, [1; 4]), ModelLimits::default());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let task = ipc_proto::bulk::seal(&"task".to_owned()).unwrap();
    for (message, descriptor) in [
        (ToBroker::Open { run, policy: policy(WAIT), limits, debits: false }, listener.as_fd()),
        (ToBroker::Ask { run, policy: policy(WAIT), limits, debits: false }, task.as_fd()),
    ] {
        let mut broker = signing(&key_file(&place.path().join("key")));
        broker.greet();
        broker.supervisor.send(&message, &[descriptor]).unwrap();
        assert_eq!(broker.ended(), Status::Exited(1));
        assert!(broker.log().contains("there is no service"), "{}", broker.log());
    }
}
