//! Asking for the addresses of an allowed name (EGR-4, EGR-8).
//!
//! Both families are always asked, and one that fails refuses the name: whoever can make the AAAA answer time out must
//! not be able to hide an address in it. Resolver's own `lookup_ip` is not used, since it is content with one family.
//! Nothing but name servers takes part: no hosts file, no search list, no cache that an earlier answer could sit in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts, ServerOrderingStrategy,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use ipc_proto::proxy::{MAX_ADDRESSES, Reason};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::nat64::{Nat64Prefix, WELL_KNOWN_NAME};

/// How long one question waits for its answer before it is asked again.
const QUESTION: Duration = Duration::from_secs(3);
/// How often a question is asked.
const ATTEMPTS: usize = 2;
/// How long a name may take in all, over every name server and TCP.
const DEADLINE: Duration = Duration::from_secs(10);
/// As many name servers as glibc takes (MAXNS in resolv.h).
const MAX_NAME_SERVERS: usize = 3;

/// The name servers of /etc/resolv.conf: its other lines (search, options) are none of the proxy's business. An address
/// with a zone, which only link-local servers have, cannot be used. Without any, the local host is asked, as
/// resolv.conf(5) says.
#[must_use]
pub fn name_servers(resolv_conf: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok()).flatten()
    };
    let mut servers: Vec<IpAddr> = resolv_conf.lines().filter_map(address).take(MAX_NAME_SERVERS).collect();
    if servers.is_empty() {
        servers.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    servers
}

/// Asks name servers.
pub struct Names {
    resolver: TokioResolver,
    /// Asked for once in the process's life, with the first name that has an IPv6 address: a network's translator does
    /// not change while a run lasts, and no other name needs to know. A failure is not kept, so the next name asks again.
    nat64: OnceCell<Vec<Nat64Prefix>>,
}

impl Names {
    /// Of these servers. Opens nothing yet.
    ///
    /// # Errors
    /// The resolver's own.
    pub fn new(servers: &[IpAddr]) -> Result<Self, NetError> {
        Names::of(servers.iter().map(|address| NameServerConfig::udp_and_tcp(*address)).collect())
    }

    fn of(servers: Vec<NameServerConfig>) -> Result<Self, NetError> {
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let resolver = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options())
            .build()?;
        Ok(Names { resolver, nat64: OnceCell::new() })
    }

    /// Every address of a name, of both families.
    ///
    /// # Errors
    /// [`Reason::NameNotFound`], [`Reason::DnsIncomplete`], [`Reason::TooManyAddresses`].
    pub async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Reason> {
        let name = absolute(host)?;
        let both = async {
            tokio::join!(self.ask(name.clone(), RecordType::A), self.ask(name.clone(), RecordType::AAAA))
        };
        let (v4, v6) = timeout(DEADLINE, both).await.map_err(|_| Reason::DnsIncomplete)?;
        let addresses = [v6?, v4?].concat();
        match addresses.len() {
            0 => Err(Reason::NameNotFound),
            1..=MAX_ADDRESSES => Ok(addresses),
            _ => Err(Reason::TooManyAddresses),
        }
    }

    /// The prefixes under which this network translates to IPv4 (RFC 7050).
    ///
    /// # Errors
    /// [`Reason::DnsIncomplete`]: nobody answered, so whether an IPv6 address is translated cannot be known, and none
    /// may be used. That the name does not exist or has no IPv6 address, as everywhere without NAT64, is an answer.
    pub async fn nat64(&self) -> Result<&[Nat64Prefix], Reason> {
        let ask = async || {
            let answer = self.ask(absolute(WELL_KNOWN_NAME)?, RecordType::AAAA);
            let addresses = timeout(DEADLINE, answer).await.map_err(|_| Reason::DnsIncomplete)??;
            let v6 = addresses.into_iter().filter_map(|address| match address {
                IpAddr::V6(address) => Some(address),
                IpAddr::V4(_) => None,
            });
            Ok(v6.map(Nat64Prefix::from_answer).collect())
        };
        self.nat64.get_or_try_init(ask).await.map(Vec::as_slice)
    }

    /// The addresses of one family; none is an answer too.
    async fn ask(&self, name: Name, family: RecordType) -> Result<Vec<IpAddr>, Reason> {
        match self.resolver.lookup(name, family).await {
            Ok(lookup) => Ok(lookup.answers().iter().filter_map(|record| address(&record.data)).collect()),
            Err(error) if error.is_no_records_found() => Ok(Vec::new()),
            Err(_) => Err(Reason::DnsIncomplete),
        }
    }
}

fn address(data: &RData) -> Option<IpAddr> {
    if let RData::A(address) = data {
        return Some(IpAddr::V4(Ipv4Addr::from(*address)));
    }
    if let RData::AAAA(address) = data {
        return Some(IpAddr::V6(Ipv6Addr::from(*address)));
    }
    None
}

/// The name with its root, so that no search list is ever walked.
fn absolute(host: &str) -> Result<Name, Reason> {
    let mut name = Name::from_ascii(host).map_err(|_| Reason::NameNotFound)?;
    name.set_fqdn(true);
    Ok(name)
}

fn options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.use_hosts_file = ResolveHosts::Never;
    options.cache_size = 0;
    options.ndots = 0;
    options.attempts = ATTEMPTS;
    options.timeout = QUESTION;
    // One server after the other, in the file's order, as the operator's other programs ask them.
    options.num_concurrent_reqs = 1;
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    // Against forged answers: the question's letters come back in the case that was drawn (0x20).
    options.case_randomization = true;
    options.try_tcp_on_error = true;
    options
}

#[cfg(test)]
mod tests;
