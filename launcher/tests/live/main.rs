//! The real launcher and anet-init with the real bwrap, as the guard starts them: as root with another user for the runs,
//! or as that user alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    unreachable_pub
)]

mod cost;
mod files;
mod kept;
mod many;
mod node;
mod runs;
mod terminals;
mod walls;

/// SBX-3: the same without any privilege: all of these tests, started as an ordinary user.
#[test]
fn everything_as_an_ordinary_user() {
    if !node::is_root() {
        return;
    }
    let tests = std::env::current_exe().unwrap();
    let ran = std::process::Command::new("setpriv")
        .args(["--reuid=1234", "--regid=1234", "--clear-groups", "--inh-caps=-all", "--"])
        .arg(tests)
        .env("TMPDIR", "/tmp")
        .env("HOME", "/tmp")
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
}
