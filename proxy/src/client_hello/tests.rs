use proptest::prelude::*;
use tls_parser::{SNIType, TlsExtension, TlsMessage, TlsMessageHandshake};

use super::*;
use crate::record::{CHANGE_CIPHER_SPEC, MAX_MESSAGE, MAX_RECORD, MAX_RECORDS};

const HOST: &str = "api.example.com";
const ECH: u16 = 0xfe0d;
const GREASE: u16 = 0x5a5a;

/// A hello to be bent.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) ciphers: Vec<u16>,
    pub(crate) extensions: Option<Vec<(u16, Vec<u8>)>>,
}

fn prefixed16(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

fn prefixed8(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn sni_entry(kind: u8, name: &[u8]) -> Vec<u8> {
    [&[kind], prefixed16(name).as_slice()].concat()
}

fn sni(name: &[u8]) -> Vec<u8> {
    prefixed16(&sni_entry(0, name))
}

fn alpn(names: &[&[u8]]) -> Vec<u8> {
    prefixed16(&names.iter().flat_map(|name| prefixed8(name)).collect::<Vec<u8>>())
}

impl Hello {
    pub(crate) fn for_host(host: &str) -> Hello {
        let extensions = vec![
            (0x0017, vec![]),
            (SERVER_NAME, sni(host.as_bytes())),
            (10, vec![0, 2, 0, 29]),
            (13, vec![0, 2, 4, 3]),
            (ALPN, alpn(&[b"h2", b"http/1.1"])),
            (SUPPORTED_VERSIONS, vec![4, 3, 4, 3, 3]),
            (51, vec![0, 0]),
        ];
        Hello { version: TLS_1_2, ciphers: vec![0x1301, 0xc02f], extensions: Some(extensions) }
    }

    fn with(mut self, kind: u16, data: Vec<u8>) -> Hello {
        let extensions = self.extensions.as_mut().unwrap();
        match extensions.iter_mut().find(|extension| extension.0 == kind) {
            Some(extension) => extension.1 = data,
            None => extensions.push((kind, data)),
        }
        self
    }

    fn without(mut self, kind: u16) -> Hello {
        self.extensions.as_mut().unwrap().retain(|extension| extension.0 != kind);
        self
    }

    fn body(&self) -> Vec<u8> {
        let mut body = self.version.to_be_bytes().to_vec();
        body.extend([7; RANDOM]);
        body.extend(prefixed8(&[9; 32]));
        body.extend(prefixed16(
            &self.ciphers.iter().flat_map(|suite| suite.to_be_bytes()).collect::<Vec<u8>>(),
        ));
        body.extend(prefixed8(&[0]));
        if let Some(extensions) = &self.extensions {
            let block = extensions.iter().flat_map(|(kind, data)| {
                [kind.to_be_bytes().as_slice(), prefixed16(data).as_slice()].concat()
            });
            body.extend(prefixed16(&block.collect::<Vec<u8>>()));
        }
        body
    }

    fn message(&self) -> Vec<u8> {
        message(1, &self.body())
    }

    pub(crate) fn wire(&self) -> Vec<u8> {
        records(&self.message(), MAX_RECORD)
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind], &length[1..], body].concat()
}

fn record(kind: u8, version: u16, body: &[u8]) -> Vec<u8> {
    [&[kind], version.to_be_bytes().as_slice(), prefixed16(body).as_slice()].concat()
}

/// A message in records of `size` bytes each.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|piece| record(22, 0x0301, piece)).collect()
}

fn read(bytes: &[u8]) -> Result<Option<ClientHello>, Reason> {
    HelloReader::first().read(bytes, HOST)
}

fn accepted(bytes: &[u8]) {
    let hello = read(bytes).unwrap().expect("whole");
    assert!(hello.server_name.eq_ignore_ascii_case(HOST));
    assert_eq!(hello.length, bytes.len());
}

fn refused(hello: &Hello) -> Reason {
    read(&hello.wire()).unwrap_err()
}

fn good() -> Hello {
    Hello::for_host(HOST)
}

/// EGR-5, table D 69: the name that was asked for, ASCII case aside.
#[test]
fn the_allowed_name_passes() {
    accepted(&good().wire());
    accepted(&Hello::for_host("API.Example.COM").wire());
}

