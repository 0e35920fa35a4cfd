//! What a run sees of the file system: from the operator's words to rules, looked up on the host once.

mod git_config;
pub mod protected;
pub mod rules;

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use ipc_proto::Code;
use ipc_proto::launcher::{Failure, FilePlan, INSIDE_HOME, INSIDE_TEMPORARY, INSIDE_WORK, WorkDirectory};

use crate::failure::failure;
use rules::{Access, Closed, Node, Opened, Origin, RuleError, View};

/// Where things of ours are in the sandbox that have no usual place. No host has such a directory to be opened.
pub const OURS: &str = "/.anet";

/// What the operator said, looked up.
#[derive(Debug, Default)]
pub struct Named {
    /// The paths to open.
    pub opened: Vec<Opened>,
    /// The paths to close.
    pub closed: Vec<Closed>,
    /// Those of them that are not there yet.
    pub missing: Vec<PathBuf>,
}

/// Directories that are never opened by name, with the reason. (Below `/sys` is harmless to read.)
const NEVER: &[(&str, &str)] = &[
    ("/proc", "it shows the host's processes; the sandbox has its own"),
    ("/dev", "it holds the host's devices; the sandbox has its own"),
];

/// Looks the operator's paths up.
///
/// # Errors
/// A [`Failure`] with [`Code::BadPath`].
pub fn look_up(plan: &FilePlan) -> Result<Named, Failure> {
    let mut named = Named::default();
    if let WorkDirectory::Named(work) = &plan.work {
        named.open(work, Access::ReadWrite)?;
    }
    for path in &plan.read_write {
        named.open(path, Access::ReadWrite)?;
    }
    for path in &plan.read_only {
        named.open(path, Access::ReadOnly)?;
    }
    for path in &plan.deny {
        named.close(path, false)?;
    }
    for path in &plan.masked {
        named.close(path, true)?;
    }
    if matches!(plan.work, WorkDirectory::Fresh | WorkDirectory::Kept { .. })
        && named.opened.iter().any(|rule| rule.dest == Path::new(INSIDE_WORK))
    {
        return Err(bad_path(
            Path::new(INSIDE_WORK),
            "is where the run's own work directory is; use --work for it",
        ));
    }
    Ok(named)
}

impl Named {
    fn open(&mut self, given: &CString, access: Access) -> Result<(), Failure> {
        let given = absolute(given)?;
        let source = fs::canonicalize(&given)
            .map_err(|error| bad_path(&given, &format!("cannot be opened: {error}")))?;
        if source == Path::new("/") {
            return Err(bad_path(&given, "is the whole file system; name the directories that are needed"));
        }
        if let Some((_, reason)) = NEVER.iter().find(|(path, _)| source.starts_with(path)) {
            return Err(bad_path(&given, &format!("cannot be opened: {reason}")));
        }
        let kind =
            fs::metadata(&source).map_err(|error| bad_path(&given, &format!("cannot be opened: {error}")))?;
        if kind.file_type().is_socket() {
            return Err(bad_path(
                &given,
                "is a socket: a run reaches nothing but its endpoints; use --allow for hosts",
            ));
        }
        // Whoever sent the plan has followed links already: one that is there now was put there since.
        if given != source {
            return Err(bad_path(
                &given,
                "became a link to another place while the run was prepared; see who else is in there",
            ));
        }
        self.opened.push(Opened { dest: source.clone(), source, access, origin: Origin::Operator });
        Ok(())
    }

    fn close(&mut self, given: &CString, masked: bool) -> Result<(), Failure> {
        let given = absolute(given)?;
        let (path, node) =
            resolve(&given).map_err(|error| bad_path(&given, &format!("cannot be looked up: {error}")))?;
        if node.is_none() {
            self.missing.push(path.clone());
        }
        // What is not there gets a directory as its placeholder.
        self.closed.push(Closed { path, node: node.unwrap_or(Node::Directory), masked });
        Ok(())
    }
}

/// The places that are made for a run, on the host.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// HOME.
    pub home: &'a Path,
    /// The temporary directory.
    pub temporary: &'a Path,
    /// The work directory, unless the operator named one.
    pub work: Option<&'a Path>,
    /// anet-init.
    pub init: &'a Path,
}

/// Where HOME is inside: its usual place, unless the operator opened a directory there.
#[must_use]
pub fn home_inside(opened: &[Opened]) -> PathBuf {
    let usual = PathBuf::from(INSIDE_HOME);
    match opened.iter().any(|rule| usual.starts_with(&rule.dest)) {
        true => Path::new(OURS).join("home"),
        false => usual,
    }
}

/// Where anet-init is inside: at its own path if the system directories show it.
#[must_use]
pub fn init_inside(system: &[Opened], init: &Path) -> PathBuf {
    match system.iter().any(|rule| init.starts_with(&rule.dest)) {
        true => init.to_owned(),
        false => Path::new(OURS).join("init"),
    }
}

/// All rules together.
///
/// # Errors
/// A [`Failure`] with [`Code::BadPath`].
pub fn view(named: &Named, system: &[Opened], made: Made<'_>) -> Result<View, Failure> {
    let own = |dest: PathBuf, source: &Path, access| Opened {
        dest,
        source: source.to_owned(),
        access,
        origin: Origin::Own,
    };
    let mut opened = system.to_vec();
    opened.push(own(home_inside(&named.opened), made.home, Access::ReadWrite));
    opened.push(own(INSIDE_TEMPORARY.into(), made.temporary, Access::ReadWrite));
    // Shared memory of POSIX lives there. A tmpfs would be memory that no limit on growth counts; the temporary directory
    // under a second name is one that it does.
    opened.push(own("/dev/shm".into(), made.temporary, Access::ReadWrite));
    if let Some(work) = made.work {
        opened.push(own(INSIDE_WORK.into(), work, Access::ReadWrite));
    }
    let init = init_inside(system, made.init);
    if init != made.init {
        opened.push(own(init, made.init, Access::ReadOnly));
    }
    opened.extend(named.opened.iter().cloned());
    View::new(opened, named.closed.clone())
        .map_err(|error: RuleError| failure(Code::BadPath, &error.to_string()))
}

