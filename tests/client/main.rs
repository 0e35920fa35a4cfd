//! A client of the egress proxy that says what it is told to, byte by byte: `tunnel-client 'JSON'`.
//!
//! The argument is a list of steps; the answer on standard output is the list of what became of each. It runs inside
//! the sandbox and finds the proxy where every program does, in HTTPS_PROXY.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod hello;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long an answer may take, unless a step says otherwise.
const PATIENCE_MS: u64 = 5_000;

fn main() {
    let argument = std::env::args().nth(1).expect("steps as JSON");
    let steps: Vec<Value> = serde_json::from_str(&argument).expect("a list of steps");
    let proxy = std::env::var("HTTPS_PROXY").expect("HTTPS_PROXY");
    let proxy = proxy.trim_start_matches("http://").trim_end_matches('/').to_owned();
    // Connections that later steps need open.
    let mut held = Vec::new();
    let results: Vec<Value> = steps.iter().map(|step| run(&proxy, step, &mut held)).collect();
    println!("{}", Value::Array(results));
}

fn run(proxy: &str, step: &Value, held: &mut Vec<TcpStream>) -> Value {
    match step["op"].as_str().expect("an op") {
        "raw" => raw(proxy, step),
        "tunnel" => tunnel(proxy, step, held),
        "tunnels" => {
            let count = number(step, "count").expect("a count");
            Value::Array((0..count).map(|_| tunnel(proxy, step, held)).collect())
        }
        "connections" => connections(proxy, step, held),
        "release" => {
            held.clear();
            // The proxy has to hear of it.
            thread::sleep(Duration::from_millis(300));
            json!("released")
        }
        "sleep" => {
            thread::sleep(Duration::from_millis(number(step, "ms").expect("ms")));
            json!("slept")
        }
        other => panic!("unknown op {other}"),
    }
}

fn number(step: &Value, name: &str) -> Option<u64> {
    step[name].as_u64()
}

fn patience(step: &Value) -> Duration {
    Duration::from_millis(number(step, "patience_ms").unwrap_or(PATIENCE_MS))
}

fn connect(proxy: &str, step: &Value) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(proxy)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience(step)))?;
    Ok(stream)
}

/// Bytes as text, which may hold `\xNN` for the ones that JSON cannot.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend(before.as_bytes());
        bytes.push(u8::from_str_radix(&after[..2], 16).expect("two hexadecimal digits"));
        rest = &after[2..];
    }
    bytes.extend(rest.as_bytes());
    bytes
}

/// Sends these bytes and gives the whole answer.
fn raw(proxy: &str, step: &Value) -> Value {
    let mut stream = match connect(proxy, step) {
        Ok(stream) => stream,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let send = bytes(step["send"].as_str().expect("bytes to send"));
    // A head that does not come at once: a byte each so many milliseconds.
    match number(step, "every_ms") {
        None => drop(stream.write_all(&send)),
        Some(every) => {
            for byte in send {
                if stream.write_all(&[byte]).is_err() {
                    break;
                }
                thread::sleep(Duration::from_millis(every));
            }
        }
    }
    let started = Instant::now();
    let (answer, closed) = read_all(&mut stream);
    let mut result = parse(&answer);
    result["closed"] = json!(closed);
    result["after_ms"] = json!(started.elapsed().as_millis() as u64);
    result
}

/// Reads until the end (true) or until nothing comes any more (false).
fn read_all(stream: &mut TcpStream) -> (Vec<u8>, bool) {
    let mut answer = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (answer, true),
            Ok(length) => answer.extend(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return (answer, false),
            Err(_) => return (answer, true),
        }
    }
}

