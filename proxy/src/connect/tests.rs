use proptest::prelude::*;

use super::*;

fn read(bytes: impl AsRef<[u8]>) -> Result<Option<Head>, Refused> {
    HeadReader::default().read(bytes.as_ref())
}

fn reason(bytes: impl AsRef<[u8]>) -> Reason {
    match read(bytes.as_ref()) {
        Err(refused) => refused.reason,
        Ok(head) => panic!("not refused: {head:?} {:?}", String::from_utf8_lossy(bytes.as_ref())),
    }
}

fn request(target: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
}

fn with_header(header: &str) -> String {
    format!("CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n{header}\r\n\r\n")
}

fn host_of(bytes: impl AsRef<[u8]>) -> String {
    read(bytes).unwrap().unwrap().target.host().to_owned()
}

/// EGR-3, table A 1 and 6 to 9: well-formed names are read as they are; the list refuses the wrong ones.
#[test]
fn names_are_read_exactly() {
    for host in [
        "api.example.com",
        "API.Example.COM",
        "evil-api.example.com",
        "api.example.com.evil.com",
        "xapi.example.com",
        "api_example.com",
        "xn--pi-6kc.example.com",
        "127.0.0.1.nip.io",
        "169.254.169.254.sslip.io",
        "1.1.1.1.in-addr.arpa",
        "1e100.net",
        "x0x1.0x1g",
        "localhost",
    ] {
        assert_eq!(host_of(request(&format!("{host}:443"))), host);
    }
}

/// EGR-3, table A 3, 4, 11 to 19, 21: a target that is no plain name and port.
#[test]
fn malformed_targets() {
    let long_label = format!("{}.example.com:443", "a".repeat(64));
    let long_name = format!("{}com:443", "abcdefg.".repeat(32));
    for target in [
        "api.example.com.:443",
        "api.example.com..:443",
        ".api.example.com:443",
        "api..example.com:443",
        "api%2eexample.com:443",
        "user@api.example.com:443",
        "api.example.com@evil.com:443",
        "u:p@api.example.com:443",
        "api.example.com#@evil.com:443",
        "api.example.com\\@evil.com:443",
        "http://api.example.com:443/",
        "/",
        "*",
        "api.example.com:443/",
        "api.example.com:443?x",
        "-api.example.com:443",
        "api-.example.com:443",
        "api.example.com",
        ":443",
        &long_label,
        &long_name,
    ] {
        assert_eq!(reason(request(target)), Reason::MalformedTarget, "{target}");
    }
}

/// EGR-3, table A 11, 17 to 19: bytes outside printable ASCII are refused where they stand.
#[test]
fn bytes_that_no_target_has() {
    for target in [
        "api.example.com\0.evil.com:443",
        "ａｐｉ.example.com:443",
        "аpi.example.com:443",
        "api。example.com:443",
        "\u{7f}:443",
    ] {
        assert_eq!(reason(request(target)), Reason::MalformedTarget, "{target:?}");
    }
}

/// EGR-3, table A 21: the longest name and label pass.
#[test]
fn the_longest_name_passes() {
    let label = "a".repeat(63);
    let name = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(name.len(), MAX_NAME);
    assert_eq!(host_of(request(&format!("{name}:443"))), name);
    assert_eq!(reason(request(&format!("{name}a:443"))), Reason::MalformedTarget);
}

/// EGR-2, table A 22, 23, 26: addresses in any spelling.
#[test]
fn address_literals() {
    for target in [
        "127.0.0.1:443",
        "1.1.1.1:443",
        "0177.0.0.1:443",
        "0x7f000001:443",
        "0X7F000001:443",
        "127.0.0.0x1:443",
        "example.0x:443",
        "2130706433:443",
        "127.1:443",
        "0:443",
        "1.1:443",
        "example.1:443",
        "999.999.999.999:443",
        "[::1]:443",
        "[::ffff:1.1.1.1]:443",
        "[2606:4700::1111]:443",
        "[::1]:80",
        "1.1.1.1:80",
    ] {
        assert_eq!(reason(request(target)), Reason::IpLiteral, "{target}");
    }
}

/// EGR-3, table A 24: the port has one spelling.
#[test]
fn malformed_ports() {
    for port in
        ["0443", "+443", "443x", "", "00", "0", "4 43", "65536", "99999999999", "-443", "443:443", "443,80"]
    {
        let target = format!("api.example.com:{port}");
        let expected = if port.contains(' ') { Reason::MalformedRequest } else { Reason::MalformedTarget };
        assert_eq!(reason(request(&target)), expected, "{target}");
    }
    assert_eq!(reason(request("api.example.com: 443")), Reason::MalformedRequest);
}

/// EGR-3: another port is a rule's refusal, and is recorded with its number.
#[test]
fn other_ports() {
    for port in [1, 22, 80, 444, 8443, 65535] {
        let refused = read(request(&format!("api.example.com:{port}"))).unwrap_err();
        let expected = Refused { reason: Reason::PortNotAllowed, host: "api.example.com".into(), port };
        assert_eq!(refused, expected);
    }
}

