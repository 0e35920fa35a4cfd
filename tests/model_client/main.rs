//! A client of the broker that says what it is told to, byte by byte: `model-client FILE`.
//!
//! The file holds a list of steps as JSON; the answer on standard output is the list of what became of each. It runs
//! inside the sandbox and finds the broker where every program does, in ANET_MODEL_URL.
//!
//! | step | does |
//! | --- | --- |
//! | `{"send": TEXT}` | sends these bytes (`\xNN` for what JSON cannot hold, `{host}` for the endpoint) and reads one answer |
//! | `{"post": PATH, "body": TEXT, "headers": [[N, V]...]}` | one well-formed request, with a body of this text |
//! | `..., "pad": N` | the body is filled with spaces to so many bytes |
//! | `..., "filler": N` | `FILLER` in the body becomes so many letters |
//! | `..., "half_close": true` `"abandon_ms": N` | closes its writing side; goes away after so long |
//! | `..., "keep": true` | the connection is left open for the next step that has `"again": true` |
//! | `..., "head": true` | the answer is a head alone, as that of HEAD |
//! | `{"ms": N}` | waits |

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long an answer may take, unless a step says otherwise.
const PATIENCE_MS: u64 = 10_000;
/// More of an answer than this is not shown.
const SHOWN: usize = 4096;

fn main() {
    let file = std::env::args().nth(1).expect("a file of steps");
    let text = std::fs::read(&file).unwrap_or_else(|e| panic!("{file}: {e}"));
    let steps: Vec<Value> = serde_json::from_slice(&text).expect("a list of steps");
    let url = std::env::var("ANET_MODEL_URL").expect("ANET_MODEL_URL");
    let rest = url.strip_prefix("http://").expect("plain HTTP on the own loopback");
    let address = rest.split('/').next().expect("an address").to_owned();
    let mut kept = None;
    let results: Vec<Value> = steps.iter().map(|step| run(&address, step, &mut kept)).collect();
    println!("{}", Value::Array(results));
}

fn run(address: &str, step: &Value, kept: &mut Option<TcpStream>) -> Value {
    if let Some(ms) = step["ms"].as_u64() {
        thread::sleep(Duration::from_millis(ms));
        return json!({});
    }
    let stream = match kept.take().filter(|_| step["again"] == true) {
        Some(stream) => Ok(stream),
        None => TcpStream::connect(address),
    };
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let patience = step["patience_ms"].as_u64().unwrap_or(PATIENCE_MS);
    stream.set_nodelay(true).expect("nodelay");
    stream.set_read_timeout(Some(Duration::from_millis(patience))).expect("time-out");
    let request = if step["post"].is_string() { post(address, step) } else { raw(address, &step["send"]) };
    let started = Instant::now();
    // The answer can come before the whole request was taken: another thread sends.
    let mut writer = stream.try_clone().expect("a second handle");
    let (every, half) = (step["every_ms"].as_u64(), step["half_close"] == true);
    let sender = thread::spawn(move || {
        let done = match every {
            None => writer.write_all(&request),
            Some(every) => request.iter().try_for_each(|byte| {
                thread::sleep(Duration::from_millis(every));
                writer.write_all(&[*byte])
            }),
        };
        if half {
            let _ = writer.shutdown(Shutdown::Write);
        }
        done.is_ok()
    });
    if let Some(ms) = step["abandon_ms"].as_u64() {
        thread::sleep(Duration::from_millis(ms));
        let _ = stream.shutdown(Shutdown::Both);
        return json!({ "abandoned": true });
    }
    let mut result = answer(&mut stream, started, step["head"] == true);
    if step["keep"] == true {
        *kept = Some(stream);
    } else {
        // What cannot be sent any more is not waited for.
        let _ = stream.shutdown(Shutdown::Both);
    }
    result["sent"] = json!(sender.join().unwrap_or(false));
    result
}

/// Bytes as text, which may hold `\xNN` for the ones that JSON cannot.
fn raw(address: &str, text: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    let text = text.as_str().expect("bytes to send").replace("{host}", address);
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend(before.as_bytes());
        bytes.push(u8::from_str_radix(&after[..2], 16).expect("two hexadecimal digits"));
        rest = &after[2..];
    }
    bytes.extend(rest.as_bytes());
    bytes
}

fn post(address: &str, step: &Value) -> Vec<u8> {
    let body = match &step["body"] {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            step["body"].to_string()
        }
    };
    let body = match step["filler"].as_u64() {
        Some(count) => body.replace("FILLER", &"a".repeat(usize::try_from(count).expect("a size"))),
        None => body,
    };
    let mut body = body.into_bytes();
    if let Some(size) = step["pad"].as_u64() {
        let size = usize::try_from(size).expect("a size");
        assert!(body.len() <= size, "the body is longer than {size} bytes already");
        body.resize(size, b' ');
    }
    let path = step["post"].as_str().expect("a path");
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n");
    for header in step["headers"].as_array().into_iter().flatten() {
        head.push_str(&format!(
            "{}: {}\r\n",
            header[0].as_str().expect("a name"),
            header[1].as_str().expect("a value")
        ));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    [head.into_bytes(), body].concat()
}

/// Reads one answer: to the end that its own head tells, or to the connection's.
fn answer(stream: &mut TcpStream, started: Instant, head_alone: bool) -> Value {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 65536];
    let mut first = None;
    let end = loop {
        if whole(&bytes) || head_alone && bytes.ends_with(b"\r\n\r\n") {
            break "whole";
        }
        match stream.read(&mut buffer) {
            Ok(0) => break "closed",
            Ok(length) => {
                first.get_or_insert_with(|| started.elapsed().as_millis() as u64);
                bytes.extend(&buffer[..length]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break "silence",
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break "reset",
        }
    };
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status: Option<u16> = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    json!({ "status": status, "head": head, "body": body, "length": bytes.len(), "end": end, "first_ms": first,
            "after_ms": started.elapsed().as_millis() as u64 })
}

fn whole(bytes: &[u8]) -> bool {
    let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { return false };
    let (head, body) = (String::from_utf8_lossy(&bytes[..at]).to_ascii_lowercase(), &bytes[at + 4..]);
    if head.contains("\r\ntransfer-encoding: chunked") {
        return body.ends_with(b"\r\n0\r\n\r\n") || body == b"0\r\n\r\n";
    }
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}
