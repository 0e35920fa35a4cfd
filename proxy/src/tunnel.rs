//! One connection of a run, from the request to the end: a page to be read from top to bottom.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use ipc_proto::HostName;
use ipc_proto::proxy::{Class, Decision, Reason, TunnelReport};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::address::HTTPS_PORT;
use crate::client_hello::HelloReader;
use crate::connect::{HeadReader, Refused, Target};
use crate::meter::Direction;
use crate::reach::{Reach, Unreached};
use crate::record;
use crate::refusal::{ALERT, Details, Refusal};
use crate::relay::{Carried, End, pump, relay};
use crate::run::Run;
use crate::server_hello::{self, Answer};
use crate::wait::{read_some, write_all};

/// How long a request's head may take, from the connection on: all of it, not each piece.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// How long a hello may take, from the answer to the request on.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// How long the server may take to answer the hello.
const ANSWER_DEADLINE: Duration = Duration::from_secs(60);
/// How long a refused client is listened to, so that its unread bytes do not turn the answer into a reset.
const LINGER: Duration = Duration::from_secs(1);
/// How many bytes a refused client may still say.
const LINGER_BYTES: usize = 256 * 1024;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// What is known of an attempt, for its reports: it outlives the tunnel, which may be cut at any point.
#[derive(Debug)]
struct Attempt {
    number: Cell<u32>,
    host: RefCell<String>,
    port: Cell<u16>,
    class: Cell<Class>,
    addresses: RefCell<Vec<IpAddr>>,
    stands: Cell<bool>,
    carried: Carried,
}

impl Attempt {
    fn new() -> Self {
        Attempt {
            number: Cell::new(0),
            host: RefCell::default(),
            port: Cell::new(0),
            class: Cell::new(Class::Unknown),
            addresses: RefCell::default(),
            stands: Cell::new(false),
            carried: Carried::default(),
        }
    }

    /// Something was asked for, and will be reported.
    fn begins(&self, run: &Run, host: &str, port: u16) {
        self.number.set(run.next_attempt());
        self.host.replace(host.to_owned());
        self.port.set(port);
    }

    fn report(&self, reason: Reason, ended: bool) -> TunnelReport {
        TunnelReport {
            attempt: self.number.get(),
            host: self.host.borrow().clone(),
            port: self.port.get(),
            class: self.class.get(),
            decision: self.decision(reason),
            reason,
            addresses: self.addresses.borrow().clone(),
            bytes_out: self.carried.get(Direction::Out),
            bytes_in: self.carried.get(Direction::In),
            ended,
        }
    }

    fn decision(&self, reason: Reason) -> Decision {
        match Refusal::of(reason).and_then(|refusal| refusal.status) {
            Some(502 | 504) => Decision::Fail,
            // The run's end, and silence, are nobody's refusal.
            None if matches!(
                reason,
                Reason::Listed | Reason::Configured | Reason::Idle | Reason::RunEnded
            ) =>
            {
                if self.stands.get() {
                    Decision::Allow
                } else {
                    Decision::Fail
                }
            }
            Some(_) | None => Decision::Deny,
        }
    }
}

/// How a connection ended.
enum Outcome {
    /// The client left without having asked for anything.
    Nothing,
    /// No tunnel: the client is answered.
    Answered(Reason),
    /// The tunnel stood and has ended; a hello that was refused is told by an alert.
    Tunnel(Reason),
}

/// Serves one connection to its end, or to the run's.
pub(crate) async fn serve<R: Reach>(run: Rc<Run>, reach: Rc<R>, client: TcpStream) {
    let attempt = Attempt::new();
    let outcome = tokio::select! {
        biased;
        () = run.closed() => Outcome::Tunnel(attempt.carried.refused().unwrap_or(Reason::RunEnded)),
        outcome = open(&run, &*reach, &client, &attempt) => outcome,
    };
    let (Outcome::Answered(reason) | Outcome::Tunnel(reason)) = outcome else { return };
    if attempt.number.get() != 0 {
        run.report(attempt.report(reason, true)).await;
    }
    let host = attempt.host.take();
    match outcome {
        Outcome::Answered(reason) => refuse(&run, &client, &host, reason).await,
        Outcome::Tunnel(_) | Outcome::Nothing => {}
    }
}

/// Answers a connection for which there is no place.
pub(crate) async fn turn_away(run: Rc<Run>, client: TcpStream, reason: Reason) {
    refuse(&run, &client, "", reason).await;
}

/// The report of a connection for which there is no place.
#[must_use]
pub(crate) fn turned_away(run: &Run, reason: Reason) -> TunnelReport {
    let attempt = Attempt::new();
    attempt.begins(run, "", 0);
    attempt.report(reason, true)
}

