//! First messages of TLS clients, well formed and not (RFC 8446 4.1.2, RFC 6066 3).

const HANDSHAKE: u8 = 22;
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const CLIENT_HELLO: u8 = 1;

const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const PADDING: u16 = 21;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const PSK_MODES: u16 = 45;
const KEY_SHARE: u16 = 51;
const ECH_OUTER_EXTENSIONS: u16 = 0xfd00;
const ECH: u16 = 0xfe0d;
/// RFC 8701.
const GREASE: u16 = 0x1a1a;

fn vector8(body: &[u8]) -> Vec<u8> {
    [&[u8::try_from(body.len()).expect("short")], body].concat()
}

fn vector16(body: &[u8]) -> Vec<u8> {
    [u16::try_from(body.len()).expect("short").to_be_bytes().as_slice(), body].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().as_slice(), &vector16(body)].concat()
}

/// A server_name extension: entries of a type and a name.
fn server_name(entries: &[(u8, &[u8])]) -> Vec<u8> {
    let list: Vec<u8> =
        entries.iter().flat_map(|(kind, name)| [&[*kind], vector16(name).as_slice()].concat()).collect();
    extension(SERVER_NAME, &vector16(&list))
}

fn alpn(protocol: &[u8]) -> Vec<u8> {
    extension(ALPN, &vector16(&vector8(protocol)))
}

/// Extensions of an ordinary client, other than the name.
fn usual(versions: &[u8]) -> Vec<Vec<u8>> {
    vec![
        extension(SUPPORTED_GROUPS, &vector16(&[0, 29, 0, 23])),
        extension(SIGNATURE_ALGORITHMS, &vector16(&[4, 3, 8, 4])),
        extension(SUPPORTED_VERSIONS, &vector8(versions)),
        extension(PSK_MODES, &vector8(&[1])),
        extension(KEY_SHARE, &vector16(&[[0, 29].as_slice(), &vector16(&[9; 32])].concat())),
    ]
}

const VERSIONS: [u8; 4] = [3, 4, 3, 3];

fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    message_with(0x0303, &[0x13, 1, 0x13, 2, 0xc0, 0x2f], Some(&vector16(&extensions.concat())))
}

fn message_with(version: u16, ciphers: &[u8], extensions: Option<&[u8]>) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    body.extend([7; 32]);
    body.extend(vector8(&[0; 32]));
    body.extend(vector16(ciphers));
    body.extend(vector8(&[0]));
    body.extend(extensions.unwrap_or_default());
    handshake(CLIENT_HELLO, &body)
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    [&[kind], &length[1..], body].concat()
}

fn record(kind: u8, version: u16, body: &[u8]) -> Vec<u8> {
    [&[kind], version.to_be_bytes().as_slice(), &vector16(body)].concat()
}

/// A message in records of at most so many bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| record(HANDSHAKE, 0x0301, part)).collect()
}

fn one(extensions: Vec<Vec<u8>>) -> Vec<u8> {
    records(&message(&extensions), 16384)
}

fn named(name: &[u8], more: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut extensions = vec![server_name(&[(0, name)])];
    extensions.extend(usual(&VERSIONS));
    extensions.extend(more);
    extensions
}

/// An ordinary message that is padded to this length.
fn padded(name: &[u8], length: usize) -> Vec<u8> {
    let short = message(&named(name, vec![extension(PADDING, &[])])).len();
    message(&named(name, vec![extension(PADDING, &vec![0; length - short])]))
}

