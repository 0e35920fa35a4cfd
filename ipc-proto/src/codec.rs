//! Encoding: the one file that knows bincode.
//!
//! bincode 2.0.1 is no longer maintained; it is used for private messages between processes of one build only, never
//! for anything kept on disk. Two things that it does not do itself are done here: encoding is held to the same limit
//! as decoding, and a message must be the only spelling of its value (no trailing bytes, no padded integers), so that
//! what was checked is what was sent.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::{Serialize, de::DeserializeOwned};

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CodecError {
    /// More bytes than the limit of its kind.
    #[error("{actual} bytes, over the limit of {limit}")]
    TooLong {
        /// What it would take, in bytes.
        actual: usize,
        /// What is allowed, in bytes.
        limit: usize,
    },
    /// The bytes are not such a message, or not all of them belong to it.
    #[error("not a message of this channel")]
    Malformed,
}

/// Fixed-width integers: every value then has one spelling, so trailing bytes are the only ambiguity left.
fn config<const LIMIT: usize>() -> Configuration<LittleEndian, Fixint, Limit<LIMIT>> {
    bincode::config::standard().with_fixed_int_encoding().with_limit::<LIMIT>()
}

/// Encodes `value` into at most `LIMIT` bytes.
pub(crate) fn encode<T: Serialize, const LIMIT: usize>(value: &T) -> Result<Vec<u8>, CodecError> {
    // bincode enforces its limit when decoding only.
    let bytes = bincode::serde::encode_to_vec(value, config::<LIMIT>()).map_err(|_| CodecError::Malformed)?;
    if bytes.len() > LIMIT {
        return Err(CodecError::TooLong { actual: bytes.len(), limit: LIMIT });
    }
    Ok(bytes)
}

/// Decodes `bytes`, all of them, into one value.
pub(crate) fn decode<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > LIMIT {
        return Err(CodecError::TooLong { actual: bytes.len(), limit: LIMIT });
    }
    let (value, used) = bincode::serde::decode_from_slice::<T, _>(bytes, config::<LIMIT>())
        .map_err(|_| CodecError::Malformed)?;
    if used != bytes.len() {
        return Err(CodecError::Malformed);
    }
    Ok(value)
}
