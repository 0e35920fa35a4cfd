//! From what was asked for to what is started: every path, number and name checked, before any process is.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ipc_proto::init::{CommandPlan, ProbePlan, Purpose, TerminalPlan};
use ipc_proto::job::{AnswerJob, Budget, Job, ProbeJob};
use ipc_proto::launcher::{Endpoints, FilePlan, INSIDE_WORK, LaunchPlan, Programs, WorkDirectory};
use ipc_proto::limits::{LimitName, Limits};
use ipc_proto::{Code, RunId};

use super::agent::{self, Pipe, Setting};
use super::bounds::{bounds, check_output_tokens, refuse_the_model_service};
use super::environment::environment;
use super::ground::Ground;
use super::identity::{self, Identities};
use super::model::{self, Model};
use super::open::{chance, duplicate, new_run, open_null, operators, system};
use super::paths::{self, Opened, work_directory};
use super::probe::Listeners;
use super::programs::{self, Found, c_path};
use super::record::RecordFile;
use super::request::RunRequest;
use super::terminal::{self, Joined};
use super::{Directories, configuration, probe};
use crate::config::Config;
use crate::error::Trouble;

/// Everything that starting takes.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) job: Job,
    pub(super) ground: Ground,
    pub(super) chain: File,
    pub(super) record: Option<RecordFile>,
    pub(super) probe_cache: Option<File>,
    pub(super) log: File,
    /// What becomes 0, 1 and 2 of the command.
    pub(super) stdio: [OwnedFd; 3],
    pub(super) terminal: Option<Joined>,
    /// The model that the run reaches, if it reaches one.
    pub(super) model: Option<Model>,
    /// Where the agent's answer is read, and where it goes.
    pub(super) answer: Option<(OwnedFd, File)>,
    /// Open while the probe tries to reach them.
    pub(super) listeners: Option<Listeners>,
    /// Memory or tasks are limited.
    pub(super) wants_control_group: bool,
}

/// Prepares one run.
pub(super) fn prepare(request: &RunRequest) -> Result<Prepared, Trouble> {
    let directories = Directories::find()?;
    let (config, config_text) = configuration(&directories, request.configuration.as_deref())?;
    let programs = programs::find()?;
    let work = work_directory(&request.work)?;
    let identities = identity::decide(work.as_deref(), &request.read_write)?;
    let (mut limits, budget) = bounds(request, &config);
    check_output_tokens(request, &limits)?;
    let directory = work.as_deref().unwrap_or(Path::new(INSIDE_WORK));
    let (model, mut setting) =
        model_access(request, &config, &limits, &directories, identities, work.as_deref())?;
    refuse_the_model_service(request, &config, model.as_ref())?;
    let root = directories.make_runs(identities.run)?;
    directories.make_chains()?;
    let opened = Opened {
        work: work.as_deref(),
        read_write: &request.read_write,
        read_only: &request.read_only,
        read_only_by: "--ro",
        deny: &request.deny,
        visible: &setting.visible,
    };
    let files = paths::files(&opened, &root, &directories, identities.run)?;
    if let Some(model) = &model {
        // MOD-3: it holds for every run with a model, so that the record says it.
        limits.set(LimitName::OutputTokens, model.job.policy.output_tokens);
    }
    let (run, started) = new_run()?;
    let null = open_null()?;
    let (format, pipe) = setting.answer.take().unzip();
    let (reader, writer) = pipe.map(|Pipe { reader, writer }| (reader, writer)).unzip();
    let (terminal, stdio) = terminal::join(request.terminal, &null, [setting.input.take(), writer, None])?;
    let answer = reader.map(|reader| Ok((reader, operators(rustix::stdio::stdout())?))).transpose()?;
    let mode = terminal.as_ref().map(|joined| joined.mode);
    let pseudo = mode.filter(|mode| mode.run.contains(&true));
    let argv = setting.argv.take().unwrap_or_else(|| request.command.clone());
    let name = match (&request.agent, request.command.is_empty()) {
        (Some(asked), true) => asked.agent.as_str().to_owned(),
        (Some(_) | None, _) => agent_name(&argv),
    };
    let command = CommandPlan {
        argv,
        environment: environment(request, &setting, Some(run), pseudo.is_some())?,
        directory: c_path(directory)?,
        terminal: pseudo.map(|mode| TerminalPlan {
            stdio: mode.run,
            size: mode.size,
            // Where the operator's own terminal stays in its line mode it echoes already.
            echo: mode.raw || !mode.operator.contains(&true),
        }),
    };
    let mut plan = launch_plan(run, Purpose::Command(command), files, &programs);
    plan.endpoints.model = model.is_some();
    plan.home = setting.home;
    plan.growth = limits.get(LimitName::Growth);
    plan.memory = limits.get(LimitName::Memory);
    plan.tasks = limits.get(LimitName::Tasks);
    let wants_control_group = plan.memory.is_some() || plan.tasks.is_some();
    let chains = directories.make_chains()?;
    let key = probe::key(&programs, identities.run.uid, &config_text)?;
    let probed = probe::open(&directories, identities.run.uid, &key)?;
    let record = request.record.as_deref().map(RecordFile::open).transpose()?;
    let (probe, listeners) = if probed.good.is_some() { (None, None) } else { probe_job(key, started)? };
    let job = Job {
        run,
        started,
        agent: name,
        user: identities.run.uid,
        operator: rustix::process::getuid().as_raw(),
        plan,
        hosts: request.hosts.clone(),
        limits,
        budget,
        probe,
        warnings: Vec::new(),
        record: record.is_some(),
        control_group: false,
        model: model.as_ref().map(|model| model.job.clone()),
        answer: format.map(|format| AnswerJob {
            format,
            to_terminal: rustix::termios::isatty(rustix::stdio::stdout()),
        }),
        terminal: mode,
        quiet: request.quiet,
        probe_only: false,
    };
    Ok(Prepared {
        job,
        ground: Ground {
            programs,
            identities,
            chatter: if request.verbose {
                operators(rustix::stdio::stderr())?
            } else {
                File::from(duplicate(&null)?)
            },
            null,
        },
        chain: new_chain(&chains, run)?,
        record,
        probe_cache: Some(probed.file),
        log: operators(rustix::stdio::stderr())?,
        stdio,
        terminal,
        model,
        answer,
        listeners,
        wants_control_group,
    })
}

