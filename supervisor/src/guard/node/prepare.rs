//! From the configuration and the host to what a life of the node is started with.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ipc_proto::Code;
use ipc_proto::broker::BrokerPlan;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use super::super::directories::unusable;
use super::super::ground::Ground;
use super::super::identity::{self, Identities};
use super::super::model::Model;
use super::super::open::{duplicate, new_run, open_null, operators};
use super::super::probe::{self, Listeners};
use super::super::programs::{self, BWRAP};
use super::super::{Directories, configuration};
use super::DaemonRequest;
use super::choices::Choices;
use super::keys::Keys;
use super::outside::Started;
use super::past::Past;
use super::socket::Control;
use super::turn::{self, Facts};
use crate::AUTO_REPLY;
use crate::chain::hex;
use crate::config::Config;
use crate::error::Trouble;
use crate::evidence;
use crate::models;
use crate::node::job::{Mode, NodeJob, ProbeSetup, Turn, Watched};

/// Everything that starting takes.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) job: NodeJob,
    pub(super) ground: Ground,
    /// Where the supervisor says what people should know.
    pub(super) log: File,
    pub(super) control: Control,
    pub(super) probe_cache: File,
    /// What the probe tries to reach.
    pub(super) listeners: Listeners,
    pub(super) model: Option<Model>,
    pub(super) signing: File,
    /// Its public half, which the supervisor writes.
    pub(super) public_key: File,
    pub(super) outside: Option<Started>,
}

impl Prepared {
    /// What the broker is started for: to sign, and for the model where there is one.
    pub(super) fn broker(&self) -> BrokerPlan {
        let model = self.model.as_ref().map(|model| &model.broker);
        BrokerPlan {
            upstream: model.and_then(|broker| broker.upstream.clone()),
            has_key: model.is_some_and(|broker| broker.has_key),
            signs: true,
        }
    }
}

/// Prepares one life.
///
/// # Errors
/// What keeps the node from coming up. Whatever only keeps it from running a task is part of its job, and so is a
/// configuration that became wrong while the node served.
pub(super) fn prepare(request: &DaemonRequest, past: &Past, keys: &Keys) -> Result<Prepared, Trouble> {
    let directories = Directories::of(request.mode)?;
    // Before they are read: what changes in between is seen as a change.
    let file = configuration_file(request, &directories);
    let mut watched = vec![file.clone(), PathBuf::from(BWRAP)];
    watched.extend(std::env::current_exe().ok());
    let mut watched: Vec<Watched> = watched.into_iter().map(Watched::look).collect();
    let (config, text, choices, halted) = choose(request, past, &directories, &file)?;
    let programs = programs::find_own()?;
    let own = [&programs.supervisor, &programs.launcher, &programs.proxy, &programs.broker, &programs.init];
    watched.extend(own.into_iter().map(|path| Watched::look(plain(path))));
    let identities = identity::of_node(request.mode)?;
    let group = match request.mode {
        Mode::User => None,
        Mode::System => Some(identity::commanders()?),
    };
    let places = Places::make(request.mode, &directories, identities)?;
    let (_, started) = new_run()?;

    let home = std::env::var_os("HOME").map(PathBuf::from);
    let facts = Facts {
        config: &config,
        limits: &choices.policy.limits,
        directories: &directories,
        programs: &programs,
        identities,
        root: &places.sandboxed,
        path: &std::env::var_os("PATH").unwrap_or_default(),
        home: home.as_deref(),
        keys,
    };
    let (turn, model) = match halted {
        Some(trouble) => (Err(trouble), None),
        None => match turn::turn(&facts) {
            Ok((turn, model)) => (Ok(turn), model),
            Err(trouble) => (Err(trouble), None),
        },
    };
    watched.extend(turn::watched(&facts, turn.as_ref().ok()).into_iter().map(Watched::look));
    let mut warnings = Vec::new();
    let outside = Started::prepare(&facts, &choices, &turn, &mut warnings)?;
    if let Some(outside) = &outside {
        watched.push(Watched::look(plain(outside.program())));
    }
    let mut policy = choices.policy;
    if let Ok(Turn { model: Some(model), .. }) = &turn {
        // MOD-3: as for any run with a model.
        policy.limits.set(ipc_proto::limits::LimitName::OutputTokens, model.policy.output_tokens);
    }
    let key = probe::key(&programs, identities.run.uid, &text)?;
    let kept = probe::open(&directories, identities.run.uid, &key)?;
    let listeners = Listeners::open()?;
    let job = NodeJob {
        mode: request.mode,
        started,
        restarts: past.restarts,
        last_end: past.last_end.clone(),
        operator: rustix::process::geteuid().as_raw(),
        group,
        user: identities.run.uid,
        evidence: places.evidence,
        inbox: places.inbox,
        policy,
        turn,
        outside: outside.as_ref().map(Started::offers).unwrap_or_default(),
        probe: ProbeSetup {
            plan: listeners.plan(probe::namespaces()?),
            key,
            good: kept.good.and_then(|at| {
                u64::try_from(at.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis()).ok()
            }),
        },
        watched,
        config_sha256: hex(&Sha256::digest(text.as_bytes())),
        zone: std::env::var("TZ").ok(),
        warnings,
    };
    let null = open_null()?;
    let chatter =
        if request.verbose { operators(rustix::stdio::stderr())? } else { File::from(duplicate(&null)?) };
    let control = Control::open(&directories, request.mode, group)?;
    Ok(Prepared {
        job,
        ground: Ground { programs, identities, null, chatter },
        log: operators(rustix::stdio::stderr())?,
        control,
        probe_cache: kept.file,
        listeners,
        model,
        signing: places.signing,
        public_key: places.public_key,
        outside,
    })
}

