//! Files outside the directories of the run.

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};

use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[(&str, Attack)] = &[
    ("write_file", write_file),
    ("append_file", append_file),
    ("write_through_link", write_through_link),
    ("write_dot_dot", write_dot_dot),
    ("hard_link_in", hard_link_in),
    ("hard_link_out", hard_link_out),
    ("rename_out", rename_out),
    ("rename_over", rename_over),
    ("delete", delete),
    ("chmod", chmod),
    ("inherited_descriptors", inherited_descriptors),
    ("fill_disk", fill_disk),
    ("fill_disk_sparse_names", fill_disk_names),
];

fn two(arguments: &[String], attack: impl FnOnce(&str, &str) -> std::io::Result<()>) -> Verdict {
    match arguments {
        [from, to, ..] => Verdict::of_io(attack(from, to), |()| format!("{from} to {to}")),
        _ => Verdict::Broken("two paths are missing".into()),
    }
}

fn one(arguments: &[String], attack: impl FnOnce(&str) -> std::io::Result<()>) -> Verdict {
    match arguments {
        [path, ..] => Verdict::of_io(attack(path), |()| path.clone()),
        [] => Verdict::Broken("a path is missing".into()),
    }
}

fn write_file(arguments: &[String]) -> Verdict {
    one(arguments, |path| fs::write(path, "probe"))
}

fn append_file(arguments: &[String]) -> Verdict {
    one(arguments, |path| File::options().append(true).open(path)?.write_all(b"probe"))
}

/// A link here that leads outside, then a write through it.
fn write_through_link(arguments: &[String]) -> Verdict {
    one(arguments, |path| {
        let link = format!("probe-link-{}", std::process::id());
        std::os::unix::fs::symlink(path, &link)?;
        let written = File::options().append(true).open(&link).and_then(|mut file| file.write_all(b"probe"));
        fs::remove_file(&link)?;
        written
    })
}

/// The path, from here upwards to the root and down again.
fn write_dot_dot(arguments: &[String]) -> Verdict {
    one(arguments, |path| {
        let up = "../".repeat(40);
        File::options().append(true).open(format!("{up}{path}"))?.write_all(b"probe")
    })
}

/// A second name here for a file outside.
fn hard_link_in(arguments: &[String]) -> Verdict {
    one(arguments, |path| {
        let name = format!("probe-hard-{}", std::process::id());
        fs::hard_link(path, &name)?;
        fs::remove_file(&name)
    })
}

/// A name outside for a file here.
fn hard_link_out(arguments: &[String]) -> Verdict {
    one(arguments, |path| {
        let name = format!("probe-own-{}", std::process::id());
        fs::write(&name, "probe")?;
        let linked = fs::hard_link(&name, path);
        fs::remove_file(&name)?;
        linked
    })
}

fn rename_out(arguments: &[String]) -> Verdict {
    one(arguments, |path| {
        let name = format!("probe-own-{}", std::process::id());
        fs::write(&name, "probe")?;
        let renamed = fs::rename(&name, path);
        let _ = fs::remove_file(&name);
        renamed
    })
}

fn rename_over(arguments: &[String]) -> Verdict {
    two(arguments, |from, to| fs::rename(from, to))
}

fn delete(arguments: &[String]) -> Verdict {
    one(arguments, |path| fs::remove_file(path))
}

fn chmod(arguments: &[String]) -> Verdict {
    use std::os::unix::fs::PermissionsExt as _;
    one(arguments, |path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)))
}

/// Descriptors above 2 that this program did not open.
fn inherited_descriptors(_: &[String]) -> Verdict {
    let mut found = Vec::new();
    for descriptor in 3..1024 {
        let link = fs::read_link(format!("/proc/self/fd/{descriptor}"));
        found.extend(link.map(|target| format!("{descriptor} is {}", target.display())));
    }
    if found.is_empty() { Verdict::Refused("none".into()) } else { Verdict::Succeeded(found.join(", ")) }
}

/// So many MiB in the current directory, in blocks that are really written.
fn fill_disk(arguments: &[String]) -> Verdict {
    let Some(wanted) = arguments.first().and_then(|a| a.parse::<u64>().ok()) else {
        return Verdict::Broken("a number of MiB is missing".into());
    };
    let name = format!("probe-fill-{}", std::process::id());
    let block = vec![0x5a; 1 << 20];
    let filled = File::create(&name).and_then(|mut file| {
        for _ in 0..wanted {
            file.write_all(&block)?;
            // Slowly enough that somebody who looks every second sees it grow.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        file.stream_position()
    });
    // What was written has to lie there for longer than the interval at which growth is looked at.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let _ = fs::remove_file(&name);
    Verdict::of_io(filled, |bytes| format!("{bytes} bytes"))
}

/// So many empty files: no bytes, and a directory that grows.
fn fill_disk_names(arguments: &[String]) -> Verdict {
    let Some(wanted) = arguments.first().and_then(|a| a.parse::<u64>().ok()) else {
        return Verdict::Broken("a number is missing".into());
    };
    let made = (0..wanted).try_for_each(|number| File::create(format!("probe-name-{number}")).map(drop));
    Verdict::of_io(made, |()| format!("{wanted} names"))
}
