//! The list of mounts, as `/proc/self/mountinfo` has it, and what it has to say inside a sandbox.
//!
//! bubblewrap mounts by name. A run that goes on in a directory while another is started there can swap a name for a link at
//! the right moment, and something else of the host is mounted. So anet-init looks, from inside, before anything starts: below
//! a path that the operator opened there may be parts of that path's own file system, what was mounted there outside as
//! well, and what bubblewrap made itself.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ipc_proto::init::{ExpectedMount, ExpectedMounts, OutsideMount};
use rustix::fs::lstat;

/// What is bound over a file to close it.
const NULL: &[u8] = b"/null";

/// Reads the list.
///
/// # Errors
/// When /proc is not there, or has a line that is none.
pub fn read() -> io::Result<Vec<OutsideMount>> {
    parse(&std::fs::read("/proc/self/mountinfo")?)
}

fn parse(text: &[u8]) -> io::Result<Vec<OutsideMount>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| mount(line).ok_or_else(|| io::Error::other("a line that is no mount"))).collect()
}

/// `36 35 98:0 /root /mount/point rw,noatime ...` (proc(5)); spaces and the like are escaped in octal.
fn mount(line: &[u8]) -> Option<OutsideMount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let root = CString::new(unescape(fields.next()?)).ok()?;
    let place = CString::new(unescape(fields.next()?)).ok()?;
    Some(OutsideMount { device, root, place })
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                text.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                text.push(*first);
                rest = after;
            }
        }
    }
    text
}

/// Whether what is mounted here is what was expected. The first place that is not.
///
/// # Errors
/// That place; or an error of the system.
pub fn verify(expected: &ExpectedMounts) -> io::Result<Result<(), PathBuf>> {
    for opened in &expected.opened {
        let path = path(&opened.path);
        if lstat(path).map(|found| (found.st_dev, found.st_ino)).ok() != Some((opened.device, opened.inode)) {
            return Ok(Err(path.to_owned()));
        }
    }
    Ok(judge(&read()?, expected))
}

fn judge(mounts: &[OutsideMount], expected: &ExpectedMounts) -> Result<(), PathBuf> {
    for mount in mounts {
        let place = path(&mount.place);
        let Some(around) = innermost(place, &expected.opened) else { continue };
        if place == path(&around.path) {
            continue;
        }
        let base = mounts.iter().rev().find(|base| base.place == around.path);
        let is_part = base.is_some_and(|base| {
            base.device == mount.device && path(&mount.root).starts_with(path(&base.root))
        });
        let was_there = expected.outside.contains(mount);
        let is_new = !expected.outside.iter().any(|outside| outside.device == mount.device);
        let closes = mount.root.as_bytes() == NULL;
        if !(is_part || was_there || is_new || closes) {
            return Err(place.to_owned());
        }
    }
    Ok(())
}

/// The opened path that a mount stands in.
fn innermost<'a>(place: &Path, opened: &'a [ExpectedMount]) -> Option<&'a ExpectedMount> {
    let around = opened.iter().filter(|opened| place.starts_with(path(&opened.path)));
    around.max_by_key(|opened| opened.path.as_bytes().len())
}

fn path(text: &CString) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(device: &str, root: &str, place: &str) -> OutsideMount {
        let text = |text: &str| CString::new(text).unwrap();
        OutsideMount { device: device.into(), root: text(root), place: text(place) }
    }

    fn expected() -> ExpectedMounts {
        let opened = vec![ExpectedMount { path: c"/home/a/p".into(), device: 1, inode: 2 }];
        let outside =
            vec![line("8:1", "/", "/"), line("0:30", "/", "/home/a/p/mnt"), line("0:5", "/", "/dev")];
        ExpectedMounts { opened, outside }
    }

    fn with(more: OutsideMount) -> Result<(), PathBuf> {
        judge(&[line("0:99", "/", "/"), line("8:1", "/home/a/p", "/home/a/p"), more], &expected())
    }

    /// FS-5, FS-4: only parts of what was opened stand below it, whatever a name was when it was mounted.
    #[test]
    fn what_another_run_slipped_in_is_seen() {
        assert_eq!(with(line("8:1", "/home/a/p/.git/hooks", "/home/a/p/.git/hooks")), Ok(()));
        assert_eq!(with(line("0:30", "/", "/home/a/p/mnt")), Ok(()), "it is there outside too");
        assert_eq!(with(line("0:77", "/", "/home/a/p/closed")), Ok(()), "bubblewrap made it");
        assert_eq!(with(line("0:5", "/null", "/home/a/p/.env")), Ok(()), "a closed file");
        for slipped in [
            line("8:1", "/tmp", "/home/a/p/x"),
            line("8:1", "/home/a/pp", "/home/a/p/x"),
            line("0:30", "/", "/home/a/p/x"),
            line("0:5", "/shm", "/home/a/p/x"),
        ] {
            assert_eq!(with(slipped), Err("/home/a/p/x".into()));
        }
        assert_eq!(with(line("8:1", "/usr", "/usr")), Ok(()), "not below what was opened");
    }

    #[test]
    fn lines_are_read() {
        let text = b"36 35 98:0 /a\\040b /c\\134d rw shared:1 - ext4 /dev/root rw\n";
        assert_eq!(parse(text).unwrap(), [line("98:0", "/a b", "/c\\d")]);
        assert!(parse(b"36 35\n").is_err());
    }
}
