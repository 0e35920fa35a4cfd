//! One connection after another: read, record, decide, answer as the task's directives say.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{self, Request};
use super::script::{Directives, Hang};
use super::{End, Kind, PRIVATE_HEADER, Recorded, Shared, anthropic, chat, responses};
use crate::internet::{Raw, server_config};

/// Between two events of a slow answer.
const SLOW: Duration = Duration::from_millis(100);
/// The field of an answer that shows the key.
const ECHO: &str = "echo";
/// A client that is silent for longer is given up.
const SILENCE: Duration = Duration::from_secs(60);

/// What a service says to a request.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content: Content,
    pub(super) directives: Directives,
}

pub(super) enum Content {
    Whole(Value),
    /// Events, each with its `event:` and `data:` lines.
    Stream(Vec<String>),
}

impl Answer {
    pub(super) fn json(status: u16, body: Value) -> Answer {
        Answer { status, content: Content::Whole(body), directives: Directives::default() }
    }
}

/// The error of a service, in the shape of the interface.
pub(super) struct Fault {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) message: String,
    /// Which field, where the interface says so.
    pub(super) param: Option<String>,
    /// The key is to stand in it.
    echo: bool,
}

impl Fault {
    pub(super) fn invalid(message: impl Into<String>) -> Fault {
        Fault {
            status: 400,
            kind: "invalid_request_error",
            message: message.into(),
            param: None,
            echo: false,
        }
    }

    pub(super) fn field(name: &str, message: impl Into<String>) -> Fault {
        Fault { param: Some(name.to_owned()), ..Fault::invalid(message) }
    }

    pub(super) fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Fault {
        Fault { status, kind, message: message.into(), param: None, echo: false }
    }
}

pub(super) fn tls(shared: &Arc<Shared>, mut raw: Raw) {
    let Ok(mut tls) = rustls::ServerConnection::new(server_config()) else { return };
    while tls.is_handshaking() {
        if tls.complete_io(&mut raw).is_err() {
            return;
        }
    }
    let name = tls.server_name().map(str::to_owned);
    let _ = raw.stream().set_nodelay(true);
    let mut stream = BufReader::new(rustls::StreamOwned::new(tls, raw));
    // A client that breaks off is no fault of the service: the record says so.
    let orderly = connection(shared, &mut stream, name).unwrap_or(false);
    if orderly {
        stream.get_mut().conn.send_close_notify();
        let _ = stream.get_mut().flush();
    }
}

pub(super) fn plain(shared: &Arc<Shared>, stream: TcpStream) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(SILENCE));
    let _ = connection(shared, &mut BufReader::new(stream), None);
}

/// False: the connection is to be broken off.
fn connection<S: Read + Write>(
    shared: &Shared,
    stream: &mut BufReader<S>,
    tls_name: Option<String>,
) -> io::Result<bool> {
    let connection = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
    while let Some(request) = http::read(stream)? {
        let number = shared.record(Recorded {
            connection,
            tls_name: tls_name.clone(),
            head: request.head.clone(),
            body: request.body.clone(),
            at: Instant::now(),
            status: 0,
            end: End::Open,
        });
        let answer = answer(shared, &request);
        shared.note(number, |r| r.status = answer.status);
        let sent = send(stream, &request, &answer, given_key(shared, &request).unwrap_or_default());
        let end = if sent.is_ok() { End::Answered } else { End::ClientGone };
        shared.note(number, |r| r.end = end);
        if !sent? || request.fault.is_some() {
            return Ok(request.fault.is_some());
        }
    }
    Ok(true)
}

fn answer(shared: &Shared, request: &Request) -> Answer {
    let result = match interface(shared, request) {
        Ok(interface) => match (interface, body(request)) {
            (Interface::Messages, body) => body.and_then(|b| anthropic::messages(request, &b)),
            (Interface::CountTokens, body) => body.and_then(|b| anthropic::count_tokens(request, &b)),
            (Interface::Responses, body) => body.and_then(|b| responses::create(&b)),
            (Interface::Chat, body) => body.and_then(|b| chat::create(&b, shared.kind)),
        },
        Err(fault) => Err(fault),
    };
    let as_anthropic = shared.kind == Kind::Anthropic || request.target().starts_with("/v1/messages");
    let mut answer = result.unwrap_or_else(|fault| {
        let mut answer = Answer::json(fault.status, error_body(as_anthropic, &fault));
        answer.directives.echo = fault.echo;
        answer
    });
    if answer.directives.echo {
        show(&mut answer.content, given_key(shared, request).unwrap_or_default());
    }
    answer
}

