//! Which addresses the proxy may connect to: only those of the public internet (EGR-4), and those of the model service that
//! the operator has named (MOD-15).
//!
//! The table below is the whole policy. It is ours because the standard library's `is_global` is unstable and because
//! "globally reachable" in IANA's sense is not the question: an address is refused when anything but one public host
//! might answer there, a metadata service or a translator into a private network above all.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipc_proto::proxy::Reason;

use crate::nat64::Nat64Prefix;

/// The only port of allowed hosts (EGR-3).
pub const HTTPS_PORT: u16 = 443;

/// What an address is, by the name that the record carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// A unicast address of the public internet.
    Public,
    /// 0.0.0.0/8 and `::`: Linux connects 0.0.0.0 to itself.
    Unspecified,
    /// 127.0.0.0/8, `::1`.
    Loopback,
    /// RFC 1918, unique local (RFC 4193), site-local (RFC 3879).
    Private,
    /// Carrier-grade NAT (RFC 6598); Alibaba's metadata service and Tailscale live there.
    Cgnat,
    /// 169.254.0.0/16, fe80::/10: the metadata services of most clouds.
    LinkLocal,
    /// IETF protocol assignments: 192.0.0.0/24 (Oracle's metadata, DS-Lite), 2001::/23.
    ProtocolAssignment,
    /// Addresses for examples (RFC 5737, 3849, 9637).
    Documentation,
    /// 198.18.0.0/15, 2001:2::/48 (RFC 2544, 5180); "fake IP" resolvers answer from it.
    Benchmarking,
    /// DNS sinks for private reverse zones (RFC 7534, 7535).
    As112,
    /// Automatic multicast tunnelling (RFC 7450).
    Amt,
    /// 6to4: its relays, and what carries an IPv4 address in 2002::/16 (RFC 7526).
    SixToFour,
    /// Teredo (RFC 4380).
    Teredo,
    /// 224.0.0.0/4, ff00::/8.
    Multicast,
    /// 240.0.0.0/4 with the limited broadcast address.
    Reserved,
    /// 168.63.129.16: a public address on which every Azure machine reaches its platform.
    WireServer,
    /// `::a.b.c.d` (RFC 4291, deprecated).
    V4Compatible,
    /// `::ffff:a.b.c.d`: no name server has a reason to say so.
    V4Mapped,
    /// `::ffff:0:a.b.c.d` (RFC 7915).
    V4Translated,
    /// NAT64, the well-known prefix, the local ones, and the operator's own where it was found.
    Nat64,
    /// 100::/64, 100:0:0:1::/64 (RFC 6666, 9780).
    Discard,
    /// Segment routing identifiers (RFC 9602).
    SegmentRouting,
    /// IPv6 outside 2000::/3, which IANA has given to nobody.
    Unallocated,
    /// One of this host's own, or the broadcast address of a network that it is in.
    Own,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 24] = [
        Class::Public,
        Class::Unspecified,
        Class::Loopback,
        Class::Private,
        Class::Cgnat,
        Class::LinkLocal,
        Class::ProtocolAssignment,
        Class::Documentation,
        Class::Benchmarking,
        Class::As112,
        Class::Amt,
        Class::SixToFour,
        Class::Teredo,
        Class::Multicast,
        Class::Reserved,
        Class::WireServer,
        Class::V4Compatible,
        Class::V4Mapped,
        Class::V4Translated,
        Class::Nat64,
        Class::Discard,
        Class::SegmentRouting,
        Class::Unallocated,
        Class::Own,
    ];

    /// The name in codes and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Public => "public",
            Class::Unspecified => "unspecified",
            Class::Loopback => "loopback",
            Class::Private => "private",
            Class::Cgnat => "cgnat",
            Class::LinkLocal => "link_local",
            Class::ProtocolAssignment => "protocol_assignment",
            Class::Documentation => "documentation",
            Class::Benchmarking => "benchmarking",
            Class::As112 => "as112",
            Class::Amt => "amt",
            Class::SixToFour => "6to4",
            Class::Teredo => "teredo",
            Class::Multicast => "multicast",
            Class::Reserved => "reserved",
            Class::WireServer => "azure_wireserver",
            Class::V4Compatible => "v4_compatible",
            Class::V4Mapped => "v4_mapped",
            Class::V4Translated => "v4_translated",
            Class::Nat64 => "nat64",
            Class::Discard => "discard",
            Class::SegmentRouting => "segment_routing",
            Class::Unallocated => "unallocated",
            Class::Own => "own",
        }
    }

    /// The reason that refuses it; none: it is not refused.
    #[must_use]
    pub fn reason(self) -> Option<Reason> {
        match self {
            Class::Public => None,
            Class::Loopback => Some(Reason::AddressLoopback),
            Class::Private => Some(Reason::AddressPrivate),
            Class::Cgnat => Some(Reason::AddressShared),
            Class::LinkLocal => Some(Reason::AddressLinkLocal),
            Class::Documentation => Some(Reason::AddressDocumentation),
            Class::Benchmarking => Some(Reason::AddressBenchmarking),
            Class::Multicast => Some(Reason::AddressMulticast),
            Class::WireServer => Some(Reason::AddressMetadata),
            Class::Own => Some(Reason::AddressOwn),
            Class::SixToFour
            | Class::Teredo
            | Class::V4Compatible
            | Class::V4Mapped
            | Class::V4Translated
            | Class::Nat64 => Some(Reason::AddressEmbedded),
            Class::Unspecified
            | Class::ProtocolAssignment
            | Class::As112
            | Class::Amt
            | Class::Reserved
            | Class::Discard
            | Class::SegmentRouting
            | Class::Unallocated => Some(Reason::AddressReserved),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

struct V4Range(Ipv4Addr, u32, Class);

/// IPv4 that is refused; the first row that fits speaks.
const V4: &[V4Range] = &[
    V4Range(Ipv4Addr::new(0, 0, 0, 0), 8, Class::Unspecified),
    V4Range(Ipv4Addr::new(10, 0, 0, 0), 8, Class::Private),
    V4Range(Ipv4Addr::new(100, 64, 0, 0), 10, Class::Cgnat),
    V4Range(Ipv4Addr::new(127, 0, 0, 0), 8, Class::Loopback),
    V4Range(Ipv4Addr::new(168, 63, 129, 16), 32, Class::WireServer),
    V4Range(Ipv4Addr::new(169, 254, 0, 0), 16, Class::LinkLocal),
    V4Range(Ipv4Addr::new(172, 16, 0, 0), 12, Class::Private),
    V4Range(Ipv4Addr::new(192, 0, 0, 0), 24, Class::ProtocolAssignment),
    V4Range(Ipv4Addr::new(192, 0, 2, 0), 24, Class::Documentation),
    V4Range(Ipv4Addr::new(192, 31, 196, 0), 24, Class::As112),
    V4Range(Ipv4Addr::new(192, 52, 193, 0), 24, Class::Amt),
    V4Range(Ipv4Addr::new(192, 88, 99, 0), 24, Class::SixToFour),
    V4Range(Ipv4Addr::new(192, 168, 0, 0), 16, Class::Private),
    V4Range(Ipv4Addr::new(192, 175, 48, 0), 24, Class::As112),
    V4Range(Ipv4Addr::new(198, 18, 0, 0), 15, Class::Benchmarking),
    V4Range(Ipv4Addr::new(198, 51, 100, 0), 24, Class::Documentation),
    V4Range(Ipv4Addr::new(203, 0, 113, 0), 24, Class::Documentation),
    V4Range(Ipv4Addr::new(224, 0, 0, 0), 4, Class::Multicast),
    V4Range(Ipv4Addr::new(240, 0, 0, 0), 4, Class::Reserved),
];

/// Where an IPv6 range carries an IPv4 address: its first bit.
#[derive(Clone, Copy)]
enum Embeds {
    Nothing,
    V4At(u32),
}

struct V6Range(Ipv6Addr, u32, Class, Embeds);

const fn v6(segments: [u16; 8]) -> Ipv6Addr {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Addr::new(a, b, c, d, e, f, g, h)
}

/// IPv6 that is refused; the first row that fits speaks. What fits none and lies outside 2000::/3 is refused too.
const V6: &[V6Range] = &[
    V6Range(v6([0, 0, 0, 0, 0, 0, 0, 0]), 128, Class::Unspecified, Embeds::Nothing),
    V6Range(v6([0, 0, 0, 0, 0, 0, 0, 1]), 128, Class::Loopback, Embeds::Nothing),
    V6Range(v6([0, 0, 0, 0, 0, 0, 0, 0]), 96, Class::V4Compatible, Embeds::V4At(96)),
    V6Range(v6([0, 0, 0, 0, 0, 0xffff, 0, 0]), 96, Class::V4Mapped, Embeds::V4At(96)),
    V6Range(v6([0, 0, 0, 0, 0xffff, 0, 0, 0]), 96, Class::V4Translated, Embeds::V4At(96)),
    V6Range(v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0]), 96, Class::Nat64, Embeds::V4At(96)),
    // RFC 8215: the length of the prefix in use, and so the place of the IPv4 address, is not known.
    V6Range(v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0]), 48, Class::Nat64, Embeds::Nothing),
    V6Range(v6([0x100, 0, 0, 0, 0, 0, 0, 0]), 64, Class::Discard, Embeds::Nothing),
    V6Range(v6([0x100, 0, 0, 1, 0, 0, 0, 0]), 64, Class::Discard, Embeds::Nothing),
    V6Range(v6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 32, Class::Teredo, Embeds::Nothing),
    V6Range(v6([0x2001, 2, 0, 0, 0, 0, 0, 0]), 48, Class::Benchmarking, Embeds::Nothing),
    V6Range(v6([0x2001, 3, 0, 0, 0, 0, 0, 0]), 32, Class::Amt, Embeds::Nothing),
    V6Range(v6([0x2001, 4, 0x112, 0, 0, 0, 0, 0]), 48, Class::As112, Embeds::Nothing),
    // The rest of the block: ORCHID, DRIP, anycast for PCP, TURN and DNS-SD.
    V6Range(v6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 23, Class::ProtocolAssignment, Embeds::Nothing),
    V6Range(v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0]), 32, Class::Documentation, Embeds::Nothing),
    V6Range(v6([0x2002, 0, 0, 0, 0, 0, 0, 0]), 16, Class::SixToFour, Embeds::V4At(16)),
    V6Range(v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0]), 48, Class::As112, Embeds::Nothing),
    V6Range(v6([0x3fff, 0, 0, 0, 0, 0, 0, 0]), 20, Class::Documentation, Embeds::Nothing),
    V6Range(v6([0x5f00, 0, 0, 0, 0, 0, 0, 0]), 16, Class::SegmentRouting, Embeds::Nothing),
    V6Range(v6([0xfc00, 0, 0, 0, 0, 0, 0, 0]), 7, Class::Private, Embeds::Nothing),
    V6Range(v6([0xfe80, 0, 0, 0, 0, 0, 0, 0]), 10, Class::LinkLocal, Embeds::Nothing),
    V6Range(v6([0xfec0, 0, 0, 0, 0, 0, 0, 0]), 10, Class::Private, Embeds::Nothing),
    V6Range(v6([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8, Class::Multicast, Embeds::Nothing),
];

/// Global unicast (RFC 4291, section 2.4): all that IANA has given out of IPv6.
const GLOBAL_UNICAST: (Ipv6Addr, u32) = (v6([0x2000, 0, 0, 0, 0, 0, 0, 0]), 3);

/// What an address is by its bits alone. IPv4 inside IPv6 counts as that IPv4 address, and where that one is public
/// the carrier is named: neither is ever connected to.
#[must_use]
pub fn classify(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> Class {
    let inside = |net: Ipv4Addr, bits: u32| (net.to_bits() ^ address.to_bits()).leading_zeros() >= bits;
    V4.iter().find(|V4Range(net, bits, _)| inside(*net, *bits)).map_or(Class::Public, |row| row.2)
}

fn classify_v6(address: Ipv6Addr) -> Class {
    let Some(V6Range(_, _, class, embeds)) = V6.iter().find(|row| in_prefix(address, row.0, row.1)) else {
        let (net, bits) = GLOBAL_UNICAST;
        return if in_prefix(address, net, bits) { Class::Public } else { Class::Unallocated };
    };
    match embeds {
        Embeds::Nothing => *class,
        Embeds::V4At(first) => {
            let inner = classify_v4(v4_at(address, *first));
            if inner == Class::Public { *class } else { inner }
        }
    }
}

/// Whether an address lies in a prefix.
pub(crate) fn in_prefix(address: Ipv6Addr, net: Ipv6Addr, bits: u32) -> bool {
    (net.to_bits() ^ address.to_bits()).leading_zeros() >= bits
}

/// The 32 bits from bit `first` on.
fn v4_at(address: Ipv6Addr, first: u32) -> Ipv4Addr {
    let shifted = address.to_bits() << first;
    Ipv4Addr::from_bits(u32::try_from(shifted >> 96).unwrap_or(0))
}

/// Addresses in ranges of other kinds that a cloud's metadata service answers at: Alibaba's, AWS's and Google's (as of
/// 2026-11). The tables refuse them as what their range is; where such a range is admitted they are not.
const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254])),
    IpAddr::V6(v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254])),
];

