//! The kernel's key store, tried by the probe of a sandbox: each of its three calls on its own, since a filter may have
//! forgotten any of them.

use std::ffi::CStr;

use rustix::io::Errno;

/// A key's type that every kernel with a key store has.
const KIND: &CStr = c"user";
/// The name of the key that is tried.
const NAME: &CStr = c"anet-probe";
/// KEY_SPEC_PROCESS_KEYRING of linux/keyctl.h: whatever is made there ends with the process.
const PROCESS_KEYRING: libc::c_long = -2;
/// KEYCTL_GET_KEYRING_ID of linux/keyctl.h.
const GET_KEYRING_ID: libc::c_long = 0;

/// What add_key, request_key and keyctl answer.
pub fn attempts() -> [Result<(), Errno>; 3] {
    let (kind, name, none) = (KIND.as_ptr(), NAME.as_ptr(), std::ptr::null::<libc::c_char>());
    let answer = |answer: libc::c_long| if answer >= 0 { Ok(()) } else { Err(super::errno()) };
    // SAFETY: C strings of ours, a payload with its length, and null where the kernel takes none. Nothing of ours is changed:
    // the keyring is the process's own, and is dropped with it.
    unsafe {
        [
            answer(libc::syscall(libc::SYS_add_key, kind, name, c"x".as_ptr(), 1usize, PROCESS_KEYRING)),
            answer(libc::syscall(libc::SYS_request_key, kind, name, none, 0)),
            answer(libc::syscall(libc::SYS_keyctl, GET_KEYRING_ID, PROCESS_KEYRING, 1, 0, 0)),
        ]
    }
}
