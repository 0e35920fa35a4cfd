//! Every message of every channel: one spelling, counted descriptors, hard limits (PRV-1, PRV-5).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use ipc_proto::broker::{
    Answered, FromBroker, Interface, KeyState, MAX_MODEL, MAX_RULE, ModelId, ModelLimits, ModelPolicy,
    ModelTotals, RequestReport, Signature, ToBroker, UpstreamTrouble,
};
use ipc_proto::channel::{MAX_DESCRIPTORS, MAX_MESSAGE};
use ipc_proto::dial::{FromDialer, ToDialer};
use ipc_proto::ids::{Aid, InteractionId, MAX_AID, MAX_INTERACTION};
use ipc_proto::init::{
    Exit, FromInit, InitStep, NamespaceId, NamespaceKind, ProbeFailure, ToInit, WindowSize,
};
use ipc_proto::launcher::{Endpoints, Exceeded, Failure, FromLauncher, ToLauncher, Used};
use ipc_proto::outside::{FromOutside, ToOutside};
use ipc_proto::proxy::{
    Class, Debits, Decision, DialReport, FromProxy, MAX_ADDRESSES, MAX_HOSTS_A_MESSAGE, Reason, ToProxy,
    TunnelLimits, TunnelReport, TunnelTotals,
};
use ipc_proto::terminal::{FromTerminal, TerminalMode, ToTerminal};
use ipc_proto::{Channel, ChannelError, Code, HostName, Message, Received, RunId, bulk};
use proptest::prelude::*;
use sendfd::SendWithFd;

fn run() -> RunId {
    RunId::new(1_700_000_000_000, [1, 2, 3, 4])
}

/// The longest name there is.
fn longest_host(index: usize) -> HostName {
    let label = "a".repeat(63);
    format!("{label}.{label}.{label}.h{index:0>60}").parse().unwrap()
}

fn to_launcher() -> Vec<ToLauncher> {
    use ToLauncher::{ControlGroup, End, Go, Launch, Plan, Resume, Signal};
    vec![
        Plan(run()),
        ControlGroup(run()),
        Launch(run()),
        Go(run()),
        Signal(run(), 15),
        Resume(run()),
        End(run()),
    ]
}

fn from_launcher() -> Vec<FromLauncher> {
    let run = run();
    let both = Endpoints { egress: true, model: true };
    let namespace = |kind| NamespaceId { kind, device: u64::MAX, inode: u64::MAX };
    vec![
        FromLauncher::Hello {
            namespaces: NamespaceKind::ALL.map(namespace).to_vec(),
            own_pid_namespace: true,
            own_network: true,
            landlock: 7,
        },
        FromLauncher::Ready { run, endpoints: both, terminal: true },
        FromLauncher::Ready { run, endpoints: Endpoints { egress: true, model: false }, terminal: false },
        FromLauncher::Failed { run, failure: Failure { code: Code::NoBwrap, text: "x".repeat(1024) } },
        FromLauncher::Probed { run, failures: vec![ProbeFailure::SharedNamespace(NamespaceKind::Net); 20] },
        FromLauncher::Stopped { run, signal: 19 },
        FromLauncher::Over { run, exceeded: Exceeded::Growth },
        FromLauncher::Exited { run, exit: Some(Exit::Status(7)) },
        FromLauncher::Closed { run, used: Used { growth: Some(1), memory: None, tasks: Some(3) } },
    ]
}

fn to_init() -> Vec<ToInit> {
    vec![ToInit::Go, ToInit::Signal(2), ToInit::Resume]
}

fn from_init() -> Vec<FromInit> {
    vec![
        FromInit::Ready { listeners: 2, terminal: true },
        FromInit::Ready { listeners: 0, terminal: false },
        FromInit::Failed { step: InitStep::Listener, errno: 98 },
        FromInit::Stopped(20),
        FromInit::Exited(Exit::NotFound),
        FromInit::Probed(vec![]),
    ]
}

