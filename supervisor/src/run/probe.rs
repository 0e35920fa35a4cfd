//! What a probe's findings mean, and the file that remembers a good one (PRB-1, PRB-2).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipc_proto::Code;
use ipc_proto::init::ProbeFailure;

use crate::error::Trouble;

/// How long a result holds.
const VALID_FOR: Duration = Duration::from_secs(300);

/// The longest text that is read back, in bytes.
pub const FILE_LIMIT: u64 = 4096;

/// The first word of the file, so that another version's is not read.
const FORMAT: &str = "anet-probe-1";

/// What the first of several failures is called: the most telling one.
pub(super) fn trouble(failures: &[ProbeFailure]) -> Option<Trouble> {
    let code = failures.iter().map(|failure| code(*failure)).min()?;
    let names: Vec<String> = failures.iter().map(|failure| words(*failure)).collect();
    Some(Trouble::new(
        code,
        format!(
            "the sandbox was tried before use and is open: {}; nothing was started. Check that {} is the \
             distribution's own bubblewrap, then run `anet doctor`",
            names.join(", "),
            "/usr/bin/bwrap",
        ),
    ))
}

fn code(failure: ProbeFailure) -> Code {
    match failure {
        ProbeFailure::Loopback
        | ProbeFailure::HostPort
        | ProbeFailure::AbstractSocket
        | ProbeFailure::SharedNamespace(ipc_proto::init::NamespaceKind::Net) => Code::NetnsFailed,
        ProbeFailure::KeyStore | ProbeFailure::NewUserNamespace | ProbeFailure::NoFilter => {
            Code::SeccompFailed
        }
        ProbeFailure::SharedNamespace(_)
        | ProbeFailure::Capabilities
        | ProbeFailure::NewPrivileges
        | ProbeFailure::User
        | ProbeFailure::Writable => Code::SandboxWeak,
    }
}

fn words(failure: ProbeFailure) -> String {
    match failure {
        ProbeFailure::Loopback => "its own loopback does not work".into(),
        ProbeFailure::HostPort => "a port of the host can be reached".into(),
        ProbeFailure::AbstractSocket => "an abstract socket of the host can be reached".into(),
        ProbeFailure::KeyStore => "the kernel's key store answers".into(),
        ProbeFailure::NewUserNamespace => "a new user namespace can be made".into(),
        ProbeFailure::SharedNamespace(kind) => format!("the {} namespace is the host's", kind.as_str()),
        ProbeFailure::Capabilities => "a capability is left".into(),
        ProbeFailure::NewPrivileges => "no_new_privs is not set".into(),
        ProbeFailure::NoFilter => "no filter of system calls is in force".into(),
        ProbeFailure::User => "the user inside is wrong".into(),
        ProbeFailure::Writable => "a system directory can be written".into(),
    }
}

/// The text that remembers a good result for what `key` describes.
#[must_use]
pub fn remember(key: &str, now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("{FORMAT} {seconds} {key}\n")
}

/// Whether the text remembers a good result for `key` that still holds. Anything odd: no.
#[must_use]
pub fn remembered(text: &str, key: &str, now: SystemTime) -> Option<SystemTime> {
    let rest = text.strip_prefix(FORMAT)?.strip_prefix(' ')?.strip_suffix('\n')?;
    let (seconds, kept) = rest.split_once(' ')?;
    let at = UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))?;
    // A clock that went back makes the result one from the future: it does not hold either.
    let age = now.duration_since(at).ok()?;
    (kept == key && age < VALID_FOR).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRB-2: five minutes, for the same bwrap, kernel and configuration, and never from the future.
    #[test]
    fn a_result_holds_for_five_minutes_and_its_own_key() {
        let start = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let text = remember("key a", start);
        assert!(remembered(&text, "key a", start).is_some());
        assert!(remembered(&text, "key a", start + Duration::from_secs(299)).is_some());
        assert!(remembered(&text, "key a", start + Duration::from_secs(300)).is_none());
        assert!(remembered(&text, "key b", start).is_none());
        assert!(remembered(&text, "key a", start - Duration::from_secs(1)).is_none());
        assert!(remembered("", "key a", start).is_none());
        assert!(remembered(text.trim_end(), "key a", start).is_none(), "a torn file");
    }
}
