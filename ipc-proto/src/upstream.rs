//! The model service that a broker speaks to: whose address is `api_base` (MOD-12, MOD-15).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::host::{MAX_LABEL, MAX_NAME};

/// The longest address, in bytes.
pub const MAX_API_BASE: usize = 512;
/// The longest path of an address, in bytes.
const MAX_PATH: usize = 200;

/// Where a model service is.
///
/// Unlike an allowed host ([`crate::HostName`]) it may be a model service's name, an address, a single label or a port of
/// the operator's choice: it comes from the operator, and no run can name it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Upstream {
    scheme: Scheme,
    host: UpstreamHost,
    port: u16,
    path: String,
    private: bool,
}

/// How it is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Scheme {
    /// TLS, verified.
    Https,
    /// Plain, on this host's loopback only.
    Http,
}

/// Who it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum UpstreamHost {
    /// A name, in lower case.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// Why text is no address of a model service.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum UpstreamError {
    /// `api.example.com`, `ftp://...`.
    #[error("no https:// address; write it as https://api.example.com/v1")]
    Scheme,
    /// `http://api.example.com`.
    #[error(
        "plain http to another host would show every task and key to the network; only a loopback address may use it"
    )]
    PlainHttp,
    /// `https://user:secret@...`.
    #[error("a user name or password in the address; store the key with `anet credential set NAME`")]
    UserInfo,
    /// A query or fragment.
    #[error("a query or fragment in the address; give scheme, host, port and path only")]
    Query,
    /// No host name and no address.
    #[error("no valid host name; write it in lower case, with letters, digits, hyphens and dots")]
    Host,
    /// Port 0, or no number.
    #[error("no valid port (1 to 65535)")]
    Port,
    /// `..`, escapes, doubled slashes.
    #[error("a path with anything but letters, digits and - . _ ~ between single slashes")]
    Path,
    /// Over [`MAX_API_BASE`].
    #[error("longer than 512 bytes")]
    TooLong,
}

impl Upstream {
    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &UpstreamHost {
        &self.host
    }

    /// The TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What stands before `/messages` and the like: `/v1` where the address names none.
    #[must_use]
    pub fn prefix(&self) -> &str {
        if self.path.is_empty() { "/v1" } else { &self.path }
    }

    /// Whether the service may have a private address (`api_base_private`).
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.private
    }

    /// Lets the service have a private address.
    #[must_use]
    pub fn allow_private(mut self, allowed: bool) -> Upstream {
        self.private = allowed;
        self
    }

    /// Whether it is on this host's loopback: no key is needed then.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            UpstreamHost::Name(name) => name == "localhost",
            UpstreamHost::Address(address) => address.is_loopback(),
        }
    }

    /// The value of a request's Host header: no port where it is the scheme's own.
    #[must_use]
    pub fn authority(&self) -> String {
        let usual = match self.scheme {
            Scheme::Https => 443,
            Scheme::Http => 80,
        };
        if self.port == usual { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }
}

impl fmt::Display for UpstreamHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpstreamHost::Name(name) => f.write_str(name),
            UpstreamHost::Address(IpAddr::V4(address)) => address.fmt(f),
            UpstreamHost::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Https => "https",
            Scheme::Http => "http",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        if text.len() > MAX_API_BASE {
            return Err(UpstreamError::TooLong);
        }
        let (scheme, rest) = if let Some(rest) = text.strip_prefix("https://") {
            (Scheme::Https, rest)
        } else if let Some(rest) = text.strip_prefix("http://") {
            (Scheme::Http, rest)
        } else {
            return Err(UpstreamError::Scheme);
        };
        if rest.contains(['?', '#']) {
            return Err(UpstreamError::Query);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(UpstreamError::UserInfo);
        }
        let (host, port) = host_and_port(authority)?;
        let port = match (port, scheme) {
            (Some(port), _) => port,
            (None, Scheme::Https) => 443,
            (None, Scheme::Http) => 80,
        };
        let path = path.strip_suffix('/').unwrap_or(path).to_owned();
        check_path(&path)?;
        let upstream = Upstream { scheme, host, port, path, private: false };
        if scheme == Scheme::Http && !upstream.is_loopback() {
            return Err(UpstreamError::PlainHttp);
        }
        Ok(upstream)
    }
}

