//! Where an agent is installed, and what of its installation a run must see.
//!
//! Nothing that is found is started to ask it who it is: the guard runs with the operator's rights, outside the sandbox.
//! What it needs to know it reads: links, a few magic bytes, a script's first lines, a version in a header file.
//!
//! **Who may have put it there.** The agent runs inside, so a false one takes what the run has and no more: the work
//! directory, and the model at the operator's cost. What of the host is shown for it is another matter: a link that an earlier
//! run left in a directory of PATH must not choose it. So the adapters look for the marks of a whole installation where the
//! links end, and the guard shows nothing that holds a home or the work directory. A false agent is enough to refuse a program that anybody on the host can
//! replace (itself or a directory above it writable by all, or somebody else's entry in a shared directory like /tmp).
//! Another owner, or a group that may write, is no reason: packages keep their builder's user, Homebrew has one of its own,
//! and where users have a group each everything of theirs is group-writable; the operator's own shell runs all of these.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ipc_proto::Code;
use serde::{Deserialize, Serialize};

use super::{hermes, native, openclaw, unsupported};
use crate::config::Agent;
use crate::error::Trouble;

/// Anybody may write.
const ALL_WRITE: u32 = 0o002;
/// In a directory: only the owner of an entry removes it.
const STICKY: u32 = 0o1000;
/// How much of a script or header is read, in bytes: what is looked for stands at its beginning.
const HEAD: u64 = 16 * 1024;
/// The most bytes of a sentence that name the places.
const SHOWN_PLACES: usize = 600;

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// The operator's `PATH`.
    pub path: &'a OsStr,
    /// The operator's home directory.
    pub home: Option<&'a Path>,
    /// What the configuration opens for reading (`read_only`): where an agent may be installed, too.
    pub more: &'a [PathBuf],
}

/// An agent that is installed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Installed {
    /// Which.
    pub agent: Agent,
    /// Its program or script: absolute, without links, and of the same name inside.
    pub program: PathBuf,
    /// What runs a script: node, or the Python of hermes's own environment.
    pub runtime: Option<PathBuf>,
    /// Directories and files that must be visible read-only under these names; below /usr everything is.
    pub visible: Vec<PathBuf>,
    pub(super) via: Via,
}

/// How a script is started by its runtime.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Via {
    /// By its name.
    Script,
    /// From this directory of packages: the runtime does not find them by itself.
    Packages(PathBuf),
}

/// Why a file of the right name is not the agent.
#[derive(Debug, thiserror::Error)]
pub(super) enum Why {
    #[error("is a version manager's switch and not the program; put the program's own directory into PATH")]
    Switch,
    #[error("has no program for this machine beside it; install the agent again, with its optional packages")]
    NoProgram,
    #[error("is not a script that Python starts; install hermes-agent with pip, pipx or uv")]
    NotPython,
    #[error("has no hermes_cli among the packages of its Python; install hermes-agent again")]
    NoPackages,
    #[error("needs Node.js, 24.16 or a later 24, or 26.1 or later, and none was found in PATH; install one")]
    NoNode,
    #[error(
        "needs Node.js, 24.16 or a later 24, or 26.1 or later, and {0} is {1}; install one and put it into PATH"
    )]
    OldNode(PathBuf, String),
    #[error("could be replaced by anybody on this host, since {0} can be; take that right away (chmod o-w)")]
    Open(PathBuf),
    #[error("belongs to another user in a directory that all share, {0}; install the agent elsewhere")]
    Shared(PathBuf),
    #[error("cannot be read ({0}); see the rights there")]
    Unreadable(std::io::Error),
}

/// Finds an agent: in `PATH`, in what is opened for reading, then where its installer puts it.
///
/// # Errors
/// [`Code::AgentMissing`], with where it was looked for, what stood in the way, and how to install it;
/// [`Code::AgentUnsupported`] for those that anet does not install or start.
pub fn find(agent: Agent, search: &Search<'_>) -> Result<Installed, Trouble> {
    match agent {
        Agent::Claude | Agent::Codex | Agent::Opencode | Agent::Hermes | Agent::Openclaw => {
            let mut looked = places(search, own_places(agent));
            // For a PATH that lacks them.
            looked.extend(SYSTEM_PLACES.map(PathBuf::from));
            find_in(agent, &looked, search)
        }
        Agent::Cursor | Agent::Custom => Err(unsupported(agent)),
    }
}

fn find_in(agent: Agent, looked: &[PathBuf], search: &Search<'_>) -> Result<Installed, Trouble> {
    let mut first: Option<(PathBuf, Why)> = None;
    for candidate in looked.iter().map(|place| place.join(agent.as_str())).filter(|file| is_program(file)) {
        match examine(agent, &candidate, search) {
            Ok(installed) => return Ok(installed),
            Err(why) => first = first.or(Some((candidate, why))),
        }
    }
    Err(missing(agent, looked, first))
}

fn examine(agent: Agent, candidate: &Path, search: &Search<'_>) -> Result<Installed, Why> {
    let real = resolve(candidate)?;
    let found = match agent {
        Agent::Claude => native::examine(agent, &real, &native::CLAUDE),
        Agent::Codex => native::examine(agent, &real, &native::CODEX),
        Agent::Opencode => native::examine(agent, &real, &native::OPENCODE),
        Agent::Hermes => hermes::examine(&real),
        Agent::Openclaw => openclaw::examine(candidate, &real, search),
        Agent::Cursor | Agent::Custom => Err(Why::NoProgram),
    }?;
    for path in [Some(&found.program), found.runtime.as_ref()].into_iter().flatten().chain(&found.visible) {
        refuse_open(path)?;
    }
    Ok(found)
}

