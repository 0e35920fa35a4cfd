//! From what was asked for to what is started: every path, number and name checked, before any process is.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ipc_proto::init::{CommandPlan, EGRESS_PORT, ProbePlan, Purpose, TerminalPlan};
use ipc_proto::job::{Budget, Job, ProbeJob};
use ipc_proto::launcher::{
    Endpoints, FilePlan, INSIDE_HOME, INSIDE_PATH, INSIDE_TEMPORARY, INSIDE_WORK, LaunchPlan, Programs,
    WorkDirectory,
};
use ipc_proto::limits::{LimitName, Limits};
use ipc_proto::{Code, RunId};

use super::identity::{self, Identities};
use super::probe::Listeners;
use super::programs::{self, Found, c_path};
use super::request::{EnvOption, RunRequest, Work};
use super::terminal::{self, Joined};
use super::{Directories, configuration, probe};
use crate::config::Config;
use crate::error::Trouble;

/// Directories that are never opened as a whole: the system's, which the run has in its own way, and those where other
/// programs of this host keep sockets.
const NEVER_NAMED: [&str; 17] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin",
    "/sys", "/tmp", "/usr", "/var", "/var/tmp",
];
/// Below these nothing is opened either.
const NEVER_BELOW: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
/// Variables that pass from the operator: the locale.
const LOCALE: [&str; 13] = [
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_COLLATE",
    "LC_MESSAGES",
    "LC_NUMERIC",
    "LC_TIME",
    "LC_MONETARY",
    "LC_PAPER",
    "LC_NAME",
    "LC_ADDRESS",
    "LC_MEASUREMENT",
];
/// Variables that are anet's to set.
const RESERVED: [&str; 4] = ["ANET_RUN", "ANET_MODEL_URL", "HTTPS_PROXY", "https_proxy"];

/// Everything that starting takes.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) job: Job,
    pub(super) programs: Found,
    pub(super) identities: Identities,
    pub(super) chain: File,
    pub(super) record: Option<File>,
    pub(super) probe_cache: Option<File>,
    pub(super) log: File,
    /// What becomes 0, 1 and 2 of the command.
    pub(super) stdio: [OwnedFd; 3],
    pub(super) terminal: Option<Joined>,
    pub(super) null: OwnedFd,
    /// Open while the probe tries to reach them.
    pub(super) _listeners: Option<Listeners>,
    /// A result that still holds (`anet doctor`).
    pub(super) checked_before: Option<SystemTime>,
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
    refuse_the_model_service(request, &config)?;
    let files = files(request, work.as_deref(), &directories, identities)?;
    let (limits, budget) = bounds(request, &config);
    let (run, started) = new_run()?;
    let null = open_null()?;
    let (terminal, stdio) = terminal::join(request.terminal, &null)?;
    let mode = terminal.as_ref().map(|joined| joined.mode);
    let pseudo = mode.filter(|mode| mode.run.contains(&true));
    let command = CommandPlan {
        argv: request.command.clone(),
        environment: environment(request, run, pseudo.is_some())?,
        directory: work.as_deref().map_or_else(|| Ok(inside(INSIDE_WORK)), c_path)?,
        terminal: pseudo.map(|mode| TerminalPlan {
            stdio: mode.run,
            size: mode.size,
            // Where the operator's own terminal stays in its line mode it echoes already.
            echo: mode.raw || !mode.operator.contains(&true),
        }),
    };
    let mut plan = launch_plan(run, Purpose::Command(command), files, &programs);
    plan.growth = limits.get(LimitName::Growth);
    plan.memory = limits.get(LimitName::Memory);
    plan.tasks = limits.get(LimitName::Tasks);
    let wants_control_group = plan.memory.is_some() || plan.tasks.is_some();
    let chains = directories.make_chains()?;
    let key = probe::key(&programs, identities.run.uid, &config_text)?;
    let probed = probe::open(&directories, identities.run.uid, &key, false)?;
    let record = request.record.as_deref().map(open_record).transpose()?;
    let (probe, listeners) = match probed.valid {
        Some(_) => (None, None),
        None => probe_job(key, started)?,
    };
    let job = Job {
        run,
        started,
        agent: agent_name(&request.command),
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
        terminal: mode,
        quiet: request.quiet,
        probe_only: false,
    };
    Ok(Prepared {
        job,
        programs,
        identities,
        chain: new_chain(&chains, run)?,
        record,
        probe_cache: Some(probed.file),
        log: errors_of_the_operator()?,
        stdio,
        terminal,
        null,
        _listeners: listeners,
        checked_before: None,
        wants_control_group,
    })
}

