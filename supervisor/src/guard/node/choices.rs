//! What the configuration chooses for a node, checked as a whole before anything is started.

use std::path::PathBuf;

use ipc_proto::job::Budget;
use ipc_proto::limits::Limits;
use ipc_proto::{Aid, Code};

use super::super::bounds::{bounds, check_output_tokens, refuse_the_model_service};
use super::super::request::RunRequest;
use super::super::{Directories, Work};
use super::roots;
use crate::AUTO_REPLY;
use crate::config::{Agent, Backend, Config, Trusted, Untrusted};
use crate::error::Trouble;
use crate::explain;
use crate::guard::{AgentRequest, TerminalChoice};
use crate::node::job::{Mode, PeerDay, Policy};

/// BUD-3: how far a peer may reach in a day, unless the configuration says otherwise.
const PEER_DAY: PeerDay = PeerDay { destinations: 64, bytes_out: 128 * 1024 * 1024 };

/// What holds, and what is needed for it.
#[derive(Debug)]
pub(super) struct Choices {
    pub(super) policy: Policy,
    /// Where agents work outside of the sandbox.
    pub(super) direct_root: PathBuf,
    /// Agents are started outside of the sandbox.
    pub(super) direct: bool,
}

impl Choices {
    /// Checks what is configured.
    ///
    /// # Errors
    /// [`Code::BadConfig`], naming the key; [`Code::DirectInService`]; [`Code::RootsOverlap`].
    pub(super) fn of(config: &Config, mode: Mode, directories: &Directories) -> Result<Choices, Trouble> {
        let auto_reply = &config.auto_reply;
        let sandbox = &auto_reply.sandbox;
        let trusted = match (mode, auto_reply.trusted) {
            (Mode::System, Some(Trusted::Direct)) => {
                return Err(Trouble::new(Code::DirectInService, explain::sentence(Code::DirectInService)));
            }
            (Mode::System, None) => Trusted::Sandbox,
            (Mode::User, None) => Trusted::Direct,
            (Mode::System | Mode::User, Some(trusted)) => trusted,
        };
        let direct_root = roots::direct(auto_reply, directories)?;
        let request = request(config);
        let (limits, budget) = bounds(&request, config);
        check_output_tokens(&request, &limits)
            .map_err(|trouble| bad("auto_reply.sandbox.limits", &trouble))?;
        refuse_the_model_service(&request, config, None)
            .map_err(|trouble| bad("auto_reply.sandbox.egress_allow", &trouble))?;
        let policy = Policy { trust: trust(config)?, trusted, ..usual(config, limits, budget) };
        let direct = trusted == Trusted::Direct && auto_reply.backend == Backend::Exec;
        if sandbox.egress_allow.len() > MAX_HOSTS {
            return Err(Trouble::new(
                Code::BadConfig,
                format!(
                    "auto_reply.sandbox.egress_allow: {} hosts, and {MAX_HOSTS} are allowed",
                    sandbox.egress_allow.len()
                ),
            ));
        }
        Ok(Choices { policy, direct_root, direct })
    }

    /// What holds while the configuration is not understood: everything waits, and nothing that was kept goes.
    pub(super) fn nothing(directories: &Directories) -> Choices {
        let config = Config::default();
        let (limits, budget) = bounds(&request(&config), &config);
        let policy = Policy {
            trusted: Trusted::Off,
            untrusted: Untrusted::Off,
            retention_days: u32::MAX,
            ..usual(&config, limits, budget)
        };
        Choices { policy, direct_root: directories.direct(), direct: false }
    }
}

/// EGR-2: the most entries of the list.
const MAX_HOSTS: usize = 64;

fn usual(config: &Config, limits: Limits, budget: Budget) -> Policy {
    let auto_reply = &config.auto_reply;
    let sandbox = &auto_reply.sandbox;
    let day = &sandbox.budget_per_peer_day;
    Policy {
        trust: Vec::new(),
        trusted: Trusted::Off,
        untrusted: auto_reply.untrusted,
        backend: auto_reply.backend,
        agent: auto_reply.agent,
        runs_per_day: sandbox.runs_per_day,
        runs_per_peer_per_day: sandbox.runs_per_peer_per_day,
        hosts: sandbox.egress_allow.clone(),
        limits,
        budget,
        peer_day: PeerDay {
            destinations: day.destinations.unwrap_or(PEER_DAY.destinations),
            bytes_out: day.bytes_out.map_or(PEER_DAY.bytes_out, |size| size.0),
        },
        retention_days: auto_reply.retention_days,
    }
}

fn trust(config: &Config) -> Result<Vec<Aid>, Trouble> {
    let parse = |text: &String| {
        text.parse::<Aid>()
            .map_err(|error| Trouble::new(Code::BadConfig, format!("trust: {text:?}: {error}")))
    };
    config.trust.iter().map(parse).collect()
}

fn bad(key: &str, trouble: &Trouble) -> Trouble {
    Trouble::new(Code::BadConfig, format!("{key}: {}", trouble.sentence))
}

