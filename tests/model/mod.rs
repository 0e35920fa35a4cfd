//! Model services in the box: they speak the interfaces of the real ones, stream as they do, and are as strict about
//! what they get. What reaches one is recorded whole, so that a test can say what came through the broker.
//!
//! What a service answers is a script ([`script`]): a first request that offers a tool gets a call of it that makes
//! `hello.txt`, a request with the tool's result gets a sentence. The task's text can order something else, by
//! directives such as `[[status:429]]`.

mod anthropic;
mod chat;
mod http;
mod responses;
mod script;
mod serve;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::internet::{Host, Internet};

pub use script::{COMMAND, DONE, FILE};

/// The host of Anthropic's service.
pub const ANTHROPIC: &str = "api.anthropic.com";
/// The host of OpenAI's service.
pub const OPENAI: &str = "api.openai.com";
/// A header that a service sends with every answer and that is the operator's business alone.
pub const PRIVATE_HEADER: (&str, &str) =
    ("set-cookie", "__cf_bm=cookie-of-the-operator; path=/; HttpOnly; Secure");

/// Which interfaces a service has, and how strict it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Messages and count_tokens.
    Anthropic,
    /// Responses and Chat Completions, as api.openai.com takes them.
    OpenAi,
    /// The same interfaces and Messages, as compatible services take them.
    Compatible,
}

/// How the exchange of one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It goes on.
    Open,
    /// The answer was sent as it was meant.
    Answered,
    /// The client was gone before that.
    ClientGone,
}

/// A request as it reached the service.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Which connection of the service it came on, counted from 1.
    pub connection: u64,
    /// The name in the client's TLS hello; none where it spoke plain HTTP.
    pub tls_name: Option<String>,
    /// Request line and header lines, in their order, without line ends.
    pub head: Vec<String>,
    /// The body, unchunked.
    pub body: Vec<u8>,
    /// When its last byte was there.
    pub at: Instant,
    /// The status of the answer; 0 while there is none.
    pub status: u16,
    /// How it ended.
    pub end: End,
}

impl Recorded {
    /// The method.
    pub fn method(&self) -> &str {
        self.head.first().and_then(|line| line.split(' ').next()).unwrap_or_default()
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        self.head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default()
    }

    /// The path alone.
    pub fn path(&self) -> &str {
        self.target().split('?').next().unwrap_or_default()
    }

    /// Every value of this header, which is named in lower case.
    pub fn values(&self, name: &str) -> Vec<&str> {
        let lines = self.head.iter().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    /// The only value of this header.
    pub fn header(&self, name: &str) -> Option<&str> {
        match self.values(name).as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The names of its headers, in lower case.
    pub fn names(&self) -> Vec<String> {
        let lines = self.head.iter().skip(1).filter_map(|line| line.split_once(':'));
        lines.map(|(name, _)| name.to_ascii_lowercase()).collect()
    }

    /// The body.
    ///
    /// # Panics
    /// When it is no JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }
}

/// What the threads of a service share.
#[derive(Debug)]
pub(crate) struct Shared {
    kind: Kind,
    /// The key that is asked for; none: anybody may.
    key: Option<String>,
    log: Mutex<Vec<Recorded>>,
    connections: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn new(kind: Kind, key: Option<&str>) -> Arc<Shared> {
        Arc::new(Shared {
            kind,
            key: key.map(str::to_owned),
            log: Mutex::default(),
            connections: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    fn record(&self, request: Recorded) -> usize {
        let mut log = self.log.lock().expect("lock");
        log.push(request);
        log.len() - 1
    }

    fn note(&self, number: usize, change: impl FnOnce(&mut Recorded)) {
        // It may have been forgotten meanwhile.
        self.log.lock().expect("lock").get_mut(number).map(change);
    }
}

/// A model service.
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
    base: String,
    host: Option<Host>,
}

impl Service {
    /// Anthropic's, which wants this key.
    pub fn anthropic(net: &Internet, key: &str) -> Service {
        Service::https(net, ANTHROPIC, Kind::Anthropic, key)
    }

    /// OpenAI's, which wants this key.
    pub fn openai(net: &Internet, key: &str) -> Service {
        Service::https(net, OPENAI, Kind::OpenAi, key)
    }

    /// One under another name that is compatible with both, and wants this key.
    pub fn compatible(net: &Internet, name: &str, key: &str) -> Service {
        Service::https(net, name, Kind::Compatible, key)
    }

    /// The compatible one at an address of the test's choice, such as a private one.
    pub fn compatible_at(net: &Internet, name: &str, address: Ipv4Addr, key: &str) -> Service {
        let shared = Shared::new(Kind::Compatible, Some(key));
        let served = Arc::clone(&shared);
        let host = net.raw_at(name, address, move |raw| serve::tls(&served, raw));
        Service { shared, base: format!("https://{name}/v1"), host: Some(host) }
    }

    fn https(net: &Internet, name: &str, kind: Kind, key: &str) -> Service {
        let shared = Shared::new(kind, Some(key));
        let served = Arc::clone(&shared);
        let host = net.raw(name, move |raw| serve::tls(&served, raw));
        Service { shared, base: format!("https://{name}/v1"), host: Some(host) }
    }

    /// A model server of the operator's own machine: plain HTTP on the near side's loopback, and no key.
    pub fn loopback(net: &Internet) -> Service {
        let listener =
            net.inside(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a port of the loopback");
        Service::plain(listener, true, None)
    }

    /// Plain HTTP on this listener: as a compatible service, or as Anthropic's.
    pub fn plain(listener: TcpListener, compatible: bool, key: Option<&str>) -> Service {
        let shared = Shared::new(if compatible { Kind::Compatible } else { Kind::Anthropic }, key);
        let address = listener.local_addr().expect("its address");
        listener.set_nonblocking(true).expect("a listener that does not wait");
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            while !served.stop.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                let served = Arc::clone(&served);
                thread::spawn(move || serve::plain(&served, stream));
            }
        });
        Service { shared, base: format!("http://{address}/v1"), host: None }
    }

    /// What `--api-base` is for it.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Where it listens, if it is one of the machine's own.
    pub fn address(&self) -> Option<SocketAddr> {
        self.base.strip_prefix("http://")?.strip_suffix("/v1")?.parse().ok()
    }

    /// Its host in the network.
    ///
    /// # Panics
    /// When it is one of the machine's own.
    pub fn host(&self) -> &Host {
        self.host.as_ref().expect("a service behind the network")
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.log.lock().expect("lock").clone()
    }

    /// Waits until the last request's exchange has ended; at most five seconds.
    pub fn settled(&self) -> Vec<Recorded> {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let requests = self.requests();
            if requests.iter().all(|r| r.end != End::Open) || Instant::now() > end {
                return requests;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Takes the requests so far out of the record, once their exchanges have ended.
    pub fn take(&self) -> Vec<Recorded> {
        self.settled();
        std::mem::take(&mut *self.shared.log.lock().expect("lock"))
    }

    /// Connections so far: fewer than requests where the client keeps them.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
