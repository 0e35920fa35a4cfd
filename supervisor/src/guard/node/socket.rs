//! The control socket: where clients of the node connect.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ipc_proto::Code;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use super::super::Directories;
use super::super::directories::{make_private, unusable};
use crate::error::Trouble;
use crate::explain;
use crate::node::job::Mode;

/// The longest name of a socket, in bytes: `sun_path` of unix(7) without its NUL.
const LONGEST: usize = 107;
/// Clients that wait to be taken; more are told to try again.
const BACKLOG: i32 = 128;
/// Its name until it has its mode; not longer than the one that it gets.
const UNFINISHED: &str = "new.sock";

/// A listening socket, and its name.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) listener: OwnedFd,
    pub(super) name: Name,
}

/// The name of a socket that somebody else listens at by now.
#[derive(Debug)]
pub(super) struct Name(PathBuf);

impl Name {
    /// Takes it away, so that clients are told at once that there is no node.
    pub(super) fn remove(&self) {
        // Nobody else makes one there: the lock is ours.
        let _ = fs::remove_file(&self.0);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl Control {
    /// Listens where clients look. To be called by whoever has the node's lock: a socket that is left there by a node that
    /// died is replaced, one at which somebody listens is not.
    ///
    /// # Errors
    /// [`Code::NodeRunning`], [`Code::StateUnusable`].
    pub(super) fn open(
        directories: &Directories,
        mode: Mode,
        group: Option<u32>,
    ) -> Result<Control, Trouble> {
        let places = directories.control_sockets();
        let (last, others) = places.split_last().ok_or_else(|| {
            Trouble::new(Code::StateUnusable, "there is no place for the control socket; set XDG_RUNTIME_DIR")
        })?;
        let path = others.iter().find(|path| is_usable(path)).unwrap_or(last);
        make_directory(path, mode, group)?;
        if is_alive(path)? {
            let what = format!("at {}", path.display());
            return Err(Trouble::new(Code::NodeRunning, explain::with_detail(Code::NodeRunning, &what)));
        }
        let listener = listener(path, group)?;
        Ok(Control { listener, name: Name(path.clone()) })
    }
}

/// A runtime directory of ours alone. Another's, left over in a variable by su, is none.
fn is_usable(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let runtime = path.parent().and_then(Path::parent).and_then(|path| fs::metadata(path).ok());
    runtime
        .is_some_and(|found| found.is_dir() && found.uid() == own && found.permissions().mode() & 0o077 == 0)
}

fn make_directory(path: &Path, mode: Mode, group: Option<u32>) -> Result<(), Trouble> {
    let directory = path.parent().unwrap_or(path);
    match mode {
        Mode::User => make_private(directory),
        Mode::System => {
            let made = DirBuilder::new().mode(0o700).recursive(true).create(directory);
            made.and_then(|()| std::os::unix::fs::lchown(directory, Some(0), group))
                .and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o750)))
                .map_err(|error| unusable(directory, &error))
        }
    }
}

/// Whether somebody listens there. Where a file of another kind is, nothing is replaced.
fn is_alive(path: &Path) -> Result<bool, Trouble> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => return Err(unusable(path, &Errno::NOTSOCK.into())),
        Err(_) => return Ok(false),
    }
    let probe = new_socket()?;
    match connect(&probe, &address(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(false),
        Err(errno) => Err(unusable(path, &errno.into())),
    }
}

fn listener(path: &Path, group: Option<u32>) -> Result<OwnedFd, Trouble> {
    let unfinished = path.with_file_name(UNFINISHED);
    let failed = |errno: Errno| unusable(path, &errno.into());
    let bound = new_socket()?;
    let _ = fs::remove_file(&unfinished);
    bind(&bound, &address(&unfinished)?).map_err(failed)?;
    listen(&bound, BACKLOG).map_err(failed)?;
    // It has its name only when nobody but those who may can connect.
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    std::os::unix::fs::lchown(&unfinished, None, group)
        .and_then(|()| fs::set_permissions(&unfinished, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&unfinished, path))
        .map_err(|error| unusable(path, &error))?;
    Ok(bound)
}

fn new_socket() -> Result<OwnedFd, Trouble> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(|errno| {
        Trouble::new(
            Code::ProcessDied,
            format!("no socket can be made ({errno}); see the limits on open files"),
        )
    })
}

fn address(path: &Path) -> Result<SocketAddrUnix, Trouble> {
    let length = path.as_os_str().as_bytes().len();
    if length > LONGEST {
        return Err(Trouble::new(
            Code::StateUnusable,
            format!(
                "the control socket {} has a name of {length} bytes, and the kernel takes {LONGEST}; set XDG_RUNTIME_DIR to a \
                 directory of your own with a shorter one",
                path.display()
            ),
        ));
    }
    SocketAddrUnix::new(path).map_err(|errno| unusable(path, &errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn at(path: &Path) -> Result<OwnedFd, Trouble> {
        if is_alive(path)? {
            return Err(Trouble::new(Code::NodeRunning, ""));
        }
        listener(path, None)
    }

    /// ACC-1: a socket of the operator's alone; one that a dead node left is replaced, a living node's is not, and neither is
    /// a file that is no socket.
    #[test]
    fn only_a_dead_nodes_socket_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("control.sock");
        let first = at(&path).unwrap();
        assert_eq!(mode_of(&path), 0o600);
        assert_eq!(at(&path).unwrap_err().code, Code::NodeRunning);
        let inode = fs::metadata(&path).unwrap().ino();
        drop(first);
        let second = at(&path).unwrap();
        assert_ne!(fs::metadata(&path).unwrap().ino(), inode);
        let client = new_socket().unwrap();
        connect(&client, &address(&path).unwrap()).unwrap();
        drop(second);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(at(&path).unwrap_err().code, Code::StateUnusable);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing unfinished is left");
    }

    /// USE-1: a name that the kernel does not take is said, with what to do.
    #[test]
    fn a_name_that_is_too_long_is_said() {
        let long = PathBuf::from(format!("/{}", "x".repeat(LONGEST - 1)));
        assert!(address(&long).is_ok());
        let trouble = address(&long.with_extension("y")).unwrap_err();
        assert_eq!(trouble.code, Code::StateUnusable);
        assert!(trouble.sentence.contains("XDG_RUNTIME_DIR"), "{trouble}");
    }

    /// A runtime directory that others get into is none.
    #[test]
    fn a_runtime_directory_is_private() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("anet/control.sock");
        for (mode, usable) in [(0o700, true), (0o710, false), (0o755, false), (0o777, false)] {
            fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_usable(&socket), usable, "{mode:o}");
        }
        assert!(!is_usable(&place.path().join("no/anet/control.sock")));
    }
}
