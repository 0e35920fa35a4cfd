//! A question of the node's own: one request to Chat Completions, through the same policy, limits, debit and key as an
//! agent's.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
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

/// Asks, and gives the model's text in sealed memory; none: it was refused or failed, as the report says.
pub async fn ask(service: &Service, run: &Rc<Run>, task: String) -> Option<OwnedFd> {
    let mut report = Report::new(Rc::clone(run));
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
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
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
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
}

/// The text of an answer; none where the service answered an error of its own.
async fn read(incoming: Incoming, report: &mut Report) -> Result<Option<OwnedFd>, UpstreamTrouble> {
    let Incoming { status, body, .. } = incoming;
    let body = collect(body, report).await?;
    if status != StatusCode::OK {
        return Ok(None);
    }
    let text = text(&body).ok_or(UpstreamTrouble::Malformed)?;
    // Without memory for it there is no answer either.
    ipc_proto::bulk::seal(&text).map(Some).map_err(|_| UpstreamTrouble::Malformed)
}

/// All of a body.
async fn collect(mut body: upstream::Body, report: &mut Report) -> Result<Vec<u8>, UpstreamTrouble> {
    let most = usize::try_from(MOST_BODY).unwrap_or(usize::MAX);
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        report.received(data.len());
        if all.len() + data.len() > most {
            return Err(UpstreamTrouble::Malformed);
        }
        all.extend_from_slice(&data);
    }
    Ok(all)
}

/// The text of the first choice.
fn text(body: &[u8]) -> Option<String> {
    let completion: Completion = serde_json::from_slice(body).ok()?;
    let text = completion.choices.into_iter().next()?.message.content?;
    let short_enough = u64::try_from(text.len()).is_ok_and(|length| length <= LARGEST_ANSWER);
    short_enough.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MOD-8: the text is where it belongs, or there is none; nothing is guessed.
    #[test]
    fn an_answer_is_read_strictly() {
        let answer = |content: &str| {
            text(format!(r#"{{"id":"1","choices":[{{"index":0,"message":{{"role":"assistant","content":{content}}}}}]}}"#).as_bytes())
        };
        assert_eq!(answer(r#""hello \u00e9""#).unwrap(), "hello \u{e9}");
        for content in ["null", "1", "[]", r#"{"text":"a"}"#, r#""a","content":"b""#, r#""\ud800""#] {
            assert_eq!(answer(content), None, "{content}");
        }
        for body in ["", "{}", "[]", r#"{"choices":[]}"#, r#"{"choices":[{}]}"#, r#"{"choices":[]} x"#] {
            assert_eq!(text(body.as_bytes()), None, "{body}");
        }
        let most = usize::try_from(LARGEST_ANSWER).unwrap();
        assert!(answer(&format!("{:?}", "a".repeat(most))).is_some());
        assert!(answer(&format!("{:?}", "a".repeat(most + 1))).is_none());
    }
}
