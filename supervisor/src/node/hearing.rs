//! What the others say, before it goes to the turn that it belongs to. Whatever belongs to none ends the node.

use std::io::{Read, Write};

use ipc_proto::broker::FromBroker;
use ipc_proto::launcher::FromLauncher;
use ipc_proto::proxy::FromProxy;
use ipc_proto::{ChannelError, Message, Received};

use super::sandbox::Verdict;
use super::*;
use crate::evidence;
use crate::run::check_broker;

/// The longest list of processes, in bytes.
const MAX_PROCESSES: usize = 4096;
/// The longest file of a public key, in bytes.
const MAX_KEY: u64 = 256;

pub(super) fn unexpected<M: Message>(message: &M) -> Fatal {
    ChannelError::unexpected(message, "no run of the node waits for it").into()
}

impl Node {
    pub(super) fn hear_launcher(&mut self) -> Result<(), Fatal> {
        let (message, descriptors) = match self.lines.launcher.try_receive()? {
            Received::Message(message, descriptors) => (message, descriptors),
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-launcher")),
        };
        let run = match &message {
            FromLauncher::Hello { own_pid_namespace, own_network, landlock, .. }
                if !self.told.launcher_hello =>
            {
                self.told.launcher_hello = true;
                self.apart = *own_pid_namespace && *own_network;
                self.landlock = *landlock;
                self.walls = json!({
                    "own_pid_namespace": own_pid_namespace, "own_network": own_network, "landlock": landlock,
                });
                return self.ready_if_all_are();
            }
            FromLauncher::Swept { removed, left } => {
                if *left > 0 {
                    let line = format!("{left} old work directories could not be removed ({removed} were)");
                    self.say(&line);
                }
                return Ok(());
            }
            FromLauncher::Hello { .. } => return Err(unexpected(&message)),
            FromLauncher::Ready { run, .. }
            | FromLauncher::Failed { run, .. }
            | FromLauncher::Probed { run, .. }
            | FromLauncher::Stopped { run, .. }
            | FromLauncher::Over { run, .. }
            | FromLauncher::Exited { run, .. }
            | FromLauncher::Closed { run, .. } => *run,
        };
        if !self.told.launcher_hello {
            return Err(unexpected(&message));
        }
        if self.sandbox.is_its(run) {
            if self.sandbox.hear(&message, &self.lines)? {
                self.sandbox_was_tried()?;
            }
            return Ok(());
        }
        match self.desk.run(run) {
            Some(known) => known.hear_launcher(&message, descriptors),
            None => Err(unexpected(&message)),
        }
    }

    pub(super) fn hear_proxy(&mut self) -> Result<(), Fatal> {
        let message = match self.lines.proxy.try_receive()? {
            Received::Message(message, _) => message,
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-proxy")),
        };
        let run = match &message {
            FromProxy::Hello { .. } if !self.told.proxy_hello => {
                self.told.proxy_hello = true;
                return self.ready_if_all_are();
            }
            FromProxy::Hello { .. } => return Err(unexpected(&message)),
            FromProxy::Dialled(report) => {
                // The broker's connections serve all of its runs: each that asks the model may have caused it.
                for run in self.desk.runs() {
                    run.dialled(report);
                }
                let body = json!({
                    "decision": report.decision, "reason": report.reason.as_str(), "addresses": report.addresses,
                });
                return self.append("model.dialled", &body);
            }
            FromProxy::Opened { run }
            | FromProxy::Tunnel { run, .. }
            | FromProxy::WantDestination { run, .. }
            | FromProxy::WantBytes { run }
            | FromProxy::Recalled { run, .. }
            | FromProxy::Closed { run, .. } => *run,
        };
        match self.desk.run(run) {
            Some(known) => known.hear_proxy(&message),
            None => Err(unexpected(&message)),
        }
    }

