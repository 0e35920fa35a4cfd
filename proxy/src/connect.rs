//! The head of a CONNECT request (RFC 9110, section 9.3.6), read as strictly as it can be.
//!
//! A general HTTP parser is the wrong tool for a border: it repairs what it can (bare line feeds, two Host headers,
//! a user name before the host), and each repair is a chance that two readers see two different targets. Here what is
//! not exactly a CONNECT request for one name and port 443 is refused, and nothing is rewritten.
//!
//! HTTP/1.0 is spoken by Python before 3.12, and so by pip on Debian 12: it is served, with or without a Host header.

use ipc_proto::host::{MAX_LABEL, MAX_NAME};
use ipc_proto::proxy::{MAX_REPORTED_NAME, Reason};

use crate::address::HTTPS_PORT;

/// The longest head, in bytes. Real ones have 60 to 400.
pub const MAX_HEAD: usize = 8 * 1024;

const CRLF: &str = "\r\n";
/// The port as it must be written.
const PORT_TEXT: &str = "443";

/// What is asked for: a host name as it was written (compared exactly, EGR-3) and port 443.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    host: String,
}

impl Target {
    /// The name, as the client wrote it.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// A whole head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// What is asked for.
    pub target: Target,
    /// How many bytes the head has. What follows belongs to the tunnel.
    pub length: usize,
}

/// A head that was refused, with as much of its target as could be read, for the record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// The host as it was written, printable ASCII only, cut; empty: none could be read.
    pub host: String,
    /// The port; 0: none could be read.
    pub port: u16,
}

impl Refused {
    fn bare(reason: Reason) -> Refused {
        Refused { reason, host: String::new(), port: 0 }
    }

    fn at(reason: Reason, host: &str, port: u16) -> Refused {
        Refused { reason, host: printable(host), port }
    }
}

/// Text of a stranger as the record may have it.
fn printable(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(MAX_REPORTED_NAME).collect()
}

/// Reads a head that comes in pieces. Each byte is looked at once, however small the pieces.
#[derive(Default, Debug)]
pub struct HeadReader {
    seen: usize,
    line: Option<RequestLine>,
}

impl HeadReader {
    /// Looks at all bytes that have come so far. `Ok(None)`: more are needed.
    ///
    /// # Errors
    /// [`Refused`], as early as it is certain.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<Head>, Refused> {
        while let Some(byte) = bytes.get(self.seen).copied() {
            if self.seen >= MAX_HEAD {
                return Err(self.refused(Reason::HeadTooLarge));
            }
            let before = self.seen.checked_sub(1).and_then(|place| bytes.get(place).copied());
            // A line feed or a carriage return alone ends a line for some readers and not for others.
            let sound = match byte {
                b'\n' => before == Some(b'\r'),
                b'\t' | b'\r' | b' '..=b'~' => before != Some(b'\r'),
                0..=8 | 11 | 12 | 14..=31 | 127.. => false,
            };
            if !sound {
                return Err(self.unsound(bytes));
            }
            self.seen += 1;
            if byte != b'\n' {
                continue;
            }
            let head = bytes.get(..self.seen).unwrap_or_default();
            match &self.line {
                // The first line is judged at once: who speaks another protocol need not wait for the deadline.
                None => self.line = Some(RequestLine::parse(ascii(head).trim_end_matches(CRLF))?),
                Some(line) if head.ends_with(b"\r\n\r\n") => {
                    let target = line.with_headers(ascii(head))?;
                    return Ok(Some(Head { target, length: self.seen }));
                }
                Some(_) => {}
            }
        }
        Ok(None)
    }

    /// The refusal of a head that did not become whole.
    #[must_use]
    pub fn refused(&self, reason: Reason) -> Refused {
        match &self.line {
            Some(line) => Refused::at(reason, &line.target.host, HTTPS_PORT),
            None => Refused::bare(reason),
        }
    }

    /// A byte that no head has. Where it stands in a CONNECT target, the target is what is wrong.
    fn unsound(&self, bytes: &[u8]) -> Refused {
        let sound = ascii(bytes.get(..self.seen).unwrap_or_default());
        match (&self.line, sound.strip_prefix("CONNECT ")) {
            (None, Some(target)) if !target.contains(' ') => Refused::at(Reason::MalformedTarget, target, 0),
            (Some(_) | None, Some(_) | None) => self.refused(Reason::MalformedRequest),
        }
    }
}

/// Bytes that [`HeadReader::read`] has found to be ASCII, as text.
fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    Http10,
    Http11,
}

