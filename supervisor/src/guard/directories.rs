//! Where anet keeps things, and that nobody else can change them there.

use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use confine::sys::spawn::Identity;
use ipc_proto::Code;

use super::identity::home_of;
use crate::error::Trouble;
use crate::node::job::Mode;

/// Only the owner gets in.
const PRIVATE: u32 = 0o700;
/// Others may pass through, to a directory of their own.
const PASSABLE: u32 = 0o711;
/// root's runs live where the run's own user can reach them; below root's home it could not.
const SYSTEM_CACHE: &str = "/var/cache/anet";
/// A service's.
const SYSTEM_STATE: &str = "/var/lib/anet";
/// A service's.
const SYSTEM_CONFIGURATION: &str = "/etc/anet";
/// Where a service listens.
const SYSTEM_RUNTIME: &str = "/run/anet";
/// What clients connect to.
const CONTROL_SOCKET: &str = "control.sock";

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

    /// A service's.
    #[must_use]
    pub fn service() -> Directories {
        Directories {
            configuration: SYSTEM_CONFIGURATION.into(),
            state: SYSTEM_STATE.into(),
            cache: SYSTEM_CACHE.into(),
            data: SYSTEM_STATE.into(),
        }
    }

    /// Those of a node.
    ///
    /// # Errors
    /// As [`Directories::find`].
    pub fn of(mode: Mode) -> Result<Directories, Trouble> {
        match mode {
            Mode::User => Directories::find(),
            Mode::System => Ok(Directories::service()),
        }
    }

    /// Where a node listens: the first of these that it can use. A client tries all of them, since it may have been started
    /// with other variables than the node.
    #[must_use]
    pub fn control_sockets(&self) -> Vec<PathBuf> {
        if *self == Directories::service() {
            return vec![Path::new(SYSTEM_RUNTIME).join(CONTROL_SOCKET)];
        }
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let runtime = runtime.map(|path| path.join("anet"));
        runtime.into_iter().chain([self.state.join("run")]).map(|path| path.join(CONTROL_SOCKET)).collect()
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

    /// Makes the directory of the state, for a service one that its users pass through.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub(super) fn make_state(&self, mode: Mode) -> Result<(), Trouble> {
        match mode {
            Mode::User => make_private(&self.state),
            // Made by the package as whoever's, and for each user's own within it.
            Mode::System => make_private(&self.state).and_then(|()| {
                fs::set_permissions(&self.state, fs::Permissions::from_mode(PASSABLE))
                    .map_err(|error| unusable(&self.state, &error))
            }),
        }
    }

    /// Makes a directory of the state that is the supervisor's alone.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub(super) fn make_kept(&self, name: &str, owner: Option<Identity>) -> Result<PathBuf, Trouble> {
        let kept = self.state.join(name);
        match owner {
            None => make_private(&kept)?,
            Some(owner) => make_for(&kept, owner)?,
        }
        Ok(kept)
    }

    /// Makes the directory that the launcher makes the directories of `anet run` in, owned by the run's user. No peer's id
    /// begins with a point.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub fn make_runs(&self, run: Identity) -> Result<PathBuf, Trouble> {
        if rustix::process::geteuid().as_raw() != 0 {
            let sandboxed = self.make_sandboxed(run)?;
            let runs = sandboxed.join(".local");
            make_private(&runs)?;
            return Ok(runs);
        }
        // Beside what a node's launcher owns: of root's runs each user has a directory that no other can replace.
        make(&self.cache, PASSABLE)?;
        let runs = self.cache.join(format!(".local-{}", run.uid));
        make_for(&runs, run)?;
        Ok(runs)
    }

    /// Makes the directory that the launcher of a node makes peers' directories in, owned by the run's user.
    ///
    /// # Errors
    /// [`Code::StateUnusable`].
    pub(super) fn make_sandboxed(&self, run: Identity) -> Result<PathBuf, Trouble> {
        let sandboxed = self.sandboxed();
        if rustix::process::geteuid().as_raw() == 0 {
            make(&self.cache, PASSABLE)?;
            make_for(&sandboxed, run)?;
        } else {
            make_private(&self.cache)?;
            make_private(&sandboxed)?;
        }
        Ok(sandboxed)
    }

    /// Where sandboxed runs of a node work (FS-3).
    pub(super) fn sandboxed(&self) -> PathBuf {
        self.cache.join("work-sandbox")
    }

    /// Where direct runs of a node work, unless another place is configured (FS-3).
    pub(super) fn direct(&self) -> PathBuf {
        self.cache.join("work")
    }
}

/// Makes a directory of another user in one that is root's alone.
fn make_for(path: &Path, owner: Identity) -> Result<(), Trouble> {
    make(path, PRIVATE)?;
    // The parent is root's alone, so this is the directory that was just made or checked.
    std::os::unix::fs::lchown(path, Some(owner.uid), Some(owner.gid))
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE)))
        .map_err(|error| unusable(path, &error))
}

/// Makes a directory that only we get into.
pub(super) fn make_private(path: &Path) -> Result<(), Trouble> {
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

pub(super) fn unusable(path: &Path, error: &std::io::Error) -> Trouble {
    Trouble::new(
        Code::StateUnusable,
        format!("{} cannot be used ({error}); see its owner, its mode and the free space", path.display()),
    )
}
