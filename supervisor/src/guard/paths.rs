//! The paths that an operator names: which may be opened, and what stays closed within them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ipc_proto::Code;
use ipc_proto::launcher::{FilePlan, INSIDE_HOME, WorkDirectory};

use super::Directories;
use super::programs::c_path;
use super::request::Work;
use crate::error::Trouble;
use confine::sys::spawn::Identity;

/// The most sockets that are closed: each is a mount, and a mount costs a tenth of a millisecond.
const MAX_SOCKETS: usize = 200;
/// Directories that are never opened as a whole: the system's, which the run has in its own way, and those where other
/// programs of this host keep sockets.
const NEVER_NAMED: [&str; 17] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin",
    "/sys", "/tmp", "/usr", "/var", "/var/tmp",
];
/// Below these nothing is opened either.
const NEVER_BELOW: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
pub(super) fn work_directory(work: &Work) -> Result<Option<PathBuf>, Trouble> {
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

/// What of the host a run sees, and who named it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened<'a> {
    /// The work directory, where it is one of the host's.
    pub(super) work: Option<&'a Path>,
    pub(super) read_write: &'a [PathBuf],
    pub(super) read_only: &'a [PathBuf],
    /// What named those, for a sentence.
    pub(super) read_only_by: &'static str,
    pub(super) deny: &'a [PathBuf],
    /// Of an agent's program.
    pub(super) visible: &'a [PathBuf],
}

/// Decides what a run sees, below `root` where its own directories are made.
pub(super) fn files(
    asked: &Opened<'_>,
    root: &Path,
    directories: &Directories,
    run: Identity,
) -> Result<FilePlan, Trouble> {
    let Opened { work, visible, .. } = *asked;
    let opens_nothing =
        work.is_none() && asked.read_write.is_empty() && asked.read_only.is_empty() && visible.is_empty();
    // Where nothing of the host's is opened there is nothing to close in it.
    let masked = if opens_nothing { Vec::new() } else { masked(directories, run) };
    let open = |option: &'static str, paths: &[PathBuf]| -> Result<Vec<PathBuf>, Trouble> {
        let resolved = paths.iter().map(|path| {
            let resolved = resolve(path, option)?;
            refuse_masked(option, &resolved, &masked)?;
            Ok(resolved)
        });
        resolved.collect()
    };
    if let Some(work) = work {
        refuse_masked("--here or --work", work, &masked)?;
    }
    let (read_write, mut read_only) =
        (open("--rw", asked.read_write)?, open(asked.read_only_by, asked.read_only)?);
    // Within the work directory the agent's program is there already, as the work directory is.
    let is_open = |path: &PathBuf| work.iter().any(|work| path.starts_with(work)) || read_only.contains(path);
    let agents: Vec<PathBuf> = visible.iter().filter(|path| !is_open(path)).cloned().collect();
    read_only.extend(open("the agent's program", &agents)?);
    let mut deny = asked.deny.iter().map(|path| absolute(path, "--deny")).collect::<Result<Vec<_>, _>>()?;
    let opened: Vec<PathBuf> =
        read_write.iter().chain(&read_only).cloned().chain(work.map(Path::to_path_buf)).collect();
    deny.extend(sockets(&opened)?);
    let shown = masked.iter().filter(|own| opened.iter().any(|opened| own.starts_with(opened)));
    let c_paths = |paths: &[PathBuf]| paths.iter().map(|path| c_path(path)).collect::<Result<Vec<_>, _>>();
    Ok(FilePlan {
        root: c_path(root)?,
        work: work.map_or(Ok(WorkDirectory::Fresh), |path| c_path(path).map(WorkDirectory::Named))?,
        read_write: c_paths(&read_write)?,
        read_only: c_paths(&read_only)?,
        deny: c_paths(&deny)?,
        // The others are not in the sandbox anyway.
        masked: shown.map(|path| c_path(path)).collect::<Result<_, _>>()?,
    })
}

/// anet's own places, those of a service on this host included, whether they are there yet or not: a run must not be the
/// first to make them.
fn masked(directories: &Directories, run: Identity) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        ["/etc/anet", "/var/lib/anet", "/var/cache/anet", "/run/anet"].map(Into::into).into();
    all.extend(directories.all(run));
    // A link among them must not lead around the mask.
    let mut resolved: Vec<PathBuf> = all.iter().filter_map(|path| nearest(path)).collect();
    resolved.sort();
    resolved.dedup();
    resolved
}

/// The path without links as far as it exists, and as it is written from there on.
fn nearest(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|ancestor| {
        let known = ancestor.canonicalize().ok()?;
        Some(known.join(path.strip_prefix(ancestor).ok()?))
    })
}

/// Sockets of this host's programs below an opened path: whoever connects to one has left the sandbox, since a socket with a
/// path belongs to no network namespace. The kernel's own list has those of any depth; one that is made later is not in it.
fn sockets(opened: &[PathBuf]) -> Result<Vec<PathBuf>, Trouble> {
    if opened.is_empty() {
        return Ok(Vec::new());
    }
    let text = std::fs::read("/proc/net/unix").unwrap_or_default();
    let found: BTreeSet<PathBuf> = text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.iter().position(|byte| *byte == b'/').and_then(|start| line.get(start..)))
        .filter_map(|path| Path::new(OsStr::from_bytes(path)).canonicalize().ok())
        .filter(|path| opened.iter().any(|opened| path.starts_with(opened)))
        .filter(|path| std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket()))
        .collect();
    if found.len() > MAX_SOCKETS {
        let why = "more sockets of other programs are below it than can be closed; open a smaller directory";
        return Err(bad_path(
            "--here, --work, --rw or --ro",
            opened.first().map_or(Path::new("/"), |path| path),
            why,
        ));
    }
    Ok(found.into_iter().collect())
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

#[cfg(test)]
mod tests {
    use super::*;

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

    /// FS-1: a socket at any depth is found, and what is no socket is not.
    #[test]
    fn sockets_below_an_opened_path_are_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let deep = root.join("a/b/c/d/e/f/g");
        std::fs::create_dir_all(&deep).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(deep.join("x.sock")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        assert_eq!(sockets(std::slice::from_ref(&root)).unwrap(), [deep.join("x.sock")]);
        assert_eq!(sockets(&[root.join("a/b/other")]).unwrap(), Vec::<PathBuf>::new());
    }

    /// FS-4: what is not there yet is masked too, and links on the way there lead nowhere else.
    #[test]
    fn places_that_do_not_exist_yet_have_a_name() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        assert_eq!(nearest(&root.join("link/x/anet")), Some(root.join("real/x/anet")));
    }
}
