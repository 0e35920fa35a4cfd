//! The broker as it is started, with everybody around it played by the test: the supervisor, the proxy, the agent and the
//! model's service.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use confine::sys::spawn::{Child, Command, Program};
use confine::sys::wait::{Ask, Status, wait};
use ipc_proto::broker::{
    BrokerPlan, FromBroker, KeyState, ModelLimits, ModelPolicy, ModelTotals, PublicKey, RequestReport,
    ToBroker,
};
use ipc_proto::dial::{FromDialer, ToDialer};
use ipc_proto::proxy::Reason;
use ipc_proto::{Channel, Received, RunId, bulk, descriptors};

pub(crate) const KEY: &str = "sk-canary-5f2a81c9";
pub(crate) const MODEL: &str = "pinned-model-1";
/// Longer than anything takes on a busy machine.
pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// What a run is opened with.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) limits: ModelLimits,
    pub(crate) debits: bool,
    pub(crate) silence: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { limits: ModelLimits::default(), debits: false, silence: WAIT }
    }
}

/// What a broker is started with.
pub(crate) struct Start<'a> {
    /// The service's address; none: no run is served.
    pub(crate) upstream: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    /// The signing key's file.
    pub(crate) signing: Option<&'a File>,
}

/// A running broker.
pub(crate) struct Broker {
    pub(crate) supervisor: Channel<ToBroker, FromBroker>,
    pub(crate) child: Child,
    pub(crate) dials: Arc<AtomicUsize>,
    pub(crate) hello: (u8, KeyState, u32),
    pub(crate) signing: Option<PublicKey>,
    log: File,
}

impl Broker {
    /// Starts one for the service at this address, with this key.
    pub(crate) fn start(upstream: &str, key: Option<&str>, reach: Reach) -> Broker {
        let mut broker = Broker::start_with(&Start { upstream: Some(upstream), key, signing: None }, reach);
        broker.greet();
        broker
    }

    /// Takes its first word.
    pub(crate) fn greet(&mut self) {
        let FromBroker::Hello { landlock, key, roots, signing } = self.next() else { panic!("no hello") };
        self.hello = (landlock, key, roots);
        self.signing = signing;
    }

