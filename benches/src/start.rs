//! `anet run -- true` beside bare bubblewrap with the same mounts, and srt where it is installed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use tests::person::{Person, Who};

use crate::median;

const ROUNDS: usize = 50;

/// What anet's launcher gives bubblewrap for a run without options, but for the numbers of its descriptors.
fn bare_bwrap(directory: &Path) -> Command {
    let place = |name: &str| directory.join(name).into_os_string();
    let mut command = Command::new("/usr/bin/bwrap");
    command.args(["--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-ipc"]);
    command.args([
        "--unshare-uts",
        "--unshare-cgroup",
        "--unshare-net",
        "--disable-userns",
        "--hostname",
        "anet",
    ]);
    command.args(["--new-session", "--die-with-parent", "--cap-drop", "ALL", "--as-pid-1", "--clearenv"]);
    command.args([
        "--chdir",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--perms",
        "0555",
        "--tmpfs",
        "/proc/acpi",
    ]);
    command.args(["--remount-ro", "/proc/acpi"]);
    for closed in ["/proc/keys", "/proc/timer_list", "/proc/interrupts"] {
        command.args(["--ro-bind", "/dev/null", closed]);
    }
    for read_only in ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"] {
        command.args(["--ro-bind", read_only, read_only]);
    }
    for file in ["passwd", "group", "hosts", "nsswitch.conf", "hostname"] {
        command.arg("--ro-bind").arg(place("file")).arg(format!("/etc/{file}"));
    }
    for (target, link) in [
        ("usr/bin", "/bin"),
        ("usr/sbin", "/sbin"),
        ("usr/lib", "/lib"),
        ("usr/lib64", "/lib64"),
        ("/proc/self/mounts", "/etc/mtab"),
        ("../usr/lib/os-release", "/etc/os-release"),
        ("/tmp", "/var/tmp"),
    ] {
        command.args(["--symlink", target, link]);
    }
    for (name, inside) in [("tmp", "/tmp"), ("work", "/work"), ("tmp", "/dev/shm"), ("home", "/home/anet")] {
        command.arg("--bind").arg(place(name)).arg(inside);
    }
    for read_only in
        ["/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl/certs", "/sys/devices/system/cpu"]
    {
        command.args(["--ro-bind", read_only, read_only]);
    }
    command.arg("--ro-bind").arg(place("file")).arg("/.anet/init");
    command.args(["--remount-ro", "/dev", "--remount-ro", "/", "--", "/bin/true"]);
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
    let directory = person.path("bare");
    for name in ["tmp", "work", "home"] {
        std::fs::create_dir_all(directory.join(name)).unwrap();
    }
    std::fs::write(directory.join("file"), "").unwrap();
    let (mut ours, mut bare, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(milliseconds(&mut anet()));
        bare.push(milliseconds(&mut bare_bwrap(&directory)));
        again.push(milliseconds(&mut bare_bwrap(&directory)));
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
            let took = median((0..10).map(|_| milliseconds(Command::new(&srt).args(["true"]))).collect());
            println!("| the same for srt | {:.1} × ({took:.0} ms) | |", took / bare);
        }
        None => println!("| the same for srt | not installed here | |"),
    }
}

fn srt() -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join("srt")).find(|path| path.is_file())
}
