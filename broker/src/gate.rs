//! Between an agent's socket and the HTTP parser: lets one request through at a time, each after [`head`](crate::head) has
//! read all of its head.
//!
//! A head that is refused never reaches the parser. It sees a request of ours in its place, and whoever answers that finds
//! the refusal in [`Turn`]. A request that comes before the answer to the one before has ended waits here, so that the end
//! of the connection is seen while an answer is on its way: an agent that goes away ends what it asked for.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::head::{HeadReader, MAX_HEAD};
use crate::policy::{Refusal, Rule, seconds};

/// How long a head may take from its first byte on.
pub const HEAD_TIME: Duration = Duration::from_secs(30);
/// The most that is read at once.
const CHUNK: usize = 16 * 1024;
/// What the parser sees where a head was refused: it closes the connection after the answer.
const STAND_IN: &[u8] = b"POST / HTTP/1.1\r\nhost: anet\r\nconnection: close\r\n\r\n";

/// Whose turn it is: the agent's, to ask, or ours, to answer. Shared by the gate and whoever answers.
#[derive(Default, Debug)]
pub struct Turn {
    answering: Cell<bool>,
    refused: RefCell<Option<Refusal>>,
    waiting: RefCell<Option<Waker>>,
}

/// The answer to a request is on its way; dropped, it has ended, and the next request may pass.
#[derive(Debug)]
pub struct Answering(Rc<Turn>);

impl Turn {
    /// To be taken when a request has come out of the parser, and held until its answer has ended.
    #[must_use]
    pub fn answer(self: &Rc<Self>) -> Answering {
        Answering(Rc::clone(self))
    }

    /// The refusal of the head behind this request, if it was refused.
    #[must_use]
    pub fn refused(&self) -> Option<Refusal> {
        self.refused.borrow_mut().take()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.set(false);
        if let Some(waiting) = self.0.waiting.borrow_mut().take() {
            waiting.wake();
        }
    }
}

/// What may pass.
#[derive(Debug)]
enum State {
    /// Nothing, until a head is whole.
    Head(HeadReader),
    /// So many bytes: a head and its body.
    Request(u64),
    /// The rest of the stand-in, and nothing after it.
    Refused(&'static [u8]),
}

/// The gate.
#[derive(Debug)]
pub struct Gate {
    socket: Rc<TcpStream>,
    hosts: Rc<[String]>,
    turn: Rc<Turn>,
    state: State,
    /// What has come and has not passed.
    held: Vec<u8>,
    deadline: Option<Pin<Box<Sleep>>>,
    head_time: Duration,
}

impl Gate {
    /// A gate that a connection begins at. `hosts` are the values that a Host header may have.
    #[must_use]
    pub fn new(socket: Rc<TcpStream>, hosts: Rc<[String]>, turn: Rc<Turn>) -> Self {
        Gate {
            socket,
            hosts,
            turn,
            state: State::Head(HeadReader::default()),
            held: Vec::new(),
            deadline: None,
            head_time: HEAD_TIME,
        }
    }

    /// Appends what has come, at most [`CHUNK`]; 0: the agent has no more.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut chunk = [0; CHUNK];
        let mut buffer = ReadBuf::new(&mut chunk);
        ready!(poll_socket(&self.socket, context, &mut buffer))?;
        self.held.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Ready: the state is another one, or the agent has no more (true).
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            if self.turn.answering.get() {
                self.turn.waiting.replace(Some(context.waker().clone()));
                // Who sends more than the next head in advance is not listened to until it is their turn.
                if self.held.len() >= MAX_HEAD {
                    return Poll::Pending;
                }
            } else {
                let State::Head(reader) = &mut self.state else { return Poll::Ready(Ok(false)) };
                match reader.read(&self.held, &self.hosts) {
                    Ok(Some(head)) => {
                        let length = u64::try_from(head.length).unwrap_or(u64::MAX);
                        self.pass(State::Request(length.saturating_add(head.content_length)));
                        return Poll::Ready(Ok(false));
                    }
                    Err(refusal) => {
                        self.refuse(refusal);
                        return Poll::Ready(Ok(false));
                    }
                    Ok(None) if self.held.is_empty() => {}
                    Ok(None) => {
                        let time = self.head_time;
                        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(time)));
                        if deadline.as_mut().poll(context).is_ready() {
                            self.refuse(Refusal::of(Rule::HeadTimeout, &seconds(time)));
                            return Poll::Ready(Ok(false));
                        }
                    }
                }
            }
            if ready!(self.poll_more(context))? == 0 {
                return Poll::Ready(Ok(true));
            }
        }
    }

    fn pass(&mut self, state: State) {
        self.state = state;
        self.deadline = None;
        self.turn.answering.set(true);
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.held.clear();
        self.turn.refused.replace(Some(refusal));
        self.pass(State::Refused(STAND_IN));
    }

    /// Passes on what has come of a request, `left` bytes of it at most.
    fn poll_request(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        left: u64,
    ) -> Poll<io::Result<()>> {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.remaining());
        let passed = if self.held.is_empty() {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
            ready!(poll_socket(&self.socket, context, &mut part))?;
            let passed = part.filled().len();
            buffer.advance(passed);
            passed
        } else {
            let passed = self.held.len().min(most);
            buffer.put_slice(self.held.get(..passed).unwrap_or_default());
            self.held.drain(..passed);
            passed
        };
        let left = left.saturating_sub(u64::try_from(passed).unwrap_or(u64::MAX));
        self.state = if left == 0 { State::Head(HeadReader::default()) } else { State::Request(left) };
        Poll::Ready(Ok(()))
    }
}

/// Reads by shared reference: whoever lingers after the parser has ended has the same socket.
fn poll_socket(
    socket: &TcpStream,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(socket.poll_read_ready(context))?;
        match socket.try_read(buffer.initialize_unfilled()) {
            Ok(count) => {
                buffer.advance(count);
                return Poll::Ready(Ok(()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

impl AsyncRead for Gate {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            match self.state {
                State::Head(_) => {
                    if ready!(self.poll_head(context))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                State::Request(left) => return self.poll_request(context, buffer, left),
                // The parser closes of itself, and what still comes is read by whoever lingers.
                State::Refused([]) => return Poll::Pending,
                State::Refused(rest) => {
                    let (now, later) = rest.split_at(rest.len().min(buffer.remaining()));
                    buffer.put_slice(now);
                    self.state = State::Refused(later);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(context))?;
            match self.socket.try_write_vectored(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(
            rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Write).map_err(io::Error::from),
        )
    }
}

#[cfg(test)]
mod tests;
