//! Model access: which service, which model, whose key, before anything starts. The key itself is opened and passed on
//! unread.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use confine::sys::environment::withdraw;
use ipc_proto::broker::{BrokerPlan, ModelPolicy};
use ipc_proto::init::MODEL_PORT;
use ipc_proto::job::{KeySource, ModelJob};
use ipc_proto::limits::{LimitName, Limits, OUTPUT_TOKENS};
use ipc_proto::upstream::Scheme;
use ipc_proto::{Code, Upstream};

use super::Directories;
use super::request::{AgentRequest, EnvOption, RunRequest};
use crate::config::{Agent, AutoReply};
use crate::credentials::{Name, Store};
use crate::error::Trouble;
use crate::{explain, models};

/// What a run with model access needs beyond any other.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) job: ModelJob,
    pub(super) broker: BrokerPlan,
    /// The key, unread; none: the service needs none.
    pub(super) key: Option<OwnedFd>,
}

/// Where the run finds its model.
pub(super) fn url() -> String {
    format!("http://127.0.0.1:{MODEL_PORT}")
}

/// Which service an agent speaks to (MOD-12), checked before anything else of it.
pub(super) fn upstream(asked: &AgentRequest, auto_reply: &AutoReply) -> Result<Upstream, Trouble> {
    let configured = configured(asked.agent, auto_reply)?;
    let pinned = match asked.agent {
        Agent::Claude => Some(models::ANTHROPIC),
        Agent::Codex => Some(models::OPENAI),
        Agent::Opencode | Agent::Hermes | Agent::Openclaw | Agent::Custom => None,
        Agent::Cursor => {
            return Err(Trouble::new(Code::AgentUnsupported, explain::sentence(Code::AgentUnsupported)));
        }
    };
    let private = auto_reply.api_base_private;
    let named = asked.api_base.clone().map(|base| base.allow_private(private)).or(configured);
    let Some(pinned) = pinned else {
        return named.ok_or_else(|| {
            Trouble::new(
                Code::NoApiBase,
                format!("{} has no service of its own; give one with --api-base URL, or set api_base in anet.toml", asked.agent.as_str()),
            )
        });
    };
    let pinned: Upstream = pinned.parse().map_err(|error: ipc_proto::upstream::UpstreamError| {
        Trouble::new(Code::NoApiBase, error.to_string())
    })?;
    match named {
        Some(other) if whole(&other) != whole(&pinned) => Err(Trouble::new(
            Code::BadOption,
            format!(
                "{} speaks to {pinned} alone, and {other} was given as api_base; leave it out, or choose opencode, \
                     hermes, openclaw or custom",
                asked.agent.as_str()
            ),
        )),
        Some(_) | None => Ok(pinned),
    }
}

/// Which service a node asks itself, without an agent: the configured one, else the one that its interface is named for.
pub(super) fn asked_directly(auto_reply: &AutoReply) -> Result<Upstream, Trouble> {
    if let Some(configured) = configured(auto_reply.agent, auto_reply)? {
        return Ok(configured);
    }
    models::OPENAI
        .parse()
        .map_err(|error: ipc_proto::upstream::UpstreamError| Trouble::new(Code::NoApiBase, error.to_string()))
}

/// Where the stored key of a service is, or would be.
pub(super) fn key_file(upstream: &Upstream, directories: &Directories) -> Option<PathBuf> {
    let service = models::known(upstream);
    let usual = service.map_or_else(|| upstream.host().to_string(), |service| service.credential.to_owned());
    let name: Name = usual.parse().ok()?;
    Some(directories.state.join("credentials").join(name.as_str()))
}

/// What makes two addresses one, however they are written.
fn whole(upstream: &Upstream) -> (Scheme, String, String) {
    (upstream.scheme(), upstream.authority(), upstream.prefix().to_owned())
}

/// `api_base` of the configuration, which is its agent's alone.
fn configured(agent: Agent, auto_reply: &AutoReply) -> Result<Option<Upstream>, Trouble> {
    if auto_reply.api_base.is_empty() || auto_reply.agent != agent {
        return Ok(None);
    }
    let upstream = auto_reply
        .api_base
        .parse::<Upstream>()
        .map_err(|error| Trouble::new(Code::BadConfig, format!("auto_reply.api_base: {error}")))?;
    Ok(Some(upstream.allow_private(auto_reply.api_base_private)))
}

/// How the key in a variable is taken out of there, unread; none: there is no such variable.
pub(super) type Take<'a> = &'a dyn Fn(&str) -> Result<Option<OwnedFd>, Trouble>;

/// Out of this process's own environment.
pub(super) fn take_variable(variable: &str) -> Result<Option<OwnedFd>, Trouble> {
    withdraw(&CString::new(variable).unwrap_or_default()).map_err(|errno| {
        Trouble::new(
            Code::NoApiKey,
            format!("{variable} cannot be moved to where the broker reads it ({errno})"),
        )
    })
}

/// Everything of it, or what is missing: the model, then the key.
pub(super) fn prepare(
    asked: &AgentRequest,
    request: &RunRequest,
    upstream: Upstream,
    auto_reply: &AutoReply,
    limits: &Limits,
    directories: &Directories,
    take: Take<'_>,
) -> Result<Model, Trouble> {
    let configured = if auto_reply.agent == asked.agent { auto_reply.model.as_str() } else { "" };
    let model = models::model(&upstream, asked.model.as_deref().unwrap_or(configured))
        .map_err(|error| Trouble::new(Code::NoModel, error.to_string()))?
        .ok_or_else(|| {
            Trouble::new(
                Code::NoModel,
                format!("it is not known which model of {upstream} is the cheapest; name one with --model ID, or set model in anet.toml"),
            )
        })?;
    let (key, source) = key(asked, request, &upstream, directories, take)?;
    let policy = ModelPolicy {
        model,
        output_tokens: limits.get(LimitName::OutputTokens).unwrap_or(OUTPUT_TOKENS),
        silence: auto_reply.api_timeout_seconds.saturating_mul(1000),
    };
    Ok(Model {
        broker: BrokerPlan { upstream: Some(upstream.clone()), has_key: key.is_some(), signs: false },
        job: ModelJob { policy, upstream, key: source },
        key,
    })
}

