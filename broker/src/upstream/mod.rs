//! The one service that the broker speaks to: connections that the proxy made, verified TLS over them, requests and
//! their answers.
//!
//! The broker has no socket of its own. [`Dialer`] asks the proxy for a connection, TLS makes sure who is at its other
//! end, a pool keeps connections for the next request, [`Body`] is an answer on its way.

mod body;
mod dial;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use ipc_proto::Upstream;
use ipc_proto::broker::{Interface, UpstreamTrouble};
use rustls::RootCertStore;

use crate::key::Key;

pub use body::Body;
pub use dial::{Dialer, Error};

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
    /// The status.
    pub status: StatusCode,
    /// The headers, all of them: the policy decides which the agent sees.
    pub headers: HeaderMap,
    /// The body. Dropped before its end, the connection is closed.
    pub body: Body,
}

/// The service.
pub struct Upstreams {}

impl Upstreams {
    /// Speaks to `upstream` over the connections of `dialer`, with `key` if there is one.
    #[must_use]
    pub fn new(_dialer: Dialer, _upstream: Upstream, _key: Option<Key>, _roots: Arc<RootCertStore>) -> Self {
        Upstreams {}
    }

    /// Bytes of head and body exactly as they will be sent, before TLS.
    #[must_use]
    pub fn wire_size(&self, _request: &Outgoing) -> u64 {
        0
    }

    /// Sends a request and waits for the head of its answer, `silence` at most; as long may the body be silent between
    /// two pieces.
    ///
    /// # Errors
    /// [`UpstreamTrouble`]: nothing of an answer came.
    pub async fn send(&self, _request: Outgoing, _silence: Duration) -> Result<Incoming, UpstreamTrouble> {
        Err(UpstreamTrouble::Malformed)
    }
}

/// The certificates that the system trusts. Needs files, so it is called before the process is confined.
#[must_use]
pub fn system_roots() -> RootCertStore {
    RootCertStore::empty()
}
