//! The supervisor's words, and what the process is.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;

use confine::sys::wait::Status;
use ipc_proto::RunId;
use ipc_proto::broker::{ModelLimits, ToBroker};

use crate::exchange::OK;
use crate::stage::{Broker, KEY, Model, Reach, Terms, WAIT, policy};

fn run() -> RunId {
    RunId::new(9, [9; 4])
}

const FAILURE: Status = Status::Exited(1);

/// PRV-5: a message that the state does not expect, or with something else than what belongs to it, ends the process.
#[test]
fn an_unexpected_word_ends_the_process() {
    let model = Model::fixed(OK);
    let open =
        || ToBroker::Open { run: run(), policy: policy(WAIT), limits: ModelLimits::default(), debits: true };
    let ask =
        || ToBroker::Ask { run: run(), policy: policy(WAIT), limits: ModelLimits::default(), debits: true };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let unix = std::os::unix::net::UnixListener::bind_addr(
        &std::os::unix::net::SocketAddr::from_abstract_name(format!("anet-test-{}", std::process::id()))
            .unwrap(),
    )
    .unwrap();
    let unsealed = std::fs::File::open("/dev/null").unwrap();
    type Words<'a> = Vec<(ToBroker, Vec<std::os::fd::BorrowedFd<'a>>)>;
    let rows: Vec<(&str, Words<'_>)> = vec![
        ("a debit of no run", vec![(ToBroker::Debit { run: run(), request: 1, granted: true }, vec![])]),
        ("an end of no run", vec![(ToBroker::Close { run: run() }, vec![])]),
        ("a run twice", vec![(open(), vec![listener.as_fd()]), (open(), vec![listener.as_fd()])]),
        (
            "a debit that nobody asked for",
            vec![
                (open(), vec![listener.as_fd()]),
                (ToBroker::Debit { run: run(), request: 1, granted: true }, vec![]),
            ],
        ),
        (
            "a question of an open run",
            vec![(open(), vec![listener.as_fd()]), (ask(), vec![unsealed.as_fd()])],
        ),
        ("a listener that is none", vec![(open(), vec![stream.as_fd()])]),
        ("a listener that is a file", vec![(open(), vec![unsealed.as_fd()])]),
        ("a listener of another family", vec![(open(), vec![unix.as_fd()])]),
        ("a task that can change", vec![(ask(), vec![unsealed.as_fd()])]),
    ];
    for (name, words) in rows {
        let broker = model.broker();
        for (message, descriptors) in words {
            // It may have ended already.
            let _ = broker.supervisor.send(&message, &descriptors);
        }
        assert_eq!(broker.ended(), FAILURE, "{name}");
        assert!(broker.log().contains("protocol violation"), "{name}: {}", broker.log());
    }
}

/// PRV-6: without its supervisor the broker ends in order; without its proxy it ends too, and says so.
#[test]
fn the_broker_ends_with_its_neighbours() {
    let model = Model::fixed(OK);
    let mut broker = model.broker();
    broker.open(1, &Terms::default());
    let (nobody, _) = ipc_proto::Channel::pair().unwrap();
    drop(std::mem::replace(&mut broker.supervisor, nobody));
    assert_eq!(broker.ended(), Status::Exited(0));

    let broker = Broker::start("https://models.example.com", Some(KEY), Reach::Gone);
    let run = broker.open(1, &Terms::default());
    let mut agent = run.connect();
    agent.post("/v1/chat/completions", "", crate::exchange::CHAT.as_bytes());
    assert_eq!(broker.ended(), FAILURE);
    assert!(broker.log().contains("the proxy is gone"), "{}", broker.log());
}

/// PRV-3, PRV-4, MOD-1: what the kernel says of the process while it works: confined, and the key is neither in its arguments
/// nor in its environment, nor can a neighbour of the same user look.
#[test]
fn the_process_is_confined_and_shows_no_key() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &Terms::default());
    assert_eq!(run.chat(crate::exchange::CHAT).status, 200);
    let of = |file: &str| {
        std::fs::read(format!("/proc/{}/{file}", broker.child.pid.as_raw_nonzero()))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let status = of("status").unwrap();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(|value| value[1..].trim().to_owned())
            .unwrap()
    };
    assert_eq!(
        (field("Seccomp"), field("NoNewPrivs"), field("Threads")),
        ("2".into(), "1".into(), "1".into())
    );
    assert_eq!(field("CapEff"), "0000000000000000");
    assert_eq!(of("cmdline").unwrap(), "anet-broker\0");
    // Root may look; anybody else may not.
    assert!(of("environ").map_or(true, |environment| environment.is_empty()));
    let (reports, totals) = run.close();
    assert!(!format!("{reports:?}{totals:?}{}", broker.log()).contains(KEY));
}
