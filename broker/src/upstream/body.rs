//! An answer on its way: read only as fast as it is asked for, never silent for too long, and never cut without a word.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use ipc_proto::broker::UpstreamTrouble;
use tokio::time::{Instant, Sleep, sleep};

use super::link::{Link, trouble};
use super::pool::Pool;
use super::redact::Redactor;

/// The body of an answer. Dropped before its end, it closes the connection.
pub struct Body {
    state: State,
    redactor: Redactor,
    silence: Duration,
    /// Runs while the service is waited for, and only then: an agent that reads slowly makes no service silent.
    timer: Pin<Box<Sleep>>,
    waiting: bool,
}

enum State {
    Reading {
        answer: Incoming,
        link: Link,
        home: Home,
    },
    Ended,
    /// For good: whoever asks again is told again, and takes it for no end.
    Failed(UpstreamTrouble),
}

/// Where a connection goes when it is free again.
pub(super) struct Home {
    pub(super) pool: Rc<Pool>,
    pub(super) idle: Duration,
}

impl Body {
    pub(super) fn new(
        answer: Incoming,
        link: Link,
        home: Home,
        redactor: Redactor,
        silence: Duration,
    ) -> Body {
        let state = State::Reading { answer, link, home };
        let mut body = Body { state, redactor, silence, timer: Box::pin(sleep(silence)), waiting: false };
        body.release_at_end();
        body
    }

    /// Gives the connection back as soon as all has been read: nobody has to ask for an end that is known.
    fn release_at_end(&mut self) {
        if matches!(&self.state, State::Reading { answer, .. } if answer.is_end_stream()) {
            self.end();
        }
    }

    fn end(&mut self) {
        if let State::Reading { link, home, .. } = std::mem::replace(&mut self.state, State::Ended) {
            home.pool.keep(link, home.idle);
        }
    }

    /// The connection is closed by this. What the redactor holds back may be most of a key, and is no loss to an answer that is
    /// cut.
    fn fail(&mut self, trouble: UpstreamTrouble) -> Poll<Option<Result<Frame<Bytes>, UpstreamTrouble>>> {
        self.state = State::Failed(trouble);
        Poll::Ready(Some(Err(trouble)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = UpstreamTrouble;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamTrouble>>> {
        loop {
            let answer = match &mut self.state {
                State::Reading { answer, .. } => answer,
                State::Ended => {
                    let rest = self.redactor.rest();
                    return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))));
                }
                State::Failed(trouble) => return Poll::Ready(Some(Err(*trouble))),
            };
            match Pin::new(answer).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.waiting = false;
                    // Trailers are headers that no policy has seen.
                    if let Ok(data) = frame.into_data() {
                        self.release_at_end();
                        let data = self.redactor.next(data);
                        if !data.is_empty() {
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                    }
                }
                Poll::Ready(None) => self.end(),
                Poll::Ready(Some(Err(error))) => return self.fail(trouble(&error)),
                Poll::Pending => {
                    if !self.waiting {
                        self.waiting = true;
                        let deadline = Instant::now() + self.silence;
                        self.timer.as_mut().reset(deadline);
                    }
                    if self.timer.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    return self.fail(UpstreamTrouble::Silent);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Reading { answer, .. } => answer.is_end_stream(),
            State::Ended => self.redactor.held() == 0,
            State::Failed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let coming = match &self.state {
            State::Reading { answer, .. } => answer.size_hint(),
            State::Ended => SizeHint::with_exact(0),
            State::Failed(_) => return SizeHint::default(),
        };
        let held = u64::try_from(self.redactor.held()).unwrap_or(u64::MAX);
        let mut all = SizeHint::new();
        if let Some(upper) = coming.upper() {
            all.set_upper(upper.saturating_add(held));
        }
        all.set_lower(coming.lower().saturating_add(held));
        all
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Reading { .. } => "reading",
            State::Ended => "ended",
            State::Failed(_) => "failed",
        };
        f.debug_tuple("Body").field(&state).finish()
    }
}