fn host_and_port(authority: &str) -> Result<(UpstreamHost, Option<u16>), UpstreamError> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or(UpstreamError::Host)?;
        let address: Ipv6Addr = address.parse().map_err(|_| UpstreamError::Host)?;
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None if rest.is_empty() => None,
            None => return Err(UpstreamError::Port),
        };
        return Ok((UpstreamHost::Address(IpAddr::V6(address)), port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(parse_port(port)?)),
        None => (authority, None),
    };
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok((UpstreamHost::Address(IpAddr::V4(address)), port));
    }
    let is_name = !host.is_empty()
        && host.len() <= MAX_NAME
        && host.split('.').all(is_label)
        // WHATWG URL, section 3.5: a last label that is a number makes the whole an IPv4 address, however spelt.
        && host.rsplit('.').next().is_some_and(|last| {
            !last.bytes().all(|byte| byte.is_ascii_digit()) && !last.starts_with("0x")
        });
    if is_name { Ok((UpstreamHost::Name(host.to_owned()), port)) } else { Err(UpstreamError::Host) }
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= MAX_LABEL
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn parse_port(text: &str) -> Result<u16, UpstreamError> {
    let digits = text.len() <= 5 && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0).ok_or(UpstreamError::Port)
}

/// Nothing that two programs could read differently.
fn check_path(path: &str) -> Result<(), UpstreamError> {
    let is_segment = |segment: &str| {
        !segment.is_empty()
            && segment != "."
            && segment != ".."
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
    };
    let well_formed =
        path.len() <= MAX_PATH && path.strip_prefix('/').is_none_or(|rest| rest.split('/').all(is_segment));
    if well_formed { Ok(()) } else { Err(UpstreamError::Path) }
}

/// As it travels: its text, read anew by the receiver.
#[derive(Serialize, Deserialize)]
struct Parts {
    text: String,
    private: bool,
}

impl From<Upstream> for Parts {
    fn from(upstream: Upstream) -> Parts {
        Parts { text: upstream.to_string(), private: upstream.private }
    }
}

impl TryFrom<Parts> for Upstream {
    type Error = UpstreamError;

    fn try_from(parts: Parts) -> Result<Upstream, UpstreamError> {
        Ok(parts.text.parse::<Upstream>()?.allow_private(parts.private))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MOD-15: https, or plain http to this host's loopback; everything else is refused with its reason.
    #[test]
    fn addresses_are_read_strictly() {
        for (text, shown, prefix, authority) in [
            ("https://api.example.com", "https://api.example.com", "/v1", "api.example.com"),
            ("https://api.example.com/", "https://api.example.com", "/v1", "api.example.com"),
            ("https://api.example.com:443/v1/", "https://api.example.com/v1", "/v1", "api.example.com"),
            ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1", "/api/v1", "openrouter.ai"),
            ("https://[fd00::7]:8443/v1", "https://[fd00::7]:8443/v1", "/v1", "[fd00::7]:8443"),
            ("https://models", "https://models", "/v1", "models"),
            ("http://localhost:11434/v1", "http://localhost:11434/v1", "/v1", "localhost:11434"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "/v1", "127.0.0.1:8080"),
            ("http://[::1]", "http://[::1]", "/v1", "[::1]"),
        ] {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!(upstream.to_string(), shown);
            assert_eq!((upstream.prefix(), upstream.authority().as_str()), (prefix, authority));
            assert_eq!(shown.parse::<Upstream>().unwrap(), upstream, "its text says all of it");
        }
        for (text, error) in [
            ("api.example.com", UpstreamError::Scheme),
            ("HTTPS://api.example.com", UpstreamError::Scheme),
            ("ftp://api.example.com", UpstreamError::Scheme),
            ("http://api.example.com", UpstreamError::PlainHttp),
            ("http://10.0.0.1", UpstreamError::PlainHttp),
            ("http://localhost.example.com", UpstreamError::PlainHttp),
            ("http://0.0.0.0:80", UpstreamError::PlainHttp),
            ("https://user:secret@api.example.com", UpstreamError::UserInfo),
            ("https://api.example.com?x=1", UpstreamError::Query),
            ("https://api.example.com/v1#x", UpstreamError::Query),
            ("https://", UpstreamError::Host),
            ("https://API.example.com", UpstreamError::Host),
            ("https://api..example.com", UpstreamError::Host),
            ("https://api.example.com.", UpstreamError::Host),
            ("https://0x7f.1", UpstreamError::Host),
            ("https://2130706433", UpstreamError::Host),
            ("https://127.1", UpstreamError::Host),
            ("https://a_b.example.com", UpstreamError::Host),
            ("https://[::1", UpstreamError::Host),
            ("https://[::1]x", UpstreamError::Port),
            ("https://api.example.com:0", UpstreamError::Port),
            ("https://api.example.com:", UpstreamError::Port),
            ("https://api.example.com:0443", UpstreamError::Port),
            ("https://api.example.com:65536", UpstreamError::Port),
            ("https://api.example.com:1:2", UpstreamError::Port),
            ("https://api.example.com/../v1", UpstreamError::Path),
            ("https://api.example.com//v1", UpstreamError::Path),
            ("https://api.example.com/%76", UpstreamError::Path),
            ("https://api.example.com/a b", UpstreamError::Path),
        ] {
            assert_eq!(text.parse::<Upstream>(), Err(error), "{text}");
        }
    }
}