/// The request: read, looked up in the list, debited, connected.
async fn open(run: &Run, reach: &impl Reach, client: &TcpStream, attempt: &Attempt) -> Outcome {
    let mut received = Vec::new();
    let target = match read_request(client, &mut received).await {
        Ok(Some(target)) => target,
        Ok(None) => return Outcome::Nothing,
        Err(refused) => {
            attempt.begins(run, &refused.host, refused.port);
            return Outcome::Answered(refused.reason);
        }
    };
    attempt.begins(run, target.host(), HTTPS_PORT);
    // The list stands before everything that costs or reveals: a name that is not on it is never looked up (EGR-8).
    let Some(host) = run.listed(target.host()) else {
        return Outcome::Answered(Reason::NotListed);
    };
    attempt.class.set(Class::ThirdParty);
    let mut place = match run.enter_tunnel() {
        Ok(place) => place,
        Err(reason) => return Outcome::Answered(reason),
    };
    if let Err(reason) = run.debit_destination(attempt.number.get(), host).await {
        return Outcome::Answered(reason);
    }
    let server = match reach.reach(host).await {
        Ok(reached) => {
            attempt.addresses.replace(reached.addresses);
            reached.stream
        }
        Err(Unreached { reason, addresses }) => {
            attempt.addresses.replace(addresses);
            if Refusal::of(reason).is_some_and(|refusal| refusal.error == "destination_ip_prohibited") {
                attempt.class.set(Class::Internal);
            }
            return Outcome::Answered(reason);
        }
    };
    place.stands();
    attempt.stands.set(true);
    let answered = write_all(client, ESTABLISHED).await;
    // Before the first byte goes out, though not before the client's answer: it need not wait for the record.
    run.report(attempt.report(Reason::Listed, false)).await;
    match answered {
        Ok(()) => Outcome::Tunnel(stand(run, host, client, &server, received, &attempt.carried).await),
        Err(_) => Outcome::Tunnel(Reason::Listed),
    }
}

/// `Ok(None)`: the client said nothing and left.
async fn read_request(client: &TcpStream, received: &mut Vec<u8>) -> Result<Option<Target>, Refused> {
    let mut reader = HeadReader::default();
    let head = timeout(HEAD_DEADLINE, async {
        loop {
            if let Some(head) = reader.read(received)? {
                return Ok(Some(head));
            }
            match read_some(client, received, usize::MAX).await {
                Ok(1..) => {}
                Ok(0) | Err(_) if received.is_empty() => return Ok(None),
                Ok(0) | Err(_) => return Err(reader.refused(Reason::MalformedRequest)),
            }
        }
    });
    let head = match head.await {
        Ok(head) => head?,
        Err(_) if received.is_empty() => None,
        Err(_) => return Err(reader.refused(Reason::HeadTimeout)),
    };
    Ok(head.map(|head| {
        // What the client sent ahead is the beginning of its hello.
        received.drain(..head.length);
        head.target
    }))
}

/// The tunnel: the hello is read whole and checked, and only then does the first byte go out.
async fn stand(
    run: &Run,
    host: &HostName,
    client: &TcpStream,
    server: &TcpStream,
    received: Vec<u8>,
    carried: &Carried,
) -> Reason {
    let tunnel = Tunnel { run, host, client, server, carried };
    let hello = match tunnel.hello(HelloReader::first(), received).await {
        Ok(hello) => hello,
        Err(Early::Refused(reason)) => {
            tunnel.alert(reason).await;
            return reason;
        }
        Err(Early::Gone) => return Reason::Listed,
    };
    match tunnel.send_out(&hello).await {
        Ok(()) => {}
        Err(End::Refused(reason)) => {
            tunnel.alert(reason).await;
            return reason;
        }
        Err(End::Finished | End::Broken) => return Reason::Listed,
    }
    let (answered, answer) = oneshot::channel();
    match relay(tunnel.up(answer), tunnel.down(answered), carried).await {
        End::Finished | End::Broken => Reason::Listed,
        End::Refused(reason) => reason,
    }
}

/// Why there is no hello.
enum Early {
    Refused(Reason),
    Gone,
}

#[derive(Clone, Copy)]
struct Tunnel<'a> {
    run: &'a Run,
    host: &'a HostName,
    client: &'a TcpStream,
    server: &'a TcpStream,
    carried: &'a Carried,
}

