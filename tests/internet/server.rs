//! The servers of the far side: one listener for all addresses, a service for each host, counts of everything.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::authority;

/// How often something that waits looks whether its network has ended.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// A peer that is silent for longer is given up, so that no thread outlives its test by much.
const SILENCE: Duration = Duration::from_secs(60);

/// A host of the far side: its addresses, and what reached it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    received: AtomicU64,
}

impl Host {
    pub(super) fn new(name: &str, v4: Ipv4Addr, v6: Ipv6Addr) -> Host {
        Host { name: name.to_owned(), v4, v6, counts: Arc::default() }
    }

    /// Connections so far.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// Bytes received on all connections so far, TLS included.
    pub fn received(&self) -> u64 {
        self.counts.received.load(Ordering::SeqCst)
    }

    /// Waits until this many bytes are there (they may still be on their way when a client ends); at most two seconds.
    pub fn wait_received(&self, bytes: u64) -> u64 {
        let end = Instant::now() + Duration::from_secs(2);
        while self.received() < bytes && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        self.received()
    }
}

/// A connection that counts what it receives.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    counts: Arc<Counts>,
}

impl Read for Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.counts.received.fetch_add(length as u64, Ordering::SeqCst);
        Ok(length)
    }
}

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Raw {
    /// The connection itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// One HTTP request.
#[derive(Clone, Debug)]
pub struct Request {
    /// GET, POST ...
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Header names in lower case.
    pub headers: HashMap<String, String>,
    /// The body, unchunked.
    pub body: Vec<u8>,
}

impl Request {
    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or(&self.target)
    }
}

/// One HTTP answer.
#[derive(Clone, Debug)]
pub struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    /// 200 with this body.
    pub fn ok(body: impl Into<Vec<u8>>) -> Response {
        Response { status: 200, headers: Vec::new(), body: body.into() }
    }

    /// 404.
    pub fn not_found() -> Response {
        Response { status: 404, headers: Vec::new(), body: b"not here\n".to_vec() }
    }

    /// Another status.
    pub fn status(mut self, status: u16) -> Response {
        self.status = status;
        self
    }

    /// With this header.
    pub fn header(mut self, name: &str, value: &str) -> Response {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

type Handler = dyn Fn(&Request) -> Response + Send + Sync;

#[derive(Clone)]
enum Service {
    Https(Arc<Handler>),
    Raw(Arc<dyn Fn(Raw) + Send + Sync>),
}

/// Everything that listens.
#[derive(Default)]
pub(super) struct World {
    services: Mutex<HashMap<IpAddr, (Service, Arc<Counts>)>>,
    strays: Arc<Mutex<Vec<SocketAddr>>>,
    listeners: Mutex<Vec<SocketAddr>>,
    stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}

impl World {
    pub(super) fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    pub(super) fn strays(&self) -> Vec<SocketAddr> {
        self.strays.lock().expect("lock").clone()
    }

    /// Addresses of services on the near side, for waking them at the end.
    pub(super) fn host_listeners(&self) -> Vec<SocketAddr> {
        self.listeners.lock().expect("lock").iter().copied().filter(|a| !a.ip().is_unspecified()).collect()
    }

    pub(super) fn add_https(
        &self,
        host: &Host,
        handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) {
        self.add(host, Service::Https(Arc::new(handler)));
    }

    pub(super) fn add_raw(&self, host: &Host, handler: impl Fn(Raw) + Send + Sync + 'static) {
        self.add(host, Service::Raw(Arc::new(handler)));
    }

    fn add(&self, host: &Host, service: Service) {
        let mut services = self.services.lock().expect("lock");
        for address in [IpAddr::V4(host.v4), IpAddr::V6(host.v6)] {
            services.insert(address, (service.clone(), Arc::clone(&host.counts)));
        }
    }

    /// Serves the hosts, each connection by the address that it was made to.
    pub(super) fn serve(self: &Arc<Self>, listener: TcpListener) {
        let world = Arc::clone(self);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if world.stop.load(Ordering::Relaxed) {
                    return;
                }
                let world = Arc::clone(&world);
                thread::spawn(move || world.connection(stream));
            }
        });
    }

    fn connection(&self, stream: TcpStream) {
        let Ok(address) = stream.local_addr() else { return };
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let service = self.services.lock().expect("lock").get(&address.ip()).cloned();
        let Some((service, counts)) = service else {
            return self.strays.lock().expect("lock").push(address);
        };
        counts.connections.fetch_add(1, Ordering::SeqCst);
        let _ = stream.set_read_timeout(Some(SILENCE));
        let raw = Raw { stream, counts };
        match service {
            Service::Raw(handler) => handler(raw),
            // A client that breaks off is no fault of the server: the test looks at the client.
            Service::Https(handler) => drop(https(raw, &*handler)),
        }
    }

    /// Greets and notes every connection: nobody should make one.
    pub(super) fn note_strays(&self, listener: TcpListener) {
        let strays = Arc::clone(&self.strays);
        let stop = self.stop();
        self.listeners.lock().expect("lock").extend(listener.local_addr());
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                strays.lock().expect("lock").extend(stream.local_addr());
                let _ = stream.write_all(b"hello\n");
            }
        });
    }
}

/// One request after another over TLS, until the client is silent.
fn https(raw: Raw, handler: &Handler) -> io::Result<()> {
    let tls = rustls::ServerConnection::new(authority::server_config()).map_err(io::Error::other)?;
    let mut stream = BufReader::new(rustls::StreamOwned::new(tls, raw));
    while let Some(request) = read_request(&mut stream)? {
        let response = handler(&request);
        let mut head =
            format!("HTTP/1.1 {} x\r\nContent-Length: {}\r\n", response.status, response.body.len());
        for (name, value) in &response.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let out = stream.get_mut();
        out.write_all(head.as_bytes())?;
        if request.method != "HEAD" {
            out.write_all(&response.body)?;
        }
        out.flush()?;
    }
    stream.get_mut().conn.send_close_notify();
    stream.get_mut().flush()
}

fn read_request(stream: &mut impl io::BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = HashMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|v| v.contains("chunked")) {
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            stream.take(size).read_to_end(&mut body)?;
            line.clear();
            stream.read_line(&mut line)?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = headers.get("content-length").and_then(|v| v.parse::<u64>().ok()) {
        stream.take(length).read_to_end(&mut body)?;
    }
    Ok(Some(Request { method, target, headers, body }))
}
