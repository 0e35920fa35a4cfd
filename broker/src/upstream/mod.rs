//! The one service that the broker speaks to: connections that the proxy made, verified TLS over them, requests and
//! their answers.
//!
//! The broker has no socket of its own. [`Dialer`] asks the proxy for a connection, `tls` makes sure who is at its other
//! end, `link` speaks HTTP over it, `pool` keeps it for the next request, [`Body`] is an answer on its way, out of which
//! `redact` takes the key. `request` is what goes out. Nothing is ever sent twice: a request of which a byte may have left has reached the service, for all that
//! is known, and is paid for.

mod body;
mod dial;
mod link;
mod pool;
mod redact;
mod request;
mod roots;
mod tls;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::Full;
use ipc_proto::Upstream;
use ipc_proto::broker::UpstreamTrouble;
use ipc_proto::proxy::Reason;
use rustls::RootCertStore;
use tokio::time::timeout;

use self::body::Home;
use self::link::{Failed, Link};
use self::pool::Pool;
use self::redact::Redactor;
use self::tls::Security;
use crate::key::Key;
use crate::policy::Interface;

pub use body::Body;
pub use dial::{Dialer, Error};
pub use roots::system_roots;

/// How long a new connection may take, with the name's lookup and TLS: the proxy's own time-outs for both, one after the
/// other.
const CONNECT: Duration = Duration::from_secs(20);

/// A request as it goes out, but for what [`Upstreams::send`] adds: where to, the body's length and the key.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Of which interface.
    pub interface: Interface,
    /// Whether the agent asked with `?beta=true`.
    pub keep_beta: bool,
    /// Its headers, as the policy left them: no credential, no Host, nothing about the connection.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// The head of an answer, and the body that follows it.
#[derive(Debug)]
pub struct Incoming {
    /// The status: whatever the service says, also a redirect, which nobody follows.
    pub status: StatusCode,
    /// The headers, all of them but without the key: the policy decides which the agent sees.
    pub headers: HeaderMap,
    /// The body. Dropped before its end, the connection is closed.
    pub body: Body,
}

/// The service.
pub struct Upstreams {
    dialer: Dialer,
    upstream: Upstream,
    key: Option<Rc<Key>>,
    security: Security,
    pool: Rc<Pool>,
}

impl Upstreams {
    /// Speaks to `upstream` over the connections of `dialer`, with `key` if there is one; inside a `LocalSet`.
    #[must_use]
    pub fn new(dialer: Dialer, upstream: Upstream, key: Option<Key>, roots: Arc<RootCertStore>) -> Self {
        let security = Security::of(&upstream, roots);
        Upstreams { dialer, upstream, key: key.map(Rc::new), security, pool: Rc::default() }
    }

    /// Bytes of head and body exactly as they will be sent, before TLS.
    #[must_use]
    pub fn wire_size(&self, request: &Outgoing) -> u64 {
        request::wire_size(&self.upstream, self.key.as_deref(), request)
    }

    /// Sends a request and waits for the head of its answer, `silence` at most; as long may the body be silent between
    /// two pieces. Dropped before its end, it closes the connection.
    ///
    /// # Errors
    /// [`UpstreamTrouble`]: nothing of an answer came.
    pub async fn send(&self, request: Outgoing, silence: Duration) -> Result<Incoming, UpstreamTrouble> {
        let request =
            request::build(&self.upstream, self.key.as_deref(), request).ok_or(UpstreamTrouble::Malformed)?;
        let request = match self.pool.take().await {
            None => request,
            Some(link) => match self.exchange(link, request, silence).await {
                Ok(incoming) => return Ok(incoming),
                // It was closed while it was kept, and the service has seen nothing: another one, once.
                Err(Failed::Unsent(request)) => *request,
                Err(Failed::Lost(trouble)) => return Err(trouble),
            },
        };
        let opened = timeout(CONNECT, self.open()).await;
        let link = opened.unwrap_or(Err(UpstreamTrouble::Unreachable(Reason::ConnectTimeout)))?;
        self.exchange(link, request, silence).await.map_err(|failed| match failed {
            Failed::Unsent(_) => UpstreamTrouble::Cut,
            Failed::Lost(trouble) => trouble,
        })
    }

    async fn open(&self) -> Result<Link, UpstreamTrouble> {
        let stream = self.dialer.connect().await.map_err(UpstreamTrouble::Unreachable)?;
        match &self.security {
            Security::Plain => Link::open(stream).await,
            Security::Tls(tls) => Link::open(tls.connect(stream).await?).await,
            Security::Unusable => Err(UpstreamTrouble::Untrusted),
        }
    }

    async fn exchange(
        &self,
        mut link: Link,
        request: Request<Full<Bytes>>,
        silence: Duration,
    ) -> Result<Incoming, Failed> {
        let answered = timeout(silence, link.send(request)).await;
        let (mut head, answer) = answered.unwrap_or(Err(Failed::Lost(UpstreamTrouble::Silent)))?.into_parts();
        if !is_plain(&head) {
            return Err(Failed::Lost(UpstreamTrouble::Malformed));
        }
        let home = Home { pool: Rc::clone(&self.pool), idle: pool::idle(&head.headers) };
        let redactor = Redactor::new(self.key.as_ref());
        redactor.headers(&mut head.headers);
        let body = Body::new(answer, link, home, redactor, silence);
        Ok(Incoming { status: head.status, headers: head.headers, body })
    }
}

/// Whether an answer is what was asked for: no other protocol, and nothing compressed, which nobody here could read and
/// an agent was not told of.
fn is_plain(head: &http::response::Parts) -> bool {
    let identity = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    !head.status.is_informational() && head.headers.get_all(CONTENT_ENCODING).iter().all(identity)
}

#[cfg(test)]
mod tests;
