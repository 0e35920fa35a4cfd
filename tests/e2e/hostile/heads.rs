//! MOD-7, MOD-8, MOD-9: heads that two readers could read in two ways, encodings, upgrades, other paths and methods.

use serde_json::{Value, json};

use super::{Case, EVIL};

/// Heads that would ask the right question, if they were heads.
pub(super) fn cases(path: &str, body: &Value) -> Vec<Case> {
    let body = body.to_string();
    let size = body.len();
    let line = format!("POST {path} HTTP/1.1\r\n");
    let usual = "anthropic-version: 2023-06-01\r\nContent-Type: application/json\r\n";
    let rest = format!("{usual}Content-Length: {size}\r\n\r\n{body}");
    let host = "Host: {host}\r\n";
    // With one more header.
    let more = |header: &str| format!("{line}{host}{header}\r\n{rest}");
    let chunk = format!("{size:x}\r\n{body}\r\n0\r\n\r\n");
    let framed = |headers: &str, body: &str| format!("{line}{host}{usual}{headers}\r\n\r\n{body}");
    let sends: Vec<(&str, String)> = vec![
        ("two hosts", format!("{line}{host}Host: {EVIL}\r\n{rest}")),
        ("two equal hosts", format!("{line}{host}{host}{rest}")),
        ("no host", format!("{line}{rest}")),
        ("lines without a carriage return", more("X: a").replace("\r\n", "\n")),
        ("one line without a carriage return", more("X: a").replacen("\r\n", "\n", 1)),
        ("an empty line without a carriage return", more("X: a").replacen("\r\n\r\n", "\r\n\n", 1)),
        ("a smuggled line", more(&format!("X: a\nAuthorization: {EVIL}"))),
        ("a carriage return alone", more(&format!("X: a\rAuthorization: {EVIL}"))),
        ("a folded line", more(&format!("X: a\r\n {EVIL}"))),
        ("a folded line with a tab", more(&format!("X: a\r\n\t{EVIL}"))),
        ("a space before the colon", more(&format!("X-A : {EVIL}"))),
        ("no name", more(&format!(": {EVIL}"))),
        ("no colon", more(EVIL)),
        ("a bracket in a name", more(&format!("X(: {EVIL}"))),
        ("a NUL in a value", more(&format!("X: {EVIL}\\x00"))),
        ("a NUL in a name", more(&format!("X\\x00Y: {EVIL}"))),
        (
            "two lengths",
            framed(
                &format!("Content-Length: {size}\r\nContent-Length: {}", size + 5),
                &format!("{body}GET /"),
            ),
        ),
        ("two equal lengths", framed(&format!("Content-Length: {size}\r\nContent-Length: {size}"), &body)),
        ("a list of lengths", framed(&format!("Content-Length: {size}, {size}"), &body)),
        ("a length with a sign", framed(&format!("Content-Length: +{size}"), &body)),
        ("a negative length", framed("Content-Length: -1", &body)),
        ("a hexadecimal length", framed(&format!("Content-Length: 0x{size:x}"), &body)),
        ("a length of no number", framed("Content-Length: x", &body)),
        ("a length over all bounds", framed("Content-Length: 99999999999999999999999", &body)),
        ("a length of a terabyte", framed("Content-Length: 1099511627776", &body)),
        (
            "a length and chunks",
            framed(&format!("Content-Length: {size}\r\nTransfer-Encoding: chunked"), &chunk),
        ),
        (
            "chunks and a length",
            framed(&format!("Transfer-Encoding: chunked\r\nContent-Length: {size}"), &chunk),
        ),
        ("chunks twice", framed("Transfer-Encoding: chunked, chunked", &chunk)),
        ("chunks in two headers", framed("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", &chunk)),
        ("gzip, then chunks", framed("Transfer-Encoding: gzip, chunked", &chunk)),
        ("chunks, then identity", framed("Transfer-Encoding: chunked, identity", &chunk)),
        ("identity", framed(&format!("Transfer-Encoding: identity\r\nContent-Length: {size}"), &body)),
        ("an encoding that nobody knows", framed("Transfer-Encoding: xchunked", &chunk)),
        (
            "a space before the encoding's colon",
            framed(&format!("Transfer-Encoding : chunked\r\nContent-Length: {size}"), &chunk),
        ),
        ("a vertical tab before chunked", framed("Transfer-Encoding: \\x0bchunked", &chunk)),
        ("a chunk over all bounds", framed("Transfer-Encoding: chunked", "fffffffffffffffff\r\nx")),
        ("a negative chunk", framed("Transfer-Encoding: chunked", "-1\r\nx\r\n0\r\n\r\n")),
        ("a chunk of no number", framed("Transfer-Encoding: chunked", "x\r\n0\r\n\r\n")),
        (
            "a chunk that goes on",
            framed("Transfer-Encoding: chunked", &format!("{size:x}\r\n{body}xx0\r\n\r\n")),
        ),
        ("an absolute target", format!("POST http://{EVIL}{path} HTTP/1.1\r\n{host}{rest}")),
        ("an absolute target of TLS", format!("POST https://{EVIL}{path} HTTP/1.1\r\n{host}{rest}")),
        ("an absolute target that is right", format!("POST http://{{host}}{path} HTTP/1.1\r\n{host}{rest}")),
        ("an authority", format!("POST {EVIL}:443 HTTP/1.1\r\n{host}{rest}")),
        ("a star", format!("POST * HTTP/1.1\r\n{host}{rest}")),
        ("no slash", format!("POST {} HTTP/1.1\r\n{host}{rest}", &path[1..])),
        ("a connect", format!("CONNECT {EVIL}:443 HTTP/1.1\r\nHost: {EVIL}:443\r\n\r\n")),
        ("no version", format!("POST {path}\r\n{host}{rest}")),
        ("version 2.0", format!("POST {path} HTTP/2.0\r\n{host}{rest}")),
        ("version 1.2", format!("POST {path} HTTP/1.2\r\n{host}{rest}")),
        ("version 9", format!("POST {path} HTTP/9\r\n{host}{rest}")),
        ("lower-case version", format!("POST {path} http/1.1\r\n{host}{rest}")),
        ("HTTP/2 from the start", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()),
        ("lower-case method", format!("post {path} HTTP/1.1\r\n{host}{rest}")),
        ("a space before the method", format!(" POST {path} HTTP/1.1\r\n{host}{rest}")),
        ("two spaces", format!("POST  {path} HTTP/1.1\r\n{host}{rest}")),
        ("a space at the line's end", format!("POST {path} HTTP/1.1 \r\n{host}{rest}")),
        ("a tab", format!("POST\t{path}\tHTTP/1.1\r\n{host}{rest}")),
        ("a TLS hello", "\\x16\\x03\\x01\\x00\\x05hello\r\n\r\n".into()),
        ("a header of 100 KB", more(&format!("X: {}", "a".repeat(100_000)))),
        ("2000 headers", more(&vec!["X: a"; 2_000].join("\r\n"))),
        ("a target of 100 KB", format!("POST {path}?{} HTTP/1.1\r\n{host}{rest}", "a".repeat(100_000))),
    ];
    let mut cases: Vec<Case> = sends
        .into_iter()
        .map(|(label, send)| Case::new(format!("{path} head: {label}"), json!({ "send": send })))
        .collect();
    for encoding in [
        "gzip",
        "GZIP",
        "br",
        "deflate",
        "zstd",
        "compress",
        "x-gzip",
        "gzip, identity",
        "identity, gzip",
        "unheard_of",
    ] {
        let step = json!({ "send": more(&format!("Content-Encoding: {encoding}")) });
        cases.push(Case::new(format!("{path} encoded {encoding}"), step).only(415));
    }
    for kind in [
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-16",
        "application/jsonl",
        "application/json, text/plain",
        "",
    ] {
        let send = more("X: a").replace("Content-Type: application/json", &format!("Content-Type: {kind}"));
        cases.push(Case::new(format!("{path} type {kind:?}"), json!({ "send": send })).only(415));
    }
    let none = more("X: a").replace("Content-Type: application/json\r\n", "");
    cases.push(Case::new(format!("{path} no type"), json!({ "send": none })).only(415));
    cases.push(Case::new(format!("{path} two types"), json!({ "send": more("Content-Type: text/plain") })));
    for upgrade in [
        "Connection: Upgrade\r\nUpgrade: websocket",
        "Connection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
        "Connection: upgrade\r\nUpgrade: unheard_of",
    ] {
        cases.push(Case::new(format!("{path} {upgrade:?}"), json!({ "send": more(upgrade) })).only(426));
    }
    // What codex tries first.
    let socket = format!(
        "GET {path} HTTP/1.1\r\n{host}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    cases.push(Case::new(format!("{path} web socket"), json!({ "send": socket })));
    // Another host as such is nothing to read in two ways: refused, or not passed on.
    let elsewhere = format!("{line}Host: {EVIL}\r\n{rest}");
    cases.push(Case::new(format!("{path} another host"), json!({ "send": elsewhere })).or_cleaned());
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD", "UNHEARD_OF"] {
        let send = format!("{method} {path} HTTP/1.1\r\n{host}Content-Length: 0\r\n\r\n");
        let step = json!({ "send": send, "head": method == "HEAD" });
        cases.push(Case::new(format!("{method} {path}"), step));
    }
    for query in [
        "?x=y",
        "?beta=false",
        "?beta=TRUE",
        "?beta=true&beta=true",
        "?beta=true&x=y",
        "?Beta=true",
        "?beta=%74rue",
        "??beta=true",
        "?beta=true#x",
        "?",
        "?&beta=true",
        &format!("?url=https://{EVIL}/"),
    ] {
        let send = more("X: a").replacen(path, &format!("{path}{query}"), 1);
        cases.push(Case::new(format!("{path}{query}"), json!({ "send": send })));
    }
    for other in
        ["/", "//", "/.", "/..", "/x", "/%2e%2e", "%20", "%2f", ";x", "%00", "/../messages", "?/../x"]
    {
        let send = more("X: a").replacen(path, &format!("{path}{other}"), 1);
        cases.push(Case::new(format!("{path}{other}"), json!({ "send": send })));
    }
    let (first, last) = path.rsplit_once('/').expect("a path");
    for other in [
        format!("/{path}"),
        path.to_uppercase(),
        format!("{first}//{last}"),
        format!("{first}/./{last}"),
        format!("{first}/x/../{last}"),
        format!("/x/..{path}"),
        format!("{first}%2f{last}"),
        format!("{first}\\{last}"),
        format!("/v1{path}"),
        format!("/v2/{last}"),
        format!("/{last}"),
    ] {
        let send = more("X: a").replacen(path, &other, 1);
        cases.push(Case::new(format!("path {other}"), json!({ "send": send })));
    }
    cases
}

