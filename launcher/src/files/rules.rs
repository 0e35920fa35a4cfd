//! What a run sees of the file system, as one pure function from rules to mounts (FS-2, FS-4).
//!
//! The rules, in the words of the specification and with what they mean here:
//!
//! * Reading: of the rules that cover a path the one on the longest path decides; on the same path opening beats denying.
//!   So `--ro A/b` opens a part of a denied `A` again, and `--deny A/b` closes a part of an opened `A`.
//! * Writing: a denial on the path itself or above it beats every opening, so `--deny A --rw A/b` shows `A/b` read-only.
//!   Without one the longest path decides again: `--rw A --ro A/b` keeps `A/b` from being written.
//! * anet's own places (`masked`) are closed whatever is opened around them, and cannot be opened by name.
//! * Protected paths (see [`super::protected`]) are read-only inside a writable directory unless a rule to write names them.
//!
//! bwrap does one mount after the other, so a mount must follow those around it: the list is in the order of depth.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a run may do with an opened path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Read, and execute.
    ReadOnly,
    /// Also write, make and remove.
    ReadWrite,
}

/// Who opened a path. On the same path a later one of these beats an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Every run has it.
    System,
    /// It was made for this run.
    Own,
    /// The operator named it.
    Operator,
}

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// A path that a run sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Where it is in the sandbox; for the operator's paths the same as `source`.
    pub dest: PathBuf,
    /// Where it is on the host, without a link in it.
    pub source: PathBuf,
    /// How.
    pub access: Access,
    /// Who says so.
    pub origin: Origin,
}

/// A path that a run does not see, without a link in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Where.
    pub path: PathBuf,
    /// What it is (or what its placeholder will be).
    pub node: Node,
    /// One of anet's own: nothing opens it.
    pub masked: bool,
}

/// One step for bwrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mount {
    /// Show `source` at `dest`.
    Bind {
        /// On the host.
        source: PathBuf,
        /// In the sandbox.
        dest: PathBuf,
        /// How.
        access: Access,
    },
    /// An empty read-only directory in place of the one that is there.
    CloseDirectory {
        /// In the sandbox.
        dest: PathBuf,
        /// Something below it is open, so it has to be passed through, though not listed.
        passable: bool,
    },
    /// Something that cannot be opened in place of the file that is there.
    CloseFile {
        /// In the sandbox.
        dest: PathBuf,
    },
}

impl Mount {
    /// Where it is in the sandbox.
    #[must_use]
    pub fn dest(&self) -> &Path {
        match self {
            Mount::Bind { dest, .. } | Mount::CloseDirectory { dest, .. } | Mount::CloseFile { dest } => dest,
        }
    }
}

/// How a path appears to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// Nothing shows it.
    Absent,
    /// It is closed.
    Closed,
    /// It can be read.
    ReadOnly,
    /// It can be written, beneath this opened path.
    Writable(&'a Opened),
}

/// A rule that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// One of anet's own places was named.
    #[error("{} belongs to anet itself and is never shown to a run; name another path", path.display())]
    Masked {
        /// The path that was named.
        path: PathBuf,
    },
}

/// The rules after they were weighed against each other.
#[derive(Clone, Debug, Default)]
pub struct View {
    opened: Vec<Opened>,
    closed: Vec<Closed>,
}

impl View {
    /// Weighs the rules.
    ///
    /// # Errors
    /// [`RuleError::Masked`].
    pub fn new(opened: Vec<Opened>, closed: Vec<Closed>) -> Result<View, RuleError> {
        for rule in opened.iter().filter(|rule| rule.origin == Origin::Operator) {
            if closed.iter().any(|shut| shut.masked && rule.dest.starts_with(&shut.path)) {
                return Err(RuleError::Masked { path: rule.dest.clone() });
            }
        }
        let mut view = View::default();
        for mut rule in opened {
            if rule.origin == Origin::Operator && closed.iter().any(|shut| rule.dest.starts_with(&shut.path))
            {
                rule.access = Access::ReadOnly;
            }
            view.open(rule);
        }
        for shut in closed {
            view.close(shut);
        }
        view.drop_invisible();
        Ok(view)
    }

    fn open(&mut self, rule: Opened) {
        match self.opened.iter_mut().find(|known| known.dest == rule.dest) {
            None => self.opened.push(rule),
            // Named twice: who may write may read, so the wider of the two is what was asked for.
            Some(known) if known.origin == rule.origin => known.access = known.access.max(rule.access),
            Some(known) if known.origin < rule.origin => *known = rule,
            Some(_) => {}
        }
    }

    fn close(&mut self, shut: Closed) {
        let reopened =
            self.opened.iter().any(|rule| rule.origin == Origin::Operator && rule.dest == shut.path);
        match self.closed.iter_mut().find(|known| known.path == shut.path) {
            Some(known) => known.masked |= shut.masked,
            None if reopened && !shut.masked => {}
            None => self.closed.push(shut),
        }
    }

