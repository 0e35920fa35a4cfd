//! Where the answer stands in what an agent wrote (ACC-2).
//!
//! These bytes come out of the sandbox: a task may have made the agent, or a program in its place, write anything. They
//! are read into the types below and nothing else; what does not fit them is no answer. Nothing here depends on an
//! agent's exit status, which the record has.

use ipc_proto::job::AnswerFormat;
use serde::Deserialize;

/// The most of an agent's standard output that is read for its answer, in bytes: the caller keeps no more.
pub const MAX_OUTPUT: usize = 16 * 1024 * 1024;

/// What an agent said in the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its final text, or its own words for what went wrong.
    pub text: String,
    /// The agent reports a failure: the text is for standard error.
    pub is_error: bool,
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoAnswer {
    /// Nothing at all.
    #[error("the agent wrote nothing, so there is no answer; its standard error may say why")]
    Empty,
    /// More than is kept.
    #[error("the agent wrote more than 16 MiB, so its answer was not read; ask for a shorter one")]
    TooLong,
    /// Not what this agent writes.
    #[error(
        "the agent's output is not in its own format, so no answer was found; see whether its version is supported"
    )]
    Malformed,
    /// It ended in the middle of its work.
    #[error("the agent ended without a final text; its standard error may say why")]
    Unfinished,
}

/// The answer in an agent's standard output.
///
/// # Errors
/// [`NoAnswer`]: which of the ways it is missing.
pub fn answer(format: AnswerFormat, output: &[u8]) -> Result<Answer, NoAnswer> {
    if output.len() > MAX_OUTPUT {
        return Err(NoAnswer::TooLong);
    }
    if output.trim_ascii().is_empty() {
        return Err(NoAnswer::Empty);
    }
    match format {
        AnswerFormat::Claude => claude(output),
        AnswerFormat::Codex => codex(output),
        AnswerFormat::Opencode => opencode(output),
        AnswerFormat::Hermes => Ok(hermes(output)),
        AnswerFormat::Text => Ok(said(String::from_utf8_lossy(output).trim_end().to_owned())),
        AnswerFormat::Openclaw => openclaw(output),
    }
}

/// hermes 0.19 prints what failed where its answer would be, and ends as if nothing had.
fn hermes(output: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(output).trim_end().to_owned();
    let status = text.strip_prefix("HTTP ").and_then(|rest| rest.split_once(": "));
    let refused = status.is_some_and(|(number, _)| number.len() == 3 && number.parse::<u16>().is_ok());
    let is_error = text.lines().count() == 1 && (refused || text.starts_with("API call failed after "));
    Answer { text, is_error }
}

fn said(text: String) -> Answer {
    Answer { text, is_error: false }
}

fn failed(text: String) -> Answer {
    Answer { text, is_error: true }
}

// ---- claude: one object (`--output-format json`) ----------------------------------------------------------------

