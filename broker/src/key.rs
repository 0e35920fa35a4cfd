//! The operator's key: in memory that is locked, kept out of dumps, and wiped.

use std::fmt;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use confine::sys::secret::{Secret, SecretError};
use http::HeaderValue;
use ipc_proto::broker::KeyState;
use zeroize::Zeroizing;

/// The key of the model's service. It has no text of its own, and no copy.
pub struct Key(Secret);

/// Why there is no key, although a descriptor came.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// Nothing but blanks.
    #[error("the stored key is empty; store it anew with `anet credential set`")]
    Empty,
    /// What no header can carry.
    #[error(
        "the stored key has a blank or a character that is not ASCII in it; store it anew with `anet credential set`"
    )]
    Characters,
    /// It could not be read, or is too long.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

impl KeyError {
    /// What the supervisor is told.
    #[must_use]
    pub fn state(self) -> KeyState {
        match self {
            KeyError::Empty => KeyState::Empty,
            KeyError::Characters | KeyError::Secret(_) => KeyState::Malformed,
        }
    }
}

impl Key {
    /// Reads the key and closes its descriptor.
    ///
    /// # Errors
    /// [`KeyError`]; it says nothing of what was read.
    pub fn read(source: OwnedFd) -> Result<Key, KeyError> {
        let secret = Secret::read(source)?;
        let bytes = secret.expose();
        if bytes.is_empty() {
            return Err(KeyError::Empty);
        }
        if !bytes.iter().all(u8::is_ascii_graphic) {
            return Err(KeyError::Characters);
        }
        Ok(Key(secret))
    }

    /// Whether its memory is kept out of swap.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    /// The value of a header that is the key alone (`x-api-key`).
    ///
    /// This copy is wiped when the last that holds it goes. What it is written into is not: hyper's buffer for the head
    /// and the TLS library's for a record copy it once more, into memory that is neither locked nor wiped, but in no dump
    /// and in nobody's sight either, since the process is not dumpable.
    #[must_use]
    pub fn header(&self) -> HeaderValue {
        self.after(b"")
    }

    /// The value of `authorization: Bearer`; as [`Key::header`].
    #[must_use]
    pub fn bearer(&self) -> HeaderValue {
        self.after(b"Bearer ")
    }

    /// The key itself, for whoever looks for it where it must not be.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    fn after(&self, scheme: &[u8]) -> HeaderValue {
        let mut text = Zeroizing::new(Vec::with_capacity(scheme.len() + self.expose().len()));
        text.extend_from_slice(scheme);
        text.extend_from_slice(self.expose());
        // It was checked when it was read: an empty value cannot come of this.
        let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(text))
            .unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> Result<Key, KeyError> {
        let (reader, writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut &writer, bytes).unwrap();
        drop(writer);
        Key::read(reader.into())
    }

    /// MOD-1: a key is one word that a header can carry; everything else is said by kind, never by what it is.
    #[test]
    fn a_key_is_one_word() {
        let key_ = key(b"sk-ant-1\n").unwrap();
        assert_eq!(key_.header(), "sk-ant-1");
        assert_eq!(key_.bearer(), "Bearer sk-ant-1");
        assert_eq!(key_.expose(), b"sk-ant-1");
        for (bytes, state) in [
            (&b""[..], KeyState::Empty),
            (b" \n", KeyState::Empty),
            (b"two words", KeyState::Malformed),
            (b"two\nlines", KeyState::Malformed),
            (b"a\0b", KeyState::Malformed),
            ("clé".as_bytes(), KeyState::Malformed),
        ] {
            let error = key(bytes).unwrap_err();
            assert_eq!(error.state(), state);
            let text = String::from_utf8_lossy(bytes);
            let text = text.trim();
            assert!(text.is_empty() || !format!("{error}{error:?}").contains(text), "{error}");
        }
        assert_eq!(key(&[b'k'; 9000]).unwrap_err().state(), KeyState::Malformed);
    }

    /// MOD-11: no text of the key or of its headers shows it.
    #[test]
    fn a_key_is_in_no_text() {
        let key = key(b"sk-canary").unwrap();
        let text = format!("{key:?} {:?} {:?}", key.header(), key.bearer());
        assert!(!text.contains("canary"), "{text}");
        assert!(key.header().is_sensitive() && key.bearer().is_sensitive());
    }
}
