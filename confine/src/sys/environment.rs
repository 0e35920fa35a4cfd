//! Variables that hold a secret: moved out of this process's memory, unread.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::memory::sealed;

unsafe extern "C" {
    /// The C library's own list, which the standard library reads too.
    static mut environ: *mut *mut libc::c_char;
}

/// Moves a variable's value into sealed memory that only its descriptor leads to, and overwrites it where it was: it is
/// in this process's memory and in its /proc/PID/environ no longer, and reads as empty from then on. None: there is no
/// such variable, or it is empty.
///
/// To be called while the process has one thread.
///
/// # Errors
/// The kernel's, when there is no memory to move it to; `EBUSY` when there is a second thread, which may be reading it.
pub fn withdraw(name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    if !super::is_single_threaded() {
        return Err(Errno::BUSY);
    }
    let mut moved = None;
    // SAFETY: no other thread changes the list while it is walked (checked above). Each entry is a string that ends with
    // NUL, and the list ends with a null pointer (environ(7)); only bytes between the `=` and the NUL are written, so
    // every string stays one.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            let value_at = name.to_bytes().len() + 1;
            let is_it = text.starts_with(name.to_bytes()) && text.get(value_at - 1) == Some(&b'=');
            if is_it && text.len() > value_at {
                if moved.is_none() {
                    moved = Some(sealed(c"anet-secret", &[text.get(value_at..).unwrap_or_default()])?);
                }
                for place in value_at..text.len() {
                    std::ptr::write_volatile((*entry).add(place), 0);
                }
            }
            entry = entry.add(1);
        }
    }
    Ok(moved)
}
