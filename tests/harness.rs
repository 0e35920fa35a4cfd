//! What the process that runs the tests may do on this machine, and the words for what it skips.

use std::process::Command;
use std::sync::OnceLock;

/// Set for the copy of a test that [`reexec_in_namespace`] starts: the harness, never a program under test, reads it.
const REEXECUTED: &str = "ANET_TESTS_IN_NAMESPACE";

/// How much the harness may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harness {
    /// User 0 of the machine: it can be anybody, and read every process.
    Root,
    /// User 0 of a user namespace that an ordinary user made: it can make networks and mounts, but is nobody else.
    Namespace,
    /// An ordinary user: it can run anet, and no more.
    User,
}

/// Which harness this process is.
pub fn kind() -> Harness {
    static KIND: OnceLock<Harness> = OnceLock::new();
    *KIND.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return Harness::User;
        }
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        // The initial user namespace maps every identifier there is.
        if map.split_whitespace().nth(2) == Some("4294967295") { Harness::Root } else { Harness::Namespace }
    })
}

/// Says on standard error (libtest shows it with `--nocapture`, and always for a failure) that something was not
/// tested here. Every skip goes through this function, so that `grep SKIPPED` finds them all.
pub fn skip(what: &str, why: &str) {
    eprintln!("SKIPPED {what}: {why}");
    // libtest swallows the output of a test that passes: a file collects what was not proved.
    if let Some(list) = std::env::var_os("ANET_SKIPPED_FILE") {
        use std::io::Write as _;
        let file = std::fs::OpenOptions::new().append(true).create(true).open(list);
        if let Ok(mut file) = file {
            let _ = writeln!(file, "{what}: {why}");
        }
    }
}

/// Runs the calling test again inside a user namespace of an ordinary user, where a network can be made.
/// True: this was done (and it passed), the caller returns. False: the caller is in the right place already.
///
/// `unshare(CLONE_NEWUSER)` refuses a process with threads, and a test program has them: hence a new process.
pub fn reexec_in_namespace() -> bool {
    if kind() != Harness::User {
        return false;
    }
    assert!(
        std::env::var_os(REEXECUTED).is_none(),
        "the user namespace did not make this process its user 0"
    );
    let test = std::thread::current().name().expect("libtest names its threads").to_owned();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--"])
        .arg(std::env::current_exe().expect("own path"))
        .args(["--exact", &test, "--nocapture", "--include-ignored"])
        .env(REEXECUTED, "1")
        .output()
        .expect("unshare(1) of util-linux");
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "in a user namespace: {text}");
    for line in text.lines().filter(|line| line.starts_with("SKIPPED ")) {
        eprintln!("{line}");
    }
    true
}
