//! A certificate authority made for this process: its certificate is the near side's whole certificate store.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    /// One key for all names: these servers have no secret.
    key: KeyPair,
    issued: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, "anet test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let ca_key = KeyPair::generate().expect("a key");
    let pem = params.self_signed(&ca_key).expect("a certificate").pem();
    Authority {
        issuer: Issuer::new(params, ca_key),
        pem,
        key: KeyPair::generate().expect("a key"),
        issued: Mutex::new(HashMap::new()),
    }
});

/// The authority's certificate.
pub(super) fn certificate_pem() -> &'static str {
    &AUTHORITY.pem
}

fn certify(name: &str) -> Arc<CertifiedKey> {
    let mut issued = AUTHORITY.issued.lock().expect("lock");
    let new = || {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a host name");
        let certificate = params.signed_by(&AUTHORITY.key, &AUTHORITY.issuer).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(AUTHORITY.key.serialize_der()));
        let key = ring::sign::any_supported_type(&key).expect("a key that ring knows");
        Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key))
    };
    Arc::clone(issued.entry(name.to_owned()).or_insert_with(new))
}

/// Shows each client a certificate for the name that it asked for, whatever it is: what the proxy lets through wrongly
/// succeeds, instead of failing for another reason.
#[derive(Debug)]
struct AnyName;

impl ResolvesServerCert for AnyName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(certify(hello.server_name().unwrap_or("nameless.example.com")))
    }
}

/// The TLS configuration of all servers.
pub(crate) fn server_config() -> Arc<rustls::ServerConfig> {
    static CONFIG: LazyLock<Arc<rustls::ServerConfig>> = LazyLock::new(|| {
        let builder = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder =
            builder.with_safe_default_protocol_versions().expect("TLS 1.2 and 1.3").with_no_client_auth();
        let mut config = builder.with_cert_resolver(Arc::new(AnyName));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    });
    Arc::clone(&CONFIG)
}
