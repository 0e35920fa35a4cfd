//! New namespaces, by every call that makes or enters one.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use crate::call::{At, Errno, Sleeper, call, in_child};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[(&str, Attack)] = &[
    ("unshare", unshare),
    ("clone", clone),
    ("clone3", clone3),
    ("setns_file", setns_file),
    ("setns_pidfd", setns_pidfd),
];

/// The flag of a namespace by its name; several joined by a plus sign.
fn flags(arguments: &[String]) -> Option<i32> {
    arguments.first()?.split('+').try_fold(0, |flags, name| {
        Some(
            flags
                | match name {
                    "user" => libc::CLONE_NEWUSER,
                    "mount" => libc::CLONE_NEWNS,
                    "pid" => libc::CLONE_NEWPID,
                    "net" => libc::CLONE_NEWNET,
                    "ipc" => libc::CLONE_NEWIPC,
                    "uts" => libc::CLONE_NEWUTS,
                    "cgroup" => libc::CLONE_NEWCGROUP,
                    // Not in libc for this call: it shares a bit with the exit signal of clone().
                    "time" => 0x80,
                    _ => return None,
                },
        )
    })
}

fn with_flags(arguments: &[String], attack: impl FnOnce(i32) -> Result<i64, Errno>) -> Verdict {
    match flags(arguments) {
        Some(flags) => Verdict::of(attack(flags)),
        None => Verdict::Broken("user mount pid net ipc uts cgroup time, joined by +".into()),
    }
}

fn unshare(arguments: &[String]) -> Verdict {
    with_flags(arguments, |flags| call(libc::SYS_unshare, &[&flags]))
}

fn clone(arguments: &[String]) -> Verdict {
    with_flags(arguments, |flags| {
        let flags = flags | libc::SIGCHLD;
        match call(libc::SYS_clone, &[&flags, &0, &0, &0, &0])? {
            // SAFETY: this is the child; it ends.
            0 => unsafe { libc::_exit(0) },
            child => crate::call::wait(child as i32).map(i64::from),
        }
    })
}

/// `struct clone_args` of linux/sched.h, its first version.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

fn clone3(arguments: &[String]) -> Verdict {
    with_flags(arguments, |flags| {
        let mut args =
            CloneArgs { flags: flags as u64, exit_signal: libc::SIGCHLD as u64, ..CloneArgs::default() };
        match call(libc::SYS_clone3, &[&At(&mut args), &size_of::<CloneArgs>()])? {
            // SAFETY: this is the child; it ends.
            0 => unsafe { libc::_exit(0) },
            child => crate::call::wait(child as i32).map(i64::from),
        }
    })
}

/// Enters a namespace through its file: `setns_file net /proc/1/ns/net`.
fn setns_file(arguments: &[String]) -> Verdict {
    let (Some(flags), Some(path)) = (flags(arguments), arguments.get(1)) else {
        return Verdict::Broken("a kind and a path are missing".into());
    };
    match File::open(path) {
        Ok(file) => Verdict::of(call(libc::SYS_setns, &[&file.as_raw_fd(), &flags])),
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

/// Enters the namespaces of a child, which are its own: no change, and the same permission.
fn setns_pidfd(arguments: &[String]) -> Verdict {
    with_flags(arguments, |flags| {
        let sleeper = Sleeper::start()?;
        let pidfd = call(libc::SYS_pidfd_open, &[&sleeper.0, &0])?;
        let entered = in_child(|| match call(libc::SYS_setns, &[&pidfd, &flags]) {
            Ok(_) => 0,
            Err(errno) => errno.0,
        })?;
        if entered == 0 { Ok(0) } else { Err(Errno(entered)) }
    })
}
