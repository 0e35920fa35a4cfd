//! seccomp(2).

use rustix::io::Errno;

/// Enters a filter in this thread; what it starts inherits it. Needs `no_new_privs` or CAP_SYS_ADMIN.
pub fn install(program: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::TOOBIG)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: `program` points to `len` instructions that live through the call; the kernel copies and checks them, and
    // writes nothing.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if answer == 0 { Ok(()) } else { Err(super::errno()) }
}
