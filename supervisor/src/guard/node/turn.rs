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
use crate::agents::Installed;
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
    pub(super) keys: &'a Keys,
}

/// The turn, and its model with the key. Checked in the order in which an operator would set it up: the service, the agent's
/// program, the model, the key; and before that what any run needs.
///
/// # Errors
/// What is missing, by its code.
pub(super) fn turn(facts: &Facts<'_>) -> Result<(Turn, Option<Model>), Trouble> {
    let request = request(facts.config);
    let auto_reply = &facts.config.auto_reply;
    let (installed, model) = match (&request.agent, auto_reply.backend) {
        (Some(asked), Backend::Openai) => {
            let upstream = model::asked_directly(auto_reply)?;
            (None, Some(model_at(asked, &request, upstream, facts)?))
        }
        (Some(asked), Backend::Exec) => {
            programs::check_bwrap()?;
            (installed(asked, &request, facts)?, model_of(asked, &request, facts)?)
        }
        (None, Backend::Openai | Backend::Exec) => (None, None),
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
fn installed(
    asked: &AgentRequest,
    request: &RunRequest,
    facts: &Facts<'_>,
) -> Result<Option<Installed>, Trouble> {
    let auto_reply = &facts.config.auto_reply;
    if asked.agent == Agent::Custom {
        check_command(auto_reply)?;
        return Ok(None);
    }
    // The service comes first: without one there is no need to install anything.
    model::upstream(asked, auto_reply)?;
    let installed = agent::find(asked, request, auto_reply)?;
    if let Some(installed) = &installed {
        agent::check_reachable(installed, facts.identities.run)?;
        agent::check_narrow(installed, None)?;
    }
    Ok(installed)
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
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = std::env::split_paths(&path).filter(|place| place.is_absolute());
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
