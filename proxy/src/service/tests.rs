//! The whole proxy on loopback: a test is the supervisor, the run and the host at once. Only how hosts are reached is
//! another one, since loopback has no public address.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipc_proto::Upstream;
use ipc_proto::dial::{FromDialer, ToDialer};
use ipc_proto::proxy::{Class, Debits, Decision, Reason, TunnelLimits, TunnelReport};
use tokio::task::LocalSet;

use super::*;
use crate::client_hello::tests::Hello;
use crate::reach::{Reached, Unreached};

const HOST: &str = "api.example.com";
const WAIT: Duration = Duration::from_secs(20);
/// A server hello that ends the part of a connection which the proxy reads: type 2, version, a random of no retry.
const ANSWER: [u8; 43] = {
    let mut bytes = [7; 43];
    (bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]) = (22, 3, 3, 0, 38);
    (bytes[5], bytes[6], bytes[7], bytes[8], bytes[9], bytes[10]) = (2, 0, 0, 34, 3, 3);
    bytes
};

/// How the process ended, and how often a host was reached for.
type Ended = (Result<(), Error>, u32);
type Supervisor = Channel<ToProxy, FromProxy>;

/// Reaches every listed host at one loopback address, and counts.
struct Loopback {
    host: SocketAddr,
    result: Option<Reason>,
    reached: Cell<u32>,
}

impl Reach for Loopback {
    async fn reach(&self, _: &HostName) -> Result<Reached, Unreached> {
        self.reached.set(self.reached.get() + 1);
        let addresses = vec!["10.0.0.1".parse().unwrap()];
        if let Some(reason) = self.result {
            return Err(Unreached { reason, addresses });
        }
        let stream = tokio::net::TcpStream::connect(self.host).await.unwrap();
        Ok(Reached { stream, addresses })
    }

    async fn reach_service(&self, service: &Upstream) -> Result<Reached, Unreached> {
        self.reach(&service.host().to_string().parse().unwrap()).await
    }
}

/// The proxy in a thread of its own, with everybody around it.
struct Stage {
    supervisor: Supervisor,
    host: StdListener,
    endpoint: SocketAddr,
    run: RunId,
    thread: JoinHandle<Ended>,
}

#[derive(Clone, Copy, Default)]
struct Terms {
    limits: TunnelLimits,
    debits: Debits,
    unreachable: Option<Reason>,
}

fn bare(unreachable: Option<Reason>) -> (Supervisor, StdListener, JoinHandle<Ended>) {
    beside(unreachable, None)
}

fn beside(
    unreachable: Option<Reason>,
    broker: Option<Broker>,
) -> (Supervisor, StdListener, JoinHandle<Ended>) {
    let (supervisor, proxy) = Supervisor::pair().unwrap();
    let host = StdListener::bind("127.0.0.1:0").unwrap();
    let address = host.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let reached = Rc::new(Loopback { host: address, result: unreachable, reached: Cell::new(0) });
        let ended = runtime.block_on(LocalSet::new().run_until(serve(proxy, Rc::clone(&reached), 7, broker)));
        (ended, reached.reached.get())
    });
    (supervisor, host, thread)
}

impl Reach for Rc<Loopback> {
    async fn reach(&self, host: &HostName) -> Result<Reached, Unreached> {
        (**self).reach(host).await
    }

    async fn reach_service(&self, service: &Upstream) -> Result<Reached, Unreached> {
        (**self).reach_service(service).await
    }
}

impl Stage {
    fn open(terms: Terms) -> Stage {
        let (supervisor, host, thread) = bare(terms.unreachable);
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let run = RunId::new(1, [1; 4]);
        let hosts = vec![HOST.parse().unwrap()];
        supervisor.send(&ToProxy::Hosts { run, hosts }, &[]).unwrap();
        let Terms { limits, debits, .. } = terms;
        let open = ToProxy::Open { run, hosts: 1, limits, debits };
        supervisor.send(&open, &[listener.as_fd()]).unwrap();
        let endpoint = listener.local_addr().unwrap();
        let opened = Stage { supervisor, host, endpoint, run, thread };
        assert!(matches!(opened.next(), FromProxy::Hello { landlock: 7 }));
        assert!(matches!(opened.next(), FromProxy::Opened { .. }));
        opened
    }

    fn next(&self) -> FromProxy {
        next(&self.supervisor)
    }

    fn report(&self) -> TunnelReport {
        match self.next() {
            FromProxy::Tunnel { run, report } if run == self.run => report,
            other => panic!("no report: {other:?}"),
        }
    }

