//! The services themselves, without anet: what they promise to the tests that rely on them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use super::*;

const KEY: &str = "sk-test";

/// A service on this machine's own loopback, and what it says to these bytes.
fn plain(compatible: bool) -> Service {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    Service::plain(listener, compatible, Some(KEY))
}

fn say(service: &Service, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(service.address().expect("an address")).expect("connect");
    stream.write_all(bytes).expect("write");
    stream.shutdown(std::net::Shutdown::Write).expect("shutdown");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn post(path: &str, extra: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{extra}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

const ANTHROPIC_HEAD: &str = "x-api-key: sk-test\r\nanthropic-version: 2023-06-01\r\n";
const OPENAI_HEAD: &str = "authorization: Bearer sk-test\r\n";

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

fn messages(more: &Value) -> Value {
    let mut body =
        json!({ "model": "m", "max_tokens": 100, "messages": [{ "role": "user", "content": "x" }] });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// MOD-14: without a service that is as strict as the real one an agent that finishes proves nothing.
#[test]
fn messages_are_checked_as_the_real_service_does() {
    let service = plain(false);
    let ok = post("/v1/messages", ANTHROPIC_HEAD, &messages(&json!({})));
    assert_eq!(status(&say(&service, &ok)), "200");
    let bad_keys = [
        ("", "401"),
        ("x-api-key: placeholder\r\nanthropic-version: 2023-06-01\r\n", "401"),
        ("x-api-key: sk-test\r\n", "400"),
    ];
    for (head, wanted) in bad_keys {
        assert_eq!(
            status(&say(&service, &post("/v1/messages", head, &messages(&json!({}))))),
            wanted,
            "{head}"
        );
    }
    let faults = [
        json!({ "max_tokens": null }),
        json!({ "max_tokens": "100" }),
        json!({ "betas": ["x"] }),
        json!({ "unheard_of": 1 }),
        json!({ "context_management": {} }),
        json!({ "mcp_servers": [] }),
        json!({ "thinking": { "type": "enabled", "budget_tokens": 1023 }, "max_tokens": 8192 }),
        json!({ "thinking": { "type": "enabled", "budget_tokens": 8192 }, "max_tokens": 8192 }),
        json!({ "tools": [{ "name": "x" }] }),
        json!({ "tool_choice": { "type": "tool", "name": "absent" } }),
        json!({ "messages": [] }),
        json!({ "messages": [{ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "x" }] }] }),
    ];
    for fault in &faults {
        let answer = say(&service, &post("/v1/messages", ANTHROPIC_HEAD, &messages(fault)));
        assert_eq!(status(&answer), "400", "{fault}: {answer}");
        assert!(answer.contains("\"type\":\"invalid_request_error\""), "{answer}");
    }
    let answer = say(&service, &post("/v1/messages/count_tokens", ANTHROPIC_HEAD, &messages(&json!({}))));
    assert!(answer.contains("max_tokens: Extra inputs"), "{answer}");
    assert_eq!(status(&say(&service, &post("/v1/complete", ANTHROPIC_HEAD, &json!({})))), "404");
    assert_eq!(service.requests().len(), 6 + faults.len());
}

/// MOD-14: the OpenAI interfaces, likewise.
#[test]
fn responses_and_chat_are_checked_as_the_real_service_does() {
    let service = plain(true);
    for (path, wanted, body) in [
        ("/v1/responses", "200", json!({ "model": "m", "input": "x", "store": false })),
        ("/v1/responses", "400", json!({ "input": "x" })),
        ("/v1/responses", "400", json!({ "model": "m", "input": "x", "max_tokens": 5 })),
        ("/v1/responses", "400", json!({ "model": "m", "input": "x", "max_output_tokens": 5 })),
        ("/v1/responses", "400", json!({ "model": "m", "input": "x", "previous_response_id": "resp_1" })),
        (
            "/v1/responses",
            "400",
            json!({ "model": "m", "input": [{ "type": "function_call_output", "call_id": "x" }] }),
        ),
        (
            "/v1/chat/completions",
            "200",
            json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] }),
        ),
        ("/v1/chat/completions", "400", json!({ "model": "m", "messages": [] })),
        (
            "/v1/chat/completions",
            "400",
            json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }],
            "max_tokens": 1, "max_completion_tokens": 1 }),
        ),
        (
            "/v1/chat/completions",
            "400",
            json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }],
            "plugins": [] }),
        ),
        (
            "/v1/chat/completions",
            "400",
            json!({ "model": "m", "messages": [{ "role": "tool", "tool_call_id": "x" }] }),
        ),
    ] {
        let answer = say(&service, &post(path, OPENAI_HEAD, &body));
        assert_eq!(status(&answer), wanted, "{body}: {answer}");
    }
    let answer = say(&service, &post("/v1/responses", "", &json!({ "model": "m", "input": "x" })));
    assert_eq!(status(&answer), "401");
}