#[derive(Debug)]
struct RequestLine {
    target: Target,
    version: Version,
}

impl RequestLine {
    fn parse(line: &str) -> Result<RequestLine, Refused> {
        let malformed = || Refused::bare(Reason::MalformedRequest);
        let mut parts = line.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        if !is_token(method) || target.is_empty() {
            return Err(malformed());
        }
        let version = parse_version(version, method)?;
        // Methods are case-sensitive (RFC 9110, section 9.1): `connect` is another one.
        if method != "CONNECT" {
            return Err(Refused::bare(Reason::MethodNotAllowed));
        }
        let Some(version) = version else {
            return Err(Refused::bare(Reason::HttpVersion));
        };
        Ok(RequestLine { target: parse_target(target)?, version })
    }

    /// Checks the header lines below the request line.
    fn with_headers(&self, head: &str) -> Result<Target, Refused> {
        let refuse = |reason| Err(Refused::at(reason, &self.target.host, HTTPS_PORT));
        let mut host = None;
        for line in head.trim_end_matches(CRLF).split(CRLF).skip(1) {
            // No token begins with a blank or ends in one, so folded lines and "Host :" end here too.
            let Some((name, value)) = line.split_once(':').filter(|(name, _)| is_token(name)) else {
                return refuse(Reason::MalformedRequest);
            };
            let value = value.trim_matches([' ', '\t']);
            if name.eq_ignore_ascii_case("host") {
                if host.replace(value).is_some() {
                    return refuse(Reason::HostMismatch);
                }
            } else if name.eq_ignore_ascii_case("content-length")
                || name.eq_ignore_ascii_case("transfer-encoding")
            {
                // What follows the head is TLS; a body would be taken for it (RFC 9110, section 9.3.6).
                return refuse(Reason::BodyNotAllowed);
            }
        }
        let matches = match host {
            Some(host) => host == self.target.host || host.strip_suffix(":443") == Some(self.target.host()),
            None => self.version == Version::Http10,
        };
        if matches { Ok(self.target.clone()) } else { refuse(Reason::HostMismatch) }
    }
}

/// `Ok(None)`: HTTP, but no version that is served.
fn parse_version(text: &str, method: &str) -> Result<Option<Version>, Refused> {
    let malformed = Refused::bare(Reason::MalformedRequest);
    match text {
        "HTTP/1.1" => Ok(Some(Version::Http11)),
        "HTTP/1.0" => Ok(Some(Version::Http10)),
        // The first line of HTTP/2 (RFC 9113, section 3.4) is no request.
        "HTTP/2.0" if method == "PRI" => Err(malformed),
        _ => match text.strip_prefix("HTTP/").map(str::as_bytes) {
            Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => Ok(None),
            Some(_) | None => Err(malformed),
        },
    }
}

fn parse_target(text: &str) -> Result<Target, Refused> {
    let malformed = || Refused::at(Reason::MalformedTarget, text, 0);
    if let Some(literal) = text.strip_prefix('[') {
        return Err(refuse_bracketed(literal).unwrap_or_else(malformed));
    }
    let (host, port) = text.split_once(':').ok_or_else(malformed)?;
    check_name(host).ok_or_else(malformed)?;
    let port = parse_port(port).ok_or_else(malformed)?;
    if ends_in_a_number(host) {
        return Err(Refused::at(Reason::IpLiteral, host, port));
    }
    if port != HTTPS_PORT {
        return Err(Refused::at(Reason::PortNotAllowed, host, port));
    }
    Ok(Target { host: host.to_owned() })
}

/// `[::1]:443` is an address; a zone, a name or a future form in brackets is nothing at all.
fn refuse_bracketed(rest: &str) -> Option<Refused> {
    let (address, port) = rest.split_once("]:")?;
    address.parse::<std::net::Ipv6Addr>().ok()?;
    Some(Refused::at(Reason::IpLiteral, address, parse_port(port)?))
}

/// One spelling only: no sign, no leading zero, no blank.
fn parse_port(text: &str) -> Option<u16> {
    if text == PORT_TEXT {
        return Some(HTTPS_PORT);
    }
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain)
}

/// A name that could stand in DNS: an underscore may, though no entry has one; a final dot may not (one spelling only).
fn check_name(host: &str) -> Option<()> {
    let label_is_sound = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    (host.len() <= MAX_NAME && host.split('.').all(label_is_sound)).then_some(())
}

/// WHATWG URL, section 3.5: such a host is an IPv4 address for some client, however it is spelt.
fn ends_in_a_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests;