/// EGR-5: what OpenSSL really sends, for TLS 1.3 and for 1.2 alone.
#[test]
fn real_hellos_pass() {
    accepted(include_bytes!("openssl-tls13.bin"));
    accepted(include_bytes!("openssl-tls12.bin"));
}

/// EGR-5, table D 72, 73.
#[test]
fn another_name_or_none() {
    assert_eq!(refused(&good().without(SERVER_NAME)), Reason::SniMissing);
    assert_eq!(refused(&Hello { extensions: None, ..good() }), Reason::SniMissing);
    for name in [
        "evil.com",
        "api.example.com.evil.com",
        "xapi.example.com",
        "example.com",
        "api_example.com",
        "1.1.1.1",
    ] {
        assert_eq!(refused(&Hello::for_host(name)), Reason::SniMismatch, "{name}");
    }
}

/// EGR-5, table D 71, 74, 76, 78: a server name extension that is not one host name.
#[test]
fn malformed_names() {
    let two = prefixed16(&[sni_entry(0, HOST.as_bytes()), sni_entry(0, b"evil.com")].concat());
    let other_type = prefixed16(&sni_entry(1, HOST.as_bytes()));
    let trailing = [sni(HOST.as_bytes()), vec![0]].concat();
    let too_long = sni("a.".repeat(130).as_bytes());
    for data in [
        two,
        other_type,
        trailing,
        too_long,
        prefixed16(&[]),
        sni(b""),
        vec![],
        vec![0],
        vec![0, 9, 0, 0, 200, b'a'],
        sni(b"api.example.com."),
        sni(b"api.example.com\0"),
        sni("ａｐｉ.example.com".as_bytes()),
        sni(b"[::1]"),
        sni(b"api.example.com:443"),
    ] {
        assert_eq!(refused(&good().with(SERVER_NAME, data.clone())), Reason::SniMalformed, "{data:?}");
    }
}

/// EGR-5, table D 77: an address is no host name.
#[test]
fn address_as_a_name() {
    assert_eq!(refused(&Hello::for_host("127.0.0.1")), Reason::SniMismatch);
    assert_eq!(refused(&good().with(SERVER_NAME, sni(b"::1"))), Reason::SniMalformed);
}

/// EGR-5, table D 79, 81: an encrypted name, real, GREASE or of a draft.
#[test]
fn encrypted_names() {
    let grease = [&[0, 0, 1, 0, 1, 77][..], &prefixed16(&[5; 32]), &prefixed16(&[6; 186])].concat();
    assert_eq!(refused(&good().with(ECH, grease)), Reason::EchRequested);
    for kind in ENCRYPTED_NAMES {
        assert_eq!(refused(&good().with(kind, vec![1])), Reason::EchRequested, "{kind:#x}");
        // Without a server name as well: the encryption is what there is to say.
        assert_eq!(
            refused(&good().without(SERVER_NAME).with(kind, vec![])),
            Reason::EchRequested,
            "{kind:#x}"
        );
    }
}

/// EGR-5, table D 82: one byte a segment.
#[test]
fn any_cut_into_segments() {
    let wire = good().wire();
    let mut reader = HelloReader::first();
    for end in 0..wire.len() {
        assert_eq!(reader.read(&wire[..end], HOST), Ok(None), "{end}");
    }
    assert!(reader.read(&wire, HOST).unwrap().is_some());
}

/// EGR-5, table D 83: cut into 2 to 16 records at any place, also inside the name.
#[test]
fn any_cut_into_records() {
    let message = good().message();
    for size in message.len().div_ceil(MAX_RECORDS)..=message.len() {
        accepted(&records(&message, size));
    }
    for cut in 1..message.len() {
        accepted(&[records(&message[..cut], MAX_RECORD), records(&message[cut..], MAX_RECORD)].concat());
    }
    assert_eq!(read(&records(&message, message.len().div_ceil(MAX_RECORDS) - 1)), Err(Reason::HelloTooLarge));
}

/// EGR-5, table D 84: an empty record, or one of another kind, between.
#[test]
fn foreign_records_between() {
    let message = good().message();
    let (first, rest) = message.split_at(40);
    for between in [
        record(22, 0x0301, &[]),
        record(20, 0x0303, &[1]),
        record(21, 0x0303, &[1, 0]),
        record(23, 0x0303, &[0]),
        record(24, 0x0303, &[1, 0, 0]),
        record(22, 0x0304, &[0]),
        record(22, 0x1603, &[0]),
    ] {
        let wire = [record(22, 0x0301, first), between.clone(), record(22, 0x0301, rest)].concat();
        assert_eq!(read(&wire), Err(Reason::HelloMalformed), "{between:?}");
    }
    assert_eq!(read(&record(22, 0x0301, &[])), Err(Reason::HelloMalformed));
}

