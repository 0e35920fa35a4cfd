use tokio::net::TcpListener;

use super::*;

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// BUD-2: bytes that were taken and could not be passed on are given back, so that counts say what left.
#[test]
fn what_did_not_leave_is_given_back() {
    wait(async {
        let ((client, near), (far, server)) = (pair().await, pair().await);
        let (meter, carried) = (Meter::new(None, None, None), Carried::default());
        // The server does not read: the relay fills its socket and then holds the rest in the pipe.
        let data = vec![1; 1 << 16];
        let pushing = async {
            loop {
                client.writable().await.unwrap();
                let _ = client.try_write(&data);
            }
        };
        let relaying = pump(&near, &far, &meter, Direction::Out, &carried);
        let stuck = timeout(Duration::from_millis(300), async { tokio::join!(pushing, relaying) }).await;
        assert!(stuck.is_err());
        assert_eq!(meter.used(Direction::Out), carried.get(Direction::Out));
        drop(far);
        let (mut received, mut chunk) = (0, vec![0; 1 << 16]);
        loop {
            server.readable().await.unwrap();
            match server.try_read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => received += count as u64,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert_eq!(received, carried.get(Direction::Out));
    });
}

/// A silent tunnel ends; one that carries a byte now and then, either way, does not.
#[test]
fn only_silence_ends_a_tunnel() {
    const PERIOD: Duration = Duration::from_millis(100);
    wait(async {
        let carried = Carried::default();
        let speaking = async {
            for direction in [Direction::Out, Direction::In, Direction::Out, Direction::In] {
                sleep(PERIOD / 2).await;
                carried.add(direction, 1);
            }
        };
        let started = std::time::Instant::now();
        tokio::join!(speaking, silence(&carried, PERIOD));
        let elapsed = started.elapsed();
        assert!(elapsed >= PERIOD * 3, "{elapsed:?}");
    });
}

/// What is small stays in memory, what is large goes through a pipe, and neither loses or doubles a byte at the change.
#[test]
fn the_change_to_a_pipe_loses_nothing() {
    wait(async {
        let ((client, near), (far, server)) = (pair().await, pair().await);
        let (meter, carried) = (Meter::new(None, None, None), Carried::default());
        let data: Vec<u8> = (0..4 * BULK).map(|place| (place % 253) as u8).collect();
        let sending = async {
            crate::wait::write_all(&client, &data).await.unwrap();
            rustix::net::shutdown(&client, rustix::net::Shutdown::Write).unwrap();
        };
        let receiving = async {
            let mut received = Vec::new();
            while crate::wait::read_some(&server, &mut received, usize::MAX).await.unwrap() > 0 {}
            received
        };
        let relaying = pump(&near, &far, &meter, Direction::Out, &carried);
        let ((), received, end) = tokio::join!(sending, receiving, relaying);
        assert!(received == data);
        assert_eq!((end, carried.get(Direction::Out)), (End::Finished, 4 * BULK));
    });
}
