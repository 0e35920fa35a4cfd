//! What a refused client is told.
//!
//! A refusal is read by a program first and by a model next (USE-4): a status and `Proxy-Status` (RFC 9209) for the one, a
//! sentence for the other that says what happened and what to do instead. Many clients show nothing of an answer but
//! its reason phrase, so the first half of the sentence stands there too. Which hosts are allowed and which limits hold
//! may be said; what is left of a budget never is (BUD-7), and nothing here could know it.

use ipc_proto::HostName;
use ipc_proto::limits::Unit;
use ipc_proto::proxy::Reason;
use ipc_proto::units::show_size;

/// How a reason is told.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// For whom.
    pub reason: Reason,
    /// The status of the answer; none: no HTTP answer is possible any more, the tunnel is closed.
    pub status: Option<u16>,
    /// The error type of `Proxy-Status` (RFC 9209, section 2.3).
    pub error: &'static str,
    /// What happened: the part of the sentence before the semicolon. `{host}` and `{limit}` are filled in.
    pub what: &'static str,
    /// What to do: the part behind it. `{allowed}` is filled in.
    pub advice: &'static str,
}

/// What fills the blanks.
#[derive(Clone, Copy, Debug)]
pub struct Details<'a> {
    /// The host that was asked for; empty: none could be read.
    pub host: &'a str,
    /// The run's list.
    pub allowed: &'a [HostName],
    /// The limit that the reason names, where it has a value.
    pub limit: Option<u64>,
}

const NO_RETRY: &str = "asking again changes nothing";
const OPERATOR: &str =
    "asking again changes nothing: do without this host, or say that the operator would have to allow it";
const ADDRESS: &str =
    "asking again changes nothing: only hosts on the public internet are reached, whatever the list says";
const HELLO: &str =
    "asking again changes nothing: speak plain TLS 1.2 or 1.3 with the host's own name as server name";
const LIMIT: &str = "asking again changes nothing: finish with what you have";

impl Refusal {
    /// Every refusal.
    pub fn all() -> impl Iterator<Item = Refusal> {
        Reason::ALL.iter().copied().filter_map(Refusal::of)
    }

