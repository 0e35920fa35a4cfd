//! Every message of every channel: bytes are refused, or are the one spelling of a message (PRV-5). A receiver is what is
//! fuzzed, socket and all, since that is what a process that was taken over writes to.
#![no_main]

use std::os::unix::net::UnixDatagram;

use ipc_proto::broker::{FromBroker, ToBroker};
use ipc_proto::control::{FromNode, ToNode};
use ipc_proto::dial::{FromDialer, ToDialer};
use ipc_proto::init::{FromInit, ToInit};
use ipc_proto::launcher::{FromLauncher, ToLauncher};
use ipc_proto::outside::{FromOutside, ToOutside};
use ipc_proto::proxy::{FromProxy, ToProxy};
use ipc_proto::terminal::{FromTerminal, ToTerminal};
use ipc_proto::{Channel, Message, Received};
use libfuzzer_sys::fuzz_target;

/// Sends the packet raw, and what was received back again: it has to be the same bytes.
fn through<Out: Message, In: Message>(packet: &[u8]) {
    let Ok((near, far)) = Channel::<Out, In>::pair() else { return };
    let raw = UnixDatagram::from(far.into_fd());
    if raw.send(packet).is_err() {
        return;
    }
    let Ok(Received::Message(message, _)) = near.try_receive() else { return };
    let Ok((again, other)) = Channel::<In, Out>::pair() else { return };
    // A message that declares descriptors is not taken without them, so none is needed here.
    again.send(&message, &[]).expect("what was received can be sent");
    let mut buffer = vec![0u8; packet.len() + 1];
    let length = UnixDatagram::from(other.into_fd()).recv(&mut buffer).expect("the packet");
    assert_eq!(&buffer[..length], packet, "{message:?} has a second spelling");
}

fuzz_target!(|packet: &[u8]| {
    if packet.is_empty() {
        return;
    }
    through::<ToLauncher, FromLauncher>(packet);
    through::<FromLauncher, ToLauncher>(packet);
    through::<ToInit, FromInit>(packet);
    through::<FromInit, ToInit>(packet);
    through::<ToProxy, FromProxy>(packet);
    through::<FromProxy, ToProxy>(packet);
    through::<ToBroker, FromBroker>(packet);
    through::<FromBroker, ToBroker>(packet);
    through::<ToDialer, FromDialer>(packet);
    through::<FromDialer, ToDialer>(packet);
    through::<ToTerminal, FromTerminal>(packet);
    through::<FromTerminal, ToTerminal>(packet);
    through::<ToOutside, FromOutside>(packet);
    through::<FromOutside, ToOutside>(packet);
    through::<ToNode, FromNode>(packet);
    through::<FromNode, ToNode>(packet);
});