    fn tell(&self, message: ToProxy) {
        self.supervisor.send(&message, &[]).unwrap();
    }

    fn client(&self) -> StdStream {
        let stream = StdStream::connect(self.endpoint).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream
    }

    /// Sends bytes on a new connection and returns all that is answered.
    fn answer_to(&self, request: &[u8]) -> String {
        let mut client = self.client();
        client.write_all(request).unwrap();
        text(&mut client)
    }

    /// A standing tunnel: the client's end and the host's.
    fn tunnel(&self) -> (StdStream, StdStream) {
        let mut client = self.client();
        client.write_all(connect(HOST).as_bytes()).unwrap();
        assert_eq!(head(&mut client), "HTTP/1.1 200 Connection established\r\n\r\n");
        let (server, _) = self.host.accept().unwrap();
        server.set_read_timeout(Some(WAIT)).unwrap();
        (client, server)
    }

    /// A tunnel past the hello and its answer.
    fn shaken(&self) -> (StdStream, StdStream) {
        let (mut client, mut server) = self.tunnel();
        client.write_all(&hello()).unwrap();
        expect(&mut server, &hello());
        server.write_all(&ANSWER).unwrap();
        expect(&mut client, &ANSWER);
        (client, server)
    }

    /// Ends the run and the process; how often a host was reached for.
    fn close(self) -> (Vec<TunnelReport>, TunnelTotals, u64, u32) {
        self.tell(ToProxy::Close { run: self.run });
        let mut reports = Vec::new();
        let (totals, unused) = loop {
            match self.next() {
                FromProxy::Tunnel { report, .. } => reports.push(report),
                FromProxy::Closed { totals, unused, .. } => break (totals, unused),
                other => panic!("{other:?}"),
            }
        };
        drop(self.supervisor);
        let (ended, reached) = self.thread.join().unwrap();
        ended.unwrap();
        (reports, totals, unused, reached)
    }
}

fn next(supervisor: &Supervisor) -> FromProxy {
    let started = Instant::now();
    while started.elapsed() < WAIT {
        match supervisor.try_receive().unwrap() {
            Received::Message(message, _) => return message,
            Received::Empty => std::thread::sleep(Duration::from_millis(1)),
            Received::Closed => panic!("the proxy is gone"),
        }
    }
    panic!("nothing came");
}

fn connect(host: &str) -> String {
    format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n")
}

fn hello() -> Vec<u8> {
    Hello::for_host(HOST).wire()
}

fn text(stream: &mut StdStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn head(stream: &mut StdStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}

fn expect(stream: &mut StdStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    stream.read_exact(&mut read).unwrap();
    assert_eq!(read, bytes);
}

/// How many bytes come until the end, whichever way it comes.
fn count_to_end(stream: &mut StdStream) -> u64 {
    let (mut total, mut buffer) = (0, vec![0; 65536]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return total,
            Ok(count) => total += count as u64,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
                return total;
            }
        }
    }
}

/// EGR-5, LIM-1: a tunnel carries every byte both ways, closes one way at a time, and its counts are exact.
#[test]
fn a_tunnel_carries_every_byte() {
    let anet = Stage::open(Terms::default());
    let (mut client, mut server) = anet.shaken();
    let stands = anet.report();
    assert_eq!((stands.decision, stands.reason, stands.ended), (Decision::Allow, Reason::Listed, false));
    assert_eq!(
        (stands.host.as_str(), stands.port, stands.class, stands.attempt),
        (HOST, 443, Class::ThirdParty, 1)
    );
    let data: Vec<u8> = (0..3_000_000u32).map(|place| (place % 251) as u8).collect();
    let sent = data.clone();
    let mut writer = client.try_clone().unwrap();
    let up = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    assert!(received == data);
    up.join().unwrap();
    // The client has finished; the host has not.
    server.write_all(&data[..1_000_000]).unwrap();
    drop(server);
    assert_eq!(count_to_end(&mut client), 1_000_000);
    let ended = anet.report();
    assert!(ended.ended);
    assert_eq!((ended.bytes_out, ended.bytes_in), (3_000_000 + hello().len() as u64, 1_000_000 + 43));
    let (_, totals, unused, reached) = anet.close();
    assert_eq!((totals.sent, totals.received), (ended.bytes_out, ended.bytes_in));
    assert_eq!((totals.open, totals.total, totals.connections, unused, reached), (1, 1, 1, 0, 1));
}