/// EGR-5, table D 86: 64 KiB pass, one byte more does not.
#[test]
fn the_message_is_limited_exactly() {
    let padded = |more: usize| good().with(21, vec![0; more]).with(0x1234, vec![0; 30_000]);
    let base = padded(0).body().len();
    let longest = padded(MAX_MESSAGE - base);
    assert_eq!(longest.body().len(), MAX_MESSAGE);
    accepted(&longest.wire());
    // Extensions alone cannot pass 64 KiB; a long list of ciphers can.
    let longer = Hello { ciphers: vec![0x1301; 3], ..padded(MAX_MESSAGE - base) };
    assert_eq!(refused(&longer), Reason::HelloTooLarge);
    assert_eq!(read(&record(22, 0x0301, &[1, 1, 0, 1])), Err(Reason::HelloTooLarge));
}

/// EGR-5, table D 87: the limit of a record.
#[test]
fn the_record_is_limited_exactly() {
    assert_eq!(read(&[22, 3, 1, 0x41, 0x00]), Ok(None));
    assert_eq!(read(&[22, 3, 1, 0x41, 0x01]), Err(Reason::HelloTooLarge));
}

/// EGR-5, table D 88: a second message in the same record.
#[test]
fn a_second_message_behind() {
    let wire = records(&[good().message(), good().message()].concat(), MAX_RECORD);
    assert_eq!(read(&wire), Err(Reason::HelloMalformed));
    let one_byte = records(&[good().message(), vec![1]].concat(), MAX_RECORD);
    assert_eq!(read(&one_byte), Err(Reason::HelloMalformed));
}

/// EGR-5, table D 89: what is older than TLS 1.2.
#[test]
fn old_versions() {
    assert_eq!(read(&[0x80, 0x2e, 1, 0, 2]), Err(Reason::NotTls));
    assert_eq!(read(&record(22, 0x0300, &good().message())), Err(Reason::TlsVersion));
    for version in [0x0300, 0x0301, 0x0302] {
        let hello = Hello { version, ..good() };
        assert_eq!(refused(&hello.clone().without(SUPPORTED_VERSIONS)), Reason::TlsVersion, "{version:#x}");
        assert_eq!(refused(&Hello { extensions: None, ..hello }), Reason::TlsVersion, "{version:#x}");
    }
    assert_eq!(refused(&good().with(SUPPORTED_VERSIONS, vec![4, 3, 2, 3, 1])), Reason::TlsVersion);
    accepted(&good().without(SUPPORTED_VERSIONS).wire());
    accepted(&good().with(SUPPORTED_VERSIONS, vec![2, 3, 4]).wire());
}

/// EGR-5, table D 91: GREASE (RFC 8701) everywhere.
#[test]
fn grease_passes() {
    let mut hello = good().with(GREASE, vec![0]).with(SUPPORTED_VERSIONS, vec![6, 0x5a, 0x5a, 3, 4, 3, 3]);
    hello.ciphers.insert(0, GREASE);
    hello.extensions.as_mut().unwrap().insert(0, (0x1a1a, vec![]));
    accepted(&hello.wire());
}

