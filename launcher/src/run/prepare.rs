//! The steps before bwrap starts: directories on the host, rules to mounts, placeholders, options, init's plan.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ipc_proto::init::{EGRESS_PORT, ExpectedMount, ExpectedMounts, InitPlan, MODEL_PORT, Purpose};
use ipc_proto::launcher::{Failure, INSIDE_HOME, INSIDE_TEMPORARY, LaunchPlan, WorkDirectory};
use ipc_proto::{Code, bulk};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use crate::bwrap::Options;
use crate::directories::kept::Kept;
use crate::directories::{Locked, Neighbours, Root, RunDirectory};
use crate::failure::failure;
use crate::files::protected::{self, Found, Survey};
use crate::files::rules::{Closed, Node, Seen, View};
use crate::files::{self, Made, Named};
use crate::growth::Watch;
use crate::home;
use crate::mounts;
use crate::placeholder::{Entry, Record};
use crate::system;
use crate::{Log, Surroundings};

/// git copies example hooks from here into every new repository: into a directory that it cannot write, where hooks are
/// protected, which it takes for a failure. Without examples there is nothing to copy. (Packaged, and built by hand.)
const GIT_EXAMPLES: &[&str] =
    &["/usr/share/git-core/templates/hooks", "/usr/local/share/git-core/templates/hooks"];

/// What a run has on the host, made so far.
#[derive(Debug)]
pub(super) struct OnHost {
    /// Where its directories are.
    pub(super) root: Rc<Root>,
    /// Its directories.
    pub(super) directory: RunDirectory,
    /// The work directory of its interaction.
    pub(super) kept: Option<Kept>,
    /// What was done to the operator's directories.
    pub(super) record: Option<Record>,
}

/// What bwrap and anet-init are started with.
#[derive(Debug)]
pub(super) struct Prepared {
    /// bwrap's options.
    pub(super) options: Options,
    /// anet-init's plan, sealed.
    pub(super) init_plan: OwnedFd,
    /// anet-init, as seen inside.
    pub(super) init: CString,
    /// What measures growth, where that is asked.
    pub(super) watch: Option<Watch>,
    /// Answers the probe from outside the sandbox, as long as it is held.
    pub(super) decoy: Option<OwnedFd>,
}

/// The most that one file may grow beyond the limit of all, in bytes.
const BURST: u64 = 512 * 1024 * 1024;

/// Makes the run's directories, and takes over what dead launchers left.
///
/// # Errors
/// A [`Failure`] when they cannot be made.
pub(super) fn directories(plan: &LaunchPlan, root: &Rc<Root>) -> Result<(OnHost, Neighbours), Failure> {
    let parts: &[&str] = match plan.files.work {
        WorkDirectory::Fresh => &["work", "home", "tmp"],
        WorkDirectory::Named(_) | WorkDirectory::Kept { .. } => &["home", "tmp"],
    };
    let locked = root.lock()?;
    let neighbours = locked.neighbours()?;
    let directory = locked.create(plan.run, parts)?;
    Ok((OnHost { root: Rc::clone(root), directory, kept: None, record: None }, neighbours))
}

/// Takes the work directory of the run's interaction, where it has one.
///
/// # Errors
/// A [`Failure`] when another run has it, or it cannot be used.
pub(super) fn keep(plan: &LaunchPlan, host: &mut OnHost) -> Result<(), Failure> {
    if let WorkDirectory::Kept { peer, interaction } = &plan.files.work {
        host.kept = Some(host.root.lock()?.keep(peer, interaction)?);
    }
    Ok(())
}

/// Decides what the run sees, does to the host what is needed for it, and writes it down for bwrap and anet-init.
///
/// # Errors
/// A [`Failure`]; what was done to the host is in `host` and is undone with it.
pub(super) fn sandbox(
    plan: &LaunchPlan,
    host: &mut OnHost,
    surroundings: &Surroundings,
    log: &Log,
) -> Result<Prepared, Failure> {
    let mut named = files::look_up(&plan.files)?;
    let surveys = survey(&mut named, log);
    let system = system::look();
    let at = |part: &str| host.directory.path().join(part);
    let (home, temporary) = (at("home"), at("tmp"));
    home::fill(&home, &plan.home)?;
    let work = match plan.files.work {
        WorkDirectory::Fresh => Some(at("work")),
        WorkDirectory::Kept { .. } => host.kept.as_ref().map(Kept::work),
        WorkDirectory::Named(_) => None,
    };
    let init = Path::new(OsStr::from_bytes(plan.programs.init.as_bytes()));
    let made = Made { home: &home, temporary: &temporary, work: work.as_deref(), init };
    let mut view = files::view(&named, &system.opened, made)?;

    let protected = protect(&mut view, &named, &surveys, host)?;
    let home_inside = files::home_inside(&named.opened);
    let mut links = system.links.clone();
    links.extend(system::LINKS.iter().map(|(link, target)| (PathBuf::from(link), PathBuf::from(target))));
    let mut options = Options::new(&home_inside, &links).map_err(|error| out_of("memory", &error))?;
    options.mounts(&view.mounts(&protected));
    if view.writable().next().is_some() {
        for path in GIT_EXAMPLES
            .iter()
            .filter(|path| Path::new(path).is_dir() && view.seen(Path::new(path)) == Seen::ReadOnly)
        {
            options.empty(path);
        }
    }
    let options = options.finish();
    if !options.fit() {
        return Err(failure(Code::BadPath, &too_many(&view, &protected)));
    }

    let (init_plan, decoy) = init_plan(plan, &view, &home_inside, surroundings)?;
    let mut measured = vec![home.clone(), temporary.clone()];
    measured.extend(work.clone());
    measured.extend(view.writable().map(|rule| rule.source.clone()));
    let watch = plan.growth.map(|limit| Watch::start(&measured, limit)).transpose();
    let init_seen = files::init_inside(&system.opened, init);
    Ok(Prepared {
        options,
        init_plan,
        init: files::c_string(&init_seen).unwrap_or_default(),
        watch: watch.map_err(|error| out_of("threads", &error))?,
        decoy,
    })
}

