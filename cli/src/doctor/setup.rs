//! Whether the configured agent could be started, and reach its model: agent, service, model, key (DIA-2).

use std::path::{Path, PathBuf};

use ipc_proto::{Code, Upstream};
use supervisor::agents::{self, Search};
use supervisor::config::{Agent, AutoReply, Backend, Config, Trusted, Untrusted};
use supervisor::credentials::{Name, Store};
use supervisor::error::Trouble;
use supervisor::guard::{self, Directories};
use supervisor::node::job::Mode;
use supervisor::{AUTO_REPLY, explain, models};

use super::checks::Check;
use super::node::Asked;
use crate::arguments::Anet;

/// Agent, service, model and key: as the running node found them, else as they are found here.
pub(super) fn checks(anet: &Anet, node: Option<&Asked>) -> Vec<Check> {
    if let Some(node) = node.filter(|node| AUTO_REPLY && node.sandbox.available) {
        let what = format!("{}: the running node has all that it needs", node.status.auto_reply.agent);
        return vec![Check::good("agent", what)];
    }
    let (config, directories) = match configuration(anet, node) {
        Ok(found) => found,
        Err(trouble) => return vec![Check::failed("config", trouble)],
    };
    if !AUTO_REPLY {
        return vec![Check::good("auto-reply", "left out of this build")];
    }
    let reply = &config.auto_reply;
    let is_needed = match node {
        Some(node) => node.uses_sandbox(),
        None => reply.trusted == Some(Trusted::Sandbox) || reply.untrusted == Untrusted::Sandbox,
    };
    let check = |name, trouble| {
        if is_needed { Check::failed(name, trouble) } else { Check::note(name, trouble) }
    };
    // What the node itself found stands above what is found here, with another environment perhaps.
    let told = node.and_then(Asked::trouble);
    let told = told.and_then(|trouble| Some((check_of(trouble.code)?, trouble)));
    let looked = look(reply, &directories).into_iter();
    let looked = looked.filter(|(name, _)| told.as_ref().is_none_or(|(told, _)| told != name));
    let mut checks: Vec<Check> = looked
        .map(|(name, found)| {
            found.map_or_else(|trouble| check(name, trouble), |words| Check::good(name, words))
        })
        .collect();
    checks.extend(told.map(|(name, trouble)| check(name, trouble)));
    checks
}

/// Codes that say something of the agent and its model, and the checks that they belong to.
const OF_SETUP: [(Code, &str); 7] = [
    (Code::NoApiKey, "key"),
    (Code::NoApiBase, "service"),
    (Code::NoModel, "model"),
    (Code::BadConfig, "config"),
    (Code::AgentMissing, "agent"),
    (Code::AgentUnsupported, "agent"),
    (Code::BadOption, "agent"),
];

/// Which of these checks a code belongs to; none: it says something of the sandbox itself.
pub(super) fn check_of(code: Code) -> Option<&'static str> {
    OF_SETUP.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

fn configuration(anet: &Anet, node: Option<&Asked>) -> Result<(Config, Directories), Trouble> {
    let is_service = node.is_some_and(|node| node.status.mode == Mode::System.as_str());
    let directories = Directories::of(if is_service { Mode::System } else { crate::node::mode(anet)? })?;
    let (config, _) = guard::configuration(&directories, anet.config.as_deref())?;
    Ok((config, directories))
}

/// One thing, and how it is.
type Looked = (&'static str, Result<String, Trouble>);

/// Looks, as far as the caller's own rights go.
fn look(reply: &AutoReply, directories: &Directories) -> Vec<Looked> {
    let mut all = vec![("agent", agent(reply))];
    let service = match service(reply) {
        Ok(Some(service)) => service,
        Ok(None) => {
            all.push(("service", Ok("none: a custom agent without api_base reaches no model".to_owned())));
            return all;
        }
        Err(trouble) => {
            all.push(("service", Err(trouble)));
            return all;
        }
    };
    all.push(("service", Ok(service.to_string())));
    all.push(("model", model(reply, &service)));
    all.push(("key", key(&service, directories)));
    all
}

fn agent(reply: &AutoReply) -> Result<String, Trouble> {
    let missing = |what: String| Err(Trouble::new(Code::AgentMissing, what));
    match (reply.backend, reply.agent) {
        (Backend::Openai, _) => Ok("none is started: the node itself asks the model".to_owned()),
        (Backend::Exec, Agent::Cursor) => {
            Err(Trouble::new(Code::AgentUnsupported, explain::sentence(Code::AgentUnsupported)))
        }
        (Backend::Exec, Agent::Custom) => match reply.command.first() {
            None => missing("agent is \"custom\", and there is no command; set one with: anet autoreply set --command COMMAND".to_owned()),
            Some(program) if program.starts_with('/') && !Path::new(program).is_file() => {
                missing(format!("{program} is not there; install it, or set another with: anet autoreply set --command COMMAND"))
            }
            Some(program) => Ok(format!("custom: {program}")),
        },
        (
            Backend::Exec,
            agent @ (Agent::Claude | Agent::Codex | Agent::Opencode | Agent::Hermes | Agent::Openclaw),
        ) => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let home = std::env::var_os("HOME").map(PathBuf::from);
            let search = Search { path: &path, home: home.as_deref(), more: &reply.sandbox.read_only };
            let found = agents::find(agent, &search)?;
            Ok(format!("{}: {}", agent.as_str(), found.program.display()))
        }
    }
}