/// EGR-5, table D 92: lengths that lie, at every level.
#[test]
fn lengths_that_lie() {
    let body = good().body();
    let before_extensions = 2 + RANDOM + 33 + 2 + 4 + 2;
    for (place, change) in [
        (2 + RANDOM, 33u8),
        (2 + RANDOM + 33, 0x40),
        (2 + RANDOM + 34, 3),
        (2 + RANDOM + 33 + 6, 0),
        (before_extensions, 0x40),
        (before_extensions + 1, body[before_extensions + 1].wrapping_sub(1)),
        (before_extensions + 1, body[before_extensions + 1].wrapping_add(1)),
        (before_extensions + 5, 1),
    ] {
        let mut bent = body.clone();
        bent[place] = change;
        assert_eq!(
            read(&records(&message(1, &bent), MAX_RECORD)),
            Err(Reason::HelloMalformed),
            "{place} {change}"
        );
    }
    let behind = [body.clone(), vec![0]].concat();
    assert_eq!(read(&records(&message(1, &behind), MAX_RECORD)), Err(Reason::HelloMalformed));
    for end in 0..before_extensions - 1 {
        assert_eq!(
            read(&records(&message(1, &body[..end]), MAX_RECORD)),
            Err(Reason::HelloMalformed),
            "{end}"
        );
    }
    for data in [vec![], vec![3, 3, 4, 3], vec![0], vec![2, 3, 4, 0], vec![4, 3, 4]] {
        assert_eq!(
            refused(&good().with(SUPPORTED_VERSIONS, data.clone())),
            Reason::HelloMalformed,
            "{data:?}"
        );
    }
    for data in
        [vec![], vec![0, 0], vec![0, 1, 0], vec![0, 3, 5, b'h', b'2'], [alpn(&[b"h2"]), vec![0]].concat()]
    {
        assert_eq!(refused(&good().with(ALPN, data.clone())), Reason::HelloMalformed, "{data:?}");
    }
}

/// EGR-5: two extensions of one type, of which each reader may take another.
#[test]
fn doubled_extensions() {
    for kind in [SERVER_NAME, SUPPORTED_VERSIONS, 10, GREASE] {
        let mut hello = good().with(GREASE, vec![]);
        let first =
            hello.extensions.as_ref().unwrap().iter().find(|extension| extension.0 == kind).unwrap().clone();
        hello.extensions.as_mut().unwrap().push(first);
        assert_eq!(refused(&hello), Reason::HelloMalformed, "{kind}");
    }
}

/// EGR-5, table D 93.
#[test]
fn pre_shared_key_stands_last() {
    let psk = good().with(PRE_SHARED_KEY, vec![0; 40]);
    accepted(&psk.wire());
    assert_eq!(refused(&psk.with(0x1234, vec![])), Reason::HelloMalformed);
}

/// EGR-5, table D 94: data ahead of the handshake, announced or not.
#[test]
fn early_data() {
    assert_eq!(refused(&good().with(EARLY_DATA, vec![])), Reason::EarlyData);
    let mut behind = good().wire();
    behind.extend(record(23, 0x0303, b"data"));
    assert_eq!(read(&behind), Err(Reason::EarlyData));
}

/// EGR-5, table D 96: the second hello is held to the same, with one change_cipher_spec before it.
#[test]
fn the_hello_after_a_retry() {
    let read_second = |bytes: &[u8]| HelloReader::second().read(bytes, HOST);
    let wire = good().wire();
    let with_ccs = [&CHANGE_CIPHER_SPEC[..], &wire].concat();
    assert_eq!(read_second(&wire).unwrap().unwrap().length, wire.len());
    assert_eq!(read_second(&with_ccs).unwrap().unwrap().length, with_ccs.len());
    for end in 0..with_ccs.len() {
        assert_eq!(read_second(&with_ccs[..end]), Ok(None), "{end}");
    }
    let twice = [&CHANGE_CIPHER_SPEC[..], &with_ccs].concat();
    assert_eq!(read_second(&twice), Err(Reason::NotTls));
    assert_eq!(read_second(&[20, 3, 3, 0, 1, 2]), Err(Reason::HelloMalformed));
    assert_eq!(read_second(&[20, 3, 3, 0, 2]), Err(Reason::HelloMalformed));
    assert_eq!(read_second(&Hello::for_host("evil.com").wire()), Err(Reason::SniMismatch));
    assert_eq!(read(&with_ccs), Err(Reason::NotTls));
}

/// EGR-5, table D 97: other protocols are known by their first bytes; nobody waits for more of them.
#[test]
fn other_protocols() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.2p1\r\n"[..],
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"EHLO x\r\n",
        b"\0",
        b"\xc3\0\0\0\x01",
        b"\x15\x03\x03\0\x02\x01\0",
        b"\x17\x03\x03\0\x01\0",
        b"\x16\x02\0",
        b"\x16\xfe\xfd",
    ] {
        assert_eq!(read(bytes), Err(Reason::NotTls), "{bytes:?}");
    }
    for kind in [0, 2, 4, 11, 16, 20, 255] {
        assert_eq!(
            read(&records(&message(kind, &good().body()), MAX_RECORD)),
            Err(Reason::HelloMalformed),
            "{kind}"
        );
    }
}

