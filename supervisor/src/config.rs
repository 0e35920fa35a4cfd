//! The configuration file: every key that may stand in it, and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ipc_proto::limits::LimitName;
use ipc_proto::{Code, HostName, units};
use serde::{Deserialize, Serialize};

use crate::error::Trouble;

/// The longest configuration file, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// The file as a whole.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The peers whose tasks the operator answers for.
    pub trust: Vec<String>,
    /// How tasks are answered.
    pub auto_reply: AutoReply,
    /// What is masked or withheld, by name.
    pub credentials: BTreeMap<String, Credential>,
}

/// How tasks are answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoReply {
    /// What answers.
    pub backend: Backend,
    /// Which agent.
    pub agent: Agent,
    /// The command of a custom agent.
    pub command: Vec<String>,
    /// For trusted peers; none: what the mode of the node makes the default.
    pub trusted: Option<Trusted>,
    /// For everybody else.
    pub untrusted: Untrusted,
    /// The model; empty: the service's cheapest.
    pub model: String,
    /// The service's address.
    pub api_base: String,
    /// The service may have a private address.
    pub api_base_private: bool,
    /// Wall clock of a run, seconds.
    pub api_timeout_seconds: u64,
    /// Where direct runs work.
    pub work_dir: String,
    /// How long work directories are kept, days.
    pub retention_days: u32,
    /// A command that is told of events.
    pub notify: Vec<String>,
    /// What holds in the sandbox.
    pub sandbox: Sandbox,
}

impl Default for AutoReply {
    fn default() -> Self {
        AutoReply {
            backend: Backend::Exec,
            agent: Agent::Claude,
            command: Vec::new(),
            trusted: None,
            untrusted: Untrusted::Off,
            model: String::new(),
            api_base: String::new(),
            api_base_private: false,
            api_timeout_seconds: 180,
            work_dir: String::new(),
            retention_days: 7,
            notify: Vec::new(),
            sandbox: Sandbox::default(),
        }
    }
}

/// What answers a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// An agent's program.
    Exec,
    /// The node itself, through an OpenAI-compatible service.
    Openai,
}

/// An agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Agent {
    Claude,
    Codex,
    Opencode,
    Hermes,
    Openclaw,
    Cursor,
    Custom,
}

impl Agent {
    /// Every agent.
    pub const ALL: [Agent; 7] = [
        Agent::Claude,
        Agent::Codex,
        Agent::Opencode,
        Agent::Hermes,
        Agent::Openclaw,
        Agent::Cursor,
        Agent::Custom,
    ];

    /// The name that the configuration and `--agent` use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Agent::Claude => "claude",
            Agent::Codex => "codex",
            Agent::Opencode => "opencode",
            Agent::Hermes => "hermes",
            Agent::Openclaw => "openclaw",
            Agent::Cursor => "cursor",
            Agent::Custom => "custom",
        }
    }

    /// The agent of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Agent> {
        Agent::ALL.into_iter().find(|agent| agent.as_str() == name)
    }
}

/// How a trusted peer's task is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trusted {
    /// Not at all.
    Off,
    /// As the operator.
    Direct,
    /// In the sandbox.
    Sandbox,
}

/// How anybody else's task is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Untrusted {
    /// Not at all.
    Off,
    /// In the sandbox.
    Sandbox,
}

/// What holds in the sandbox.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sandbox {
    /// Runs a day, all peers together.
    pub runs_per_day: u32,
    /// Runs a day of one peer.
    pub runs_per_peer_per_day: u32,
    /// The allowed hosts.
    pub egress_allow: Vec<HostName>,
    /// More paths to read.
    pub read_only: Vec<PathBuf>,
    /// Limits of a run that differ from the defaults.
    pub limits: LimitTable,
    /// The budget of a run.
    pub budget: BudgetTable,
    /// The budget of a peer's day.
    pub budget_per_peer_day: PeerDayTable,
}

impl Default for Sandbox {
    fn default() -> Self {
        Sandbox {
            runs_per_day: 20,
            runs_per_peer_per_day: 5,
            egress_allow: Vec::new(),
            read_only: Vec::new(),
            limits: LimitTable::default(),
            budget: BudgetTable::default(),
            budget_per_peer_day: PeerDayTable::default(),
        }
    }
}

/// `[auto_reply.sandbox.limits]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct LimitTable {
    pub memory: Option<Size>,
    pub tasks: Option<u64>,
    pub growth: Option<Size>,
    pub model_requests: Option<u64>,
    pub request_body: Option<Size>,
    pub request_total: Option<Size>,
    pub tunnels_open: Option<u64>,
    pub tunnels_total: Option<u64>,
    pub tunnel_sent: Option<Size>,
    pub tunnel_received: Option<Size>,
    pub endpoint_connections: Option<u64>,
    pub output_tokens: Option<u64>,
}

