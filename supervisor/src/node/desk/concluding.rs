//! What becomes of a turn that is over: its record, its last line in the evidence, its answer kept, its sender told.

use ipc_proto::control::{FromNode, Outcome, State};

use super::clients::Waits;
use super::store::unix_ms;
use super::turns::{Conclusion, log_line};
use super::*;
use crate::inbox::Ending;
use crate::run::one::Event;

impl Node {
    /// Every turn that is over.
    pub(in crate::node) fn conclude(&mut self) -> Result<(), Fatal> {
        self.take_events();
        self.end_abandoned_tests()?;
        let over: Vec<RunId> =
            self.desk.turns.iter().filter(|(_, turn)| turn.is_over()).map(|(run, _)| *run).collect();
        for run in over {
            if let Some(turn) = self.desk.turns.remove(&run) {
                self.conclude_turn(run, turn)?;
            }
            // A place is free.
            self.scan_at = Instant::now();
        }
        Ok(())
    }

    /// A test is for whoever asked for it: when the client is gone, it ends.
    fn end_abandoned_tests(&mut self) -> Result<(), Fatal> {
        let clients = &self.clients;
        self.desk.tests.retain(|(client, _)| clients.is_there(*client));
        for (run, turn) in &mut self.desk.turns {
            if turn.task.is_none()
                && !turn.interrupted
                && clients.who_waits_for(&Waits::Test(*run)).is_empty()
            {
                turn.interrupted = true;
                turn.end(Ended::Failed(Code::SandboxUnavailable))?;
            }
        }
        Ok(())
    }

    /// What the runs want of the node: only a test's steps.
    fn take_events(&mut self) {
        let mut steps = Vec::new();
        for (id, turn) in &mut self.desk.turns {
            let Work::Run(run) = &mut turn.work else { continue };
            while let Some(event) = run.next_event() {
                let is_test = turn.task.is_none();
                let text = match event {
                    Event::Opened(_) => "the sandbox stands, its endpoints are open",
                    Event::Started => "the agent runs",
                    Event::Ending => "the agent has ended",
                    Event::Stopped => continue,
                };
                if is_test {
                    steps.push((*id, text.to_owned()));
                }
            }
        }
        for (run, text) in steps {
            self.step(run, text);
        }
    }

    fn conclude_turn(&mut self, run: RunId, mut turn: Turn) -> Result<(), Fatal> {
        let unavailable = match &mut turn.work {
            Work::Run(run) => run.take_unavailable(),
            Work::Direct(_) => None,
        };
        if let Some(trouble) = &unavailable {
            self.say(&trouble.to_string());
            // A directory that cannot be used is this run's trouble; everything else is the sandbox's, and is looked at again.
            if trouble.code != Code::StateUnusable {
                self.sandbox.note(Err(trouble.clone()));
                let body = json!({ "code": trouble.code.as_str(), "sentence": trouble.sentence });
                self.notify_once("sandbox_unavailable", trouble.code.as_str(), body)?;
            }
        }
        let conclusion = turn.conclusion(unavailable.as_ref());
        let kind = if turn.interrupted { "run.interrupted" } else { "run.ended" };
        let (record, closed) = match &mut turn.work {
            Work::Run(run) => {
                let ended = run.ended();
                run.close(kind, ended)
            }
            Work::Direct(direct) => direct.close(kind),
        };
        closed?;
        let record = serde_json::to_string(&record).map_err(std::io::Error::other)?;
        self.say(&log_line(run, turn.task.as_ref(), &conclusion));
        if conclusion.state == State::Exhausted {
            let task = turn.task.as_ref();
            let body = json!({
                "run": run.to_string(), "interaction": task.map(|task| task.interaction.clone()),
                "peer": task.map(|task| task.peer.clone()), "exit": turn.ended().to_json(),
            });
            self.notify("budget_exhausted", body)?;
        }
        match &turn.task {
            Some(task) => {
                let ending = Ending {
                    state: conclusion.state,
                    answer: conclusion.answer.as_deref(),
                    refusal: conclusion.refusal.as_ref(),
                };
                let now = unix_ms(SystemTime::now());
                if let Ok(store) = &mut self.store {
                    let kept = store.inbox.finish(&task.interaction, now, &ending, Some((run, &record)));
                    kept.map_err(|error| Fatal::Unavailable(error.trouble()))?;
                }
                self.tell_waiting(&task.interaction.clone());
            }
            None => self.tell_test(run, conclusion),
        }
        Ok(())
    }

    fn tell_test(&mut self, run: RunId, conclusion: Conclusion) {
        let Conclusion { state, answer, refusal, words } = conclusion;
        if let Some(words) = words {
            self.step(run, words);
        }
        let outcome = Outcome { interaction: run.to_string(), state, answer, refusal };
        for client in self.clients.waiting_for(&Waits::Test(run)) {
            self.clients.document(client, &FromNode::Outcome, &outcome);
        }
    }
}
