//! anet's own programs, found where nobody else can have changed them. No variable chooses one.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ipc_proto::Code;

use crate::error::Trouble;

/// Where the package puts them.
const LIBEXEC: &str = "/usr/libexec/anet";
/// bubblewrap, at the one place where AppArmor's profiles know it.
pub(super) const BWRAP: &str = "/usr/bin/bwrap";

/// The programs of one run.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) supervisor: CString,
    pub(super) launcher: CString,
    pub(super) proxy: CString,
    pub(super) broker: CString,
    pub(super) terminal: CString,
    pub(super) init: CString,
    pub(super) bwrap: CString,
}

/// Finds all of them: in the package's place, else beside this program.
pub(super) fn find() -> Result<Found, Trouble> {
    let found = find_own()?;
    check_bwrap(&found)?;
    Ok(found)
}

/// Finds anet's own. bubblewrap is named, whether it is there or not.
pub(super) fn find_own() -> Result<Found, Trouble> {
    let directory = directory()?;
    let program = |name: &str| {
        let path = directory.join(name);
        check_owner(&path)?;
        c_path(&path)
    };
    Ok(Found {
        supervisor: program("anet-supervisor")?,
        launcher: program("anet-launcher")?,
        proxy: program("anet-proxy")?,
        broker: program("anet-broker")?,
        terminal: program("anet-terminal")?,
        init: program("anet-init")?,
        bwrap: c_path(Path::new(BWRAP))?,
    })
}

/// The program that starts what runs outside of the sandbox, for a node that needs it.
pub(super) fn find_outside() -> Result<CString, Trouble> {
    let path = directory()?.join("anet-outside");
    check_owner(&path)?;
    c_path(&path)
}

/// bubblewrap is there.
pub(super) fn check_bwrap(found: &Found) -> Result<(), Trouble> {
    if Path::new(OsStr::from_bytes(found.bwrap.as_bytes())).is_file() {
        return Ok(());
    }
    Err(Trouble::new(Code::NoBwrap, crate::explain::sentence(Code::NoBwrap)))
}

fn directory() -> Result<PathBuf, Trouble> {
    let installed = PathBuf::from(LIBEXEC);
    if installed.join("anet-supervisor").exists() {
        return Ok(installed);
    }
    let own = std::env::current_exe()
        .map_err(|error| missing(format!("this program's own place is not known ({error})")))?;
    let beside = own.parent().map(Path::to_path_buf).unwrap_or_default();
    check_owner(&beside)?;
    Ok(beside)
}

/// root's or our own, and nobody else can write it.
fn check_owner(path: &Path) -> Result<(), Trouble> {
    let shown = path.display();
    let found = fs::metadata(path).map_err(|error| missing(format!("{shown} cannot be used ({error})")))?;
    let owner = found.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(missing(format!("{shown} belongs to another user")));
    }
    if found.permissions().mode() & 0o022 != 0 {
        return Err(missing(format!("{shown} can be written by others")));
    }
    Ok(())
}

fn missing(what: String) -> Trouble {
    Trouble::new(
        Code::ProgramMissing,
        format!("{what}, so anet's own programs are not safe to start; install anet again"),
    )
}

pub(super) fn c_path(path: &Path) -> Result<CString, Trouble> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Trouble::new(Code::BadPath, format!("{}: a path with a NUL byte", path.display())))
}
