//! Targets, methods and headers.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::policy;
use crate::policy::headers::headers;
use crate::policy::{
    Headers, INTERFACES, Interface, Refusal, Route, Rule, Service, head, response_headers, route,
};

fn map(rows: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in rows {
        map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    map
}

/// The headers of a request that has these besides its type.
fn judged(interface: Interface, rows: &[(&str, &str)]) -> Result<Headers, Refusal> {
    let mut given = map(&[("content-type", "application/json")]);
    given.extend(map(rows));
    headers(interface, &given)
}

/// MOD-9: the paths of a service, with their one method.
#[test]
fn paths() {
    let rows = [
        (Service::Anthropic, "/v1/messages", Some(Route::Model(Interface::Messages, false))),
        (Service::Anthropic, "/v1/messages?beta=true", Some(Route::Model(Interface::Messages, true))),
        (Service::Anthropic, "/v1/messages/count_tokens", Some(Route::Model(Interface::CountTokens, false))),
        (
            Service::Anthropic,
            "/v1/messages/count_tokens?beta=true",
            Some(Route::Model(Interface::CountTokens, true)),
        ),
        (Service::Anthropic, "/v1/responses", None),
        (Service::Anthropic, "/v1/chat/completions", None),
        (Service::OpenAi, "/v1/responses", Some(Route::Model(Interface::Responses, false))),
        (Service::OpenAi, "/v1/chat/completions", Some(Route::Model(Interface::ChatCompletions, false))),
        (Service::OpenAi, "/v1/messages", None),
        (Service::Other, "/v1/messages", Some(Route::Model(Interface::Messages, false))),
        (Service::Other, "/v1/responses", Some(Route::Model(Interface::Responses, false))),
        (Service::Other, "/v1/chat/completions", Some(Route::Model(Interface::ChatCompletions, false))),
    ];
    for (service, target, expected) in rows {
        assert_eq!(route(service, &Method::POST, target).ok(), expected, "{target}");
        if expected.is_none() {
            assert_eq!(route(service, &Method::POST, target).unwrap_err().rule, Rule::UnknownPath);
        }
    }
    for service in [Service::Anthropic, Service::OpenAi, Service::Other] {
        assert_eq!(route(service, &Method::GET, "/v1/models"), Ok(Route::Models));
        let refusal = route(service, &Method::POST, "/v1/models").unwrap_err();
        assert_eq!(refusal.rule, Rule::MethodNotAllowed);
        assert_eq!(refusal.headers()["allow"], "GET");
    }
}

/// MOD-9: no other spelling of a path, and nothing of the service besides.
#[test]
fn other_paths() {
    for target in [
        "",
        "/",
        "*",
        "/v1",
        "/v1/",
        "/v1/messages/",
        "//v1/messages",
        "/v1//messages",
        "/v1/./messages",
        "/v1/x/../messages",
        "/v1/%6dessages",
        "/v1/messages%3Fbeta=true",
        "/v1/messages;x",
        "/V1/messages",
        "/v1/Messages",
        "/v1/messages#x",
        "v1/messages",
        "http://api.anthropic.com/v1/messages",
        "/v1/messages/batches",
        "/v1/messages/count_tokens/",
        "/v1/files",
        "/v1/complete",
        "/v1/models/m",
        "/v1/organizations/me",
        "/v1/responses/resp_1",
        "/v1/responses/compact",
        "/v1/conversations",
        "/v1/vector_stores",
        "/v1/embeddings",
        "/v1/completions",
        "/v1/audio/speech",
        "/v1/images/generations",
        "/v1/realtime",
        "/v1/batches",
        "/v1/fine_tuning/jobs",
        "/api/hello",
        "/api/v1/models",
        "/api/tags",
        "/v1/props",
        "/props",
        "/version",
        "/v1/messages\u{0}",
        "/v1/messages /",
        "\\v1\\messages",
        "/v1/messages&beta=true",
        "/v1/messages%20",
        "/%2e%2e/v1/messages",
    ] {
        for service in [Service::Anthropic, Service::OpenAi, Service::Other] {
            for method in [Method::POST, Method::GET, Method::HEAD, Method::DELETE] {
                let refusal = route(service, &method, target).unwrap_err();
                assert_eq!((refusal.rule, refusal.status.as_u16()), (Rule::UnknownPath, 404), "{target}");
            }
        }
    }
}

/// MOD-9: the one query that is allowed, and other methods.
#[test]
fn queries_and_methods() {
    for query in [
        "?",
        "?beta=false",
        "?beta=true&",
        "?beta=true&x=1",
        "?x=1",
        "?beta=true?",
        "?Beta=true",
        "?beta=%74rue",
        "?beta=true#x",
        "??beta=true",
    ] {
        let refusal = route(Service::Anthropic, &Method::POST, &format!("/v1/messages{query}")).unwrap_err();
        assert_eq!(refusal.rule, Rule::QueryNotAllowed, "{query}");
    }
    for target in ["/v1/responses?beta=true", "/v1/chat/completions?beta=true", "/v1/responses?include=x"] {
        assert_eq!(route(Service::OpenAi, &Method::POST, target).unwrap_err().rule, Rule::QueryNotAllowed);
    }
    assert_eq!(
        route(Service::OpenAi, &Method::GET, "/v1/models?beta=true").unwrap_err().rule,
        Rule::QueryNotAllowed
    );
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "post", "POSTS"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let refusal = route(Service::Anthropic, &method, "/v1/messages").unwrap_err();
        assert_eq!((refusal.rule, refusal.status.as_u16()), (Rule::MethodNotAllowed, 405));
        assert_eq!(refusal.headers()["allow"], "POST");
    }
}