/// A client may send its hello before the answer: it belongs to the tunnel.
#[test]
fn a_hello_sent_ahead_is_not_lost() {
    let anet = Stage::open(Terms::default());
    let mut client = anet.client();
    client.write_all(&[connect(HOST).as_bytes(), &hello()].concat()).unwrap();
    let (mut server, _) = anet.host.accept().unwrap();
    expect(&mut server, &hello());
    anet.close();
}

/// EGR-3, EGR-7, EGR-8: what is not on the list is refused with a sentence, and nobody is asked for it.
#[test]
fn what_is_not_listed_is_refused_and_not_looked_up() {
    let anet = Stage::open(Terms::default());
    for (host, sentence) in [
        ("evil.com", "anet: evil.com is not an allowed host of this run; asking again changes nothing"),
        ("api.example.com.evil.com", "is not an allowed host"),
        ("API.example.com", "names are compared exactly: write it in lower case"),
        ("1.1.1.1", "anet: 1.1.1.1 is an IP address and only names are served"),
    ] {
        let answer = anet.answer_to(connect(host).as_bytes());
        assert!(answer.starts_with("HTTP/1.1 403 anet: "), "{answer}");
        assert!(answer.contains("\r\nProxy-Status: anet; error=http_request_denied; "), "{answer}");
        assert!(answer.contains(sentence), "{answer}");
        let report = anet.report();
        assert_eq!((report.decision, report.class, report.ended), (Decision::Deny, Class::Unknown, true));
        assert_eq!(report.host, host);
    }
    for (request, status) in [
        ("GET http://api.example.com/ HTTP/1.1\r\n\r\n", "405"),
        ("CONNECT api.example.com:443 HTTP/3.0\r\n", "505"),
        ("nonsense\r\n", "400"),
    ] {
        let answer = anet.answer_to(request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} anet: ")), "{answer}");
        anet.report();
    }
    assert_eq!(anet.close().3, 0);
}

/// EGR-4, EGR-7, BUD-6: a bad address is a refusal of class internal; a host that cannot be reached is a failure.
#[test]
fn hosts_that_are_not_reached() {
    for (reason, status, class, decision) in [
        (Reason::AddressPrivate, "403", Class::Internal, Decision::Deny),
        (Reason::AddressOwn, "403", Class::Internal, Decision::Deny),
        (Reason::NameNotFound, "502", Class::ThirdParty, Decision::Fail),
        (Reason::DnsIncomplete, "502", Class::ThirdParty, Decision::Fail),
        (Reason::ConnectFailed, "502", Class::ThirdParty, Decision::Fail),
        (Reason::ConnectTimeout, "504", Class::ThirdParty, Decision::Fail),
    ] {
        let anet = Stage::open(Terms { unreachable: Some(reason), ..Terms::default() });
        let answer = anet.answer_to(connect(HOST).as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} anet: ")), "{answer}");
        let report = anet.report();
        assert_eq!(
            (report.reason, report.class, report.decision, report.ended),
            (reason, class, decision, true)
        );
        assert_eq!(report.addresses.len(), 1);
        // A tunnel that never stood is not one of those in all.
        assert_eq!(anet.close().1.total, 0);
    }
}

/// EGR-5, table D 97: a refused hello reaches nobody; the client is told, and the reason is recorded.
#[test]
fn a_refused_hello_sends_no_byte() {
    let anet = Stage::open(Terms::default());
    for (bytes, reason, told) in [
        (Hello::for_host("evil.com").wire(), Reason::SniMismatch, &crate::refusal::ALERT[..]),
        (b"SSH-2.0-OpenSSH\r\n".to_vec(), Reason::NotTls, b"anet: the tunnel did not begin with TLS"),
        ([hello(), vec![23, 3, 3, 0, 1, 0]].concat(), Reason::EarlyData, &crate::refusal::ALERT),
    ] {
        let (mut client, mut server) = anet.tunnel();
        anet.report();
        client.write_all(&bytes).unwrap();
        assert_eq!(count_to_end(&mut server), 0);
        let mut answer = vec![0; told.len()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, told);
        let report = anet.report();
        assert_eq!(
            (report.reason, report.decision, report.bytes_out, report.ended),
            (reason, Decision::Deny, 0, true)
        );
    }
    anet.close();
}

