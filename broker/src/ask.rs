//! A question of the node's own: one request to Chat Completions, through the same policy, limits, debit and key as an
//! agent's.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use ipc_proto::broker::{LARGEST_ANSWER, UpstreamTrouble};
use serde::Deserialize;

use crate::policy::{self, Interface, Refusal};
use crate::report::Report;
use crate::requests::{self, Failure, Question, Service};
use crate::run::Run;
use crate::upstream::{self, Incoming};

/// What an answer's body may have beside the text, and the escapes in it: JSON writes a byte as six at most.
const MOST_BODY: u64 = 6 * LARGEST_ANSWER + 64 * 1024;
/// What is read of an error's body, for its code.
const MOST_ERROR: u64 = 64 * 1024;
/// Who asks.
const WHO: &str = concat!("anet/", env!("CARGO_PKG_VERSION"));

/// Asks, and gives the model's text in sealed memory; none: it was refused or failed, as the report says.
pub async fn ask(service: &Service, run: &Rc<Run>, task: String) -> Option<OwnedFd> {
    let mut report = Report::new(Rc::clone(run));
    // Its answer is held whole.
    let length = u64::try_from(task.len()).unwrap_or(u64::MAX);
    let _room = service.room.take(length.saturating_add(MOST_BODY)).await;
    let asked = match question(run) {
        Ok(question) => {
            report.is_for(question.interface);
            match requests::before_the_body(service, run).and_then(|()| body(run, &task)) {
                Ok(body) => {
                    drop(task);
                    requests::ask(service, run, question, body, &mut report).await
                }
                Err(refusal) => Err(Failure::Refused(refusal)),
            }
        }
        Err(refusal) => Err(Failure::Refused(refusal)),
    };
    match asked {
        Ok(incoming) => {
            report.answered(incoming.status);
            match read(incoming, &mut report).await {
                Ok(answer) => answer,
                Err(trouble) => {
                    report.failed(trouble);
                    None
                }
            }
        }
        Err(Failure::Refused(refusal)) => {
            report.refused(&refusal);
            None
        }
        Err(Failure::Trouble(trouble)) => {
            report.failed(trouble);
            None
        }
    }
}

/// The head of the request, judged as an agent's is: a service without this interface is not asked.
fn question(run: &Run) -> Result<Question, Refusal> {
    let interface = Interface::ChatCompletions;
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (ACCEPT, HeaderValue::from_static("application/json")),
        (USER_AGENT, HeaderValue::from_static(WHO)),
    ]);
    let target = format!("{}{}", policy::PREFIX, policy::place(interface));
    let (_, headers) = policy::head(&run.policy, &Method::POST, &target, &headers)?;
    Ok(Question { interface, keep_beta: false, headers })
}

fn body(run: &Run, task: &str) -> Result<Bytes, Refusal> {
    let body = serde_json::json!({
        "model": run.policy.model,
        "messages": [{ "role": "user", "content": task }],
        "stream": false,
    });
    let body = Bytes::from(body.to_string());
    run.check_body(u64::try_from(body.len()).unwrap_or(u64::MAX))?;
    Ok(body)
}

/// What of an answer is looked at.
#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<Content>,
    /// The model's own words for that it does not answer: its final text, where there is no other.
    refusal: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    /// As some services write the answer of a model that thinks.
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text {
        text: String,
    },
    #[serde(other)]
    Other,
}

impl Content {
    fn text(self) -> String {
        match self {
            Content::Text(text) => text,
            Content::Parts(parts) => {
                let texts = parts.into_iter().map(|part| match part {
                    Part::Text { text } => text,
                    Part::Other => String::new(),
                });
                texts.collect()
            }
        }
    }
}

/// An error of the service's own.
#[derive(Deserialize)]
struct Failed {
    error: FailedBecause,
}

#[derive(Deserialize)]
struct FailedBecause {
    code: Option<String>,
}

/// The text of an answer; none where the service answered an error of its own, which its status says.
async fn read(incoming: Incoming, report: &mut Report) -> Result<Option<OwnedFd>, UpstreamTrouble> {
    let Incoming { status, body, .. } = incoming;
    if status != StatusCode::OK {
        // However its body ends.
        let body = collect(body, MOST_ERROR, report).await.unwrap_or_default();
        return if is_filter(&body) { Err(UpstreamTrouble::Filtered) } else { Ok(None) };
    }
    let text = text(&collect(body, MOST_BODY, report).await?)?;
    // Without memory for it there is no answer either.
    ipc_proto::bulk::seal(&text).map(Some).map_err(|_| UpstreamTrouble::TooLong)
}

/// All of a body, if it is no longer than `most`.
async fn collect(
    mut body: upstream::Body,
    most: u64,
    report: &mut Report,
) -> Result<Vec<u8>, UpstreamTrouble> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        report.received(data.len());
        if data.len() > most.saturating_sub(all.len()) {
            return Err(UpstreamTrouble::TooLong);
        }
        all.extend_from_slice(&data);
    }
    Ok(all)
}

/// Whether a service refused the question for what it says.
fn is_filter(body: &[u8]) -> bool {
    let failed = serde_json::from_slice::<Failed>(body).ok();
    failed
        .and_then(|failed| failed.error.code)
        .is_some_and(|code| matches!(code.as_str(), "content_filter" | "content_policy_violation"))
}

