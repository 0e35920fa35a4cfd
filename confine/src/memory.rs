//! Memory that is passed as a descriptor: written once, and then sealed.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, memfd_create, seek};
use rustix::io::{Errno, write};

/// Sealed memory with these bytes, at its beginning. `name` is shown in /proc/PID/fd.
///
/// # Errors
/// The kernel's, when there is no memory or no descriptor left.
pub fn sealed(name: &CStr, parts: &[&[u8]]) -> Result<OwnedFd, Errno> {
    let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() {
            let written = write(&memory, rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
    }
    fcntl_add_seals(&memory, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    seek(&memory, SeekFrom::Start(0))?;
    Ok(memory)
}
