//! Network and mount namespaces that a file descriptor keeps, and threads that work in them.
//!
//! A namespace belongs to a thread, not to a process: a thread that enters one and the programs that it starts are
//! there, all other threads stay where they are.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace, with or without a mount namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    network: File,
    mounts: Option<File>,
}

impl Namespace {
    /// A new network.
    pub(super) fn network() -> io::Result<Namespace> {
        on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(Namespace { network: File::open("/proc/thread-self/ns/net")?, mounts: None })
        })
    }

    /// A new network and a copy of the mounts, from which nothing comes back to the machine.
    pub(super) fn network_and_mounts() -> io::Result<Namespace> {
        on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
            let network = File::open("/proc/thread-self/ns/net")?;
            Ok(Namespace { network, mounts: Some(File::open("/proc/thread-self/ns/mnt")?) })
        })
    }

    /// The descriptor of the network.
    pub(super) fn network_fd(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }

    /// Does this on a thread inside.
    pub(super) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_a_thread(|| {
            setns(&self.network, CloneFlags::CLONE_NEWNET).expect("enter the network");
            if let Some(mounts) = &self.mounts {
                // A thread shares root and current directory with its process, and the kernel refuses to move those.
                unshare(CloneFlags::CLONE_FS).expect("a root of its own");
                setns(mounts, CloneFlags::CLONE_NEWNS).expect("enter the mounts");
            }
            work()
        })
    }
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    // The name of the calling thread is the test's: libtest needs it to report, reexec to know what to run.
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
}

/// Lines for `ip -batch -`, of iproute2.
pub(super) fn ip(lines: &str) -> io::Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().expect("pipe").write_all(lines.as_bytes())?;
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip: {} in:\n{lines}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// Binds a file or directory over another.
pub(super) fn bind(source: &Path, target: &Path) -> io::Result<()> {
    Ok(mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}

/// An empty directory in memory over another.
pub(super) fn tmpfs(target: &Path) -> io::Result<()> {
    Ok(mount(Some("tmpfs"), target, Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))?)
}

/// A directory of at most so many bytes in memory over another.
pub(super) fn small(target: &Path, bytes: u64) -> io::Result<()> {
    let options = format!("mode=0755,size={bytes}");
    Ok(mount(Some("tmpfs"), target, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))?)
}

/// A directory over itself that can be written: what is changed goes to `upper`. `work` is the kernel's own, on the same
/// file system.
pub(super) fn overlay(target: &Path, upper: &Path, work: &Path) -> io::Result<()> {
    let (lower, upper, work) = (target.display(), upper.display(), work.display());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work},userxattr");
    Ok(mount(Some("overlay"), target, Some("overlay"), MsFlags::empty(), Some(options.as_str()))?)
}

/// A directory over itself that cannot be written.
pub(super) fn read_only(target: &Path) -> io::Result<()> {
    bind(target, target)?;
    // The flags that the mount below has are kept: a user namespace may not drop them.
    let kept = nix::sys::statvfs::statvfs(target)?.flags();
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    for (kept_as, flag) in [
        (nix::sys::statvfs::FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (nix::sys::statvfs::FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (nix::sys::statvfs::FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ] {
        if kept.contains(kept_as) {
            flags |= flag;
        }
    }
    Ok(mount(None::<&str>, target, None::<&str>, flags, None::<&str>)?)
}

/// Takes the topmost mount away.
pub(super) fn unmount(target: &Path) -> io::Result<()> {
    Ok(nix::mount::umount2(target, nix::mount::MntFlags::MNT_DETACH)?)
}