    /// Starts one, and waits for no word of it.
    pub(crate) fn start_with(start: &Start<'_>, reach: Reach) -> Broker {
        let (supervisor, channel) = Channel::<ToBroker, FromBroker>::pair().unwrap();
        let (proxy, dial) = Channel::<FromDialer, ToDialer>::pair().unwrap();
        let plan = BrokerPlan {
            upstream: start.upstream.map(|upstream| upstream.parse().unwrap()),
            has_key: start.key.is_some(),
            signs: start.signing.is_some(),
        };
        let plan = bulk::seal(&plan).unwrap();
        let (log, writer) = std::io::pipe().unwrap();
        let key = start.key.map(|key| {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(key.as_bytes()).unwrap();
            OwnedFd::from(reader)
        });
        let (channel, dial) = (channel.into_fd(), dial.into_fd());
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let program = std::ffi::CString::new(env!("CARGO_BIN_EXE_anet-broker")).unwrap();
        let mut command = Command::new(Program::Path(program));
        command.argv = vec![c"anet-broker".to_owned()];
        command.descriptors = vec![
            (null.as_fd(), 0),
            (null.as_fd(), 1),
            (null.as_fd(), 2),
            (channel.as_fd(), descriptors::CHANNEL),
            (writer.as_fd(), descriptors::LOG),
            (plan.as_fd(), descriptors::PLAN),
        ];
        if start.upstream.is_some() {
            command.descriptors.push((dial.as_fd(), descriptors::DIAL));
        }
        if let Some(file) = start.signing {
            command.descriptors.push((file.as_fd(), descriptors::SIGNING_KEY));
        }
        if let Some(key) = &key {
            command.descriptors.push((key.as_fd(), descriptors::KEY));
        }
        command.parent_death_signal = true;
        let child = command.spawn().unwrap();
        drop(command);
        drop((channel, dial, writer));
        let dials = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&dials);
        std::thread::spawn(move || be_the_proxy(&proxy, &reach, &counted));
        Broker {
            supervisor,
            child,
            dials,
            hello: (0, KeyState::None, 0),
            signing: None,
            log: File::from(OwnedFd::from(log)),
        }
    }

    /// The next message of the broker.
    pub(crate) fn next(&self) -> FromBroker {
        self.letter().0
    }

    /// The same with its descriptors.
    pub(crate) fn letter(&self) -> (FromBroker, Vec<OwnedFd>) {
        let end = Instant::now() + WAIT;
        loop {
            match self.supervisor.try_receive().unwrap() {
                Received::Message(message, descriptors) => return (message, descriptors),
                Received::Empty => {
                    assert!(Instant::now() < end, "the broker says nothing");
                    std::thread::sleep(Duration::from_millis(2));
                }
                Received::Closed => panic!("the broker is gone: {}", self.log()),
            }
        }
    }

    /// Opens a run, and gives where its agent finds it.
    pub(crate) fn open(&self, number: u64, terms: &Terms) -> Run<'_> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap();
        let run = RunId::new(number, [7; 4]);
        let open =
            ToBroker::Open { run, policy: policy(terms.silence), limits: terms.limits, debits: terms.debits };
        self.supervisor.send(&open, &[listener.as_fd()]).unwrap();
        assert!(matches!(self.next(), FromBroker::Opened { run: opened } if opened == run));
        Run { broker: self, run, endpoint }
    }

    /// How many descriptors it has open; none: being not dumpable hides the list from all but root.
    pub(crate) fn descriptors(&self) -> Option<usize> {
        let list = std::fs::read_dir(format!("/proc/{}/fd", self.child.pid.as_raw_nonzero())).ok()?;
        Some(list.count())
    }

    /// Resident memory, KiB.
    pub(crate) fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// A number of its /proc/PID/status.
    pub(crate) fn status(&self, name: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.pid.as_raw_nonzero())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// What it wrote to its log so far.
    pub(crate) fn log(&self) -> String {
        let mut text = vec![0; 64 * 1024];
        rustix::io::ioctl_fionbio(&self.log, true).unwrap();
        let count = (&self.log).read(&mut text).unwrap_or(0);
        String::from_utf8_lossy(&text[..count]).into_owned()
    }

    /// Waits for its end.
    pub(crate) fn ended(&self) -> Status {
        let end = Instant::now() + WAIT;
        loop {
            let ask = Ask { no_hang: true, stopped: false };
            if let Some(status) = wait(self.child.pidfd.as_fd(), ask).unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the broker does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

pub(crate) fn policy(silence: Duration) -> ModelPolicy {
    ModelPolicy {
        model: MODEL.to_owned().try_into().unwrap(),
        output_tokens: 8192,
        silence: u64::try_from(silence.as_millis()).unwrap(),
    }
}

/// Where the proxy's connections lead.
pub(crate) enum Reach {
    To(SocketAddr),
    Nowhere(Reason),
    /// The proxy does not answer.
    Never,
    /// The proxy ends when it is asked.
    Gone,
}

fn be_the_proxy(channel: &Channel<FromDialer, ToDialer>, reach: &Reach, dials: &AtomicUsize) {
    while let Ok(Received::Message(ToDialer::Dial { dial }, _)) = channel.receive() {
        dials.fetch_add(1, Ordering::SeqCst);
        let sent = match reach {
            Reach::To(address) => match TcpStream::connect(address) {
                Ok(stream) => channel.send(&FromDialer::Dialled { dial }, &[stream.as_fd()]),
                Err(_) => channel.send(&FromDialer::Failed { dial, reason: Reason::ConnectFailed }, &[]),
            },
            Reach::Nowhere(reason) => channel.send(&FromDialer::Failed { dial, reason: *reason }, &[]),
            Reach::Never => continue,
            Reach::Gone => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// An open run.
pub(crate) struct Run<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) run: RunId,
    pub(crate) endpoint: SocketAddr,
}

impl Run<'_> {
    /// A new connection of the agent.
    pub(crate) fn connect(&self) -> Agent {
        agent(self.endpoint)
    }

    /// One question on a connection of its own.
    pub(crate) fn chat(&self, body: &str) -> Answer {
        let mut agent = self.connect();
        agent.post("/v1/chat/completions", "", body.as_bytes());
        agent.answer()
    }

    /// The next message, which must be a report.
    pub(crate) fn report(&self) -> RequestReport {
        match self.broker.next() {
            FromBroker::Request { run, report } if run == self.run => report,
            other => panic!("{other:?} where a report belongs"),
        }
    }

    /// Two reports of one request: it went out, it ended.
    pub(crate) fn both_reports(&self) -> (RequestReport, RequestReport) {
        let (out, end) = (self.report(), self.report());
        assert_eq!((out.request, out.ended, end.ended), (end.request, false, true));
        (out, end)
    }

    /// Ends the run.
    pub(crate) fn close(self) -> (Vec<RequestReport>, ModelTotals) {
        self.broker.supervisor.send(&ToBroker::Close { run: self.run }, &[]).unwrap();
        let mut reports = Vec::new();
        loop {
            match self.broker.next() {
                FromBroker::Request { report, .. } => reports.push(report),
                FromBroker::Closed { run, totals } => {
                    assert_eq!(run, self.run);
                    return (reports, totals);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A read with a time-out is interrupted by whatever stops the thread for a moment, as the start of another program does.
pub(crate) fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A new connection to an endpoint.
pub(crate) fn agent(endpoint: SocketAddr) -> Agent {
    let stream = TcpStream::connect(endpoint).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream.set_nodelay(true).unwrap();
    Agent { stream, host: endpoint.to_string(), held: Vec::new() }
}

/// A connection of an agent.
pub(crate) struct Agent {
    pub(crate) stream: TcpStream,
    host: String,
    held: Vec<u8>,
}

/// An answer as the agent sees it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// It ended as its framing says.
    pub(crate) whole: bool,
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find_map(|(field, value)| field.eq_ignore_ascii_case(name).then_some(value))
    }
}

impl Agent {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn post(&mut self, path: &str, headers: &str, body: &[u8]) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n",
            self.host,
            body.len()
        );
        self.send(&[head.as_bytes(), body].concat());
    }

    pub(crate) fn get(&mut self, method: &str, path: &str) {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.send(head.as_bytes());
    }

    fn more(&mut self) -> bool {
        let mut chunk = [0; 16 * 1024];
        let count = read(&mut self.stream, &mut chunk).unwrap_or(0);
        self.held.extend_from_slice(&chunk[..count]);
        count > 0
    }

    /// Everything up to and including a mark.
    pub(crate) fn until(&mut self, mark: &str) -> Option<String> {
        loop {
            if let Some(at) = self.held.windows(mark.len()).position(|window| window == mark.as_bytes()) {
                let taken: Vec<u8> = self.held.drain(..at + mark.len()).collect();
                return Some(String::from_utf8_lossy(&taken).into_owned());
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn exactly(&mut self, length: usize) -> (Vec<u8>, bool) {
        while self.held.len() < length {
            if !self.more() {
                return (std::mem::take(&mut self.held), false);
            }
        }
        (self.held.drain(..length).collect(), true)
    }

    /// The head of an answer.
    pub(crate) fn head(&mut self) -> String {
        self.until("\r\n\r\n").expect("an answer")
    }

    /// A whole answer.
    pub(crate) fn answer(&mut self) -> Answer {
        let head = self.head();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: String::new(), whole: false };
        if let Some(length) = answer.header("content-length") {
            let (body, whole) = self.exactly(length.parse().unwrap());
            answer.body = String::from_utf8_lossy(&body).into_owned();
            answer.whole = whole;
            return answer;
        }
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"), "{}", answer.head);
        while let Some(size) = self.until("\r\n") {
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let (chunk, whole) = self.exactly(size + 2);
            answer.body.push_str(&String::from_utf8_lossy(&chunk[..chunk.len().min(size)]));
            if size == 0 || !whole {
                answer.whole = whole && size == 0;
                break;
            }
        }
        answer
    }

    /// Whether the broker has closed the connection (or closes it in time).
    pub(crate) fn is_closed(&mut self) -> bool {
        !self.more() && self.held.is_empty()
    }

    /// Reads to the end of the connection, which comes.
    pub(crate) fn drain(&mut self) {
        let mut chunk = [0; 1024];
        loop {
            match read(&mut self.stream, &mut chunk) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => return assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            }
        }
    }

    pub(crate) fn leave(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// What the service got, and who is at the other end.
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: serde_json::Value,
    pub(crate) bytes: u64,
}

/// A model's service of one purpose: each connection is answered by `serve`, request by request, until it says no.
pub(crate) struct Model {
    pub(crate) address: SocketAddr,
    pub(crate) asked: mpsc::Receiver<Asked>,
}

impl Model {
    pub(crate) fn start(serve: impl Fn(&Asked, &mut TcpStream) -> bool + Send + Sync + 'static) -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, asked) = mpsc::channel();
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, serve, tell) = (stream.unwrap(), Arc::clone(&serve), tell.clone());
                std::thread::spawn(move || {
                    let mut agent =
                        Agent { stream: stream.try_clone().unwrap(), host: String::new(), held: Vec::new() };
                    while let Some(head) = agent.until("\r\n\r\n") {
                        let lower = head.to_ascii_lowercase();
                        let (_, rest) = lower.split_once("content-length: ").unwrap();
                        let length = rest.lines().next().unwrap().trim().parse().unwrap();
                        let (body, whole) = agent.exactly(length);
                        assert!(whole);
                        let bytes = u64::try_from(head.len() + body.len()).unwrap();
                        let asked = Asked { head, body: serde_json::from_slice(&body).unwrap(), bytes };
                        let goes_on = serve(&asked, &mut stream);
                        // The test may not look.
                        let _ = tell.send(asked);
                        if !goes_on {
                            return;
                        }
                    }
                });
            }
        });
        Model { address, asked }
    }

    /// One that answers every question the same.
    pub(crate) fn fixed(answer: &'static str) -> Model {
        Model::start(move |_, stream| stream.write_all(answer.as_bytes()).is_ok())
    }

    /// The next question, which must come.
    pub(crate) fn next(&self) -> Asked {
        self.asked.recv_timeout(WAIT).expect("a question")
    }

    /// A broker for it.
    pub(crate) fn broker(&self) -> Broker {
        Broker::start(
            &format!("http://{}/v1", self.address),
            Some(&format!("{KEY}\n")),
            Reach::To(self.address),
        )
    }
}