/// The text of the first choice.
fn text(body: &[u8]) -> Result<String, UpstreamTrouble> {
    let completion: Completion = serde_json::from_slice(body).map_err(|_| UpstreamTrouble::NoCompletion)?;
    let choice = completion.choices.into_iter().next().ok_or(UpstreamTrouble::NoCompletion)?;
    match choice.finish_reason.as_deref() {
        // What is there of a text is not all of it.
        Some("content_filter") => return Err(UpstreamTrouble::Filtered),
        // As gateways pass on the failure of the service behind them.
        Some("error") => return Err(UpstreamTrouble::NoCompletion),
        // Also "length": a text that is cut at the cap is what the model had to say (ACC-2).
        Some(_) | None => {}
    }
    let Message { content, refusal } = choice.message;
    let text =
        content.map(Content::text).filter(|text| !text.trim().is_empty()).or(refusal).unwrap_or_default();
    if text.trim().is_empty() {
        return Err(UpstreamTrouble::Empty);
    }
    let short_enough = u64::try_from(text.len()).is_ok_and(|length| length <= LARGEST_ANSWER);
    if short_enough { Ok(text) } else { Err(UpstreamTrouble::TooLong) }
}

#[cfg(test)]
mod tests {
    use UpstreamTrouble::{Empty, Filtered, NoCompletion, TooLong};

    use super::*;

    fn message(message: &str, finish: &str) -> Result<String, UpstreamTrouble> {
        let message = format!(
            r#"{{"id":"1","choices":[{{"index":0,"message":{message},"finish_reason":{finish}}}],"usage":{{}}}}"#
        );
        text(message.as_bytes())
    }

    fn content(content: &str) -> Result<String, UpstreamTrouble> {
        message(&format!(r#"{{"role":"assistant","content":{content}}}"#), r#""stop""#)
    }

    /// ACC-2, MOD-8: the text is where it belongs, or there is none; nothing is guessed.
    #[test]
    fn an_answer_is_read_strictly() {
        assert_eq!(content(r#""hello \u00e9""#).unwrap(), "hello \u{e9}");
        for odd in ["1", r#"{"text":"a"}"#, r#""a","content":"b""#, r#""\ud800""#, "[1]", r#"[{"text":"a"}]"#]
        {
            assert_eq!(content(odd), Err(NoCompletion), "{odd}");
        }
        for body in
            ["", "{}", "[]", r#"{"choices":[]}"#, r#"{"choices":[{}]}"#, r#"{"choices":[]} x"#, "<html>"]
        {
            assert_eq!(text(body.as_bytes()), Err(NoCompletion), "{body}");
        }
        assert_eq!(text(br#"{"error":{"message":"m","code":"x"}}"#), Err(NoCompletion));
        let most = usize::try_from(LARGEST_ANSWER).unwrap();
        assert!(content(&format!("{:?}", "a".repeat(most))).is_ok());
        assert_eq!(content(&format!("{:?}", "a".repeat(most + 1))), Err(TooLong));
    }

    /// SEL-3, ACC-2: an answer that was filtered, one without a text and one that a gateway could not get are told apart; the
    /// model's own words are its answer, also where it declines, and where they were cut at the cap.
    #[test]
    fn ways_to_have_no_text_are_told_apart() {
        let stop = r#""stop""#;
        for empty in
            [r#"{"content":null}"#, r#"{"content":""}"#, r#"{"content":" \n"}"#, r#"{"content":[]}"#, "{}"]
        {
            assert_eq!(message(empty, stop), Err(Empty), "{empty}");
            assert_eq!(message(empty, r#""length""#), Err(Empty), "{empty}");
            assert_eq!(message(empty, r#""content_filter""#), Err(Filtered), "{empty}");
        }
        assert_eq!(message(r#"{"content":"half a"}"#, r#""content_filter""#), Err(Filtered));
        assert_eq!(message(r#"{"content":""}"#, r#""error""#), Err(NoCompletion));
        assert_eq!(message(r#"{"content":"half a"}"#, r#""length""#).unwrap(), "half a");
        assert_eq!(message(r#"{"content":"a"}"#, "null").unwrap(), "a");
        assert_eq!(message(r#"{"content":null,"refusal":"I will not."}"#, stop).unwrap(), "I will not.");
        assert_eq!(message(r#"{"content":"a","refusal":null}"#, stop).unwrap(), "a");
        let parts = r#"{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#;
        assert_eq!(message(parts, stop).unwrap(), "ab");
    }

    /// SEL-3: a task that the service's filter refuses is told from any other refusal of a request.
    #[test]
    fn a_filtered_task_is_seen() {
        assert!(is_filter(
            br#"{"error":{"message":"m","type":null,"param":"prompt","code":"content_filter"}}"#
        ));
        assert!(is_filter(br#"{"error":{"code":"content_policy_violation"}}"#));
        for other in [
            &br#"{"error":{"code":"invalid_api_key"}}"#[..],
            br#"{"error":{"message":"content_filter","code":null}}"#,
            br#"{"error":{"message":"content_filter","code":400}}"#,
            br#"{"error":"content_filter"}"#,
            b"content_filter",
            b"",
        ] {
            assert!(!is_filter(other), "{}", String::from_utf8_lossy(other));
        }
    }
}