// ---- places ----------------------------------------------------------------------------------------------------

/// Where installers put things below HOME, of whatever agent.
const HOME_PLACES: [&str; 5] = [".local/bin", "bin", ".npm-global/bin", ".bun/bin", ".local/share/pnpm"];
/// Where a system's own are.
const SYSTEM_PLACES: [&str; 2] = ["/usr/local/bin", "/usr/bin"];
/// Where a program stands in a directory that is named as a whole.
const BELOW: [&str; 3] = ["", "bin", "node_modules/.bin"];

/// What one agent's own installer uses, below HOME.
fn own_places(agent: Agent) -> &'static [&'static str] {
    match agent {
        Agent::Claude => &[".claude/local/node_modules/.bin"],
        Agent::Opencode => &[".opencode/bin"],
        Agent::Hermes => &[".hermes/hermes-agent/venv/bin"],
        Agent::Openclaw => &[".openclaw/bin"],
        Agent::Codex | Agent::Cursor | Agent::Custom => &[],
    }
}

/// All places, in order. A relative one is left out: it would be of whoever made the current directory.
pub(super) fn places(search: &Search<'_>, own: &[&str]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::env::split_paths(search.path).collect();
    for more in search.more {
        all.extend(BELOW.iter().map(|below| if below.is_empty() { more.clone() } else { more.join(below) }));
        // The program itself may be what is opened.
        all.extend(more.parent().map(Path::to_path_buf));
    }
    if let Some(home) = search.home {
        all.extend(HOME_PLACES.iter().chain(own).map(|place| home.join(place)));
    }
    let mut places: Vec<PathBuf> = Vec::with_capacity(all.len());
    for place in all {
        if place.is_absolute() && !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// A file that somebody may start.
pub(super) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

// ---- reading ---------------------------------------------------------------------------------------------------

pub(super) fn resolve(path: &Path) -> Result<PathBuf, Why> {
    path.canonicalize().map_err(Why::Unreadable)
}

/// The beginning of a file. Neither a pipe in its place nor a very long one holds the reader up.
pub(super) fn head(path: &Path) -> Option<Vec<u8>> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).ok()?;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(HEAD).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// What a run has to be shown of these: nothing that is below /usr, which it has, nor what is below another of them.
pub(super) fn shown(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in paths {
        if path.starts_with("/usr") || kept.iter().any(|known| path.starts_with(known)) {
            continue;
        }
        kept.retain(|known| !known.starts_with(&path));
        kept.push(path);
    }
    kept
}

/// The last component, where it is text.
pub(super) fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

// ---- trust -----------------------------------------------------------------------------------------------------

/// See the head of this file.
fn refuse_open(path: &Path) -> Result<(), Why> {
    let own = rustix::process::geteuid().as_raw();
    let mut below: Option<u32> = None;
    for part in path.ancestors() {
        // What a link points to is looked at where it stands, as a path of its own.
        let found = fs::symlink_metadata(part).map_err(Why::Unreadable)?;
        let mode = found.permissions().mode();
        if mode & ALL_WRITE != 0 && !found.is_symlink() {
            match below {
                Some(owner) if found.is_dir() && mode & STICKY != 0 => {
                    if owner != 0 && owner != own {
                        return Err(Why::Shared(part.to_path_buf()));
                    }
                }
                Some(_) | None => return Err(Why::Open(part.to_path_buf())),
            }
        }
        below = Some(found.uid());
    }
    Ok(())
}

// ---- the sentence ----------------------------------------------------------------------------------------------

fn missing(agent: Agent, looked: &[PathBuf], first: Option<(PathBuf, Why)>) -> Trouble {
    let name = agent.as_str();
    if let Some((candidate, why)) = first {
        return Trouble::new(Code::AgentMissing, format!("{name}: {} {why}", candidate.display()));
    }
    let mut places = String::new();
    for (at, place) in looked.iter().enumerate() {
        if looked.iter().take(at).any(|known| known == place) {
            continue;
        }
        if places.len() > SHOWN_PLACES {
            places.push_str(", ...");
            break;
        }
        let comma = if places.is_empty() { "" } else { ", " };
        places.push_str(&format!("{comma}{}", place.display()));
    }
    Trouble::new(
        Code::AgentMissing,
        format!(
            "{name} is in none of {places}; install it ({}), or name the directory where it is in read_only of \
             [auto_reply.sandbox]",
            install(agent)
        ),
    )
}

fn install(agent: Agent) -> &'static str {
    match agent {
        Agent::Claude => "npm install -g @anthropic-ai/claude-code",
        Agent::Codex => "npm install -g @openai/codex",
        Agent::Opencode => "npm install -g opencode-ai",
        Agent::Hermes => "pipx install hermes-agent",
        Agent::Openclaw => "npm install -g openclaw",
        Agent::Cursor | Agent::Custom => "see its own documentation",
    }
}

#[cfg(test)]
mod tests;
