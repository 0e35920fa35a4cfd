//! Supervisor and egress proxy.
//!
//! Per run: `Hosts` until the list is whole, `Open` with the listener, `Opened`; then reports as tunnels come and go,
//! debits where the run has a budget; `Close`, the last reports, `Closed`, after which the run's name is free.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::channel::Message;
use crate::host::HostName;
use crate::ids::RunId;
use crate::limits::LimitName;
use crate::upstream::Upstream;

/// The most hosts in one `Hosts` message: 32 of the longest names fit into a packet.
pub const MAX_HOSTS_A_MESSAGE: usize = 32;
/// The most allowed hosts of one run (EGR-2).
pub const MAX_HOSTS: usize = 64;
/// The most addresses that a name may have; more refuses it.
pub const MAX_ADDRESSES: usize = 32;
/// The longest requested name in a report, in bytes; a longer one is cut.
pub const MAX_REPORTED_NAME: usize = 255;
/// The bytes that are leased at once, unless less is left: large enough that a relay rarely waits (a lease of 1 MiB
/// costs 2 % of its throughput, one of 64 KiB two thirds).
pub const LEASE: u64 = 1024 * 1024;

/// What a proxy is started with, in sealed memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProxyPlan {
    /// The model service that a broker beside it may have connections to; none: there is no broker.
    pub upstream: Option<Upstream>,
}

/// A connection that the broker asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DialReport {
    /// Whether it stands.
    pub decision: Decision,
    /// Why it does not, else [`Reason::Configured`].
    pub reason: Reason,
    /// What the name resolved to, at most [`MAX_ADDRESSES`]; for a standing connection the one connected to comes first.
    pub addresses: Vec<IpAddr>,
}

/// The limits that the proxy counts; none: no such limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TunnelLimits {
    /// Open at once.
    pub open: Option<u64>,
    /// In all.
    pub total: Option<u64>,
    /// Bytes sent through all of them.
    pub sent: Option<u64>,
    /// Bytes received through all of them.
    pub received: Option<u64>,
    /// Connections to the endpoint at once.
    pub connections: Option<u64>,
}

/// What a run's budget asks of the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Debits {
    /// Each new destination is asked for before its name is looked up.
    pub destinations: bool,
    /// Bytes outward are leased: the first lease. None: not counted by a budget.
    pub bytes_out: Option<u64>,
}

/// Where a destination stands (BUD-6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The upstream of the model.
    Model,
    /// A listed host.
    ThirdParty,
    /// Listed, but an address is private, reserved or ours.
    Internal,
    /// Admitted by a person's decision.
    Public,
    /// Not listed, so never looked up.
    Unknown,
}

/// What became of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// A tunnel stands.
    Allow,
    /// Refused by a rule.
    Deny,
    /// Allowed, and the host could not be reached.
    Fail,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// Why an attempt was decided as it was, by the name that the record and refusals use.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
        pub enum Reason { $($(#[$doc])* $variant,)* }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)*];

            /// The reason as it is printed.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Reason::$variant => $text,)* }
            }
        }
    };
}

