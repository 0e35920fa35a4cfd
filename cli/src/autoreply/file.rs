//! The configuration file: read, and replaced whole, while nobody else does.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ipc_proto::Code;
use rustix::fs::{FlockOperation, OFlags, flock};
use supervisor::error::Trouble;

/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// A file and a directory of the operator's alone.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;
/// How many names for the new text are tried.
const NAMES: u32 = 100;

/// The file, and a lock on the directory it is in: whoever else changes it with `anet` waits.
#[derive(Debug)]
pub(super) struct Locked {
    /// Without links: what is replaced is the file, not a link to it.
    path: PathBuf,
    directory: File,
}

/// The text; empty where there is no file.
pub(super) fn read(path: &Path) -> Result<String, Trouble> {
    let bad = |what: String| Trouble::new(Code::BadConfig, format!("{}: {what}", path.display()));
    let cannot =
        |error: std::io::Error| bad(format!("cannot be read ({error}); see that it is a text file of yours"));
    // A pipe has no text to keep, and nobody would write into it.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(cannot(error)),
    };
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(bad("is no file".to_owned()));
    }
    if found.len() > MAX_FILE {
        return Err(bad("larger than a configuration can be".to_owned()));
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

impl Locked {
    /// Makes the directory where it is missing, and waits for the lock.
    pub(super) fn new(path: &Path) -> Result<Locked, Trouble> {
        let path = resolved(path)?;
        let place = path.parent().filter(|place| !place.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let cannot = |error: std::io::Error| {
            let what = format!("{} cannot be used ({error}); see its owner and its mode", place.display());
            Trouble::new(Code::BadConfig, what)
        };
        DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(place).map_err(cannot)?;
        let directory = File::open(place).map_err(cannot)?;
        flock(&directory, FlockOperation::LockExclusive).map_err(|errno| cannot(errno.into()))?;
        Ok(Locked { path, directory })
    }

    /// The text now that nobody else changes it.
    pub(super) fn read(&self) -> Result<String, Trouble> {
        read(&self.path)
    }

    /// Replaces it, whole or not at all, with the owner and mode that it has.
    pub(super) fn replace(&self, text: &str) -> Result<(), Trouble> {
        let cannot = |error: std::io::Error| {
            let why = format!("{} cannot be written ({error}); it is as it was", self.path.display());
            Trouble::new(Code::BadConfig, why)
        };
        let (draft, file) = self.draft().map_err(cannot)?;
        let written = self.fill(&file, text).and_then(|()| fs::rename(&draft, &self.path));
        if let Err(error) = written {
            let _ = fs::remove_file(&draft);
            return Err(cannot(error));
        }
        // So that the new one is there after a crash; not every file system can, and either of the two is a whole file.
        let _ = self.directory.sync_all();
        Ok(())
    }

    fn draft(&self) -> std::io::Result<(PathBuf, File)> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut number = 0;
        loop {
            let draft = self.path.with_file_name(format!(".{name}.{}.{number}", std::process::id()));
            let made = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&draft);
            match made {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < NAMES => number += 1,
                made => return made.map(|file| (draft, file)),
            }
        }
    }

    fn fill(&self, mut file: &File, text: &str) -> std::io::Result<()> {
        if let Ok(old) = fs::metadata(&self.path) {
            let new = file.metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}

/// The path at the end of all links, whether there is a file or not.
fn resolved(path: &Path) -> Result<PathBuf, Trouble> {
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // A link to a file that is not there yet: it is made where the link says.
            match fs::read_link(path) {
                Ok(target) => Ok(path.parent().unwrap_or(Path::new("")).join(target)),
                Err(_) => Ok(path.to_owned()),
            }
        }
        Err(error) => {
            Err(Trouble::new(Code::BadConfig, format!("{} cannot be used ({error})", path.display())))
        }
    }
}