/// An address that was verified in this request, with the port that it was verified for. There is no other way to make
/// one, and [`crate::dial`] takes nothing else: what was not verified cannot be connected to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VerifiedAddr(SocketAddr);

impl VerifiedAddr {
    /// Verifies one address of an allowed host; `own` answers whether it is this host's.
    ///
    /// # Errors
    /// What it is instead of public.
    pub fn public(
        address: IpAddr,
        nat64: &[Nat64Prefix],
        own: impl FnOnce(IpAddr) -> bool,
    ) -> Result<VerifiedAddr, Class> {
        let class = classify(address);
        if class != Class::Public {
            return Err(class);
        }
        if is_translated(address, nat64) {
            return Err(Class::Nat64);
        }
        if own(address) { Err(Class::Own) } else { Ok(VerifiedAddr(SocketAddr::new(address, HTTPS_PORT))) }
    }

    /// Verifies one address of the model service, which the operator has named. With `private` it may lie in the
    /// operator's own networks, on this very host too, and never where a cloud's metadata or a translator answers, nor on
    /// loopback: a name server has no say in what listens there.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn service(
        address: IpAddr,
        port: u16,
        private: bool,
        nat64: &[Nat64Prefix],
        own: impl FnOnce(IpAddr) -> bool,
    ) -> Result<VerifiedAddr, Reason> {
        let class = classify(address);
        let admitted = match class {
            Class::Public => true,
            Class::Private | Class::Cgnat => private,
            Class::Unspecified
            | Class::Loopback
            | Class::LinkLocal
            | Class::ProtocolAssignment
            | Class::Documentation
            | Class::Benchmarking
            | Class::As112
            | Class::Amt
            | Class::SixToFour
            | Class::Teredo
            | Class::Multicast
            | Class::Reserved
            | Class::WireServer
            | Class::V4Compatible
            | Class::V4Mapped
            | Class::V4Translated
            | Class::Nat64
            | Class::Discard
            | Class::SegmentRouting
            | Class::Unallocated
            | Class::Own => false,
        };
        if !admitted {
            return Err(class.reason().unwrap_or(Reason::AddressReserved));
        }
        if METADATA.contains(&address) {
            return Err(Reason::AddressMetadata);
        }
        // 10.0.0.1 in the clothes of IPv6 is not what the operator's name server was asked for.
        if is_embedded(address) || is_translated(address, nat64) {
            return Err(Reason::AddressEmbedded);
        }
        if !private && own(address) {
            return Err(Reason::AddressOwn);
        }
        Ok(VerifiedAddr(SocketAddr::new(address, port)))
    }

    /// An address of this host's loopback, for a model service that the operator has put there.
    ///
    /// # Errors
    /// What it is instead.
    pub fn loopback(address: IpAddr, port: u16) -> Result<VerifiedAddr, Class> {
        if address.is_loopback() {
            Ok(VerifiedAddr(SocketAddr::new(address, port)))
        } else {
            Err(classify(address))
        }
    }

    /// The address.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        self.0.ip()
    }

    /// The address with its port.
    #[must_use]
    pub fn socket(self) -> SocketAddr {
        self.0
    }
}

