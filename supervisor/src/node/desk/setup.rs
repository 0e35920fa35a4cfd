//! From a task and what the node was started with to the job of one run.

use std::ffi::CString;
use std::path::Path;

use ipc_proto::init::{CommandPlan, MODEL_PORT, Purpose};
use ipc_proto::job::{AnswerFormat, Job};
use ipc_proto::launcher::{HomeFile, INSIDE_WORK, WorkDirectory};
use ipc_proto::limits::LimitName;
use ipc_proto::{Code, RunId};

use super::job::{NodeJob, Turn};
use crate::agents::{self, Setup, Start, Stdin};
use crate::error::Trouble;

/// One run, ready to be started.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) job: Job,
    /// What the agent's standard input is.
    pub(super) input: Vec<u8>,
    pub(super) format: AnswerFormat,
}

/// The job of a run in the sandbox.
///
/// # Errors
/// A task that this agent cannot take.
pub(super) fn sandboxed(
    node: &NodeJob,
    turn: &Turn,
    run: RunId,
    started: u64,
    work: WorkDirectory,
    task: &[u8],
) -> Result<Prepared, Trouble> {
    let url = format!("http://127.0.0.1:{MODEL_PORT}");
    let agent = node.policy.agent;
    let mut environment = turn.environment.clone();
    let mut home: Vec<HomeFile> = Vec::new();
    let mut set = |name: &str, value: &str| -> Result<(), Trouble> {
        environment.push(variable(name, value)?);
        Ok(())
    };
    let start: Start = match &turn.model {
        Some(model) => {
            let setup = Setup {
                model: model.policy.model.as_str(),
                model_url: &url,
                output_tokens: model.policy.output_tokens,
                directory: Path::new(INSIDE_WORK),
            };
            for (name, value) in agents::environment(agent, &setup) {
                set(&name, &value)?;
            }
            set("ANET_MODEL_URL", &url)?;
            home.extend(home_files(agents::home_files(agent, &setup))?);
            match &turn.installed {
                Some(installed) => agents::start(installed, &setup, task)?,
                None => agents::start_custom(&turn.command, task)?,
            }
        }
        None => agents::start_custom(&turn.command, task)?,
    };
    set("ANET_RUN", &run.to_string())?;
    home.extend(home_files(start.files)?);
    let input = match start.stdin {
        Stdin::Task => [start.before_task, task].concat(),
        Stdin::Nothing => Vec::new(),
    };
    let mut job = job(node, turn, run, started);
    job.plan.endpoints.model = turn.model.is_some();
    job.plan.purpose = Purpose::Command(CommandPlan {
        argv: start.argv,
        environment,
        directory: CString::new(INSIDE_WORK).unwrap_or_default(),
        terminal: None,
    });
    job.plan.home = home;
    job.plan.files.work = work;
    job.plan.growth = job.limits.get(LimitName::Growth);
    job.plan.memory = None;
    job.plan.tasks = None;
    job.model.clone_from(&turn.model);
    Ok(Prepared { job, input, format: start.answer })
}

/// The job of a run in which the node itself asks the model.
pub(super) fn asking(node: &NodeJob, turn: &Turn, run: RunId, started: u64) -> Job {
    let mut job = job(node, turn, run, started);
    "openai".clone_into(&mut job.agent);
    job.model.clone_from(&turn.model);
    job.hosts.clear();
    job
}

/// What every run of a node has.
fn job(node: &NodeJob, turn: &Turn, run: RunId, started: u64) -> Job {
    let policy = &node.policy;
    let mut limits = policy.limits.clone();
    let mut warnings = Vec::new();
    // Without a control group they do not hold, and are not among what does (LIM-2).
    for name in [LimitName::Memory, LimitName::Tasks] {
        if limits.get(name).is_some() {
            limits.remove(name);
            warnings = vec![Code::NoCgroupLimits];
        }
    }
    let mut plan = turn.plan.clone();
    plan.run = run;
    Job {
        run,
        started,
        agent: policy.agent.as_str().to_owned(),
        user: node.user,
        operator: node.operator,
        plan,
        hosts: policy.hosts.clone(),
        limits,
        budget: policy.budget,
        probe: None,
        warnings,
        record: false,
        control_group: false,
        model: None,
        answer: None,
        terminal: None,
        quiet: true,
        probe_only: false,
    }
}

fn variable(name: &str, value: &str) -> Result<CString, Trouble> {
    CString::new(format!("{name}={value}"))
        .map_err(|_| Trouble::new(Code::BadConfig, format!("{name}: a value with a NUL byte")))
}

fn home_files(files: Vec<agents::HomeFile>) -> Result<Vec<HomeFile>, Trouble> {
    let convert = |file: agents::HomeFile| {
        let path = CString::new(file.path).map_err(|_| {
            Trouble::new(Code::BadPath, "a file of an agent's home has a NUL byte in its name")
        })?;
        Ok(HomeFile { path, contents: file.contents, executable: false })
    };
    files.into_iter().map(convert).collect()
}
