//! The operator's own NAT64 prefix, found as RFC 7050 describes.
//!
//! A network may translate any /32 to /96 of its global space into IPv4. Such an address looks public, and behind it
//! can be 10.0.0.1: nothing but asking shows it. `ipv4only.arpa` has two fixed IPv4 addresses and no IPv6 one, so an
//! AAAA answer for it comes from the translator's DNS64 and has the prefix in it.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::address::in_prefix;

/// The name to ask for (RFC 7050, section 3).
pub const WELL_KNOWN_NAME: &str = "ipv4only.arpa";
/// Its addresses (RFC 7050, section 2.2).
const WELL_KNOWN_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
/// The lengths that a prefix can have (RFC 6052, section 2.2), longest first: one address can fit several by chance.
const LENGTHS: [u32; 6] = [96, 64, 56, 48, 40, 32];

/// A prefix that a translator owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nat64Prefix {
    net: Ipv6Addr,
    bits: u32,
}

impl Nat64Prefix {
    /// The prefix in one AAAA answer for [`WELL_KNOWN_NAME`]. An answer that embeds neither address at any place is
    /// no translation as the RFC knows it: its whole /32 is taken, since something that rewrites this name rewrites
    /// others, and the shortest prefix contains all that it might use.
    #[must_use]
    pub fn from_answer(address: Ipv6Addr) -> Nat64Prefix {
        let embeds = |bits: u32| WELL_KNOWN_ADDRESSES.contains(&embedded(address, bits));
        let bits = LENGTHS.into_iter().find(|bits| embeds(*bits)).unwrap_or(32);
        Nat64Prefix { net: address, bits }
    }

    /// Whether an address is translated.
    #[must_use]
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        in_prefix(address, self.net, self.bits)
    }
}

/// The IPv4 address behind a prefix (RFC 6052, section 2.2): it follows the prefix and leaves out bits 64 to 71.
fn embedded(address: Ipv6Addr, prefix_bits: u32) -> Ipv4Addr {
    let octets = address.octets();
    let first = (prefix_bits / 8) as usize;
    let mut v4 = [0u8; 4];
    let after_prefix =
        octets.iter().enumerate().skip(first).filter(|(place, _)| prefix_bits == 96 || *place != 8);
    for (to, (_, from)) in v4.iter_mut().zip(after_prefix) {
        *to = *from;
    }
    Ipv4Addr::from(v4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EGR-4: the examples of RFC 6052, section 2.4, with the well-known address in them.
    #[test]
    fn each_prefix_length_is_found() {
        for (answer, bits, inside, outside) in [
            ("2a00:db8:c000:00aa::", 32, "2a00:db8:a00:1::", "2a00:db9:a00:1::"),
            ("2a00:db8:1c0:0:aa::", 40, "2a00:db8:10a:0:1::", "2a00:db8:20a:0:1::"),
            ("2a00:db8:122:c000:0:aa00::", 48, "2a00:db8:122:a00::1", "2a00:db8:123::1"),
            ("2a00:db8:122:3c0:0:aa::", 56, "2a00:db8:122:30a::1", "2a00:db8:122:40a::1"),
            ("2a00:db8:122:344:c0:0:aa00::", 64, "2a00:db8:122:344:a::", "2a00:db8:122:345::"),
            ("2a00:db8:122:344::192.0.0.170", 96, "2a00:db8:122:344::10.0.0.1", "2a00:db8:122:344:1::"),
            ("2a00:db8:122:344::192.0.0.171", 96, "2a00:db8:122:344::10.0.0.1", "2a00:db8:122:344:1::"),
        ] {
            let prefix = Nat64Prefix::from_answer(answer.parse().unwrap());
            assert_eq!(prefix.bits, bits, "{answer}");
            assert!(prefix.contains(inside.parse().unwrap()), "{answer} {inside}");
            assert!(!prefix.contains(outside.parse().unwrap()), "{answer} {outside}");
        }
    }

    #[test]
    fn an_answer_without_the_address_takes_the_shortest_prefix() {
        let prefix = Nat64Prefix::from_answer("2a00:db8::1".parse().unwrap());
        assert!(prefix.contains("2a00:db8:ffff::1".parse().unwrap()));
        assert!(!prefix.contains("2a00:db9::1".parse().unwrap()));
    }
}