/// Whether an address carries an IPv4 address within, by the table.
fn is_embedded(address: IpAddr) -> bool {
    let IpAddr::V6(address) = address else { return false };
    V6.iter().find(|row| in_prefix(address, row.0, row.1)).is_some_and(|row| matches!(row.3, Embeds::V4At(_)))
}

fn is_translated(address: IpAddr, nat64: &[Nat64Prefix]) -> bool {
    let IpAddr::V6(address) = address else { return false };
    nat64.iter().any(|prefix| prefix.contains(address))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// EGR-4: every row of the table at its first and last address, and the addresses that attackers name.
    const REFUSED: &[(&str, Class)] = &[
        ("0.0.0.0", Class::Unspecified),
        ("0.255.255.255", Class::Unspecified),
        ("10.0.0.0", Class::Private),
        ("10.255.255.255", Class::Private),
        ("100.64.0.0", Class::Cgnat),
        ("100.100.100.200", Class::Cgnat),
        ("100.127.255.255", Class::Cgnat),
        ("127.0.0.1", Class::Loopback),
        ("127.0.0.53", Class::Loopback),
        ("127.255.255.255", Class::Loopback),
        ("168.63.129.16", Class::WireServer),
        ("169.254.0.0", Class::LinkLocal),
        ("169.254.169.254", Class::LinkLocal),
        ("169.254.170.2", Class::LinkLocal),
        ("169.254.255.255", Class::LinkLocal),
        ("172.16.0.0", Class::Private),
        ("172.31.255.255", Class::Private),
        ("192.0.0.0", Class::ProtocolAssignment),
        ("192.0.0.192", Class::ProtocolAssignment),
        ("192.0.0.255", Class::ProtocolAssignment),
        ("192.0.2.1", Class::Documentation),
        ("192.31.196.1", Class::As112),
        ("192.52.193.1", Class::Amt),
        ("192.88.99.1", Class::SixToFour),
        ("192.168.0.0", Class::Private),
        ("192.168.255.255", Class::Private),
        ("192.175.48.6", Class::As112),
        ("198.18.0.0", Class::Benchmarking),
        ("198.19.255.255", Class::Benchmarking),
        ("198.51.100.9", Class::Documentation),
        ("203.0.113.9", Class::Documentation),
        ("224.0.0.1", Class::Multicast),
        ("239.255.255.255", Class::Multicast),
        ("240.0.0.0", Class::Reserved),
        ("255.255.255.255", Class::Reserved),
        ("::", Class::Unspecified),
        ("::1", Class::Loopback),
        ("::7f00:1", Class::Loopback),
        ("::8.8.8.8", Class::V4Compatible),
        ("::ffff:127.0.0.1", Class::Loopback),
        ("::ffff:169.254.169.254", Class::LinkLocal),
        ("::ffff:10.1.2.3", Class::Private),
        ("::ffff:8.8.8.8", Class::V4Mapped),
        ("::ffff:0:10.1.2.3", Class::Private),
        ("::ffff:0:8.8.8.8", Class::V4Translated),
        ("64:ff9b::10.0.0.1", Class::Private),
        ("64:ff9b::a9fe:a9fe", Class::LinkLocal),
        ("64:ff9b::8.8.8.8", Class::Nat64),
        ("64:ff9b:1::1", Class::Nat64),
        ("64:ff9b:1:ffff::808:808", Class::Nat64),
        ("100::1", Class::Discard),
        ("100:0:0:1::1", Class::Discard),
        ("2001::1", Class::Teredo),
        ("2001:0:ffff::1", Class::Teredo),
        ("2001:1::1", Class::ProtocolAssignment),
        ("2001:2::1", Class::Benchmarking),
        ("2001:3::1", Class::Amt),
        ("2001:4:112::1", Class::As112),
        ("2001:10::1", Class::ProtocolAssignment),
        ("2001:20::1", Class::ProtocolAssignment),
        ("2001:30::1", Class::ProtocolAssignment),
        ("2001:1ff:ffff::1", Class::ProtocolAssignment),
        ("2001:db8::1", Class::Documentation),
        ("2002:7f00:1::", Class::Loopback),
        ("2002:a00:1::1", Class::Private),
        ("2002:808:808::1", Class::SixToFour),
        ("2620:4f:8000::1", Class::As112),
        ("3fff::1", Class::Documentation),
        ("3fff:fff:ffff::1", Class::Documentation),
        ("5f00::1", Class::SegmentRouting),
        ("fc00::1", Class::Private),
        ("fd00:ec2::254", Class::Private),
        ("fd20:ce::254", Class::Private),
        ("fe80::1", Class::LinkLocal),
        ("febf::1", Class::LinkLocal),
        ("fec0::1", Class::Private),
        ("feff::1", Class::Private),
        ("ff02::1", Class::Multicast),
        ("4000::1", Class::Unallocated),
        ("8000::1", Class::Unallocated),
        ("200::1", Class::Unallocated),
        ("1fff:ffff::1", Class::Unallocated),
        ("fe00::1", Class::Unallocated),
    ];

    /// The neighbours of every range, and hosts that people use.
    const ALLOWED: &[&str] = &[
        "1.0.0.0",
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
        "192.31.195.255",
        "192.88.98.255",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "203.0.112.255",
        "223.255.255.255",
        "2000::1",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2001:db7::1",
        "2001:db9::1",
        "2003::1",
        "2606:4700::1111",
        "2620:fe::fe",
        "2a00:1450:4001::1",
        "3ffe::1",
    ];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// EGR-4
    #[test]
    fn each_refused_row_has_its_class() {
        for (text, class) in REFUSED {
            assert_eq!(classify(ip(text)), *class, "{text}");
            assert_eq!(VerifiedAddr::public(ip(text), &[], |_| false), Err(*class), "{text}");
        }
    }

    /// EGR-4
    #[test]
    fn public_addresses_pass() {
        for text in ALLOWED {
            assert_eq!(classify(ip(text)), Class::Public, "{text}");
            assert_eq!(VerifiedAddr::public(ip(text), &[], |_| false).map(VerifiedAddr::ip), Ok(ip(text)));
        }
    }

    /// EGR-7: each refused class has a reason for the record, and only the public one has none.
    #[test]
    fn every_class_but_public_has_a_reason() {
        for class in Class::ALL {
            assert_eq!(class.reason().is_none(), class == Class::Public, "{class}");
        }
    }

    /// EGR-4: the host's own address is refused though it is public.
    #[test]
    fn an_own_address_is_refused() {
        assert_eq!(VerifiedAddr::public(ip("8.8.8.8"), &[], |_| true), Err(Class::Own));
    }

    /// EGR-4: a translator's prefix looks public and is not.
    #[test]
    fn an_operators_nat64_address_is_refused() {
        let prefix = Nat64Prefix::from_answer("2a00:db8:122:344::192.0.0.170".parse().unwrap());
        let verify = |text: &str| VerifiedAddr::public(ip(text), &[prefix], |_| false);
        assert_eq!(verify("2a00:db8:122:344::10.0.0.1"), Err(Class::Nat64));
        assert!(verify("2a00:db8:122:345::10.0.0.1").is_ok());
        assert!(verify("8.8.8.8").is_ok());
    }

    /// MOD-15: with `api_base_private` the operator's own networks and addresses are admitted, at the service's port; without
    /// it nothing but public ones.
    #[test]
    fn a_private_service_may_have_a_private_address() {
        let service = |text: &str, private| VerifiedAddr::service(ip(text), 8443, private, &[], |_| true);
        for text in
            ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd00::7", "8.8.8.8", "2606:4700::1"]
        {
            assert_eq!(
                service(text, true).map(VerifiedAddr::socket),
                Ok(SocketAddr::new(ip(text), 8443)),
                "{text}"
            );
        }
        for (text, reason) in [
            ("10.1.2.3", Reason::AddressPrivate),
            ("100.64.0.1", Reason::AddressShared),
            ("fd00::7", Reason::AddressPrivate),
            ("8.8.8.8", Reason::AddressOwn),
        ] {
            assert_eq!(service(text, false), Err(reason), "{text}");
        }
    }

    /// MOD-15: what is never admitted: metadata, also in private ranges, link-local, multicast, loopback by a name, and
    /// IPv4 inside IPv6 even where that IPv4 address would be admitted.
    #[test]
    fn a_private_service_is_never_at_these() {
        let prefix = Nat64Prefix::from_answer("fd00:64::192.0.0.170".parse().unwrap());
        let service = |text: &str| VerifiedAddr::service(ip(text), 443, true, &[prefix], |_| false);
        for text in ["169.254.169.254", "fe80::1"] {
            assert_eq!(service(text), Err(Reason::AddressLinkLocal), "{text}");
        }
        for text in ["100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "168.63.129.16"] {
            assert_eq!(service(text), Err(Reason::AddressMetadata), "{text}");
        }
        for text in [
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::1",
            "::ffff:8.8.8.8",
            "fd00:64::10.0.0.1",
            "64:ff9b:1::1",
        ] {
            assert_eq!(service(text), Err(Reason::AddressEmbedded), "{text}");
        }
        for text in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(service(text), Err(Reason::AddressLoopback), "{text}");
        }
        assert_eq!(service("224.0.0.1"), Err(Reason::AddressMulticast));
        assert_eq!(service("0.0.0.0"), Err(Reason::AddressReserved));
        assert!(service("fd00:65::1").is_ok());
    }

    /// MOD-15: loopback is for the operator's own word, and nothing else passes for it.
    #[test]
    fn loopback_is_only_loopback() {
        for text in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert_eq!(VerifiedAddr::loopback(ip(text), 11434).map(VerifiedAddr::ip), Ok(ip(text)));
        }
        for text in ["10.0.0.1", "8.8.8.8", "0.0.0.0", "::", "::ffff:127.0.0.1"] {
            assert!(VerifiedAddr::loopback(ip(text), 80).is_err(), "{text}");
        }
    }

    /// Every range that a row covers is reachable: no row stands behind one that hides it, and all but the three that
    /// only `verify` or the default give are in a table.
    #[test]
    fn no_class_is_dead() {
        let seen: std::collections::HashSet<Class> = REFUSED.iter().map(|row| row.1).collect();
        for class in Class::ALL {
            assert!(seen.contains(&class) || matches!(class, Class::Public | Class::Own), "{class}");
        }
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::HashSet<&str> = Class::ALL.iter().map(|class| class.name()).collect();
        assert_eq!(names.len(), Class::ALL.len());
    }

    proptest! {
        /// EGR-4: IPv4 in any IPv6 clothing is never public.
        #[test]
        fn embedded_v4_is_never_public(bits: u32, form in 0usize..5) {
            let v4 = u128::from(bits);
            let address = match form {
                0 => v4,
                1 => (0xffff << 32) | v4,
                2 => (0xffff << 48) | v4,
                3 => (0x0064_ff9b_u128 << 96) | v4,
                _ => (0x2002_u128 << 112) | (v4 << 80) | 1,
            };
            let class = classify(IpAddr::V6(Ipv6Addr::from_bits(address)));
            prop_assert_ne!(class, Class::Public);
            let inner = classify_v4(Ipv4Addr::from_bits(bits));
            // `::` and `::1` themselves are named for what they are.
            if inner != Class::Public && address > 1 {
                prop_assert_eq!(class, inner);
            }
        }

        /// EGR-4: nothing outside 2000::/3 is public.
        #[test]
        fn only_global_unicast_is_public(bits: u128) {
            if bits >> 125 != 1 {
                prop_assert_ne!(classify(IpAddr::V6(Ipv6Addr::from_bits(bits))), Class::Public);
            }
        }

        /// The standard library's stable predicates are a second opinion.
        #[test]
        fn std_agrees(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let special = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
                || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified();
            if special {
                prop_assert_ne!(classify_v4(v4), Class::Public);
            }
        }
    }
}