/// Table A 27 to 29: zones, names and future forms in brackets.
#[test]
fn malformed_brackets() {
    for target in [
        "[fe80::1%25eth0]:443",
        "[fe80::1%eth0]:443",
        "[api.example.com]:443",
        "[[::1]]:443",
        "[v1.x]:443",
        "[::1]",
        "[::1]443",
        "[::1]:",
        "[::1]:0443",
        "[1.1.1.1]:443",
        "[]:443",
    ] {
        assert_eq!(reason(request(target)), Reason::MalformedTarget, "{target}");
    }
}

/// Table B 34, 36 and two Host headers: one Host, the target's.
#[test]
fn the_host_header_is_the_target() {
    let head = |hosts: &str| format!("CONNECT api.example.com:443 HTTP/1.1\r\n{hosts}\r\n");
    for good in
        ["Host: api.example.com:443\r\n", "host:api.example.com:443\r\n", "HOST: \tapi.example.com \r\n"]
    {
        assert_eq!(host_of(head(good)), "api.example.com", "{good}");
    }
    for bad in [
        "",
        "Host:\r\n",
        "Host: evil.com:443\r\n",
        "Host: api.example.com:80\r\n",
        "Host: API.example.com:443\r\n",
        "Host: api.example.com:443, evil.com\r\n",
        "Host: api.example.com:443\r\nHost: api.example.com:443\r\n",
        "Host: api.example.com:443\r\nhost: evil.com\r\n",
    ] {
        assert_eq!(reason(head(bad)), Reason::HostMismatch, "{bad}");
    }
}

/// Table B 37: Python before 3.12, and pip with it, speaks HTTP/1.0 and sends no Host.
#[test]
fn http_1_0_is_served() {
    assert_eq!(host_of("CONNECT api.example.com:443 HTTP/1.0\r\n\r\n"), "api.example.com");
    let wrong = "CONNECT api.example.com:443 HTTP/1.0\r\nHost: evil.com\r\n\r\n";
    assert_eq!(reason(wrong), Reason::HostMismatch);
}

