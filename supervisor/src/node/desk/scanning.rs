//! What becomes of each waiting task, and of what was kept for too long.

use ipc_proto::Aid;
use ipc_proto::control::{Refusal, State};

use super::sandbox::Verdict;
use super::starting::Start;
use super::state::Counted;
use super::store::{chance, unix_ms};
use super::*;
use crate::admission::{Decision, Situation};
use crate::inbox::{Ending, InboxError, Queued, Way};

impl Node {
    pub(in crate::node) fn scan(&mut self) -> Result<(), Fatal> {
        let Ok(store) = &self.store else { return Ok(()) };
        let trouble = |error: crate::inbox::InboxError| Fatal::Unavailable(error.trouble());
        let waiting = store.inbox.waiting().map_err(trouble)?;
        if waiting.is_empty() {
            return Ok(());
        }
        let day = self.zone.day(SystemTime::now());
        let verdict = self.sandbox.verdict(&self.job);
        let active: Vec<(Aid, bool)> = (self.desk.turns.values())
            .filter_map(|turn| turn.task.as_ref())
            .filter_map(|task| Some((task.peer.parse().ok()?, task.trusted)))
            .collect();
        let decisions = {
            let evidence = store.evidence.borrow();
            let situation = Situation {
                day,
                counts: &evidence.state().counts,
                sandbox: match &verdict {
                    Verdict::Good => admission::Sandbox::Available,
                    Verdict::Bad(_) => admission::Sandbox::Unavailable,
                    Verdict::Unknown => admission::Sandbox::Unknown,
                },
                active: &active,
                direct: self.job.outside.direct,
                model: self.job.turn.as_ref().is_ok_and(|turn| turn.model.is_some()),
            };
            admission::next(&self.job.policy, &situation, &waiting)
        };
        let mut wants_trial = false;
        let mut refused = Vec::new();
        for (queued, decision) in decisions {
            match decision {
                Decision::Wait(admission::Why::SandboxUnknown) => wants_trial = true,
                Decision::Wait(_) => {}
                Decision::Refuse { trusted, refusal } => refused.push((queued, trusted, refusal)),
                Decision::Start { trusted, way, counted } => {
                    let counted = counted.then(|| Counted { day: day.date, peer: queued.peer.to_string() });
                    self.begin(&queued.interaction, queued.peer, trusted, way, counted)?;
                }
            }
        }
        self.refuse(refused)?;
        if wants_trial { self.try_sandbox() } else { Ok(()) }
    }

    /// Tasks without a run: all of a scan's are recorded and kept together, and then told.
    fn refuse(&mut self, refused: Vec<(Queued, bool, Refusal)>) -> Result<(), Fatal> {
        if refused.is_empty() {
            return Ok(());
        }
        for (queued, trusted, refusal) in &refused {
            let body = json!({
                "interaction": queued.interaction, "peer": queued.peer, "trusted": trusted,
                "code": refusal.code, "kind": refusal.kind,
            });
            self.append("task.refused", &body)?;
        }
        self.sync()?;
        if let Ok(store) = &mut self.store {
            let all =
                refused.iter().map(|(queued, trusted, refusal)| (&queued.interaction, *trusted, refusal));
            let kept = store.inbox.refuse_all(unix_ms(SystemTime::now()), all);
            kept.map_err(|error| Fatal::Unavailable(error.trouble()))?;
        }
        for (queued, _, refusal) in &refused {
            if refusal.code == Code::Budget.as_str() {
                let body = json!({ "peer": queued.peer, "until": refusal.until });
                self.notify_once("runs_used_up", queued.peer.as_str(), body)?;
            }
            let line = format!("{} of {}: refused, {}", queued.interaction, queued.peer, refusal.code);
            self.say(&line);
            self.tell_waiting(&queued.interaction);
        }
        // There may be more of them than one scan refuses.
        self.scan_at = Instant::now();
        Ok(())
    }

    fn begin(
        &mut self,
        interaction: &ipc_proto::InteractionId,
        peer: Aid,
        trusted: bool,
        way: Way,
        counted: Option<Counted>,
    ) -> Result<(), Fatal> {
        let trouble = |error: crate::inbox::InboxError| Fatal::Unavailable(error.trouble());
        let Ok(store) = &self.store else { return Ok(()) };
        let task = store.inbox.task(interaction).map_err(trouble)?;
        let started = unix_ms(SystemTime::now());
        let run = RunId::new(started, chance()?);
        let Ok(store) = &mut self.store else { return Ok(()) };
        // Before anything of the run happens: whatever ends the node from here on, the task is not run a second time.
        match store.inbox.begin(interaction, run, way, trusted, started) {
            Ok(()) => {}
            Err(error @ InboxError::NoSpace) => {
                let line = format!("{interaction} waits: {error}");
                self.say(&line);
                return Ok(());
            }
            Err(error) => return Err(trouble(error)),
        }
        let start =
            Start { run, started, interaction: interaction.clone(), peer, trusted, way, counted, task };
        let Err(why) = self.start(start)? else { return Ok(()) };
        // The task cannot be given to this agent: nothing was admitted, and the peer may send another.
        let refusal = admission::agent_failed("task", "this agent cannot take the task as it is");
        let line = format!("{interaction}: {why}");
        self.say(&line);
        let body = json!({ "interaction": interaction, "code": refusal.code, "kind": refusal.kind });
        self.append("task.refused", &body)?;
        self.sync()?;
        if let Ok(store) = &mut self.store {
            let ending = Ending { state: State::Refused, answer: None, refusal: Some(&refusal) };
            store.inbox.finish(interaction, unix_ms(SystemTime::now()), &ending, None).map_err(trouble)?;
        }
        self.tell_waiting(interaction);
        Ok(())
    }

    /// Texts and answers go a few at a time, so that nobody waits for it.
    pub(in crate::node) fn prune(&mut self, older_than: u64) -> Result<(), Fatal> {
        let Ok(store) = &mut self.store else { return Ok(()) };
        let now = unix_ms(SystemTime::now());
        let pruned =
            store.inbox.prune(now, older_than).map_err(|error| Fatal::Unavailable(error.trouble()))?;
        if pruned.more {
            self.prune_at = Instant::now() + SCAN;
        }
        Ok(())
    }

    /// A task's conclusion without a run.
    pub(super) fn tell_waiting(&mut self, interaction: &ipc_proto::InteractionId) {
        let outcome = match &self.store {
            Ok(store) => store.inbox.outcome(interaction),
            Err(_) => return,
        };
        let Ok(crate::inbox::Known::Final(outcome)) = outcome else { return };
        let waits = super::clients::Waits::Interaction(interaction.clone());
        for client in self.clients.waiting_for(&waits) {
            self.clients.document(client, &ipc_proto::control::FromNode::Outcome, &outcome);
        }
    }
}
