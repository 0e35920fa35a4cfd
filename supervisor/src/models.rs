//! The model services that anet knows by name: their keys' usual names, their models (MOD-2, MOD-12).

use ipc_proto::broker::{ModelId, ModelIdError};
use ipc_proto::upstream::{Upstream, UpstreamHost};

/// A service that is known by its host.
#[derive(Debug)]
pub struct Service {
    /// Its host.
    pub host: &'static str,
    /// The stored credential that is its key unless another is named.
    pub credential: &'static str,
    /// The variable that its users keep the key in.
    pub variable: &'static str,
    /// The model that is asked where none is configured: the one with the lowest price.
    pub cheapest: Option<&'static str>,
    /// Short names of models, and what they stand for.
    pub aliases: &'static [(&'static str, &'static str)],
}

/// Anthropic's service, which claude is pinned to.
pub const ANTHROPIC: &str = "https://api.anthropic.com";
/// OpenAI's service, which codex is pinned to.
pub const OPENAI: &str = "https://api.openai.com/v1";

/// All of them, as of 2026-11-30. The cheapest by list price: claude-haiku-5-5 and gpt-6-luna, both 0.10 USD for a million
/// tokens of input and 0.50 for output.
pub const SERVICES: &[Service] = &[
    Service {
        host: "api.anthropic.com",
        credential: "anthropic",
        variable: "ANTHROPIC_API_KEY",
        cheapest: Some("claude-haiku-5-5"),
        aliases: &[
            ("haiku", "claude-haiku-5-5"),
            ("sonnet", "claude-sonnet-5-5"),
            ("opus", "claude-opus-5-5"),
        ],
    },
    Service {
        host: "api.openai.com",
        credential: "openai",
        variable: "OPENAI_API_KEY",
        cheapest: Some("gpt-6-luna"),
        aliases: &[],
    },
    elsewhere("openrouter.ai", "openrouter", "OPENROUTER_API_KEY"),
    elsewhere("api.groq.com", "groq", "GROQ_API_KEY"),
    elsewhere("api.mistral.ai", "mistral", "MISTRAL_API_KEY"),
    elsewhere("api.deepseek.com", "deepseek", "DEEPSEEK_API_KEY"),
    elsewhere("api.x.ai", "xai", "XAI_API_KEY"),
    elsewhere("api.together.xyz", "together", "TOGETHER_API_KEY"),
    elsewhere("api.fireworks.ai", "fireworks", "FIREWORKS_API_KEY"),
];

/// A service whose models come and go: the operator names one.
const fn elsewhere(host: &'static str, credential: &'static str, variable: &'static str) -> Service {
    Service { host, credential, variable, cheapest: None, aliases: &[] }
}

/// What is known of a service.
#[must_use]
pub fn known(upstream: &Upstream) -> Option<&'static Service> {
    match upstream.host() {
        UpstreamHost::Name(name) => SERVICES.iter().find(|service| service.host == name),
        UpstreamHost::Address(_) => None,
    }
}

/// The model that `name` means at this service; an empty name means the cheapest. None: nothing is known to be cheapest.
///
/// # Errors
/// A name that is no identifier.
pub fn model(upstream: &Upstream, name: &str) -> Result<Option<ModelId>, ModelIdError> {
    let service = known(upstream);
    let name = if name.is_empty() {
        match service.and_then(|service| service.cheapest) {
            Some(cheapest) => cheapest,
            None => return Ok(None),
        }
    } else {
        let aliases = service.map_or(&[][..], |service| service.aliases);
        aliases.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, identifier)| *identifier)
    };
    ModelId::try_from(name.to_owned()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(base: &str, name: &str) -> Option<String> {
        model(&base.parse().unwrap(), name).unwrap().map(String::from)
    }

    /// MOD-2: the operator's model, an alias by its identifier, the cheapest where there is none, and no guess elsewhere.
    #[test]
    fn models_are_named_by_identifier() {
        assert_eq!(named(ANTHROPIC, "").unwrap(), "claude-haiku-5-5");
        assert_eq!(named(ANTHROPIC, "sonnet").unwrap(), "claude-sonnet-5-5");
        assert_eq!(named(ANTHROPIC, "claude-opus-4-1").unwrap(), "claude-opus-4-1");
        assert_eq!(named(OPENAI, "").unwrap(), "gpt-6-luna");
        assert_eq!(named(OPENAI, "sonnet").unwrap(), "sonnet");
        assert_eq!(named("https://api.example.com", ""), None);
        assert_eq!(named("https://openrouter.ai/api/v1", "qwen/qwen3").unwrap(), "qwen/qwen3");
        assert_eq!(named("https://192.0.2.1", ""), None);
        for name in ["a b", "-m", "x\"y", "ä"] {
            assert!(model(&ANTHROPIC.parse().unwrap(), name).is_err(), "{name}");
        }
        assert!(SERVICES.iter().all(|service| service.aliases.iter().all(|(alias, _)| !alias.contains('-'))));
    }
}