reasons! {
    /// On the list, and everything checked held.
    Listed = "listed",
    /// The model service of the configuration.
    Configured = "configured",
    // The request.
    /// No HTTP/1.1 CONNECT request.
    MalformedRequest = "malformed_request",
    /// Another method.
    MethodNotAllowed = "method_not_allowed",
    /// Another version of HTTP.
    HttpVersion = "http_version",
    /// A head over the limit.
    HeadTooLarge = "head_too_large",
    /// A head that did not come in time.
    HeadTimeout = "head_timeout",
    /// A target that is no host name and port.
    MalformedTarget = "malformed_target",
    /// An address where a name belongs.
    IpLiteral = "ip_literal",
    /// Another port than 443.
    PortNotAllowed = "port_not_allowed",
    /// A Host header that names another target, or none.
    HostMismatch = "host_mismatch",
    /// A body announced with CONNECT.
    BodyNotAllowed = "body_not_allowed",
    // The list.
    /// Not on the list.
    NotListed = "not_listed",
    // The name.
    /// The name does not exist, or has no address.
    NameNotFound = "name_not_found",
    /// The name servers failed, or one family did not answer.
    DnsIncomplete = "dns_incomplete",
    /// More addresses than anybody needs.
    TooManyAddresses = "too_many_addresses",
    // The addresses.
    /// RFC 1918, or unique local.
    AddressPrivate = "address_private",
    /// 127/8, ::1.
    AddressLoopback = "address_loopback",
    /// 169.254/16, fe80::/10: cloud metadata lives here.
    AddressLinkLocal = "address_link_local",
    /// 100.64/10.
    AddressShared = "address_shared",
    /// Documentation ranges.
    AddressDocumentation = "address_documentation",
    /// 198.18/15, 2001:2::/48.
    AddressBenchmarking = "address_benchmarking",
    /// Multicast, broadcast.
    AddressMulticast = "address_multicast",
    /// Any other range that is not globally routable.
    AddressReserved = "address_reserved",
    /// An address that carries an IPv4 address within, by NAT64, 6to4, Teredo or mapping.
    AddressEmbedded = "address_embedded",
    /// A public address that a cloud's own hosts answer at.
    AddressMetadata = "address_metadata",
    /// One of this host's own addresses.
    AddressOwn = "address_own",
    // Reaching it.
    /// Nobody accepted the connection.
    ConnectFailed = "connect_failed",
    /// Nobody accepted it in time.
    ConnectTimeout = "connect_timeout",
    // The first TLS message.
    /// No TLS at all.
    NotTls = "not_tls",
    /// A first message that is not well formed.
    HelloMalformed = "hello_malformed",
    /// Larger than any client's.
    HelloTooLarge = "hello_too_large",
    /// It did not come in time.
    HelloTimeout = "hello_timeout",
    /// A version before TLS 1.2.
    TlsVersion = "tls_version",
    /// No server name.
    SniMissing = "sni_missing",
    /// Another server name.
    SniMismatch = "sni_mismatch",
    /// A server name that is no host name.
    SniMalformed = "sni_malformed",
    /// Encrypted client hello, or the grease that looks like it.
    EchRequested = "ech_requested",
    /// Data before the handshake is over.
    EarlyData = "early_data",
    /// A protocol inside TLS that is for proving control of a name.
    AlpnNotAllowed = "alpn_not_allowed",
    /// A second hello, after a retry request, with another name.
    RetryMismatch = "retry_mismatch",
    // Limits and budgets.
    /// Too many connections to the endpoint at once.
    LimitEndpointConnections = "limit_endpoint_connections",
    /// Too many tunnels at once.
    LimitTunnelsOpen = "limit_tunnels_open",
    /// Too many tunnels in all.
    LimitTunnelsTotal = "limit_tunnels_total",
    /// Too many bytes sent.
    LimitTunnelSent = "limit_tunnel_sent",
    /// Too many bytes received.
    LimitTunnelReceived = "limit_tunnel_received",
    /// The run's budget does not reach that far.
    Budget = "budget",
    // Ends.
    /// Nothing moved for too long.
    Idle = "idle",
    /// The run ended.
    RunEnded = "run_ended",
}

impl Reason {
    /// The limit that this reason names.
    #[must_use]
    pub fn limit(self) -> Option<LimitName> {
        if self == Reason::LimitEndpointConnections {
            Some(LimitName::EndpointConnections)
        } else if self == Reason::LimitTunnelsOpen {
            Some(LimitName::TunnelsOpen)
        } else if self == Reason::LimitTunnelsTotal {
            Some(LimitName::TunnelsTotal)
        } else if self == Reason::LimitTunnelSent {
            Some(LimitName::TunnelSent)
        } else if self == Reason::LimitTunnelReceived {
            Some(LimitName::TunnelReceived)
        } else {
            None
        }
    }
}

/// One attempt, at the moment that it was decided or that its tunnel ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TunnelReport {
    /// Counts the attempts of the run from 1. A tunnel is reported twice: when it stands and when it has ended.
    pub attempt: u32,
    /// The host that was asked for, cut to [`MAX_REPORTED_NAME`] printable ASCII bytes; empty: none could be read.
    pub host: String,
    /// The port that was asked for; 0: none could be read.
    pub port: u16,
    /// Where the destination stands.
    pub class: Class,
    /// What became of it.
    pub decision: Decision,
    /// Why.
    pub reason: Reason,
    /// What the name resolved to, at most [`MAX_ADDRESSES`]; for a standing tunnel the one connected to comes first.
    pub addresses: Vec<IpAddr>,
    /// Bytes relayed outward so far.
    pub bytes_out: u64,
    /// Bytes relayed inward so far.
    pub bytes_in: u64,
    /// The attempt is over; no further report of it comes.
    pub ended: bool,
}