/// Looks through the named directories once: repositories and settings to protect, sockets to close.
fn survey(named: &mut Named, log: &Log) -> Vec<(PathBuf, Survey)> {
    let mut found = Vec::new();
    for rule in &named.opened {
        let mut survey = protected::survey(rule);
        if survey.cut {
            log.line(&format!(
                "{} is large: deep in it hooks of repositories and settings of agents may not be protected, nor sockets be closed",
                crate::failure::escape(rule.source.as_os_str().as_bytes())
            ));
        }
        named.closed.extend(std::mem::take(&mut survey.sockets).into_iter().map(|path| Closed {
            path,
            node: Node::Other,
            masked: false,
        }));
        found.push((rule.dest.clone(), survey));
    }
    found
}

/// Says which of the opened directories has most of what is more than bwrap takes, and where its sockets are.
fn too_many(view: &View, protected: &[PathBuf]) -> String {
    let escape = |path: &Path| crate::failure::escape(path.as_os_str().as_bytes());
    let below = |root: &Path, paths: &[&Path]| paths.iter().filter(|path| path.starts_with(root)).count();
    let kept: Vec<&Path> = protected.iter().map(PathBuf::as_path).collect();
    let shut: Vec<&Path> = view.closed().iter().map(|closed| closed.path.as_path()).collect();
    let worst = view
        .named()
        .map(|rule| (rule.dest.as_path(), below(&rule.dest, &kept), below(&rule.dest, &shut)))
        .max_by_key(|(_, kept, shut)| kept + shut);
    let Some((root, protected, closed)) = worst else {
        return "more paths have to be protected than bwrap takes; open fewer".to_owned();
    };
    let mut text = format!(
        "{} has more in it than bwrap takes: {protected} names to protect, {closed} to close",
        escape(root)
    );
    // Sockets are what lies in one directory by the thousand.
    let mut directories: BTreeMap<&Path, usize> = BTreeMap::new();
    for parent in shut.iter().filter(|path| path.starts_with(root)).filter_map(|path| path.parent()) {
        *directories.entry(parent).or_default() += 1;
    }
    match directories.into_iter().max_by_key(|(_, count)| *count).filter(|_| closed > protected) {
        Some((directory, count)) => text.push_str(&format!(
            ", of them {count} in {}, mostly sockets; remove those that nobody listens on, or name other directories",
            escape(directory)
        )),
        None => text.push_str("; name the directories in it that are needed instead"),
    }
    text
}

/// FS-4: what stays read-only, with placeholders for what is not there.
fn protect(
    view: &mut View,
    named: &Named,
    surveys: &[(PathBuf, Survey)],
    host: &mut OnHost,
) -> Result<Vec<PathBuf>, Failure> {
    let visible = |path: &&PathBuf| view.closed().iter().any(|shut| shut.path == **path);
    let missing: Vec<PathBuf> = named.missing.iter().filter(visible).cloned().collect();
    if missing.is_empty() && view.writable().next().is_none() {
        return Ok(Vec::new());
    }
    let trouble = |error: std::io::Error| {
        failure(Code::StateUnusable, &format!("protecting files in the opened directories: {error}"))
    };
    // Looked at, made and shared under the lock, so that no run that ends meanwhile takes a placeholder away.
    let locked: Locked<'_> = host.root.lock()?;
    let others = locked.others(&host.directory).map_err(trouble)?;
    let mut record = Record::create(host.directory.directory()).map_err(trouble)?;
    let made = make_placeholders(view, &missing, surveys, &mut record, &others);
    // Also on failure: what was made so far has to be undone.
    host.record = Some(record);
    made.map_err(trouble)
}

