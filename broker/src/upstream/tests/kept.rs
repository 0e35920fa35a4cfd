//! Connections that are kept.

use super::*;

/// Answers every request on one connection, and counts them.
fn serve(mut stream: TcpStream, answer: &'static [u8]) -> Rc<Cell<u32>> {
    let requests = Rc::new(Cell::new(0));
    let counted = Rc::clone(&requests);
    spawn_local(async move {
        while stream.readable().await.is_ok() && stream.peek(&mut [0]).await.is_ok_and(|count| count > 0) {
            read_request(&mut stream).await;
            counted.set(counted.get() + 1);
            stream.write_all(answer).await.unwrap();
        }
    });
    requests
}

/// MOD-12: one connection carries request after request, whether its end is asked for or only known.
#[test]
fn a_connection_is_kept() {
    on_stage(async {
        let stage = Stage::new().await;
        let service = async { serve(stage.accept().await, OK) };
        let (first, requests) = tokio::join!(stage.send(), service);
        assert_eq!(text(first.unwrap()).await.unwrap(), "ok");
        for _ in 0..20 {
            assert_eq!(text(stage.send().await.unwrap()).await.unwrap(), "ok");
        }
        let mut body = stage.send().await.unwrap().body;
        body.frame().await.unwrap().unwrap();
        assert!(http_body::Body::is_end_stream(&body));
        drop(body);
        drop(stage.send().await.unwrap().body.collect().await);
        assert_eq!((requests.get(), stage.dials.get()), (23, 1));
    });
}

/// An answer without a body frees its connection at once, and a chunked one when its last chunk was read; trailers go
/// nowhere.
#[test]
fn connections_are_free_at_the_end_of_an_answer() {
    for (answer, expected) in [
        (&b"HTTP/1.1 204 No Content\r\n\r\n"[..], ""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ""),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-late: 1\r\n\r\n", "ok"),
    ] {
        on_stage(async {
            let stage = Stage::new().await;
            let service = async { serve(stage.accept().await, answer) };
            let (first, requests) = tokio::join!(stage.send(), service);
            let collected = first.unwrap().body.collect().await.unwrap();
            assert!(collected.trailers().is_none());
            assert_eq!(collected.to_bytes(), expected);
            stage.send().await.unwrap().body.collect().await.unwrap();
            assert_eq!((requests.get(), stage.dials.get()), (2, 1));
        });
    }
}

/// A connection with an answer under way is nobody else's; of two that are free the one used last is taken.
#[test]
fn requests_at_once_have_their_own_connections() {
    on_stage(async {
        let stage = Stage::new().await;
        let (one, first) = stage.answered(OK).await;
        let (two, second) = stage.answered(OK).await;
        assert_eq!(stage.dials.get(), 2);
        // The second is free later.
        text(one.unwrap()).await.unwrap();
        text(two.unwrap()).await.unwrap();
        let (first, second) = (serve(first, OK), serve(second, OK));
        for _ in 0..3 {
            text(stage.send().await.unwrap()).await.unwrap();
        }
        assert_eq!((first.get(), second.get(), stage.dials.get()), (0, 3, 2));
    });
}

/// A service that has closed a kept connection is asked on a new one, and nobody notices.
#[test]
fn a_kept_connection_that_died_is_replaced() {
    on_stage(async {
        let stage = Stage::new().await;
        for round in 1..=5 {
            // Each is closed as soon as its answer is read, while it is kept.
            let (incoming, stream) = stage.answered(OK).await;
            assert_eq!(text(incoming.unwrap()).await.unwrap(), "ok");
            drop(stream);
            assert_eq!(stage.dials.get(), round);
        }
    });
}

/// What may have left is never sent again: one request, and the trouble is told.
#[test]
fn nothing_is_sent_twice() {
    on_stage(async {
        let stage = Stage::new().await;
        let service = async {
            let mut stream = stage.accept().await;
            read_request(&mut stream).await;
        };
        let (answer, ()) = tokio::join!(stage.send(), service);
        assert_eq!(answer.unwrap_err(), UpstreamTrouble::Cut);
        // Nor on a kept connection.
        let (incoming, mut stream) = stage.answered(OK).await;
        text(incoming.unwrap()).await.unwrap();
        let service = async {
            read_request(&mut stream).await;
            drop(stream);
        };
        let (answer, ()) = tokio::join!(stage.send(), service);
        assert_eq!(answer.unwrap_err(), UpstreamTrouble::Cut);
        assert_eq!(stage.dials.get(), 2);
    });
}

/// What says that it will close is not kept.
#[test]
fn what_will_close_is_not_kept() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"[..],
        b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ] {
        on_stage(async {
            let stage = Stage::new().await;
            for round in 1..=2 {
                let (incoming, mut stream) = stage.answered(answer).await;
                assert_eq!(text(incoming.unwrap()).await.unwrap(), "ok");
                assert!(closes(&mut stream).await);
                assert_eq!(stage.dials.get(), round);
            }
        });
    }
}

/// A connection is closed when its time is over, though nobody asks for it.
#[test]
fn a_kept_connection_is_closed_in_time() {
    on_stage(async {
        let stage = Stage::new().await;
        let answer = b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=2\r\ncontent-length: 2\r\n\r\nok";
        let started = Instant::now();
        let (incoming, mut stream) = stage.answered(answer).await;
        text(incoming.unwrap()).await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        let kept = started.elapsed();
        assert!(kept > Duration::from_millis(900) && kept < Duration::from_secs(3), "{kept:?}");
    });
}
