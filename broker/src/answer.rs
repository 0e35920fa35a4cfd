//! What an agent gets back: an answer of ours, or the service's as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use ipc_proto::broker::UpstreamTrouble;
use tokio::time::{Sleep, sleep};

use crate::gate::Answering;
use crate::policy::{self, Interface, Refusal};
use crate::report::Report;
use crate::run::Run;
use crate::upstream::{self, Incoming};

/// How long the connection to the agent stays after the service's answer was cut: an error drops what hyper has taken and not
/// written yet, and the last that came is what says why.
const PAUSE: Duration = Duration::from_millis(100);

/// The service's answer ended before its end: so does the connection to the agent, which is how it learns it.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the service's answer was cut short ({})", .0.as_str())]
pub struct Cut(UpstreamTrouble);

/// The body of an answer. Dropped, the answer has ended, and the service's is not waited for any longer.
#[derive(Debug)]
pub struct Answer {
    content: Content,
    /// Set by [`answering`].
    _turn: Option<Answering>,
}

#[derive(Debug)]
enum Content {
    /// All of it, once.
    Whole(Bytes),
    /// The service's.
    Streamed(Box<Streamed>),
    /// It was cut, for this reason, and the connection ends after a pause.
    Broken(UpstreamTrouble, Pin<Box<Sleep>>),
}

#[derive(Debug)]
struct Streamed {
    body: upstream::Body,
    report: Report,
    /// Of server-sent events: for which interface, and what they ended with so far.
    events: Option<(Interface, Tail)>,
    silence: Duration,
}

/// Ties an answer to the turn that it ends.
#[must_use]
pub fn answering(answer: Response<Answer>, turn: Answering) -> Response<Answer> {
    answer.map(|body| Answer { _turn: Some(turn), ..body })
}

/// An answer of ours, in full.
#[must_use]
pub fn whole(status: StatusCode, headers: HeaderMap, body: Vec<u8>) -> Response<Answer> {
    let mut response = Response::new(Answer { content: Content::Whole(Bytes::from(body)), _turn: None });
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A refusal, in the shape that the agent's program reads.
#[must_use]
pub fn refusal(run: &Run, interface: Option<Interface>, refusal: &Refusal) -> Response<Answer> {
    whole(refusal.status, refusal.headers(), refusal.body(interface, run.policy.service))
}

/// The service's answer, passed on as it comes.
#[must_use]
pub fn streamed(run: &Run, interface: Interface, incoming: Incoming, report: Report) -> Response<Answer> {
    let Incoming { status, headers, body } = incoming;
    let headers = policy::response_headers(&headers);
    let events = headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
        .then_some((interface, Tail::Boundary));
    let streamed = Streamed { body, report, events, silence: run.silence };
    let mut response = Response::new(Answer { content: Content::Streamed(Box::new(streamed)), _turn: None });
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Broken(trouble, pause) => {
                ready!(pause.as_mut().poll(context));
                Poll::Ready(Some(Err(Cut(*trouble))))
            }
            Content::Streamed(streamed) => match ready!(streamed.poll(context)) {
                Some(Ok(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Err(trouble)) => {
                    let farewell = streamed.farewell(trouble);
                    self.content = Content::Broken(trouble, Box::pin(sleep(PAUSE)));
                    match farewell {
                        Some(event) => Poll::Ready(Some(Ok(Frame::data(event)))),
                        None => self.poll_frame(context),
                    }
                }
                None => {
                    // The report of its end is due now, not when the agent's program asks for its next answer.
                    self.content = Content::Whole(Bytes::new());
                    Poll::Ready(None)
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Streamed(_) | Content::Broken(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            // A known length would leave no room for a last event.
            Content::Streamed(streamed) if streamed.events.is_none() => streamed.body.size_hint(),
            Content::Streamed(_) | Content::Broken(..) => SizeHint::default(),
        }
    }
}

impl Streamed {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamTrouble>>> {
        loop {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                // Trailers are no part of any answer of a model.
                Some(Ok(Err(_))) => {}
                Some(Ok(Ok(data))) => {
                    self.report.received(data.len());
                    if let Some((_, tail)) = &mut self.events {
                        *tail = tail.after(&data);
                    }
                    return Poll::Ready(Some(Ok(data)));
                }
                Some(Err(trouble)) => {
                    self.report.failed(trouble);
                    return Poll::Ready(Some(Err(trouble)));
                }
                None => return Poll::Ready(None),
            }
        }
    }

    /// The last event of a stream that was cut between two events. In the middle of one there is nothing to say: its reader
    /// would take both for one, and drops half an event by itself.
    fn farewell(&self, trouble: UpstreamTrouble) -> Option<Bytes> {
        let (interface, tail) = self.events?;
        if tail != Tail::Boundary {
            return None;
        }
        Some(last_event(interface, &crate::requests::refusal_of(trouble, self.silence)))
    }
}

/// An error in the middle of a stream, as each interface's own streams have it.
fn last_event(interface: Interface, refusal: &Refusal) -> Bytes {
    let (name, data): (&[u8], Vec<u8>) = match interface {
        Interface::Messages | Interface::CountTokens => {
            (b"event: error\n", refusal.body(Some(interface), policy::Service::Other))
        }
        Interface::Responses => {
            let data = serde_json::json!({
                "type": "error",
                "code": refusal.rule.as_str(),
                "message": refusal.sentence,
                "param": null,
                "sequence_number": 0,
            });
            (b"event: error\n", data.to_string().into_bytes())
        }
        // Chat Completions names no events.
        Interface::ChatCompletions => (b"", refusal.body(Some(interface), policy::Service::Other)),
    };
    Bytes::from([name, b"data: ", &data, b"\n\n"].concat())
}

/// What server-sent events ended with: an empty line ends an event, and a line ends with LF, CR LF or CR
/// (WHATWG HTML, section 9.2.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tail {
    /// Between two events.
    Boundary,
    /// A line has ended, within an event; its last byte was this.
    Line(u8),
    /// In a line.
    Text,
}

impl Tail {
    fn after(self, bytes: &[u8]) -> Tail {
        bytes.iter().fold(self, |tail, byte| match (tail, byte) {
            // The second half of one line end.
            (Tail::Line(b'\r'), b'\n') => Tail::Line(b'\n'),
            (Tail::Boundary | Tail::Line(_), b'\n' | b'\r') => Tail::Boundary,
            (Tail::Text, b'\n' | b'\r') => Tail::Line(*byte),
            (Tail::Boundary | Tail::Line(_) | Tail::Text, _) => Tail::Text,
        })
    }
}

#[cfg(test)]
mod tests;
