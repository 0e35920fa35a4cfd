//! Whether the user that a run has can get at an installation at all.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use confine::sys::spawn::Identity;

/// Whether the run's user can enter every directory down to `path` and read it: started by root, a run has another user
/// (SBX-3), and what is installed in root's own home is closed to it. Mode bits alone are looked at, and no group but the
/// one that it has.
#[must_use]
pub fn reachable(path: &Path, user: Identity) -> bool {
    // What a link points to counts.
    path.canonicalize().is_ok_and(|real| real.ancestors().all(|part| may_enter(part, user)))
}

fn may_enter(path: &Path, user: Identity) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    let mode = found.permissions().mode();
    let bits = if found.uid() == user.uid {
        mode >> 6
    } else if found.gid() == user.gid {
        mode >> 3
    } else {
        mode
    };
    // A script is read by its runtime, not started; a program that may be read may be started, too.
    let wanted = if found.is_dir() { 0o1 } else { 0o4 };
    bits & wanted != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SBX-3: an installation in somebody's closed home is seen before anything starts.
    #[test]
    fn what_the_run_cannot_enter_is_not_reachable() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("claude");
        fs::write(&program, "x").unwrap();
        let found = fs::metadata(directory.path()).unwrap();
        let other = Identity { uid: found.uid() + 1, gid: found.gid() + 1 };
        let member = Identity { gid: found.gid(), ..other };
        let owner = Identity { uid: found.uid(), gid: found.gid() };
        for (of_directory, of_program, expected) in [
            (0o700, 0o755, [true, false, false]),
            (0o750, 0o755, [true, true, false]),
            (0o755, 0o755, [true, true, true]),
            (0o755, 0o750, [true, true, false]),
            (0o755, 0o700, [true, false, false]),
        ] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(of_directory)).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(of_program)).unwrap();
            let seen = [owner, member, other].map(|user| reachable(&program, user));
            assert_eq!(seen, expected, "{of_directory:o} {of_program:o}");
        }
        assert!(!reachable(Path::new("/nowhere/claude"), owner));
    }
}
