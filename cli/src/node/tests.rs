//! The client against a node that a test makes.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use ipc_proto::Code;
use ipc_proto::control::{FromNode, Status, ToNode};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::fake::{Fake, Life, serves, status};
use super::places::is_locked;
use super::*;

fn ask(node: &Node) -> Result<Status, Failure> {
    node.document(&ToNode::Status, Patience::Prompt)
}

fn code(failure: Failure) -> Code {
    Trouble::from(failure).code
}

/// DIA-3, ACC-1: greeted, asked, answered; the next question on the same connection.
#[test]
fn a_node_answers_one_question_after_the_other() {
    let node = Fake::once(|caller| {
        caller.greet();
        for _ in 0..2 {
            assert!(matches!(caller.hear().unwrap().0, ToNode::Status));
            caller.give(&FromNode::Document, &status());
        }
        assert!(caller.hear().is_none());
    });
    let mut client = Client::connect(node.places()).unwrap();
    assert_eq!(client.ask(ask).unwrap(), status());
    assert_eq!(client.ask(ask).unwrap(), status());
    drop(client);
    node.join();
}

/// CLI: no node is said at once, whether its socket is missing, nobody listens any more, or a file stands there.
#[test]
fn no_node_is_said_at_once() {
    let began = Instant::now();
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("control.sock");
    let fails = || code(Client::connect(Places::of(socket.clone())).unwrap_err());
    assert_eq!(fails(), Code::NoNode);
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(matches!(fails(), Code::NoNode | Code::OtherVersion));
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "").unwrap();
    assert_eq!(fails(), Code::NoNode);
    assert!(began.elapsed() < Duration::from_secs(2));
    let long = place.path().join("x".repeat(120));
    assert!(Trouble::from(Places::of(long).connect().unwrap_err()).sentence.contains("XDG_RUNTIME_DIR"));
}

/// Two places: the first at which somebody listens is taken, and the service only where the operator's own does not run.
#[test]
fn the_operators_own_node_comes_first() {
    let own = Fake::once(|caller| caller.greet());
    let service = Fake::once(|caller| caller.greet());
    let places = Places { sockets: vec![own.socket(), service.socket()], locks: Vec::new() };
    drop(places.connect().unwrap());
    own.join();
    drop(places.connect().unwrap());
    service.join();
}

/// PRV-5: another version, a refusal in place of a greeting, a word that does not belong there: an error with its code.
#[test]
fn a_node_that_cannot_be_understood_is_named() {
    let greeted_with = |word: FromNode| {
        let node = Fake::once(move |caller| {
            caller.hear();
            caller.say(&word);
        });
        let failure = node.places().connect().unwrap_err();
        node.join();
        Trouble::from(failure)
    };
    let other = greeted_with(FromNode::Hello { version: 9, program: "9.0\x1b[2J".to_owned() });
    assert_eq!(other.code, Code::OtherVersion);
    assert!(other.sentence.contains("9.0") && !other.sentence.contains('\x1b'), "{other}");
    // Said without a look at what we say, as to whoever may not even greet.
    let node = Fake::once(|caller| {
        let sentence = "not you".to_owned();
        caller.say(&FromNode::Refused { code: Code::NotAllowed, sentence });
    });
    assert_eq!(code(node.places().connect().unwrap_err()), Code::NotAllowed);
    node.join();
    let refused =
        greeted_with(FromNode::Refused { code: Code::NotAllowed, sentence: "no\x1b]0;x\x07 way".to_owned() });
    assert_eq!(refused.code, Code::NotAllowed);
    assert!(!refused.sentence.contains(['\x1b', '\x07']), "{refused}");
    assert_eq!(greeted_with(FromNode::Step { text: "x".to_owned() }).code, Code::OtherVersion);

    let node = Fake::once(|caller| {
        caller.greet();
        caller.hear();
        caller.say(&FromNode::Step { text: "secret words".to_owned() });
    });
    let trouble = Trouble::from(ask(&node.places().connect().unwrap()).unwrap_err());
    assert_eq!(trouble.code, Code::OtherVersion);
    assert!(!trouble.sentence.contains("secret words"), "{trouble}");
    node.join();
}

