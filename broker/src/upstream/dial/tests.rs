//! A test is the proxy.

use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::timeout;

use super::*;

const WAIT: Duration = Duration::from_secs(10);

struct Stage {
    dialer: Dialer,
    proxy: Line<FromDialer, ToDialer>,
    ended: JoinHandle<Result<(), Error>>,
}

impl Stage {
    fn new() -> Stage {
        let (broker, proxy) = Channel::<ToDialer, FromDialer>::pair().unwrap();
        let dialer = Dialer::new(broker).unwrap();
        let driven = dialer.clone();
        let ended = spawn_local(async move { driven.run().await });
        Stage { dialer, proxy: Line::new(proxy).unwrap(), ended }
    }

    fn ask(&self) -> JoinHandle<Result<TcpStream, Reason>> {
        let dialer = self.dialer.clone();
        spawn_local(async move { dialer.connect().await })
    }

    async fn asked(&self) -> u32 {
        loop {
            match self.proxy.receive().await.unwrap() {
                Received::Message(ToDialer::Dial { dial }, _) => return dial,
                Received::Empty => {}
                Received::Closed => panic!("the broker is gone"),
            }
        }
    }

    async fn answer(&self, message: FromDialer, descriptors: &[BorrowedFd<'_>]) {
        self.proxy.send(&message, descriptors).await.unwrap();
    }
}

fn on_stage<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async { timeout(WAIT, test).await.unwrap() }))
}

fn connected() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// MOD-12: several questions at once, answered in any order: each gets its own connection, or the proxy's reason.
#[test]
fn answers_find_their_questions() {
    on_stage(async {
        let stage = Stage::new();
        let asking: Vec<_> = (0..3).map(|_| stage.ask()).collect();
        for expected in 1..=3 {
            assert_eq!(stage.asked().await, expected);
        }
        let ((one, _keep), (three, _keep_too)) = (connected(), connected());
        stage.answer(FromDialer::Dialled { dial: 3 }, &[three.as_fd()]).await;
        stage.answer(FromDialer::Failed { dial: 2, reason: Reason::NameNotFound }, &[]).await;
        stage.answer(FromDialer::Dialled { dial: 1 }, &[one.as_fd()]).await;
        let mut results = Vec::new();
        for asked in asking {
            results.push(asked.await.unwrap().map(|stream| stream.local_addr().unwrap()));
        }
        assert_eq!(
            results,
            [Ok(one.local_addr().unwrap()), Err(Reason::NameNotFound), Ok(three.local_addr().unwrap())]
        );
    });
}

/// As many questions as may be open are; the next waits for an answer, also for one that nobody wants any more.
#[test]
fn no_more_are_asked_at_once_than_may_be() {
    on_stage(async {
        let stage = Stage::new();
        let most = u32::try_from(MOST_DIALS).unwrap();
        let asking: Vec<_> = (0..=most).map(|_| stage.ask()).collect();
        for expected in 1..=most {
            assert_eq!(stage.asked().await, expected);
        }
        // Whoever asked first goes away: its question stays open.
        asking.first().unwrap().abort();
        assert!(timeout(Duration::from_millis(100), stage.asked()).await.is_err());
        stage.answer(FromDialer::Failed { dial: 1, reason: Reason::ConnectFailed }, &[]).await;
        assert_eq!(stage.asked().await, most + 1);
    });
}

/// A connection that nobody wants any more is closed.
#[test]
fn an_unwanted_connection_is_closed() {
    on_stage(async {
        let stage = Stage::new();
        let asking = stage.ask();
        assert_eq!(stage.asked().await, 1);
        asking.abort();
        let (near, mut far) = connected();
        stage.answer(FromDialer::Dialled { dial: 1 }, &[near.as_fd()]).await;
        drop(near);
        far.set_nonblocking(true).unwrap();
        while std::io::Read::read(&mut far, &mut [0]).is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

/// PRV-5: an answer to no question, a second answer to one, and a descriptor that is no connection end the process.
#[test]
fn a_proxy_that_breaks_the_protocol_ends_the_process() {
    on_stage(async {
        let stage = Stage::new();
        stage.answer(FromDialer::Failed { dial: 1, reason: Reason::ConnectFailed }, &[]).await;
        let ended = stage.ended.await.unwrap();
        assert!(matches!(ended, Err(Error::Channel(ChannelError::Unexpected { .. }))), "{ended:?}");
    });
    on_stage(async {
        let stage = Stage::new();
        let asking = stage.ask();
        stage.asked().await;
        for _ in 0..2 {
            stage.answer(FromDialer::Failed { dial: 1, reason: Reason::ConnectFailed }, &[]).await;
        }
        assert_eq!(asking.await.unwrap().unwrap_err(), Reason::ConnectFailed);
        assert!(matches!(stage.ended.await.unwrap(), Err(Error::Channel(_))));
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let (pipe, _end) = std::io::pipe().unwrap();
    for descriptor in [listener.as_fd(), udp.as_fd(), unix.as_fd(), pipe.as_fd()] {
        on_stage(async {
            let stage = Stage::new();
            let asking = stage.ask();
            stage.asked().await;
            stage.answer(FromDialer::Dialled { dial: 1 }, &[descriptor]).await;
            assert!(matches!(stage.ended.await.unwrap(), Err(Error::Connection(_))));
            assert_eq!(asking.await.unwrap().unwrap_err(), Reason::ConnectFailed);
        });
    }
}

/// Without a proxy every question has an answer, those that wait and those that come.
#[test]
fn a_proxy_that_is_gone_leaves_nobody_waiting() {
    on_stage(async {
        let Stage { dialer, proxy, ended } = Stage::new();
        let asking = dialer.clone();
        let waiting = spawn_local(async move { asking.connect().await });
        tokio::task::yield_now().await;
        drop(proxy);
        assert_eq!(waiting.await.unwrap().unwrap_err(), Reason::ConnectFailed);
        ended.await.unwrap().unwrap();
        assert_eq!(dialer.connect().await.unwrap_err(), Reason::ConnectFailed);
    });
}
