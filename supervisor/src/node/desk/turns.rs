//! A turn: one run for one interaction, in one of three ways, from its admission to what becomes of the interaction.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Instant;

use ipc_proto::control::{Refusal, State};
use ipc_proto::job::AnswerFormat;
use ipc_proto::{Code, InteractionId, RunId};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::Trouble;
use crate::record::Ended;
use crate::run::Fatal;
use crate::run::answer::Output;
use crate::run::one::{Phase, Run};

use super::direct::Direct;

/// One turn.
#[derive(Debug)]
pub(super) struct Turn {
    /// Whose task; none: the operator's own test.
    pub(super) task: Option<Task>,
    pub(super) started: u64,
    pub(super) work: Work,
    /// What the agent says.
    pub(super) output: Option<Output>,
    /// The node ends it, not the agent or a bound.
    pub(super) interrupted: bool,
}

/// Which interaction a turn is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Task {
    pub(super) interaction: InteractionId,
    pub(super) peer: String,
    pub(super) trusted: bool,
}

/// How it is done.
#[derive(Debug)]
pub(super) enum Work {
    /// An agent in the sandbox, or the node itself asking the model.
    Run(Box<Run>),
    /// An agent outside of it.
    Direct(Box<Direct>),
}

impl Turn {
    pub(super) fn state(&self) -> &'static str {
        match self.phase() {
            Phase::Starting | Phase::Opening => "starting",
            Phase::Running => "running",
            Phase::Ending => "ending",
        }
    }

    pub(super) fn is_ending(&self) -> bool {
        self.phase() == Phase::Ending
    }

    fn phase(&self) -> Phase {
        match &self.work {
            Work::Run(run) => run.phase(),
            Work::Direct(direct) => direct.phase(),
        }
    }

    /// The run of launcher, proxy and broker that it is.
    pub(super) fn run(&mut self) -> Option<&mut Run> {
        match &mut self.work {
            Work::Run(run) => Some(run),
            Work::Direct(_) => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match &self.work {
            Work::Run(run) => run.is_over(),
            Work::Direct(direct) => direct.is_over(),
        }
    }

    pub(super) fn end(&mut self, reason: Ended) -> Result<(), Fatal> {
        match &mut self.work {
            Work::Run(run) => run.end(reason),
            Work::Direct(direct) => direct.end(reason),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match &self.work {
            Work::Run(run) => run.next_deadline(),
            Work::Direct(direct) => direct.next_deadline(),
        }
    }

    pub(super) fn look_at_clocks(&mut self, now: Instant) -> Result<(), Fatal> {
        match &mut self.work {
            Work::Run(run) => run.look_at_clocks(now),
            Work::Direct(direct) => direct.look_at_clocks(now),
        }
    }

    pub(super) fn ended(&self) -> Ended {
        match &self.work {
            Work::Run(run) => run.ended(),
            Work::Direct(direct) => direct.ended(),
        }
    }

    /// The agent's text, or words on why there is none.
    fn answer(&mut self) -> Result<String, String> {
        if let Work::Run(run) = &mut self.work
            && let Some(text) = run.take_answer()
        {
            return Ok(text);
        }
        match &mut self.output {
            Some(output) => output.finish(),
            None => Err("the model gave no answer".to_owned()),
        }
    }

    /// What becomes of the interaction.
    pub(super) fn conclusion(&mut self, unavailable: Option<&Trouble>) -> Conclusion {
        if self.interrupted || unavailable.is_some() {
            let state = if self.interrupted { State::Interrupted } else { State::Refused };
            return Conclusion::refused(state, crate::admission::sandbox_unavailable(), None);
        }
        let failed = |kind: &str, words: String| {
            Conclusion::refused(
                State::Refused,
                agent_failed(kind),
                Some(words).filter(|words| !words.is_empty()),
            )
        };
        match self.ended() {
            Ended::Budget(name) => {
                Conclusion::refused(State::Exhausted, egress_exhausted(), Some(format!("budget {name}")))
            }
            Ended::Limit(name) => failed(name, format!("limit {name}")),
            Ended::Signal(number) => failed("signal", format!("signal {number}")),
            Ended::NotFound => failed("not_found", "its program was not found".to_owned()),
            Ended::NotExecutable => failed("not_executable", "its program cannot be executed".to_owned()),
            Ended::Failed(Code::AgentMissing) => failed("not_started", "it could not be started".to_owned()),
            Ended::Failed(_) => {
                Conclusion::refused(State::Refused, crate::admission::sandbox_unavailable(), None)
            }
            Ended::Status(_) => match self.answer() {
                Ok(text) => {
                    Conclusion { state: State::Answered, answer: Some(text), refusal: None, words: None }
                }
                Err(words) => failed("no_answer", words),
            },
        }
    }
}

/// What becomes of an interaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Conclusion {
    pub(super) state: State,
    pub(super) answer: Option<String>,
    pub(super) refusal: Option<Refusal>,
    /// For the operator.
    pub(super) words: Option<String>,
}

impl Conclusion {
    pub(super) fn refused(state: State, refusal: Refusal, words: Option<String>) -> Conclusion {
        Conclusion { state, answer: None, refusal: Some(refusal), words }
    }
}

/// BUD-4: what the peer is told.
fn egress_exhausted() -> Refusal {
    Refusal {
        code: Code::Budget.as_str().to_owned(),
        kind: Some("egress".to_owned()),
        until: None,
        sentence: "the run used up what it may send or reach, and was ended; the operator may grant another"
            .to_owned(),
    }
}

fn agent_failed(kind: &str) -> Refusal {
    let sentence = match kind {
        "wall_clock" => "the agent did not come to an end in its time",
        "memory" | "growth" => "the agent needed more than a run may use, and was ended",
        _ => "the agent ended without an answer",
    };
    crate::admission::agent_failed(kind, sentence)
}

/// What becomes 0, 1 and 2 of an agent, and where its words are read.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) stdio: [OwnedFd; 3],
    pub(super) output: Output,
}

impl Streams {
    /// The input is there already; errors go nowhere: what an agent complains of is no answer, and no log of ours.
    pub(super) fn new(input: OwnedFd, null: &OwnedFd, format: AnswerFormat) -> Result<Streams, Fatal> {
        let system = |errno| Fatal::System { what: "a pipe for an agent", errno };
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(system)?;
        let errors = rustix::io::fcntl_dupfd_cloexec(null, 3).map_err(system)?;
        let output = Output::new(format, File::from(reader));
        Ok(Streams { stdio: [input, writer, errors], output })
    }
}

/// The words of an event for the operator's log.
pub(super) fn log_line(run: RunId, task: Option<&Task>, conclusion: &Conclusion) -> String {
    let state = conclusion.state.as_str();
    let words = conclusion.words.as_deref().map(|words| format!(" ({words})")).unwrap_or_default();
    match task {
        Some(task) => format!("{run} of {} for {}: {state}{words}", task.interaction, task.peer),
        None => format!("{run}, a test: {state}{words}"),
    }
}