#[derive(Deserialize)]
struct ClaudeResult {
    #[serde(rename = "type")]
    kind: ClaudeKind,
    is_error: bool,
    /// Absent where the turn ended without one (`error_max_turns`, `error_during_execution`).
    result: Option<String>,
    subtype: Option<String>,
    errors: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClaudeKind {
    Result,
}

fn claude(output: &[u8]) -> Result<Answer, NoAnswer> {
    let ClaudeResult { kind: ClaudeKind::Result, is_error, result, subtype, errors } =
        serde_json::from_slice(output).map_err(|_| NoAnswer::Malformed)?;
    match (result, is_error) {
        (Some(text), false) => Ok(said(text)),
        (Some(text), true) => Ok(failed(text)),
        (None, _) => {
            let errors = errors.unwrap_or_default().join("; ");
            let word = if errors.is_empty() { subtype.unwrap_or_default() } else { errors };
            if word.is_empty() { Err(NoAnswer::Unfinished) } else { Ok(failed(word)) }
        }
    }
}

// ---- codex: an event a line (`exec --json`) ---------------------------------------------------------------------

#[derive(Deserialize)]
#[serde(tag = "type")]
enum CodexEvent {
    #[serde(rename = "turn.started")]
    TurnStarted,
    #[serde(rename = "turn.completed")]
    TurnCompleted,
    #[serde(rename = "turn.failed")]
    TurnFailed { error: Message },
    #[serde(rename = "item.completed")]
    ItemCompleted { item: CodexItem },
    /// Also what a retry is announced with: an error only if the turn does not come to its end.
    #[serde(rename = "error")]
    Error { message: String },
    /// Whatever else this version tells of its work.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CodexItem {
    AgentMessage {
        text: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Message {
    message: String,
}

fn codex(output: &[u8]) -> Result<Answer, NoAnswer> {
    let (mut text, mut trouble, mut is_complete) = (None, None, false);
    for event in events::<CodexEvent>(output) {
        match event? {
            CodexEvent::TurnStarted => (text, trouble, is_complete) = (None, None, false),
            CodexEvent::TurnCompleted => is_complete = true,
            CodexEvent::TurnFailed { error } => (trouble, is_complete) = (Some(error.message), false),
            CodexEvent::ItemCompleted { item: CodexItem::AgentMessage { text: new } } => text = Some(new),
            CodexEvent::Error { message } => trouble = Some(message),
            CodexEvent::ItemCompleted { item: CodexItem::Other } | CodexEvent::Other => {}
        }
    }
    match (is_complete, text, trouble) {
        (true, Some(text), _) => Ok(said(text)),
        (_, _, Some(trouble)) => Ok(failed(service_words(trouble))),
        (_, _, None) => Err(NoAnswer::Unfinished),
    }
}

/// codex hands on some refusals of the service as the whole body: the sentence within it is what a person reads.
fn service_words(trouble: String) -> String {
    #[derive(Deserialize)]
    struct Body {
        error: Message,
    }
    match serde_json::from_str::<Body>(&trouble) {
        Ok(body) => body.error.message,
        Err(_) => trouble,
    }
}

// ---- opencode: an event a line (`run --format json`) ------------------------------------------------------------

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OpencodeEvent {
    /// A request to the model begins: what was said before stood between tool calls.
    StepStart,
    Text {
        part: OpencodeText,
    },
    Error {
        error: OpencodeError,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct OpencodeText {
    text: String,
}

#[derive(Deserialize)]
struct OpencodeError {
    name: String,
    data: Option<OpencodeErrorData>,
}

#[derive(Deserialize)]
struct OpencodeErrorData {
    message: Option<String>,
}

fn opencode(output: &[u8]) -> Result<Answer, NoAnswer> {
    let (mut texts, mut trouble) = (Vec::new(), None);
    for event in events::<OpencodeEvent>(output) {
        match event? {
            OpencodeEvent::StepStart => (texts, trouble) = (Vec::new(), None),
            OpencodeEvent::Text { part } => texts.push(part.text),
            OpencodeEvent::Error { error } => {
                trouble = Some(error.data.and_then(|data| data.message).unwrap_or(error.name));
            }
            OpencodeEvent::Other => {}
        }
    }
    match (trouble, texts.is_empty()) {
        (Some(trouble), _) => Ok(failed(trouble)),
        (None, false) => Ok(said(texts.join("\n"))),
        (None, true) => Err(NoAnswer::Unfinished),
    }
}

// ---- openclaw: one object (`agent exec --json`) -----------------------------------------------------------------

#[derive(Deserialize)]
struct OpenclawResult {
    ok: bool,
    #[serde(rename = "final")]
    text: Option<String>,
    error: Option<Message>,
}

fn openclaw(output: &[u8]) -> Result<Answer, NoAnswer> {
    let result: OpenclawResult = serde_json::from_slice(output).map_err(|_| NoAnswer::Malformed)?;
    match (result.ok, result.text, result.error) {
        (true, Some(text), _) => Ok(said(text)),
        (false, _, Some(error)) => Ok(failed(error.message)),
        (false, Some(text), None) => Ok(failed(text)),
        (true, None, _) | (false, None, None) => Err(NoAnswer::Unfinished),
    }
}

// ---- lines ------------------------------------------------------------------------------------------------------

/// An event a line; empty lines are none. A last line that was cut off is an error like any other that does not parse: a
/// text without its end would be taken for the whole.
fn events<'a, E: Deserialize<'a>>(output: &'a [u8]) -> impl Iterator<Item = Result<E, NoAnswer>> + 'a {
    output
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).map_err(|_| NoAnswer::Malformed))
}

#[cfg(test)]
mod tests;
