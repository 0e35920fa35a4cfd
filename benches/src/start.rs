//! `anet run -- true` beside bare bubblewrap with the same mounts, and srt where it is installed.

use std::process::{Command, Stdio};
use std::time::Instant;

use tests::person::{Person, Who};

use crate::median;

const ROUNDS: usize = 50;

/// What anet's launcher gives bubblewrap for a run without options.
fn bare_bwrap() -> Command {
    let mut command = Command::new("/usr/bin/bwrap");
    command.args(["--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-ipc"]);
    command.args(["--unshare-uts", "--unshare-cgroup", "--unshare-net", "--hostname", "anet", "--new-session"]);
    command.args(["--die-with-parent", "--cap-drop", "ALL", "--as-pid-1", "--clearenv"]);
    command.args(["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]);
    command.args(["--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin"]);
    command.args(["--ro-bind", "/etc/ssl/certs", "/etc/ssl/certs", "--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache"]);
    command.args(["--ro-bind", "/etc/alternatives", "/etc/alternatives", "--tmpfs", "/home", "--tmpfs", "/run"]);
    command.args(["--tmpfs", "/work", "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev", "--chdir", "/work"]);
    command.args(["--", "/bin/true"]);
    command
}

fn milliseconds(command: &mut Command) -> f64 {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let status = command.status().unwrap();
    let took = began.elapsed().as_secs_f64() * 1e3;
    assert!(status.success(), "{command:?} ended with {status}");
    took
}

/// One row a rival.
pub(crate) fn print() {
    let person = Person::new(Who::Root);
    let anet = || person.anet(["run", "--", "/bin/true"]).command();
    // The probe's result is kept for five minutes: the first run is not like the others.
    milliseconds(&mut anet());
    let (mut ours, mut bare, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(milliseconds(&mut anet()));
        bare.push(milliseconds(&mut bare_bwrap()));
        again.push(milliseconds(&mut bare_bwrap()));
    }
    let (ours, bare, again) = (median(ours), median(bare), median(again));
    println!(
        "| `anet run -- true` against bare bwrap with the same mounts | {:.2} × ({ours:.1} ms, {bare:.1} ms; bwrap \
         against itself {:.2}) | ≤ 2.0 × |",
        ours / bare,
        again / bare
    );
    match srt() {
        Some(srt) => {
            let took = median((0..10).map(|_| milliseconds(&mut Command::new(&srt).args(["true"]))).collect());
            println!("| the same for srt | {:.1} × ({took:.0} ms) | |", took / bare);
        }
        None => println!("| the same for srt | not installed here | |"),
    }
}

fn srt() -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join("srt")).find(|path| path.is_file())
}