/// Which file it is.
fn configuration_file(request: &DaemonRequest, directories: &Directories) -> PathBuf {
    let file = request.configuration.clone().unwrap_or_else(|| directories.configuration.join("anet.toml"));
    std::path::absolute(&file).unwrap_or(file)
}

type Chosen = (Config, String, Choices, Option<Trouble>);

/// What is configured. On the first start what is wrong ends it; later everything waits until it is mended, and the node says
/// what it waits for.
fn choose(
    request: &DaemonRequest,
    past: &Past,
    directories: &Directories,
    file: &Path,
) -> Result<Chosen, Trouble> {
    let wrong = match checked(request, directories, file) {
        Ok((config, text, choices)) => return Ok((config, text, choices, None)),
        Err(trouble) if past.is_later => trouble,
        Err(trouble) => return Err(trouble),
    };
    Ok((Config::default(), String::new(), Choices::nothing(directories), Some(wrong)))
}

/// The configuration, read and checked.
pub(super) fn checked(
    request: &DaemonRequest,
    directories: &Directories,
    file: &Path,
) -> Result<(Config, String, Choices), Trouble> {
    let (config, text) = configuration(directories, request.configuration.as_deref())?;
    let choices = Choices::of(&config, request.mode, directories).map_err(|trouble| {
        if trouble.code != Code::BadConfig {
            return trouble;
        }
        Trouble::new(Code::BadConfig, format!("{}: {}", file.display(), trouble.sentence))
    })?;
    Ok((config, text, choices))
}

/// Checks the configuration alone, before anything is made.
pub(super) fn check(request: &DaemonRequest, directories: &Directories) -> Result<(), Trouble> {
    checked(request, directories, &configuration_file(request, directories)).map(|_| ())
}

/// The directories and files of a node.
struct Places {
    evidence: PathBuf,
    inbox: PathBuf,
    sandboxed: PathBuf,
    signing: File,
    public_key: File,
}

impl Places {
    fn make(mode: Mode, directories: &Directories, identities: Identities) -> Result<Places, Trouble> {
        directories.make_state(mode)?;
        let evidence = directories.make_kept("evidence", identities.supervisor)?;
        Ok(Places {
            public_key: public_key(&evidence::key_file(&evidence))?,
            evidence,
            inbox: if AUTO_REPLY {
                directories.make_kept("inbox", identities.supervisor)?
            } else {
                directories.state.join("inbox")
            },
            sandboxed: directories.make_sandboxed(identities.run)?,
            signing: signing_key(&directories.state.join("evidence-key"))?,
        })
    }
}

/// A file of the state to read and write, made if it is not there. No link is followed.
fn own_file(path: &Path, mode: u32) -> Result<File, Trouble> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(mode)
        .custom_flags(i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0))
        .open(path)
        .map_err(|error| unusable(path, &error))
}

/// The file of the key's public half: for everybody who may look into the state.
fn public_key(path: &Path) -> Result<File, Trouble> {
    let file = own_file(path, 0o644)?;
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(file),
        Ok(_) => Err(Trouble::new(
            Code::StateUnusable,
            format!("{} is no file; remove it, and the next start makes it anew", path.display()),
        )),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// The file of the signing key, which the broker fills and reads. The guard passes it on unread.
fn signing_key(path: &Path) -> Result<File, Trouble> {
    let file = own_file(path, 0o600)?;
    let found = file.metadata().map_err(|error| unusable(path, &error))?;
    let private = found.is_file()
        && found.nlink() == 1
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.permissions().mode() & 0o077 == 0;
    if private {
        return Ok(file);
    }
    Err(Trouble::new(
        Code::StateUnusable,
        format!(
            "{} is not a file that only you can read, and it signs the evidence; see who changed it, then: chmod 600 {}",
            path.display(),
            path.display()
        ),
    ))
}

/// Whether the key of a known service is kept in a variable of this name.
pub(super) fn is_key(name: &OsStr) -> bool {
    models::SERVICES.iter().any(|service| name == service.variable)
}

/// As an environment has it.
pub(super) fn entry(name: OsString, value: OsString) -> Option<CString> {
    CString::new([name.into_vec(), value.into_vec()].join(&b'=')).ok()
}

fn plain(path: &CString) -> PathBuf {
    PathBuf::from(OsString::from_vec(path.as_bytes().to_vec()))
}
