//! Descriptors over a socket: the one file that knows how.
//!
//! Sending is sendfd's. Receiving is not: sendfd sets no close-on-exec and hides both kinds of truncation, so it is
//! done with recvmsg itself, where the kernel sets close-on-exec before anybody can exec.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use sendfd::SendWithFd;

use crate::channel::MAX_DESCRIPTORS;

/// One packet as it came.
pub(crate) struct Packet {
    pub(crate) length: usize,
    pub(crate) descriptors: Vec<OwnedFd>,
    /// The packet was longer than the buffer, or carried more descriptors than there is room for.
    pub(crate) truncated: bool,
}

/// Sends one packet with `descriptors`.
pub(crate) fn send(socket: &UnixDatagram, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<RawFd> = descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
    loop {
        match socket.send_with_fd(bytes, &raw) {
            Ok(sent) if sent == bytes.len() => return Ok(()),
            // A packet is sent whole or not at all.
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives one packet; a length of 0 is the end of the channel (no message is empty).
pub(crate) fn receive(socket: &UnixDatagram, buffer: &mut [u8], wait: bool) -> io::Result<Packet> {
    // Room for more than is allowed: a surplus is then seen, counted and closed, not cut off.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS + 5))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    if !wait {
        flags |= RecvFlags::DONTWAIT;
    }
    let got = loop {
        match recvmsg(socket.as_fd(), &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    let truncated = got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok(Packet { length: got.bytes, descriptors, truncated })
}
