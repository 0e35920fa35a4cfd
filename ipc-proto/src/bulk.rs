//! What is too long for a packet: a value in sealed memory, passed as one descriptor.
//!
//! The receiver checks the seals before it reads, so the sender cannot change what is being checked.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use serde::{Serialize, de::DeserializeOwned};

use crate::codec::{self, CodecError};

/// The longest value, in bytes: a command line and an environment of the kernel's own limit (2 MiB each) fit, and the longest
/// answer of an agent (16 MiB) with its task and the records of its runs.
pub const MAX_BULK: usize = 24 * 1024 * 1024;

/// Why a value could not be passed in memory.
#[derive(Debug, thiserror::Error)]
pub enum BulkError {
    /// The system refused.
    #[error("passing a value in memory: {0}")]
    Io(#[from] rustix::io::Errno),
    /// It is too long, or not such a value.
    #[error("passing a value in memory: {0}")]
    Codec(#[from] CodecError),
    /// The memory can still be changed by its sender.
    #[error("protocol violation: the memory of a passed value is not sealed")]
    NotSealed,
}

const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Puts `value` into sealed memory.
///
/// # Errors
/// [`BulkError`]; nothing is left behind.
pub fn seal<T: Serialize>(value: &T) -> Result<OwnedFd, BulkError> {
    let bytes = codec::encode::<T, MAX_BULK>(value)?;
    let memory = memfd_create("anet-value", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, bytes.len() as u64)?;
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        written += pwrite(&memory, rest, written as u64)?;
    }
    fcntl_add_seals(&memory, SEALS)?;
    Ok(memory)
}

/// Reads a value out of sealed memory.
///
/// # Errors
/// [`BulkError::NotSealed`] when the sender could still change it; otherwise as [`seal`].
pub fn open<T: DeserializeOwned>(memory: BorrowedFd<'_>) -> Result<T, BulkError> {
    // Only memory has seals: this refuses any other kind of file as well.
    if !fcntl_get_seals(memory.as_fd()).unwrap_or(SealFlags::empty()).contains(SEALS) {
        return Err(BulkError::NotSealed);
    }
    let length = usize::try_from(fstat(memory)?.st_size).unwrap_or(usize::MAX);
    if length > MAX_BULK {
        return Err(CodecError::TooLong { actual: length, limit: MAX_BULK }.into());
    }
    let mut bytes = vec![0u8; length];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match pread(memory, rest, done as u64)? {
            0 => return Err(CodecError::Malformed.into()),
            read => done += read,
        }
    }
    Ok(codec::decode::<T, MAX_BULK>(&bytes)?)
}
