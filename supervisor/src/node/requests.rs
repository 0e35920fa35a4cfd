//! What `anet` asks, and what it is answered.

use ipc_proto::control::{FromNode, MAX_ID, MAX_ROWS, ToNode};
use ipc_proto::launcher::WorkDirectory;
use ipc_proto::{Aid, InteractionId};
use sha2::{Digest, Sha256};

use super::clients::{ClientId, Waits};
use super::sandbox::Verdict;
use super::store::unix_ms;
use super::*;
use crate::chain::hex;
use crate::config::Backend;
use crate::explain;

impl Node {
    pub(super) fn hear_client(&mut self, client: ClientId) -> Result<(), Fatal> {
        let Some((message, descriptors)) = self.clients.hear(client) else { return Ok(()) };
        match message {
            ToNode::Submit { peer, interaction } => self.submit(client, &peer, interaction, &descriptors),
            ToNode::Wait { interaction } => {
                self.wait_for(client, interaction);
                Ok(())
            }
            ToNode::Inbox { before, most } => {
                let most = most.min(MAX_ROWS);
                self.answer_from_inbox(client, |inbox| {
                    inbox.rows(before, most).map_err(|error| error.trouble())
                });
                Ok(())
            }
            ToNode::Show { id } => {
                let none =
                    || Trouble::new(Code::NoSuchInteraction, explain::sentence(Code::NoSuchInteraction));
                self.answer_from_inbox(client, |inbox| {
                    if id.len() > MAX_ID {
                        return Err(none());
                    }
                    inbox.story(&id).map_err(|error| error.trouble())?.ok_or_else(none)
                });
                Ok(())
            }
            ToNode::Status => {
                let status = self.status();
                self.clients.document(client, &FromNode::Document, &status);
                Ok(())
            }
            ToNode::Check => self.check(client),
            ToNode::Test => self.test(client, &descriptors),
            // Answered where clients are greeted.
            ToNode::Hello { .. } => Ok(()),
        }
    }

    fn answer_from_inbox<T: serde::Serialize>(
        &mut self,
        client: ClientId,
        ask: impl FnOnce(&crate::inbox::Inbox) -> Result<T, Trouble>,
    ) {
        let answer = match &self.store {
            Ok(store) => ask(&store.inbox),
            Err(trouble) => Err(trouble.clone()),
        };
        match answer {
            Ok(value) => self.clients.document(client, &FromNode::Document, &value),
            Err(trouble) => self.clients.refuse(client, &trouble),
        }
    }

    /// ACC-1: on disk before the sender hears so.
    fn submit(
        &mut self,
        client: ClientId,
        peer: &Aid,
        interaction: Option<InteractionId>,
        descriptors: &[OwnedFd],
    ) -> Result<(), Fatal> {
        let now = unix_ms(SystemTime::now());
        let interaction = match interaction {
            Some(interaction) => interaction,
            None => InteractionId::new(now, super::starting::chance()?),
        };
        let taken = Node::passed_task(descriptors).and_then(|task| match &mut self.store {
            Ok(store) => {
                let sha256: [u8; 32] = Sha256::digest(&task).into();
                let submitted = store.inbox.submit(now, peer, &interaction, &task, &sha256);
                submitted
                    .map(|submitted| (submitted.known, task.len(), sha256))
                    .map_err(|error| error.trouble())
            }
            Err(trouble) => Err(trouble.clone()),
        });
        let (known, bytes, sha256) = match taken {
            Ok(taken) => taken,
            Err(trouble) => {
                self.clients.refuse(client, &trouble);
                return Ok(());
            }
        };
        if !known {
            let body = json!({
                "interaction": interaction, "peer": peer, "task": { "bytes": bytes, "sha256": hex(&sha256) },
            });
            self.append("task.submitted", &body)?;
            self.scan_at = Instant::now();
        }
        self.clients.send(client, &FromNode::Submitted { interaction, known }, None);
        Ok(())
    }

    fn wait_for(&mut self, client: ClientId, interaction: InteractionId) {
        let outcome = match &self.store {
            Ok(store) => store.inbox.outcome(&interaction).map_err(|error| error.trouble()),
            Err(trouble) => Err(trouble.clone()),
        };
        match outcome {
            Ok(crate::inbox::Known::Final(outcome)) => {
                self.clients.document(client, &FromNode::Outcome, &outcome);
            }
            Ok(crate::inbox::Known::Open) => self.clients.waits(client, Waits::Interaction(interaction)),
            Ok(crate::inbox::Known::No) => self.clients.refuse(
                client,
                &Trouble::new(Code::NoSuchInteraction, explain::sentence(Code::NoSuchInteraction)),
            ),
            Err(trouble) => self.clients.refuse(client, &trouble),
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
        let run = RunId::new(unix_ms(SystemTime::now()), super::starting::chance()?);
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
        self.clients.waiting_for(&Waits::Trial);
        for (client, task) in std::mem::take(&mut self.tests) {
            match self.sandbox.verdict(&self.job) {
                Verdict::Good => self.begin_test(client, &task)?,
                Verdict::Bad(trouble) => self.clients.refuse(client, &trouble),
                Verdict::Unknown => self.clients.refuse(client, &busy()),
            }
        }
        Ok(())
    }

    /// One sandboxed turn from end to end, uncounted, that says what it does.
    fn test(&mut self, client: ClientId, descriptors: &[OwnedFd]) -> Result<(), Fatal> {
        let task = match Node::passed_task(descriptors) {
            Ok(task) => task,
            Err(trouble) => {
                self.clients.refuse(client, &trouble);
                return Ok(());
            }
        };
        self.look_for_changes();
        let tested = !self.tests.is_empty() || self.turns.values().any(|turn| turn.task.is_none());
        if tested || self.anew || self.stopping || !self.told.ready {
            self.clients.refuse(client, &busy());
            return Ok(());
        }
        match self.sandbox.verdict(&self.job) {
            Verdict::Unknown if self.job.policy.backend == Backend::Exec => {
                self.clients.waits(client, Waits::Trial);
                self.tests.push((client, task));
                self.try_sandbox()
            }
            Verdict::Bad(trouble) => {
                self.clients.refuse(client, &trouble);
                Ok(())
            }
            Verdict::Good | Verdict::Unknown => self.begin_test(client, &task),
        }
    }

    fn begin_test(&mut self, client: ClientId, task: &[u8]) -> Result<(), Fatal> {
        match self.start_test(task, WorkDirectory::Fresh)? {
            Ok(run) => {
                self.clients.waits(client, Waits::Test(run));
                for step in self.test_steps(run) {
                    self.step(run, step);
                }
            }
            Err(trouble) => self.clients.refuse(client, &trouble),
        }
        Ok(())
    }

    /// Says a step of a test to whoever asked for it.
    pub(super) fn step(&mut self, run: RunId, text: String) {
        let step = FromNode::Step { text };
        for client in self.clients.who_waits_for(&Waits::Test(run)) {
            self.clients.send(client, &step, None);
        }
    }
}

fn busy() -> Trouble {
    Trouble::new(
        Code::SandboxUnavailable,
        "the node is starting anew, or tests already; try again in a second",
    )
}