    /// How a reason is told; none: it refuses nothing.
    #[must_use]
    pub fn of(reason: Reason) -> Option<Refusal> {
        let row = |status, error, what, advice| Some(Refusal { reason, status, error, what, advice });
        let denied = |what, advice| row(Some(403), "http_request_denied", what, advice);
        let address = |what| row(Some(403), "destination_ip_prohibited", what, ADDRESS);
        let malformed = |status, what, advice| row(Some(status), "http_request_error", what, advice);
        let hello = |what, advice| row(None, "tls_protocol_error", what, advice);
        match reason {
            Reason::Listed | Reason::Configured | Reason::RunEnded => None,
            Reason::MalformedRequest => malformed(
                400,
                "this is no well-formed HTTP/1.1 CONNECT request",
                "set HTTPS_PROXY to this address and use https:// URLs",
            ),
            Reason::MethodNotAllowed => malformed(
                405,
                "only CONNECT is served here, so http:// URLs are not",
                "use the https:// URL of the same host",
            ),
            Reason::HttpVersion => malformed(505, "CONNECT is served over HTTP/1.1 and 1.0 only", NO_RETRY),
            Reason::HeadTooLarge => malformed(431, "the request's head is over 8 KiB", "send fewer headers"),
            Reason::HeadTimeout => malformed(
                408,
                "the request's head did not come within 10 seconds",
                "send the whole head at once",
            ),
            Reason::MalformedTarget => malformed(
                400,
                "the target is not a host name and port 443",
                "ask for HOST:443, the name in lower case, without user, path or final dot",
            ),
            Reason::IpLiteral => denied(
                "{host} is an IP address and only names are served",
                "asking again changes nothing: use a host's name; allowed are: {allowed}",
            ),
            Reason::PortNotAllowed => denied(
                "only port 443 is reached",
                "asking again changes nothing: use https:// on the default port",
            ),
            Reason::HostMismatch => malformed(
                400,
                "the Host header is missing, doubled, or not the target's",
                "send the target's own name as the only Host header",
            ),
            Reason::BodyNotAllowed => malformed(
                400,
                "a CONNECT request has no body",
                "send neither Content-Length nor Transfer-Encoding",
            ),
            Reason::NotListed => denied(
                "{host} is not an allowed host of this run",
                "asking again changes nothing: do without it, or say that the operator would have to allow it; allowed are: {allowed}",
            ),
            Reason::NameNotFound => row(
                Some(502),
                "dns_error",
                "{host} does not exist in DNS, or has no address",
                "check the name's spelling",
            ),
            Reason::DnsIncomplete => row(
                Some(502),
                "dns_error",
                "{host} could not be looked up completely, for IPv4 and for IPv6",
                "the name servers may answer later; one more try is enough to know",
            ),
            Reason::TooManyAddresses => {
                row(Some(403), "destination_ip_prohibited", "{host} has more than 32 addresses", OPERATOR)
            }
            Reason::AddressPrivate => address("an address of {host} is private"),
            Reason::AddressLoopback => address("an address of {host} is a loopback address"),
            Reason::AddressLinkLocal => address("an address of {host} is link-local"),
            Reason::AddressShared => address("an address of {host} is shared by a carrier (100.64.0.0/10)"),
            Reason::AddressDocumentation => address("an address of {host} is meant for documentation"),
            Reason::AddressBenchmarking => address(
                "an address of {host} is meant for benchmarks (a proxy with fake addresses may answer DNS here)",
            ),
            Reason::AddressMulticast => address("an address of {host} is a multicast address"),
            Reason::AddressReserved => address("an address of {host} is reserved"),
            Reason::AddressEmbedded => {
                address("an address of {host} carries another one inside (NAT64, 6to4, Teredo or mapped)")
            }
            Reason::AddressMetadata => address("an address of {host} is a cloud's own service"),
            Reason::AddressOwn => address("an address of {host} is this machine's own"),
            Reason::ConnectFailed => row(
                Some(502),
                "connection_refused",
                "no address of {host} accepts a connection on port 443",
                "the host may be down; one more try is enough to know",
            ),
            Reason::ConnectTimeout => row(
                Some(504),
                "connection_timeout",
                "{host} did not accept a connection within 10 seconds",
                "the host may be down; one more try is enough to know",
            ),
            Reason::NotTls => hello("the tunnel did not begin with TLS", HELLO),
            Reason::HelloMalformed => hello("the first TLS message is not well formed", HELLO),
            Reason::HelloTooLarge => hello("the first TLS message is over 64 KiB or 16 records", HELLO),
            Reason::HelloTimeout => hello("the first TLS message did not come within 10 seconds", HELLO),
            Reason::TlsVersion => hello("the client speaks no TLS newer than 1.1", HELLO),
            Reason::SniMissing => hello("the first TLS message names no server", HELLO),
            Reason::SniMismatch => hello("the server name of the first TLS message is not {host}", HELLO),
            Reason::SniMalformed => hello("the server name of the first TLS message is no host name", HELLO),
            Reason::EchRequested => hello(
                "the client encrypts the server name (ECH), or sends GREASE that looks the same",
                "asking again changes nothing: Chromium, Firefox and Bun before 1.4 do this; use curl, Node.js, Python or Go, or turn ECH off",
            ),
            Reason::EarlyData => hello(
                "the client sends data before the server has answered (TLS 1.3 early data)",
                "asking again changes nothing: turn early data off",
            ),
            Reason::AlpnNotAllowed => {
                hello("the client offers acme-tls/1, which proves control of a name", NO_RETRY)
            }
            Reason::RetryMismatch => {
                hello("the second TLS hello, after a retry request, is not for {host}", HELLO)
            }
            Reason::LimitEndpointConnections => row(
                Some(403),
                "connection_limit_reached",
                "this run may have {limit} connections here at once (endpoint_connections)",
                "close one before opening another",
            ),
            Reason::LimitTunnelsOpen => row(
                Some(403),
                "connection_limit_reached",
                "this run may have {limit} tunnels open at once (tunnels_open)",
                "close one before opening another",
            ),
            Reason::LimitTunnelsTotal => row(
                Some(403),
                "connection_limit_reached",
                "this run may open {limit} tunnels in all (tunnels_total)",
                LIMIT,
            ),
            Reason::LimitTunnelSent => {
                denied("this run may send {limit} through tunnels in all (tunnel_sent)", LIMIT)
            }
            Reason::LimitTunnelReceived => {
                denied("this run may receive {limit} through tunnels in all (tunnel_received)", LIMIT)
            }
            Reason::Budget => denied("this run's budget does not reach that far", LIMIT),
            Reason::Idle => row(
                None,
                "connection_read_timeout",
                "nothing was sent either way for 10 minutes",
                "open another tunnel when there is something to send",
            ),
        }
    }

    /// The answer to a request, head and body; none: there is none to give.
    #[must_use]
    pub fn answer(&self, details: &Details<'_>) -> Option<Vec<u8>> {
        let status = self.status?;
        let sentence = self.sentence(details);
        let what = self.fill(self.what, details);
        let allow = if status == 405 { "Allow: CONNECT\r\n" } else { "" };
        let (error, reason) = (self.error, self.reason.as_str());
        let length = sentence.len() + 1;
        let head = format!(
            "HTTP/1.1 {status} anet: {what}\r\n\
             Proxy-Status: anet; error={error}; details=\"{reason}\"\r\n\
             Content-Type: text/plain; charset=us-ascii\r\n\
             Content-Length: {length}\r\n\
             {allow}Connection: close\r\n\r\n"
        );
        Some(format!("{head}{sentence}\n").into_bytes())
    }

    /// The whole sentence.
    #[must_use]
    pub fn sentence(&self, details: &Details<'_>) -> String {
        let advice = self.fill(self.advice(details), details);
        format!("anet: {}; {advice}.", self.fill(self.what, details))
    }

