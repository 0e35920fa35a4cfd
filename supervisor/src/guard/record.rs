//! The file that the record of a run goes to (`--record`), which a run may be able to reach and change.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use ipc_proto::Code;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat, unlinkat};

use crate::error::Trouble;

/// Opened before the run, and looked at again after it.
#[derive(Debug)]
pub(super) struct RecordFile {
    file: File,
    /// None: a pipe or a terminal, which has no name to be replaced under.
    place: Option<Place>,
    shown: String,
}

#[derive(Debug)]
struct Place {
    directory: OwnedFd,
    name: OsString,
}

impl RecordFile {
    /// Opens the file, which is not cut here: an older record stays whole until there is a new one.
    pub(super) fn open(path: &Path) -> Result<RecordFile, Trouble> {
        let shown = path.display().to_string();
        let bad = |why: &str| Trouble::new(Code::BadPath, format!("--record {shown}: {why}"));
        // Links of the system (/dev/stderr, /dev/fd/N) are followed; any other may have been planted by an earlier run.
        let follow = if path.starts_with("/dev") { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY | follow).bits()).unwrap_or(0);
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags);
        let opened = options
            .clone()
            .read(true)
            .create(true)
            .truncate(false)
            .open(path)
            .or_else(|_| options.open(path));
        let file = opened.map_err(|error| bad(&format!("{error}; give a plain file that can be written")))?;
        let found = file.metadata().map_err(|error| bad(&error.to_string()))?;
        if !found.is_file() {
            return Ok(RecordFile { file, place: None, shown });
        }
        if found.nlink() != 1 {
            return Err(bad(
                "the file has a second name, which an earlier run may have given it; give another",
            ));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = File::open(parent).map_err(|error| bad(&error.to_string()))?.into();
        let name = path.file_name().ok_or_else(|| bad("give the name of a file"))?.to_owned();
        Ok(RecordFile { file, place: Some(Place { directory, name }), shown })
    }

    /// For the supervisor, who writes it.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// After the end of the run: a file that was put in its place is replaced by the true record. The words for the operator
    /// where that is not possible.
    pub(super) fn settle(&mut self) -> Option<String> {
        let place = self.place.as_ref()?;
        let own = self.file.metadata().ok()?;
        let found = statat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| (found.st_dev, found.st_ino) == (own.dev(), own.ino())) {
            return None;
        }
        if restore(&mut self.file, place).is_ok() {
            return None;
        }
        Some(format!(
            "anet: record_failed: the run put another file in the place of {}; the true record is in `anet show`",
            self.shown
        ))
    }
}

/// Writes what the supervisor wrote beside whatever is there now, and moves it over that.
fn restore(file: &mut File, place: &Place) -> std::io::Result<()> {
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    let beside = format!(".anet-record-{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut new = File::from(openat(&place.directory, &beside, flags, Mode::RUSR | Mode::WUSR)?);
    let moved = new
        .write_all(&text)
        .and_then(|()| Ok(renameat(&place.directory, &beside, &place.directory, &place.name)?));
    if moved.is_err() {
        let _ = unlinkat(&place.directory, &beside, AtFlags::empty());
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EVI-5, FS-5: neither a link nor a second name that an earlier run left is followed.
    #[test]
    fn planted_links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, place.path().join("link")).unwrap();
        std::fs::hard_link(&victim, place.path().join("second")).unwrap();
        for name in ["link", "second"] {
            assert_eq!(RecordFile::open(&place.path().join(name)).unwrap_err().code, Code::BadPath, "{name}");
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    /// EVI-5: what a run puts in the record's place does not stay there.
    #[test]
    fn a_replaced_record_is_put_back() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("record.json");
        let mut record = RecordFile::open(&path).unwrap();
        record.file.write_all(b"true").unwrap();
        assert_eq!(record.settle(), None);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!(record.settle(), None);
        assert_eq!(std::fs::read(&path).unwrap(), b"true");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
    }
}