/// The most that a limit's dimension reached, for the record.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TunnelTotals {
    /// Most open at once.
    pub open: u64,
    /// In all.
    pub total: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Most connections at once.
    pub connections: u64,
}

/// Supervisor to proxy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToProxy {
    /// More allowed hosts of a run that is not open yet, at most [`MAX_HOSTS_A_MESSAGE`].
    Hosts {
        /// Which run.
        run: RunId,
        /// Whole names, compared exactly.
        hosts: Vec<HostName>,
    },
    /// Serve the run (one descriptor: its listener).
    Open {
        /// Which run.
        run: RunId,
        /// How many hosts were sent: a list that lost one is refused.
        hosts: u16,
        /// What holds.
        limits: TunnelLimits,
        /// What is asked for first.
        debits: Debits,
    },
    /// The answer to `WantDestination`.
    Destination {
        /// Which run.
        run: RunId,
        /// Which attempt.
        attempt: u32,
        /// It is debited, and may be looked up.
        granted: bool,
    },
    /// More bytes outward; 0: there are none left, and none will come.
    Lease {
        /// Which run.
        run: RunId,
        /// How many.
        bytes: u64,
    },
    /// Give back what of the run's lease is not used (only where `Debits::bytes_out`; answered by `Recalled`).
    Recall {
        /// Which run.
        run: RunId,
    },
    /// End everything of the run, report, and forget it.
    Close {
        /// Which run.
        run: RunId,
    },
}

/// Proxy to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromProxy {
    /// First word: confined and ready.
    Hello {
        /// The Landlock version in force; 0: none.
        landlock: u8,
    },
    /// The run is served.
    Opened {
        /// Which run.
        run: RunId,
    },
    /// An attempt was decided, or ended.
    Tunnel {
        /// Which run.
        run: RunId,
        /// The attempt.
        report: TunnelReport,
    },
    /// May this destination be debited? (Only where `Debits::destinations`; asked once a destination.)
    WantDestination {
        /// Which run.
        run: RunId,
        /// Which attempt waits.
        attempt: u32,
        /// The destination.
        host: HostName,
    },
    /// The lease is used up and bytes wait. (Only where `Debits::bytes_out`; one question at a time.)
    WantBytes {
        /// Which run.
        run: RunId,
    },
    /// The rest of a lease, which is none of the proxy's any more.
    Recalled {
        /// Which run.
        run: RunId,
        /// Leased bytes that never left.
        unused: u64,
    },
    /// The broker asked for a connection to its service.
    Dialled(DialReport),
    /// Everything of the run has ended; what it reached, and what of its last lease was not used.
    Closed {
        /// Which run.
        run: RunId,
        /// What it reached.
        totals: TunnelTotals,
        /// Leased bytes that never left.
        unused: u64,
    },
}

impl Message for ToProxy {
    const DIRECTION: &'static str = "supervisor to proxy";
    fn descriptors(&self) -> usize {
        match self {
            ToProxy::Open { .. } => 1,
            ToProxy::Hosts { .. }
            | ToProxy::Destination { .. }
            | ToProxy::Lease { .. }
            | ToProxy::Recall { .. }
            | ToProxy::Close { .. } => 0,
        }
    }
}

impl Message for FromProxy {
    const DIRECTION: &'static str = "proxy to supervisor";
    fn descriptors(&self) -> usize {
        match self {
            FromProxy::Hello { .. }
            | FromProxy::Opened { .. }
            | FromProxy::Tunnel { .. }
            | FromProxy::WantDestination { .. }
            | FromProxy::WantBytes { .. }
            | FromProxy::Recalled { .. }
            | FromProxy::Dialled(_)
            | FromProxy::Closed { .. } => 0,
        }
    }
}
