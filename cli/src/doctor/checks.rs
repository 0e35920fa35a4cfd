//! The checks of the host: what a sandbox needs, and whether one stands.

use ipc_proto::Code;
use supervisor::error::Trouble;
use supervisor::explain;
use supervisor::guard::{ApparmorBlock, Host};

use super::Verdict;
use super::node::Asked;

/// How much a check counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Weight {
    /// All is well.
    Good,
    /// Something is missing that nobody asked for.
    Note,
    /// It keeps no turn from running.
    Warning,
    /// No sandboxed turn can run.
    Failure,
}

impl Weight {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Weight::Good => "ok",
            Weight::Note => "note",
            Weight::Warning => "warning",
            Weight::Failure => "failure",
        }
    }
}

/// One check and how it went.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) code: Option<Code>,
    pub(super) sentence: String,
    is_needed: bool,
}

impl Check {
    pub(super) fn good(name: &'static str, sentence: impl Into<String>) -> Check {
        Check { name, code: None, sentence: sentence.into(), is_needed: true }
    }

    pub(super) fn failed(name: &'static str, trouble: Trouble) -> Check {
        Check { name, code: Some(trouble.code), sentence: trouble.sentence, is_needed: true }
    }

    /// What is missing, but asked for by nobody.
    pub(super) fn note(name: &'static str, trouble: Trouble) -> Check {
        Check { is_needed: false, ..Check::failed(name, trouble) }
    }

    pub(super) fn weight(&self) -> Weight {
        match self.code {
            None => Weight::Good,
            Some(code) if code.is_warning() => Weight::Warning,
            Some(_) if self.is_needed => Weight::Failure,
            Some(_) => Weight::Note,
        }
    }
}

/// LIM-2.
pub(super) fn limits(host: &Host) -> &'static str {
    if host.control_groups { "full" } else { "partial" }
}

pub(super) fn host(host: &Host, node: Option<&Asked>, sandbox: &Verdict) -> Vec<Check> {
    let mut checks = vec![Check::good("kernel", format!("Linux {}", host.kernel))];
    checks.push(match &host.bwrap {
        Some(version) => Check::good("bubblewrap", version.clone()),
        None => Check::failed("bubblewrap", Trouble::new(Code::NoBwrap, explain::sentence(Code::NoBwrap))),
    });
    checks.push(Check::good(
        "landlock",
        match node.map_or(host.landlock, |node| node.sandbox.landlock_abi) {
            0 => "the kernel has none: the sandbox has one wall less".to_owned(),
            abi if abi < 6 => format!("version {abi}: files, but neither abstract sockets nor signals"),
            abi => format!("version {abi}"),
        },
    ));
    if let Some(apparmor) = &host.apparmor {
        checks.push(Check::good("apparmor", apparmor_sentence(apparmor, sandbox.is_ok())));
    }
    let limits = node.map_or(limits(host), |node| node.sandbox.limits.as_str());
    checks.push(if limits == "full" {
        Check::good("limits", "memory and tasks can be limited")
    } else {
        let code = Code::NoCgroupLimits;
        Check::failed("limits", Trouble::new(code, explain::sentence(code)))
    });
    checks.push(match sandbox {
        Ok(_) => Check::good("sandbox", "a sandbox was started and tried: every wall stands"),
        Err(trouble) => Check::failed("sandbox", Trouble::new(trouble.code, sentence(host, trouble))),
    });
    checks
}

/// PLT-3: never a second profile for bubblewrap.
fn apparmor_sentence(apparmor: &ApparmorBlock, works: bool) -> String {
    let mut parts = Vec::new();
    if let Some(profile) = &apparmor.confined_by {
        parts.push(format!("this session is confined by the profile {profile}"));
    }
    match (&apparmor.bwrap_profile, apparmor.restricts_user_namespaces, works) {
        (Some(file), _, true) => {
            parts.push(format!("{} has a profile for bubblewrap, and it suffices", file.display()));
        }
        (Some(file), _, false) => parts.push(format!(
            "{} has a profile for bubblewrap: a second would break both; see the sandbox check",
            file.display()
        )),
        (None, true, _) => parts.push("user namespaces are restricted and bubblewrap has no profile".into()),
        (None, false, _) if apparmor.confined_by.is_some() => {}
        (None, false, _) => parts.push("enabled, and does not restrict user namespaces".into()),
    }
    parts.join("; ")
}

