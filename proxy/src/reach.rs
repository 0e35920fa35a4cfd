//! From an allowed name, or that of the model service, to a connection: look up, verify every address, connect to a
//! verified one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipc_proto::proxy::Reason;
use ipc_proto::upstream::UpstreamHost;
use ipc_proto::{HostName, Upstream};
use tokio::net::TcpStream;

use crate::address::{Class, VerifiedAddr, classify};
use crate::dial::dial;
use crate::nat64::Nat64Prefix;
use crate::own::is_own;
use crate::resolve::Names;

/// A connection to an allowed host or to the service.
#[derive(Debug)]
pub struct Reached {
    /// The connection.
    pub stream: TcpStream,
    /// All addresses of the host, the one connected to first.
    pub addresses: Vec<IpAddr>,
}

/// A host that was not reached.
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

    /// Connects to the model service that the operator has named.
    fn reach_service(&self, service: &Upstream) -> impl Future<Output = Result<Reached, Unreached>>;
}

/// The public internet, and for the model service what its operator has said.
pub struct Internet {
    names: Names,
}

impl Internet {
    /// By these names.
    #[must_use]
    pub fn new(names: Names) -> Self {
        Internet { names }
    }

    /// The translator's prefixes, asked for only where an address might be one of its.
    async fn nat64(&self, addresses: &[IpAddr]) -> Result<&[Nat64Prefix], Reason> {
        let unsuspicious = |address: &IpAddr| {
            address.is_ipv6() && matches!(classify(*address), Class::Public | Class::Private)
        };
        if addresses.iter().any(unsuspicious) { self.names.nat64().await } else { Ok(&[]) }
    }

    async fn verified(&self, addresses: &[IpAddr]) -> Result<Vec<VerifiedAddr>, Reason> {
        let nat64 = self.nat64(addresses).await?;
        verify_all(addresses, nat64, is_own)
    }

    async fn verified_service(
        &self,
        service: &Upstream,
        addresses: &[IpAddr],
    ) -> Result<Vec<VerifiedAddr>, Reason> {
        if service.is_loopback() {
            let verify = |address: &IpAddr| VerifiedAddr::loopback(*address, service.port());
            let verified: Result<Vec<VerifiedAddr>, Class> = addresses.iter().map(verify).collect();
            return verified.map_err(|class| class.reason().unwrap_or(Reason::AddressReserved));
        }
        let nat64 = match service.host() {
            UpstreamHost::Name(_) => self.nat64(addresses).await?,
            // The operator has written it: no name server had a say in it, and there may be none.
            UpstreamHost::Address(_) => &[],
        };
        verify_all_of_service(service, addresses, nat64, is_own)
    }

    /// The addresses of the service; a name server is asked only for a name that is not this host's.
    async fn service_addresses(&self, service: &Upstream) -> Result<Vec<IpAddr>, Reason> {
        match service.host() {
            UpstreamHost::Address(address) => Ok(vec![*address]),
            // RFC 6761, section 6.3: such a name is never looked up.
            UpstreamHost::Name(_) if service.is_loopback() => {
                Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)])
            }
            UpstreamHost::Name(name) => self.names.addresses(name).await,
        }
    }
}

impl Reach for Internet {
    async fn reach(&self, host: &HostName) -> Result<Reached, Unreached> {
        let addresses = self.names.addresses(host.as_str()).await.map_err(unknown)?;
        let verified = self.verified(&addresses).await;
        connect(addresses, verified).await
    }

    async fn reach_service(&self, service: &Upstream) -> Result<Reached, Unreached> {
        let addresses = self.service_addresses(service).await.map_err(unknown)?;
        let verified = self.verified_service(service, &addresses).await;
        connect(addresses, verified).await
    }
}

fn unknown(reason: Reason) -> Unreached {
    Unreached { reason, addresses: Vec::new() }
}

