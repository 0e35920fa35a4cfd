//! From an allowed name to a connection: look up, verify every address, connect to a verified one.

use std::net::IpAddr;

use ipc_proto::HostName;
use ipc_proto::proxy::Reason;
use tokio::net::TcpStream;

use crate::address::{Class, PublicAddr};
use crate::dial::dial;
use crate::nat64::Nat64Prefix;
use crate::own::is_own;
use crate::resolve::Names;

/// A connection to an allowed host.
#[derive(Debug)]
pub struct Reached {
    /// The connection.
    pub stream: TcpStream,
    /// All addresses of the host, the one connected to first.
    pub addresses: Vec<IpAddr>,
}

/// An allowed host that was not reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreached {
    /// Why.
    pub reason: Reason,
    /// What the name resolved to, if it did.
    pub addresses: Vec<IpAddr>,
}

/// How hosts are reached. The program has one way, [`Internet`]; tests have others, since on loopback there is no
/// public address.
pub trait Reach {
    /// Connects to a host that the list allows.
    fn reach(&self, host: &HostName) -> impl Future<Output = Result<Reached, Unreached>>;
}

/// The public internet, and nothing else.
pub struct Internet {
    names: Names,
}

impl Internet {
    /// By these names.
    #[must_use]
    pub fn new(names: Names) -> Self {
        Internet { names }
    }

    async fn verified(&self, addresses: &[IpAddr]) -> Result<Vec<PublicAddr>, Reason> {
        let public_v6 =
            |address: &IpAddr| address.is_ipv6() && crate::address::classify(*address) == Class::Public;
        let nat64 = if addresses.iter().any(public_v6) { self.names.nat64().await? } else { &[] };
        verify_all(addresses, nat64, is_own)
    }
}

impl Reach for Internet {
    async fn reach(&self, host: &HostName) -> Result<Reached, Unreached> {
        let unreached = |reason, addresses| Unreached { reason, addresses };
        let mut addresses =
            self.names.addresses(host.as_str()).await.map_err(|reason| unreached(reason, Vec::new()))?;
        let verified =
            self.verified(&addresses).await.map_err(|reason| unreached(reason, addresses.clone()))?;
        let (stream, peer) = dial(&verified).await.map_err(|reason| unreached(reason, addresses.clone()))?;
        if let Some(place) = addresses.iter().position(|address| *address == peer.ip()) {
            addresses.swap(0, place);
        }
        Ok(Reached { stream, addresses })
    }
}

/// All or none: a name with one bad address is refused whole (EGR-4), or an attacker's answer could mix a public
/// address for the check with a private one for the connection.
fn verify_all(
    addresses: &[IpAddr],
    nat64: &[Nat64Prefix],
    own: impl Fn(IpAddr) -> bool,
) -> Result<Vec<PublicAddr>, Reason> {
    let verify = |address: &IpAddr| {
        PublicAddr::verify(*address, nat64, &own)
            .map_err(|class| class.reason().unwrap_or(Reason::AddressReserved))
    };
    addresses.iter().map(verify).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(addresses: &[&str]) -> Result<usize, Reason> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let own = |address: IpAddr| address == "8.8.4.4".parse::<IpAddr>().unwrap();
        verify_all(&addresses, &[], own).map(|verified| verified.len())
    }

    /// EGR-4, table C 57, 58, 66, 68: one bad address refuses the name, wherever it stands.
    #[test]
    fn one_bad_address_refuses_the_name() {
        assert_eq!(verdict(&["1.1.1.1", "2606:4700::1111"]), Ok(2));
        assert_eq!(verdict(&["1.1.1.1", "::1"]), Err(Reason::AddressLoopback));
        assert_eq!(verdict(&["1.1.1.1", "10.0.0.1"]), Err(Reason::AddressPrivate));
        assert_eq!(verdict(&["10.0.0.1", "1.1.1.1"]), Err(Reason::AddressPrivate));
        assert_eq!(verdict(&["8.8.4.4"]), Err(Reason::AddressOwn));
        assert_eq!(verdict(&["::ffff:8.8.8.8"]), Err(Reason::AddressEmbedded));
        assert_eq!(verdict(&["64:ff9b:1::1"]), Err(Reason::AddressEmbedded));
        assert_eq!(verdict(&["0.0.0.0"]), Err(Reason::AddressReserved));
    }
}
