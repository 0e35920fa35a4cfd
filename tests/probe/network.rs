//! Ways out over every family that the kernel knows.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::time::Duration;

use crate::call::{Argument, call};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[(&str, Attack)] = &[
    ("connect_tcp", connect_tcp),
    ("send_udp", send_udp),
    ("connect_abstract", connect_abstract),
    ("send_abstract", send_abstract),
    ("connect_path", connect_path),
    ("resolve", resolve),
    ("netlink_links", netlink_links),
    ("netlink_add_link", netlink_add_link),
    ("vsock", |_| socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
    ("packet", |_| socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from((libc::ETH_P_ALL as u16).to_be()))),
    ("packet_datagram", |_| socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0)),
    ("raw_v4", |_| socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)),
    ("raw_v6", |_| socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6)),
    ("raw_socket_flags", |_| socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_UDP)),
    ("xdp", |_| socket(libc::AF_XDP, libc::SOCK_RAW, 0)),
    ("key_socket", |_| socket(libc::AF_KEY, libc::SOCK_RAW, 2)),
    ("bluetooth", |_| socket(libc::AF_BLUETOOTH, libc::SOCK_RAW, 1)),
    ("tipc", |_| socket(libc::AF_TIPC, libc::SOCK_SEQPACKET, 0)),
    ("can", |_| socket(libc::AF_CAN, libc::SOCK_RAW, 1)),
    ("alg", |_| socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)),
];

const PATIENCE: Duration = Duration::from_secs(2);

fn connect_tcp(arguments: &[String]) -> Verdict {
    let Some(address) = arguments.first().and_then(|a| a.parse::<SocketAddr>().ok()) else {
        return Verdict::Broken("ADDRESS:PORT is missing".into());
    };
    let attempt = TcpStream::connect_timeout(&address, PATIENCE).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 6];
        // A greeting tells the listener of the test from something of the sandbox's own on the same port.
        stream.read_exact(&mut greeting).map(|()| greeting)
    });
    Verdict::of_io(attempt, |greeting| format!("{address} says {}", String::from_utf8_lossy(greeting).trim()))
}

fn send_udp(arguments: &[String]) -> Verdict {
    let Some(address) = arguments.first().and_then(|a| a.parse::<SocketAddr>().ok()) else {
        return Verdict::Broken("ADDRESS:PORT is missing".into());
    };
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let attempt = UdpSocket::bind(any).and_then(|socket| {
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send_to(b"ping", address)?;
        socket.recv_from(&mut [0; 16])
    });
    Verdict::of_io(attempt, |(length, peer)| format!("{length} bytes from {peer}"))
}

fn connect_abstract(arguments: &[String]) -> Verdict {
    let Some(name) = arguments.first() else { return Verdict::Broken("a name is missing".into()) };
    let attempt = UnixAddr::from_abstract_name(name).and_then(|a| UnixStream::connect_addr(&a));
    Verdict::of_io(attempt, |_| format!("connected to @{name}"))
}

fn send_abstract(arguments: &[String]) -> Verdict {
    let Some(name) = arguments.first() else { return Verdict::Broken("a name is missing".into()) };
    let attempt = UnixAddr::from_abstract_name(name)
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"ping", &address));
    Verdict::of_io(attempt, |_| format!("sent to @{name}"))
}

fn connect_path(arguments: &[String]) -> Verdict {
    let Some(path) = arguments.first() else { return Verdict::Broken("a path is missing".into()) };
    Verdict::of_io(UnixStream::connect(path), |_| format!("connected to {path}"))
}

fn resolve(arguments: &[String]) -> Verdict {
    use std::net::ToSocketAddrs as _;
    let Some(name) = arguments.first() else { return Verdict::Broken("a name is missing".into()) };
    let attempt = (name.as_str(), 443).to_socket_addrs().map(|mut all| all.next());
    Verdict::of_io(attempt, |address| format!("{name} is {address:?}"))
}

fn socket(family: i32, kind: i32, protocol: i32) -> Verdict {
    Verdict::of(call(libc::SYS_socket, &[&family, &kind, &protocol]))
}

