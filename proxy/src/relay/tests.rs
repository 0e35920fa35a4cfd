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
