//! What a node has to know of its evidence when it starts: the days' counts, and which runs have no end (RUN-4, EVI-3).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::admission::{Counts, Date};
use crate::evidence;

/// So many ended runs are remembered: one whose answer was not kept before a crash counts as interrupted after all.
const REMEMBERED: usize = 64;

/// In which day and for whom a run counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) day: Date,
    pub(crate) peer: String,
}

/// A run without an end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OpenRun {
    pub(crate) counted: Option<Counted>,
    /// Its agent was started.
    pub(crate) started: bool,
}

/// Made from every record, one after the other.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeState {
    pub(crate) counts: Counts,
    pub(crate) open: BTreeMap<String, OpenRun>,
    /// The configuration that holds, by its hash.
    pub(crate) config: Option<String>,
    /// Runs that ended and count, the last ones.
    ended: VecDeque<(String, Counted)>,
}

impl evidence::State for NodeState {
    fn heeds(kind: &str) -> bool {
        matches!(kind, "config.changed" | "run.admitted" | "run.started" | "run.ended" | "run.interrupted")
    }

    fn apply(&mut self, kind: &str, body: &Value) {
        let run = body.get("run").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "config.changed" => {
                self.config = body.get("sha256").and_then(Value::as_str).map(ToOwned::to_owned);
            }
            "run.admitted" => {
                let counted: Option<Counted> =
                    (body.get("counted").cloned()).and_then(|counted| serde_json::from_value(counted).ok());
                if let Some(counted) = &counted {
                    self.counts.reserve(counted.day, &counted.peer);
                    self.counts.forget_before(counted.day);
                }
                self.open.insert(run.to_owned(), OpenRun { counted, started: false });
            }
            "run.started" => {
                if let Some(open) = self.open.get_mut(run) {
                    open.started = true;
                }
            }
            "run.ended" => match self.open.remove(run) {
                Some(OpenRun { counted: Some(counted), started: true }) => {
                    self.ended.push_back((run.to_owned(), counted));
                    if self.ended.len() > REMEMBERED {
                        self.ended.pop_front();
                    }
                }
                // No agent was started: that is no run of the day's (RUN-1).
                Some(OpenRun { counted: Some(counted), started: false }) => {
                    self.counts.give_back(counted.day, &counted.peer);
                }
                Some(OpenRun { counted: None, .. }) | None => {}
            },
            "run.interrupted" => {
                let open = self.open.remove(run).and_then(|open| open.counted);
                let at = self.ended.iter().position(|(known, _)| known == run);
                let ended = at.and_then(|at| self.ended.remove(at)).map(|(_, counted)| counted);
                if let Some(counted) = open.or(ended) {
                    self.counts.give_back(counted.day, &counted.peer);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::State;
    use serde_json::json;

    fn admitted(state: &mut NodeState, run: &str, counted: bool) {
        let counted = counted.then(|| json!({ "day": "2026-03-29", "peer": "p" }));
        state.apply("run.admitted", &json!({ "run": run, "counted": counted }));
    }

    fn used(state: &NodeState) -> u64 {
        state.counts.of("2026-03-29".parse().unwrap()).runs()
    }

    /// RUN-1, RUN-4: counted is a run whose agent started and that no crash interrupted, each once.
    #[test]
    fn runs_count_from_the_evidence() {
        let mut state = NodeState::default();
        for run in ["r1", "r2", "r3", "r4"] {
            admitted(&mut state, run, true);
        }
        admitted(&mut state, "r5", false);
        assert_eq!(used(&state), 4);
        state.apply("run.started", &json!({ "run": "r1" }));
        state.apply("run.ended", &json!({ "run": "r1" }));
        state.apply("run.ended", &json!({ "run": "r2" }));
        state.apply("run.started", &json!({ "run": "r3" }));
        state.apply("run.interrupted", &json!({ "run": "r3" }));
        assert_eq!(used(&state), 2);
        assert_eq!(state.open.keys().map(String::as_str).collect::<Vec<_>>(), ["r4", "r5"]);
        // Its answer was not kept before the crash.
        state.apply("run.interrupted", &json!({ "run": "r1" }));
        state.apply("run.interrupted", &json!({ "run": "r1" }));
        assert_eq!(used(&state), 1);
    }

    /// RUN-4: what is carried from segment to segment is all of it.
    #[test]
    fn the_state_is_carried_whole() {
        let mut state = NodeState::default();
        admitted(&mut state, "r1", true);
        state.apply("run.started", &json!({ "run": "r1" }));
        let carried = serde_json::to_value(&state).unwrap();
        assert_eq!(serde_json::from_value::<NodeState>(carried).unwrap(), state);
    }
}
