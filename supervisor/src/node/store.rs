//! What a node keeps: the inbox and the evidence, opened together and brought into agreement.

use std::cell::RefCell;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ipc_proto::{Code, RunId};
use serde_json::{Value, json};

use super::desk::{self, Inbox};
use super::job::NodeJob;
use super::state::NodeState;
use crate::error::Trouble;
use crate::evidence::Evidence;
use crate::run::{Fatal, Journal};

/// Both.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) evidence: Rc<RefCell<Evidence<NodeState>>>,
    pub(super) inbox: Inbox,
    /// The database and the directory of the evidence, as they were opened.
    places: Vec<(PathBuf, Option<(u64, u64)>)>,
}

/// Which file it is, whatever it holds.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Milliseconds since 1970.
pub(super) fn unix_ms(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Four bytes that nobody foresees.
pub(super) fn chance() -> Result<[u8; 4], Fatal> {
    let mut bytes = [0u8; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => Ok(bytes),
        Ok(_) => Err(Fatal::Late("the kernel gives no random numbers")),
        Err(errno) => Err(Fatal::System { what: "random numbers", errno }),
    }
}

impl Store {
    /// Opens both, and ends in each what the node's own end interrupted.
    ///
    /// # Errors
    /// [`Code::BadDatabase`], [`Code::BadEvidence`] or [`Code::StateUnusable`]; nothing is changed by a store that is refused.
    pub(super) fn open(job: &NodeJob, now: SystemTime) -> Result<Store, Trouble> {
        let inbox = desk::open(job)?;
        let (evidence, opened) = Evidence::open(&job.evidence, now).map_err(|error| error.trouble())?;
        let places = desk::database(job).into_iter().chain([job.evidence.clone()]);
        let places = places.map(|path| {
            let known = identity(&path);
            (path, known)
        });
        let mut store = Store { evidence: Rc::new(RefCell::new(evidence)), inbox, places: places.collect() };
        store.begin(job, now, opened.torn.is_some())?;
        Ok(store)
    }

    fn begin(&mut self, job: &NodeJob, now: SystemTime, torn: bool) -> Result<(), Trouble> {
        let policy = &job.policy;
        let body = json!({
            "version": env!("CARGO_PKG_VERSION"), "mode": job.mode.as_str(), "restarts": job.restarts,
            "last_end": job.last_end, "torn": torn, "config_sha256": job.config_sha256,
        });
        let mut evidence = self.evidence.borrow_mut();
        let append = |evidence: &mut Evidence<NodeState>, kind: &str, body: &Value| {
            evidence.append(now, kind, body).map(drop).map_err(|error| error.trouble())
        };
        append(&mut evidence, "node.started", &body)?;
        if evidence.state().config.as_deref() != Some(&job.config_sha256) {
            let body = json!({
                "sha256": job.config_sha256, "trust": policy.trust, "trusted": policy.trusted,
                "untrusted": policy.untrusted, "backend": policy.backend, "agent": policy.agent,
                "runs_per_day": policy.runs_per_day, "runs_per_peer_per_day": policy.runs_per_peer_per_day,
                "egress_allow": policy.hosts,
            });
            append(&mut evidence, "config.changed", &body)?;
        }
        // Runs without an end, and ends whose answer was not kept.
        let mut interrupted: Vec<String> = evidence.state().open.keys().cloned().collect();
        let running = desk::interrupted(&mut self.inbox, unix_ms(now))?;
        interrupted.extend(running.iter().map(RunId::to_string));
        interrupted.sort();
        interrupted.dedup();
        for run in interrupted {
            append(&mut evidence, "run.interrupted", &json!({ "run": run, "why": "the node ended" }))?;
        }
        evidence.sync().map_err(|error| error.trouble())
    }

    /// Somebody took a file away that is written to: the kernel goes on taking what nobody will find again.
    pub(super) fn is_gone(&self) -> Option<Trouble> {
        let (path, _) = self.places.iter().find(|(path, known)| identity(path) != *known)?;
        let what = format!(
            "{} was removed or replaced while the node had it open; put it back, or see what is missing and start the node anew",
            path.display()
        );
        Some(Trouble::new(Code::StateUnusable, what))
    }

    /// A run's own door to the evidence.
    pub(super) fn journal(&self, run: RunId) -> Box<dyn Journal> {
        Box::new(RunJournal { evidence: Rc::clone(&self.evidence), run: run.to_string() })
    }
}

/// Adds the run to each of its lines.
#[derive(Debug)]
struct RunJournal {
    evidence: Rc<RefCell<Evidence<NodeState>>>,
    run: String,
}

impl Journal for RunJournal {
    fn append(&mut self, kind: &str, body: &Value) -> io::Result<()> {
        let mut body = body.clone();
        if let Some(body) = body.as_object_mut() {
            body.insert("run".to_owned(), Value::String(self.run.clone()));
        }
        let now = SystemTime::now();
        self.evidence.borrow_mut().append(now, kind, &body).map(drop).map_err(io::Error::other)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.evidence.borrow_mut().sync().map_err(io::Error::other)
    }

    fn close(&mut self) -> io::Result<()> {
        self.sync()
    }

    // The node commits for all of its runs.
    fn due(&self) -> Option<Instant> {
        None
    }
}