    /// A name that differs from an entry in case alone deserves the better advice.
    fn advice(&self, details: &Details<'_>) -> &'static str {
        let same = |entry: &HostName| entry.as_str().eq_ignore_ascii_case(details.host);
        if self.reason == Reason::NotListed && details.allowed.iter().any(same) {
            UPPER_CASE
        } else {
            self.advice
        }
    }

    fn fill(&self, text: &str, details: &Details<'_>) -> String {
        let host = if details.host.is_empty() { "the host" } else { details.host };
        let limit = match (details.limit, self.reason.limit().map(|name| name.unit())) {
            (Some(value), Some(Unit::Bytes)) => show_size(value),
            (Some(value), Some(Unit::Count | Unit::Milliseconds) | None) => value.to_string(),
            (None, _) => "no more".to_owned(),
        };
        text.replace("{limit}", &limit)
            .replace("{allowed}", &listing(details.allowed))
            .replace("{host}", host)
    }
}

/// Said to a client that wrote an entry in other letters (EGR-3: no case folding of the request).
pub const UPPER_CASE: &str = "names are compared exactly: write it in lower case; allowed are: {allowed}";

fn listing(allowed: &[HostName]) -> String {
    if allowed.is_empty() {
        return "none".to_owned();
    }
    allowed.iter().map(HostName::as_str).collect::<Vec<_>>().join(", ")
}

/// A TLS alert (RFC 8446, section 6) that closes a tunnel whose hello was refused: the client then says "access denied"
/// rather than that the connection broke. 21: alert, 3 3: TLS 1.2, 2: fatal, 49: access_denied.
pub const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Vec<HostName> {
        vec!["api.example.com".parse().unwrap(), "pkg.example.com".parse().unwrap()]
    }

    fn answer(reason: Reason, host: &str) -> String {
        let details = Details { host, allowed: &hosts(), limit: Some(16) };
        String::from_utf8(Refusal::of(reason).unwrap().answer(&details).unwrap()).unwrap()
    }

    /// EGR-7: every reason but an end without refusal is told, in ASCII, beginning with `anet:`, with all blanks filled.
    #[test]
    fn every_refusal_is_a_sentence() {
        assert_eq!(Refusal::all().count(), Reason::ALL.len() - 3);
        for refusal in Refusal::all() {
            for host in ["", "evil.com"] {
                let text = refusal.sentence(&Details { host, allowed: &hosts(), limit: None });
                assert!(text.starts_with("anet: ") && text.ends_with('.'), "{text}");
                assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
                assert!(!text.contains(['{', '}']), "{text}");
            }
        }
    }

    /// EGR-7, USE-4: a rule's refusal is 403 and says that asking again is useless; a failure is 502 or 504.
    #[test]
    fn statuses() {
        for refusal in Refusal::all() {
            match refusal.status {
                Some(403) => assert!(
                    refusal.advice.contains("asking again changes nothing")
                        || refusal.advice.contains("close one"),
                    "{}",
                    refusal.advice
                ),
                Some(status) => assert!([400, 405, 408, 431, 502, 504, 505].contains(&status), "{status}"),
                None => {}
            }
        }
    }

    /// EGR-7: the whole answer, once.
    #[test]
    fn the_answer_of_a_host_that_is_not_listed() {
        let text = answer(Reason::NotListed, "evil.com");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(
            head,
            format!(
                "HTTP/1.1 403 anet: evil.com is not an allowed host of this run\r\n\
                 Proxy-Status: anet; error=http_request_denied; details=\"not_listed\"\r\n\
                 Content-Type: text/plain; charset=us-ascii\r\n\
                 Content-Length: {}\r\n\
                 Connection: close",
                body.len()
            )
        );
        assert_eq!(
            body,
            "anet: evil.com is not an allowed host of this run; asking again changes nothing: do without it, or say \
             that the operator would have to allow it; allowed are: api.example.com, pkg.example.com.\n"
        );
    }

    /// EGR-3: the case of a request is not folded, and the sentence says so.
    #[test]
    fn upper_case_is_named() {
        assert!(answer(Reason::NotListed, "API.example.com").contains("write it in lower case"));
        assert!(!answer(Reason::NotListed, "EVIL.com").contains("write it in lower case"));
    }

    /// LIM-1: the refusal names the limit.
    #[test]
    fn limits_are_named() {
        for reason in Reason::ALL {
            if let Some(limit) = reason.limit() {
                assert!(answer(*reason, "").contains(&format!("({})", limit.as_str())), "{reason:?}");
            }
        }
        let details = Details { host: "", allowed: &[], limit: Some(32 << 20) };
        let text = Refusal::of(Reason::LimitTunnelSent).unwrap().sentence(&details);
        assert!(text.contains("may send 32 MiB through tunnels"), "{text}");
    }

    /// RFC 9110, section 15.5.6.
    #[test]
    fn a_wrong_method_is_told_the_right_one() {
        assert!(answer(Reason::MethodNotAllowed, "").contains("\r\nAllow: CONNECT\r\n"));
    }
}
