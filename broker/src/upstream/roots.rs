//! The certificates that the system trusts.

use std::path::Path;

use rustls::RootCertStore;
use rustls_native_certs::load_certs_from_paths;

/// Where systems keep all of their certificates in one file: Debian and Arch, Fedora, openSUSE, Alpine.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Where systems keep them one by one.
const DIRECTORY: &str = "/etc/ssl/certs";

/// The system's store. Needs files, so it is called before the process is confined; no variable of the environment has a
/// say in it. Where there is no store it is empty, and no certificate is trusted.
///
/// One file takes 5 ms (measured on Debian 12, unoptimised); the directory, which has the same certificates again in 290
/// files, takes 25 ms and is only read where there is no such file.
#[must_use]
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let bundle = |path: &&str| load_certs_from_paths(Some(Path::new(path)), None).certs;
    let found = BUNDLES.iter().map(bundle).find(|certificates| !certificates.is_empty());
    let certificates = found.unwrap_or_else(|| load_certs_from_paths(None, Some(Path::new(DIRECTORY))).certs);
    roots.add_parsable_certificates(certificates);
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MOD-15: the machine's own store is found. (One without any would make this test fail: it needs ca-certificates.)
    #[test]
    fn the_systems_store_is_read() {
        let roots = system_roots();
        assert!(roots.len() > 50, "{}", roots.len());
    }
}
