//! The node's supervisor: tasks in, answers out, for as long as the daemon runs.
//!
//! One loop waits for whoever has something to say and for the clocks. What comes is heard by one handler a channel, and
//! goes to the turn that it belongs to; what a turn needs of the rest is done here. A task is on disk before its sender
//! hears so; an admission and an end are on disk before anything follows from them.

mod clients;
#[cfg_attr(not(feature = "auto-reply"), path = "desk/left_out.rs")]
mod desk;
mod hearing;
pub mod job;
mod requests;
mod sandbox;
mod saying;
mod scanning;
mod state;
mod status;
mod store;
mod waiting;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use confine::sys::signal::{Signal, Signals};
use ipc_proto::broker::PublicKey;
use ipc_proto::control::Process;
use ipc_proto::job::Word;
use ipc_proto::outside::{FromOutside, ToOutside};
use ipc_proto::{Channel, Code, RunId};
use serde_json::{Value, json};

use self::clients::Clients;
use self::desk::Desk;
use self::sandbox::Sandbox;
use self::store::Store;
use crate::admission::Zone;
use crate::error::{STATUS_FAILED, Trouble, one_line};
use crate::run::{Fatal, Lines};

pub use job::NodeJob;
pub use state::NodeState;

/// The signals that a node's supervisor hears: end, start anew.
pub const HEARD: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT];

/// How often waiting tasks are looked at, whatever happens (RUN-5).
const SCAN: Duration = Duration::from_secs(2);
/// How often what is too old is removed.
const SWEEP: Duration = Duration::from_secs(3600);
/// How long a checkpoint's signature is waited for at the end.
const LAST_SIGNATURE: Duration = Duration::from_secs(1);
/// How long the guard may take to end us when it was told to start anew.
const REPLACED: Duration = Duration::from_secs(10);
/// How soon a store that could not be opened is tried again.
const STORE_AGAIN: Duration = Duration::from_secs(10);

/// The ends that the node's supervisor was started with.
#[derive(Debug)]
pub struct Ends {
    /// To launcher, proxy and broker.
    pub lines: Lines,
    /// To the process that starts programs outside of the sandbox, where there is one.
    pub outside: Option<Channel<ToOutside, FromOutside>>,
    /// The control socket, listening.
    pub control: OwnedFd,
    /// Where the guard hears its words.
    pub guard: File,
    /// Where the guard says who was started.
    pub processes: File,
    /// Where the probe's result is kept.
    pub probe_cache: File,
    /// Where the public half of the signing key is written.
    pub public_key: File,
    /// Where words for the operator go.
    pub log: File,
    /// /dev/null.
    pub null: OwnedFd,
}

/// What has been said by whom.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    launcher_hello: bool,
    proxy_hello: bool,
    broker_hello: bool,
    ready: bool,
}

/// The node.
#[derive(Debug)]
pub struct Node {
    job: NodeJob,
    lines: Rc<Lines>,
    guard: File,
    processes_from: Option<File>,
    probe_cache: File,
    public_key: File,
    log: File,
    /// Lines that nobody made room for.
    unsaid: u64,
    null: OwnedFd,
    signals: Signals,
    clients: Clients,
    /// Inbox and evidence; or why they cannot be used.
    store: Result<Store, Trouble>,
    zone: Zone,
    sandbox: Sandbox,
    desk: Desk,
    told: Told,
    walls: Value,
    apart: bool,
    landlock: u8,
    signing: Option<PublicKey>,
    /// A checkpoint is on its way to the broker and back.
    signs: Option<u64>,
    processes: Vec<Process>,
    began: Instant,
    scan_at: Instant,
    sweep_at: Instant,
    prune_at: Instant,
    store_again: Option<Instant>,
    stopping: bool,
    /// What the node was started from is not what is there now.
    anew: bool,
}

impl Node {
    /// A node that has not begun. Opens inbox and evidence; one that cannot is told to whoever asks.
    #[must_use]
    pub fn new(job: NodeJob, ends: Ends, signals: Signals) -> Node {
        let Ends { lines, outside, control, guard, processes, probe_cache, public_key, log, null } = ends;
        let now = SystemTime::now();
        let began = Instant::now();
        let store = Store::open(&job, now);
        let store_again = store.is_err().then(|| began + STORE_AGAIN);
        let clients = Clients::new(control, job.operator, job.group);
        let zone = Zone::load(job.zone.as_deref());
        let sandbox = Sandbox::new(&job, now);
        Node {
            job,
            lines: Rc::new(lines),
            guard,
            processes_from: Some(processes),
            probe_cache,
            public_key,
            log,
            unsaid: 0,
            null,
            signals,
            clients,
            store,
            zone,
            sandbox,
            desk: Desk::new(outside),
            told: Told::default(),
            walls: Value::Null,
            apart: true,
            landlock: 0,
            signing: None,
            signs: None,
            processes: Vec::new(),
            began,
            scan_at: began,
            sweep_at: began,
            prune_at: began,
            store_again,
            stopping: false,
            anew: false,
        }
    }

    /// Serves until it is told to stop, or cannot go on. The exit status of the process.
    pub fn run(mut self) -> u8 {
        match self.serve() {
            Ok(()) => 0,
            Err(fatal) => {
                let code = fatal.code();
                self.say(&format!("{code}: {}", one_line(&fatal.to_string())));
                STATUS_FAILED
            }
        }
    }

    fn serve(&mut self) -> Result<(), Fatal> {
        // There is no order to wait for: the rest is started beside us.
        self.word(Word::Launched)?;
        if let Err(trouble) = &self.store {
            let line = trouble.to_string();
            self.say(&line);
        }
        if let Some(warning) = self.zone.warning().map(ToOwned::to_owned) {
            self.say(&warning);
        }
        loop {
            self.wait()?;
            self.conclude()?;
            if self.leaves() {
                return self.leave();
            }
            self.scan_if_due()?;
            self.sign_if_wanted()?;
        }
    }

    /// Nothing is under way any more, and nothing more shall be.
    fn leaves(&self) -> bool {
        (self.stopping || self.anew) && self.desk.is_idle() && !self.sandbox.is_tried()
    }

    /// Ends all turns, and takes no more.
    fn stop(&mut self) -> Result<(), Fatal> {
        if self.stopping {
            return Ok(());
        }
        self.stopping = true;
        self.desk.stop()
    }

    /// The last of a life: recorded, signed, and the guard told if another one is to follow.
    fn leave(&mut self) -> Result<(), Fatal> {
        let why = if self.stopping { "stop" } else { "anew" };
        self.append("node.stopped", &json!({ "why": why }))?;
        if let Ok(store) = &self.store {
            store.evidence.borrow_mut().ask_checkpoint();
        }
        let until = Instant::now() + LAST_SIGNATURE;
        self.sign_if_wanted()?;
        while self.signs.is_some() && Instant::now() < until {
            self.wait_for_broker(until)?;
        }
        self.sync()?;
        if self.stopping {
            return Ok(());
        }
        self.word(Word::Anew)?;
        // The guard ends us; whoever is killed here loses nothing.
        std::thread::sleep(REPLACED);
        Ok(())
    }
}