impl Tunnel<'_> {
    /// The bytes of a hello for the host, whole and nothing else.
    async fn hello(&self, mut reader: HelloReader, mut received: Vec<u8>) -> Result<Vec<u8>, Early> {
        let whole = async {
            loop {
                match reader.read(&received, self.host.as_str()) {
                    Ok(Some(_)) => return Ok(received),
                    Ok(None) if received.len() > record::MAX_WIRE => {
                        return Err(Early::Refused(Reason::HelloTooLarge));
                    }
                    Ok(None) => {}
                    Err(reason) => return Err(Early::Refused(reason)),
                }
                match read_some(self.client, &mut received, usize::MAX).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) if received.is_empty() => return Err(Early::Gone),
                    Ok(0) | Err(_) => return Err(Early::Refused(Reason::HelloMalformed)),
                }
            }
        };
        timeout(HELLO_DEADLINE, whole).await.unwrap_or(Err(Early::Refused(Reason::HelloTimeout)))
    }

    /// From the client: after a retry request another hello, which is checked like the first; then whatever comes.
    async fn up(self, answer: oneshot::Receiver<Answer>) -> End {
        let answer = tokio::select! {
            answer = answer => answer,
            () = self.client_is_gone() => return End::Broken,
        };
        if answer == Ok(Answer::Retry) {
            match self.hello(HelloReader::second(), Vec::new()).await {
                Ok(hello) => match self.send_out(&hello).await {
                    Ok(()) => {}
                    Err(end) => return end,
                },
                Err(Early::Refused(Reason::SniMismatch)) => return End::Refused(Reason::RetryMismatch),
                Err(Early::Refused(reason)) => return End::Refused(reason),
                Err(Early::Gone) => return End::Broken,
            }
        }
        pump(self.client, self.server, &self.run.meter, Direction::Out, self.carried).await
    }

    /// From the server: its first answer is looked at; then whatever comes.
    async fn down(self, answered: oneshot::Sender<Answer>) -> End {
        let mut received = Vec::new();
        let answer = loop {
            match server_hello::read(&received) {
                Ok(Some(answer)) => break answer,
                Ok(None) if received.len() >= server_hello::MAX_WIRE => return End::Refused(Reason::NotTls),
                Ok(None) => {}
                Err(reason) => return End::Refused(reason),
            }
            let room = server_hello::MAX_WIRE - received.len();
            match timeout(ANSWER_DEADLINE, read_some(self.server, &mut received, room)).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0) | Err(_)) => return End::Broken,
                Err(_) => return End::Refused(Reason::ConnectTimeout),
            }
        };
        if let Err(reason) = self.pass(self.client, Direction::In, &received).await {
            return reason;
        }
        // The other direction may have ended; then nobody needs to know.
        let _ = answered.send(answer);
        pump(self.server, self.client, &self.run.meter, Direction::In, self.carried).await
    }

    async fn send_out(&self, bytes: &[u8]) -> Result<(), End> {
        self.pass(self.server, Direction::Out, bytes).await
    }

    /// Passes on bytes that had to be read: taken from the meter first, all or none.
    async fn pass(&self, to: &TcpStream, direction: Direction, bytes: &[u8]) -> Result<(), End> {
        let count = bytes.len() as u64;
        self.run.meter.take_all(direction, count).await.map_err(End::Refused)?;
        if write_all(to, bytes).await.is_err() {
            self.run.meter.give_back(direction, count);
            return Err(End::Broken);
        }
        self.carried.add(direction, count);
        Ok(())
    }

    /// Ends when the client closes; a client that speaks instead is not listened to yet.
    async fn client_is_gone(&self) {
        if !matches!(self.client.peek(&mut [0]).await, Ok(0) | Err(_)) {
            std::future::pending::<()>().await;
        }
    }

    /// Tells a client whose hello was refused, in its own language if it speaks TLS.
    async fn alert(&self, reason: Reason) {
        self.carried.refuse(reason);
        if !matches!(reason, Reason::NotTls | Reason::HelloTimeout) {
            return say(self.client, &ALERT).await;
        }
        let details = Details { host: self.host.as_str(), allowed: self.run.hosts(), limit: None };
        if let Some(refusal) = Refusal::of(reason) {
            say(self.client, format!("{}\r\n", refusal.sentence(&details)).as_bytes()).await;
        }
    }
}

async fn refuse(run: &Run, client: &TcpStream, host: &str, reason: Reason) {
    let details = Details { host, allowed: run.hosts(), limit: run.limit(reason) };
    let Some(answer) = Refusal::of(reason).and_then(|refusal| refusal.answer(&details)) else { return };
    tokio::select! {
        // A run's end waits for nobody's last word.
        () = run.closed() => {}
        () = say(client, &answer) => {}
    }
}

/// The last word to a client. Closing a socket with unread bytes sends a reset that can overtake what was written, so a
/// little of what still comes is read and thrown away.
async fn say(client: &TcpStream, bytes: &[u8]) {
    let farewell = async {
        write_all(client, bytes).await?;
        rustix::net::shutdown(client, rustix::net::Shutdown::Write)?;
        let mut ignored = 0;
        while ignored < LINGER_BYTES {
            let mut chunk = Vec::new();
            match read_some(client, &mut chunk, usize::MAX).await? {
                0 => break,
                count => ignored += count,
            }
        }
        std::io::Result::Ok(())
    };
    // Whether it was heard is the client's business.
    let _ = timeout(LINGER, farewell).await;
}
