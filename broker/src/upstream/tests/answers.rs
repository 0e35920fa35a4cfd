//! What comes back.

use super::*;

const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

/// Statuses pass as they are: errors for the agent, redirects that nobody follows; interim answers do not.
#[test]
fn statuses_pass() {
    for (answer, status) in [
        (&b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nok"[..], 401),
        (b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\nok", 429),
        (b"HTTP/1.1 529 \r\ncontent-length: 2\r\n\r\nok", 529),
        (b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 2\r\n\r\nok", 302),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n\
              HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            200,
        ),
    ] {
        on_stage(async {
            let stage = Stage::new().await;
            let incoming = stage.answered_and_closed(answer).await.unwrap();
            assert_eq!(incoming.status, status);
            assert_eq!(text(incoming).await.unwrap(), "ok");
            assert_eq!(stage.dials.get(), 1);
        });
    }
}

/// What is no HTTP, or not what was asked for, is refused: no such byte reaches an agent.
#[test]
fn malformed_answers_are_refused() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 0\r\n\r\n", "y".repeat(70_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n", "x: y\r\n".repeat(100));
    let cases: [&[u8]; 9] = [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: identity\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nok",
        long.as_bytes(),
        many.as_bytes(),
    ];
    for answer in cases {
        on_stage(async {
            let stage = Stage::new().await;
            let (answered, mut stream) = stage.answered(answer).await;
            let name = String::from_utf8_lossy(&answer[..answer.len().min(60)]);
            assert_eq!(answered.unwrap_err(), UpstreamTrouble::Malformed, "{name}");
            assert!(closes(&mut stream).await, "{name}");
        });
    }
}

/// A head at its limits passes.
#[test]
fn heads_at_the_limit_pass() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 2\r\n\r\nok", "y".repeat(60_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}content-length: 2\r\n\r\nok", "x: y\r\n".repeat(99));
    for answer in [long, many] {
        on_stage(async {
            let stage = Stage::new().await;
            let incoming = stage.answered_and_closed(answer.as_bytes()).await.unwrap();
            assert_eq!(text(incoming).await.unwrap(), "ok");
        });
    }
}

/// A body that is cut never looks like one that ended, however often it is asked; one that does not decode is named so.
#[test]
fn a_cut_body_is_no_end() {
    for (rest, trouble) in [
        (&b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok"[..], UpstreamTrouble::Cut),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", UpstreamTrouble::Cut),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n9\r\nx", UpstreamTrouble::Cut),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", UpstreamTrouble::Cut),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n",
            UpstreamTrouble::Malformed,
        ),
    ] {
        on_stage(async {
            let stage = Stage::new().await;
            let mut body = stage.answered_and_closed(rest).await.unwrap().body;
            let mut read = Vec::new();
            let failed = loop {
                match body.frame().await {
                    Some(Ok(frame)) => read.extend_from_slice(&frame.into_data().unwrap()),
                    Some(Err(trouble)) => break trouble,
                    None => panic!("a clean end"),
                }
            };
            assert!(read.starts_with(b"ok"));
            assert_eq!(failed, trouble);
            assert!(matches!(body.frame().await, Some(Err(again)) if again == trouble));
            assert!(!http_body::Body::is_end_stream(&body));
            assert_eq!(stage.answered(OK).await.0.unwrap().status, 200);
            assert_eq!(stage.dials.get(), 2, "it is not kept");
        });
    }
}

/// A service that says nothing for too long is given up, before its head and in its body.
#[test]
fn a_silent_service_is_given_up() {
    const SILENCE: Duration = Duration::from_millis(300);
    on_stage(async {
        let stage = Stage::new().await;
        let started = Instant::now();
        let (answer, mut stream) = tokio::join!(stage.upstreams.send(outgoing(), SILENCE), stage.accept());
        assert_eq!(answer.unwrap_err(), UpstreamTrouble::Silent);
        assert!(started.elapsed() >= SILENCE && started.elapsed() < SILENCE * 5, "{:?}", started.elapsed());
        assert!(closes(&mut stream).await);

        let service = async {
            let mut stream = stage.accept().await;
            read_request(&mut stream).await;
            stream.write_all(STREAM).await.unwrap();
            // Slow, and never silent for too long: in all longer than the silence that is borne.
            for _ in 0..4 {
                sleep(SILENCE / 3).await;
                stream.write_all(b"1\r\nx\r\n").await.unwrap();
            }
            stream
        };
        let (answer, mut stream) = tokio::join!(
            async {
                let mut body = stage.upstreams.send(outgoing(), SILENCE).await.unwrap().body;
                for _ in 0..4 {
                    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "x");
                }
                body.frame().await
            },
            service
        );
        assert!(matches!(answer, Some(Err(UpstreamTrouble::Silent))));
        assert!(closes(&mut stream).await);
    });
}

/// An agent that reads slowly makes no service silent.
#[test]
fn a_slow_agent_is_no_silence() {
    const SILENCE: Duration = Duration::from_millis(200);
    on_stage(async {
        let stage = Stage::new().await;
        let answer = [STREAM, b"1\r\nx\r\n"].concat();
        let service = async {
            let mut stream = stage.accept().await;
            read_request(&mut stream).await;
            stream.write_all(&answer).await.unwrap();
            stream
        };
        let (incoming, mut stream) = tokio::join!(stage.upstreams.send(outgoing(), SILENCE), service);
        let mut body = incoming.unwrap().body;
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "x");
        stream.write_all(b"1\r\ny\r\n").await.unwrap();
        sleep(SILENCE * 3).await;
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "y");
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        assert!(body.frame().await.is_none());
    });
}

/// Back-pressure: what the agent does not read stays with the service, whose sender blocks, and nothing is lost.
#[test]
fn the_service_waits_for_the_agent() {
    const PIECE: usize = 65536;
    /// More than socket buffers on both ways hold (tcp_rmem and tcp_wmem: 6 and 4 MiB) and the broker's own.
    const PIECES: usize = 320;
    on_stage(async {
        let stage = Stage::new().await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", PIECE * PIECES);
        let (incoming, mut stream) = stage.answered(head.as_bytes()).await;
        let sent = Rc::new(Cell::new(0));
        let counted = Rc::clone(&sent);
        spawn_local(async move {
            for _ in 0..PIECES {
                stream.write_all(&vec![b'x'; PIECE]).await.unwrap();
                counted.set(counted.get() + 1);
            }
        });
        let mut body = incoming.unwrap().body;
        sleep(Duration::from_millis(500)).await;
        let blocked = sent.get();
        sleep(Duration::from_millis(300)).await;
        assert_eq!(sent.get(), blocked, "its sender moves although nobody reads");
        assert!(blocked < PIECES, "all of it was taken without a reader");
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame.unwrap().into_data().unwrap().len();
        }
        assert_eq!((read, sent.get()), (PIECE * PIECES, PIECES));
    });
}