/// MOD-9, MOD-10: an upgrade is 426 before anything else is said, since an agent falls back to POST on that alone.
#[test]
fn upgrades() {
    for rows in [
        &[("upgrade", "websocket"), ("connection", "Upgrade")][..],
        &[("connection", "keep-alive, upgrade")],
        &[("Upgrade", "h2c")],
        &[("upgrade", "")],
        &[("connection", "keep-alive"), ("connection", "UPGRADE")],
    ] {
        for (method, target) in [
            (Method::GET, "/v1/responses"),
            (Method::POST, "/v1/responses"),
            (Method::GET, "/v1/models"),
            (Method::GET, "/x"),
        ] {
            let refusal = head(&policy(Service::OpenAi), &method, target, &map(rows)).unwrap_err();
            assert_eq!((refusal.rule, refusal.status.as_u16()), (Rule::Upgrade, 426));
        }
    }
}

/// MOD-7: what the agent says of keys, accounts, routes and hops is gone, under whatever name.
#[test]
fn headers_are_an_allow_list() {
    let dropped = [
        "authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "cookie",
        "proxy-authorization",
        "openai-organization",
        "openai-project",
        "openai-beta",
        "host",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-real-ip",
        "via",
        "x-original-url",
        "x-rewrite-url",
        "x-http-method-override",
        "proxy-connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "content-length",
        "expect",
        "accept-encoding",
        "range",
        "origin",
        "referer",
        "traceparent",
        "x-stainless-lang",
        "x-app",
        "anthropic-dangerous-direct-browser-access",
        "idempotency-key",
        "x-codex-beta-features",
        "http-referer",
        "x-title",
        "x-unknown",
        "helicone-auth",
        "x-portkey-config",
        "anthropic-organization-id",
        "anthropic-workspace-id",
        "http2-settings",
        "content-md5",
        "date",
    ];
    for interface in INTERFACES {
        for name in dropped {
            let result = judged(interface, &[(name, "canary")]).unwrap();
            assert!(!result.forward.contains_key(name), "{name}");
            assert!(!format!("{:?}", result.forward).contains("canary"), "{name}");
        }
        let kept = judged(interface, &[("user-agent", "a/1"), ("accept", "text/event-stream")]).unwrap();
        assert_eq!(kept.forward.len(), 3);
        assert_eq!(kept.forward["content-type"], "application/json");
    }
    let codex =
        judged(Interface::Responses, &[("x-openai-internal-codex-responses-lite", "1"), ("session-id", "s")])
            .unwrap();
    assert_eq!(codex.forward.len(), 3);
    let elsewhere = judged(
        Interface::ChatCompletions,
        &[("session-id", "s"), ("anthropic-version", "2023-06-01"), ("anthropic-beta", "skills-2025-10-02")],
    )
    .unwrap();
    assert_eq!(elsewhere.forward.len(), 1);
}

/// MOD-7: betas are reduced to the list, each once, wherever they stand.
#[test]
fn betas_are_reduced() {
    let refused = [
        "files-api-2025-04-14",
        "code-execution-2025-05-22",
        "mcp-client-2025-04-04",
        "mcp-client-2025-11-20",
        "mcp-client-2026-09-15",
        "mcp-servers-2025-12-04",
        "mcp-tunnels-2026-06-22",
        "skills-2025-10-02",
        "web-search-2025-03-05",
        "advisor-tool-2026-03-01",
        "fast-mode-2026-02-01",
        "server-side-fallback-2026-06-01",
        "server-side-fallback-2026-07-01",
        "fallback-credit-2026-06-01",
        "message-batches-2024-09-24",
        "message-threads-2026-08-12",
        "managed-agents-2026-04-01",
        "agent-memory-2026-07-22",
        "environments-2025-11-01",
        "oauth-2025-04-20",
        "context-1m-2025-08-07",
        "unknown-2099-01-01",
        "EFFORT-2025-11-24",
        "effort-2025-11-24x",
    ];
    for beta in refused {
        let given = format!("effort-2025-11-24, {beta} ,claude-code-20250219,");
        let result = judged(
            Interface::Messages,
            &[("anthropic-beta", &given), ("anthropic-beta", "effort-2025-11-24")],
        )
        .unwrap();
        assert_eq!(result.forward["anthropic-beta"], "effort-2025-11-24,claude-code-20250219");
        assert!(
            !judged(Interface::Messages, &[("anthropic-beta", beta)])
                .unwrap()
                .forward
                .contains_key("anthropic-beta")
        );
    }
}

