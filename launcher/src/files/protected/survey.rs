//! The look below a named directory, before the run.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use super::names::{NAMES, VERSION_CONTROL};
use crate::files::rules::{Access, Opened};

/// How deep below a named directory repositories, settings and sockets are looked for.
pub(super) const DEPTH: usize = 6;
/// How many names are looked at for that in each named directory. What lies beyond is not found; the log says so.
const MAX_ENTRIES: usize = 50_000;
/// How many repositories are protected in each named directory: each takes bwrap several mounts.
pub(super) const MAX_REPOSITORIES: usize = 64;
/// How many other directories with settings in them are protected in each named directory: each takes bwrap some mounts.
const MAX_SETTINGS: usize = 128;
/// Directories that tend to have very many names in them, and whether settings are looked for there: nobody starts a program
/// in git's own files or in an installed package, and a package that cannot be removed any more is an update that fails.
const LATE: &[(&str, bool)] = &[
    (".git", false),
    (".hg", false),
    (".jj", false),
    (".venv", false),
    ("node_modules", false),
    ("target", true),
];
/// What was found below a named directory before the run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Directories with a repository in them, the named one aside.
    pub repositories: Vec<PathBuf>,
    /// Other directories with settings of agents or editors in them.
    pub settings: Vec<PathBuf>,
    /// Sockets: whoever listens on one is reachable through it, so they are closed.
    pub sockets: Vec<PathBuf>,
    /// A bound was reached.
    pub cut: bool,
}

/// A directory to be looked into.
struct Place {
    path: PathBuf,
    depth: usize,
    /// Whether settings mean something there.
    settings: bool,
    /// It is heavy, or in such a one.
    late: bool,
}

/// Looks below `root`, breadth first, so that a bound cuts the deepest off.
#[must_use]
pub fn survey(root: &Opened) -> Survey {
    survey_within(root, MAX_ENTRIES)
}

pub(super) fn survey_within(root: &Opened, mut left: usize) -> Survey {
    let mut survey = Survey::default();
    let mut soon =
        VecDeque::from([Place { path: root.source.clone(), depth: 0, settings: true, late: false }]);
    let mut late = VecDeque::new();
    while let Some(place) = soon.pop_front().or_else(|| late.pop_front()) {
        let below = place.depth > 0 && root.access == Access::ReadWrite;
        let (mut repository, mut settings) = (false, false);
        // What cannot be read by us cannot be read by the run either, which has the same user.
        for entry in fs::read_dir(&place.path).into_iter().flatten().flatten() {
            if left == 0 {
                survey.cut = true;
                break;
            }
            left -= 1;
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            repository |= below && VERSION_CONTROL.iter().any(|known| name == *known);
            settings |= below && place.settings && is_setting(&name);
            if kind.is_socket() {
                survey.sockets.push(entry.path());
            } else if kind.is_dir() && place.depth < DEPTH {
                let heavy = LATE.iter().find(|(known, _)| name == *known);
                let settings = place.settings && heavy.is_none_or(|(_, settings)| *settings);
                let next_late = place.late || heavy.is_some();
                let next = Place { path: entry.path(), depth: place.depth + 1, settings, late: next_late };
                if next_late { &mut late } else { &mut soon }.push_back(next);
            }
        }
        match (repository, settings) {
            (true, _) => survey.repositories.push(place.path),
            (false, true) => survey.settings.push(place.path),
            (false, false) => {}
        }
        if survey.cut {
            break;
        }
    }
    for (found, most) in [(&mut survey.repositories, MAX_REPOSITORIES), (&mut survey.settings, MAX_SETTINGS)]
    {
        survey.cut |= found.len() > most;
        found.truncate(most);
    }
    survey
}

fn is_setting(name: &OsStr) -> bool {
    NAMES.iter().any(|known| known.anywhere && known.below() == name)
}
