//! The files that a run's home starts with: an agent's configuration.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use ipc_proto::Code;
use ipc_proto::launcher::{Failure, HomeFile, MAX_HOME_FILES};

use crate::failure::failure;

/// Writes them into `home`, a directory that was just made and that no run has seen yet.
///
/// # Errors
/// A [`Failure`] when one cannot be written, or its path leads out of the home.
pub fn fill(home: &Path, files: &[HomeFile]) -> Result<(), Failure> {
    if files.len() > MAX_HOME_FILES {
        return Err(failure(Code::StateUnusable, "more files for the run's home than an agent has"));
    }
    files.iter().try_for_each(|file| {
        write(home, file).map_err(|error| {
            let shown = crate::failure::escape(file.path.as_bytes());
            failure(Code::StateUnusable, &format!("{shown} in the run's home: {error}"))
        })
    })
}

fn write(home: &Path, file: &HomeFile) -> io::Result<()> {
    let path = relative(file.path.as_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
    let mut directory = home.to_owned();
    for name in path.parent().into_iter().flat_map(Path::components) {
        directory.push(name);
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    let mut options = OpenOptions::new();
    let mode = if file.executable { 0o700 } else { 0o600 };
    options.write(true).create_new(true).mode(mode).open(home.join(path))?.write_all(&file.contents)
}

/// A path of plain names alone.
fn relative(path: &[u8]) -> Option<PathBuf> {
    let plain = Path::new(std::ffi::OsStr::from_bytes(path));
    let normal: PathBuf = plain.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    // Compared as bytes: what the components left out makes a difference.
    (!path.is_empty() && normal.as_os_str().as_bytes() == path).then_some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &std::ffi::CStr) -> HomeFile {
        HomeFile { path: path.into(), contents: b"x".to_vec(), executable: false }
    }

    /// MOD-14, FS-5: an agent's configuration is in its home and nowhere else.
    #[test]
    fn files_are_written_below_home_only() {
        let home = tempfile::tempdir().unwrap();
        fill(home.path(), &[file(c".codex/config.toml"), file(c".codex/b/c"), file(c"d")]).unwrap();
        for path in [".codex/config.toml", ".codex/b/c", "d"] {
            assert_eq!(std::fs::read(home.path().join(path)).unwrap(), b"x");
        }
        for path in [c"", c"../x", c"/x", c"a/../../x", c"a//x", c"./x", c"x/", c"a/./x", c"d"] {
            assert!(fill(home.path(), &[file(path)]).is_err(), "{path:?}");
        }
        let many: Vec<HomeFile> = (0..=MAX_HOME_FILES).map(|_| file(c"e")).collect();
        assert!(fill(home.path(), &many).is_err());
    }
}
