//! What a node's sandboxed runs are made from; or why none can be.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ipc_proto::init::{CommandPlan, Purpose};
use ipc_proto::launcher::{FilePlan, INSIDE_HOME, INSIDE_PATH, INSIDE_WORK};
use ipc_proto::limits::{LimitName, Limits};
use ipc_proto::{Code, RunId, Upstream};

use super::super::agent::{self, Setting};
use super::super::bounds::refuse_the_model_service;
use super::super::environment::environment;
use super::super::identity::Identities;
use super::super::model::{self, Model};
use super::super::paths::{self, Opened};
use super::super::plan::launch_plan;
use super::super::programs::{self, Found, c_path};
use super::super::request::RunRequest;
use super::super::{AgentRequest, Directories};
use super::choices::request;
use super::keys::Keys;
use crate::agents::{self, Installed, Search};
use crate::config::{Agent, AutoReply, Backend, Config};
use crate::error::Trouble;
use crate::node::job::Turn;

/// What a turn is decided from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) config: &'a Config,
    pub(super) limits: &'a Limits,
    pub(super) directories: &'a Directories,
    pub(super) programs: &'a Found,
    pub(super) identities: Identities,
    /// Where the launcher makes the runs' directories.
    pub(super) root: &'a Path,
    /// The operator's PATH.
    pub(super) path: &'a OsStr,
    /// The operator's home.
    pub(super) home: Option<&'a Path>,
    pub(super) keys: &'a Keys,
}

/// The turn, and its model with the key. Checked in the order in which an operator would set it up: the service, the agent's
/// program, the model, the key; and before that what any run needs.
///
/// # Errors
/// What is missing, by its code.
pub(super) fn turn(facts: &Facts<'_>) -> Result<(Turn, Option<Model>), Trouble> {
    make(facts).map_err(|trouble| {
        // There are no options here: what they name is named in the configuration.
        if matches!(trouble.code, Code::BadOption | Code::BadPath | Code::BadHost) {
            return Trouble::new(Code::BadConfig, trouble.sentence);
        }
        trouble
    })
}

fn make(facts: &Facts<'_>) -> Result<(Turn, Option<Model>), Trouble> {
    let request = request(facts.config);
    let auto_reply = &facts.config.auto_reply;
    let (installed, model) = match (&request.agent, auto_reply.backend) {
        (Some(asked), Backend::Openai) => {
            let upstream = model::asked_directly(auto_reply)?;
            (None, Some(model_at(asked, &request, upstream, facts)?))
        }
        (Some(asked), Backend::Exec) => {
            programs::check_bwrap(facts.programs)?;
            (installed(asked, facts)?, model_of(asked, &request, facts)?)
        }
        (None, Backend::Openai | Backend::Exec) => {
            programs::check_bwrap(facts.programs)?;
            (None, None)
        }
    };
    refuse_the_model_service(&request, facts.config, model.as_ref()).map_err(|trouble| {
        Trouble::new(Code::BadConfig, format!("auto_reply.sandbox.egress_allow: {}", trouble.sentence))
    })?;
    let visible =
        installed.as_ref().map(|installed: &Installed| installed.visible.as_slice()).unwrap_or_default();
    let mut plan =
        launch_plan(RunId::new(0, [0; 4]), placeholder()?, files(&request, visible, facts)?, facts.programs);
    plan.endpoints.model = model.is_some();
    plan.growth = facts.limits.get(LimitName::Growth);
    plan.memory = facts.limits.get(LimitName::Memory);
    plan.tasks = facts.limits.get(LimitName::Tasks);
    let turn = Turn {
        installed,
        command: auto_reply.command.clone(),
        environment: environment(&request, &Setting::default(), None, false)?,
        plan,
        model: model.as_ref().map(|model| model.job.clone()),
    };
    Ok((turn, model))
}

/// The agent's program, where the run's user gets to it and nothing wide is shown for it.
fn installed(asked: &AgentRequest, facts: &Facts<'_>) -> Result<Option<Installed>, Trouble> {
    let auto_reply = &facts.config.auto_reply;
    if asked.agent == Agent::Custom {
        check_command(auto_reply)?;
        return Ok(None);
    }
    // The service comes first: without one there is no need to install anything.
    model::upstream(asked, auto_reply)?;
    let installed = find(facts)?;
    agent::check_reachable(&installed, facts.identities.run)?;
    agent::check_narrow(&installed, None)?;
    Ok(Some(installed))
}