fn parse(answer: &[u8]) -> Value {
    let text = String::from_utf8_lossy(answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status: Option<u16> = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    json!({ "status": status, "head": head, "body": body })
}

/// Opens a tunnel, says hello, sends, receives.
fn tunnel(proxy: &str, step: &Value, held: &mut Vec<TcpStream>) -> Value {
    let host = step["host"].as_str().expect("a host");
    let port = number(step, "port").unwrap_or(443);
    let mut stream = match connect(proxy, step) {
        Ok(stream) => stream,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let head = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    if let Err(error) = stream.write_all(head.as_bytes()) {
        return json!({ "error": error.to_string() });
    }
    let answer = read_head(&mut stream);
    let mut result = parse(&answer);
    if result["status"] != 200 {
        let (rest, closed) = read_all(&mut stream);
        result["body"] =
            json!(result["body"].as_str().unwrap_or_default().to_owned() + &String::from_utf8_lossy(&rest));
        result["closed"] = json!(closed);
        return result;
    }
    speak(&mut stream, step, host, &mut result);
    if step["hold"] == true {
        held.push(stream);
    }
    result
}

fn read_head(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.extend(byte);
    }
    head
}

fn speak(stream: &mut TcpStream, step: &Value, host: &str, result: &mut Value) {
    let hello = hello::bytes(step["hello"].as_str().unwrap_or("plain"), step["sni"].as_str().unwrap_or(host));
    let segment = usize::try_from(number(step, "segment").unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let every = Duration::from_millis(number(step, "every_ms").unwrap_or(0));
    let mut sent = 0;
    for part in hello.chunks(segment.clamp(1, hello.len().max(1))) {
        if stream.write_all(part).is_err() {
            break;
        }
        sent += part.len() as u64;
        if !every.is_zero() {
            thread::sleep(every);
        }
    }
    result["hello"] = json!(hello.len());
    if let Some(second) = step["second_sni"].as_str() {
        // The server's retry request comes first.
        let mut retry = [0; 4096];
        result["retry"] = json!(stream.read(&mut retry).unwrap_or_default());
        let _ = stream.write_all(&hello::bytes("plain", second));
    }
    if step["greeted"] == true {
        // The server's first message: after it, anything may be sent.
        let mut greeting = [0; 4096];
        result["greeting"] = json!(stream.read(&mut greeting).unwrap_or_default());
    }
    let mut left = number(step, "send").unwrap_or(0);
    let filler = [0x17u8; 65536];
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(filler.len());
        if let Err(error) = stream.write_all(&filler[..length]) {
            result["send_error"] = json!(error.to_string());
            break;
        }
        sent += length as u64;
        left -= length as u64;
    }
    result["sent"] = json!(sent);
    if step["half_close"] == true {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let wanted = number(step, "receive").unwrap_or(0);
    let mut received = 0u64;
    let mut buffer = [0; 65536];
    let mut end = "enough";
    let mut first = None;
    let started = Instant::now();
    while received < wanted {
        match stream.read(&mut buffer) {
            Ok(0) => end = "closed",
            Ok(length) => {
                first = first.or(buffer.first().copied());
                received += length as u64;
                continue;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => end = "silence",
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => end = "reset",
        }
        break;
    }
    result["received"] = json!(received);
    result["first"] = json!(first);
    result["end"] = json!(end);
    result["after_ms"] = json!(started.elapsed().as_millis() as u64);
}

/// Plain connections to the endpoint, all open at once: each gets an answer, is closed, or waits to be spoken to.
fn connections(proxy: &str, step: &Value, held: &mut Vec<TcpStream>) -> Value {
    let count = number(step, "count").expect("a count");
    let streams: Vec<_> = (0..count)
        .map(|_| {
            let stream = connect(proxy, step);
            // In this order, so that it is the last one that is too many.
            thread::sleep(Duration::from_millis(5));
            stream
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    let mut states = Vec::new();
    for stream in streams {
        let Ok(mut stream) = stream else {
            states.push(json!({ "state": "refused" }));
            continue;
        };
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("time-out");
        let (answer, closed) = read_all(&mut stream);
        let mut state = parse(&answer);
        state["state"] = json!(if closed { "closed" } else { "waiting" });
        states.push(state);
        held.push(stream);
    }
    Value::Array(states)
}