/// Prepares the probe alone.
pub(super) fn prepare_check(named: Option<&Path>, fresh: bool) -> Result<Prepared, Trouble> {
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
    let probed = probe::open(&directories, identities.run.uid, &key, fresh)?;
    let (probe, listeners) = probe_job(key, started)?;
    let nothing =
        Purpose::Probe(ProbePlan { tcp: Vec::new(), abstract_sockets: Vec::new(), outside: Vec::new() });
    let dup = || null.try_clone().map_err(|error| system("a descriptor", &error));
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
        terminal: None,
        quiet: true,
        probe_only: true,
    };
    Ok(Prepared {
        job,
        programs,
        identities,
        chain: File::from(dup()?),
        record: None,
        probe_cache: Some(probed.file),
        log: probe::log_memory()?,
        stdio: [dup()?, dup()?, dup()?],
        terminal: None,
        null,
        _listeners: listeners,
        checked_before: probed.valid,
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
    let outside = probe::namespaces()?;
    let plan = listeners.plan(&outside);
    let run = RunId::new(started, chance()?);
    Ok((Some(ProbeJob { run, plan, key, outside }), Some(listeners)))
}

fn launch_plan(run: RunId, purpose: Purpose, files: FilePlan, programs: &Found) -> LaunchPlan {
    LaunchPlan {
        run,
        purpose,
        endpoints: Endpoints { egress: true, model: false },
        files,
        growth: None,
        memory: None,
        tasks: None,
        programs: Programs { bwrap: programs.bwrap.clone(), init: programs.init.clone() },
    }
}

// ---- bounds ----------------------------------------------------------------------------------------------------

/// Limits and budgets: none for the operator's own command but those that are named; all of them with `--untrusted`,
/// where the configuration and then the options stand above the defaults.
fn bounds(request: &RunRequest, config: &Config) -> (Limits, Budget) {
    let mut limits = Limits::none();
    let mut budget = Budget::default();
    if request.untrusted {
        limits = Limits::untrusted();
        limits.set(LimitName::WallClock, config.auto_reply.api_timeout_seconds.saturating_mul(1000));
        for (name, value) in config.auto_reply.sandbox.limits.values() {
            limits.set(name, value);
        }
    }
    for (name, value) in &request.limits {
        limits.set(*name, *value);
    }
    if let Some(timeout) = request.timeout {
        limits.set(LimitName::WallClock, u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    }
    if request.untrusted {
        let table = &config.auto_reply.sandbox.budget;
        let usual = Budget::untrusted(limits.get(LimitName::WallClock));
        budget = Budget {
            destinations: table.destinations.or(usual.destinations),
            bytes_out: table.bytes_out.map(|size| size.0).or(usual.bytes_out),
            window: table.window.map(|time| time.0).or(usual.window),
        };
    }
    budget.destinations = request.budget_destinations.or(budget.destinations);
    budget.bytes_out = request.budget_bytes_out.or(budget.bytes_out);
    budget.window = request.budget_window.or(budget.window);
    (limits, budget)
}

/// EGR-2: the service that is configured as the model's is no host to tunnel to, whatever its name.
fn refuse_the_model_service(request: &RunRequest, config: &Config) -> Result<(), Trouble> {
    let base = config.auto_reply.api_base.as_str();
    let authority =
        base.split_once("://").map_or(base, |(_, rest)| rest).split('/').next().unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).to_ascii_lowercase();
    match request.hosts.iter().find(|allowed| allowed.as_str() == host) {
        Some(allowed) => Err(Trouble::new(
            Code::BadHost,
            format!("--allow {allowed}: {}", ipc_proto::host::HostError::ModelService),
        )),
        None => Ok(()),
    }
}

// ---- paths -----------------------------------------------------------------------------------------------------

fn work_directory(work: &Work) -> Result<Option<PathBuf>, Trouble> {
    let (path, option) = match work {
        Work::Fresh => return Ok(None),
        Work::Here => (PathBuf::from("."), "--here"),
        Work::Directory(path) => (path.clone(), "--work"),
    };
    let resolved = resolve(&path, option)?;
    if !resolved.is_dir() {
        return Err(bad_path(option, &path, "it is not a directory; give one"));
    }
    Ok(Some(resolved))
}

fn files(
    request: &RunRequest,
    work: Option<&Path>,
    directories: &Directories,
    identities: Identities,
) -> Result<FilePlan, Trouble> {
    let masked = masked(directories);
    let open = |option: &'static str, paths: &[PathBuf]| -> Result<Vec<CString>, Trouble> {
        paths
            .iter()
            .map(|path| {
                let resolved = resolve(path, option)?;
                refuse_masked(option, &resolved, &masked)?;
                c_path(&resolved)
            })
            .collect()
    };
    if let Some(work) = work {
        refuse_masked("--here or --work", work, &masked)?;
    }
    let deny = request.deny.iter().map(|path| absolute(path, "--deny").and_then(|path| c_path(&path)));
    Ok(FilePlan {
        root: c_path(&directories.make_runs(identities.run)?)?,
        work: work.map_or(Ok(WorkDirectory::Fresh), |path| c_path(path).map(WorkDirectory::Named))?,
        read_write: open("--rw", &request.read_write)?,
        read_only: open("--ro", &request.read_only)?,
        deny: deny.collect::<Result<_, _>>()?,
        masked: within_opened(&masked, request, work).map(|path| c_path(path)).collect::<Result<_, _>>()?,
    })
}