/// PLT-3: where bubblewrap has a profile already, nobody is told to install one.
pub(super) fn sentence(host: &Host, trouble: &Trouble) -> String {
    let profile = host.apparmor.as_ref().and_then(|apparmor| apparmor.bwrap_profile.as_deref());
    let general = explain::sentence(trouble.code);
    match (trouble.code, profile, trouble.sentence.strip_prefix(general)) {
        (Code::UsernsBlocked, Some(file), Some(detail)) => format!(
            "an AppArmor policy keeps bubblewrap from making its namespaces, although {0} has a profile for it; see \
             that it is loaded (sudo apparmor_parser -r {0}) and grants userns{detail}",
            file.display()
        ),
        _ => trouble.sentence.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_with(apparmor: Option<ApparmorBlock>, control_groups: bool) -> Host {
        Host {
            kernel: "6.1".into(),
            bwrap: Some("bubblewrap 0.8.0".into()),
            landlock: 5,
            apparmor,
            control_groups,
        }
    }

    fn weights(checks: &[Check]) -> Vec<(&'static str, Weight)> {
        checks.iter().map(|check| (check.name, check.weight())).collect()
    }

    /// DIA-2: a missing key, and limits that cannot be had, are warnings; what nobody asked for is a note; the rest a failure.
    #[test]
    fn what_counts_counts() {
        let trouble = |code| Trouble::new(code, "x");
        assert_eq!(Check::failed("key", trouble(Code::NoApiKey)).weight(), Weight::Warning);
        assert_eq!(Check::note("key", trouble(Code::NoApiKey)).weight(), Weight::Warning);
        assert_eq!(Check::failed("agent", trouble(Code::AgentMissing)).weight(), Weight::Failure);
        assert_eq!(Check::note("agent", trouble(Code::AgentMissing)).weight(), Weight::Note);
        assert_eq!(Check::good("agent", "x").weight(), Weight::Good);
    }

    /// LIM-2, SBX-7: the levels that hold are said.
    #[test]
    fn levels_are_said() {
        let checks = host(&host_with(None, false), None, &Ok(None));
        assert!(weights(&checks).contains(&("limits", Weight::Warning)), "{checks:?}");
        let landlock = checks.iter().find(|check| check.name == "landlock").unwrap();
        assert!(
            landlock.sentence.contains("version 5") && landlock.sentence.contains("neither"),
            "{landlock:?}"
        );
        let checks = host(&host_with(None, true), None, &Err(Trouble::new(Code::NetnsFailed, "x")));
        assert!(weights(&checks).contains(&("limits", Weight::Good)));
        assert!(weights(&checks).contains(&("sandbox", Weight::Failure)));
    }

    /// PLT-3: whoever has a profile for bubblewrap is not told to install a second.
    #[test]
    fn a_second_profile_is_never_advised() {
        let block = ApparmorBlock {
            restricts_user_namespaces: true,
            bwrap_profile: Some("/etc/apparmor.d/bwrap-userns-restrict".into()),
            confined_by: None,
        };
        let trouble = Trouble::new(Code::UsernsBlocked, explain::with_detail(Code::UsernsBlocked, "uid map"));
        let told = sentence(&host_with(Some(block), true), &trouble);
        assert!(told.contains("bwrap-userns-restrict") && !told.contains("--apparmor-profile"), "{told}");
        assert!(told.contains("(uid map)"), "{told}");
        let told = sentence(&host_with(None, true), &trouble);
        assert!(told.contains("anet doctor --apparmor-profile | sudo tee"), "{told}");
    }
}
