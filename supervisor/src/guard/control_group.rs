//! A control group for the run, from the systemd that manages this user (LIM-2).
//!
//! systemd alone may write the hierarchy outside what it delegates, so it is asked for a scope: the launcher goes into
//! one leaf of it, the run into another, which the launcher sets up. `busctl` speaks to systemd for us; it belongs to
//! systemd itself, so where there is no busctl there is nobody to ask either.

use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use confine::sys::spawn::Identity;
use ipc_proto::RunId;
use rustix::process::Pid;

/// systemd's own client.
const BUSCTL: &str = "/usr/bin/busctl";
/// Where the unified hierarchy is.
const HIERARCHY: &str = "/sys/fs/cgroup";
/// How long systemd may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// A program that waits until its input ends: somebody has to be in a group for it to be made.
const WAITS: &str = "/bin/cat";

/// Whether a run could have one, found out by making one: that a systemd is there says neither that it answers this user
/// nor that it has the controllers to give.
pub(super) fn can_be_made() -> bool {
    let user =
        Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // A name that no other unit has: no run of this moment is started by this process.
    let run =
        RunId::new(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), std::process::id().to_ne_bytes());
    let mut command = Command::new(WAITS);
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut waiting) = command.spawn() else { return false };
    let made = Pid::from_raw(waiting.id().cast_signed()).and_then(|pid| make(run, pid, user));
    // Its input ends, then it does, and systemd removes the group that is empty.
    drop(waiting.stdin.take());
    let _ = waiting.wait();
    made.is_some()
}

/// Makes the group and moves `launcher` beside it. None: nobody here can.
pub(super) fn make(run: RunId, launcher: Pid, user: Identity) -> Option<OwnedFd> {
    if !Path::new(HIERARCHY).join("cgroup.controllers").exists() || !Path::new(BUSCTL).exists() {
        return None;
    }
    let unit = format!("anet-{run}.scope");
    ask_systemd(&unit, launcher)?;
    let scope = wait_for_scope(&unit, launcher)?;
    set_up(&scope, launcher, user).ok()
}

fn ask_systemd(unit: &str, launcher: Pid) -> Option<()> {
    let root = rustix::process::geteuid().is_root();
    let pid = launcher.as_raw_nonzero().to_string();
    let mut command = Command::new(BUSCTL);
    command
        .env_clear()
        .args([if root { "--system" } else { "--user" }, "--quiet", "--timeout=2", "call"])
        .args(["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"])
        .args(["StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail", "4"])
        .args(["Description", "s", "anet run", "PIDs", "au", "1", &pid])
        .args(["Delegate", "b", "true", "CollectMode", "s", "inactive-or-failed", "0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if !root {
        // Where the user's own bus is; by the variable, or where it always is.
        let uid = rustix::process::geteuid().as_raw();
        let runtime =
            std::env::var_os("XDG_RUNTIME_DIR").unwrap_or_else(|| format!("/run/user/{uid}").into());
        command.env("XDG_RUNTIME_DIR", runtime);
    }
    command.status().ok()?.success().then_some(())
}

/// Where systemd has put the launcher, once it has.
fn wait_for_scope(unit: &str, launcher: Pid) -> Option<PathBuf> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", launcher.as_raw_nonzero())).ok()?;
        let place = text.lines().find_map(|line| line.strip_prefix("0::/"));
        if let Some(place) = place.filter(|place| place.rsplit('/').next() == Some(unit)) {
            return Some(Path::new(HIERARCHY).join(place));
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Two leaves: a group with processes of its own cannot have controllers below it.
fn set_up(scope: &Path, launcher: Pid, user: Identity) -> std::io::Result<OwnedFd> {
    let (ours, run) = (scope.join("anet"), scope.join("run"));
    fs::create_dir(&ours)?;
    fs::write(ours.join("cgroup.procs"), launcher.as_raw_nonzero().to_string())?;
    fs::write(scope.join("cgroup.subtree_control"), "+memory +pids")?;
    fs::create_dir(&run)?;
    if rustix::process::geteuid().is_root() {
        // The launcher is another user: it sets the limits and moves the run, within this scope alone.
        for path in [scope.join("cgroup.procs"), ours.join("cgroup.procs"), scope.to_path_buf(), run.clone()]
        {
            std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))?;
        }
        for file in fs::read_dir(&run)? {
            std::os::unix::fs::chown(file?.path(), Some(user.uid), Some(user.gid))?;
        }
    }
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let opened =
        OpenOptions::new().read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or(0)).open(run)?;
    Ok(opened.into())
}