/// Those of our places that an opened path would show; the others are not in the sandbox anyway.
fn within_opened<'a>(
    masked: &'a [PathBuf],
    request: &RunRequest,
    work: Option<&Path>,
) -> impl Iterator<Item = &'a PathBuf> {
    let named =
        request.read_write.iter().chain(&request.read_only).filter_map(|path| path.canonicalize().ok());
    let opened: Vec<PathBuf> = named.chain(work.map(Path::to_path_buf)).collect();
    masked.iter().filter(move |own| opened.iter().any(|opened| own.starts_with(opened)))
}

/// anet's own places, those of a service on this host included.
fn masked(directories: &Directories) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        ["/etc/anet", "/var/lib/anet", "/var/cache/anet", "/run/anet"].map(Into::into).into();
    all.extend([&directories.configuration, &directories.state, &directories.cache].map(Clone::clone));
    // A link among them must not lead around the mask.
    let mut resolved: Vec<PathBuf> = all.iter().filter_map(|path| path.canonicalize().ok()).collect();
    resolved.sort();
    resolved.dedup();
    resolved
}

fn refuse_masked(option: &str, path: &Path, masked: &[PathBuf]) -> Result<(), Trouble> {
    match masked.iter().find(|own| path.starts_with(own)) {
        Some(_) => {
            Err(bad_path(option, path, "anet's own configuration, state and credentials are never opened"))
        }
        None => Ok(()),
    }
}

/// A path that exists, without links, that may be opened by name.
fn resolve(path: &Path, option: &str) -> Result<PathBuf, Trouble> {
    let resolved = path.canonicalize().map_err(|error| bad_path(option, path, &error.to_string()))?;
    if NEVER_NAMED.iter().any(|never| resolved == Path::new(never)) {
        let why = "it holds the system or other programs' sockets; name a directory within it";
        return Err(bad_path(option, path, why));
    }
    if NEVER_BELOW.iter().any(|never| resolved.starts_with(never)) {
        return Err(bad_path(option, path, "nothing below /proc, /sys, /dev and /run of the host is opened"));
    }
    if Path::new(INSIDE_HOME).starts_with(&resolved) {
        return Err(bad_path(
            option,
            path,
            "the run's own home stands at this name; use a directory within it",
        ));
    }
    Ok(resolved)
}

