//! What a start opens of the system: /dev/null, where the operator reads, chance.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::SystemTime;

use ipc_proto::{Code, RunId};

use crate::error::Trouble;

/// A new run's name, and when it is: milliseconds since 1970.
pub(super) fn new_run() -> Result<(RunId, u64), Trouble> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let started = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    Ok((RunId::new(started, chance()?), started))
}

/// Four bytes that nobody knows before.
pub(super) fn chance() -> Result<[u8; 4], Trouble> {
    let mut bytes = [0u8; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => Ok(bytes),
        Ok(_) | Err(_) => {
            Err(Trouble::new(Code::ProcessDied, "the kernel gives no random numbers; nothing is started"))
        }
    }
}

/// One more descriptor of the same.
pub(super) fn duplicate(fd: &OwnedFd) -> Result<OwnedFd, Trouble> {
    fd.try_clone().map_err(|error| system("a descriptor", &error))
}

/// /dev/null, to read and to write.
pub(super) fn open_null() -> Result<OwnedFd, Trouble> {
    let file = OpenOptions::new().read(true).write(true).open("/dev/null");
    Ok(file.map_err(|error| system("/dev/null", &error))?.into())
}

/// Where the operator reads: standard output or error.
pub(super) fn operators(standard: BorrowedFd<'_>) -> Result<File, Trouble> {
    if rustix::termios::isatty(standard) {
        // For writing alone: whoever is taken over cannot read what the operator types.
        let flags = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap_or(0);
        let path = format!("/proc/self/fd/{}", standard.as_raw_fd());
        if let Ok(file) = OpenOptions::new().write(true).custom_flags(flags).open(path) {
            return Ok(file);
        }
    }
    rustix::io::fcntl_dupfd_cloexec(standard, 3).map(File::from).map_err(|errno| {
        Trouble::new(Code::BadOption, format!("standard output or error is closed ({errno}); open it"))
    })
}

/// The sentence for what the system refuses.
pub(super) fn system(what: &str, error: &std::io::Error) -> Trouble {
    Trouble::new(
        Code::ProcessDied,
        format!("{what} cannot be opened ({error}); see the limits on open files"),
    )
}