    /// A closed path that nothing shows needs no mount, and a mount for it would show that it is there.
    fn drop_invisible(&mut self) {
        let all = self.closed.clone();
        self.closed.retain(|shut| {
            let around = |path: &Path| path != shut.path && shut.path.starts_with(path);
            let open = self
                .opened
                .iter()
                .map(|rule| rule.dest.as_path())
                .filter(|path| around(path) || *path == shut.path);
            let closed = all.iter().map(|other| other.path.as_path()).filter(|path| around(path));
            let depth = |path: &Path| path.components().count();
            open.map(depth)
                .max()
                .is_some_and(|open| closed.map(depth).max().is_none_or(|closed| open > closed))
        });
        // On the same path a closure beats what every run has, or what was made for it.
        let shut: Vec<PathBuf> = self.closed.iter().map(|shut| shut.path.clone()).collect();
        self.opened.retain(|rule| rule.origin == Origin::Operator || !shut.contains(&rule.dest));
    }

    /// How `path` (without a link in it) appears to the run.
    #[must_use]
    pub fn seen(&self, path: &Path) -> Seen<'_> {
        let open = self.opened.iter().filter(|rule| path.starts_with(&rule.dest));
        let open = open.max_by_key(|rule| rule.dest.components().count());
        let shut = self.closed.iter().filter(|shut| path.starts_with(&shut.path));
        let shut = shut.map(|shut| shut.path.components().count()).max().unwrap_or(0);
        match open {
            Some(rule) if rule.dest.components().count() > shut => match rule.access {
                Access::ReadOnly => Seen::ReadOnly,
                Access::ReadWrite => Seen::Writable(rule),
            },
            Some(_) | None if shut > 0 => Seen::Closed,
            Some(_) | None => Seen::Absent,
        }
    }

    /// The operator's paths that the run may write below.
    pub fn writable(&self) -> impl Iterator<Item = &Opened> {
        self.opened.iter().filter(|rule| rule.access == Access::ReadWrite && rule.origin == Origin::Operator)
    }

    /// The operator's paths.
    pub fn named(&self) -> impl Iterator<Item = &Opened> {
        self.opened.iter().filter(|rule| rule.origin == Origin::Operator)
    }

    /// Everything that the run may write below, as seen inside.
    pub fn writable_inside(&self) -> impl Iterator<Item = &Path> {
        self.opened.iter().filter(|rule| rule.access == Access::ReadWrite).map(|rule| rule.dest.as_path())
    }

    /// What is closed.
    #[must_use]
    pub fn closed(&self) -> &[Closed] {
        &self.closed
    }

    /// Takes a closure back, of a path that is not there and that nobody with our rights could make.
    pub fn forget_closed(&mut self, path: &Path) {
        self.closed.retain(|shut| shut.path != path);
    }

    /// Whether `path` stays as it is: inside a writable path, and not itself named for writing.
    #[must_use]
    pub fn protects(&self, path: &Path) -> bool {
        let named = self.opened.iter().any(|rule| rule.dest == path);
        !named && matches!(self.seen(path), Seen::Writable(rule) if rule.origin == Origin::Operator)
    }

    /// The mounts, in order. `protected` are paths that exist by now, without a link in them.
    #[must_use]
    pub fn mounts(&self, protected: &[PathBuf]) -> Vec<Mount> {
        let kept: BTreeSet<&Path> =
            protected.iter().map(PathBuf::as_path).filter(|path| self.protects(path)).collect();
        let taken = |path: &Path| {
            kept.contains(path)
                || self.opened.iter().any(|rule| rule.dest == path)
                || self.closed.iter().any(|shut| shut.path == path)
        };
        // Renaming a directory takes the mounts in it along, and a new one could stand in its place: what lies between
        // the writable path and a mount below it is mounted onto itself, and a mount point cannot be renamed.
        let fixed = kept.iter().copied().chain(self.closed.iter().map(|shut| shut.path.as_path()));
        let pinned: BTreeSet<&Path> =
            fixed.flat_map(|path| self.between(path)).filter(|path| !taken(path)).collect();

        let bind = |source: &Path, dest: &Path, access| Mount::Bind {
            source: source.to_owned(),
            dest: dest.to_owned(),
            access,
        };
        let mut mounts: Vec<Mount> = Vec::new();
        mounts.extend(self.opened.iter().map(|rule| bind(&rule.source, &rule.dest, rule.access)));
        mounts.extend(kept.iter().map(|path| bind(path, path, Access::ReadOnly)));
        mounts.extend(pinned.iter().map(|path| bind(path, path, Access::ReadWrite)));
        mounts.extend(self.closed.iter().map(|shut| match shut.node {
            Node::Other => Mount::CloseFile { dest: shut.path.clone() },
            Node::Directory => Mount::CloseDirectory {
                dest: shut.path.clone(),
                passable: self.opened.iter().any(|rule| rule.dest.starts_with(&shut.path)),
            },
        }));
        mounts.sort_by(|a, b| {
            let depth = |mount: &Mount| mount.dest().components().count();
            depth(a).cmp(&depth(b)).then_with(|| a.dest().cmp(b.dest()))
        });
        mounts
    }

    /// The directories between `path` and the writable path that it is in.
    fn between<'a>(&self, path: &'a Path) -> Vec<&'a Path> {
        let parents = path.ancestors().skip(1);
        parents
            .take_while(|parent| {
                matches!(self.seen(parent), Seen::Writable(rule)
                    if rule.origin == Origin::Operator && rule.dest != **parent)
            })
            .collect()
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
