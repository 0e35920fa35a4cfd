//! The system calls that no crate offers safely, each behind a safe function.
#![allow(unsafe_code)]

pub mod environment;
pub mod inherited;
pub mod key_store;
pub mod seccomp;
pub mod secret;
pub mod signal;
pub mod spawn;
pub mod wait;

use rustix::io::Errno;

/// The error of the call of libc that just failed.
fn errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Whether this process has one thread, and shares its memory with no other process.
///
/// unshare(CLONE_VM) changes nothing for such a process and answers EINVAL to all others: this asks without /proc, which a
/// process may not have. Where a container forbids the call /proc has to say it.
pub fn is_single_threaded() -> bool {
    // SAFETY: the call takes no pointer; with CLONE_VM it either changes nothing or fails.
    if unsafe { libc::unshare(libc::CLONE_VM) } == 0 {
        return true;
    }
    errno() != Errno::INVAL && std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// The Landlock level of the kernel, 0 where it has none or is told not to use it.
pub fn landlock_abi() -> u8 {
    // LANDLOCK_CREATE_RULESET_VERSION of linux/landlock.h.
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel wants a null pointer and a size of 0, and answers a number.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0usize, VERSION)
    };
    u8::try_from(answer).unwrap_or(0)
}
