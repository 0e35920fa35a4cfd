//! A test is the broker and the supervisor at once; only how the service is reached is another way.

use std::cell::Cell;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::Duration;

use ipc_proto::HostName;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::*;

const WAIT: Duration = Duration::from_secs(10);

/// Reaches the service at one loopback address as soon as the gate lets it, and says which one it was asked for.
struct Service {
    address: SocketAddr,
    refused: Option<Reason>,
    gate: Semaphore,
    asked: Cell<u32>,
}

impl Reach for Service {
    async fn reach(&self, _: &HostName) -> Result<Reached, Unreached> {
        unreachable!("the broker names no host")
    }

    async fn reach_service(&self, service: &Upstream) -> Result<Reached, Unreached> {
        assert_eq!(service.to_string(), "https://models.example.com/v1");
        self.asked.set(self.asked.get() + 1);
        self.gate.acquire().await.unwrap().forget();
        let addresses = vec!["10.0.0.1".parse().unwrap()];
        match self.refused {
            Some(reason) => Err(Unreached { reason, addresses }),
            None => Ok(Reached { stream: TcpStream::connect(self.address).await.unwrap(), addresses }),
        }
    }
}

struct Stage {
    broker: Line<ToDialer, FromDialer>,
    reports: mpsc::Receiver<FromProxy>,
    service: Rc<Service>,
    listener: TcpListener,
    ended: tokio::task::JoinHandle<Result<(), ChannelError>>,
}

impl Stage {
    fn new(open: usize, refused: Option<Reason>) -> Stage {
        let (broker, channel) = Channel::<ToDialer, FromDialer>::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let service = Rc::new(Service { address, refused, gate: Semaphore::new(open), asked: Cell::new(0) });
        let (outbox, reports) = mpsc::channel(4);
        let upstream = "https://models.example.com/v1".parse().unwrap();
        let serving =
            serve(Broker { channel, service: upstream }, Rc::new(Shared(Rc::clone(&service))), outbox);
        let ended = tokio::task::spawn_local(serving);
        Stage { broker: Line::new(broker).unwrap(), reports, service, listener, ended }
    }

    async fn ask(&self, dial: u32) {
        self.broker.send(&ToDialer::Dial { dial }, &[]).await.unwrap();
    }

    async fn answer(&self) -> (FromDialer, Vec<OwnedFd>) {
        timeout(WAIT, async {
            loop {
                match self.broker.receive().await.unwrap() {
                    Received::Message(message, descriptors) => return (message, descriptors),
                    Received::Empty => {}
                    Received::Closed => panic!("the proxy is gone"),
                }
            }
        })
        .await
        .unwrap()
    }

    async fn report(&mut self) -> DialReport {
        match timeout(WAIT, self.reports.recv()).await.unwrap() {
            Some(FromProxy::Dialled(report)) => report,
            other => panic!("{other:?}"),
        }
    }

    async fn ended(self) -> Result<(), ChannelError> {
        timeout(WAIT, self.ended).await.unwrap().unwrap()
    }
}

/// What the proxy is given; the test keeps the other reference.
struct Shared(Rc<Service>);

impl Reach for Shared {
    async fn reach(&self, host: &HostName) -> Result<Reached, Unreached> {
        self.0.reach(host).await
    }

    async fn reach_service(&self, service: &Upstream) -> Result<Reached, Unreached> {
        self.0.reach_service(service).await
    }
}

fn on_stage<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(test))
}

/// MOD-12: the broker asks by a number and gets a connection to the configured service; each is recorded.
#[test]
fn the_broker_gets_connections_to_its_service() {
    on_stage(async {
        let mut anet = Stage::new(2, None);
        for dial in 1..=2 {
            anet.ask(dial).await;
            let report = anet.report().await;
            assert_eq!((report.decision, report.reason), (Decision::Allow, Reason::Configured));
            let (message, descriptors) = anet.answer().await;
            assert!(matches!(message, FromDialer::Dialled { dial: answered } if answered == dial));
            let stream = std::net::TcpStream::from(descriptors.into_iter().next().unwrap());
            let (accepted, _) = anet.listener.accept().unwrap();
            assert_eq!(accepted.peer_addr().unwrap(), stream.local_addr().unwrap());
        }
        drop(anet.broker);
        timeout(WAIT, anet.ended).await.unwrap().unwrap().unwrap();
    });
}

/// MOD-15: what is not reached is said with its reason; a bad address is a refusal, a dead service a failure.
#[test]
fn a_service_that_is_not_reached() {
    for (reason, decision) in [
        (Reason::AddressPrivate, Decision::Deny),
        (Reason::AddressMetadata, Decision::Deny),
        (Reason::NameNotFound, Decision::Fail),
        (Reason::ConnectTimeout, Decision::Fail),
    ] {
        on_stage(async {
            let mut anet = Stage::new(1, Some(reason));
            anet.ask(1).await;
            assert_eq!(
                anet.report().await,
                DialReport { decision, reason, addresses: vec!["10.0.0.1".parse().unwrap()] }
            );
            let (message, _) = anet.answer().await;
            assert!(matches!(message, FromDialer::Failed { dial: 1, reason: said } if said == reason));
        });
    }
}

/// PRV-5: a number out of turn, and one question more than may be open, end the process.
#[test]
fn a_broker_that_breaks_the_protocol_ends_the_process() {
    for dials in [vec![0], vec![2], vec![1, 1], vec![1, 3]] {
        on_stage(async {
            let anet = Stage::new(0, None);
            for dial in dials {
                anet.ask(dial).await;
            }
            assert!(matches!(anet.ended().await, Err(ChannelError::Unexpected { .. })));
        });
    }
    on_stage(async {
        let most = u32::try_from(MOST_DIALS).unwrap();
        let mut anet = Stage::new(0, Some(Reason::ConnectFailed));
        for dial in 1..=most {
            anet.ask(dial).await;
        }
        while anet.service.asked.get() < most {
            tokio::task::yield_now().await;
        }
        // One answer makes one place.
        anet.service.gate.add_permits(1);
        anet.report().await;
        anet.answer().await;
        anet.ask(most + 1).await;
        while anet.service.asked.get() < most + 1 {
            tokio::task::yield_now().await;
        }
        assert!(!anet.ended.is_finished());
        anet.ask(most + 2).await;
        assert!(matches!(anet.ended().await, Err(ChannelError::Unexpected { .. })));
    });
}
