use proptest::prelude::*;

use super::*;

fn hosts() -> Vec<String> {
    vec!["127.0.0.1:61081".to_owned(), "localhost:61081".to_owned()]
}

fn verdict(head: &[u8]) -> Result<Option<Head>, Rule> {
    HeadReader::default().read(head, &hosts()).map_err(|refusal| refusal.rule)
}

/// A good head with one thing changed.
fn with(line: &str, headers: &str) -> Vec<u8> {
    format!("{line}\r\nHost: 127.0.0.1:61081\r\n{headers}\r\n").into_bytes()
}

const POST: &str = "POST /v1/messages HTTP/1.1";

/// MOD-8: heads of agents pass, and what follows is not looked at.
#[test]
fn plain_requests_pass() {
    for (head, content_length) in [
        (with(POST, "Content-Length: 12\r\n"), 12),
        (with(POST, "content-length:12\r\n"), 12),
        (with(POST, "Content-Length: \t 12 \r\nExpect: 100-Continue\r\n"), 12),
        (with(POST, "Content-Length: 000000000000000012\r\n"), 12),
        (with("POST /v1/messages?beta=true HTTP/1.1", "content-length: 0\r\nX-Name: \u{e9}\r\n"), 0),
        (with("GET /v1/models HTTP/1.1", ""), 0),
        (with("HEAD /api/hello HTTP/1.1", "Connection: keep-alive\r\nempty:\r\n"), 0),
        (b"GET / HTTP/1.1\r\nhOST: LocalHost:61081\r\n\r\n".to_vec(), 0),
        (with("get /v1/models HTTP/1.1", ""), 0),
        (with("GET /a%2f..//b?x=%00 HTTP/1.1", "upgrade: websocket\r\nconnection: upgrade\r\n"), 0),
    ] {
        let length = head.len();
        let mut bytes = head;
        bytes.extend_from_slice(b"\n\0GET");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(verdict(&bytes), Ok(Some(Head { length, content_length })), "{text}");
    }
}