/// The bytes that a client of this kind sends first.
pub(crate) fn bytes(kind: &str, name: &str) -> Vec<u8> {
    let name = crate::bytes(name);
    let name = name.as_slice();
    let plain = message(&named(name, Vec::new()));
    match kind {
        "plain" => one(named(name, Vec::new())),
        "silent" => Vec::new(),
        // The server name.
        "no_sni" => one(usual(&VERSIONS)),
        "two_names" => one([vec![server_name(&[(0, name), (0, name)])], usual(&VERSIONS)].concat()),
        "two_extensions" => one(named(name, vec![server_name(&[(0, name)])])),
        "second_name" => {
            one([vec![server_name(&[(0, name), (0, b"evil.example.com")])], usual(&VERSIONS)].concat())
        }
        "empty_list" => one([vec![extension(SERVER_NAME, &vector16(&[]))], usual(&VERSIONS)].concat()),
        "empty_extension" => one([vec![extension(SERVER_NAME, &[])], usual(&VERSIONS)].concat()),
        "empty_name" => one([vec![server_name(&[(0, b"")])], usual(&VERSIONS)].concat()),
        "name_type" => one([vec![server_name(&[(1, name)])], usual(&VERSIONS)].concat()),
        "name_trailing" => {
            let list = vector16(&[[0].as_slice(), &vector16(name)].concat());
            one([vec![extension(SERVER_NAME, &[list.as_slice(), b"x"].concat())], usual(&VERSIONS)].concat())
        }
        "sni_last" => one([usual(&VERSIONS), vec![server_name(&[(0, name)])]].concat()),
        // Encrypted client hello: outer, HKDF-SHA256, AES-128-GCM, configuration 1, no key, a payload.
        "ech" => one(named(name, vec![extension(ECH, &ech_outer())])),
        "ech_inner" => one(named(name, vec![extension(ECH, &[1])])),
        "ech_outer_extensions" => one(named(name, vec![extension(ECH_OUTER_EXTENSIONS, &vector8(&[0, 51]))])),
        // Other extensions.
        "early_data" => one(named(name, vec![extension(EARLY_DATA, &[]), psk()])),
        "psk_not_last" => one(named(name, vec![psk(), extension(PADDING, &[0; 8])])),
        "psk" => one(named(name, vec![psk()])),
        "grease" => one(named(name, vec![extension(GREASE, &[0])])),
        "acme" => one(named(name, vec![alpn(b"acme-tls/1")])),
        "h2" => one(named(name, vec![alpn(b"h2")])),
        // Records.
        "records_2" => records(&plain, plain.len().div_ceil(2)),
        "records_16" => records(&plain, plain.len().div_ceil(16)),
        "record_in_name" => {
            let at = plain.windows(name.len()).position(|w| w == name).expect("the name") + name.len() / 2;
            [record(HANDSHAKE, 0x0301, &plain[..at]), record(HANDSHAKE, 0x0301, &plain[at..])].concat()
        }
        "empty_record" => [record(HANDSHAKE, 0x0301, &[]), records(&plain, 16384)].concat(),
        "ccs_between" => between(&plain, CHANGE_CIPHER_SPEC, &[1]),
        "alert_between" => between(&plain, ALERT, &[1, 0]),
        "data_between" => between(&plain, 23, b"data"),
        "alert_first" => [record(ALERT, 0x0301, &[1, 0]), records(&plain, 16384)].concat(),
        "record_too_long" => record(HANDSHAKE, 0x0301, &padded(name, 16384 + 512)),
        "large" => records(&padded(name, 20_000), 16384),
        // No vector of it can be longer than 64 KiB; two are.
        "too_large" => {
            let extensions = named(name, vec![extension(PADDING, &[0; 60_000])]).concat();
            records(&message_with(0x0303, &[0x13; 8_000], Some(&vector16(&extensions))), 16384)
        }
        "two_messages" => {
            record(HANDSHAKE, 0x0301, &[plain.as_slice(), &handshake(CLIENT_HELLO, &[0; 8])].concat())
        }
        "trailing" => record(HANDSHAKE, 0x0301, &[plain.as_slice(), &[0]].concat()),
        // Lengths that lie.
        "long_extensions" => lying(name, 3),
        "short_extensions" => lying(name, -3),
        "no_extensions" => records(&message_with(0x0303, &[0x13, 1], None), 16384),
        "short_message" => {
            let mut short = plain.clone();
            short[3] = short[3].wrapping_sub(5);
            records(&short, 16384)
        }
        "server_hello" => records(&handshake(2, &plain[4..]), 16384),
        // Versions.
        "ssl2" => vec![0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10, 1, 0, 0x80, 2, 0, 0x80, 3, 0, 0x80],
        "ssl3_record" => record(HANDSHAKE, 0x0300, &plain),
        "tls10" => {
            let extensions = vector16(&server_name(&[(0, name)]));
            records(&message_with(0x0301, &[0, 0x2f], Some(&extensions)), 16384)
        }
        "tls11_in_versions" => {
            let extensions = [vec![server_name(&[(0, name)])], usual(&[3, 2, 3, 1])].concat();
            one(extensions)
        }
        "tls12" => {
            let groups = extension(SUPPORTED_GROUPS, &vector16(&[0, 29, 0, 23]));
            let algorithms = extension(SIGNATURE_ALGORITHMS, &vector16(&[4, 3]));
            let extensions = [server_name(&[(0, name)]), groups, algorithms].concat();
            records(&message_with(0x0303, &[0xc0, 0x2b], Some(&vector16(&extensions))), 16384)
        }
        // No TLS.
        "ssh" => b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        "http" => b"GET / HTTP/1.1\r\nHost: pkg.example.com\r\n\r\n".to_vec(),
        "h2_preface" => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        "smtp" => b"EHLO example.com\r\n".to_vec(),
        other => panic!("unknown hello {other}"),
    }
}

fn ech_outer() -> Vec<u8> {
    [[0, 0, 1, 0, 1, 1].as_slice(), &vector16(&[5; 32]), &vector16(&[6; 144])].concat()
}

/// One identity and its binder.
fn psk() -> Vec<u8> {
    let identity = [vector16(&[3; 32]).as_slice(), &[0; 4]].concat();
    extension(PRE_SHARED_KEY, &[vector16(&identity), vector16(&vector8(&[4; 32]))].concat())
}

fn between(message: &[u8], kind: u8, body: &[u8]) -> Vec<u8> {
    let (first, second) = message.split_at(40);
    [record(HANDSHAKE, 0x0301, first), record(kind, 0x0301, body), record(HANDSHAKE, 0x0301, second)].concat()
}

fn lying(name: &[u8], by: i32) -> Vec<u8> {
    let extensions = named(name, Vec::new()).concat();
    let claimed = u16::try_from(i32::try_from(extensions.len()).expect("short") + by).expect("short");
    let lie = [claimed.to_be_bytes().as_slice(), &extensions].concat();
    records(&message_with(0x0303, &[0x13, 1], Some(&lie)), 16384)
}
