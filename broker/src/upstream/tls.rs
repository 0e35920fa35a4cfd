//! Who is at the other end of a connection: TLS, verified against the system's store, for the very host of `api_base`.

use std::io;
use std::sync::Arc;

use ipc_proto::Upstream;
use ipc_proto::broker::UpstreamTrouble;
use ipc_proto::proxy::Reason;
use ipc_proto::upstream::{Scheme, UpstreamHost};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The one protocol that is spoken inside (RFC 7301).
const ALPN: &[u8] = b"http/1.1";

/// How a connection is protected.
pub(super) enum Security {
    /// Not at all: to this host's loopback only, which the address's own reader sees to (MOD-15).
    Plain,
    /// TLS for a host.
    Tls(Tls),
    /// The TLS library refuses what it is given, which neither the checked host nor its own provider can bring about.
    /// Nothing is sent then.
    Unusable,
}

/// TLS 1.2 or 1.3 for one host.
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Security {
    /// What the address asks for.
    pub(super) fn of(upstream: &Upstream, roots: Arc<RootCertStore>) -> Security {
        match upstream.scheme() {
            Scheme::Http => Security::Plain,
            Scheme::Https => Tls::new(upstream.host(), roots).map_or(Security::Unusable, Security::Tls),
        }
    }
}

impl Tls {
    fn new(host: &UpstreamHost, roots: Arc<RootCertStore>) -> Option<Tls> {
        let name = match host {
            UpstreamHost::Name(name) => ServerName::try_from(name.clone()).ok()?,
            UpstreamHost::Address(address) => ServerName::from(*address),
        };
        // Named, not the process's default, which some other crate might set. Versions 1.2 and 1.3; sessions are resumed out
        // of memory; no early data, which a stranger on the way could send again.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Some(Tls { connector: TlsConnector::from(Arc::new(config)), name })
    }

    /// The handshake.
    ///
    /// # Errors
    /// [`UpstreamTrouble::Untrusted`] for whatever TLS has against the other end; unreachable when it went away.
    pub(super) async fn connect(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, UpstreamTrouble> {
        self.connector.connect(self.name.clone(), stream).await.map_err(|error| trouble(&error))
    }
}

fn trouble(error: &io::Error) -> UpstreamTrouble {
    let of_tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    if of_tls { UpstreamTrouble::Untrusted } else { UpstreamTrouble::Unreachable(Reason::ConnectFailed) }
}
