//! The head of a request, read as strictly as it can be, before a general HTTP parser sees it.
//!
//! Such a parser repairs what it can (bare line feeds, two Host headers, a content-length beside a transfer-encoding), and
//! each repair is a chance that it and somebody else see two different requests. Here what is not exactly one plain request
//! for a path of this endpoint is refused, and nothing is rewritten: what passes is handed on as it came, byte by byte, and
//! has one reading only.

use http::StatusCode;

use crate::policy::{Refusal, Rule, amount};

/// The longest head, in bytes. Those of agents have 300 to 3000.
pub const MAX_HEAD: usize = 32 * 1024;
/// The most headers. Agents send 8 to 30.
pub const MAX_HEADERS: usize = 64;
/// The most digits of a content-length: no number of so many overflows.
const MAX_DIGITS: usize = 18;

const CRLF: &str = "\r\n";

/// A head that has one reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// How many bytes it has, with the empty line.
    pub length: usize,
    /// How many bytes of body follow.
    pub content_length: u64,
}

/// Reads a head that comes in pieces. Each byte is looked at once, however small the pieces are.
#[derive(Default, Debug)]
pub struct HeadReader {
    seen: usize,
}

impl HeadReader {
    /// Looks at all bytes that have come so far. `Ok(None)`: more are needed. `hosts` are the values that a Host header may
    /// have, in lower case.
    ///
    /// # Errors
    /// The refusal, as early as it is certain, and the same however the bytes were cut.
    pub fn read(&mut self, bytes: &[u8], hosts: &[String]) -> Result<Option<Head>, Refusal> {
        while let Some(byte) = bytes.get(self.seen).copied() {
            if self.seen >= MAX_HEAD {
                return Err(Refusal::of(Rule::HeadTooLarge, &amount(MAX_HEAD as u64)));
            }
            let before = self.seen.checked_sub(1).and_then(|place| bytes.get(place).copied());
            // A line feed or a carriage return alone ends a line for some readers and not for others.
            let sound = match byte {
                b'\n' => before == Some(b'\r'),
                // Above ASCII only a value may go: `check` sees to that.
                b'\t' | b'\r' | b' '..=b'~' | 0x80.. => before != Some(b'\r'),
                0..=8 | 11 | 12 | 14..=31 | 0x7f => false,
            };
            if !sound {
                return Err(malformed("a byte that no head has, or a line that does not end in CR LF"));
            }
            self.seen += 1;
            let head = bytes.get(..self.seen).unwrap_or_default();
            // The empty line: also the first one, where a request line belongs.
            if byte == b'\n' && (head.ends_with(b"\r\n\r\n") || head == b"\r\n") {
                let content_length = check(head, hosts)?;
                return Ok(Some(Head { length: self.seen, content_length }));
            }
        }
        Ok(None)
    }
}

/// Checks a whole head, its empty line included, and says how long the body is.
///
/// # Errors
/// The refusal.
pub fn check(head: &[u8], hosts: &[String]) -> Result<u64, Refusal> {
    // Latin 1, so that each byte is one character; nothing but values may have one above ASCII.
    let head: String = head.iter().map(|byte| char::from(*byte)).collect();
    let head = head.strip_suffix("\r\n\r\n").ok_or_else(|| malformed("it has no request line"))?;
    let mut lines = head.split(CRLF);
    request_line(lines.next().unwrap_or_default())?;

    let mut fields = Fields::default();
    for (count, line) in lines.enumerate() {
        if count == MAX_HEADERS {
            return Err(Refusal::of(Rule::HeadTooLarge, &format!("{MAX_HEADERS} headers")));
        }
        // No token begins or ends with a blank, so folded lines and "Host :" end here too.
        let Some((name, value)) = line.split_once(':').filter(|(name, _)| is_token(name)) else {
            return Err(malformed("a line that is no header"));
        };
        fields.take(&name.to_ascii_lowercase(), value.trim_matches([' ', '\t']))?;
    }
    fields.finish(hosts)
}

/// The headers that say where the request goes and where it ends, each of which may stand once.
#[derive(Default)]
struct Fields {
    host: Option<String>,
    content_length: Option<u64>,
}

impl Fields {
    fn take(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        match name {
            "host" => once(&mut self.host, value.to_ascii_lowercase(), "Host")?,
            "content-length" => {
                let length =
                    content_length(value).ok_or_else(|| malformed("its content-length is no number"))?;
                once(&mut self.content_length, length, "Content-Length")?;
            }
            // Nobody's agent sends its body in pieces, and what is not read cannot be read in two ways.
            "transfer-encoding" => {
                let thing = "it comes in pieces (transfer-encoding) where a content-length belongs";
                let refusal = Refusal::of(Rule::BodyMalformed, thing);
                return Err(Refusal { status: StatusCode::LENGTH_REQUIRED, ..refusal });
            }
            "expect" if !value.eq_ignore_ascii_case("100-continue") => {
                return Err(malformed("an expectation that nobody here can meet (Expect)"));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self, hosts: &[String]) -> Result<u64, Refusal> {
        let host = self.host.ok_or_else(|| malformed("it has no Host header"))?;
        if !hosts.contains(&host) {
            return Err(malformed("its Host header names somebody else"));
        }
        Ok(self.content_length.unwrap_or(0))
    }
}

/// A header that may stand once.
fn once<T>(place: &mut Option<T>, value: T, name: &str) -> Result<(), Refusal> {
    match place.replace(value) {
        Some(_) => Err(Refusal::of(Rule::HeaderRepeated, name)),
        None => Ok(()),
    }
}

fn request_line(line: &str) -> Result<(), Refusal> {
    let mut parts = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed("its first line is not METHOD PATH HTTP/1.1"));
    };
    if !is_token(method) {
        return Err(malformed("its method is no word"));
    }
    if version != "HTTP/1.1" {
        return Err(malformed("its version is not HTTP/1.1"));
    }
    // No target of CONNECT begins with a slash; a parser would hand it on as something else than a request.
    if method == "CONNECT" {
        return Err(Refusal::of(Rule::MethodNotAllowed, method));
    }
    if !target.starts_with('/') || !target.bytes().all(is_target) {
        return Err(malformed("its target is no path"));
    }
    Ok(())
}

/// One spelling of a number: no sign, no blank, no list.
fn content_length(value: &str) -> Option<u64> {
    let plain = value.len() <= MAX_DIGITS && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|_| plain)
}

/// RFC 3986, sections 3.3 and 3.4: what a path and a query are made of.
fn is_target(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte)
}

/// RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn malformed(why: &str) -> Refusal {
    Refusal::of(Rule::MalformedHead, why)
}

#[cfg(test)]
mod tests;
