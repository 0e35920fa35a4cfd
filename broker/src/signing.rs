//! The node's signing key: an Ed25519 seed (RFC 8032) in a file that the guard opened, and never anything else signed with it
//! than checkpoints of the evidence (EVI-1).
//!
//! The file is filled once, before the first word to the supervisor, and is never written again: a key that was lost or
//! changed would make what it vouched for look forged, so whatever is not as it should be is for a person to look at.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use confine::sys::secret::{Secret, SecretError};
use ipc_proto::broker::{PublicKey, Signature, checkpoint_message};
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustix::fs::{FileType, fstat, fsync};
use rustix::io::{Errno, pwrite};

/// The length of a seed, in bytes.
const SEED: usize = 32;
/// The rights of anybody but the owner.
const OTHERS: u32 = 0o077;

/// Signs checkpoints.
pub struct Signer {
    seed: Secret,
    public: PublicKey,
}

/// Why nothing can be signed. The process ends: a node whose evidence was signed once does not go on without.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum SigningError {
    /// It cannot be asked what it is, or be written.
    #[error(
        "the file of the evidence's signing key cannot be used ({0}); see its rights and the space on its disk"
    )]
    File(Errno),
    /// No regular file.
    #[error("the evidence's signing key is no regular file; put the key's own file back")]
    NoFile,
    /// Somebody else may read or write it.
    #[error(
        "the file of the evidence's signing key is open to others (mode {0:o}); if nobody has read it, close it: chmod 600"
    )]
    Open(u32),
    /// It cannot be read.
    #[error("the evidence's signing key cannot be read: {0}")]
    Read(#[from] SecretError),
    /// Neither empty nor a seed: cut, replaced, or never written to the end.
    #[error(
        "the file of the evidence's signing key has {0} bytes where 32 belong, and is left as it is; put the key back from a \
         copy, or, if nothing was signed with it yet, remove the file"
    )]
    Length(usize),
    /// A file system that lost its contents in a crash answers zeros.
    #[error(
        "the file of the evidence's signing key has nothing but zeros, and is left as it is; put the key back from a copy, or, \
         if nothing was signed with it yet, remove the file"
    )]
    Zeros,
    /// What was made or read is no key.
    #[error("the evidence's signing key cannot be used: it is no Ed25519 seed")]
    NoKey,
}

impl Signer {
    /// Takes the key out of its file, and makes one where the file is empty: on disk before this returns.
    ///
    /// # Errors
    /// [`SigningError`]; a file that was not empty is as it was.
    pub fn open(file: OwnedFd) -> Result<Signer, SigningError> {
        let stat = fstat(&file).map_err(SigningError::File)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(SigningError::NoFile);
        }
        if stat.st_mode & OTHERS != 0 {
            return Err(SigningError::Open(stat.st_mode & 0o7777));
        }
        let read = Secret::read_raw(file.as_fd())?;
        let seed = match read.expose() {
            [] => make(file.as_fd())?,
            zeros if zeros.len() == SEED && zeros.iter().all(|byte| *byte == 0) => {
                return Err(SigningError::Zeros);
            }
            seed if seed.len() == SEED => read,
            other => return Err(SigningError::Length(other.len())),
        };
        let pair = pair(&seed)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| SigningError::NoKey)?;
        Ok(Signer { seed, public })
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Whether the seed's memory is kept out of swap.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.seed.is_locked()
    }

    /// Signs the checkpoint of record `seq` with this hash. The pair of keys is made anew each time, which takes
    /// microseconds, so that what is kept for days is in locked memory only.
    ///
    /// # Errors
    /// [`SigningError::NoKey`], which [`Signer::open`] has ruled out.
    pub fn sign(&self, seq: u64, hash: &[u8; 32]) -> Result<Signature, SigningError> {
        let signature = pair(&self.seed)?.sign(&checkpoint_message(seq, hash));
        match signature.as_ref().split_at_checked(32) {
            Some((r, s)) => Ok(Signature {
                r: r.try_into().map_err(|_| SigningError::NoKey)?,
                s: s.try_into().map_err(|_| SigningError::NoKey)?,
            }),
            None => Err(SigningError::NoKey),
        }
    }
}

fn pair(seed: &Secret) -> Result<Ed25519KeyPair, SigningError> {
    Ed25519KeyPair::from_seed_unchecked(seed.expose()).map_err(|_| SigningError::NoKey)
}

/// A new seed, in the file and on the disk.
fn make(file: BorrowedFd<'_>) -> Result<Secret, SigningError> {
    let seed = Secret::random(SEED)?;
    let mut written = 0;
    while let Some(rest) = seed.expose().get(written..).filter(|rest| !rest.is_empty()) {
        match pwrite(file, rest, written as u64) {
            Ok(0) => return Err(SigningError::File(Errno::NOSPC)),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(SigningError::File(errno)),
        }
    }
    fsync(file).map_err(SigningError::File)?;
    Ok(seed)
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

#[cfg(test)]
mod tests;
