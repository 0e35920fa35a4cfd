//! What goes out.

use super::*;

/// One request to an address and what the service saw of it.
async fn seen(base: &'static str, request: Outgoing, key: Option<Key>) -> (String, u64, u16) {
    let with_port = move |address: SocketAddr| format!("http://localhost:{}{base}", address.port());
    let stage = Stage::with(with_port, RootCertStore::empty(), key).await;
    let size = stage.upstreams.wire_size(&request);
    let service = async {
        let mut stream = stage.accept().await;
        let seen = read_request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        seen
    };
    let (answer, seen) = tokio::join!(stage.upstreams.send(request, PATIENT), service);
    assert_eq!(text(answer.unwrap()).await.unwrap(), "ok");
    (seen, size, stage.listener.local_addr().unwrap().port())
}

/// MOD-1, MOD-12, BUD-2: path, headers and credential of every interface, and a size that is exact to the byte.
#[test]
fn a_request_is_written_exactly() {
    for (base, interface, keep_beta, path, credential) in [
        ("", Interface::Messages, true, "/v1/messages?beta=true", "x-api-key: sk-canary-0123456789"),
        (
            "/v1",
            Interface::CountTokens,
            false,
            "/v1/messages/count_tokens",
            "x-api-key: sk-canary-0123456789",
        ),
        ("/v1", Interface::Responses, false, "/v1/responses", "authorization: Bearer sk-canary-0123456789"),
        (
            "/api/v1",
            Interface::ChatCompletions,
            false,
            "/api/v1/chat/completions",
            "authorization: Bearer sk-canary-0123456789",
        ),
    ] {
        for has_key in [true, false] {
            on_stage(async {
                let mut request = Outgoing { interface, keep_beta, ..outgoing() };
                request.headers.insert("user-agent", "agent/1.0".parse().unwrap());
                request.headers.append("anthropic-beta", "a-1".parse().unwrap());
                request.headers.append("anthropic-beta", "b-2".parse().unwrap());
                let (seen, size, port) = seen(base, request, has_key.then(key)).await;
                let credential = if has_key { format!("{credential}\r\n") } else { String::new() };
                assert_eq!(
                    seen,
                    format!(
                        "POST {path} HTTP/1.1\r\nhost: localhost:{port}\r\ncontent-type: application/json\r\n\
                         user-agent: agent/1.0\r\nanthropic-beta: a-1\r\nanthropic-beta: b-2\r\n\
                         accept-encoding: identity\r\ncontent-length: 13\r\n{credential}\r\n{{\"model\":\"m\"}}"
                    )
                );
                assert_eq!(size, seen.len() as u64);
            });
        }
    }
}

/// BUD-2: the size is exact for bodies of any length, the empty one too.
#[test]
fn the_size_is_exact_for_every_length() {
    for length in [0, 1, 9, 10, 99_999, 3_000_000] {
        on_stage(async {
            let request = Outgoing { body: Bytes::from(vec![b'x'; length]), ..outgoing() };
            let (seen, size, _) = seen("", request, Some(key())).await;
            assert_eq!(size, seen.len() as u64, "{length}");
        });
    }
}

/// MOD-1, MOD-11: should a policy ever let a credential or a header about the connection pass, it goes no further.
#[test]
fn nothing_of_the_agents_connection_goes_out() {
    on_stage(async {
        let mut request = outgoing();
        for name in [
            "host",
            "authorization",
            "x-api-key",
            "cookie",
            "proxy-authorization",
            "accept-encoding",
            "content-encoding",
            "content-length",
            "transfer-encoding",
            "connection",
            "expect",
            "te",
            "trailer",
            "upgrade",
        ] {
            request.headers.insert(name, "from-agent".parse().unwrap());
        }
        let (seen, size, _) = seen("", request, None).await;
        assert!(!seen.contains("from-agent"), "{seen}");
        assert_eq!(size, seen.len() as u64);
    });
}

/// MOD-11: what is printed of a request has no key in it.
#[test]
fn a_request_that_is_printed_shows_no_key() {
    let upstream: Upstream = "https://api.example.com".parse().unwrap();
    for interface in [Interface::Messages, Interface::ChatCompletions] {
        let built = request::build(&upstream, Some(&key()), Outgoing { interface, ..outgoing() }).unwrap();
        assert!(["x-api-key", "authorization"].iter().any(|name| built.headers().contains_key(*name)));
        assert!(!format!("{built:?}").contains("canary"));
    }
}

/// A request is cancelled by letting it go: the service sees the connection close, before an answer and in one.
#[test]
fn a_request_that_nobody_waits_for_is_cancelled() {
    on_stage(async {
        let stage = Stage::new().await;
        let mut sending = Box::pin(stage.send());
        let mut stream = tokio::select! {
            _ = &mut sending => panic!("nobody has answered"),
            stream = async {
                let mut stream = stage.accept().await;
                read_request(&mut stream).await;
                stream
            } => stream,
        };
        drop(sending);
        assert!(closes(&mut stream).await);

        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
        let (incoming, mut stream) = stage.answered(head).await;
        let mut body = incoming.unwrap().body;
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        drop(body);
        assert!(closes(&mut stream).await, "while the service is silent");

        let (incoming, mut stream) = stage.answered(head).await;
        drop(incoming);
        assert!(closes(&mut stream).await, "with a body of which nothing was read");
        assert_eq!(stage.dials.get(), 3, "none of them is kept");
    });
}