fn make_placeholders(
    view: &mut View,
    missing: &[PathBuf],
    surveys: &[(PathBuf, Survey)],
    record: &mut Record,
    others: &[Entry],
) -> std::io::Result<Vec<PathBuf>> {
    let named: Vec<PathBuf> = view.named().map(|rule| rule.dest.clone()).collect();
    record.share(&named, others)?;
    let mut kept = Vec::new();
    let home = protected::operators_home();
    let roots: Vec<PathBuf> = view.writable().map(|rule| rule.dest.clone()).collect();
    for root in roots {
        let nothing = Survey::default();
        let survey = surveys.iter().find(|(path, _)| *path == root).map_or(&nothing, |(_, survey)| survey);
        let found = Found::look(view, &root, survey, home.as_deref());
        record.watch(&found.links)?;
        for path in found.missing_files {
            if record.make_file(&path)? {
                kept.push(path);
            }
        }
        for path in found.missing {
            if record.make(&path)? {
                kept.push(path);
            }
        }
        kept.extend(found.present);
    }
    // What is closed before it exists must not come into being, neither by the run nor for it to see.
    for path in missing {
        if !record.make(path)? {
            view.forget_closed(path);
        }
    }
    Ok(kept)
}

fn init_plan(
    plan: &LaunchPlan,
    view: &View,
    home: &Path,
    surroundings: &Surroundings,
) -> Result<(OwnedFd, Option<OwnedFd>), Failure> {
    let mut purpose = plan.purpose.clone();
    let mut decoy = None;
    match &mut purpose {
        Purpose::Command(command) => {
            let usual = format!("HOME={INSIDE_HOME}").into_bytes();
            let has = |name: &str, environment: &[CString]| {
                environment.iter().any(|entry| entry.as_bytes().starts_with(format!("{name}=").as_bytes()))
            };
            // The operator opened a directory where HOME usually is.
            command.environment.retain(|entry| entry.as_bytes() != usual.as_slice());
            let home = home.to_string_lossy();
            for (name, value) in [("HOME", home.as_ref()), ("TMPDIR", INSIDE_TEMPORARY)] {
                if !has(name, &command.environment) {
                    command.environment.extend(CString::new(format!("{name}={value}")));
                }
            }
        }
        Purpose::Probe(probe) => {
            let name = format!("anet-probe-{}", plan.run).into_bytes();
            decoy = Some(listen_abstract(&name).map_err(|error| out_of("sockets", &error))?);
            probe.abstract_sockets.push(name);
            probe.outside.extend(surroundings.namespaces.iter().copied());
        }
    }
    let mut ports = Vec::new();
    ports.extend(plan.endpoints.egress.then_some(EGRESS_PORT));
    ports.extend(plan.endpoints.model.then_some(MODEL_PORT));
    let writable = view.writable_inside().filter_map(files::c_string).collect();
    let sealed = bulk::seal(&InitPlan {
        purpose,
        ports,
        writable,
        file_rules: surroundings.file_rules,
        expected: expected(view)?,
        // Beyond the limit itself, which ends the run and says so: what is made in one go between two looks.
        largest_file: plan.growth.map(|limit| limit.saturating_add(BURST)),
    });
    Ok((sealed.map_err(|error| failure(Code::SandboxStartFailed, &error.to_string()))?, decoy))
}

/// What anet-init has to find mounted: what the operator's paths are now.
fn expected(view: &View) -> Result<Option<ExpectedMounts>, Failure> {
    let mut opened = Vec::new();
    for rule in view.named() {
        let found = rustix::fs::lstat(&rule.source).map_err(|errno| {
            failure(Code::BadPath, &format!("{} cannot be looked up: {errno}", rule.source.display()))
        })?;
        let path = files::c_string(&rule.dest).unwrap_or_default();
        opened.push(ExpectedMount { path, device: found.st_dev, inode: found.st_ino });
    }
    if opened.is_empty() {
        return Ok(None);
    }
    let outside = mounts::read().map_err(|error| out_of("the list of mounts", &error))?;
    Ok(Some(ExpectedMounts { opened, outside }))
}

/// A listener that a sandbox with a network of its own cannot reach, and one without can.
fn listen_abstract(name: &[u8]) -> std::io::Result<OwnedFd> {
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(listener.as_fd(), &SocketAddrUnix::new_abstract_name(name)?)?;
    listen(listener.as_fd(), 1)?;
    Ok(listener)
}

fn out_of(what: &str, error: &dyn std::fmt::Display) -> Failure {
    failure(Code::SandboxStartFailed, &format!("the launcher is out of {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::rules::{Access, Opened, Origin};

    /// FS-4: whoever reads that there is too much learns where.
    #[test]
    fn too_many_paths_are_named() {
        let open = |path: &str| {
            let (dest, source) = (path.into(), path.into());
            Opened { dest, source, access: Access::ReadWrite, origin: Origin::Operator }
        };
        let socket = |number: usize| Closed {
            path: format!("/b/run/{number}").into(),
            node: Node::Other,
            masked: false,
        };
        let kept = [PathBuf::from("/a/.git/hooks"), "/a/.bashrc".into(), "/b/.bashrc".into()];
        let view = View::new(vec![open("/a"), open("/b")], (0..3).map(socket).collect()).unwrap();
        let text = too_many(&view, &kept);
        assert!(text.starts_with("/b has") && text.contains("3 in /b/run, mostly sockets"), "{text}");
        let view = View::new(vec![open("/a"), open("/b")], Vec::new()).unwrap();
        let text = too_many(&view, &kept);
        assert!(text.starts_with("/a has") && text.contains("2 names to protect, 0 to close"), "{text}");
    }
}