async fn connect(
    mut addresses: Vec<IpAddr>,
    verified: Result<Vec<VerifiedAddr>, Reason>,
) -> Result<Reached, Unreached> {
    let connected = match verified {
        Ok(verified) => dial(&verified).await,
        Err(reason) => Err(reason),
    };
    match connected {
        Ok((stream, peer)) => {
            if let Some(place) = addresses.iter().position(|address| *address == peer.ip()) {
                addresses.swap(0, place);
            }
            Ok(Reached { stream, addresses })
        }
        Err(reason) => Err(Unreached { reason, addresses }),
    }
}

/// All or none: a name with one bad address is refused whole (EGR-4), or an attacker's answer could mix a public
/// address for the check with a private one for the connection.
fn verify_all(
    addresses: &[IpAddr],
    nat64: &[Nat64Prefix],
    own: impl Fn(IpAddr) -> bool,
) -> Result<Vec<VerifiedAddr>, Reason> {
    let verify = |address: &IpAddr| {
        VerifiedAddr::public(*address, nat64, &own)
            .map_err(|class| class.reason().unwrap_or(Reason::AddressReserved))
    };
    addresses.iter().map(verify).collect()
}

/// As [`verify_all`], with what is admitted for the service beside the public internet (MOD-15).
fn verify_all_of_service(
    service: &Upstream,
    addresses: &[IpAddr],
    nat64: &[Nat64Prefix],
    own: impl Fn(IpAddr) -> bool,
) -> Result<Vec<VerifiedAddr>, Reason> {
    let verify =
        |address: &IpAddr| VerifiedAddr::service(*address, service.port(), service.is_private(), nat64, &own);
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

    fn on_service(service: &str, private: bool, addresses: &[&str]) -> Result<Vec<String>, Reason> {
        let service = service.parse::<Upstream>().unwrap().allow_private(private);
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let own = |address: IpAddr| address == "8.8.4.4".parse::<IpAddr>().unwrap();
        let verified = verify_all_of_service(&service, &addresses, &[], own)?;
        Ok(verified.into_iter().map(|address| address.socket().to_string()).collect())
    }

    /// MOD-15: the service's port, and a private address only where the operator has said so; one bad address refuses all.
    #[test]
    fn the_service_is_verified_too() {
        let models = "https://models.example.com:8443/v1";
        assert_eq!(on_service(models, false, &["1.1.1.1"]), Ok(vec!["1.1.1.1:8443".to_owned()]));
        assert_eq!(on_service(models, false, &["1.1.1.1", "10.0.0.1"]), Err(Reason::AddressPrivate));
        assert_eq!(on_service(models, false, &["8.8.4.4"]), Err(Reason::AddressOwn));
        assert_eq!(
            on_service(models, true, &["10.0.0.1", "8.8.4.4"]),
            Ok(vec!["10.0.0.1:8443".to_owned(), "8.8.4.4:8443".to_owned()])
        );
        assert_eq!(on_service(models, true, &["10.0.0.1", "169.254.169.254"]), Err(Reason::AddressLinkLocal));
        assert_eq!(on_service(models, true, &["127.0.0.1"]), Err(Reason::AddressLoopback));
    }

    /// MOD-15: a service on loopback is connected to there without a name server, at its port.
    #[tokio::test]
    async fn a_service_on_loopback_is_not_looked_up() {
        // A name server that nobody could reach.
        let internet = Internet::new(Names::new(&["192.0.2.1".parse().unwrap()]).unwrap());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["localhost", "127.0.0.1"] {
            let service: Upstream = format!("http://{host}:{port}/v1").parse().unwrap();
            let reached = internet.reach_service(&service).await.unwrap();
            assert_eq!(reached.addresses.first(), Some(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(accepted.peer_addr().unwrap(), reached.stream.local_addr().unwrap());
        }
        // By its address, verified as such: private only with the operator's word, and then simply nobody there.
        let service: Upstream = "https://10.255.255.1:9".parse().unwrap();
        let refused = internet.reach_service(&service).await.unwrap_err();
        assert_eq!((refused.reason, refused.addresses.len()), (Reason::AddressPrivate, 1));
    }
}