/// A path without a link in it, and what is there: nothing, if only the directories above exist.
///
/// # Errors
/// When a directory above cannot be looked into.
pub fn resolve(path: &Path) -> io::Result<(PathBuf, Option<Node>)> {
    /// As many links as the kernel follows (MAXSYMLINKS).
    const LINKS: usize = 40;
    let mut links = 0;
    let mut rest: Vec<OsString> = parts(path);
    let mut real = PathBuf::from("/");
    let mut node = Some(Node::Directory);
    while let Some(part) = rest.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        let found = match node {
            Some(_) => fs::symlink_metadata(&next),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        match found {
            Ok(found) if found.file_type().is_symlink() => {
                links += 1;
                if links > LINKS {
                    return Err(io::Error::other("too many links"));
                }
                let target = fs::read_link(&next)?;
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                rest.extend(parts(&target));
            }
            Ok(found) => {
                node = Some(if found.is_dir() { Node::Directory } else { Node::Other });
                real = next;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                node = None;
                real = next;
            }
            Err(error) => return Err(error),
        }
    }
    Ok((real, node))
}

/// The parts of a path, the last first.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    let mut parts: Vec<OsString> = parts.collect();
    parts.reverse();
    parts
}

fn absolute(given: &CString) -> Result<PathBuf, Failure> {
    let path = Path::new(OsStr::from_bytes(given.as_bytes()));
    match path.is_absolute() {
        // Collected anew: without double and trailing slashes and single dots, which compare differently.
        true => Ok(path.components().collect()),
        false => Err(bad_path(path, "is not an absolute path")),
    }
}

fn bad_path(path: &Path, what: &str) -> Failure {
    failure(Code::BadPath, &format!("{} {what}", crate::failure::escape(path.as_os_str().as_bytes())))
}

/// A path as the system calls and bwrap take it.
#[must_use]
pub fn c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().to_owned().into_vec()).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn plan(directory: &Path) -> FilePlan {
        FilePlan {
            root: c_string(directory).unwrap(),
            work: WorkDirectory::Fresh,
            read_write: Vec::new(),
            read_only: Vec::new(),
            deny: Vec::new(),
            masked: Vec::new(),
        }
    }

    /// FS-4: links are followed on the host, so a rule holds for the place and not for a name.
    #[test]
    fn paths_are_resolved_through_links() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        fs::create_dir_all(real.join("data/project")).unwrap();
        symlink("data/project", real.join("link")).unwrap();
        symlink("nowhere/file", real.join("dangling")).unwrap();
        symlink("loop", real.join("loop")).unwrap();
        let node = |name: &str| resolve(&real.join(name)).unwrap();
        assert_eq!(node("link/x/y"), (real.join("data/project/x/y"), None));
        assert_eq!(node("link"), (real.join("data/project"), Some(Node::Directory)));
        assert_eq!(node("dangling"), (real.join("nowhere/file"), None));
        assert_eq!(node("link/../../data"), (real.join("data"), Some(Node::Directory)));
        assert!(resolve(&real.join("loop")).is_err());

        let mut plan = plan(&real);
        plan.read_write.push(c_string(&real.join("link")).unwrap());
        assert!(look_up(&plan).unwrap_err().text.contains("became a link"));
    }

    /// FS-4, SBX-2: what would open the host is refused with a sentence.
    #[test]
    fn what_would_open_the_host_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, word) in [
            (Path::new("/"), "whole file system"),
            (Path::new("/proc/sys"), "processes"),
            (Path::new("/dev/shm"), "devices"),
            (Path::new("/does/not/exist"), "No such file"),
            (Path::new("relative"), "absolute"),
            (&socket, "socket"),
        ] {
            let mut plan = plan(place.path());
            plan.read_only.push(c_string(path).unwrap());
            let refused = look_up(&plan).unwrap_err();
            assert_eq!(refused.code, Code::BadPath);
            assert!(refused.text.contains(word), "{}", refused.text);
        }
        let mut plan = plan(place.path());
        fs::create_dir(place.path().join("work")).unwrap();
        plan.masked.push(c_string(&place.path().join("state/anet")).unwrap());
        let named = look_up(&plan).unwrap();
        assert_eq!(named.missing, [place.path().canonicalize().unwrap().join("state/anet")]);
    }

    /// FS-4: HOME makes room for what the operator opened there.
    #[test]
    fn home_gives_way_to_opened_directories() {
        let open = |path: &str| {
            vec![Opened {
                dest: path.into(),
                source: path.into(),
                access: Access::ReadOnly,
                origin: Origin::Operator,
            }]
        };
        assert_eq!(home_inside(&open("/home/alice")), Path::new("/home/anet"));
        assert_eq!(home_inside(&open("/home/anet/project")), Path::new("/home/anet"));
        assert_eq!(home_inside(&open("/home/anet")), Path::new("/.anet/home"));
        assert_eq!(home_inside(&open("/home")), Path::new("/.anet/home"));
    }
}
