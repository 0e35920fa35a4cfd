//! What a peer is told in place of an answer (DIA-1). A peer learns what to do, and nothing of the host or of other peers.

use ipc_proto::Code;
use ipc_proto::control::Refusal;

use super::Day;

fn refusal(code: Code, kind: Option<&str>, until: Option<String>, sentence: String) -> Refusal {
    Refusal { code: code.as_str().to_owned(), kind: kind.map(str::to_owned), until, sentence }
}

/// Nothing could be run, or what ran was interrupted.
#[must_use]
pub fn sandbox_unavailable() -> Refusal {
    let sentence = "the task could not be run to its end, since no sandbox is available just now; send it again later, as a \
                    new interaction";
    refusal(Code::SandboxUnavailable, None, None, sentence.to_owned())
}

/// RUN-3: the runs of this day are used up: the peer's or everybody's, which of the two is nobody's to know.
#[must_use]
pub fn runs_used_up(day: &Day) -> Refusal {
    let until = day.ends_text();
    let sentence =
        format!("the runs of this day are used up; send it again after {until}, as a new interaction");
    refusal(Code::Budget, Some("runs"), Some(until), sentence)
}

/// The agent gave no answer. `kind` says what ended it, the sentence what the peer may know of it.
#[must_use]
pub fn agent_failed(kind: &str, sentence: &str) -> Refusal {
    refusal(Code::AgentFailed, Some(kind), None, sentence.to_owned())
}