fn to_proxy() -> Vec<ToProxy> {
    let run = run();
    vec![
        ToProxy::Hosts { run, hosts: (0..MAX_HOSTS_A_MESSAGE).map(longest_host).collect() },
        ToProxy::Open {
            run,
            hosts: 64,
            limits: TunnelLimits { open: Some(16), ..TunnelLimits::default() },
            debits: Debits { destinations: true, bytes_out: Some(u64::MAX) },
        },
        ToProxy::Destination { run, attempt: u32::MAX, granted: true },
        ToProxy::Lease { run, bytes: 0 },
        ToProxy::Recall { run },
        ToProxy::Close { run },
    ]
}

fn from_proxy() -> Vec<FromProxy> {
    let run = run();
    vec![
        FromProxy::Hello { landlock: 0 },
        FromProxy::Opened { run },
        FromProxy::Tunnel {
            run,
            report: TunnelReport {
                attempt: 1,
                host: "h".repeat(255),
                port: 443,
                class: Class::ThirdParty,
                decision: Decision::Allow,
                reason: Reason::Listed,
                addresses: vec![IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()); MAX_ADDRESSES],
                bytes_out: 1,
                bytes_in: 2,
                ended: true,
            },
        },
        FromProxy::WantDestination { run, attempt: 1, host: longest_host(1) },
        FromProxy::WantBytes { run },
        FromProxy::Recalled { run, unused: u64::MAX },
        FromProxy::Dialled(DialReport {
            decision: Decision::Fail,
            reason: Reason::ConnectTimeout,
            addresses: vec![IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()); MAX_ADDRESSES],
        }),
        FromProxy::Closed { run, totals: TunnelTotals::default(), unused: 0 },
    ]
}

fn policy() -> ModelPolicy {
    // The longest identifier there is.
    let model = ModelId::try_from("m".repeat(MAX_MODEL)).unwrap();
    ModelPolicy { model, output_tokens: u64::MAX, silence: u64::MAX }
}

fn to_broker() -> Vec<ToBroker> {
    let run = run();
    let all = Some(u64::MAX);
    vec![
        ToBroker::Open {
            run,
            policy: policy(),
            limits: ModelLimits { requests: all, body: all, total: all, connections: all },
            debits: true,
        },
        ToBroker::Ask { run, policy: policy(), limits: ModelLimits::default(), debits: false },
        ToBroker::Debit { run, request: u32::MAX, granted: true },
        ToBroker::Close { run },
        ToBroker::Sign { seq: u64::MAX, hash: [0xff; 32] },
    ]
}

fn from_broker() -> Vec<FromBroker> {
    let run = run();
    let report = |interface, trouble| RequestReport {
        request: u32::MAX,
        interface,
        decision: Decision::Fail,
        rule: "r".repeat(MAX_RULE),
        trouble,
        status: u16::MAX,
        bytes_out: u64::MAX,
        bytes_in: 2,
        ended: true,
    };
    let mut all = vec![FromBroker::Opened { run }, FromBroker::Want { run, request: 1, bytes: u64::MAX }];
    all.extend(
        [KeyState::Ready, KeyState::None, KeyState::Empty, KeyState::Malformed]
            .map(|key| FromBroker::Hello { landlock: 7, key, roots: u32::MAX, signing: Some([0xff; 32]) }),
    );
    let interfaces =
        [Interface::Messages, Interface::CountTokens, Interface::Responses, Interface::ChatCompletions];
    all.extend(
        interfaces.map(|interface| FromBroker::Request { run, report: report(Some(interface), None) }),
    );
    let troubles = [
        UpstreamTrouble::Unreachable(Reason::AddressPrivate),
        UpstreamTrouble::Untrusted,
        UpstreamTrouble::Silent,
        UpstreamTrouble::Cut,
        UpstreamTrouble::Malformed,
        UpstreamTrouble::Filtered,
        UpstreamTrouble::Empty,
        UpstreamTrouble::TooLong,
        UpstreamTrouble::NoCompletion,
    ];
    all.extend(troubles.map(|trouble| FromBroker::Request { run, report: report(None, Some(trouble)) }));
    let totals = ModelTotals { requests: 1, refused: 2, body: 3, total: 4, connections: u64::MAX };
    all.extend([
        FromBroker::Answered { run, answered: Answered::Text, totals },
        FromBroker::Answered { run, answered: Answered::Nothing, totals },
        FromBroker::Closed { run, totals },
        FromBroker::Signed { seq: u64::MAX, signature: Signature { r: [1; 32], s: [2; 32] } },
    ]);
    all
}