/// Prepares the probe alone.
pub(super) fn prepare_check(named: Option<&Path>) -> Result<Prepared, Trouble> {
    let directories = Directories::find()?;
    let (_, config_text) = configuration(&directories, named)?;
    let programs = programs::find()?;
    let identities = identity::decide(None, &[])?;
    let (run, started) = new_run()?;
    let null = open_null()?;
    let files = FilePlan {
        root: c_path(&directories.make_runs(identities.run)?)?,
        work: WorkDirectory::Fresh,
        read_write: Vec::new(),
        read_only: Vec::new(),
        deny: Vec::new(),
        masked: Vec::new(),
    };
    let key = probe::key(&programs, identities.run.uid, &config_text)?;
    let probed = probe::open(&directories, identities.run.uid, &key)?;
    let (probe, listeners) = probe_job(key, started)?;
    let nothing =
        Purpose::Probe(ProbePlan { tcp: Vec::new(), abstract_sockets: Vec::new(), outside: Vec::new() });
    let dup = || duplicate(&null);
    let job = Job {
        run,
        started,
        agent: "doctor".to_owned(),
        user: identities.run.uid,
        operator: rustix::process::getuid().as_raw(),
        plan: launch_plan(run, nothing, files, &programs),
        hosts: Vec::new(),
        limits: Limits::none(),
        budget: Budget::default(),
        probe,
        warnings: Vec::new(),
        record: false,
        control_group: false,
        model: None,
        answer: None,
        terminal: None,
        quiet: true,
        probe_only: true,
    };
    Ok(Prepared {
        job,
        chain: File::from(dup()?),
        record: None,
        probe_cache: Some(probed.file),
        log: probe::log_memory()?,
        stdio: [dup()?, dup()?, dup()?],
        terminal: None,
        ground: Ground { programs, identities, chatter: File::from(dup()?), null },
        model: None,
        answer: None,
        listeners,
        wants_control_group: false,
    })
}

impl Prepared {
    /// The memory that a check's processes write their troubles to.
    pub(super) fn log_memory(&self) -> Result<File, Trouble> {
        self.log.try_clone().map_err(|error| system("a descriptor", &error))
    }
}

fn probe_job(key: String, started: u64) -> Result<(Option<ProbeJob>, Option<Listeners>), Trouble> {
    let listeners = Listeners::open()?;
    let plan = listeners.plan(probe::namespaces()?);
    let run = RunId::new(started, chance()?);
    Ok((Some(ProbeJob { run, plan, key }), Some(listeners)))
}

pub(super) fn launch_plan(run: RunId, purpose: Purpose, files: FilePlan, programs: &Found) -> LaunchPlan {
    LaunchPlan {
        run,
        purpose,
        endpoints: Endpoints { egress: true, model: false },
        home: Vec::new(),
        files,
        growth: None,
        memory: None,
        tasks: None,
        programs: Programs { bwrap: programs.bwrap.clone(), init: programs.init.clone() },
    }
}

/// The model that a run reaches and what its agent adds, checked in the order in which an operator would set it up: the
/// service, the agent's program, the model, the key.
fn model_access(
    request: &RunRequest,
    config: &Config,
    limits: &Limits,
    directories: &Directories,
    identities: Identities,
    work: Option<&Path>,
) -> Result<(Option<Model>, Setting), Trouble> {
    let Some(asked) = &request.agent else { return Ok((None, Setting::default())) };
    let auto_reply = &config.auto_reply;
    let upstream = model::upstream(asked, auto_reply)?;
    let installed = agent::find(asked, request, auto_reply)?;
    if let Some(installed) = &installed {
        agent::check_reachable(installed, identities.run)?;
        agent::check_narrow(installed, work)?;
    }
    let directory = work.unwrap_or(Path::new(INSIDE_WORK));
    let model =
        model::prepare(asked, request, upstream, auto_reply, limits, directories, &model::take_variable)?;
    let setting =
        agent::setting(asked, request, installed.as_ref(), &model.job.policy, auto_reply, directory)?;
    Ok((Some(model), setting))
}

fn agent_name(command: &[CString]) -> String {
    let first = command.first().map(|word| word.to_bytes()).unwrap_or_default();
    let name = first.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    crate::error::one_line(&String::from_utf8_lossy(name.get(..64).unwrap_or(name)))
}

fn new_chain(chains: &Path, run: RunId) -> Result<File, Trouble> {
    let path = chains.join(format!("{run}.jsonl"));
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path).map_err(|error| {
        Trouble::new(
            Code::StateUnusable,
            format!("{} cannot be made ({error}); see the free space and the rights there", path.display()),
        )
    })
}
