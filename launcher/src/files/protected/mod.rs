//! What stays read-only in a writable directory although the directory is writable (FS-4).
//!
//! A run's writable directory is used afterwards by the operator's own programs, outside the sandbox, and some file names
//! there are programs to them: a hook runs at the next commit, a start-up file at the next shell, a setting of an agent or
//! an editor at its next start. Whoever can write one of these runs a program as the operator, later, with everything.
//!
//! A name that does not exist yet is as good to an attacker as one that does: it gets a placeholder (see
//! [`crate::placeholder`]). A name that is a link is protected where it leads, and the link itself is put back at the end.
//!
//! That is the top of a writable directory. Below, what is there before the run is protected:
//!
//! * in every repository the whole table, since whoever works in a repository starts his programs in it;
//! * in every other directory the settings of agents and editors, which are started in any directory.
//!
//! Names that are not there get no placeholder below (but for the hooks and configuration of a repository that is there):
//! a directory that the run makes is as much its own as what it puts in it.
//!
//! A home directory has more to it, wherever it was opened: programs that are started at the next login or connection look
//! there, so the names that they look for are protected whether they exist or not, and placeholders of files are files.
//!
//! What is below is found by a bounded survey. No directory is left out of it, whatever its name, since any may have a
//! repository in it; a run could also give that name to a directory. But those that are known for their size are looked
//! into last (`survey::LATE`), so that a bound which is reached cuts them off and not the operator's own work.

mod names;
mod survey;

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

use super::git_config::{self, Bases};
use super::resolve;
use super::rules::{Node, Seen, View};
use names::{FILES, NAMES, Name, When};
use survey::{DEPTH, MAX_REPOSITORIES};

pub use names::table;
pub use survey::{Survey, survey};

/// The longest file of git's that is looked into, in bytes.
const MAX_TEXT: u64 = 64 * 1024;
/// How much of the list of users is looked at, in bytes.
const MAX_USERS: u64 = 4 * 1024 * 1024;
/// How many repositories lead from one to another (a worktree to its repository, that to its submodules).
const MAX_CHAIN: usize = 4;

/// What a directory is to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Not a home.
    Other,
    /// A home, and a repository as well: git would show files.
    Tracked,
    /// A home.
    Home,
}

/// What has to be done so that the names stay as they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// There, to be mounted read-only. Without a link in them.
    pub present: Vec<PathBuf>,
    /// Not there: to be made as placeholders.
    pub missing: Vec<PathBuf>,
    /// The same as files.
    pub missing_files: Vec<PathBuf>,
    /// Links, and what they say: a mount cannot hold a link, so it is put back at the end.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// The operator's home.
    home: Option<PathBuf>,
}

impl Found {
    /// Looks at the top of a writable directory, and at what the survey found below it. `home` is the operator's.
    #[must_use]
    pub fn look(view: &View, root: &Path, survey: &Survey, home: Option<&Path>) -> Found {
        let mut found = Found { home: home.map(Path::to_owned), ..Found::default() };
        if !root.is_dir() {
            // A single file was named: by its name, so it is open.
            return found;
        }
        found.top(view, root, role(root, home));
        if let Some(home) = home.filter(|home| *home != root && home.starts_with(root) && home.is_dir()) {
            found.top(view, home, Role::Home);
        }
        found.repository(view, root, When::Always);
        for repository in &survey.repositories {
            found.repository(view, repository, When::Present);
            found.below(view, repository, |_| true);
        }
        for directory in &survey.settings {
            found.below(view, directory, |name| name.anywhere);
        }
        if is_git_directory(root) {
            // `--rw DIR/.git` names the directory, not the hooks in it.
            found.git_directory(view, root, root, 0);
        }
        // The operator's own configuration may name files here, wherever it is itself.
        for directory in [Some(root), home].into_iter().flatten() {
            for name in [".gitconfig", ".config/git/config"] {
                found.configuration(&directory.join(name), root);
            }
        }
        for paths in [&mut found.present, &mut found.missing, &mut found.missing_files] {
            paths.retain(|path| view.protects(path));
        }
        found
    }

