//! What `anet` asks about tasks, and what it is answered.

use ipc_proto::control::{FromNode, MAX_ID, MAX_ROWS, ToNode};
use ipc_proto::launcher::WorkDirectory;
use ipc_proto::{Aid, InteractionId, bulk};
use sha2::{Digest, Sha256};

use super::clients::Waits;
use super::sandbox::Verdict;
use super::store::{chance, unix_ms};
use super::*;
use crate::chain::hex;
use crate::config::Backend;
use crate::explain;

impl Node {
    pub(in crate::node) fn hear_about_tasks(
        &mut self,
        client: ClientId,
        message: ToNode,
        descriptors: &[OwnedFd],
    ) -> Result<(), Fatal> {
        match message {
            ToNode::Submit { peer, interaction } => self.submit(client, &peer, interaction, descriptors),
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
            ToNode::Test => self.test(client, descriptors),
            // Answered where all clients are.
            ToNode::Hello { .. } | ToNode::Status | ToNode::Check => Ok(()),
        }
    }

    /// The sandbox was tried: the tests that waited for it begin, or hear why not.
    pub(in crate::node) fn begin_tests(&mut self) -> Result<(), Fatal> {
        self.clients.waiting_for(&Waits::Trial);
        for (client, task) in std::mem::take(&mut self.desk.tests) {
            match self.sandbox.verdict(&self.job) {
                Verdict::Good => self.begin_test(client, &task)?,
                Verdict::Bad(trouble) => self.clients.refuse(client, &trouble),
                Verdict::Unknown => self.clients.refuse(client, &busy()),
            }
        }
        Ok(())
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
            None => InteractionId::new(now, chance()?),
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
        let tested = !self.desk.tests.is_empty() || self.desk.turns.values().any(|turn| turn.task.is_none());
        if tested || self.anew || self.stopping || !self.told.ready {
            self.clients.refuse(client, &busy());
            return Ok(());
        }
        match self.sandbox.verdict(&self.job) {
            Verdict::Unknown if self.job.policy.backend == Backend::Exec => {
                self.clients.waits(client, Waits::Trial);
                self.desk.tests.push((client, task));
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

    /// A task in memory, as a client passes it.
    fn passed_task(descriptors: &[OwnedFd]) -> Result<Vec<u8>, Trouble> {
        let memory = descriptors.first().ok_or_else(|| Trouble::new(Code::BadTask, "there is no task"))?;
        let task: Vec<u8> = bulk::open(memory.as_fd())
            .map_err(|error| Trouble::new(Code::BadTask, format!("{error}; use `anet submit`")))?;
        if task.is_empty() || task.len() > ipc_proto::control::MAX_TASK || task.trim_ascii().is_empty() {
            return Err(Trouble::new(Code::BadTask, explain::sentence(Code::BadTask)));
        }
        Ok(task)
    }
}

fn busy() -> Trouble {
    Trouble::new(
        Code::SandboxUnavailable,
        "the node is starting anew, or tests already; try again in a second",
    )
}