/// Names of network interfaces, by RTM_GETLINK: any but `lo` is one of somebody else's network.
fn netlink_links(_: &[String]) -> Verdict {
    let socket = match call(libc::SYS_socket, &[&libc::AF_NETLINK, &libc::SOCK_RAW, &libc::NETLINK_ROUTE]) {
        Ok(socket) => socket,
        Err(errno) => return Verdict::Refused(errno.to_string()),
    };
    // struct nlmsghdr, then struct ifinfomsg of zeros: all interfaces.
    let mut request = Vec::new();
    request.extend(32u32.to_ne_bytes());
    request.extend(libc::RTM_GETLINK.to_ne_bytes());
    request.extend(((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    request.extend([0; 24]);
    let sent = call(libc::SYS_sendto, &[&socket, &Bytes(&request), &request.len(), &0, &0, &0]);
    if let Err(errno) = sent {
        return Verdict::Refused(errno.to_string());
    }
    let mut names = Vec::new();
    let mut buffer = vec![0u8; 1 << 16];
    for _ in 0..64 {
        let received = call(libc::SYS_recvfrom, &[&socket, &Bytes(&buffer), &buffer.len(), &0, &0, &0]);
        let length = match received {
            Ok(length) => usize::try_from(length).unwrap_or_default(),
            Err(errno) => return Verdict::Refused(errno.to_string()),
        };
        if !links(buffer.get_mut(..length).unwrap_or_default(), &mut names) {
            break;
        }
    }
    let strange: Vec<_> = names.iter().filter(|name| name.as_str() != "lo").cloned().collect();
    if strange.is_empty() {
        return Verdict::Refused(format!("only {names:?}"));
    }
    Verdict::Succeeded(format!("{strange:?}"))
}

struct Bytes<'a>(&'a [u8]);

impl Argument for Bytes<'_> {
    fn word(&self) -> i64 {
        self.0.as_ptr() as i64
    }
}

/// Collects IFLA_IFNAME of each message; false at the end of the answer.
fn links(mut bytes: &[u8], names: &mut Vec<String>) -> bool {
    let word = |bytes: &[u8], at: usize| bytes.get(at..at + 2).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    while let Some(length) = bytes.first_chunk::<4>().map(|b| u32::from_ne_bytes(*b) as usize) {
        if length < 16 || word(bytes, 4) != Some(libc::RTM_NEWLINK) {
            return false;
        }
        // The header has 16 bytes, struct ifinfomsg as many; attributes follow, padded to 4.
        let mut rest = bytes.get(32..length).unwrap_or_default();
        while let (Some(size), Some(kind)) = (word(rest, 0), word(rest, 2)) {
            let size = usize::from(size).max(4);
            if kind == libc::IFLA_IFNAME {
                let name = rest.get(4..size).unwrap_or_default();
                names.push(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
            }
            rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

/// Makes an interface of kind `dummy`.
fn netlink_add_link(_: &[String]) -> Verdict {
    let socket = match call(libc::SYS_socket, &[&libc::AF_NETLINK, &libc::SOCK_RAW, &libc::NETLINK_ROUTE]) {
        Ok(socket) => socket,
        Err(errno) => return Verdict::Refused(errno.to_string()),
    };
    let attribute = |kind: u16, data: &[u8]| {
        let mut bytes = ((data.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let info = attribute(libc::IFLA_LINKINFO, &attribute(libc::IFLA_INFO_KIND, b"dummy"));
    let mut request = Vec::new();
    request.extend(((32 + info.len()) as u32).to_ne_bytes());
    request.extend(libc::RTM_NEWLINK.to_ne_bytes());
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    request.extend((flags as u16).to_ne_bytes());
    request.extend([0; 24]);
    request.extend(info);
    if let Err(errno) = call(libc::SYS_sendto, &[&socket, &Bytes(&request), &request.len(), &0, &0, &0]) {
        return Verdict::Refused(errno.to_string());
    }
    let answer = [0u8; 512];
    match call(libc::SYS_recvfrom, &[&socket, &Bytes(&answer), &answer.len(), &0, &0, &0]) {
        Ok(_) => {
            // struct nlmsgerr follows the header: 0, or a negative error number.
            let error = answer.get(16..20).map_or(-1, |b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
            if error == 0 {
                Verdict::Succeeded("a new interface".into())
            } else {
                Verdict::Refused(std::io::Error::from_raw_os_error(-error).to_string())
            }
        }
        Err(errno) => Verdict::Refused(errno.to_string()),
    }
}