/// MOD-12: which service it speaks to; none: a custom agent that reaches no model.
fn service(reply: &AutoReply) -> Result<Option<Upstream>, Trouble> {
    let named = match reply.api_base.as_str() {
        "" => None,
        base => {
            let parsed = base.parse::<Upstream>();
            let wrong = |error| Trouble::new(Code::BadConfig, format!("auto_reply.api_base: {error}"));
            Some(parsed.map_err(wrong)?.allow_private(reply.api_base_private))
        }
    };
    let known = |base: &str| {
        base.parse::<Upstream>().map_err(|error| Trouble::new(Code::NoApiBase, error.to_string()))
    };
    let pinned = match (reply.backend, reply.agent) {
        (Backend::Openai, _) => {
            return named.map_or_else(|| known(models::OPENAI).map(Some), |named| Ok(Some(named)));
        }
        (Backend::Exec, Agent::Claude) => known(models::ANTHROPIC)?,
        (Backend::Exec, Agent::Codex) => known(models::OPENAI)?,
        (Backend::Exec, Agent::Custom) => return Ok(named),
        (Backend::Exec, Agent::Opencode | Agent::Hermes | Agent::Openclaw | Agent::Cursor) => {
            return match named {
                Some(named) => Ok(Some(named)),
                None => Err(Trouble::new(Code::NoApiBase, explain::sentence(Code::NoApiBase))),
            };
        }
    };
    match named {
        Some(named) if named.to_string() != pinned.to_string() => Err(Trouble::new(
            Code::BadConfig,
            format!(
                "{} speaks to {pinned} alone, and api_base is {named}; empty it, or choose another agent",
                reply.agent.as_str()
            ),
        )),
        Some(_) | None => Ok(Some(pinned)),
    }
}

fn model(reply: &AutoReply, service: &Upstream) -> Result<String, Trouble> {
    match models::model(service, &reply.model) {
        Ok(Some(model)) => Ok(model.as_str().to_owned()),
        Ok(None) => Err(Trouble::new(
            Code::NoModel,
            format!(
                "it is not known which model of {service} is the cheapest; set one with: anet autoreply set --model ID"
            ),
        )),
        Err(error) => Err(Trouble::new(Code::NoModel, error.to_string())),
    }
}

/// Whether there is one, not what it is.
fn key(service: &Upstream, directories: &Directories) -> Result<String, Trouble> {
    let known = models::known(service);
    let variable = known.map(|known| known.variable);
    if let Some(variable) = variable
        && std::env::var_os(variable).is_some_and(|value| !value.is_empty())
    {
        return Ok(format!("{variable} of this environment"));
    }
    let usual = known.map_or_else(|| service.host().to_string(), |known| known.credential.to_owned());
    if let Ok(name) = usual.parse::<Name>()
        && Store::open(directories)?.find(&name)?.is_some()
    {
        return Ok(format!("the stored credential {name}"));
    }
    if service.is_loopback() {
        return Ok("none, and none is needed on this machine".to_owned());
    }
    let or = variable.map_or_else(String::new, |variable| format!(", or set {variable} for the node"));
    Err(Trouble::new(
        Code::NoApiKey,
        format!("there is no key for {service}; store one with: anet credential set {usual}{or}"),
    ))
}

#[cfg(test)]
mod tests {
    use supervisor::config;

    use super::*;
    use crate::node::fake;