/// MOD-8, MOD-10: a body that is encoded or no JSON is 415; a header that says two things is refused.
#[test]
fn bodies_types_and_repetitions() {
    for encoding in ["gzip", "zstd", "br", "deflate", "identity, gzip", "gzip, identity", "x", "", "*"] {
        let refusal = judged(Interface::Messages, &[("content-encoding", encoding)]).unwrap_err();
        assert_eq!((refusal.rule, refusal.status.as_u16()), (Rule::ContentEncoding, 415));
        // Also where Connection says that it is the hop's.
        let hop = judged(
            Interface::Messages,
            &[("connection", "content-encoding"), ("content-encoding", encoding)],
        );
        assert_eq!(hop.unwrap_err().rule, Rule::ContentEncoding);
    }
    assert!(judged(Interface::Messages, &[("content-encoding", "Identity")]).is_ok());
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "application/json; charset=utf-16",
        "application/json, text/plain",
        "",
        "json",
        "application/json; boundary=x",
    ] {
        let refusal = headers(Interface::Messages, &map(&[("content-type", kind)])).unwrap_err();
        assert_eq!((refusal.rule, refusal.status.as_u16()), (Rule::ContentType, 415), "{kind}");
    }
    assert_eq!(headers(Interface::Messages, &map(&[])).unwrap_err().rule, Rule::ContentType);
    for kind in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
    ] {
        let result = headers(Interface::Messages, &map(&[("content-type", kind)])).unwrap();
        assert_eq!(result.forward["content-type"], "application/json");
    }
    for name in ["content-type", "user-agent", "accept", "anthropic-version"] {
        let twice = judged(Interface::Messages, &[(name, "application/json"), (name, "application/json")]);
        assert_eq!(twice.unwrap_err().rule, Rule::HeaderRepeated, "{name}");
    }
    assert_eq!(
        judged(Interface::Messages, &[("user-agent", &"x".repeat(513))]).unwrap_err().rule,
        Rule::HeaderValue
    );
    assert_eq!(judged(Interface::Messages, &[("user-agent", "\u{e9}")]).unwrap_err().rule, Rule::HeaderValue);
}

/// MOD-7: what Connection names is the hop's, and goes first.
#[test]
fn hop_headers_go() {
    let result =
        judged(Interface::Messages, &[("connection", "close, User-Agent"), ("user-agent", "x")]).unwrap();
    assert!(!result.forward.contains_key("user-agent"));
    let lost = judged(Interface::Messages, &[("connection", "content-type")]);
    assert_eq!(lost.unwrap_err().rule, Rule::ContentType);
}

/// MOD-11: of an answer's headers those that say what it is and when to ask again.
#[test]
fn answers_headers_are_an_allow_list() {
    let given = map(&[
        ("content-type", "text/event-stream"),
        ("request-id", "r"),
        ("x-request-id", "r"),
        ("retry-after", "3"),
        ("x-should-retry", "true"),
        ("anthropic-ratelimit-requests-remaining", "1"),
        ("x-ratelimit-remaining-tokens", "1"),
        ("set-cookie", "canary"),
        ("alt-svc", "canary"),
        ("anthropic-organization-id", "canary"),
        ("openai-organization", "canary"),
        ("openai-project", "canary"),
        ("content-encoding", "canary"),
        ("connection", "canary"),
        ("transfer-encoding", "canary"),
        ("content-length", "canary"),
        ("server", "canary"),
        ("cf-ray", "canary"),
        ("strict-transport-security", "canary"),
        ("access-control-allow-origin", "canary"),
        ("location", "canary"),
        ("www-authenticate", "canary"),
        ("link", "canary"),
        ("proxy-authenticate", "canary"),
        ("upgrade", "canary"),
        ("trailer", "canary"),
        ("x-api-key", "canary"),
        ("authorization", "canary"),
    ]);
    let kept = response_headers(&given);
    assert_eq!(kept.len(), 7);
    assert!(!format!("{kept:?}").contains("canary"));
}
