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
    /// Memory and tasks can be limited: a control group was made, and removed.
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
            control_groups: super::control_group::can_be_made(),
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
    files.into_iter().filter(|path| path.is_file() && !is_disabled(directory, path)).find(|path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().any(attaches_to_bwrap)
    })
}

/// aa-disable leaves the file where it is, and a link of its name here: it is not loaded.
fn is_disabled(directory: &Path, file: &Path) -> bool {
    file.file_name().is_some_and(|name| directory.join("disable").join(name).symlink_metadata().is_ok())
}

/// How bubblewrap's path is written in profiles: by itself, for a merged and an unmerged /usr, and
/// with the common variable.
const BWRAP_SPELLINGS: [&str; 4] =
    [super::programs::BWRAP, "/{usr/,}bin/bwrap", "/{,usr/}bin/bwrap", "@{bin}/bwrap"];

/// `profile NAME /usr/bin/bwrap ... {`, or the path alone.
fn attaches_to_bwrap(line: &str) -> bool {
    let line = line.trim();
    let is_head = ["profile ", "/", "\"", "@"].iter().any(|start| line.starts_with(start));
    is_head
        && line.ends_with('{')
        && line.split_ascii_whitespace().any(|word| BWRAP_SPELLINGS.contains(&word.trim_matches('"')))
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
        assert!(attaches_to_bwrap("profile bwrap @{bin}/bwrap flags=(complain) {"));
        assert!(!attaches_to_bwrap("  /usr/bin/bwrap rix,"));
        assert!(!attaches_to_bwrap("# profile bwrap /usr/bin/bwrap {x"));
        assert!(!attaches_to_bwrap("profile other /usr/bin/other {"));
    }

    /// PLT-3: a profile that was disabled is none.
    #[test]
    fn a_disabled_profile_is_none() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("bwrap-userns-restrict");
        fs::write(&file, "abi <abi/4.0>,\nprofile bwrap /usr/bin/bwrap {\n  userns,\n}\n").unwrap();
        assert_eq!(bwrap_profile(place.path()), Some(file.clone()));
        fs::create_dir(place.path().join("disable")).unwrap();
        std::os::unix::fs::symlink(&file, place.path().join("disable/bwrap-userns-restrict")).unwrap();
        assert_eq!(bwrap_profile(place.path()), None);
    }
}