/// A path that need not exist, in one spelling.
fn absolute(path: &Path, option: &str) -> Result<PathBuf, Trouble> {
    if let Ok(resolved) = path.canonicalize() {
        return Ok(resolved);
    }
    let absolute = std::path::absolute(path).map_err(|error| bad_path(option, path, &error.to_string()))?;
    let parent = absolute.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, absolute.file_name()) {
        (Some(parent), Some(name)) if name != OsStr::new("..") => Ok(parent.join(name)),
        (Some(_) | None, Some(_) | None) => {
            Err(bad_path(option, path, "neither it nor the directory that it would be in exists"))
        }
    }
}

fn bad_path(option: &str, path: &Path, why: &str) -> Trouble {
    Trouble::new(Code::BadPath, format!("{option} {}: {why}", path.display()))
}

// ---- environment -----------------------------------------------------------------------------------------------

/// The whole environment of the command (SBX-6), built from nothing.
fn environment(request: &RunRequest, run: RunId, terminal: bool) -> Result<Vec<CString>, Trouble> {
    let mut variables: Vec<(String, Vec<u8>)> = Vec::new();
    let mut set = |name: &str, value: Vec<u8>| {
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_owned(), value));
    };
    set("LANG", b"C.UTF-8".to_vec());
    for name in LOCALE {
        if let Some(value) = std::env::var_os(name).filter(|value| is_plain(value)) {
            set(name, value.as_bytes().to_vec());
        }
    }
    set("PATH", INSIDE_PATH.into());
    set("HOME", INSIDE_HOME.into());
    set("TMPDIR", INSIDE_TEMPORARY.into());
    if terminal {
        let kind = std::env::var_os("TERM").filter(|value| is_plain(value)).unwrap_or_else(|| "dumb".into());
        set("TERM", kind.as_bytes().to_vec());
    }
    for option in &request.environment {
        let (name, value) = match option {
            EnvOption::Set(name, value) => (name, Some(value.clone())),
            EnvOption::Pass(name) => (name, std::env::var_os(name).map(|value| value.as_bytes().to_vec())),
        };
        if RESERVED.contains(&name.as_str()) {
            return Err(Trouble::new(
                Code::BadOption,
                format!("--env {name}: anet sets this variable itself"),
            ));
        }
        let Some(value) = value else {
            return Err(Trouble::new(
                Code::BadOption,
                format!("--env {name}: there is no such variable here; set it, or give --env {name}=VALUE"),
            ));
        };
        set(name, value);
    }
    set("ANET_RUN", run.to_string().into_bytes());
    let proxy = format!("http://127.0.0.1:{EGRESS_PORT}");
    set("HTTPS_PROXY", proxy.clone().into_bytes());
    set("https_proxy", proxy.into_bytes());
    variables
        .into_iter()
        .map(|(name, mut value)| {
            let mut entry = name.clone().into_bytes();
            entry.push(b'=');
            entry.append(&mut value);
            CString::new(entry)
                .map_err(|_| Trouble::new(Code::BadOption, format!("--env {name}: a value with a NUL byte")))
        })
        .collect()
}

/// A locale or terminal name: nothing that could be a path or a program's own syntax.
fn is_plain(value: &OsStr) -> bool {
    let bytes = value.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= 64
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.-@+:".contains(byte))
}

fn agent_name(command: &[CString]) -> String {
    let first = command.first().map(|word| word.to_bytes()).unwrap_or_default();
    let name = first.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    crate::error::one_line(&String::from_utf8_lossy(name.get(..64).unwrap_or(name)))
}

// ---- files -----------------------------------------------------------------------------------------------------

fn inside(path: &str) -> CString {
    CString::new(path).unwrap_or_default()
}

fn new_run() -> Result<(RunId, u64), Trouble> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let started = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    Ok((RunId::new(started, chance()?), started))
}

fn chance() -> Result<[u8; 4], Trouble> {
    let mut bytes = [0u8; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => Ok(bytes),
        Ok(_) | Err(_) => {
            Err(Trouble::new(Code::ProcessDied, "the kernel gives no random numbers; nothing is started"))
        }
    }
}

fn open_null() -> Result<OwnedFd, Trouble> {
    let file = OpenOptions::new().read(true).write(true).open("/dev/null");
    Ok(file.map_err(|error| system("/dev/null", &error))?.into())
}