/// PRV-5: bytes that are no message, and a document that is another one, end in words.
#[test]
fn nonsense_is_no_crash() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("s");
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
    rustix::net::listen(&listener, 8).unwrap();
    let talks = std::thread::spawn(move || {
        for bytes in [&b"\x1b[2J"[..], &[0xff; 16_000], &[0; 3]] {
            let caller = rustix::net::accept(&listener).unwrap();
            rustix::net::send(&caller, bytes, rustix::net::SendFlags::empty()).unwrap();
        }
    });
    for _ in 0..3 {
        let failure = Places::of(socket.clone()).connect().unwrap_err();
        assert_eq!(code(failure), Code::OtherVersion);
    }
    talks.join().unwrap();

    let node = Fake::once(|caller| {
        caller.greet();
        caller.hear();
        caller.give(&FromNode::Document, &"no status".to_owned());
    });
    assert_eq!(code(ask(&node.places().connect().unwrap()).unwrap_err()), Code::OtherVersion);
    node.join();
}

/// PRV-6: a node that ends before it answers is asked again when it is back, on a new connection.
#[test]
fn a_node_that_comes_back_is_asked_again() {
    let node = Fake::start(vec![
        serves(|caller| {
            caller.greet();
            caller.hear();
        }),
        Life::Away(Duration::from_millis(300)),
        // It ends again before its greeting.
        serves(|_| {}),
        serves(|caller| {
            caller.greet();
            caller.hear();
            caller.give(&FromNode::Document, &status());
        }),
    ]);
    let mut client = Client::connect(node.places()).unwrap();
    assert_eq!(client.ask(ask).unwrap(), status());
    node.join();
}

/// PRV-6: one that does not come back is given up after its time, and a refusal is asked for only once.
#[test]
fn a_node_that_stays_away_is_given_up() {
    let node = Fake::start(vec![
        serves(|caller| {
            caller.greet();
            caller.hear();
        }),
        Life::Away(Duration::ZERO),
    ]);
    let mut client = Client::connect(node.places()).unwrap().patient_for(Duration::from_millis(200));
    let began = Instant::now();
    assert!(matches!(client.ask(ask), Err(Failure::Lost)));
    assert!((Duration::from_millis(200)..Duration::from_secs(5)).contains(&began.elapsed()));
    node.join();

    let node = Fake::once(|caller| {
        caller.greet();
        caller.hear();
        caller
            .say(&FromNode::Refused { code: Code::BadDatabase, sentence: "the inbox is broken".to_owned() });
        // The same connection serves on.
        caller.hear();
        caller.give(&FromNode::Document, &status());
    });
    let mut client = Client::connect(node.places()).unwrap();
    assert_eq!(code(client.ask(ask).unwrap_err()), Code::BadDatabase);
    assert_eq!(client.ask(ask).unwrap(), status());
    node.join();
}

/// PRV-6: a node that has its lock and does not listen yet is waited for; one without it is not there.
#[test]
fn a_node_that_is_starting_is_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("node.lock");
    let file = std::fs::File::create(&path).unwrap();
    let node = Fake::start(vec![Life::Away(Duration::from_millis(400)), serves(|caller| caller.greet())]);
    let places = Places { sockets: vec![node.socket()], locks: vec![path] };
    assert!(!places.is_expected());
    assert!(matches!(places.reach(), Err(Failure::Absent)));
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(places.is_expected());
    drop(places.reach().unwrap());
    node.join();
    drop(file);
    assert!(!places.is_expected());
}

/// Lines as the kernel writes them: another file's, another kind's, a waiting one's, half a line.
#[test]
fn locks_are_read_from_the_kernels_list() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let found = file.as_file().metadata().unwrap();
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let line = |kind: &str, inode: u64| {
        format!("1: {kind}  ADVISORY  WRITE 77 {major:02x}:{minor:02x}:{inode} 0 EOF\n")
    };
    assert!(is_locked(&(line("POSIX", 1) + &line("FLOCK", found.ino())), &found));
    for text in [
        "",
        "1: FLOCK",
        "1: FLOCK ADVISORY WRITE 77 x",
        &line("POSIX", found.ino()),
        &line("FLOCK", found.ino() + 1),
    ] {
        assert!(!is_locked(text, &found), "{text}");
    }
}