/// EGR-5, table D 101: other protocols inside are the operator's business, proving control of a name is not.
#[test]
fn protocols_inside() {
    for names in [&[&b"h3"[..]][..], &[b"h2"], &[b"http/1.1", b"h2"]] {
        accepted(&good().with(ALPN, alpn(names)).wire());
    }
    accepted(&good().without(ALPN).wire());
    assert_eq!(refused(&good().with(ALPN, alpn(&[b"h2", ACME_TLS]))), Reason::AlpnNotAllowed);
}

/// What another parser reads as the names of a hello.
fn oracle_names(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (rest, record) = tls_parser::parse_tls_plaintext(bytes).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let [TlsMessage::Handshake(TlsMessageHandshake::ClientHello(hello))] = record.msg.as_slice() else {
        return None;
    };
    let (rest, extensions) = tls_parser::parse_tls_client_hello_extensions(hello.ext?).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let mut names = Vec::new();
    for extension in extensions {
        if let TlsExtension::SNI(list) = extension {
            names.extend(
                list.into_iter().filter(|name| name.0 == SNIType::HostName).map(|name| name.1.to_vec()),
            );
        }
    }
    Some(names)
}

#[test]
fn the_oracle_reads_a_good_hello() {
    assert_eq!(oracle_names(&good().wire()), Some(vec![HOST.as_bytes().to_vec()]));
    assert_eq!(oracle_names(include_bytes!("openssl-tls13.bin")), Some(vec![HOST.as_bytes().to_vec()]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// EGR-5: of a bent hello, what we accept another parser reads too, and it finds the same single name.
    #[test]
    fn an_accepted_hello_has_one_meaning(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        let mut wire = good().wire();
        for (place, byte) in changes {
            let place = place.index(wire.len());
            wire[place] = byte;
        }
        if let Ok(Some(hello)) = read(&wire) {
            prop_assert!(hello.server_name.eq_ignore_ascii_case(HOST));
            // The other parser also judges what extensions hold that say nothing about the name.
            if let Some(names) = oracle_names(&wire) {
                prop_assert_eq!(names, vec![hello.server_name.into_bytes()]);
            }
        }
    }

    /// Extensions in any order and of any content: the name is found wherever it stands.
    #[test]
    fn any_order(seed: u64, more in proptest::collection::hash_map(0x1000u16..0x2000, proptest::collection::vec(any::<u8>(), 0..300), 0..20)) {
        let mut hello = good();
        let extensions = hello.extensions.as_mut().unwrap();
        extensions.extend(more);
        let length = extensions.len() as u64;
        for place in 0..extensions.len() {
            extensions.swap(place, ((seed >> (place % 32)) % length) as usize);
        }
        let wire = hello.wire();
        prop_assert!(read(&wire).unwrap().is_some());
        prop_assert_eq!(oracle_names(&wire), Some(vec![HOST.as_bytes().to_vec()]));
    }

    /// However records and segments are cut, the verdict is the same.
    #[test]
    fn cuts_do_not_matter(name in prop_oneof![Just(HOST), Just("evil.com")], size in 20usize..400, cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let hello = Hello::for_host(name);
        let wire = records(&hello.message(), size);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len())).collect();
        ends.push(wire.len());
        ends.sort_unstable();
        let mut reader = HelloReader::first();
        let mut verdict = Ok(None);
        for end in ends {
            verdict = reader.read(&wire[..end], HOST);
            if verdict != Ok(None) {
                break;
            }
        }
        prop_assert_eq!(verdict.map(|hello| hello.map(|hello| hello.length)), if name == HOST { Ok(Some(wire.len())) } else { Err(Reason::SniMismatch) });
    }

    /// Any bytes at all: an answer, never a panic.
    #[test]
    fn any_bytes(mut bytes: Vec<u8>, tls: bool) {
        if tls && bytes.len() > 9 {
            bytes[..3].copy_from_slice(&[22, 3, 1]);
            bytes[3] = 0;
            bytes[5] = 1;
            bytes[6] = 0;
        }
        let _ = read(&bytes);
        let _ = HelloReader::second().read(&bytes, HOST);
        let _ = crate::server_hello::read(&bytes);
    }
}
