//! HTTP/1.1 as a strict server reads it, and answers in whole or in chunks.

use std::io::{self, BufRead, Read, Write};

/// A head longer than this is none (what large services accept, with a margin).
const HEAD_LIMIT: usize = 64 * 1024;
/// The largest body that a service takes (Anthropic's documented limit).
const BODY_LIMIT: u64 = 32 << 20;

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) head: Vec<String>,
    pub(super) body: Vec<u8>,
    /// What is wrong with it as HTTP: then nothing behind it can be read.
    pub(super) fault: Option<&'static str>,
}

/// Reads one request; none at the end of the connection.
pub(super) fn read(stream: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let before = bytes.len();
        // A limit on the line, not only on the head: a line that never ends would be read for ever.
        stream.by_ref().take(HEAD_LIMIT as u64).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.len() == before || bytes.len() > HEAD_LIMIT {
            return Ok(Some(Request {
                head: lines(&bytes),
                body: Vec::new(),
                fault: Some("the head does not end"),
            }));
        }
    }
    let head = lines(&bytes);
    let mut request = Request { head, body: Vec::new(), fault: None };
    request.fault = fault(&bytes, &request);
    if request.fault.is_none() {
        request.fault = body(stream, &mut request)?;
    }
    Ok(Some(request))
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches("\r\n").split("\r\n").map(str::to_owned).collect()
}

impl Request {
    pub(super) fn values(&self, name: &str) -> Vec<&str> {
        let lines = self.head.iter().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.values(name).first().copied()
    }

    pub(super) fn method(&self) -> &str {
        self.head.first().and_then(|line| line.split(' ').next()).unwrap_or_default()
    }

    pub(super) fn target(&self) -> &str {
        self.head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default()
    }
}

/// What a front end in front of a real service refuses: everything that two readers could read in two ways.
fn fault(bytes: &[u8], request: &Request) -> Option<&'static str> {
    let bare = |(at, byte): (usize, &u8)| *byte == b'\n' && (at == 0 || bytes.get(at - 1) != Some(&b'\r'));
    if bytes.iter().enumerate().any(bare) {
        return Some("a line ends without a carriage return");
    }
    let words: Vec<&str> = request.head.first().map(|line| line.split(' ').collect()).unwrap_or_default();
    let [_, target, "HTTP/1.1"] = words.as_slice() else { return Some("no request line of HTTP/1.1") };
    if !target.starts_with('/') {
        return Some("the target is no path");
    }
    let named =
        |line: &String| line.split_once(':').is_some_and(|(n, _)| !n.is_empty() && !n.contains([' ', '\t']));
    if !request.head.iter().skip(1).all(named) {
        return Some("a header line is none");
    }
    for once in ["host", "content-length", "content-type", "transfer-encoding", "authorization", "x-api-key"]
    {
        if request.values(once).len() > 1 {
            return Some("a header that stands once at most is repeated");
        }
    }
    if request.header("host").is_none() {
        return Some("no Host");
    }
    if request.header("content-length").is_some() && request.header("transfer-encoding").is_some() {
        return Some("two lengths");
    }
    if request.header("upgrade").is_some() {
        return Some("an upgrade");
    }
    None
}

fn body(stream: &mut impl BufRead, request: &mut Request) -> io::Result<Option<&'static str>> {
    if let Some(encoding) = request.header("transfer-encoding") {
        if encoding != "chunked" {
            return Ok(Some("a transfer encoding that is not chunked"));
        }
        return chunks(stream, &mut request.body);
    }
    let Some(length) = request.header("content-length") else { return Ok(None) };
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    let Some(length) = length.parse::<u64>().ok().filter(|l| digits && *l <= BODY_LIMIT) else {
        return Ok(Some("a content length that is none"));
    };
    stream.take(length).read_to_end(&mut request.body)?;
    let whole = request.body.len() as u64 == length;
    Ok((!whole).then_some("the body ends early"))
}

fn chunks(stream: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<Option<&'static str>> {
    let mut line = String::new();
    loop {
        line.clear();
        stream.by_ref().take(64).read_line(&mut line)?;
        let Some(size) = line.strip_suffix("\r\n").and_then(|digits| u64::from_str_radix(digits, 16).ok())
        else {
            return Ok(Some("a chunk without a size"));
        };
        if body.len() as u64 + size > BODY_LIMIT {
            return Ok(Some("a body that is too large"));
        }
        stream.by_ref().take(size).read_to_end(body)?;
        line.clear();
        stream.by_ref().take(2).read_line(&mut line)?;
        if line != "\r\n" {
            return Ok(Some("a chunk that does not end where it says"));
        }
        if size == 0 {
            return Ok(None);
        }
    }
}

/// The head of an answer; no length: the body comes in chunks.
pub(super) fn head(status: u16, headers: &[(&str, &str)], length: Option<usize>) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} {}\r\n", phrase(status));
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    match length {
        Some(length) => text.push_str(&format!("content-length: {length}\r\n\r\n")),
        None => text.push_str("transfer-encoding: chunked\r\n\r\n"),
    }
    text.into_bytes()
}

/// One chunk, sent at once. An empty one ends the body.
pub(super) fn chunk(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    // In one write: a packet for the size and one for the bytes is not how a service sends.
    let mut packet = format!("{:x}\r\n", bytes.len()).into_bytes();
    packet.extend(bytes);
    packet.extend(b"\r\n");
    out.write_all(&packet)?;
    out.flush()
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Payload Too Large",
        415 => "Unsupported Media Type",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        _ => "Status",
    }
}