/// A request that two readers could read in two ways is seen, recorded, and answered with 400.
#[test]
fn heads_are_read_strictly() {
    let service = plain(true);
    for head in [
        "POST /v1/responses HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST /v1/responses HTTP/1.1\nHost: a\n\r\n\r\n",
        "POST http://a/v1/responses HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST /v1/responses HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
        "POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
    ] {
        assert_eq!(status(&say(&service, head.as_bytes())), "400", "{head:?}");
    }
    assert_eq!(service.requests().len(), 7);
}

/// Each interface streams a tool call, then a text; a directive orders something else.
#[test]
fn the_script_is_followed() {
    let service = plain(true);
    let schema = json!({ "type": "object", "properties": { "command": { "type": "string" } } });
    let ask = |text: &str| {
        messages(&json!({ "stream": true, "messages": [{ "role": "user", "content": text }],
                          "tools": [{ "name": "Bash", "input_schema": schema }] }))
    };
    let head = ANTHROPIC_HEAD;
    let answer = say(&service, &post("/v1/messages", head, &ask("Create hello.txt")));
    assert!(answer.contains("event: message_stop") && answer.contains("tool_use"), "{answer}");
    assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
    let answer = say(&service, &post("/v1/messages", head, &ask("[[text:Good day.]]")));
    assert!(answer.contains("Good d") && !answer.contains("tool_use"), "{answer}");
    for (order, wanted) in [("[[status:429]]", "429"), ("[[status:401]]", "401"), ("[[status:500]]", "500")] {
        assert_eq!(status(&say(&service, &post("/v1/messages", head, &ask(order)))), wanted);
    }
    let cut = say(&service, &post("/v1/messages", head, &ask("[[cut]]")));
    assert!(
        cut.contains("message_start") && !cut.contains("message_stop") && !cut.ends_with("0\r\n\r\n"),
        "{cut}"
    );
    assert_eq!(say(&service, &post("/v1/messages", head, &ask("[[hang]]"))), "");
    assert_eq!(service.settled().last().expect("a request").end, End::ClientGone);
    let head_alone = say(&service, &post("/v1/messages", head, &ask("[[hang:head]]")));
    assert!(head_alone.ends_with("\r\n\r\n") && !head_alone.contains("message_start"), "{head_alone}");
    let started = Instant::now();
    say(&service, &post("/v1/messages", head, &ask("[[slow]][[text:Good day, one and all.]]")));
    assert!(started.elapsed() > Duration::from_millis(500));
}

/// MOD-11: a service that shows the key does so in head and body, whatever the answer is: without that, a test that does not
/// find it proves nothing.
#[test]
fn the_key_is_shown_where_that_is_ordered() {
    let service = plain(true);
    for (path, head, field) in
        [("/v1/messages", ANTHROPIC_HEAD, "messages"), ("/v1/responses", OPENAI_HEAD, "input")]
    {
        for (order, streamed, wanted) in
            [("[[echo]]", false, "200"), ("[[echo]]", true, "200"), ("[[echo]][[status:401]]", false, "401")]
        {
            let words = json!([{ "role": "user", "content": order }]);
            let mut body = json!({ "model": "m", "stream": streamed, field: words });
            if field == "messages" {
                body["max_tokens"] = json!(10);
            }
            let answer = say(&service, &post(path, head, &body));
            assert_eq!(status(&answer), wanted, "{answer}");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert!(head.contains("x-request-id: sk-test"), "{answer}");
            // A stream has it once whole and once in two chunks; an error in its sentence too.
            let whole = match (streamed, wanted) {
                (true, _) => 1,
                (false, "200") => 2,
                (false, _) => 3,
            };
            assert_eq!(body.matches(KEY).count(), whole, "{answer}");
        }
    }
}

/// The whole record of a request, over TLS and in the network of the box; a kept connection is seen to be kept.
#[test]
fn what_reaches_a_service_is_recorded_whole() {
    let Some(net) = Internet::new() else { return };
    let service = Service::openai(&net, KEY);
    let body = json!({ "model": "m", "input": "x" }).to_string();
    let output = net.inside(|| {
        let mut curl = std::process::Command::new("curl");
        curl.env_clear().env("PATH", "/usr/bin:/bin").args(["-sS", "--max-time", "10"]);
        for _ in 0..2 {
            curl.args([
                "-H",
                "Authorization: Bearer sk-test",
                "-H",
                "Content-Type: application/json",
                "-H",
                "X-A: b",
            ]);
            curl.args(["-d", &body, "https://api.openai.com/v1/responses", "--next"]);
        }
        curl.args(["-sS", "--max-time", "10", "https://api.openai.com/v1/absent"]);
        curl.output().expect("curl")
    });
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("\"status\":\"completed\""), "{text}");
    let [first, second, third] = &service.settled()[..] else { panic!("three requests: {text}") };
    assert_eq!((first.method(), first.target(), first.status), ("POST", "/v1/responses", 200));
    assert_eq!(
        (first.tls_name.as_deref(), first.header("x-a"), first.end),
        (Some(OPENAI), Some("b"), End::Answered)
    );
    assert_eq!((second.body.as_slice(), third.status), (body.as_bytes(), 404));
    assert_eq!((service.connections(), second.connection), (1, 1));
}