/// A run of an untrusted peer, as `anet run --untrusted --agent` would be asked for it.
pub(super) fn request(config: &Config) -> RunRequest {
    let auto_reply = &config.auto_reply;
    RunRequest {
        configuration: None,
        command: Vec::new(),
        // Without auto-reply the sandbox is tried, and no agent is started in it.
        agent: AUTO_REPLY.then(|| asked(auto_reply.agent)),
        work: Work::Fresh,
        read_write: Vec::new(),
        read_only: auto_reply.sandbox.read_only.clone(),
        deny: Vec::new(),
        environment: Vec::new(),
        hosts: auto_reply.sandbox.egress_allow.clone(),
        timeout: None,
        untrusted: true,
        limits: Vec::new(),
        budget_destinations: None,
        budget_bytes_out: None,
        budget_window: None,
        record: None,
        terminal: TerminalChoice::Never,
        quiet: true,
        verbose: false,
    }
}

/// The agent with all that is configured for it.
fn asked(agent: Agent) -> AgentRequest {
    AgentRequest { agent, prompt: None, model: None, api_base: None, credential: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn directories() -> Directories {
        let at = |name: &str| PathBuf::from("/nowhere").join(name);
        Directories { configuration: at("config"), state: at("state"), cache: at("cache"), data: at("data") }
    }

    fn of(text: &str, mode: Mode) -> Result<Choices, Trouble> {
        Choices::of(&parse(text).unwrap(), mode, &directories())
    }

    /// SEL-1, SEL-4: `trusted` is direct by default for a user and sandbox for a service, where direct is refused.
    #[test]
    fn trusted_depends_on_the_mode() {
        let user = of("", Mode::User).unwrap();
        assert_eq!(
            (user.policy.trusted, user.policy.untrusted, user.direct),
            (Trusted::Direct, Untrusted::Off, true)
        );
        assert_eq!(user.direct_root, PathBuf::from("/nowhere/cache/work"));
        let service = of("", Mode::System).unwrap();
        assert_eq!((service.policy.trusted, service.direct), (Trusted::Sandbox, false));
        let direct = "[auto_reply]\ntrusted = \"direct\"";
        assert_eq!(of(direct, Mode::System).unwrap_err().code, Code::DirectInService);
        let off = of("[auto_reply]\ntrusted = \"off\"", Mode::User).unwrap();
        assert_eq!((off.policy.trusted, off.direct), (Trusted::Off, false));
        // SEL-3: that backend starts no program.
        assert!(!of("[auto_reply]\nbackend = \"openai\"\ntrusted = \"direct\"", Mode::User).unwrap().direct);
    }

    /// What means nothing is refused with its key.
    #[test]
    fn wrong_values_are_named() {
        for (text, code, key) in [
            ("trust = [\"p1\", \"a/b\"]", Code::BadConfig, "trust: \"a/b\""),
            ("[auto_reply]\nwork_dir = \"x\"", Code::BadConfig, "auto_reply.work_dir"),
            ("[auto_reply]\nwork_dir = \"/nowhere/cache\"", Code::RootsOverlap, "work_dir"),
            (
                "[auto_reply.sandbox.limits]\noutput_tokens = 9000",
                Code::BadConfig,
                "auto_reply.sandbox.limits",
            ),
            (
                "[auto_reply]\napi_base = \"https://m.example.com\"\n[auto_reply.sandbox]\negress_allow = [\"m.example.com\"]",
                Code::BadConfig,
                "egress_allow",
            ),
        ] {
            let trouble = of(text, Mode::User).unwrap_err();
            assert_eq!(trouble.code, code, "{text}: {trouble}");
            assert!(trouble.sentence.contains(key), "{text}: {trouble}");
        }
    }

    /// BUD-3, RUN-1, LIM: the defaults, and what is configured above them.
    #[test]
    fn the_policy_is_what_is_configured() {
        let policy = of("", Mode::User).unwrap().policy;
        assert_eq!((policy.runs_per_day, policy.runs_per_peer_per_day, policy.retention_days), (20, 5, 7));
        assert_eq!((policy.peer_day.destinations, policy.peer_day.bytes_out), (64, 128 << 20));
        assert_eq!(policy.budget.destinations, Some(16));
        let policy = of(
            "trust = [\"p1\"]\n[auto_reply]\nretention_days = 1\n[auto_reply.sandbox]\nruns_per_day = 0\n\
             [auto_reply.sandbox.budget]\ndestinations = 1\n[auto_reply.sandbox.budget_per_peer_day]\nbytes_out = \"1MiB\"",
            Mode::User,
        )
        .unwrap()
        .policy;
        assert_eq!(policy.trust, ["p1".parse().unwrap()]);
        assert_eq!((policy.runs_per_day, policy.retention_days), (0, 1));
        assert_eq!((policy.peer_day.destinations, policy.peer_day.bytes_out), (64, 1 << 20));
        assert_eq!(policy.budget.destinations, Some(1));
    }

    /// A configuration that is not understood lets everything wait: nobody is answered, refused or forgotten by it.
    #[test]
    fn without_a_configuration_everything_waits() {
        let nothing = Choices::nothing(&directories());
        assert_eq!((nothing.policy.trusted, nothing.policy.untrusted), (Trusted::Off, Untrusted::Off));
        assert_eq!((nothing.policy.retention_days, nothing.direct), (u32::MAX, false));
        assert!(nothing.policy.trust.is_empty());
    }
}
