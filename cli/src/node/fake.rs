//! A node for tests: it speaks the protocol on a socket in a directory of its own, one connection after the other, and ends when
//! the test says so.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use ipc_proto::control::PeerUsed;
use ipc_proto::control::{
    AutoReply, Day, EvidenceState, FromNode, Outcome, Process, Refusal, Row, RunStory, Running, Sandbox,
    State, Status, Story, ToNode, Used, VERSION, Warning,
};
use ipc_proto::{Channel, Received, bulk};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};
use serde::Serialize;

/// The node's end of one connection.
#[derive(Debug)]
pub(crate) struct Caller(Channel<FromNode, ToNode>);

/// What the node does with one connection.
pub(crate) type Script = Box<dyn FnOnce(&Caller) + Send>;

/// A part of its life.
pub(crate) enum Life {
    /// Takes one connection.
    Serves(Script),
    /// Is not there.
    Away(Duration),
}

/// A running one. Dropped, it waits for the end of its life: a script that nobody came for fails the test.
#[derive(Debug)]
pub(crate) struct Fake {
    directory: tempfile::TempDir,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    pub(crate) fn start(lives: Vec<Life>) -> Fake {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let mut listener = matches!(lives.first(), Some(Life::Serves(_))).then(|| listening(&path));
        let thread = std::thread::spawn(move || {
            for life in lives {
                match life {
                    Life::Serves(script) => {
                        let socket = listener.get_or_insert_with(|| listening(&path));
                        let caller = Caller(Channel::from_fd(accept(&*socket).unwrap()).unwrap());
                        script(&caller);
                    }
                    Life::Away(time) => {
                        listener = None;
                        let _ = std::fs::remove_file(&path);
                        std::thread::sleep(time);
                    }
                }
            }
        });
        Fake { directory, thread: Some(thread) }
    }

    /// One connection, and no more.
    pub(crate) fn once(script: impl FnOnce(&Caller) + Send + 'static) -> Fake {
        Fake::start(vec![serves(script)])
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    pub(crate) fn places(&self) -> super::Places {
        super::Places::of(self.socket())
    }

    /// Waits for the end of its life.
    pub(crate) fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(crate) fn serves(script: impl FnOnce(&Caller) + Send + 'static) -> Life {
    Life::Serves(Box::new(script))
}

fn listening(path: &Path) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let _ = std::fs::remove_file(path);
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 8).unwrap();
    socket
}

impl Caller {
    /// The next word; none: the caller went.
    pub(crate) fn hear(&self) -> Option<(ToNode, Vec<OwnedFd>)> {
        match self.0.receive().unwrap() {
            Received::Message(message, descriptors) => Some((message, descriptors)),
            Received::Empty | Received::Closed => None,
        }
    }

    /// Hears Hello and says it.
    pub(crate) fn greet(&self) {
        assert!(matches!(self.hear().unwrap().0, ToNode::Hello { version: VERSION }));
        self.say(&FromNode::Hello { version: VERSION, program: "0.0.0".to_owned() });
    }

    pub(crate) fn say(&self, message: &FromNode) {
        self.0.send(message, &[]).unwrap();
    }

    pub(crate) fn give<T: Serialize>(&self, message: &FromNode, value: &T) {
        let memory = bulk::seal(value).unwrap();
        self.0.send(message, &[memory.as_fd()]).unwrap();
    }

    /// Takes a task; gives its peer, its name and its text.
    pub(crate) fn take_task(&self) -> (String, String, Vec<u8>) {
        let (message, descriptors) = self.hear().unwrap();
        let ToNode::Submit { peer, interaction } = message else { panic!("{message:?}") };
        let text: Vec<u8> = bulk::open(descriptors.first().unwrap().as_fd()).unwrap();
        let interaction = interaction.unwrap();
        self.say(&FromNode::Submitted { interaction: interaction.clone(), known: false });
        (peer.to_string(), interaction.to_string(), text)
    }

    /// Is asked to wait; gives for what.
    pub(crate) fn is_waited_for(&self) -> String {
        let (message, _) = self.hear().unwrap();
        let ToNode::Wait { interaction } = message else { panic!("{message:?}") };
        interaction.to_string()
    }
}

/// An answer.
pub(crate) fn answered(interaction: &str, answer: &str) -> Outcome {
    Outcome {
        interaction: interaction.to_owned(),
        state: State::Answered,
        answer: Some(answer.to_owned()),
        refusal: None,
    }
}