fn to_dialer() -> Vec<ToDialer> {
    vec![ToDialer::Dial { dial: u32::MAX }]
}

fn from_dialer() -> Vec<FromDialer> {
    let failed = Reason::ALL.iter().map(|reason| FromDialer::Failed { dial: 1, reason: *reason });
    std::iter::once(FromDialer::Dialled { dial: u32::MAX }).chain(failed).collect()
}

fn to_outside() -> Vec<ToOutside> {
    let peer: Aid = "p".repeat(MAX_AID).parse().unwrap();
    let interaction: InteractionId = "i".repeat(MAX_INTERACTION).parse().unwrap();
    vec![
        ToOutside::Direct { run: run(), peer, interaction },
        ToOutside::End { run: run() },
        ToOutside::Notify { event: u64::MAX },
        ToOutside::Sweep { older_than: u64::MAX },
    ]
}

fn from_outside() -> Vec<FromOutside> {
    let run = run();
    let mut all = vec![
        FromOutside::Hello,
        FromOutside::Started { run },
        FromOutside::Failed { run, text: "t".repeat(1024) },
        FromOutside::Notified { event: u64::MAX, well: true },
        FromOutside::Swept { removed: u64::MAX, left: u64::MAX },
    ];
    all.extend([Exit::Status(255), Exit::Signal(64)].map(|exit| FromOutside::Exited { run, exit }));
    all
}

fn to_terminal() -> Vec<ToTerminal> {
    let size = WindowSize { rows: 24, columns: 80 };
    let mode = TerminalMode { operator: [true; 3], run: [true; 3], raw: true, size };
    vec![ToTerminal::Attach(mode), ToTerminal::Suspend, ToTerminal::Resume, ToTerminal::Finish]
}

fn from_terminal() -> Vec<FromTerminal> {
    vec![FromTerminal::Attached, FromTerminal::Suspended, FromTerminal::Finished]
}

/// Calls a macro-like closure for every direction of every channel.
macro_rules! every_direction {
    ($check:ident) => {
        $check(to_launcher(), from_launcher());
        $check(from_launcher(), to_launcher());
        $check(to_init(), from_init());
        $check(from_init(), to_init());
        $check(to_proxy(), from_proxy());
        $check(from_proxy(), to_proxy());
        $check(to_broker(), from_broker());
        $check(from_broker(), to_broker());
        $check(to_dialer(), from_dialer());
        $check(from_dialer(), to_dialer());
        $check(to_outside(), from_outside());
        $check(from_outside(), to_outside());
        $check(to_terminal(), from_terminal());
        $check(from_terminal(), to_terminal());
    };
}

fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

