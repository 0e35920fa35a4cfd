//! Memory for a secret: never in swap, never in a dump, wiped when it goes.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroize;

/// The longest secret, in bytes.
pub const MAX_SECRET: usize = 8 * 1024;

/// The largest page that Linux has on x86_64 and aarch64: locking and advice hold for whole pages, and these must be nobody
/// else's.
const PAGE: usize = 64 * 1024;

/// Whole pages. The room behind a secret of the greatest length shows that there is no more to read.
#[repr(C, align(65536))]
struct Pages([u8; PAGE]);

/// A secret. It has no text, and is not copied by accident.
pub struct Secret {
    pages: Box<Pages>,
    start: usize,
    end: usize,
    locked: bool,
}

/// Why there is no secret.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum SecretError {
    /// It could not be read.
    #[error("the secret could not be read ({0}); store it anew")]
    Read(Errno),
    /// It is over [`MAX_SECRET`].
    #[error("the secret is longer than 8 KiB; it is not what it should be")]
    TooLong,
}

impl Secret {
    /// Reads all that the descriptor has, straight into its own memory, and closes it. Blanks and line ends around it are
    /// none of it.
    ///
    /// # Errors
    /// [`SecretError`]; what was read is wiped.
    pub fn read(source: OwnedFd) -> Result<Secret, SecretError> {
        let mut secret = Secret::read_raw(source.as_fd())?;
        let blank = |byte: &u8| byte.is_ascii_whitespace();
        let text = secret.expose();
        let before = text.iter().take_while(|byte| blank(byte)).count();
        let after = text.iter().rev().take_while(|byte| blank(byte)).count();
        secret.start = before;
        secret.end = secret.end.saturating_sub(after).max(before);
        Ok(secret)
    }

    /// Reads all that the descriptor has from where it stands, every byte of it, straight into its own memory.
    ///
    /// # Errors
    /// As [`Secret::read`].
    pub fn read_raw(source: BorrowedFd<'_>) -> Result<Secret, SecretError> {
        let mut secret = Secret::empty();
        loop {
            let room = secret.pages.0.get_mut(secret.end..=MAX_SECRET).unwrap_or_default();
            if room.is_empty() {
                return Err(SecretError::TooLong);
            }
            match rustix::io::read(source, room) {
                Ok(0) => return Ok(secret),
                Ok(count) => secret.end += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(SecretError::Read(errno)),
            }
        }
    }

    /// A new one of `length` bytes, by the kernel's own chance, made where it stays.
    ///
    /// # Errors
    /// [`SecretError::TooLong`] over [`MAX_SECRET`]; otherwise what the kernel says, which is nothing once it has started.
    pub fn random(length: usize) -> Result<Secret, SecretError> {
        let mut secret = Secret::empty();
        while secret.end < length {
            let room = secret.pages.0.get_mut(secret.end..length.min(MAX_SECRET)).unwrap_or_default();
            if room.is_empty() {
                return Err(SecretError::TooLong);
            }
            match getrandom(room, GetRandomFlags::empty()) {
                Ok(count) => secret.end += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(SecretError::Read(errno)),
            }
        }
        Ok(secret)
    }

    fn empty() -> Secret {
        // Not through an array on the stack: a secret is never there, but the pages are large.
        let mut secret = Secret { pages: Box::new(Pages([0; PAGE])), start: 0, end: 0, locked: false };
        secret.locked = secret.protect();
        secret
    }

    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.pages.0.get(self.start..self.end).unwrap_or_default()
    }

    /// Whether it is kept out of swap. The system may refuse (`RLIMIT_MEMLOCK`).
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    fn protect(&mut self) -> bool {
        let address = (&raw mut *self.pages).cast::<libc::c_void>();
        // SAFETY: the pages are wholly ours (their alignment and size are those of the largest page), live until `drop`
        // takes the advice back, and neither call changes what is in them.
        unsafe {
            libc::madvise(address, PAGE, libc::MADV_DONTDUMP);
            libc::mlock(address, PAGE) == 0
        }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.pages.0.zeroize();
        let address = (&raw mut *self.pages).cast::<libc::c_void>();
        // SAFETY: as in `protect`; the memory is freed after this, for others to use as they like.
        unsafe {
            libc::munlock(address, PAGE);
            libc::madvise(address, PAGE, libc::MADV_DODUMP);
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn secret(bytes: &[u8]) -> Result<Secret, SecretError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        Secret::read(file.into())
    }

    /// MOD-1: a stored key is read to its end, without the line end that an editor leaves.
    #[test]
    fn a_secret_is_what_stands_between_blanks() {
        for (bytes, text) in [
            (&b"sk-1"[..], &b"sk-1"[..]),
            (b"sk-1\n", b"sk-1"),
            (b"  sk-1 \r\n\n", b"sk-1"),
            (b"a b\n", b"a b"),
            (b"\n \n", b""),
            (b"", b""),
        ] {
            assert_eq!(secret(bytes).unwrap().expose(), text);
        }
        let long = vec![b'k'; MAX_SECRET];
        assert_eq!(secret(&long).unwrap().expose(), long);
        assert_eq!(secret(&[b'k'; MAX_SECRET + 1]).unwrap_err(), SecretError::TooLong);
    }

    /// EVI-1: what is no text is read to the byte, and a new one is what the kernel made up.
    #[test]
    fn a_raw_secret_keeps_every_byte() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b" \n\0 k\n").unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        assert_eq!(Secret::read_raw(file.as_fd()).unwrap().expose(), b" \n\0 k\n");
        assert_eq!(Secret::read_raw(file.as_fd()).unwrap().expose(), b"", "it stands at the end now");
        let (one, two) = (Secret::random(32).unwrap(), Secret::random(32).unwrap());
        assert_eq!((one.expose().len(), two.expose().len()), (32, 32));
        assert!(one.expose() != two.expose() && one.expose() != [0; 32]);
        assert_eq!(Secret::random(MAX_SECRET).unwrap().expose().len(), MAX_SECRET);
        assert_eq!(Secret::random(MAX_SECRET + 1).unwrap_err(), SecretError::TooLong);
    }

    /// MOD-1: the pages are locked and stay out of dumps, as the kernel itself says; no text shows the secret.
    #[test]
    fn a_secret_is_in_no_swap_no_dump_and_no_text() {
        let secret = secret(b"sk-canary").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        let address = secret.pages.0.as_ptr() as usize;
        let map = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut ours = false;
        let flags = map.lines().find_map(|line| {
            if let Some((from, to)) = line.split_once(' ').and_then(|(range, _)| range.split_once('-'))
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                ours = (from..to).contains(&address);
            }
            line.strip_prefix("VmFlags:").filter(|_| ours)
        });
        let flags: Vec<&str> = flags.unwrap().split_whitespace().collect();
        assert!(flags.contains(&"dd"), "{flags:?}");
        assert_eq!(flags.contains(&"lo"), secret.is_locked(), "{flags:?}");
    }
}
