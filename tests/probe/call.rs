//! System calls as they are.

use std::ffi::CString;

/// The number of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or_default())
    }

    /// The answers of a filter, and of a missing capability.
    pub(crate) fn is_refusal(self) -> bool {
        [libc::EPERM, libc::ENOSYS, libc::EACCES].contains(&self.0)
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

/// An argument of a system call.
pub(crate) trait Argument {
    fn word(&self) -> i64;
}

macro_rules! number {
    ($($kind:ty),*) => { $(impl Argument for $kind { fn word(&self) -> i64 { *self as i64 } })* };
}
number!(i32, i64, u32, u64, usize);

impl Argument for &CString {
    fn word(&self) -> i64 {
        self.as_ptr() as i64
    }
}

/// A structure that the kernel reads or writes, by its address.
pub(crate) struct At<'a, T>(pub(crate) &'a mut T);

impl<T> Argument for At<'_, T> {
    fn word(&self) -> i64 {
        std::ptr::from_ref::<T>(self.0) as i64
    }
}

/// Does a system call, with up to six arguments.
pub(crate) fn call(number: i64, arguments: &[&dyn Argument]) -> Result<i64, Errno> {
    let mut words = [0; 6];
    for (word, argument) in words.iter_mut().zip(arguments) {
        *word = argument.word();
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: every pointer among the arguments comes from a borrow that outlives the call (trait Argument); the calls
    // made here do not change this process's memory beyond the structures they are given.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

pub(crate) fn text(text: &str) -> CString {
    CString::new(text).expect("no NUL")
}

/// Does this in a child, which ends without returning; gives its exit status (or 128 and the signal).
pub(crate) fn in_child(work: impl FnOnce() -> i32) -> Result<i32, Errno> {
    // SAFETY: the program has one thread, so the child's copy of it is whole; it ends in _exit.
    match unsafe { libc::fork() } {
        -1 => Err(Errno::last()),
        0 => {
            let status = work();
            // SAFETY: ends this process.
            unsafe { libc::_exit(status) }
        }
        child => wait(child),
    }
}

/// Waits for a child.
pub(crate) fn wait(child: i32) -> Result<i32, Errno> {
    let mut status = 0;
    // SAFETY: status is a live integer.
    if unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        return Err(Errno::last());
    }
    Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) })
}

/// A child that only waits to be killed.
pub(crate) struct Sleeper(pub(crate) i32);

impl Sleeper {
    pub(crate) fn start() -> Result<Sleeper, Errno> {
        // SAFETY: as in `in_child`; the child sleeps, and its parent's death ends it.
        match unsafe { libc::fork() } {
            -1 => Err(Errno::last()),
            0 => loop {
                // SAFETY: plain calls without pointers.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::pause();
                }
            },
            child => Ok(Sleeper(child)),
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // SAFETY: ends and collects a child of this process.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}