/// EGR-5, table D 96: after a retry request the second hello is checked like the first.
#[test]
fn the_hello_after_a_retry_is_checked() {
    let mut retry = ANSWER;
    retry[11..43].copy_from_slice(&[
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
        0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ]);
    let anet = Stage::open(Terms::default());
    for (name, passes) in [(HOST, true), ("evil.com", false)] {
        let (mut client, mut server) = anet.tunnel();
        anet.report();
        client.write_all(&hello()).unwrap();
        expect(&mut server, &hello());
        server.write_all(&retry).unwrap();
        // More of the server's answer than the proxy reads itself: it must not wait for the client.
        server.write_all(&[1; 1000]).unwrap();
        expect(&mut client, &retry);
        expect(&mut client, &[1; 1000]);
        let second = [&[20, 3, 3, 0, 1, 1], Hello::for_host(name).wire().as_slice()].concat();
        client.write_all(&second).unwrap();
        if passes {
            expect(&mut server, &second);
            client.write_all(b"more").unwrap();
            expect(&mut server, b"more");
            drop(client);
            drop(server);
            assert_eq!(anet.report().reason, Reason::Listed);
        } else {
            drop(client);
            assert_eq!(count_to_end(&mut server), 0);
            drop(server);
            let report = anet.report();
            assert_eq!((report.reason, report.bytes_out), (Reason::RetryMismatch, hello().len() as u64));
        }
    }
    anet.close();
}

/// LIM-1: so many bytes sent pass, one more does not, and the tunnel then ends with the limit's name.
#[test]
fn bytes_sent_are_limited_exactly() {
    let limit = hello().len() as u64 + 100_000;
    let limits = TunnelLimits { sent: Some(limit), ..TunnelLimits::default() };
    let anet = Stage::open(Terms { limits, ..Terms::default() });
    let (mut client, mut server) = anet.shaken();
    anet.report();
    client.write_all(&[5; 100_000]).unwrap();
    expect(&mut server, &[5; 100_000]);
    // Exactly at the limit the tunnel lives, and the other way is open.
    server.write_all(b"still here").unwrap();
    expect(&mut client, b"still here");
    client.write_all(&[6]).unwrap();
    assert_eq!(count_to_end(&mut server), 0);
    drop(server);
    assert_eq!(count_to_end(&mut client), 0);
    let report = anet.report();
    assert_eq!(
        (report.reason, report.decision, report.bytes_out),
        (Reason::LimitTunnelSent, Decision::Deny, limit)
    );
    let answer = anet.answer_to(connect(HOST).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("(tunnel_sent)"), "{answer}");
    assert_eq!(anet.report().reason, Reason::LimitTunnelSent);
    assert_eq!(anet.close().1.sent, limit);
}