    fn of(text: &str) -> Vec<(&'static str, Result<String, Code>)> {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        let directories = Directories {
            configuration: at.into(),
            state: at.join("state"),
            cache: at.into(),
            data: at.into(),
        };
        let config = config::parse(&format!("[auto_reply]\n{text}")).unwrap();
        let looked = look(&config.auto_reply, &directories).into_iter();
        looked.map(|(name, found)| (name, found.map_err(|trouble| trouble.code))).collect()
    }

    #[track_caller]
    fn code(text: &str, check: &str) -> Option<Code> {
        let found = of(text);
        let found =
            found.iter().find(|(name, _)| *name == check).unwrap_or_else(|| panic!("{check}: {found:?}"));
        found.1.clone().err()
    }

    /// DIA-2, MOD-12, MOD-15: what is missing has its code; a custom agent needs no model, and a service of this machine no key.
    #[test]
    fn what_is_missing_has_its_code() {
        let custom = "agent = \"custom\"\ncommand = [\"/bin/sh\"]\n";
        assert_eq!(of(custom).len(), 2);
        assert!(of(custom).iter().all(|(_, found)| found.is_ok()), "{:?}", of(custom));
        assert_eq!(code("agent = \"custom\"", "agent"), Some(Code::AgentMissing));
        assert_eq!(code("agent = \"custom\"\ncommand = [\"/no/such\"]", "agent"), Some(Code::AgentMissing));
        assert_eq!(code("agent = \"cursor\"", "agent"), Some(Code::AgentUnsupported));
        assert_eq!(code("agent = \"opencode\"", "service"), Some(Code::NoApiBase));
        let base = "agent = \"opencode\"\napi_base = \"https://models.example.com/v1\"\n";
        assert_eq!(
            (code(base, "service"), code(base, "model"), code(base, "key")),
            (None, Some(Code::NoModel), Some(Code::NoApiKey))
        );
        let local = "agent = \"opencode\"\napi_base = \"http://127.0.0.1:11434/v1\"\nmodel = \"m\"\n";
        assert_eq!((code(local, "model"), code(local, "key")), (None, None));
        assert_eq!(code("api_base = \"https://models.example.com/v1\"", "service"), Some(Code::BadConfig));
        assert_eq!(code("api_base = \"nonsense\"", "service"), Some(Code::BadConfig));
        assert_eq!(code("api_base = \"https://api.anthropic.com\"", "service"), None);
        assert_eq!(code("backend = \"openai\"\nagent = \"cursor\"", "agent"), None);
        assert_eq!(code("backend = \"openai\"", "service"), None);
    }

    /// DIA-2: a stored key is found, and is not shown.
    #[test]
    fn a_stored_key_is_found() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        let directories =
            Directories { configuration: at.into(), state: at.into(), cache: at.into(), data: at.into() };
        let service: Upstream = "https://models.example.com/v1".parse().unwrap();
        let trouble = key(&service, &directories).unwrap_err();
        assert!(trouble.sentence.contains("anet credential set models.example.com"), "{trouble}");
        let name: Name = "models.example.com".parse().unwrap();
        Store::open(&directories).unwrap().set(&name, b"sk-canary").unwrap();
        let words = key(&service, &directories).unwrap();
        assert!(words.contains("models.example.com") && !words.contains("sk-canary"), "{words}");
    }

    fn asked(sandbox: ipc_proto::control::Sandbox) -> Asked {
        Asked { status: fake::status(), sandbox }
    }

    /// DIA-2: the node's own launcher decides; where it did not get so far, the sandbox is tried here.
    #[test]
    fn a_node_speaks_for_its_sandbox() {
        let good = asked(fake::status().sandbox);
        assert_eq!(good.verdict(), Some(Ok(Some("2026-03-28T10:00:00.000Z".to_owned()))));
        let bad = asked(fake::without_bwrap());
        assert_eq!(bad.verdict().unwrap().unwrap_err().code, Code::NoBwrap);
        for name in
            ["no_api_key", "agent_missing", "no_model", "no_api_base", "bad_config", "agent_unsupported"]
        {
            let other = ipc_proto::control::Sandbox { code: Some(name.to_owned()), ..fake::without_bwrap() };
            assert_eq!(asked(other).verdict(), None, "{name} says nothing of the sandbox");
        }
        let unknown =
            ipc_proto::control::Sandbox { code: Some("of_tomorrow".to_owned()), ..fake::without_bwrap() };
        let trouble = asked(unknown).verdict().unwrap().unwrap_err();
        assert!(trouble.sentence.contains("of_tomorrow"), "{trouble}");
    }
}