/// MOD-8, MOD-9: what a general parser lets through or repairs is refused, each by its rule.
#[test]
fn whatever_has_two_readings_is_refused() {
    let rows: Vec<(&str, Vec<u8>, Rule)> = vec![
        ("no Host", b"GET / HTTP/1.1\r\n\r\n".to_vec(), Rule::MalformedHead),
        ("two Hosts", with(POST, "Host: 127.0.0.1:61081\r\n"), Rule::HeaderRepeated),
        ("two Hosts that differ", with(POST, "host: localhost:61081\r\n"), Rule::HeaderRepeated),
        ("another Host", b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_vec(), Rule::MalformedHead),
        ("another port", b"GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n".to_vec(), Rule::MalformedHead),
        ("no port", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_vec(), Rule::MalformedHead),
        (
            "a list of Hosts",
            b"GET / HTTP/1.1\r\nHost: localhost:61081,a\r\n\r\n".to_vec(),
            Rule::MalformedHead,
        ),
        (
            "Host with a user",
            b"GET / HTTP/1.1\r\nHost: a@localhost:61081\r\n\r\n".to_vec(),
            Rule::MalformedHead,
        ),
        ("HTTP/1.0", with("POST /v1/messages HTTP/1.0", ""), Rule::MalformedHead),
        ("HTTP/1.2", with("POST /v1/messages HTTP/1.2", ""), Rule::MalformedHead),
        ("HTTP/0.9", with("POST /v1/messages", ""), Rule::MalformedHead),
        ("lower-case version", with("POST /v1/messages http/1.1", ""), Rule::MalformedHead),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), Rule::MalformedHead),
        ("TLS", b"\x16\x03\x01\x02\x00\x01".to_vec(), Rule::MalformedHead),
        ("absolute form", with("POST http://a/v1/messages HTTP/1.1", ""), Rule::MalformedHead),
        (
            "absolute form of this",
            with("POST http://127.0.0.1:61081/v1/messages HTTP/1.1", ""),
            Rule::MalformedHead,
        ),
        ("asterisk form", with("OPTIONS * HTTP/1.1", ""), Rule::MalformedHead),
        ("CONNECT", with("CONNECT a:443 HTTP/1.1", ""), Rule::MethodNotAllowed),
        ("CONNECT with a path", with("CONNECT /v1/messages HTTP/1.1", ""), Rule::MethodNotAllowed),
        ("no method", with(" /v1/messages HTTP/1.1", ""), Rule::MalformedHead),
        ("two blanks", with("POST  /v1/messages HTTP/1.1", ""), Rule::MalformedHead),
        ("a tab", with("POST\t/v1/messages HTTP/1.1", ""), Rule::MalformedHead),
        ("a blank at the end", with("POST /v1/messages HTTP/1.1 ", ""), Rule::MalformedHead),
        ("a blank in front", with(" POST /v1/messages HTTP/1.1", ""), Rule::MalformedHead),
        ("a method with a colon", with("PO:ST /v1/messages HTTP/1.1", ""), Rule::MalformedHead),
        ("a fragment", with("POST /v1/messages#a HTTP/1.1", ""), Rule::MalformedHead),
        ("a quote in the path", with("POST /v1/\"messages HTTP/1.1", ""), Rule::MalformedHead),
        ("a backslash", with("POST \\v1\\messages HTTP/1.1", ""), Rule::MalformedHead),
        ("beyond ASCII in the path", with("POST /v1/m\u{e9}ssages HTTP/1.1", ""), Rule::MalformedHead),
        (
            "an empty first line",
            b"\r\nGET / HTTP/1.1\r\nHost: localhost:61081\r\n\r\n".to_vec(),
            Rule::MalformedHead,
        ),
        ("CL and TE", with(POST, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), Rule::BodyMalformed),
        ("TE and CL", with(POST, "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), Rule::BodyMalformed),
        ("TE", with(POST, "transfer-encoding: chunked\r\n"), Rule::BodyMalformed),
        ("TE xchunked", with(POST, "Transfer-Encoding: xchunked\r\n"), Rule::BodyMalformed),
        ("TE identity", with(POST, "Transfer-Encoding: identity\r\n"), Rule::BodyMalformed),
        (
            "TE twice",
            with(POST, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            Rule::BodyMalformed,
        ),
        ("two CL", with(POST, "Content-Length: 5\r\nContent-Length: 5\r\n"), Rule::HeaderRepeated),
        (
            "two CL that differ",
            with(POST, "Content-Length: 5\r\ncontent-length: 6\r\n"),
            Rule::HeaderRepeated,
        ),
        ("CL list", with(POST, "Content-Length: 5, 5\r\n"), Rule::MalformedHead),
        ("CL +5", with(POST, "Content-Length: +5\r\n"), Rule::MalformedHead),
        ("CL -5", with(POST, "Content-Length: -5\r\n"), Rule::MalformedHead),
        ("CL 0x5", with(POST, "Content-Length: 0x5\r\n"), Rule::MalformedHead),
        ("CL 5.0", with(POST, "Content-Length: 5.0\r\n"), Rule::MalformedHead),
        ("CL of 19 digits", with(POST, "Content-Length: 1000000000000000000\r\n"), Rule::MalformedHead),
        ("CL empty", with(POST, "Content-Length:\r\n"), Rule::MalformedHead),
        ("obs-fold", with(POST, "X-A: 1\r\n 2\r\n"), Rule::MalformedHead),
        ("obs-fold by tab", with(POST, "X-A: 1\r\n\t2\r\n"), Rule::MalformedHead),
        ("a blank before the colon", with(POST, "X-A : 1\r\n"), Rule::MalformedHead),
        ("no colon", with(POST, "X-A\r\n"), Rule::MalformedHead),
        ("no name", with(POST, ": 1\r\n"), Rule::MalformedHead),
        ("a name with a bracket", with(POST, "X(A: 1\r\n"), Rule::MalformedHead),
        ("a name beyond ASCII", with(POST, "X\u{e9}: 1\r\n"), Rule::MalformedHead),
        ("bare LF", b"GET / HTTP/1.1\nHost: localhost:61081\n\n".to_vec(), Rule::MalformedHead),
        ("bare LF in a header", with(POST, "X-A: 1\nX-B: 2\r\n"), Rule::MalformedHead),
        ("bare CR", with(POST, "X-A: 1\rX-B: 2\r\n"), Rule::MalformedHead),
        ("CR CR LF", with(POST, "X-A: 1\r\r\n"), Rule::MalformedHead),
        ("NUL", with(POST, "X-A: \0\r\n"), Rule::MalformedHead),
        ("DEL", with(POST, "X-A: \u{7f}\r\n"), Rule::MalformedHead),
        ("vertical tab", with(POST, "X-A: \u{b}\r\n"), Rule::MalformedHead),
        ("an expectation", with(POST, "Expect: 200-ok\r\n"), Rule::MalformedHead),
        ("65 headers", with(POST, &"a: b\r\n".repeat(64)), Rule::HeadTooLarge),
        ("over 32 KiB", with(POST, &format!("a: {}\r\n", "b".repeat(MAX_HEAD))), Rule::HeadTooLarge),
    ];
    for (name, head, rule) in rows {
        assert_eq!(verdict(&head), Err(rule), "{name}");
    }
}

/// MOD-8: the last byte that fits and the first that does not.
#[test]
fn the_largest_head_is_exact() {
    let room = MAX_HEAD - with(POST, "a: \r\n").len();
    let largest = with(POST, &format!("a: {}\r\n", "b".repeat(room)));
    assert_eq!(largest.len(), MAX_HEAD);
    assert!(matches!(verdict(&largest), Ok(Some(Head { length: MAX_HEAD, .. }))));
    let larger = with(POST, &format!("a: {}\r\n", "b".repeat(room + 1)));
    assert_eq!(verdict(&larger), Err(Rule::HeadTooLarge));
    assert!(verdict(&with(POST, &"a: b\r\n".repeat(63))).is_ok());
}

/// MOD-10: a body in pieces is told apart by its status, which clients know.
#[test]
fn a_body_in_pieces_asks_for_a_length() {
    let head = with(POST, "Transfer-Encoding: chunked\r\n");
    let refusal = HeadReader::default().read(&head, &hosts()).unwrap_err();
    assert_eq!(refusal.status, StatusCode::LENGTH_REQUIRED);
    assert!(refusal.sentence.starts_with("anet: ") && refusal.sentence.contains("content-length"));
}

/// Pieces of heads, put together at random: more of them pass, and fail late, than of random bytes.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        &b"POST /v1/messages HTTP/1.1\r\n"[..],
        b"GET / HTTP/1.1\r\n",
        b"Host: localhost:61081\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"a: b\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\x00",
        b"\xff",
        b": ",
    ]);
    prop_oneof![
        4 => prop::collection::vec(piece, 0..12).prop_map(|pieces| {
            let mut head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost:61081\r\n".to_vec();
            pieces.iter().for_each(|piece| head.extend_from_slice(piece));
            head
        }),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

proptest! {
    /// MOD-8: however the bytes are cut, the verdict is the same.
    #[test]
    fn the_verdict_does_not_depend_on_segments(bytes in heads(), cuts in prop::collection::vec(0..200usize, 0..6)) {
        let whole = HeadReader::default().read(&bytes, &hosts());
        let mut ends: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        ends.sort_unstable();
        ends.push(bytes.len());
        let mut reader = HeadReader::default();
        let mut pieces = Ok(None);
        for end in ends {
            pieces = reader.read(&bytes[..end], &hosts());
            if pieces != Ok(None) {
                break;
            }
        }
        prop_assert_eq!(pieces, whole);
    }

    /// MOD-8: a general parser reads what passed, whole and in the same way.
    #[test]
    fn what_passes_has_one_reading(bytes in heads()) {
        if let Ok(Some(head)) = HeadReader::default().read(&bytes, &hosts()) {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut request = httparse::Request::new(&mut headers);
            let parsed = request.parse(&bytes[..head.length]).unwrap();
            prop_assert_eq!(parsed, httparse::Status::Complete(head.length));
            prop_assert_eq!(request.version, Some(1));
            prop_assert!(request.path.unwrap().parse::<http::Uri>().is_ok());
            let lengths: Vec<&[u8]> = request.headers.iter()
                .filter(|header| header.name.eq_ignore_ascii_case("content-length"))
                .map(|header| header.value).collect();
            prop_assert!(lengths.len() <= 1);
            let length = lengths.first().map_or(0, |length| std::str::from_utf8(length).unwrap().parse().unwrap());
            prop_assert_eq!(length, head.content_length);
        }
    }
}
