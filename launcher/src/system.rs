//! What every sandbox has of the host, and the small /etc that is made up for it (FS-1).
//!
//! Named directories, never the root: a name that is not here does not exist inside. Nothing of it is another user's, and
//! nothing of it can hang, as a dead network mount somewhere below `/` would.

use std::path::{Path, PathBuf};

use crate::files::rules::{Access, Opened, Origin};

/// Shown read-only where they exist.
const SYSTEM: &[&str] = &[
    "/usr",
    // What /usr/bin/python, awk, editor and hundreds of others are on Debian: links only.
    "/etc/alternatives",
    // Without it the loader looks through every directory for every library.
    "/etc/ld.so.cache",
    // Certificates: Debian, Fedora, Arch. The files behind Debian's links are in /usr.
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates/extracted",
    // How many processors there are and how they lie together. Allocators, thread pools and inference libraries ask, and
    // some abort without an answer. The rest of /sys (devices, serial numbers, network cards) stays outside.
    "/sys/devices/system/cpu",
];

/// Links into /usr on systems with a merged /usr; directories elsewhere.
const MERGED: &[&str] = &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What the host offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// To be shown.
    pub opened: Vec<Opened>,
    /// To be made as links: where, and what they say.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// Looks at the host.
#[must_use]
pub fn look() -> System {
    let mut system = System::default();
    let show = |path: &str| Opened {
        dest: path.into(),
        source: path.into(),
        access: Access::ReadOnly,
        origin: Origin::System,
    };
    system.opened.extend(SYSTEM.iter().filter(|path| Path::new(path).exists()).map(|path| show(path)));
    for path in MERGED {
        match std::fs::read_link(path) {
            // Only into /usr, which is shown: anything else would be a link to nothing.
            Ok(target) if target.starts_with("usr") || target.starts_with("/usr") => {
                system.links.push((path.into(), target));
            }
            Ok(_) => {}
            Err(_) if Path::new(path).is_dir() => system.opened.push(show(path)),
            Err(_) => {}
        }
    }
    system
}

/// Links of the made-up /etc, and one for programs that know no other temporary directory.
pub const LINKS: &[(&str, &str)] =
    &[("/etc/mtab", "/proc/self/mounts"), ("/etc/os-release", "../usr/lib/os-release"), ("/var/tmp", "/tmp")];

/// The files of the made-up /etc: where, and what is in them. Nothing in them is the host's.
#[must_use]
pub fn etc(home: &Path) -> Vec<(&'static str, Vec<u8>)> {
    use std::os::unix::ffi::OsStrExt;
    // The user's name is anet, whoever that is on the host. Files of users that are not mapped appear as nobody's.
    let mut passwd = b"root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nanet:x:1000:1000:anet:".to_vec();
    passwd.extend_from_slice(home.as_os_str().as_bytes());
    passwd.extend_from_slice(b":/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    vec![
        ("/etc/passwd", passwd),
        ("/etc/group", b"root:x:0:\nanet:x:1000:\nnogroup:x:65534:\n".to_vec()),
        ("/etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n".to_vec()),
        // No DNS: names are the proxy's business, and a lookup fails at once instead of waiting for a server.
        (
            "/etc/nsswitch.conf",
            b"passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n".to_vec(),
        ),
        ("/etc/hostname", b"anet\n".to_vec()),
    ]
}

/// What container runtimes close below /proc, where it exists: it tells of the host, its keys, its hardware.
pub const PROC_CLOSED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/interrupts",
];

/// What they make read-only. (bwrap does so by itself only where it could write there.)
pub const PROC_READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];

#[cfg(test)]
mod tests {
    use super::*;

    /// FS-1: only named directories, each read-only; never the root.
    #[test]
    fn system_directories_are_named_and_read_only() {
        let system = look();
        assert!(system.opened.iter().any(|rule| rule.dest == Path::new("/usr")));
        for rule in &system.opened {
            assert_eq!(rule.access, Access::ReadOnly);
            assert_eq!(rule.origin, Origin::System);
            assert_ne!(rule.dest, Path::new("/"));
        }
    }

    /// FS-1: /etc holds one user, and no line of the host's.
    #[test]
    fn etc_is_made_up() {
        let files = etc(Path::new("/home/anet"));
        let text = |name: &str| {
            let (_, bytes) = files.iter().find(|(path, _)| *path == name).unwrap();
            String::from_utf8(bytes.clone()).unwrap()
        };
        assert!(text("/etc/passwd").contains("anet:x:1000:1000:anet:/home/anet:/bin/sh\n"));
        assert!(text("/etc/hosts").lines().all(|line| line.ends_with(" localhost")));
        assert!(!files.iter().any(|(path, _)| path.contains("shadow")));
    }
}
