//! The service is a raw socket here, that sees every byte; the proxy is a task that connects to it.

use std::cell::Cell;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use http_body_util::BodyExt;
use ipc_proto::dial::{FromDialer, ToDialer};
use ipc_proto::line::Line;
use ipc_proto::{Channel, Received};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;

use super::*;

mod answers;
mod kept;
mod requests;
mod tls;

/// Longer than anything here takes.
const WAIT: Duration = Duration::from_secs(20);
/// A silence that no test reaches unless it wants to.
const PATIENT: Duration = Duration::from_secs(20);
const KEY: &str = "sk-canary-0123456789";
/// The smallest good answer.
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn on_stage<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async { timeout(WAIT, test).await.unwrap() }))
}

fn key() -> Key {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(KEY.as_bytes()).unwrap();
    drop(writer);
    Key::read(reader.into()).unwrap()
}

/// A dialer whose proxy connects to `address`, and how often it did.
fn dialer_to(address: SocketAddr) -> (Dialer, Rc<Cell<u32>>) {
    let (broker, proxy) = Channel::<ToDialer, FromDialer>::pair().unwrap();
    let (dialer, proxy) = (Dialer::new(broker).unwrap(), Line::new(proxy).unwrap());
    let dials = Rc::new(Cell::new(0));
    let (driven, counted) = (dialer.clone(), Rc::clone(&dials));
    spawn_local(async move { driven.run().await.unwrap() });
    spawn_local(async move {
        loop {
            match proxy.receive().await.unwrap() {
                Received::Message(ToDialer::Dial { dial }, _) => {
                    let stream = TcpStream::connect(address).await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    counted.set(counted.get() + 1);
                    proxy.send(&FromDialer::Dialled { dial }, &[stream.as_fd()]).await.unwrap();
                }
                Received::Empty => {}
                Received::Closed => return,
            }
        }
    });
    (dialer, dials)
}

struct Stage {
    upstreams: Upstreams,
    listener: TcpListener,
    dials: Rc<Cell<u32>>,
}

impl Stage {
    async fn new() -> Stage {
        Stage::with(|address| format!("http://{address}"), RootCertStore::empty(), None).await
    }

    /// With the address of its service, as an operator would write it.
    async fn with(base: impl Fn(SocketAddr) -> String, roots: RootCertStore, key: Option<Key>) -> Stage {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (dialer, dials) = dialer_to(address);
        let upstream = base(address).parse().unwrap();
        Stage { upstreams: Upstreams::new(dialer, upstream, key, Arc::new(roots)), listener, dials }
    }

    async fn accept(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    async fn send(&self) -> Result<Incoming, UpstreamTrouble> {
        self.upstreams.send(outgoing(), PATIENT).await
    }

    /// One request on a new connection, answered with these bytes; the service's end stays open.
    async fn answered(&self, answer: &[u8]) -> (Result<Incoming, UpstreamTrouble>, TcpStream) {
        let service = async {
            let mut stream = self.accept().await;
            read_request(&mut stream).await;
            stream.write_all(answer).await.unwrap();
            stream
        };
        tokio::join!(self.send(), service)
    }

    /// As [`Stage::answered`], but the service closes after its answer.
    async fn answered_and_closed(&self, answer: &[u8]) -> Result<Incoming, UpstreamTrouble> {
        self.answered(answer).await.0
    }
}

fn outgoing() -> Outgoing {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "application/json".parse().unwrap());
    Outgoing {
        interface: Interface::Messages,
        keep_beta: false,
        headers,
        body: Bytes::from_static(b"{\"model\":\"m\"}"),
    }
}

/// One request, head and body, as it came.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = vec![0; 65536];
        let count = stream.read(&mut chunk).await.unwrap();
        assert!(count > 0, "the request ended early");
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some(head) = text.find("\r\n\r\n") else { continue };
        let length =
            text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
        if bytes.len() >= head + 4 + length.parse::<usize>().unwrap() {
            return text.into_owned();
        }
    }
}

/// Whether the other end closes within a second; what it still says is read.
async fn closes(stream: &mut TcpStream) -> bool {
    let end = async {
        let mut chunk = vec![0; 65536];
        while matches!(stream.read(&mut chunk).await, Ok(1..)) {}
    };
    timeout(Duration::from_secs(1), end).await.is_ok()
}

async fn text(incoming: Incoming) -> Result<String, UpstreamTrouble> {
    let bytes = incoming.body.collect().await?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}