    /// The names of the table where the operator's programs start.
    fn top(&mut self, view: &View, directory: &Path, role: Role) {
        for name in NAMES {
            let when = match (name.when, role) {
                (When::HomeOrParent | When::HomeOrPresent, Role::Home | Role::Tracked) => When::Always,
                (when, _) => when,
            };
            let before = self.missing.len();
            self.name(view, directory, Path::new(name.path), when);
            if role == Role::Home && FILES.contains(&name.path) {
                self.missing_files.extend(self.missing.drain(before..));
            }
        }
    }

    /// What a configuration of git's names.
    fn configuration(&mut self, config: &Path, tree: &Path) {
        let home = self.home.clone();
        for path in git_config::named(config, Bases { tree, home: home.as_deref() }) {
            match resolve(&path) {
                Ok((path, Some(_))) => self.present.push(path),
                Ok((path, None)) => self.missing.push(path),
                Err(_) => {}
            }
        }
    }

    /// The names of the table in a directory that is not the top.
    fn below(&mut self, view: &View, directory: &Path, means_something: impl Fn(&Name) -> bool) {
        let mut last = None;
        for name in NAMES.iter().filter(|name| means_something(name)) {
            // Several names of one program are one below.
            if last.replace(name.below()) != Some(name.below()) {
                self.name(view, directory, name.below(), name.when_below());
            }
        }
    }

    /// One name below `base`, component by component, since any of them may be a link, a file, or missing.
    fn name(&mut self, view: &View, base: &Path, name: &Path, when: When) {
        let mut here = base.to_owned();
        let mut rest = name.components();
        while let Some(part) = rest.next() {
            here.push(part);
            let rest = rest.as_path();
            match fs::symlink_metadata(&here) {
                Ok(there) if there.file_type().is_symlink() => return self.link(view, &here, rest),
                Ok(there) if there.is_dir() && rest.as_os_str().is_empty() => return self.present.push(here),
                Ok(there) if there.is_dir() => {}
                // A file in the place of a directory: replaced by one, the name could come into being.
                Ok(_) => return self.present.push(here),
                Err(_) => {
                    let wanted = match when {
                        When::Always => true,
                        When::Parent | When::HomeOrParent => rest.as_os_str().is_empty(),
                        When::Present | When::HomeOrPresent => false,
                    };
                    if wanted {
                        // Collected, since to join an empty path adds a slash, and no file is looked up by that.
                        self.missing.push(here.components().chain(rest.components()).collect());
                    }
                    return;
                }
            }
        }
    }

    /// A name of a file that has to be one also as a placeholder.
    fn file(&mut self, view: &View, directory: &Path, name: &str) {
        let before = self.missing.len();
        self.name(view, directory, Path::new(name), When::Always);
        self.missing_files.extend(self.missing.drain(before..));
    }

    /// A link, and what it leads to, if the run can write there.
    fn link(&mut self, view: &View, link: &Path, rest: &Path) {
        let Ok(target) = fs::read_link(link) else { return };
        if matches!(view.seen(link), Seen::Writable(_)) {
            self.links.push((link.to_owned(), target));
        }
        match resolve(&link.join(rest)) {
            Ok((path, Some(_))) => self.present.push(path),
            Ok((path, None)) => self.missing.push(path),
            // Nothing can be opened through it, today or by anything that the run could make.
            Err(_) => {}
        }
    }

    /// The repository whose work tree is `tree`.
    fn repository(&mut self, view: &View, tree: &Path, when: When) {
        let git = tree.join(".git");
        match fs::symlink_metadata(&git) {
            Ok(there) if there.file_type().is_symlink() => {
                self.link(view, &git, Path::new(""));
                if let Ok((real, Some(Node::Directory))) = resolve(&git) {
                    self.git_directory(view, &real, tree, 0);
                }
            }
            Ok(there) if there.is_dir() => self.git_directory(view, &git, tree, 0),
            Ok(_) => {
                // A work tree or submodule: a file that says where its repository is.
                if let Some(real) = pointed_to(&git, b"gitdir: ") {
                    self.git_directory(view, &real, tree, 0);
                }
                self.present.push(git);
            }
            // No repository yet. One that the run makes has no hooks; its configuration is the run's own (git could not
            // make it otherwise), as that of any repository that it makes further down.
            Err(_) if when == When::Always => self.missing.push(git.join("hooks")),
            Err(_) => {}
        }
    }

