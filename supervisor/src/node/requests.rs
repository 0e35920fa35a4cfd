//! What `anet` asks, and what it is answered.

use ipc_proto::control::{FromNode, ToNode};

use super::clients::{ClientId, Waits};
use super::sandbox::Verdict;
use super::store::{chance, unix_ms};
use super::*;

impl Node {
    pub(super) fn hear_client(&mut self, client: ClientId) -> Result<(), Fatal> {
        let Some((message, descriptors)) = self.clients.hear(client) else { return Ok(()) };
        match message {
            ToNode::Status => {
                let status = self.status();
                self.clients.document(client, &FromNode::Document, &status);
                Ok(())
            }
            ToNode::Check => self.check(client),
            ToNode::Submit { .. }
            | ToNode::Wait { .. }
            | ToNode::Inbox { .. }
            | ToNode::Show { .. }
            | ToNode::Test => self.hear_about_tasks(client, message, &descriptors),
            // Answered where clients are greeted.
            ToNode::Hello { .. } => Ok(()),
        }
    }

    /// PRB-1: tries the sandbox now, whatever is remembered.
    fn check(&mut self, client: ClientId) -> Result<(), Fatal> {
        self.look_for_changes();
        if self.job.turn.is_err() || !self.told.ready || self.stopping || self.anew {
            let sandbox = self.sandbox_state();
            self.clients.document(client, &FromNode::Document, &sandbox);
            return Ok(());
        }
        self.clients.waits(client, Waits::Check);
        self.try_sandbox()
    }

    pub(super) fn try_sandbox(&mut self) -> Result<(), Fatal> {
        if self.sandbox.is_tried() || !self.told.ready {
            return Ok(());
        }
        let run = RunId::new(unix_ms(SystemTime::now()), chance()?);
        self.sandbox.try_it(&self.job, run, &self.lines, &self.null)
    }

    /// The trial is over: whoever waits for it is told, and tasks can be looked at again.
    pub(super) fn sandbox_was_tried(&mut self) -> Result<(), Fatal> {
        self.remember_trial();
        let sandbox = self.sandbox_state();
        for client in self.clients.waiting_for(&Waits::Check) {
            self.clients.document(client, &FromNode::Document, &sandbox);
        }
        if let Verdict::Bad(trouble) = self.sandbox.verdict(&self.job) {
            self.say(&trouble.to_string());
            let body = json!({ "code": trouble.code.as_str(), "sentence": trouble.sentence });
            self.notify_once("sandbox_unavailable", trouble.code.as_str(), body)?;
        }
        self.scan_at = Instant::now();
        self.begin_tests()
    }
}