/// Table B 37, 38.
#[test]
fn other_versions() {
    for version in ["HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "HTTP/3.0"] {
        let head = format!("CONNECT api.example.com:443 {version}\r\n");
        assert_eq!(reason(head), Reason::HttpVersion, "{version}");
    }
    for version in ["http/1.1", "HTTP/1", "HTTP/1.10", "HTTP/11", "HTTP/1.x", "HTTPS/1.1", "SIP/2.0", ""] {
        let head = format!("CONNECT api.example.com:443 {version}\r\n");
        assert_eq!(reason(head), Reason::MalformedRequest, "{version}");
    }
    assert_eq!(reason("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Reason::MalformedRequest);
    assert_eq!(reason("GET /\r\n"), Reason::MalformedRequest);
}

/// Table B 41, 54: only CONNECT, in capitals.
#[test]
fn other_methods() {
    for line in [
        "GET http://api.example.com/ HTTP/1.1",
        "GET / HTTP/1.0",
        "POST / HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "connect api.example.com:443 HTTP/1.1",
        "Connect api.example.com:443 HTTP/1.1",
        "CONNECTX api.example.com:443 HTTP/1.1",
        "TRACE / HTTP/1.1",
    ] {
        assert_eq!(reason(format!("{line}\r\n")), Reason::MethodNotAllowed, "{line}");
    }
}

/// Table B 39, 42 to 44: nothing may announce a body, in whatever spelling.
#[test]
fn bodies_are_refused() {
    for header in [
        "Content-Length: 0",
        "Content-Length: 5",
        "content-length: +1",
        "CONTENT-LENGTH: 0x1",
        "Content-Length: 1, 2",
        "Content-Length: 99999999999999999999999",
        "Content-Length:",
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked",
        "transfer-encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        assert_eq!(reason(with_header(header)), Reason::BodyNotAllowed, "{header}");
    }
    assert_eq!(reason(with_header("Transfer-Encoding: \x0bchunked")), Reason::MalformedRequest);
}

/// Table B 46 to 48: lines that readers disagree about.
#[test]
fn malformed_lines() {
    for header in [
        "X: a\r\n folded",
        "X: a\r\n\tfolded",
        " X: a",
        "X : a",
        "X\t: a",
        ": a",
        "X(y): a",
        "no colon",
        "X\u{e9}: a",
        "X: \u{e9}",
        "X: a\nY: b",
        "X: a\rY: b",
        "X: a\0",
        "X: \x0b",
        "X: \x7f",
        "X: a\r\r\nY: b",
    ] {
        assert_eq!(reason(with_header(header)), Reason::MalformedRequest, "{header:?}");
    }
    for head in [
        "CONNECT api.example.com:443 HTTP/1.1\nHost: api.example.com:443\n\n",
        "\r\nCONNECT api.example.com:443 HTTP/1.1\r\n",
        " CONNECT api.example.com:443 HTTP/1.1\r\n",
        "CONNECT  api.example.com:443 HTTP/1.1\r\n",
        "CONNECT api.example.com:443  HTTP/1.1\r\n",
        "CONNECT api.example.com:443 HTTP/1.1 \r\n",
        "CONNECT\tapi.example.com:443\tHTTP/1.1\r\n",
        "CONNECT api.example.com:443\r\n",
        "CONNECT\r\n",
        "\r\n",
        "\n",
        "SSH-2.0-OpenSSH_9.2p1\r\n",
    ] {
        assert_eq!(reason(head), Reason::MalformedRequest, "{head:?}");
    }
    assert_eq!(reason([0x16, 0x03, 0x01, 0x02, 0x00]), Reason::MalformedRequest);
}

/// Table B 52, 53: headers that mean something to a proxy which forwards mean nothing here: none goes on.
#[test]
fn other_headers_are_dropped() {
    for header in [
        "User-Agent: curl/7.88.1",
        "Proxy-Connection: Keep-Alive",
        "Connection: close, x-api-key",
        "Proxy-Authorization: Basic eDp5",
        "Expect: 100-continue",
        "Upgrade: h2c",
        "X-Empty:",
    ] {
        assert_eq!(host_of(with_header(header)), "api.example.com", "{header}");
    }
}

/// Table B 56: the verdict depends on the target alone, not on who relayed it.
#[test]
fn a_relayed_request_is_judged_the_same() {
    assert_eq!(host_of(with_header("Via: 1.1 inner\r\nForwarded: for=10.0.0.1")), "api.example.com");
}

/// The limit of the head: the value passes, one byte more does not.
#[test]
fn the_head_is_limited_exactly() {
    let without = with_header("X: ").len();
    let longest = with_header(&format!("X: {}", "a".repeat(MAX_HEAD - without)));
    assert_eq!(longest.len(), MAX_HEAD);
    assert_eq!(host_of(&longest), "api.example.com");
    let longer = with_header(&format!("X: {}", "a".repeat(MAX_HEAD - without + 1)));
    assert_eq!(reason(longer), Reason::HeadTooLarge);
    assert_eq!(reason("A".repeat(MAX_HEAD + 1)), Reason::HeadTooLarge);
}

/// What a client sends ahead belongs to the tunnel, whatever it is.
#[test]
fn bytes_behind_the_head_are_left_alone() {
    let head = request("api.example.com:443");
    let mut bytes = head.clone().into_bytes();
    bytes.extend([0x16, 0x03, 0x01, 0, b'\n']);
    assert_eq!(read(bytes).unwrap().unwrap().length, head.len());
}

/// A refusal carries what was asked for, so that the record can say it; never a byte that a terminal would obey.
#[test]
fn refusals_carry_the_target() {
    let refused = read(request("1.1.1.1:443")).unwrap_err();
    assert_eq!((refused.host.as_str(), refused.port), ("1.1.1.1", 443));
    let refused = read("CONNECT a\x1b[2Jb:443 HTTP/1.1\r\n").unwrap_err();
    assert_eq!((refused.reason, refused.host.as_str()), (Reason::MalformedTarget, "a"));
}

proptest! {
    /// However the bytes are cut, the verdict is the same.
    #[test]
    fn pieces_do_not_matter(
        bytes in prop_oneof![
            Just(request("api.example.com:443").into_bytes()),
            Just(request("1.1.1.1:443").into_bytes()),
            Just(with_header("X : a").into_bytes()),
            Just(with_header("Content-Length: 1").into_bytes()),
            proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b' '), Just(b':'), any::<u8>()], 0..80),
        ],
        cuts in proptest::collection::vec(0usize..120, 0..8),
    ) {
        let whole = read(&bytes);
        let mut reader = HeadReader::default();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let mut verdict = Ok(None);
        for cut in cuts {
            verdict = reader.read(&bytes[..cut]);
            if verdict != Ok(None) {
                break;
            }
        }
        prop_assert_eq!(verdict, whole);
    }

    /// EGR-3: what is accepted is exactly one name and 443, and the name is the bytes of the request.
    #[test]
    fn what_is_accepted_is_what_was_written(target in "[a-zA-Z0-9._:@%#\\[\\]/-]{1,40}") {
        if let Ok(Some(head)) = read(request(&target)) {
            prop_assert_eq!(format!("{}:443", head.target.host()), target);
            let name = head.target.host();
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
            prop_assert!(name.parse::<std::net::IpAddr>().is_err());
        }
    }

    /// Any bytes at all: an answer, never a panic, and never more than the limit is read.
    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        if let Ok(Some(head)) = read(&bytes) {
            prop_assert!(head.length <= MAX_HEAD);
        }
    }
}