/// A budget that is used up.
pub(crate) fn refusal() -> Refusal {
    Refusal {
        code: "budget".to_owned(),
        kind: Some("runs".to_owned()),
        until: Some("2026-03-29T00:00:00+01:00".to_owned()),
        sentence: "no more runs today".to_owned(),
    }
}

/// A row of the inbox.
pub(crate) fn row(number: u64, peer: &str, state: State) -> Row {
    Row {
        number,
        id: format!("i{number:016}"),
        peer: peer.to_owned(),
        trusted: Some(false),
        state,
        code: (state == State::Refused).then(|| "budget".to_owned()),
        submitted: "2026-03-28T10:00:00.000Z".to_owned(),
        ended: state.is_final().then(|| "2026-03-28T10:00:30.000Z".to_owned()),
    }
}

/// An interaction with one run.
pub(crate) fn story() -> Story {
    let record = r#"{"run":"r1","agent":"sh","started":"2026-03-28T10:00:00.000Z","ended":"2026-03-28T10:00:12.000Z",
        "exit":{"status":0},"limits":{"memory":{"limit":2147483648,"used":1048576},"tasks":{"limit":256,"used":0}},
        "budget":{"bytes_out":{"limit":33554432,"used":2048},"window":{"limit":180000,"used":12300}},
        "model":{"requests":2,"refused":1},
        "egress":[{"host":"pkg.example.com","port":443,"class":"third_party","decision":"allow","reason":"listed",
        "addresses":[],"bytes_out":1024,"bytes_in":4096}],"violations":[{"time":"t","kind":"egress","process":"curl",
        "detail":"evil.example.com:443 not_listed"}],"warnings":["no_cgroup_limits"],"egress_omitted":3}"#;
    Story {
        interaction: row(1, "p1", State::Answered),
        task_bytes: 2048,
        task: "do this".to_owned(),
        answer: Some("done\n".to_owned()),
        refusal: None,
        runs: vec![RunStory {
            run: "r1".to_owned(),
            way: "sandbox".to_owned(),
            started: "2026-03-28T10:00:00.000Z".to_owned(),
            record: Some(record.to_owned()),
        }],
    }
}

/// A node with something of everything.
pub(crate) fn status() -> Status {
    Status {
        version: "0.1.0".to_owned(),
        mode: "user".to_owned(),
        uptime_seconds: 11_520,
        restarts: 1,
        last_end: Some("the proxy was killed by signal 9".to_owned()),
        sandbox: Sandbox {
            available: true,
            code: None,
            sentence: None,
            limits: "partial".to_owned(),
            landlock_abi: 7,
            checked: Some("2026-03-28T10:00:00.000Z".to_owned()),
        },
        processes: [("guard", 100), ("supervisor", 101), ("launcher", 102), ("proxy", 103)]
            .map(|(name, pid)| Process { name: name.to_owned(), pid, uid: 1000 })
            .into(),
        runs: vec![Running {
            run: "r01k9w3c5d8e2f4g6".to_owned(),
            interaction: "i01k9w3c5d8e2f4g6".to_owned(),
            peer: "alice@example".to_owned(),
            state: "running".to_owned(),
            started: "2026-03-28T09:59:00.000Z".to_owned(),
        }],
        queued: 3,
        day: Day {
            date: "2026-03-28".to_owned(),
            ends: "2026-03-29T00:00:00+01:00".to_owned(),
            runs: Used { used: 7, limit: 20 },
            peers: vec![PeerUsed { aid: "alice@example".to_owned(), used: 5, limit: 5 }],
        },
        egress_allow: vec!["pkg.example.com".to_owned(), "crates.example.org".to_owned()],
        auto_reply: AutoReply {
            backend: "exec".to_owned(),
            agent: "claude".to_owned(),
            trusted: "direct".to_owned(),
            untrusted: "sandbox".to_owned(),
        },
        evidence: EvidenceState { records: 1234, signed: Some(1200) },
        warnings: vec![Warning {
            code: "no_cgroup_limits".to_owned(),
            sentence: "memory and tasks cannot be limited here, since no systemd user manager was found"
                .to_owned(),
        }],
    }
}

/// A bad sandbox.
pub(crate) fn without_bwrap() -> Sandbox {
    Sandbox {
        available: false,
        code: Some("no_bwrap".to_owned()),
        sentence: Some("bubblewrap is not installed".to_owned()),
        ..status().sandbox
    }
}