    /// A repository's own directory: hooks, and the configuration, which can name others.
    fn git_directory(&mut self, view: &View, git: &Path, tree: &Path, chain: usize) {
        if chain >= MAX_CHAIN || !matches!(view.seen(git), Seen::Writable(_)) {
            return;
        }
        self.name(view, git, Path::new("hooks"), When::Always);
        self.name(view, git, Path::new("config"), When::Present);
        // These change where git looks for the first, also for the operator's own git, while the run lasts.
        self.file(view, git, "config.worktree");
        self.file(view, git, "commondir");
        if let Some(common) = pointed_to(&git.join("commondir"), b"").filter(|common| common != git) {
            self.git_directory(view, &common, tree, chain + 1);
        }
        self.configuration(&git.join("config"), tree);
        self.configuration(&git.join("config.worktree"), tree);
        for tree in directories(&git.join("worktrees")) {
            for name in ["commondir", "gitdir"] {
                self.name(view, &tree, Path::new(name), When::Present);
            }
            self.file(view, &tree, "config.worktree");
        }
        // A submodule's name may have slashes in it.
        let mut level = directories(&git.join("modules"));
        for _ in 0..DEPTH {
            let mut next = Vec::new();
            for module in level {
                match is_git_directory(&module) {
                    true => self.git_directory(view, &module, &module, chain + 1),
                    false => next.extend(directories(&module)),
                }
            }
            level = next;
        }
    }
}

fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").exists() && path.join("objects").is_dir()
}

/// The real directories in `path`, as many as are protected.
fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten().take(MAX_REPOSITORIES);
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// The directory that a one-line file points to, without a link in it.
fn pointed_to(file: &Path, before: &[u8]) -> Option<PathBuf> {
    let text = read(file, MAX_TEXT)?;
    let mut target = text.strip_prefix(before)?;
    while let Some(shorter) = target.strip_suffix(b"\n").or_else(|| target.strip_suffix(b"\r")) {
        target = shorter;
    }
    let (path, node) = resolve(&file.parent()?.join(OsString::from_vec(target.to_vec()))).ok()?;
    (node == Some(Node::Directory)).then_some(path)
}

/// As much of a file as is looked into.
pub(super) fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    // Another run may be changing this: no link is followed and no FIFO waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text).ok()?;
    Some(text)
}

/// What `directory` is: the operator's home by the system's word, or, where accounts are kept elsewhere, by its looks.
fn role(directory: &Path, home: Option<&Path>) -> Role {
    let looks =
        || [".bashrc", ".profile"].iter().any(|name| fs::symlink_metadata(directory.join(name)).is_ok());
    let tracked = || fs::symlink_metadata(directory.join(".git")).is_ok();
    match () {
        () if home == Some(directory) => Role::Home,
        () if !looks() => Role::Other,
        () if tracked() => Role::Tracked,
        () => Role::Home,
    }
}

/// The operator's home, without a link in it, as passwd(5) has it. No variable is asked: a run's operator may have set it
/// for another purpose.
#[must_use]
pub fn operators_home() -> Option<PathBuf> {
    let users = read(Path::new("/etc/passwd"), MAX_USERS)?;
    let home = home_of(&users, rustix::process::geteuid().as_raw())?;
    fs::canonicalize(home).ok().filter(|home| home.parent().is_some())
}

fn home_of(users: &[u8], uid: u32) -> Option<PathBuf> {
    let uid = uid.to_string();
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let home = (fields.nth(2)? == uid.as_bytes()).then(|| fields.nth(2))??;
        home.starts_with(b"/").then(|| PathBuf::from(OsString::from_vec(home.to_vec())))
    })
}

#[cfg(test)]
mod tests;
