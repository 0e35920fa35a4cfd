//! Device nodes, setuid programs, and what container runtimes mask in /proc and /sys.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};

use crate::call::{call, text};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[(&str, Attack)] = &[
    ("mknod_char", |a| mknod(a, libc::S_IFCHR, 1, 5)),
    ("mknod_block", |a| mknod(a, libc::S_IFBLK, 7, 0)),
    ("open_device", open_device),
    ("setuid_program", setuid_program),
    ("write_back", write_back),
    ("open_for_writing", open_for_writing),
    ("read_some", read_some),
    ("list_dir", list_dir),
];

/// Makes a node in the current directory and opens it.
fn mknod(_: &[String], kind: u32, major: u32, minor: u32) -> Verdict {
    let name = format!("probe-node-{}", std::process::id());
    let mode = kind | 0o666;
    let made =
        call(libc::SYS_mknodat, &[&libc::AT_FDCWD, &&text(&name), &mode, &libc::makedev(major, minor)]);
    let _ = fs::remove_file(&name);
    Verdict::of(made)
}

/// A device that is there: `open_device /dev/mem`.
fn open_device(arguments: &[String]) -> Verdict {
    let Some(path) = arguments.first() else { return Verdict::Broken("a path is missing".into()) };
    Verdict::of_io(File::open(path), |_| format!("opened {path}"))
}

/// Executes a program that belongs to user 0 and has the setuid bit (a copy of this one), and looks who it is then.
fn setuid_program(arguments: &[String]) -> Verdict {
    // SAFETY: a plain call.
    let effective = unsafe { libc::geteuid() };
    match arguments {
        [] => Verdict::Broken("a path is missing".into()),
        [path, ..] if path == "inside" => {
            if effective == 0 {
                Verdict::Succeeded("user 0".into())
            } else {
                Verdict::Refused(format!("still user {effective}"))
            }
        }
        [path, ..] => match std::process::Command::new(path).args(["setuid_program", "inside"]).output() {
            Ok(output) if output.status.success() => Verdict::Succeeded("user 0".into()),
            Ok(output) => Verdict::Refused(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            Err(error) => Verdict::Refused(error.to_string()),
        },
    }
}

/// Writes what is there already: outside, nothing changes.
fn write_back(arguments: &[String]) -> Verdict {
    let Some(path) = arguments.first() else { return Verdict::Broken("a path is missing".into()) };
    let written = fs::read(path).and_then(|content| {
        let mut file = File::options().write(true).open(path)?;
        file.write_all(&content)
    });
    Verdict::of_io(written, |()| format!("wrote {path}"))
}

/// Only opens: what a write would do is not wanted outside.
fn open_for_writing(arguments: &[String]) -> Verdict {
    let Some(path) = arguments.first() else { return Verdict::Broken("a path is missing".into()) };
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    let file = match File::options().write(true).open(path) {
        Ok(file) => file,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    // A mask is /dev/null bound over the file: it opens, and takes everything.
    match file.metadata() {
        Ok(m) if m.file_type().is_char_device() && m.rdev() == libc::makedev(1, 3) => {
            Verdict::Refused("masked by the null device".into())
        }
        Ok(_) => Verdict::Succeeded(format!("opened {path}")),
        Err(error) => Verdict::Broken(error.to_string()),
    }
}

/// At least one byte.
fn read_some(arguments: &[String]) -> Verdict {
    let Some(path) = arguments.first() else { return Verdict::Broken("a path is missing".into()) };
    let mut buffer = [0; 4096];
    match File::open(path).and_then(|mut file| file.read(&mut buffer)) {
        Ok(0) => Verdict::Refused("empty".into()),
        Ok(length) => Verdict::Succeeded(format!("{length} bytes of {path}")),
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

/// At least one name.
fn list_dir(arguments: &[String]) -> Verdict {
    let Some(path) = arguments.first() else { return Verdict::Broken("a path is missing".into()) };
    match fs::read_dir(path).map(|entries| entries.flatten().count()) {
        Ok(0) => Verdict::Refused("empty".into()),
        Ok(count) => Verdict::Succeeded(format!("{count} names in {path}")),
        Err(error) => Verdict::Refused(error.to_string()),
    }
}