/// The packet that a message becomes, without its descriptors.
fn bytes_of<Out: Message, In: Message>(message: &Out) -> Vec<u8> {
    let (near, far) = Channel::<Out, In>::pair().unwrap();
    let given: Vec<OwnedFd> = (0..message.descriptors()).map(|_| null()).collect();
    let given: Vec<BorrowedFd<'_>> = given.iter().map(AsFd::as_fd).collect();
    near.send(message, &given).unwrap();
    let mut buffer = [0u8; MAX_MESSAGE * 2];
    let length = UnixDatagram::from(far.into_fd()).recv(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

/// What a receiver makes of a raw packet.
fn receive_raw<Out: Message, In: Message>(bytes: &[u8], count: usize) -> Result<Received<In>, ChannelError> {
    let (near, far) = Channel::<In, Out>::pair().unwrap();
    let raw = UnixDatagram::from(near.into_fd());
    let given: Vec<OwnedFd> = (0..count).map(|_| null()).collect();
    let numbers: Vec<i32> = given.iter().map(AsRawFd::as_raw_fd).collect();
    raw.send_with_fd(bytes, &numbers).unwrap();
    far.receive()
}

fn goes_through_whole<Out: Message, In: Message>(messages: Vec<Out>, _: Vec<In>) {
    let (near, far) = Channel::<Out, In>::pair().unwrap();
    for message in messages {
        let given: Vec<OwnedFd> = (0..message.descriptors()).map(|_| null()).collect();
        let given: Vec<BorrowedFd<'_>> = given.iter().map(AsFd::as_fd).collect();
        near.send(&message, &given).unwrap_or_else(|error| panic!("{message:?}: {error}"));
        let Received::Message(got, descriptors) = far.receive().unwrap() else {
            panic!("{message:?} was lost")
        };
        assert_eq!(format!("{got:?}"), format!("{message:?}"));
        assert_eq!(descriptors.len(), message.descriptors());
        for fd in &descriptors {
            let flags = rustix::io::fcntl_getfd(fd).unwrap();
            assert!(
                flags.contains(rustix::io::FdFlags::CLOEXEC),
                "{message:?}: a descriptor would survive exec"
            );
        }
    }
    drop(near);
    assert!(matches!(far.receive().unwrap(), Received::Closed));
}

/// PRV-1: every message arrives as it was sent, its descriptors close-on-exec; the longest fit.
#[test]
fn every_message_goes_through_whole() {
    every_direction!(goes_through_whole);
}

fn wrong_counts_are_refused<Out: Message, In: Message>(messages: Vec<Out>, _: Vec<In>) {
    for message in messages {
        let bytes = bytes_of::<Out, In>(&message);
        let expected = message.descriptors();
        for count in (0..=MAX_DESCRIPTORS + 2).filter(|count| *count != expected) {
            let got = receive_raw::<In, Out>(&bytes, count);
            assert!(
                matches!(got, Err(ChannelError::Descriptors { actual, .. }) if actual == count),
                "{message:?} with {count} descriptors: {got:?}"
            );
        }
        // More than there is room for: truncated by the kernel, and seen to be.
        let got = receive_raw::<In, Out>(&bytes, 60);
        assert!(matches!(got, Err(ChannelError::Truncated { .. })), "{message:?} with 60: {got:?}");
    }
}

/// PRV-5: neither more nor fewer descriptors than the message declares.
#[test]
fn wrong_numbers_of_descriptors_are_refused() {
    every_direction!(wrong_counts_are_refused);
}

fn cut_and_padded_are_refused<Out: Message, In: Message>(messages: Vec<Out>, _: Vec<In>) {
    for message in messages {
        let bytes = bytes_of::<Out, In>(&message);
        let count = message.descriptors();
        for length in 1..bytes.len() {
            let got = receive_raw::<In, Out>(&bytes[..length], count);
            assert!(got.is_err(), "{message:?} cut to {length} bytes was taken");
        }
        let mut padded = bytes.clone();
        padded.push(0);
        assert!(
            receive_raw::<In, Out>(&padded, count).is_err(),
            "{message:?} with a trailing byte was taken"
        );
        let oversized = vec![0u8; MAX_MESSAGE + 1];
        assert!(receive_raw::<In, Out>(&oversized, 0).is_err());
        let oversized = vec![0u8; MAX_MESSAGE * 3];
        assert!(matches!(receive_raw::<In, Out>(&oversized, 0), Err(ChannelError::Truncated { .. })));
    }
}

/// PRV-5: no part of a message, no message with something behind it, none over the limit.
#[test]
fn cut_padded_and_oversized_packets_are_refused() {
    every_direction!(cut_and_padded_are_refused);
}

fn one_spelling<Out: Message, In: Message>(bytes: &[u8]) {
    for count in 0..=MAX_DESCRIPTORS {
        if let Ok(Received::Message(message, _)) = receive_raw::<In, Out>(bytes, count) {
            assert_eq!(bytes_of::<Out, In>(&message), bytes, "{message:?} has a second spelling");
        }
    }
}

fn any_bytes(bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    one_spelling::<ToLauncher, FromLauncher>(bytes);
    one_spelling::<FromLauncher, ToLauncher>(bytes);
    one_spelling::<ToInit, FromInit>(bytes);
    one_spelling::<FromInit, ToInit>(bytes);
    one_spelling::<ToProxy, FromProxy>(bytes);
    one_spelling::<FromProxy, ToProxy>(bytes);
    one_spelling::<ToBroker, FromBroker>(bytes);
    one_spelling::<FromBroker, ToBroker>(bytes);
    one_spelling::<ToDialer, FromDialer>(bytes);
    one_spelling::<FromDialer, ToDialer>(bytes);
    one_spelling::<ToTerminal, FromTerminal>(bytes);
    one_spelling::<FromTerminal, ToTerminal>(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// PRV-5: whatever bytes come, they are refused or they are the one spelling of a message.
    #[test]
    fn any_bytes_are_refused_or_have_one_spelling(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
        any_bytes(&bytes);
    }

    /// PRV-5: the same for messages with a few bytes changed.
    #[test]
    fn changed_messages_are_refused_or_have_one_spelling(
        which in any::<prop::sample::Index>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut all: Vec<Vec<u8>> = Vec::new();
        all.extend(from_launcher().iter().map(bytes_of::<FromLauncher, ToLauncher>));
        all.extend(from_init().iter().map(bytes_of::<FromInit, ToInit>));
        all.extend(to_proxy().iter().skip(1).map(bytes_of::<ToProxy, FromProxy>));
        all.extend(from_proxy().iter().map(bytes_of::<FromProxy, ToProxy>));
        all.extend(to_broker().iter().map(bytes_of::<ToBroker, FromBroker>));
        all.extend(from_broker().iter().map(bytes_of::<FromBroker, ToBroker>));
        all.extend(to_dialer().iter().map(bytes_of::<ToDialer, FromDialer>));
        all.extend(from_dialer().iter().map(bytes_of::<FromDialer, ToDialer>));
        all.extend(to_terminal().iter().map(bytes_of::<ToTerminal, FromTerminal>));
        let mut bytes = all[which.index(all.len())].clone();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        any_bytes(&bytes);
    }
}

/// PRV-5: what the sender can still change is not read.
#[test]
fn unsealed_memory_is_refused() {
    let sealed = bulk::seal(&vec![1u8, 2, 3]).unwrap();
    assert_eq!(bulk::open::<Vec<u8>>(sealed.as_fd()).unwrap(), [1, 2, 3]);
    let no_text = bulk::seal(&vec![0xffu8]).unwrap();
    assert!(matches!(bulk::open::<String>(no_text.as_fd()), Err(bulk::BulkError::Codec(_))));
    let mut file = tempfile();
    file.write_all(&[3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]).unwrap();
    assert!(matches!(bulk::open::<Vec<u8>>(file.as_fd()), Err(bulk::BulkError::NotSealed)));
    let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    assert!(matches!(bulk::open::<Vec<u8>>(memory.as_fd()), Err(bulk::BulkError::NotSealed)));
    assert!(bulk::seal(&vec![0u8; bulk::MAX_BULK]).is_err());
}

fn tempfile() -> std::fs::File {
    let memory = rustix::fs::memfd_create("plain", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    memory.into()
}

/// PRV-5: an error of order names the message and the state, and nothing that the message holds.
#[test]
fn an_unexpected_message_is_named_without_its_content() {
    let message = FromLauncher::Failed {
        run: run(),
        failure: Failure { code: Code::NoBwrap, text: "somebody's text".into() },
    };
    let text = ChannelError::unexpected(&message, "the command runs").to_string();
    assert_eq!(text, "protocol violation, launcher to supervisor: Failed while the command runs");
}
