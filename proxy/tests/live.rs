//! The proxy as it is started, filtered and in its domain, with a test for its supervisor, its broker and the model service.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use confine::sys::spawn::{Child, Command, Program};
use ipc_proto::channel::Message;
use ipc_proto::dial::{FromDialer, ToDialer};
use ipc_proto::proxy::{Decision, DialReport, FromProxy, ProxyPlan, Reason, ToProxy};
use ipc_proto::{Channel, Received, bulk, descriptors};

/// Longer than anything takes on a busy machine.
const WAIT: Duration = Duration::from_secs(20);

struct Proxy {
    supervisor: Channel<ToProxy, FromProxy>,
    broker: Channel<ToDialer, FromDialer>,
    log: File,
    _child: Child,
}

impl Proxy {
    fn start(upstream: Option<&str>) -> Proxy {
        let (supervisor, channel) = Channel::<ToProxy, FromProxy>::pair().unwrap();
        let (broker, dial) = Channel::<ToDialer, FromDialer>::pair().unwrap();
        let plan = bulk::seal(&ProxyPlan { upstream: upstream.map(|text| text.parse().unwrap()) }).unwrap();
        let (log, writer) = std::io::pipe().unwrap();
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let (channel, dial) = (channel.into_fd(), dial.into_fd());
        let program = std::ffi::CString::new(env!("CARGO_BIN_EXE_anet-proxy")).unwrap();
        let mut command = Command::new(Program::Path(program));
        command.argv = vec![c"anet-proxy".to_owned()];
        command.descriptors = vec![
            (null.as_fd(), 0),
            (null.as_fd(), 1),
            (null.as_fd(), 2),
            (channel.as_fd(), descriptors::CHANNEL),
            (writer.as_fd(), descriptors::LOG),
            (plan.as_fd(), descriptors::PLAN),
        ];
        if upstream.is_some() {
            command.descriptors.push((dial.as_fd(), descriptors::DIAL));
        }
        command.parent_death_signal = true;
        let child = command.spawn().unwrap();
        drop(command);
        drop((channel, dial, writer));
        let log = File::from(OwnedFd::from(log));
        let mut proxy = Proxy { supervisor, broker, log, _child: child };
        assert!(matches!(proxy.heard(), FromProxy::Hello { .. }));
        proxy
    }

    fn heard(&mut self) -> FromProxy {
        next(&self.supervisor, &mut self.log).0
    }

    fn report(&mut self) -> DialReport {
        match self.heard() {
            FromProxy::Dialled(report) => report,
            other => panic!("{other:?}"),
        }
    }

    fn dialled(&mut self, dial: u32) -> (DialReport, FromDialer, Vec<OwnedFd>) {
        self.broker.send(&ToDialer::Dial { dial }, &[]).unwrap();
        let report = self.report();
        let (answer, descriptors) = next(&self.broker, &mut self.log);
        (report, answer, descriptors)
    }
}

fn next<Out: Message, In: Message>(channel: &Channel<Out, In>, log: &mut File) -> (In, Vec<OwnedFd>) {
    let end = Instant::now() + WAIT;
    while Instant::now() < end {
        match channel.try_receive().unwrap() {
            Received::Message(message, descriptors) => return (message, descriptors),
            Received::Empty => std::thread::sleep(Duration::from_millis(1)),
            Received::Closed => {
                let mut text = String::new();
                log.read_to_string(&mut text).unwrap();
                panic!("the proxy has ended: {text}");
            }
        }
    }
    panic!("nothing came")
}

/// MOD-12, MOD-15, PRV-4: the confined proxy reaches the configured service at its own port, gives the connection away,
/// and lives on when the broker is gone.
#[test]
fn a_confined_proxy_connects_the_broker() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port();
    let mut proxy = Proxy::start(Some(&format!("http://localhost:{port}/v1")));
    for dial in 1..=3 {
        let (report, answer, descriptors) = proxy.dialled(dial);
        assert_eq!((report.decision, report.reason), (Decision::Allow, Reason::Configured));
        assert_eq!(report.addresses.first(), Some(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(matches!(answer, FromDialer::Dialled { dial: answered } if answered == dial));
        let mut near = TcpStream::from(descriptors.into_iter().next().unwrap());
        near.set_nonblocking(false).unwrap();
        let (mut far, _) = service.accept().unwrap();
        near.write_all(b"request").unwrap();
        let mut seen = [0; 7];
        far.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"request");
    }
    drop(service);
    let (report, answer, _) = proxy.dialled(4);
    assert_eq!((report.decision, report.reason), (Decision::Fail, Reason::ConnectFailed));
    assert!(matches!(answer, FromDialer::Failed { dial: 4, reason: Reason::ConnectFailed }));

    let (gone, _) = Channel::<ToDialer, FromDialer>::pair().unwrap();
    drop(std::mem::replace(&mut proxy.broker, gone));
    std::thread::sleep(Duration::from_millis(100));
    assert!(matches!(proxy.supervisor.try_receive().unwrap(), Received::Empty), "it must live on");
}

/// MOD-15: a private address is refused without the operator's word, and nobody is asked for it.
#[test]
fn a_confined_proxy_refuses_a_private_service() {
    for (upstream, reason) in [
        ("https://10.0.0.1:8443/v1", Reason::AddressPrivate),
        ("https://169.254.169.254", Reason::AddressLinkLocal),
        ("https://[::ffff:10.0.0.1]", Reason::AddressPrivate),
    ] {
        let mut proxy = Proxy::start(Some(upstream));
        let (report, answer, descriptors) = proxy.dialled(1);
        assert_eq!((report.decision, report.reason, report.addresses.len()), (Decision::Deny, reason, 1));
        assert!(matches!(answer, FromDialer::Failed { dial: 1, reason: said } if said == reason));
        assert!(descriptors.is_empty());
    }
}

/// Without a broker there is no channel to one, and the proxy is ready as ever.
#[test]
fn a_proxy_without_a_broker_needs_no_channel() {
    let proxy = Proxy::start(None);
    assert!(matches!(proxy.supervisor.try_receive().unwrap(), Received::Empty));
}