/// The configured agent's program, wherever the operator has it.
pub(super) fn find(facts: &Facts<'_>) -> Result<Installed, Trouble> {
    let auto_reply = &facts.config.auto_reply;
    let search = Search { path: facts.path, home: facts.home, more: &auto_reply.sandbox.read_only };
    agents::find(auto_reply.agent, &search)
}

/// A custom agent's program is there, as far as that can be seen from outside.
pub(super) fn check_command(auto_reply: &AutoReply) -> Result<(), Trouble> {
    let missing = |what: String| Trouble::new(Code::AgentMissing, what);
    let Some(program) = auto_reply.command.first().map(Path::new) else {
        return Err(missing(
            "agent = \"custom\" needs a command; set auto_reply.command in anet.toml".to_owned(),
        ));
    };
    let made_inside = [INSIDE_HOME, INSIDE_WORK, "/tmp"].iter().any(|own| program.starts_with(own));
    let there = if program.is_absolute() {
        made_inside || program.exists()
    } else if program.components().count() == 1 {
        std::env::split_paths(OsStr::new(INSIDE_PATH)).any(|place| place.join(program).exists())
    } else {
        // Of what the work directory holds then.
        true
    };
    if there {
        return Ok(());
    }
    Err(missing(format!(
        "the program of auto_reply.command, {}, is not there, or not in {INSIDE_PATH}; install it, or give its absolute path \
         and name its directory in read_only of [auto_reply.sandbox]",
        program.display()
    )))
}

/// A custom agent needs no model: it has one where a service is named.
fn model_of(asked: &AgentRequest, request: &RunRequest, facts: &Facts<'_>) -> Result<Option<Model>, Trouble> {
    let auto_reply = &facts.config.auto_reply;
    if asked.agent == Agent::Custom && auto_reply.api_base.is_empty() {
        return Ok(None);
    }
    let upstream = model::upstream(asked, auto_reply)?;
    model_at(asked, request, upstream, facts).map(Some)
}

/// The model at a service, with its key.
fn model_at(
    asked: &AgentRequest,
    request: &RunRequest,
    upstream: Upstream,
    facts: &Facts<'_>,
) -> Result<Model, Trouble> {
    let take = |variable: &str| facts.keys.key(variable);
    model::prepare(asked, request, upstream, &facts.config.auto_reply, facts.limits, facts.directories, &take)
}

fn files(request: &RunRequest, visible: &[PathBuf], facts: &Facts<'_>) -> Result<FilePlan, Trouble> {
    let opened = Opened {
        work: None,
        read_write: &[],
        read_only: &request.read_only,
        read_only_by: "read_only of [auto_reply.sandbox]:",
        deny: &[],
        visible,
    };
    paths::files(&opened, facts.root, facts.directories, facts.identities.run)
}

/// What stands in the plan until a task comes.
fn placeholder() -> Result<Purpose, Trouble> {
    Ok(Purpose::Command(CommandPlan {
        argv: Vec::new(),
        environment: Vec::new(),
        directory: c_path(Path::new(INSIDE_WORK))?,
        terminal: None,
    }))
}

/// What the turn was decided from, and a change of which may change it: the agent's program where it is and where it would be
/// found first, and the stored key.
pub(super) fn watched(facts: &Facts<'_>, turn: Option<&Turn>) -> Vec<PathBuf> {
    let auto_reply = &facts.config.auto_reply;
    let request = request(facts.config);
    let mut all = Vec::new();
    if let Some(installed) = turn.and_then(|turn| turn.installed.as_ref()) {
        all.push(installed.program.clone());
        all.extend(installed.runtime.clone());
    }
    if auto_reply.backend == Backend::Exec && auto_reply.agent != Agent::Custom && turn.is_none() {
        let places = std::env::split_paths(facts.path).filter(|place| place.is_absolute());
        all.extend(places.map(|place| place.join(auto_reply.agent.as_str())).take(MAX_PLACES));
    }
    let program = auto_reply.command.first().map(PathBuf::from).filter(|program| program.is_absolute());
    all.extend(program.filter(|_| auto_reply.agent == Agent::Custom));
    let upstream = match (auto_reply.backend, &request.agent) {
        (Backend::Openai, _) => model::asked_directly(auto_reply).ok(),
        (Backend::Exec, Some(asked)) => model::upstream(asked, auto_reply).ok(),
        (Backend::Exec, None) => None,
    };
    all.extend(upstream.and_then(|upstream| model::key_file(&upstream, facts.directories)));
    all
}

/// A PATH of more places is looked at up to here.
const MAX_PLACES: usize = 64;