impl LimitTable {
    /// Those that are set, by name.
    #[must_use]
    pub fn values(&self) -> Vec<(LimitName, u64)> {
        let bytes = |size: Option<Size>| size.map(|size| size.0);
        [
            (LimitName::Memory, bytes(self.memory)),
            (LimitName::Tasks, self.tasks),
            (LimitName::Growth, bytes(self.growth)),
            (LimitName::ModelRequests, self.model_requests),
            (LimitName::RequestBody, bytes(self.request_body)),
            (LimitName::RequestTotal, bytes(self.request_total)),
            (LimitName::TunnelsOpen, self.tunnels_open),
            (LimitName::TunnelsTotal, self.tunnels_total),
            (LimitName::TunnelSent, bytes(self.tunnel_sent)),
            (LimitName::TunnelReceived, bytes(self.tunnel_received)),
            (LimitName::EndpointConnections, self.endpoint_connections),
            (LimitName::OutputTokens, self.output_tokens),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// `[auto_reply.sandbox.budget]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct BudgetTable {
    pub destinations: Option<u64>,
    pub bytes_out: Option<Size>,
    pub window: Option<Time>,
    pub credentials: Option<u64>,
}

/// `[auto_reply.sandbox.budget_per_peer_day]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct PeerDayTable {
    pub destinations: Option<u64>,
    pub bytes_out: Option<Size>,
}

/// One credential that is masked or withheld (CRED-1).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The variable that holds it.
    pub variable: Option<String>,
    /// The file that holds it.
    pub file: Option<PathBuf>,
    /// What the run has of it; none for a model key, which a run never has.
    pub mode: Option<CredentialMode>,
    /// Where the real value may go.
    #[serde(default)]
    pub inject_hosts: Vec<HostName>,
    /// Which part is masked.
    pub extract: Option<String>,
    /// What happens when that part is not found.
    pub on_no_match: Option<OnNoMatch>,
}

/// What a run has of a credential.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialMode {
    /// Nothing.
    Deny,
    /// A sentinel.
    Mask,
}

/// What happens to a value that could not be masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnNoMatch {
    /// It is withheld.
    Deny,
    /// It passes, and the operator is told.
    Warn,
}

/// Bytes: a number, or text with a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "NumberOrText")]
pub struct Size(pub u64);

/// Milliseconds, from text with a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "NumberOrText")]
pub struct Time(pub u64);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl TryFrom<NumberOrText> for Size {
    type Error = units::UnitError;
    fn try_from(value: NumberOrText) -> Result<Self, Self::Error> {
        match value {
            NumberOrText::Number(bytes) => Ok(Size(bytes)),
            NumberOrText::Text(text) => units::parse_size(&text).map(Size),
        }
    }
}

impl TryFrom<NumberOrText> for Time {
    type Error = units::UnitError;
    fn try_from(value: NumberOrText) -> Result<Self, Self::Error> {
        match value {
            NumberOrText::Number(_) => Err(units::UnitError::Time),
            NumberOrText::Text(text) => {
                units::parse_time(&text).map(|time| Time(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
            }
        }
    }
}

/// Reads the configuration. A file that the operator named has to be there; the usual one may be missing.
///
/// # Errors
/// [`Code::BadConfig`], naming file, line and key.
pub fn load(path: &Path, named: bool) -> Result<(Config, String), Trouble> {
    let shown = path.display();
    let bad = |what: String| Trouble::new(Code::BadConfig, format!("{shown}: {what}"));
    match std::fs::metadata(path) {
        Ok(found) if found.len() > MAX_FILE => return Err(bad("larger than a configuration can be".into())),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !named => {
            return Ok((Config::default(), String::new()));
        }
        Err(error) => {
            return Err(bad(format!("cannot be read ({error}); see that the file is there and yours")));
        }
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| bad(format!("cannot be read ({error}); see that it is a text file of yours")))?;
    let config = parse(&text).map_err(|what| bad(what.to_string()))?;
    Ok((config, text))
}

/// What is wrong with the text, and in which line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// Counts from 1.
    pub line: usize,
    /// The key or value, and what is wrong with it.
    pub what: String,
}

/// Parses the text of a configuration.
///
/// # Errors
/// The first thing wrong with it.
pub fn parse(text: &str) -> Result<Config, ParseError> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text.get(..start).unwrap_or_default().matches('\n').count() + 1;
        // Where the message does not name the key itself, the line it stands in does.
        let key = text.lines().nth(line - 1).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
        let what = match key {
            Some(key) if !error.message().contains(key) => format!("{key}: {}", error.message()),
            Some(_) | None => error.message().to_owned(),
        };
        ParseError { line, what }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documented file is taken as it stands.
    #[test]
    fn the_documented_configuration_parses() {
        let config = parse(
            "trust = [\"aid\"]\n[auto_reply]\nbackend = \"exec\"\nagent = \"claude\"\ncommand = []\n\
             trusted = \"direct\"\nuntrusted = \"off\"\nmodel = \"\"\napi_base = \"\"\napi_base_private = false\n\
             api_timeout_seconds = 180\nwork_dir = \"\"\nretention_days = 7\nnotify = []\n[auto_reply.sandbox]\n\
             runs_per_day = 20\nruns_per_peer_per_day = 5\negress_allow = [\"a.example.com\"]\nread_only = []\n\
             [auto_reply.sandbox.limits]\nmemory = \"1GiB\"\n[auto_reply.sandbox.budget]\ndestinations = 16\n\
             bytes_out = \"32MiB\"\nwindow = \"180s\"\n[auto_reply.sandbox.budget_per_peer_day]\n\
             destinations = 64\nbytes_out = \"128MiB\"\n[credentials.anthropic]\n",
        )
        .unwrap();
        assert_eq!(config.auto_reply.sandbox.budget.window, Some(Time(180_000)));
        assert_eq!(config.auto_reply.sandbox.limits.memory, Some(Size(1 << 30)));
    }

    /// An unknown key, a bad host, a bad unit: each is named with its line, and nothing starts.
    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, word) in [
            ("trusst = []\n", 1, "trusst"),
            ("[auto_reply]\n\nuntrusted = \"yes\"\n", 3, "untrusted"),
            ("[auto_reply.sandbox]\negress_allow = [\"*.example.com\"]\n", 2, "wildcard"),
            ("[auto_reply.sandbox.budget]\nwindow = 3\n", 2, "window"),
            ("[auto_reply.sandbox.limits]\nmemory = \"2 apples\"\n", 2, "memory"),
            ("[auto_reply\n", 1, ""),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.to_string().contains(word), "{text}: {error}");
        }
    }
}