/// LIM-1: a client that ends exactly at the limit has exceeded nothing.
#[test]
fn an_end_at_the_limit_is_no_refusal() {
    let limit = hello().len() as u64 + 1000;
    let limits = TunnelLimits { sent: Some(limit), ..TunnelLimits::default() };
    let anet = Stage::open(Terms { limits, ..Terms::default() });
    let (mut client, mut server) = anet.shaken();
    anet.report();
    client.write_all(&[5; 1000]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(count_to_end(&mut server), 1000);
    drop(server);
    assert_eq!(anet.report().reason, Reason::Listed);
    anet.close();
}

/// LIM-1: so many bytes received pass, one more does not.
#[test]
fn bytes_received_are_limited_exactly() {
    let limits = TunnelLimits { received: Some(43 + 5000), ..TunnelLimits::default() };
    let anet = Stage::open(Terms { limits, ..Terms::default() });
    let (mut client, mut server) = anet.shaken();
    anet.report();
    server.write_all(&[5; 5000]).unwrap();
    expect(&mut client, &[5; 5000]);
    server.write_all(&[6]).unwrap();
    assert_eq!(count_to_end(&mut client), 0);
    drop(client);
    drop(server);
    let report = anet.report();
    assert_eq!((report.reason, report.bytes_in), (Reason::LimitTunnelReceived, 43 + 5000));
    anet.close();
}

/// LIM-1, BUD-2: tunnels that push at once can never together pass a limit by one byte.
#[test]
fn tunnels_together_hold_the_limit() {
    const TUNNELS: u64 = 6;
    let limit = TUNNELS * hello().len() as u64 + 5_000_003;
    let limits = TunnelLimits { sent: Some(limit), ..TunnelLimits::default() };
    let anet = Stage::open(Terms { limits, ..Terms::default() });
    let pairs: Vec<_> = (0..TUNNELS)
        .map(|_| {
            let pair = anet.shaken();
            anet.report();
            pair
        })
        .collect();
    let mut counters = Vec::new();
    let mut writers = Vec::new();
    for (mut client, mut server) in pairs {
        writers.push(std::thread::spawn(move || {
            // Until the proxy ends it.
            while client.write_all(&[1; 50_000]).is_ok() {}
        }));
        counters.push(std::thread::spawn(move || count_to_end(&mut server)));
    }
    let received: u64 = counters.into_iter().map(|counter| counter.join().unwrap()).sum();
    assert_eq!(received, 5_000_003);
    for writer in writers {
        writer.join().unwrap();
    }
    let out: u64 = (0..TUNNELS).map(|_| anet.report()).map(|report| report.bytes_out).sum();
    assert_eq!(out, limit);
    assert_eq!(anet.close().1.sent, limit);
}

/// LIM-1: the 17th tunnel at once; after one was closed there is a place again.
#[test]
fn tunnels_at_once_are_limited_exactly() {
    let limits = TunnelLimits { open: Some(16), ..TunnelLimits::default() };
    let anet = Stage::open(Terms { limits, ..Terms::default() });
    let mut tunnels: Vec<_> = (0..16).map(|_| anet.tunnel()).collect();
    (0..16).for_each(|_| assert_eq!(anet.report().reason, Reason::Listed));
    let answer = anet.answer_to(connect(HOST).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("(tunnels_open)"), "{answer}");
    assert_eq!(anet.report().reason, Reason::LimitTunnelsOpen);
    tunnels.pop();
    assert!(anet.report().ended);
    tunnels.push(anet.tunnel());
    let totals = anet.close().1;
    assert_eq!((totals.open, totals.total), (16, 17));
}

/// LIM-1: the 257th tunnel in all.
#[test]
fn tunnels_in_all_are_limited_exactly() {
    let limits = TunnelLimits { total: Some(256), ..TunnelLimits::default() };
    let anet = Stage::open(Terms { limits, ..Terms::default() });
    for _ in 0..256 {
        drop(anet.tunnel());
        assert!(!anet.report().ended);
        assert!(anet.report().ended);
    }
    let answer = anet.answer_to(connect(HOST).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("(tunnels_total)"), "{answer}");
    assert_eq!(anet.report().reason, Reason::LimitTunnelsTotal);
    assert_eq!(anet.close().1.total, 256);
}

/// LIM-1: the 33rd connection at once is answered before it has said a word.
#[test]
fn connections_are_limited_exactly() {
    let limits = TunnelLimits { connections: Some(32), ..TunnelLimits::default() };
    let anet = Stage::open(Terms { limits, ..Terms::default() });
    let mut silent: Vec<StdStream> = (0..32).map(|_| anet.client()).collect();
    let answer = text(&mut anet.client());
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("(endpoint_connections)"), "{answer}");
    let report = anet.report();
    assert_eq!((report.reason, report.host.as_str(), report.port), (Reason::LimitEndpointConnections, "", 0));
    // Whoever has spoken already gets the answer too, not a reset.
    assert!(anet.answer_to(connect(HOST).as_bytes()).contains("(endpoint_connections)"));
    assert_eq!(anet.report().reason, Reason::LimitEndpointConnections);
    silent.pop();
    std::thread::sleep(Duration::from_millis(100));
    let mut freed = anet.client();
    freed.write_all(connect(HOST).as_bytes()).unwrap();
    assert!(head(&mut freed).starts_with("HTTP/1.1 200 "));
    assert_eq!(anet.close().1.connections, 32);
}

