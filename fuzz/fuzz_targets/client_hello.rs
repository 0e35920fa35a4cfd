//! A first TLS message: what is accepted names the allowed host, in the reading of another parser too, and the verdict
//! does not depend on how the bytes are cut. Starts from a good hello, or nothing would ever be accepted.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::client_hello::HelloReader;
use tls_parser::{SNIType, TlsExtension, TlsMessage, TlsMessageHandshake};

const HOST: &str = "api.example.com";
const GOOD: &[u8] = include_bytes!("../../proxy/src/client_hello/openssl-tls13.bin");

/// The host names that another parser finds, where it can read a hello that stands in one record.
fn other_reading(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let (_, record) = tls_parser::parse_tls_plaintext(bytes).ok()?;
    let [TlsMessage::Handshake(TlsMessageHandshake::ClientHello(hello))] = record.msg.as_slice() else {
        return None;
    };
    let (_, extensions) = tls_parser::parse_tls_client_hello_extensions(hello.ext?).ok()?;
    let mut names = Vec::new();
    for extension in extensions {
        if let TlsExtension::SNI(list) = extension {
            names.extend(list.into_iter().filter(|name| name.0 == SNIType::HostName).map(|name| name.1));
        }
    }
    Some(names)
}

fn judge(bytes: &[u8], cut: usize) {
    let whole = HelloReader::first().read(bytes, HOST);
    let mut reader = HelloReader::first();
    let first = reader.read(&bytes[..cut.min(bytes.len())], HOST);
    match first {
        Ok(None) => assert_eq!(reader.read(bytes, HOST), whole),
        // A hello that was whole at the cut has bytes behind it now.
        Ok(Some(hello)) => assert!(hello.length == bytes.len() || whole.is_err()),
        Err(_) => assert_eq!(first, whole),
    }
    if let Ok(Some(hello)) = whole {
        assert!(hello.server_name.eq_ignore_ascii_case(HOST));
        if let Some(names) = other_reading(bytes) {
            assert_eq!(names, [hello.server_name.as_bytes()]);
        }
    }
    let _ = HelloReader::second().read(bytes, HOST);
    let _ = proxy::server_hello::read(bytes);
}

fuzz_target!(|input: (u16, Vec<(u16, u8)>, &[u8])| {
    let (cut, changes, raw) = input;
    judge(raw, cut.into());
    let mut bent = GOOD.to_vec();
    for (place, byte) in changes {
        let place = usize::from(place) % bent.len();
        bent[place] = byte;
    }
    judge(&bent, cut.into());
});
