//! Many runs over one channel, for days.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ipc_proto::RunId;
use ipc_proto::broker::{FromBroker, ModelLimits, ModelTotals, ToBroker};

use crate::exchange::{CHAT, OK};
use crate::stage::{Agent, Broker, Model, WAIT, agent, policy};

/// So many at once.
const AT_ONCE: u64 = 20;
/// So many times.
const ROUNDS: u64 = 15;
/// Requests of each.
const REQUESTS: u64 = 3;
/// Connections to the service that are kept for the next request, at most.
const KEPT: usize = 16;
/// What the process may grow by in all rounds after the first two, in KiB: less than 3 KiB a run.
const MOST_GROWTH: u64 = 768;

/// A sequence that looks like chance and is the same each time (xorshift, Marsaglia 2003).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(most).unwrap()).unwrap()
    }
}

/// What the supervisor hears of many runs, sorted.
struct Heard<'a> {
    broker: &'a Broker,
    opened: HashSet<RunId>,
    ended: HashMap<RunId, u64>,
    closed: HashMap<RunId, ModelTotals>,
}

impl Heard<'_> {
    fn next(&mut self) {
        match self.broker.next() {
            FromBroker::Opened { run } => assert!(self.opened.insert(run)),
            FromBroker::Request { run, report } => {
                assert!(self.opened.contains(&run) && !self.closed.contains_key(&run), "{run} {report:?}");
                *self.ended.entry(run).or_default() += u64::from(report.ended);
            }
            FromBroker::Want { run, request, .. } => {
                self.broker.supervisor.send(&ToBroker::Debit { run, request, granted: true }, &[]).unwrap();
            }
            FromBroker::Closed { run, totals } => assert!(self.closed.insert(run, totals).is_none()),
            other => panic!("{other:?}"),
        }
    }

    fn until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        while !done(self) {
            self.next();
        }
    }
}

/// PRV-5, PRV-6: twenty runs at once, each with its own answers, reports and totals; they end in any order, also with a
/// connection open and a request under way; a run's listener is closed with it, so that its namespace ends; and three hundred
/// of them leave no descriptor, no task and no memory behind.
#[test]
fn runs_come_and_go_for_days() {
    // A question that says so gets no answer, only the first bytes of one.
    let model = Model::start(|asked, stream| {
        let text = asked.body["messages"][0]["content"].as_str().unwrap();
        if text == "hang" {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 9\r\n\r\nhalf");
            let _ = crate::stage::read(stream, &mut [0]);
            return false;
        }
        stream.write_all(OK.as_bytes()).is_ok()
    });
    let broker = model.broker();
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let mut heard =
        Heard { broker: &broker, opened: HashSet::new(), ended: HashMap::new(), closed: HashMap::new() };
    let at_first = broker.descriptors();
    let (mut table, mut resident) = (0, 0);
    for round in 0..ROUNDS {
        let mut runs: Vec<(RunId, SocketAddr, Agent)> = (0..AT_ONCE)
            .map(|number| {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let endpoint = listener.local_addr().unwrap();
                let run = RunId::new(round * AT_ONCE + number, [7; 4]);
                let debits = number % 2 == 0;
                let limits = ModelLimits { requests: Some(REQUESTS + 1), ..ModelLimits::default() };
                let open = ToBroker::Open { run, policy: policy(WAIT), limits, debits };
                broker.supervisor.send(&open, &[listener.as_fd()]).unwrap();
                drop(listener);
                (run, endpoint, agent(endpoint))
            })
            .collect();
        for _ in 0..REQUESTS {
            for (_, _, agent) in &mut runs {
                agent.post("/v1/chat/completions", "", CHAT.as_bytes());
            }
            let all: Vec<RunId> = runs.iter().map(|(run, ..)| *run).collect();
            let before: Vec<u64> =
                all.iter().map(|run| heard.ended.get(run).copied().unwrap_or_default()).collect();
            heard.until(|heard| {
                all.iter()
                    .zip(&before)
                    .all(|(run, before)| heard.ended.get(run).is_some_and(|now| now > before))
            });
            for (_, _, agent) in &mut runs {
                assert_eq!(agent.answer().status, 200);
            }
        }
        // Some end in the middle of an answer.
        for (_, _, agent) in runs.iter_mut().filter(|_| chance.below(3) == 0) {
            agent.post("/v1/chat/completions", "", CHAT.replace("hi", "hang").as_bytes());
            let asked = Instant::now();
            agent.stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
            while agent.stream.peek(&mut [0]).unwrap_or(0) == 0 {
                // A debit may be asked for.
                if let Ok(ipc_proto::Received::Message(message, _)) = broker.supervisor.try_receive() {
                    match message {
                        FromBroker::Want { run, request, .. } => {
                            let debit = ToBroker::Debit { run, request, granted: true };
                            broker.supervisor.send(&debit, &[]).unwrap();
                        }
                        FromBroker::Request { report, .. } => assert!(!report.ended),
                        other => panic!("{other:?}"),
                    }
                }
                assert!(asked.elapsed() < WAIT);
            }
            agent.stream.set_read_timeout(Some(WAIT)).unwrap();
        }
        while !runs.is_empty() {
            let (run, endpoint, mut agent) = runs.swap_remove(chance.below(runs.len()));
            broker.supervisor.send(&ToBroker::Close { run }, &[]).unwrap();
            heard.until(|heard| heard.closed.contains_key(&run));
            let totals = heard.closed[&run];
            let went_out = heard.ended[&run];
            assert_eq!((totals.requests, totals.refused, totals.connections), (went_out, 0, 1));
            assert!((REQUESTS..=REQUESTS + 1).contains(&went_out));
            let refused = TcpStream::connect_timeout(&endpoint, Duration::from_secs(1)).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "its listener lives on");
            agent.drain();
        }
        assert_eq!(broker.status("Threads:"), 1);
        // Root sees each descriptor; anybody sees whether the table of them had to grow after all were open at once.
        if let (Some(first), Some(now)) = (at_first, broker.descriptors()) {
            assert!(now <= first + KEPT, "{now} descriptors after round {round}, {first} at first");
        }
        match round {
            0 => {}
            // Its allocator has settled.
            1 => (table, resident) = (broker.status("FDSize:"), broker.resident()),
            _ => assert_eq!(broker.status("FDSize:"), table),
        }
    }
    let grown = broker.resident().saturating_sub(resident);
    assert!(grown < MOST_GROWTH, "{grown} KiB");
    assert_eq!(u64::try_from(heard.closed.len()).unwrap(), AT_ONCE * ROUNDS);
    assert_eq!(broker.log(), "");
}
