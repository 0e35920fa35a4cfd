//! Whose service it is, by its host alone.

use ipc_proto::Upstream;
use ipc_proto::upstream::UpstreamHost;

use crate::policy::Service;

/// The service behind an address (MOD-12).
#[must_use]
pub fn service(upstream: &Upstream) -> Service {
    match upstream.host() {
        UpstreamHost::Name(name) if name == "api.anthropic.com" => Service::Anthropic,
        UpstreamHost::Name(name) if name == "api.openai.com" => Service::OpenAi,
        UpstreamHost::Name(_) | UpstreamHost::Address(_) => Service::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MOD-12: the two services with their own rules, by exactly their names.
    #[test]
    fn services_are_known_by_name() {
        for (address, expected) in [
            ("https://api.anthropic.com", Service::Anthropic),
            ("https://api.openai.com/v1", Service::OpenAi),
            ("https://api.anthropic.com.example.org", Service::Other),
            ("https://eu.api.openai.com/v1", Service::Other),
            ("http://127.0.0.1:8080", Service::Other),
        ] {
            assert_eq!(service(&address.parse().unwrap()), expected, "{address}");
        }
    }
}
