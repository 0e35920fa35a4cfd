//! Why a sandbox did not come to stand: from what bubblewrap, the system or anet-init said to a code of DIA-2.

use std::fmt::Write;

use ipc_proto::Code;
use ipc_proto::init::InitStep;
use ipc_proto::launcher::{Failure, MAX_TEXT};
use rustix::io::Errno;

/// What the host says about user namespaces, which tells apart what bubblewrap reports in the same words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// `/proc/sys/kernel/unprivileged_userns_clone` is 0 (Debian's kernels have it).
    pub clone_forbidden: bool,
    /// `/proc/sys/user/max_user_namespaces` is 0.
    pub none_allowed: bool,
    /// `/proc/sys/kernel/apparmor_restrict_unprivileged_userns` is 1 (Ubuntu's kernels have it).
    pub apparmor_restricts: bool,
    /// The AppArmor profile that this process, and whoever started anet, runs under, if it is enforced.
    pub confined_by: Option<String>,
}

impl Host {
    /// Asks the host.
    #[must_use]
    pub fn ask() -> Host {
        let says =
            |path: &str, value: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
        Host {
            clone_forbidden: says("/proc/sys/kernel/unprivileged_userns_clone", "0"),
            none_allowed: says("/proc/sys/user/max_user_namespaces", "0"),
            apparmor_restricts: says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
            confined_by: std::fs::read_to_string("/proc/self/attr/apparmor/current")
                .ok()
                .and_then(|label| Some(label.trim().strip_suffix(" (enforce)")?.to_owned())),
        }
    }

    /// A profile for bubblewrap does not help a confined session: with no_new_privs AppArmor lets nobody leave the
    /// confinement that he has. So it is said at once, and not after the profile was installed.
    fn note(&self) -> String {
        self.confined_by.as_ref().map_or_else(String::new, |profile| {
            format!(
                "; the AppArmor profile {profile} around this session may forbid it, and keeps bwrap from a profile of its own \
                 under no_new_privs: start anet outside of it"
            )
        })
    }
}

/// What a message means.
#[derive(Clone, Copy)]
enum Meaning {
    Is(Code),
    /// Namespaces are refused; by whom, the host has to say.
    Refused,
}

/// bubblewrap's messages (versions 0.8 to 0.12), the first that is found decides. Each with where it comes from.
const MESSAGES: &[(&str, Meaning)] = &[
    // AppArmor lets an unconfined program make the namespace and gives it no capability in there (Ubuntu 24.04).
    ("setting up uid map: Permission denied", Meaning::Is(Code::UsernsBlocked)),
    ("setting up gid map: Permission denied", Meaning::Is(Code::UsernsBlocked)),
    ("loopback: Failed RTM_NEWADDR: Operation not permitted", Meaning::Is(Code::UsernsBlocked)),
    // AppArmor denies userns_create: EACCES, where the kernel itself says EPERM.
    ("Creating new namespace failed: Permission denied", Meaning::Is(Code::UsernsBlocked)),
    // EPERM: the sysctl of Debian's kernels, a container's seccomp filter, or AppArmor denying the capability.
    ("No permissions to create", Meaning::Refused),
    // EINVAL: a kernel without user namespaces. ENOSPC: the limit on their number is reached, or 0.
    ("the kernel does not support user namespaces", Meaning::Is(Code::UsernsUnavailable)),
    ("max_*_namespaces exceeded", Meaning::Is(Code::UsernsUnavailable)),
    ("(ENOSPC)", Meaning::Is(Code::UsernsUnavailable)),
    // Any other trouble with the loopback of the new network namespace.
    ("loopback: ", Meaning::Is(Code::NetnsFailed)),
    // An option of 0.8 that an older one has not.
    ("Unknown option", Meaning::Is(Code::OldBwrap)),
    // bubblewrap was built without seccomp, or told that it has to be there. We pass it no filter; a newer one might.
    ("seccomp", Meaning::Is(Code::SeccompFailed)),
];

/// What bubblewrap's last words mean.
#[must_use]
pub fn from_bwrap(words: &[u8], host: &Host) -> Failure {
    let text = escape(words);
    let meaning = MESSAGES.iter().find(|(message, _)| text.contains(message)).map(|(_, meaning)| *meaning);
    let code = match meaning {
        Some(Meaning::Is(code)) => code,
        Some(Meaning::Refused) if host.apparmor_restricts && !host.clone_forbidden && !host.none_allowed => {
            Code::UsernsBlocked
        }
        Some(Meaning::Refused) => Code::UsernsUnavailable,
        None => Code::SandboxStartFailed,
    };
    let text = if text.is_empty() { "bwrap ended without a word".to_owned() } else { text };
    let is_about_namespaces = matches!(code, Code::UsernsBlocked | Code::UsernsUnavailable);
    with_note(code, &text, &if is_about_namespaces { host.note() } else { String::new() })
}

/// What it means that bwrap could not be executed.
#[must_use]
pub fn from_exec(errno: Errno, host: &Host) -> Failure {
    let text = format!("bwrap could not be executed: {errno}");
    match errno {
        Errno::NOENT => failure(Code::NoBwrap, "bwrap is not there"),
        // An enforcing AppArmor profile around the caller refuses the change of profile under no_new_privs.
        Errno::PERM | Errno::ACCESS => with_note(Code::UsernsBlocked, &text, &host.note()),
        _ => failure(Code::SandboxStartFailed, &text),
    }
}