/// Where the operator reads errors.
fn errors_of_the_operator() -> Result<File, Trouble> {
    rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3).map(File::from).map_err(|errno| {
        Trouble::new(Code::BadOption, format!("standard error is closed ({errno}); open it"))
    })
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

fn open_record(path: &Path) -> Result<File, Trouble> {
    // Not cut here: an older record stays whole until there is a new one.
    OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(|error| {
        Trouble::new(
            Code::BadPath,
            format!("--record {}: {error}; give a file that can be written", path.display()),
        )
    })
}

pub(super) fn system(what: &str, error: &std::io::Error) -> Trouble {
    Trouble::new(
        Code::ProcessDied,
        format!("{what} cannot be opened ({error}); see the limits on open files"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RunRequest {
        RunRequest {
            configuration: None,
            command: vec![c"true".into()],
            work: Work::Fresh,
            read_write: vec![],
            read_only: vec![],
            deny: vec![],
            environment: vec![],
            hosts: vec![],
            timeout: None,
            untrusted: false,
            limits: vec![],
            budget_destinations: None,
            budget_bytes_out: None,
            budget_window: None,
            record: None,
            terminal: super::super::TerminalChoice::Auto,
            quiet: false,
        }
    }

    /// LIM: a plain run has only what is named; an untrusted one all, and options stand above.
    #[test]
    fn limits_are_those_that_were_asked_for() {
        let mut request = request();
        let config = Config::default();
        assert_eq!(bounds(&request, &config), (Limits::none(), Budget::default()));
        request.untrusted = true;
        request.limits = vec![(LimitName::TunnelsOpen, 3)];
        let (limits, budget) = bounds(&request, &config);
        assert_eq!(limits.get(LimitName::TunnelsOpen), Some(3));
        assert_eq!(limits.get(LimitName::TunnelsTotal), Some(256));
        assert_eq!(limits.get(LimitName::WallClock), Some(180_000));
        assert_eq!(
            (budget.destinations, budget.bytes_out, budget.window),
            (Some(16), Some(33_554_432), Some(180_000))
        );
    }

    /// SBX-6: nothing of the operator's environment but the locale, and nobody sets what is anet's.
    #[test]
    fn the_environment_is_built_from_nothing() {
        let mut request = request();
        request.environment =
            vec![EnvOption::Set("A".into(), b"1".to_vec()), EnvOption::Set("A".into(), b"2".to_vec())];
        let run = RunId::new(1, [0; 4]);
        let names: Vec<String> = environment(&request, run, false)
            .unwrap()
            .iter()
            .map(|entry| entry.to_str().unwrap().to_owned())
            .filter(|entry| !entry.starts_with("LANG") && !entry.starts_with("LC_"))
            .collect();
        assert_eq!(
            names,
            [
                "PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
                "HOME=/home/anet".into(),
                "TMPDIR=/tmp".into(),
                "A=2".into(),
                format!("ANET_RUN={run}"),
                "HTTPS_PROXY=http://127.0.0.1:61080".into(),
                "https_proxy=http://127.0.0.1:61080".into(),
            ]
        );
        request.environment = vec![EnvOption::Set("https_proxy".into(), b"x".to_vec())];
        assert_eq!(environment(&request, run, false).unwrap_err().code, Code::BadOption);
    }

    /// FS-1, FS-4: what is never opened, however it is spelt.
    #[test]
    fn system_directories_and_our_own_are_never_named() {
        for path in ["/", "/usr/../etc", "/proc/self", "/dev/shm", "/tmp", "/run"] {
            assert_eq!(resolve(Path::new(path), "--rw").unwrap_err().code, Code::BadPath, "{path}");
        }
        assert!(resolve(Path::new("/nowhere/at/all"), "--rw").is_err());
        let masked = vec![PathBuf::from("/home/a/.config/anet")];
        assert!(refuse_masked("--rw", Path::new("/home/a/.config/anet/x"), &masked).is_err());
        assert!(refuse_masked("--rw", Path::new("/home/a/.config"), &masked).is_ok());
    }
}
