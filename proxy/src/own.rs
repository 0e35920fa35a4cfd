//! "Is this address mine?", asked of the kernel without netlink and without a file.
//!
//! A connection to an own public address would reach the host's services from inside, past its firewall. The routing
//! table knows the answer, and a UDP socket asks it: binding or connecting one sends no packet.
//!
//! For IPv6 a socket connected to an own address has that address as its source (RFC 6724, rule 1). For IPv4 that is
//! not so: the kernel gives the local route of a second address of a network the first one as its source, so only
//! the first would be found. There the socket is bound to the address and then connected to it. The bind fails where
//! the address is not local; under `ip_nonlocal_bind` it never fails, but then the connect does, since no route may
//! leave with a foreign source.

use std::net::{IpAddr, SocketAddr};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, socket_with};

use crate::address::HTTPS_PORT;

/// Whether the address is this host's, or one whose packets this host would take (a network's broadcast address).
/// What the kernel answers otherwise than with a plain no counts as yes: an address that cannot be judged is not used.
#[must_use]
pub fn is_own(address: IpAddr) -> bool {
    let answer = match address {
        IpAddr::V4(_) => bound_reaches_itself(address),
        IpAddr::V6(_) => is_its_own_source(address),
    };
    answer.unwrap_or(true)
}

fn bound_reaches_itself(address: IpAddr) -> Result<bool, Errno> {
    let socket = udp(AddressFamily::INET)?;
    match bind(&socket, &SocketAddr::new(address, 0)) {
        Ok(()) => {}
        Err(Errno::ADDRNOTAVAIL) => return Ok(false),
        Err(error) => return Err(error),
    }
    match connect(&socket, &SocketAddr::new(address, HTTPS_PORT)) {
        Ok(()) => Ok(true),
        // No route may leave with this source: it is not ours, and only `ip_nonlocal_bind` let it be bound.
        Err(Errno::INVAL | Errno::NETUNREACH | Errno::HOSTUNREACH) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_its_own_source(address: IpAddr) -> Result<bool, Errno> {
    let socket = match udp(AddressFamily::INET6) {
        Ok(socket) => socket,
        // A host without IPv6 has no IPv6 address.
        Err(Errno::AFNOSUPPORT) => return Ok(false),
        Err(error) => return Err(error),
    };
    match connect(&socket, &SocketAddr::new(address, HTTPS_PORT)) {
        Ok(()) => {}
        // Nothing leads there, so not even this host.
        Err(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ADDRNOTAVAIL) => return Ok(false),
        Err(error) => return Err(error),
    }
    let source: SocketAddr = getsockname(&socket)?.try_into().map_err(|_| Errno::INVAL)?;
    Ok(source.ip() == address)
}

fn udp(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EGR-4: loopback is the one address that every test host owns, and 127.0.0.2 one that no interface lists.
    #[test]
    fn own_addresses_are_known() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(is_own("127.0.0.2".parse().unwrap()));
        assert!(is_own("::1".parse().unwrap()));
    }

    #[test]
    fn foreign_addresses_are_not_own() {
        assert!(!is_own("1.1.1.1".parse().unwrap()));
        assert!(!is_own("2606:4700::1111".parse().unwrap()));
    }

    /// What `unshare` sets up for the test below: two public addresses of one network, as a host with several has them.
    const SETUP: &str = "ip link set lo up && ip link add near type veth peer name far && \
        ip addr add 8.8.4.1/24 dev near && ip addr add 8.8.4.2/24 dev near && \
        ip -6 addr add 2606:4700::1/64 dev near nodad && ip -6 addr add 2606:4700::2/64 dev near nodad && \
        ip link set near up && ip link set far up && ip route add default via 8.8.4.9";

    /// EGR-4: every own public address is found, also the second of a network, which a socket that is merely connected
    /// does not show; and `ip_nonlocal_bind`, as load balancers set it, makes neither all addresses own nor none.
    #[test]
    fn second_addresses_are_own() {
        let myself = std::env::current_exe().unwrap();
        for setting in ["", " && sysctl -qw net.ipv4.ip_nonlocal_bind=1 net.ipv6.ip_nonlocal_bind=1"] {
            let script =
                format!("{SETUP}{setting} && exec \"$0\" --ignored --exact own::tests::in_a_namespace");
            let output = std::process::Command::new("unshare")
                .args(["--map-root-user", "--net", "sh", "-c", &script])
                .arg(&myself)
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        }
    }

    #[test]
    #[ignore = "only inside the namespace that second_addresses_are_own makes"]
    fn in_a_namespace() {
        let own = |text: &str| is_own(text.parse().unwrap());
        for address in ["8.8.4.1", "8.8.4.2", "8.8.4.255", "2606:4700::1", "2606:4700::2", "127.0.0.1", "::1"]
        {
            assert!(own(address), "{address}");
        }
        for address in ["8.8.4.3", "1.1.1.1", "2606:4700::3", "2001:4860:4860::8888"] {
            assert!(!own(address), "{address}");
        }
    }
}