/// Puts the key into an answer, twice, as services do that are generous with what they were sent.
fn show(content: &mut Content, key: &str) {
    match content {
        Content::Whole(body) => {
            // Where a service that does not like a key says which it was.
            if let Some(message) = body["error"]["message"].as_str() {
                body["error"]["message"] = json!(format!("{message}: {key}"));
            }
            body[ECHO] = json!([key, key]);
        }
        Content::Stream(events) => {
            let data = json!({ "type": "ping", ECHO: [key, key] });
            events.insert(events.len() / 2, event(Some("ping"), &data));
        }
    }
}

/// The key of a request, in whichever header this service takes it.
fn given_key<'a>(shared: &Shared, request: &'a Request) -> Option<&'a str> {
    let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    // The services take either; OpenAI's only the second.
    let own = request.header("x-api-key").filter(|_| shared.kind != Kind::OpenAi);
    own.or(bearer)
}

fn error_body(as_anthropic: bool, fault: &Fault) -> Value {
    if as_anthropic {
        json!({ "type": "error", "error": { "type": fault.kind, "message": fault.message },
                "request_id": "req_011test" })
    } else {
        let code = if fault.status == 401 { json!("invalid_api_key") } else { Value::Null };
        json!({ "error": { "message": fault.message, "type": fault.kind, "param": fault.param, "code": code } })
    }
}

enum Interface {
    Messages,
    CountTokens,
    Responses,
    Chat,
}

fn interface(shared: &Shared, request: &Request) -> Result<Interface, Fault> {
    if let Some(fault) = request.fault {
        return Err(Fault::invalid(fault));
    }
    let has = |kinds: &[Kind]| kinds.contains(&shared.kind);
    let interface = match request.target().split('?').next().unwrap_or_default() {
        "/v1/messages" if has(&[Kind::Anthropic, Kind::Compatible]) => Interface::Messages,
        "/v1/messages/count_tokens" if has(&[Kind::Anthropic, Kind::Compatible]) => Interface::CountTokens,
        "/v1/responses" if has(&[Kind::OpenAi, Kind::Compatible]) => Interface::Responses,
        "/v1/chat/completions" if has(&[Kind::OpenAi, Kind::Compatible]) => Interface::Chat,
        other => return Err(Fault::new(404, "not_found_error", format!("{other} is not here"))),
    };
    if request.method() != "POST" {
        return Err(Fault::new(405, "invalid_request_error", "Method Not Allowed"));
    }
    authorized(shared, request)?;
    Ok(interface)
}

fn authorized(shared: &Shared, request: &Request) -> Result<(), Fault> {
    let Some(wanted) = &shared.key else { return Ok(()) };
    match given_key(shared, request) {
        Some(given) if given == wanted => Ok(()),
        Some(_) => Err(Fault::new(401, "authentication_error", "invalid x-api-key")),
        None => Err(Fault::new(401, "authentication_error", "an API key is required")),
    }
}

fn body(request: &Request) -> Result<Value, Fault> {
    let json =
        request.header("content-type").is_some_and(|t| t.split(';').next() == Some("application/json"));
    if !json {
        return Err(Fault::new(415, "invalid_request_error", "the content type has to be application/json"));
    }
    if request.header("content-encoding").is_some() {
        return Err(Fault::new(415, "invalid_request_error", "the body is encoded"));
    }
    let body: Value = serde_json::from_slice(&request.body)
        .map_err(|e| Fault::invalid(format!("the body is no JSON: {e}")))?;
    if body.is_object() { Ok(body) } else { Err(Fault::invalid("the body is no object")) }
}

