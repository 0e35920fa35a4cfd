//! One connection of an agent: HTTP/1.1, a request at a time.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::answer;
use crate::gate::{Gate, Turn};
use crate::policy::Refusal;
use crate::requests::{self, Service};
use crate::run::Run;

/// How long what still comes is read after the last answer: closed with bytes unread, a connection is reset, and the agent
/// may never see why it was refused.
const LINGER: Duration = Duration::from_secs(5);
/// How much of it. A body of the largest kind passes in a blink on loopback.
const MOST_LINGERED: usize = 64 * 1024 * 1024;
/// The most that is thrown away at once.
const CHUNK: usize = 16 * 1024;
/// How long an answer to a connection too many may take.
const TURNED_AWAY_TIME: Duration = Duration::from_secs(5);

/// Serves a connection until its end.
pub async fn serve(service: Rc<Service>, run: Rc<Run>, hosts: Rc<[String]>, socket: TcpStream) {
    let socket = Rc::new(socket);
    let turn = Rc::new(Turn::default());
    let gate = Gate::new(Rc::clone(&socket), hosts, Rc::clone(&turn));
    let answer = service_fn(|request| {
        let (service, run) = (Rc::clone(&service), Rc::clone(&run));
        let (answering, refused) = (turn.answer(), turn.refused());
        async move {
            let is_refused = refused.is_some();
            let answer = requests::serve(&service, run, request, refused).await;
            let answer = if is_refused { requests::and_close(answer) } else { answer };
            Ok::<_, Infallible>(answer::answering(answer, answering))
        }
    });
    // No timer of hyper's: the gate has the head's, the request its body's, and an idle connection costs only its place.
    let served = http1::Builder::new().half_close(false).serve_connection(TokioIo::new(gate), answer).await;
    // A connection that failed has nobody at its other end, and an answer that was cut must be seen to be: both are closed
    // at once.
    if served.is_ok() {
        linger(&socket).await;
    }
}

/// Tells a connection too many so, whatever it asks.
pub async fn turn_away(run: Rc<Run>, refusal: Refusal, socket: TcpStream) {
    let turned_away = async {
        let socket = Rc::new(socket);
        let body = refusal.body(None, run.policy.service);
        let mut head =
            format!("HTTP/1.1 {}\r\nconnection: close\r\ncontent-length: {}\r\n", refusal.status, body.len());
        for (name, value) in &refusal.headers() {
            // All of them are ours, and text.
            head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap_or_default()));
        }
        head.push_str("\r\n");
        let mut answer = [head.as_bytes(), &body].concat();
        while !answer.is_empty() && socket.writable().await.is_ok() {
            match socket.try_write(&answer) {
                Ok(count) => drop(answer.drain(..count)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
        let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Write);
        linger(&socket).await;
    };
    let _ = timeout(TURNED_AWAY_TIME, turned_away).await;
}

/// Reads and forgets until the agent has read our end and closed its own.
async fn linger(socket: &TcpStream) {
    let rest = async {
        let mut buffer = vec![0; CHUNK];
        let mut left = MOST_LINGERED;
        while left > 0 && socket.readable().await.is_ok() {
            match socket.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => left = left.saturating_sub(count),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    tokio::select! {
        () = rest => {}
        () = sleep(LINGER) => {}
    }
}