/// The key: the stored one that was named, else the service's usual variable, else the stored one of the service's name. A key
/// never goes to a service that it was not named for.
fn key(
    asked: &AgentRequest,
    request: &RunRequest,
    upstream: &Upstream,
    directories: &Directories,
    take: Take<'_>,
) -> Result<(Option<OwnedFd>, KeySource), Trouble> {
    let service = models::known(upstream);
    let usual = service.map_or_else(|| upstream.host().to_string(), |service| service.credential.to_owned());
    let variable = service.map(|service| service.variable).filter(|_| asked.credential.is_none());
    if let Some(variable) = service.map(|service| service.variable) {
        refuse_to_pass(variable, request)?;
    }
    if let Some(variable) = variable {
        let moved = take(variable)?;
        if moved.is_some() {
            return Ok((moved, KeySource::Variable(variable.to_owned())));
        }
    }
    let name = match &asked.credential {
        Some(name) => Some(name.clone()),
        // An address or a single label may be no name of a credential: then nothing can be stored for it.
        None => usual.parse::<Name>().ok(),
    };
    if let Some(name) = &name
        && let Some(file) = Store::open(directories)?.find(name)?
    {
        return Ok((Some(file.into()), KeySource::Stored(name.as_str().to_owned())));
    }
    if upstream.is_loopback() && asked.credential.is_none() {
        return Ok((None, KeySource::None));
    }
    Err(no_key(upstream, variable, name.as_ref().map_or(usual.as_str(), Name::as_str)))
}

fn no_key(upstream: &Upstream, variable: Option<&str>, name: &str) -> Trouble {
    let or = variable.map_or_else(String::new, |variable| format!(", or set {variable}"));
    Trouble::new(
        Code::NoApiKey,
        format!("there is no key for {upstream}; store one with: anet credential set {name}{or}"),
    )
}

/// MOD-1: the key is never in the sandbox, not by the operator's slip either.
fn refuse_to_pass(variable: &str, request: &RunRequest) -> Result<(), Trouble> {
    let passed = request.environment.iter().any(|option| match option {
        EnvOption::Pass(name) | EnvOption::Set(name, _) => name == variable,
    });
    if !passed {
        return Ok(());
    }
    Err(Trouble::new(
        Code::BadOption,
        format!(
            "--env {variable}: the model's key never enters the sandbox, where the broker's endpoint needs none; leave it out"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(agent: Agent, base: Option<&str>) -> AgentRequest {
        AgentRequest {
            agent,
            prompt: None,
            model: None,
            api_base: base.map(|base| base.parse().unwrap()),
            credential: None,
        }
    }

    /// MOD-12: claude and codex have one service each, the others need one named, cursor has none.
    #[test]
    fn each_agent_has_its_service() {
        let auto_reply = AutoReply::default();
        let of =
            |agent, base| upstream(&asked(agent, base), &auto_reply).map(|upstream| upstream.to_string());
        assert_eq!(of(Agent::Claude, None).unwrap(), "https://api.anthropic.com");
        assert_eq!(
            of(Agent::Claude, Some("https://api.anthropic.com/v1")).unwrap(),
            "https://api.anthropic.com"
        );
        assert_eq!(of(Agent::Codex, None).unwrap(), "https://api.openai.com/v1");
        assert_eq!(
            of(Agent::Opencode, Some("http://127.0.0.1:11434/v1")).unwrap(),
            "http://127.0.0.1:11434/v1"
        );
        let code = |agent, base| {
            of(agent, base).map_err(|_| upstream(&asked(agent, base), &auto_reply).unwrap_err().code)
        };
        assert_eq!(code(Agent::Claude, Some("https://api.example.com")), Err(Code::BadOption));
        assert_eq!(code(Agent::Codex, Some("https://api.anthropic.com")), Err(Code::BadOption));
        assert_eq!(code(Agent::Claude, Some("https://api.anthropic.com/proxy")), Err(Code::BadOption));
        assert_eq!(code(Agent::Hermes, None), Err(Code::NoApiBase));
        assert_eq!(code(Agent::Custom, None), Err(Code::NoApiBase));
        assert_eq!(code(Agent::Cursor, Some("https://api.example.com")), Err(Code::AgentUnsupported));
    }

    /// MOD-12: what is configured for one agent is not another's.
    #[test]
    fn a_configured_service_is_its_agents_alone() {
        let auto_reply = AutoReply {
            agent: Agent::Opencode,
            api_base: "https://api.example.com/v1".into(),
            api_base_private: true,
            ..AutoReply::default()
        };
        assert!(upstream(&asked(Agent::Opencode, None), &auto_reply).unwrap().is_private());
        assert!(upstream(&asked(Agent::Claude, None), &auto_reply).is_ok());
        assert_eq!(upstream(&asked(Agent::Hermes, None), &auto_reply).unwrap_err().code, Code::NoApiBase);
        let named = upstream(&asked(Agent::Hermes, Some("https://models.example.com")), &auto_reply).unwrap();
        assert!(named.is_private(), "MOD-15: it is the operator's word for the option too");
        let wrong = AutoReply { api_base: "http://api.example.com".into(), ..auto_reply };
        assert_eq!(upstream(&asked(Agent::Opencode, None), &wrong).unwrap_err().code, Code::BadConfig);
    }
}
