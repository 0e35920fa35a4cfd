//! Where anet keeps things, and that nobody else can change them there.

use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use confine::sys::spawn::Identity;
use ipc_proto::Code;

use super::identity::home_of;
use crate::error::Trouble;

/// Only the owner gets in.
const PRIVATE: u32 = 0o700;
/// Others may pass through, to a directory of their own.
const PASSABLE: u32 = 0o711;
/// root's runs live where the run's own user can reach them; below root's home it could not.
const SYSTEM_CACHE: &str = "/var/cache/anet";

/// anet's own directories for whoever started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directories {
    /// `anet.toml`.
    pub configuration: PathBuf,
    /// Chains of runs, the probe's result.
    pub state: PathBuf,
    /// What runs work in.
    pub cache: PathBuf,
    /// Nothing of this version's; masked all the same, since a credential may be kept there.
    pub data: PathBuf,
}

impl Directories {
    /// Finds them; makes nothing.
    ///
    /// # Errors
    /// [`Code::StateUnusable`] when there is no home directory to put them in.
    pub fn find() -> Result<Directories, Trouble> {
        let uid = rustix::process::geteuid().as_raw();
        let home = || {
            let named = env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            named.or_else(|| home_of(uid)).ok_or_else(|| {
                Trouble::new(Code::StateUnusable, "there is no home directory to keep state in; set HOME")
            })
        };
        let below = |variable: &str, usual: &str| -> Result<PathBuf, Trouble> {
            // XDG base directory specification: a relative path there is to be ignored.
            match env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute()) {
                Some(path) => Ok(path.join("anet")),
                None => Ok(home()?.join(usual).join("anet")),
            }
        };
        Ok(Directories {
            data: below("XDG_DATA_HOME", ".local/share")?,
            configuration: below("XDG_CONFIG_HOME", ".config")?,
            state: below("XDG_STATE_HOME", ".local/state")?,
            cache: if uid == 0 { PathBuf::from(SYSTEM_CACHE) } else { below("XDG_CACHE_HOME", ".cache")? },
        })
    }

    /// All of them, and where they would be by default: below the home of whoever started anet, and of the run's user, whose
    /// own runs have theirs there.
    pub(super) fn all(&self, run: Identity) -> Vec<PathBuf> {
        let own = [&self.configuration, &self.state, &self.cache, &self.data].map(Clone::clone);
        let named = env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let started = home_of(rustix::process::geteuid().as_raw());
        let homes = named.into_iter().chain(started).chain(home_of(run.uid));
        let usual = homes.flat_map(|home| {
            [".config", ".local/state", ".cache", ".local/share"].map(|usual| home.join(usual).join("anet"))
        });
        own.into_iter().chain(usual).collect()
    }

    /// Makes the directory of the runs' chains.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub fn make_chains(&self) -> Result<PathBuf, Trouble> {
        let chains = self.state.join("runs");
        make_private(&self.state)?;
        make_private(&chains)?;
        Ok(chains)
    }

    /// Makes the directory of the stored credentials.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub fn make_credentials(&self) -> Result<PathBuf, Trouble> {
        let credentials = self.state.join("credentials");
        make_private(&self.state)?;
        make_private(&credentials)?;
        Ok(credentials)
    }

    /// Makes the directory that the launcher makes the runs' directories in, owned by the run's user.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub fn make_runs(&self, run: Identity) -> Result<PathBuf, Trouble> {
        let sandboxed = self.cache.join("work-sandbox");
        if rustix::process::geteuid().as_raw() != 0 {
            let runs = sandboxed.join("local");
            make_private(&self.cache)?;
            make_private(&sandboxed)?;
            make_private(&runs)?;
            return Ok(runs);
        }
        make(&self.cache, PASSABLE)?;
        make(&sandboxed, PASSABLE)?;
        let runs = sandboxed.join(format!("local-{}", run.uid));
        make(&runs, PRIVATE)?;
        // The parent is root's alone, so this is the directory that was just made or checked.
        std::os::unix::fs::lchown(&runs, Some(run.uid), Some(run.gid))
            .map_err(|error| unusable(&runs, &error))?;
        Ok(runs)
    }
}

fn make_private(path: &Path) -> Result<(), Trouble> {
    make(path, PRIVATE)?;
    let found = fs::symlink_metadata(path).map_err(|error| unusable(path, &error))?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(Trouble::new(
            Code::StateUnusable,
            format!(
                "{} belongs to another user; remove it, or name another place with XDG variables",
                path.display()
            ),
        ));
    }
    Ok(())
}

/// Makes a directory and those above it; one that is there must be a real one that others cannot write.
fn make(path: &Path, mode: u32) -> Result<(), Trouble> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() && found.permissions().mode() & 0o022 == 0 => return Ok(()),
        Ok(found) if found.is_dir() => {
            return Err(Trouble::new(
                Code::StateUnusable,
                format!("{} can be written by others; run: chmod go-w {}", path.display(), path.display()),
            ));
        }
        Ok(_) => {
            return Err(Trouble::new(
                Code::StateUnusable,
                format!(
                    "{} is not a directory; remove it, or name another place with XDG variables",
                    path.display()
                ),
            ));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(unusable(path, &error)),
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| unusable(parent, &error))?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(unusable(path, &error)),
    }
    // The umask may have taken what the mode grants.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &std::io::Error) -> Trouble {
    Trouble::new(
        Code::StateUnusable,
        format!("{} cannot be used ({error}); see its owner, its mode and the free space", path.display()),
    )
}