#[cfg(all(test, feature = "auto-reply"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use confine::sys::spawn::Identity;
    use ipc_proto::job::KeySource;

    use super::*;
    use crate::config::parse;
    use crate::credentials::Store;

    /// A host of our own: what is decided must not depend on this machine.
    struct Host {
        place: tempfile::TempDir,
        programs: Found,
    }

    impl Host {
        fn new() -> Host {
            let place = tempfile::tempdir().unwrap();
            let root = place.path().canonicalize().unwrap();
            for name in ["state", "cache", "bin", "home", "tools"] {
                fs::create_dir(root.join(name)).unwrap();
                fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o700)).unwrap();
            }
            let program = |name: &str| c_path(&root.join("bin").join(name)).unwrap();
            let programs = Found {
                supervisor: program("anet-supervisor"),
                launcher: program("anet-launcher"),
                proxy: program("anet-proxy"),
                broker: program("anet-broker"),
                terminal: program("anet-terminal"),
                init: program("anet-init"),
                bwrap: program("bwrap"),
            };
            let host = Host { place, programs };
            host.install("bwrap");
            host
        }

        fn path(&self, name: &str) -> PathBuf {
            self.place.path().canonicalize().unwrap().join(name)
        }

        /// A program in PATH.
        fn install(&self, name: &str) -> PathBuf {
            let path = self.path("bin").join(name);
            fs::write(&path, "\x7fELF and so on").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }

        fn directories(&self) -> Directories {
            Directories {
                configuration: self.path("config"),
                state: self.path("state"),
                cache: self.path("cache"),
                data: self.path("data"),
            }
        }

        fn store(&self, name: &str) {
            Store::open(&self.directories()).unwrap().set(&name.parse().unwrap(), b"key").unwrap();
        }

        fn turn(&self, text: &str) -> Result<(Turn, Option<Model>, Vec<PathBuf>), Trouble> {
            let config = parse(text).unwrap();
            let directories = self.directories();
            let own = Identity {
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            };
            let (path, root, home) = (self.path("bin"), directories.sandboxed(), self.path("home"));
            let facts = Facts {
                config: &config,
                limits: &Limits::untrusted(),
                directories: &directories,
                programs: &self.programs,
                identities: Identities {
                    launcher: None,
                    supervisor: None,
                    proxy: None,
                    broker: None,
                    run: own,
                },
                root: &root,
                path: path.as_os_str(),
                home: Some(&home),
                keys: &Keys::none(),
            };
            let decided = turn(&facts);
            let watched = watched(&facts, decided.as_ref().ok().map(|(turn, _)| turn));
            decided.map(|(turn, model)| (turn, model, watched))
        }

        fn code(&self, text: &str) -> Code {
            self.turn(text).unwrap_err().code
        }
    }

    const CUSTOM: &str = "[auto_reply]\nagent = \"custom\"\ncommand = [\"/bin/sh\"]\n";

    /// MOD-12: a turn of each agent that has its program, its service and its key; the program and the key are watched.
    #[test]
    fn a_turn_is_made_for_each_agent() {
        for (agent, base, credential) in [
            ("claude", "", "anthropic"),
            ("codex", "", "openai"),
            ("opencode", "api_base = \"https://openrouter.ai/api/v1\"\nmodel = \"m\"", "openrouter"),
        ] {
            let host = Host::new();
            let program = host.install(agent);
            host.store(credential);
            let text = format!("[auto_reply]\nagent = \"{agent}\"\n{base}");
            let (turn, model, watched) =
                host.turn(&text).unwrap_or_else(|trouble| panic!("{agent}: {trouble}"));
            assert_eq!(
                turn.installed.as_ref().map(|installed| &installed.program),
                Some(&program),
                "{agent}"
            );
            let job = turn.model.unwrap();
            assert_eq!(job.key, KeySource::Stored(credential.to_owned()), "{agent}");
            assert!(model.unwrap().key.is_some(), "{agent}");
            assert!(turn.plan.endpoints.egress && turn.plan.endpoints.model, "{agent}");
            assert_eq!(turn.plan.files.root, c_path(&host.path("cache/work-sandbox")).unwrap(), "{agent}");
            let shown = c_path(&program).unwrap();
            assert!(turn.plan.files.read_only.contains(&shown), "{agent}: {:?}", turn.plan.files);
            assert_eq!(turn.plan.growth, Limits::untrusted().get(LimitName::Growth), "LIM: {agent}");
            let key = host.path("state/credentials").join(credential);
            assert!(watched.contains(&program) && watched.contains(&key), "{agent}: {watched:?}");
        }
    }

    /// A custom agent needs no model; with a service it has one. Its environment is nobody's: neither the run's name nor
    /// the agent's own variables are in it, and none of the operator's (SBX-6).
    #[test]
    fn a_custom_agents_turn() {
        let host = Host::new();
        let (turn, model, _) = host.turn(CUSTOM).unwrap();
        assert!(model.is_none() && turn.model.is_none() && !turn.plan.endpoints.model);
        assert_eq!(turn.command, ["/bin/sh"]);
        let names: Vec<String> = turn
            .environment
            .iter()
            .map(|entry| entry.to_str().unwrap().split('=').next().unwrap().to_owned())
            .filter(|name| !name.starts_with("LC_") && name != "LANGUAGE")
            .collect();
        assert_eq!(names, ["LANG", "PATH", "HOME", "TMPDIR", "HTTPS_PROXY", "https_proxy"]);
        let local = format!("{CUSTOM}api_base = \"http://127.0.0.1:11434/v1\"\nmodel = \"m\"");
        let (turn, model, _) = host.turn(&local).unwrap();
        assert_eq!(turn.model.unwrap().key, KeySource::None);
        assert!(model.unwrap().key.is_none());
        let (turn, _, _) = host
            .turn(&format!(
                "{CUSTOM}[auto_reply.sandbox]\nread_only = [\"{}\"]",
                host.path("tools").display()
            ))
            .unwrap();
        assert_eq!(turn.plan.files.read_only, [c_path(&host.path("tools")).unwrap()]);
    }

    /// SEL-3: the `openai` backend needs a model and its key, and neither an agent nor bubblewrap.
    #[test]
    fn a_turn_without_a_program() {
        let host = Host::new();
        fs::remove_file(host.path("bin/bwrap")).unwrap();
        let openai = "[auto_reply]\nbackend = \"openai\"\n";
        assert_eq!(host.code(openai), Code::NoApiKey);
        host.store("openai");
        let (turn, model, _) = host.turn(openai).unwrap();
        assert!(turn.installed.is_none() && model.is_some());
        assert_eq!(turn.model.unwrap().upstream.to_string(), "https://api.openai.com/v1");
        let local = format!("{openai}api_base = \"http://127.0.0.1:11434/v1\"\n");
        assert_eq!(host.code(&local), Code::NoModel);
        assert!(host.turn(&format!("{local}model = \"m\"")).is_ok());
    }

    /// DIA-2, SEL-2: what is missing is said by its code, in the order in which it is set up.
    #[test]
    fn what_is_missing_is_named() {
        let host = Host::new();
        let agent = |name: &str, more: &str| format!("[auto_reply]\nagent = \"{name}\"\n{more}");
        let base = "api_base = \"https://openrouter.ai/api/v1\"\n";
        assert_eq!(host.code(&agent("cursor", "")), Code::AgentUnsupported);
        for name in ["opencode", "hermes", "openclaw"] {
            assert_eq!(host.code(&agent(name, "")), Code::NoApiBase, "{name}");
        }
        assert_eq!(host.code(&agent("claude", base)), Code::BadConfig);
        if !["/usr/bin/hermes", "/usr/local/bin/hermes"].iter().any(|path| Path::new(path).exists()) {
            assert_eq!(host.code(&agent("hermes", base)), Code::AgentMissing);
        }
        host.install("opencode");
        assert_eq!(host.code(&agent("opencode", base)), Code::NoModel);
        assert_eq!(host.code(&agent("opencode", &format!("{base}model = \"m\""))), Code::NoApiKey);
        assert_eq!(host.code(&agent("opencode", "api_base = \"http://example.com\"")), Code::BadConfig);
        assert_eq!(host.code("[auto_reply]\nagent = \"custom\""), Code::AgentMissing);
        for program in ["/nowhere/agent", "no-such-agent-anywhere"] {
            let text = format!("[auto_reply]\nagent = \"custom\"\ncommand = [\"{program}\"]");
            assert_eq!(host.code(&text), Code::AgentMissing, "{program}");
        }
        for path in ["/etc", "/nowhere/at/all"] {
            let trouble =
                host.turn(&format!("{CUSTOM}[auto_reply.sandbox]\nread_only = [\"{path}\"]")).unwrap_err();
            assert_eq!(trouble.code, Code::BadConfig, "{path}");
            assert!(trouble.sentence.starts_with("read_only of [auto_reply.sandbox]"), "{trouble}");
        }
        let own = format!("{CUSTOM}[auto_reply.sandbox]\nread_only = [\"{}\"]", host.path("state").display());
        assert_eq!(host.code(&own), Code::BadConfig, "FS-1: never our own state");
        fs::remove_file(host.path("bin/bwrap")).unwrap();
        assert_eq!(host.code(CUSTOM), Code::NoBwrap);
    }
}