/// Paths of the services that are none of the model's, and `more` that this service has not.
pub(super) fn paths(more: &[&str]) -> Vec<Case> {
    let others = [
        "/",
        "/v1",
        "/v1/",
        "/v1/files",
        "/v1/files/file_1",
        "/v1/files/file_1/content",
        "/v1/uploads",
        "/v1/batches",
        "/v1/messages/batches",
        "/v1/complete",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/images/generations",
        "/v1/audio/speech",
        "/v1/vector_stores",
        "/v1/containers",
        "/v1/conversations",
        "/v1/realtime",
        "/v1/assistants",
        "/v1/threads",
        "/v1/fine_tuning/jobs",
        "/v1/evals",
        "/v1/skills",
        "/v1/agents",
        "/v1/sessions",
        "/v1/environments",
        "/v1/organizations/me",
        "/v1/organization/usage",
        "/v1/responses/resp_1",
        "/v1/responses/resp_1/cancel",
        "/v1/responses/compact",
        "/v1/responses/input_tokens",
        "/v1/models/m",
        "/v1/memory_stores",
        "/v1/webhooks",
        "/api/hello",
        "/api/v1/models",
        "/api/tags",
        "/api/generate",
        "/api/chat",
        "/props",
        "/version",
        "/metrics",
        "/admin",
        "/.well-known/openid-configuration",
        "/oauth/token",
        "/v1beta/models/m:generateContent",
    ];
    let mut cases = Vec::new();
    for path in others.iter().chain(more) {
        for method in ["GET", "POST"] {
            let body = if method == "POST" { "{}" } else { "" };
            let send = format!(
                "{method} {path} HTTP/1.1\r\nHost: {{host}}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            cases.push(Case::new(format!("{method} {path}"), json!({ "send": send })).only(404));
        }
    }
    cases
}