/// BUD-2: bytes leave only against a lease; one question at a time; 0 ends it.
#[test]
fn bytes_out_are_leased() {
    let debits = Debits { destinations: false, bytes_out: Some(hello().len() as u64 + 10) };
    let anet = Stage::open(Terms { debits, ..Terms::default() });
    let (mut client, mut server) = anet.shaken();
    anet.report();
    client.write_all(&[1; 25]).unwrap();
    expect(&mut server, &[1; 10]);
    assert!(matches!(anet.next(), FromProxy::WantBytes { .. }));
    anet.tell(ToProxy::Lease { run: anet.run, bytes: 20 });
    expect(&mut server, &[1; 15]);
    // The lease is not used up, so nobody asks.
    client.write_all(&[2; 6]).unwrap();
    expect(&mut server, &[2; 5]);
    assert!(matches!(anet.next(), FromProxy::WantBytes { .. }));
    anet.tell(ToProxy::Lease { run: anet.run, bytes: 0 });
    assert_eq!(count_to_end(&mut server), 0);
    drop(server);
    drop(client);
    let report = anet.report();
    assert_eq!((report.reason, report.bytes_out), (Reason::Budget, hello().len() as u64 + 30));
    let answer = anet.answer_to(connect(HOST).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403 anet: this run's budget"), "{answer}");
    anet.report();
    let (_, totals, unused, _) = anet.close();
    assert_eq!((totals.sent, unused), (report.bytes_out, 0));
}

/// BUD-2: what of a lease was not used is said at the end.
#[test]
fn an_unused_lease_is_returned() {
    let debits = Debits { destinations: false, bytes_out: Some(100_000) };
    let anet = Stage::open(Terms { debits, ..Terms::default() });
    let (mut client, mut server) = anet.shaken();
    client.write_all(&[1; 1000]).unwrap();
    expect(&mut server, &[1; 1000]);
    let (_, totals, unused, _) = anet.close();
    assert_eq!((totals.sent, unused), (hello().len() as u64 + 1000, 99_000 - hello().len() as u64));
}

/// BUD-2: what of a lease is not used can be called back while the run goes on; what went out stays out, and the next
/// byte asks.
#[test]
fn an_unused_lease_can_be_called_back() {
    let debits = Debits { destinations: false, bytes_out: Some(100_000) };
    let anet = Stage::open(Terms { debits, ..Terms::default() });
    let (mut client, mut server) = anet.shaken();
    anet.report();
    client.write_all(&[1; 1000]).unwrap();
    expect(&mut server, &[1; 1000]);
    anet.tell(ToProxy::Recall { run: anet.run });
    let FromProxy::Recalled { unused, .. } = anet.next() else { panic!() };
    assert_eq!(unused, 99_000 - hello().len() as u64);
    client.write_all(&[2; 7]).unwrap();
    assert!(matches!(anet.next(), FromProxy::WantBytes { .. }));
    // The two cross: nothing is left, and the question stands.
    anet.tell(ToProxy::Recall { run: anet.run });
    assert!(matches!(anet.next(), FromProxy::Recalled { unused: 0, .. }));
    anet.tell(ToProxy::Lease { run: anet.run, bytes: 10 });
    expect(&mut server, &[2; 7]);
    let (_, totals, unused, _) = anet.close();
    assert_eq!((totals.sent, unused), (hello().len() as u64 + 1007, 3));
}

/// BUD-2: a destination is debited before it is looked up; without a debit nothing is.
#[test]
fn destinations_are_debited_first() {
    for granted in [true, false] {
        let debits = Debits { destinations: true, bytes_out: None };
        let anet = Stage::open(Terms { debits, ..Terms::default() });
        let mut client = anet.client();
        client.write_all(connect(HOST).as_bytes()).unwrap();
        let FromProxy::WantDestination { run, attempt, host } = anet.next() else { panic!() };
        assert_eq!(host.as_str(), HOST);
        anet.tell(ToProxy::Destination { run, attempt, granted });
        if granted {
            assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
            anet.report();
            // It is not asked for again.
            assert!(anet.tunnel().0.peer_addr().is_ok());
            assert_eq!(anet.report().attempt, 2);
        } else {
            assert!(text(&mut client).starts_with("HTTP/1.1 403 anet: this run's budget"));
            let report = anet.report();
            assert_eq!((report.reason, report.class), (Reason::Budget, Class::ThirdParty));
        }
        assert_eq!(anet.close().3, if granted { 2 } else { 0 });
    }
}

/// EGR-5, tables B and D 98, 99: one deadline for the whole head and one for the whole hello, however slowly bytes come.
#[test]
fn slow_clients_meet_one_deadline() {
    let anet = Stage::open(Terms::default());
    let started = Instant::now();
    let mut silent = anet.client();
    let mut slow = anet.client();
    slow.write_all(b"CONNECT ").unwrap();
    let (mut mute, mut first_host) = anet.tunnel();
    let (mut dripping, mut second_host) = anet.tunnel();
    (0..2).for_each(|_| assert!(!anet.report().ended));
    let hello = hello();
    let mut dripped = 0;
    while started.elapsed() < Duration::from_millis(9200) {
        std::thread::sleep(Duration::from_millis(800));
        slow.write_all(b"a").unwrap();
        dripping.write_all(&hello[dripped..=dripped]).unwrap();
        dripped += 1;
    }
    assert!(text(&mut slow).starts_with("HTTP/1.1 408 anet: "));
    assert_eq!(text(&mut silent), "");
    assert!(text(&mut mute).starts_with("anet: the first TLS message did not come within 10 seconds"));
    assert!(text(&mut dripping).starts_with("anet: the first TLS message did not come"));
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
    assert_eq!(count_to_end(&mut first_host) + count_to_end(&mut second_host), 0);
    let mut reasons: Vec<Reason> = (0..3).map(|_| anet.report().reason).collect();
    reasons.sort_by_key(|reason| reason.as_str());
    assert_eq!(reasons, [Reason::HeadTimeout, Reason::HelloTimeout, Reason::HelloTimeout]);
    anet.close();
}

/// LIM: the run's end ends everything of it at once, and each tunnel is reported with its last counts.
#[test]
fn the_end_of_a_run_ends_its_tunnels() {
    let anet = Stage::open(Terms::default());
    let (mut client, mut server) = anet.shaken();
    anet.report();
    let mut idle = anet.client();
    client.write_all(b"twelve bytes").unwrap();
    expect(&mut server, b"twelve bytes");
    let endpoint = anet.endpoint;
    let (reports, totals, ..) = anet.close();
    let [report] = reports.as_slice() else { panic!("{reports:?}") };
    assert_eq!((report.reason, report.decision, report.ended), (Reason::RunEnded, Decision::Allow, true));
    assert_eq!((report.bytes_out, totals.sent), (hello().len() as u64 + 12, report.bytes_out));
    assert_eq!(count_to_end(&mut client) + count_to_end(&mut server) + count_to_end(&mut idle), 0);
    assert!(StdStream::connect(endpoint).is_err());
}

/// LIM: the end waits for nobody: not for a refused client that is still listened to, not for a name that is asked for.
#[test]
fn the_end_of_a_run_is_prompt() {
    let debits = Debits { destinations: true, bytes_out: None };
    let anet = Stage::open(Terms { debits, ..Terms::default() });
    let mut refused = anet.client();
    refused.write_all(connect("evil.com").as_bytes()).unwrap();
    assert_eq!(anet.report().reason, Reason::NotListed);
    let mut waiting = anet.client();
    waiting.write_all(connect(HOST).as_bytes()).unwrap();
    assert!(matches!(anet.next(), FromProxy::WantDestination { .. }));
    let started = Instant::now();
    let (reports, ..) = anet.close();
    assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
    let [report] = reports.as_slice() else { panic!("{reports:?}") };
    assert_eq!((report.reason, report.decision), (Reason::RunEnded, Decision::Fail));
}

/// A run's name is free once it has closed.
#[test]
fn a_run_can_follow_another_of_its_name() {
    let (supervisor, _host, thread) = bare(None);
    assert!(matches!(next(&supervisor), FromProxy::Hello { .. }));
    let run = RunId::new(9, [9; 4]);
    for _ in 0..3 {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let open =
            ToProxy::Open { run, hosts: 0, limits: TunnelLimits::default(), debits: Debits::default() };
        supervisor.send(&open, &[listener.as_fd()]).unwrap();
        assert!(matches!(next(&supervisor), FromProxy::Opened { .. }));
        supervisor.send(&ToProxy::Close { run }, &[]).unwrap();
        assert!(matches!(next(&supervisor), FromProxy::Closed { .. }));
    }
    drop(supervisor);
    thread.join().unwrap().0.unwrap();
}

/// PRV-5: a message that its state does not expect ends the process, closed.
#[test]
fn unexpected_messages_end_the_process() {
    let run = RunId::new(1, [1; 4]);
    let hosts = |count: usize| vec![HOST.parse().unwrap(); count];
    let open =
        |hosts| ToProxy::Open { run, hosts, limits: TunnelLimits::default(), debits: Debits::default() };
    let cases: Vec<(&str, Vec<ToProxy>)> = vec![
        ("close", vec![ToProxy::Close { run }]),
        ("lease", vec![ToProxy::Lease { run, bytes: 1 }]),
        ("destination", vec![ToProxy::Destination { run, attempt: 1, granted: true }]),
        ("short list", vec![ToProxy::Hosts { run, hosts: hosts(1) }, open(2)]),
        ("long list", vec![ToProxy::Hosts { run, hosts: hosts(2) }, open(1)]),
        ("too many at once", vec![ToProxy::Hosts { run, hosts: hosts(33) }]),
        (
            "too many",
            vec![
                ToProxy::Hosts { run, hosts: hosts(32) },
                ToProxy::Hosts { run, hosts: hosts(32) },
                ToProxy::Hosts { run, hosts: hosts(1) },
            ],
        ),
        ("open twice", vec![open(0), open(0)]),
        ("hosts when open", vec![open(0), ToProxy::Hosts { run, hosts: hosts(1) }]),
        ("unasked lease", vec![open(0), ToProxy::Lease { run, bytes: 1 }]),
        ("unasked destination", vec![open(0), ToProxy::Destination { run, attempt: 1, granted: true }]),
        ("recall", vec![ToProxy::Recall { run }]),
        ("recall of nothing", vec![open(0), ToProxy::Recall { run }]),
        ("close twice", vec![open(0), ToProxy::Close { run }, ToProxy::Close { run }]),
    ];
    for (name, messages) in cases {
        let (supervisor, _host, thread) = bare(None);
        for message in messages {
            let listener = StdListener::bind("127.0.0.1:0").unwrap();
            let fds = [listener.as_fd()];
            let count = ipc_proto::Message::descriptors(&message);
            supervisor.send(&message, &fds[..count]).unwrap();
        }
        let error = thread.join().unwrap().0.expect_err(name);
        assert!(matches!(error, Error::Channel(ChannelError::Unexpected { .. })), "{name}: {error}");
    }
}

/// PRV-5: a descriptor that is no listener.
#[test]
fn a_descriptor_that_is_no_listener_ends_the_process() {
    let (supervisor, _host, thread) = bare(None);
    let run = RunId::new(1, [1; 4]);
    let open = ToProxy::Open { run, hosts: 0, limits: TunnelLimits::default(), debits: Debits::default() };
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    supervisor.send(&open, &[socket.as_fd()]).unwrap();
    assert!(matches!(thread.join().unwrap().0, Err(Error::Listener(_))));
}

/// A supervisor that is slow to listen loses nothing: whoever has something to report waits.
#[test]
fn no_report_is_lost() {
    const ATTEMPTS: u32 = 600;
    let anet = Stage::open(Terms::default());
    let endpoint = anet.endpoint;
    let clients = std::thread::spawn(move || {
        let clients: Vec<StdStream> = (0..ATTEMPTS)
            .map(|_| {
                let mut client = StdStream::connect(endpoint).unwrap();
                client.write_all(b"nonsense\r\n").unwrap();
                client
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        drop(clients);
    });
    clients.join().unwrap();
    let mut attempts: Vec<u32> = (0..ATTEMPTS).map(|_| anet.report().attempt).collect();
    attempts.sort_unstable();
    assert!(attempts.into_iter().eq(1..=ATTEMPTS));
    anet.close();
}

/// MOD-12: the broker gets its connections beside the tunnels, each recorded; its end changes nothing for them.
#[test]
fn a_broker_is_served_beside_the_tunnels() {
    let (broker, channel) = Channel::<ToDialer, FromDialer>::pair().unwrap();
    let service = "https://models.example.com".parse().unwrap();
    let (supervisor, host, thread) = beside(None, Some(Broker { channel, service }));
    assert!(matches!(next(&supervisor), FromProxy::Hello { .. }));
    broker.send(&ToDialer::Dial { dial: 1 }, &[]).unwrap();
    let FromProxy::Dialled(report) = next(&supervisor) else { panic!("no report") };
    assert_eq!(
        (report.decision, report.reason, report.addresses.len()),
        (Decision::Allow, Reason::Configured, 1)
    );
    let Received::Message(FromDialer::Dialled { dial: 1 }, descriptors) = broker.receive().unwrap() else {
        panic!("no connection")
    };
    let mut near = StdStream::from(descriptors.into_iter().next().unwrap());
    let (mut far, _) = host.accept().unwrap();
    near.set_nonblocking(false).unwrap();
    near.write_all(b"hello").unwrap();
    expect(&mut far, b"hello");
    drop(broker);
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let run = RunId::new(1, [1; 4]);
    let open = ToProxy::Open { run, hosts: 0, limits: TunnelLimits::default(), debits: Debits::default() };
    supervisor.send(&open, &[listener.as_fd()]).unwrap();
    assert!(matches!(next(&supervisor), FromProxy::Opened { .. }));
    // A connection that was passed on is none of the proxy's any more.
    near.write_all(b"still").unwrap();
    expect(&mut far, b"still");
    drop(supervisor);
    thread.join().unwrap().0.unwrap();
}

/// PRV-5: a broker that breaks its protocol ends the process too.
#[test]
fn a_broker_that_breaks_the_protocol_ends_the_process() {
    let (broker, channel) = Channel::<ToDialer, FromDialer>::pair().unwrap();
    let service = "https://models.example.com".parse().unwrap();
    let (_supervisor, _host, thread) = beside(None, Some(Broker { channel, service }));
    broker.send(&ToDialer::Dial { dial: 7 }, &[]).unwrap();
    let ended = thread.join().unwrap().0;
    assert!(matches!(ended, Err(Error::Channel(ChannelError::Unexpected { .. }))), "{ended:?}");
}
