//! Who is at the other end.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;

const NAME: &str = "models.example.com";

/// An authority of the test's own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }

    /// A service with a certificate for this name, which is out of date or not.
    fn service(&self, name: &str, expired: bool) -> TlsAcceptor {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2020, 2, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A service by TLS: what is sent to it, and what it makes of the handshake.
async fn by_tls(
    host: &'static str,
    roots: RootCertStore,
    acceptor: TlsAcceptor,
) -> (Result<Incoming, UpstreamTrouble>, Option<TlsStream<TcpStream>>, Stage) {
    let base = move |address: SocketAddr| format!("https://{host}:{}", address.port());
    let stage = Stage::with(base, roots, Some(key())).await;
    let service = async {
        let mut stream = acceptor.accept(stage.accept().await).await.ok()?;
        let request = read_request(&mut stream).await;
        assert!(request.contains(&format!("x-api-key: {KEY}\r\n")), "{request}");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        stream.write_all(OK).await.unwrap();
        Some(stream)
    };
    let (answer, stream) = tokio::join!(stage.send(), service);
    (answer, stream, stage)
}

/// MOD-12: the service of the address is spoken to, by name and by address, with the key inside TLS; and the connection
/// is kept.
#[test]
fn the_right_service_is_trusted() {
    let authority = Authority::new();
    for host in [NAME, "localhost", "127.0.0.1", "[::1]"] {
        let acceptor = authority.service(host.trim_matches(['[', ']']), false);
        on_stage(async {
            let (answer, stream, stage) = by_tls(host, authority.roots(), acceptor).await;
            assert_eq!(text(answer.unwrap()).await.unwrap(), "ok", "{host}");
            let mut stream = stream.unwrap();
            let again = async {
                read_request(&mut stream).await;
                stream.write_all(OK).await.unwrap();
            };
            let (answer, ()) = tokio::join!(stage.send(), again);
            assert_eq!(text(answer.unwrap()).await.unwrap(), "ok");
            assert_eq!(stage.dials.get(), 1);
        });
    }
}

/// MOD-12: whoever cannot prove to be the service gets no byte of a request: another name or address, an unknown
/// authority, a certificate out of date, an empty store.
#[test]
fn nobody_else_is_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    for (host, roots, acceptor) in [
        (NAME, authority.roots(), authority.service("other.example.com", false)),
        (NAME, authority.roots(), authority.service("models.example.com.example.org", false)),
        (NAME, authority.roots(), authority.service("127.0.0.1", false)),
        ("127.0.0.1", authority.roots(), authority.service(NAME, false)),
        ("127.0.0.1", authority.roots(), authority.service("127.0.0.2", false)),
        (NAME, authority.roots(), authority.service(NAME, true)),
        (NAME, authority.roots(), other.service(NAME, false)),
        (NAME, RootCertStore::empty(), authority.service(NAME, false)),
    ] {
        on_stage(async {
            let (answer, stream, _) = by_tls(host, roots, acceptor).await;
            let error = answer.unwrap_err();
            assert_eq!(error, UpstreamTrouble::Untrusted);
            assert!(stream.is_none(), "the handshake must not have ended");
            assert!(!format!("{error:?}").contains(KEY));
        });
    }
}

/// A service that speaks no TLS is not trusted; one that goes away in the handshake is not reached.
#[test]
fn what_is_no_tls_gets_no_request() {
    for (answer, trouble) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], UpstreamTrouble::Untrusted),
        (b"", UpstreamTrouble::Unreachable(Reason::ConnectFailed)),
    ] {
        on_stage(async {
            let base = |address: SocketAddr| format!("https://localhost:{}", address.port());
            let stage = Stage::with(base, Authority::new().roots(), Some(key())).await;
            let service = async {
                let mut stream = stage.accept().await;
                let mut hello = vec![0; 8192];
                let count = stream.read(&mut hello).await.unwrap();
                assert!(!hello[..count].windows(KEY.len()).any(|window| window == KEY.as_bytes()));
                stream.write_all(answer).await.unwrap();
            };
            let (answer, ()) = tokio::join!(stage.send(), service);
            assert_eq!(answer.unwrap_err(), trouble);
        });
    }
}

/// A body without a length ends with the connection: only TLS can tell its end from a cut, and it does.
#[test]
fn an_end_without_goodbye_is_a_cut() {
    let authority = Authority::new();
    for goodbye in [true, false] {
        let acceptor = authority.service("localhost", false);
        on_stage(async {
            let base = |address: SocketAddr| format!("https://localhost:{}", address.port());
            let stage = Stage::with(base, authority.roots(), None).await;
            let service = async {
                let mut stream = acceptor.accept(stage.accept().await).await.unwrap();
                read_request(&mut stream).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nall of it").await.unwrap();
                stream.flush().await.unwrap();
                if goodbye {
                    stream.shutdown().await.unwrap();
                }
            };
            let (answer, ()) = tokio::join!(stage.send(), service);
            let expected = if goodbye { Ok("all of it".to_owned()) } else { Err(UpstreamTrouble::Cut) };
            assert_eq!(text(answer.unwrap()).await, expected);
        });
    }
}
