//! What this host has: for `anet doctor`.

use std::fs;
use std::path::{Path, PathBuf};

/// Facts of the host that bear on the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The kernel's release.
    pub kernel: String,
    /// What `bwrap --version` says.
    pub bwrap: Option<String>,
    /// The Landlock version of the kernel; 0: none.
    pub landlock: u8,
    /// An AppArmor restriction of user namespaces, and profiles that bear on it.
    pub apparmor: Option<ApparmorBlock>,
    /// Memory and tasks can be limited.
    pub control_groups: bool,
}

/// AppArmor, where it is enabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApparmorBlock {
    /// `kernel.apparmor_restrict_unprivileged_userns` is 1.
    pub restricts_user_namespaces: bool,
    /// The file below /etc/apparmor.d whose profile attaches to /usr/bin/bwrap already.
    pub bwrap_profile: Option<PathBuf>,
    /// The profile that this process runs under, if it enforces.
    pub confined_by: Option<String>,
}

impl Host {
    /// Looks.
    #[must_use]
    pub fn look() -> Host {
        Host {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            bwrap: bwrap_version(),
            landlock: confine::landlock::abi(),
            apparmor: apparmor(),
            control_groups: Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
                && Path::new("/run/systemd/system").exists(),
        }
    }
}

fn bwrap_version() -> Option<String> {
    let output =
        std::process::Command::new(super::programs::BWRAP).arg("--version").env_clear().output().ok()?;
    Some(crate::error::one_line(&String::from_utf8_lossy(&output.stdout)))
}

fn apparmor() -> Option<ApparmorBlock> {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").ok()?;
    if enabled.trim() != "Y" {
        return None;
    }
    let restricts =
        fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").unwrap_or_default();
    let current = fs::read_to_string("/proc/self/attr/apparmor/current").unwrap_or_default();
    let confined_by = current.trim().strip_suffix(" (enforce)").map(str::to_owned);
    Some(ApparmorBlock {
        restricts_user_namespaces: restricts.trim() == "1",
        bwrap_profile: bwrap_profile(Path::new("/etc/apparmor.d")),
        confined_by,
    })
}

/// The list of loaded profiles is root's to read, so the files are read: which of them attaches to bubblewrap?
fn bwrap_profile(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    files.into_iter().filter(|path| path.is_file()).find(|path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().any(attaches_to_bwrap)
    })
}

/// `profile NAME /usr/bin/bwrap ... {`, or the path alone.
fn attaches_to_bwrap(line: &str) -> bool {
    let line = line.trim();
    let is_head = line.starts_with("profile ") || line.starts_with('/') || line.starts_with('"');
    is_head
        && line.ends_with('{')
        && line.split_ascii_whitespace().any(|word| word.trim_matches('"') == super::programs::BWRAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PLT-3: a profile that attaches to bubblewrap is found by its head, not by a mention.
    #[test]
    fn an_attached_profile_is_found() {
        assert!(attaches_to_bwrap(
            "profile bwrap /usr/bin/bwrap flags=(attach_disconnected,mediate_deleted) {"
        ));
        assert!(attaches_to_bwrap("/usr/bin/bwrap {"));
        assert!(attaches_to_bwrap("profile anet-bwrap \"/usr/bin/bwrap\" {"));
        assert!(!attaches_to_bwrap("  /usr/bin/bwrap rix,"));
        assert!(!attaches_to_bwrap("# profile bwrap /usr/bin/bwrap {x"));
        assert!(!attaches_to_bwrap("profile other /usr/bin/other {"));
    }
}
