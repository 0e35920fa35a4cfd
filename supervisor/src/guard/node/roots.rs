//! FS-3: where direct runs and where sandboxed runs work never overlap, so nothing that an untrusted run leaves behind appears
//! where an agent starts outside of the sandbox.

use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use ipc_proto::Code;

use super::super::Directories;
use crate::config::AutoReply;
use crate::error::Trouble;
use crate::explain;

/// Where direct runs work, once it is known that it lies apart from where sandboxed ones do.
///
/// # Errors
/// [`Code::RootsOverlap`]; [`Code::BadConfig`] for a place that is no absolute path.
pub(super) fn direct(auto_reply: &AutoReply, directories: &Directories) -> Result<PathBuf, Trouble> {
    let direct = match auto_reply.work_dir.as_str() {
        "" => directories.direct(),
        named => PathBuf::from(named),
    };
    if !direct.is_absolute() {
        return Err(Trouble::new(
            Code::BadConfig,
            format!("auto_reply.work_dir: {}: give an absolute path", direct.display()),
        ));
    }
    let sandboxed = directories.sandboxed();
    if overlap(&direct, &sandboxed) {
        let which = format!("{} and {}", direct.display(), sandboxed.display());
        return Err(Trouble::new(Code::RootsOverlap, explain::with_detail(Code::RootsOverlap, &which)));
    }
    Ok(direct)
}

/// Equal, or one within the other, by whatever name: without links, and by what the directories are, since one can be mounted
/// at a second place.
fn overlap(one: &Path, other: &Path) -> bool {
    let (one, other) = (real(one), real(other));
    one.starts_with(&other) || other.starts_with(&one) || within(&one, &other) || within(&other, &one)
}

/// Whether one of the directories on the way to `inner` is `outer`.
fn within(inner: &Path, outer: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let Some(outer) = identity(outer) else { return false };
    inner.ancestors().any(|part| identity(part) == Some(outer))
}

/// The path without links as far as it exists; from there on without what leads back.
fn real(path: &Path) -> PathBuf {
    let mut real = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                real.pop();
            }
            Component::Normal(name) => {
                real.push(name);
                // A link that leads to what is not there yet is followed by name.
                for _ in 0..MAX_LINKS {
                    let Ok(target) = real.read_link() else { break };
                    real.pop();
                    real = self::lexical(&real.join(target));
                }
                if let Ok(found) = real.canonicalize() {
                    real = found;
                }
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    real
}

/// As many links one after the other as the kernel follows.
const MAX_LINKS: u32 = 40;

fn lexical(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// FS-3: equal, nested, through a link, through one that leads to nothing yet, with steps back; and what lies apart.
    #[test]
    fn roots_that_overlap_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap();
        let directories = Directories {
            configuration: base.join("config"),
            state: base.join("state"),
            cache: base.join("cache"),
            data: base.join("data"),
        };
        let sandboxed = base.join("cache/work-sandbox");
        symlink(&sandboxed, base.join("early")).unwrap();
        symlink("early", base.join("twice")).unwrap();
        let refused = |work_dir: &Path| {
            let auto_reply =
                AutoReply { work_dir: work_dir.to_str().unwrap().into(), ..AutoReply::default() };
            direct(&auto_reply, &directories).map_err(|trouble| trouble.code)
        };
        for there in [false, true] {
            if there {
                std::fs::create_dir_all(sandboxed.join("p1")).unwrap();
                symlink(&sandboxed, base.join("link")).unwrap();
                symlink(base.join("cache"), base.join("above")).unwrap();
                assert_eq!(refused(&base.join("link")), Err(Code::RootsOverlap));
                assert_eq!(refused(&base.join("link/p1")), Err(Code::RootsOverlap));
                assert_eq!(refused(&base.join("above")), Err(Code::RootsOverlap));
            }
            for path in [
                "cache/work-sandbox",
                "cache/work-sandbox/below",
                "cache",
                "",
                "cache/work/../work-sandbox",
                "cache/./work-sandbox/",
                "early",
                "early/p1",
                "twice/x",
            ] {
                assert_eq!(refused(&base.join(path)), Err(Code::RootsOverlap), "{path} {there}");
            }
            assert_eq!(refused(Path::new("/")), Err(Code::RootsOverlap));
            for path in ["cache/work", "cache/work-sandbox-2", "other", "cache/work-sandbox/../own"] {
                assert_eq!(refused(&base.join(path)), Ok(base.join(path)), "{path} {there}");
            }
        }
        assert_eq!(refused(Path::new("relative")), Err(Code::BadConfig));
        assert_eq!(direct(&AutoReply::default(), &directories), Ok(base.join("cache/work")));
    }
}