/// True: sent as meant, and the next request may come.
fn send<S: Read + Write>(
    stream: &mut BufReader<S>,
    request: &Request,
    answer: &Answer,
    key: &str,
) -> io::Result<bool> {
    let directives = &answer.directives;
    // What is shown of the key comes in two parts, whose border is in the middle of it.
    let shown = directives.echo.then_some(key);
    if directives.hang == Some(Hang::BeforeHead) {
        return wait_for_the_end(stream);
    }
    let mut headers = vec![
        PRIVATE_HEADER,
        ("openai-organization", "organisation-of-the-operator"),
        ("anthropic-organization-id", "organisation-of-the-operator"),
        ("alt-svc", "h3=\":443\"; ma=86400"),
        ("request-id", shown.unwrap_or("req_011test")),
        ("x-request-id", shown.unwrap_or("req_011test")),
        ("cache-control", "no-cache"),
    ];
    if answer.status == 429 {
        // Long enough that a client which believes it is noticed.
        headers.push(("retry-after", "7"));
    }
    // Whoever allows it gets it compressed at the real services; here that is a fault that the record shows.
    match &answer.content {
        Content::Whole(body) => {
            headers.push(("content-type", "application/json"));
            let body = body.to_string().into_bytes();
            let mut packet = http::head(answer.status, &headers, Some(body.len()));
            let half = if directives.cut { body.len() / 2 } else { body.len() };
            if request.method() != "HEAD" && directives.hang.is_none() {
                packet.extend(body.get(..half).unwrap_or_default());
            }
            for part in in_two(&packet, shown) {
                stream.get_mut().write_all(part)?;
                stream.get_mut().flush()?;
                thread::sleep(if shown.is_some() { SLOW } else { Duration::ZERO });
            }
            if directives.hang.is_some() {
                return wait_for_the_end(stream);
            }
            Ok(!directives.cut)
        }
        Content::Stream(events) => {
            headers.push(("content-type", "text/event-stream; charset=utf-8"));
            let out = stream.get_mut();
            out.write_all(&http::head(answer.status, &headers, None))?;
            out.flush()?;
            match directives.hang {
                Some(Hang::AfterHead) => return wait_for_the_end(stream),
                Some(Hang::InTheMiddle | Hang::BeforeHead) | None => {}
            }
            let half = directives.cut || directives.hang.is_some();
            let count = if half { events.len() / 2 } else { events.len() };
            for event in events.iter().take(count) {
                for part in in_two(event.as_bytes(), shown) {
                    http::chunk(stream.get_mut(), part)?;
                    thread::sleep(if shown.is_some() { SLOW } else { Duration::ZERO });
                }
                if directives.slow {
                    thread::sleep(SLOW);
                }
            }
            if directives.hang.is_some() {
                return wait_for_the_end(stream);
            }
            if directives.cut {
                return Ok(false);
            }
            http::chunk(stream.get_mut(), b"")?;
            Ok(true)
        }
    }
}

/// These bytes in two parts, the border in the middle of the last text of this kind; else in one.
fn in_two<'a>(bytes: &'a [u8], shown: Option<&str>) -> Vec<&'a [u8]> {
    let at = shown
        .filter(|key| !key.is_empty())
        .and_then(|key| Some((bytes.windows(key.len()).rposition(|w| w == key.as_bytes())?, key)));
    match at {
        Some((at, key)) => {
            let (first, second) = bytes.split_at(at + key.len() / 2);
            vec![first, second]
        }
        None => vec![bytes],
    }
}

/// Says nothing until the client gives up.
fn wait_for_the_end(stream: &mut impl Read) -> io::Result<bool> {
    let mut byte = [0];
    while stream.read(&mut byte)? > 0 {}
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// One event of a stream.
pub(super) fn event(name: Option<&str>, data: &Value) -> String {
    match name {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

/// Refuses a field that the interface does not have.
pub(super) fn known_fields(
    object: &Value,
    known: &[&str],
    fault: impl Fn(&str) -> Fault,
) -> Result<(), Fault> {
    let unknown = object.as_object().and_then(|map| map.keys().find(|name| !known.contains(&name.as_str())));
    unknown.map_or(Ok(()), |name| Err(fault(name)))
}

/// An answer that a directive orders instead of the usual one.
pub(super) fn ordered_status(directives: &Directives) -> Result<(), Fault> {
    let Some(status) = directives.status else { return Ok(()) };
    let (kind, message) = match status {
        401 => ("authentication_error", "invalid x-api-key"),
        429 => ("rate_limit_error", "This request would exceed the organisation's rate limit."),
        400..=499 => ("invalid_request_error", "The task ordered this error."),
        529 => ("overloaded_error", "Overloaded"),
        _ => ("api_error", "Internal server error"),
    };
    Err(Fault { echo: directives.echo, ..Fault::new(status, kind, message) })
}
