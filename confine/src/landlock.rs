//! Landlock: rules on files, ports and scopes that a process lays on itself.

use std::os::fd::BorrowedFd;

use crate::Error;

/// The level that the kernel offers, 0 for none.
pub fn abi() -> u8 {
    0
}

/// The second wall inside the sandbox (SBX-7), entered by anet-init for the agent: reads and executes everything that the
/// mounts show, writes only beneath `writable`. Returns the level that holds.
pub fn restrict_run(writable: &[BorrowedFd<'_>]) -> Result<u8, Error> {
    let _ = writable;
    Ok(abi())
}