/// The note stays whole, however much bubblewrap said.
fn with_note(code: Code, text: &str, note: &str) -> Failure {
    let room = MAX_TEXT.saturating_sub(note.len());
    failure(code, &format!("{}{note}", text.get(..room).unwrap_or(text)))
}

/// What anet-init's failure means.
#[must_use]
pub fn from_init(step: InitStep, errno: i32) -> Failure {
    let (code, what) = match step {
        InitStep::Plan => (Code::SandboxStartFailed, "anet-init could not read its plan"),
        InitStep::Listener => (Code::NetnsFailed, "no endpoint could be made on the sandbox's loopback"),
        InitStep::Terminal => (Code::SandboxStartFailed, "no pseudo-terminal could be made in the sandbox"),
        InitStep::Mounts => (
            Code::BadPath,
            "an opened directory was changed while the sandbox was made, by another run or program in it; start again",
        ),
        InitStep::Confine => (Code::SeccompFailed, "the filter of system calls could not be entered"),
        InitStep::Directory => (Code::SandboxStartFailed, "the work directory could not be entered"),
        InitStep::Spawn => (Code::SandboxStartFailed, "the program could not be started"),
    };
    failure(code, &format!("{what}: {}", std::io::Error::from_raw_os_error(errno)))
}

/// A failure with a text of at most [`MAX_TEXT`] bytes.
#[must_use]
pub fn failure(code: Code, text: &str) -> Failure {
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= MAX_TEXT).last();
    Failure { code, text: text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned() }
}

/// One line that no terminal obeys: bytes that are no printable ASCII are escaped, line breaks become "; ".
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for (place, line) in lines.enumerate() {
        if place > 0 {
            text.push_str("; ");
        }
        for byte in line {
            match byte {
                b' '..=b'~' => text.push(char::from(*byte)),
                _ => {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Host =
        Host { clone_forbidden: false, none_allowed: false, apparmor_restricts: false, confined_by: None };
    const UBUNTU: Host = Host { apparmor_restricts: true, ..FREE };

    /// DIA-2, PLT-2: the messages as Debian 12, 13 and Ubuntu 24.04 print them.
    #[test]
    fn bwraps_messages_have_their_codes() {
        let no_permission = "bwrap: No permissions to create a new namespace, likely because the kernel does not allow \
                             non-privileged user namespaces. On e.g. debian this can be enabled with 'sysctl \
                             kernel.unprivileged_userns_clone=1'.";
        let table = [
            ("bwrap: setting up uid map: Permission denied\n", FREE, Code::UsernsBlocked),
            ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted\n", FREE, Code::UsernsBlocked),
            ("bwrap: Creating new namespace failed: Permission denied", FREE, Code::UsernsBlocked),
            (no_permission, FREE, Code::UsernsUnavailable),
            (no_permission, UBUNTU, Code::UsernsBlocked),
            (no_permission, Host { clone_forbidden: true, ..UBUNTU }, Code::UsernsUnavailable),
            (
                "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
                FREE,
                Code::UsernsUnavailable,
            ),
            ("bwrap: loopback: Failed to bring up lo: Invalid argument", FREE, Code::NetnsFailed),
            ("bwrap: Unknown option --disable-userns", FREE, Code::OldBwrap),
            ("bwrap: Can't find source path /x: No such file or directory", FREE, Code::SandboxStartFailed),
            ("", FREE, Code::SandboxStartFailed),
        ];
        for (words, host, code) in table {
            assert_eq!(from_bwrap(words.as_bytes(), &host).code, code, "{words}");
        }
    }

    /// PLT-3: an enforcing profile around the caller is named, whatever bwrap says, or where it cannot be executed at all.
    #[test]
    fn the_profile_around_the_caller_is_named() {
        let host = Host { confined_by: Some("session".to_owned()), ..FREE };
        let words = [b"bwrap: Creating new namespace failed: Permission denied".to_vec(), vec![b'x'; 5000]];
        let [said, long] = words.map(|words| from_bwrap(&words, &host));
        assert!(said.text.contains("the AppArmor profile session around this session"), "{}", said.text);
        assert_eq!((long.code, long.text.len()), (Code::SandboxStartFailed, MAX_TEXT));
        let refused = from_exec(Errno::PERM, &host);
        assert_eq!(refused.code, Code::UsernsBlocked);
        assert!(refused.text.ends_with("start anet outside of it"), "{}", refused.text);
        assert!(!from_exec(Errno::PERM, &FREE).text.contains("AppArmor"));
        assert_eq!(from_exec(Errno::NOENT, &host).code, Code::NoBwrap);
    }

    /// DIA-2, USE-1: bwrap's own words, but nothing that a terminal would obey, and not without end.
    #[test]
    fn text_is_escaped_and_bounded() {
        let failure = from_bwrap(b"bwrap: \x1b[2J\xff\nsecond\n", &FREE);
        assert_eq!(failure.text, "bwrap: \\x1b[2J\\xff; second");
        assert_eq!(from_bwrap(&[b'x'; 5000], &FREE).text.len(), MAX_TEXT);
        assert_eq!(super::failure(Code::BadPath, &"\u{e4}".repeat(1000)).text.len(), MAX_TEXT);
    }
}