    pub(super) fn hear_broker(&mut self) -> Result<(), Fatal> {
        let Some(channel) = &self.lines.broker else { return Ok(()) };
        let (message, descriptors) = match channel.try_receive()? {
            Received::Message(message, descriptors) => (message, descriptors),
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-broker")),
        };
        let run = match &message {
            FromBroker::Hello { key, roots, signing, .. } if !self.told.broker_hello => {
                self.told.broker_hello = true;
                self.signing = *signing;
                self.check_key();
                let unusable = match &self.job.turn {
                    Ok(turn) => turn.model.as_ref().and_then(|model| check_broker(model, *key, *roots).err()),
                    Err(_) => None,
                };
                if let Some(trouble) = unusable {
                    self.job.turn = Err(trouble);
                }
                return self.ready_if_all_are();
            }
            FromBroker::Signed { seq, signature } if self.signs == Some(*seq) => {
                self.signs = None;
                let (Ok(store), Some(key)) = (&self.store, &self.signing) else { return Ok(()) };
                let now = SystemTime::now();
                let written = store.evidence.borrow_mut().checkpoint(now, *seq, key, signature);
                return written.map(drop).map_err(|error| Fatal::Unavailable(error.trouble()));
            }
            FromBroker::Hello { .. } | FromBroker::Signed { .. } => return Err(unexpected(&message)),
            FromBroker::Opened { run }
            | FromBroker::Want { run, .. }
            | FromBroker::Request { run, .. }
            | FromBroker::Answered { run, .. }
            | FromBroker::Closed { run, .. } => *run,
        };
        match self.desk.run(run) {
            Some(known) => known.hear_broker(&message, &descriptors),
            None => Err(unexpected(&message)),
        }
    }

    /// The key that signs is the one that signed before, and is written down beside the evidence for whoever verifies it. Another
    /// one means that somebody took the old one away: then nothing is admitted.
    fn check_key(&mut self) {
        let Some(key) = self.signing else { return };
        let mut text = String::new();
        let known = (&self.public_key).take(MAX_KEY).read_to_string(&mut text).is_ok();
        let expected = match &self.store {
            Ok(store) => store.evidence.borrow().expect_key(&key).map_err(|error| error.trouble()),
            Err(_) => return,
        };
        let kept = match (known, text.trim().is_empty(), evidence::parse_key(&text)) {
            (true, true, _) => {
                let line = format!("{}\n", evidence::key_text(&key));
                let written =
                    self.public_key.write_all(line.as_bytes()).and_then(|()| self.public_key.sync_all());
                written.map_err(|error| error.to_string())
            }
            (true, false, Some(known)) if known == key => Ok(()),
            (true, false, _) => Err("it has another key".to_owned()),
            (false, ..) => Err("it cannot be read".to_owned()),
        };
        let kept = kept.map_err(|why| {
            let what = format!(
                "evidence.pub does not say the key that signs ({why}); if evidence-key or evidence.pub was lost, see \
                 `anet evidence verify`, keep what is there elsewhere, and begin new evidence"
            );
            Trouble::new(Code::BadEvidence, what)
        });
        if let Err(trouble) = expected.and(kept) {
            self.say(&trouble.to_string());
            self.store = Err(trouble);
        }
    }

    pub(super) fn hear_signals(&mut self) -> Result<(), Fatal> {
        while let Ok(Some(signal)) = self.signals.next() {
            if signal == Signal::SIGHUP {
                self.anew = true;
            } else {
                self.stop()?;
            }
        }
        Ok(())
    }

    /// The guard says once who was started: in one piece, which a pipe keeps whole.
    pub(super) fn hear_processes(&mut self) {
        let Some(mut pipe) = self.processes_from.take() else { return };
        let mut text = vec![0; MAX_PROCESSES];
        if let Ok(length) = pipe.read(&mut text) {
            self.processes =
                serde_json::from_slice(text.get(..length).unwrap_or_default()).unwrap_or_default();
        }
    }

    /// All have said that they are confined and serve.
    pub(super) fn ready_if_all_are(&mut self) -> Result<(), Fatal> {
        let Told { launcher_hello, proxy_hello, broker_hello, ready } = self.told;
        let broker = broker_hello || self.lines.broker.is_none();
        if ready || !launcher_hello || !proxy_hello || !broker || !self.desk.is_ready() {
            return Ok(());
        }
        self.told.ready = true;
        self.scan_at = Instant::now();
        if self.sandbox.verdict(&self.job) == Verdict::Unknown {
            self.try_sandbox()?;
        }
        if let Some(why) = self.job.last_end.clone() {
            self.notify("node_restarted", json!({ "why": why }))?;
        }
        self.word(Word::Ready)
    }
}
