//! The server's first answer, of which one thing matters: whether it asks for a second hello.
//!
//! A hello that follows a HelloRetryRequest could name another host than the first, and a front that serves many names
//! would go by the second. So it is read like the first one.

use ipc_proto::proxy::Reason;

use crate::record::{CONTENT_ALERT, CONTENT_HANDSHAKE, HANDSHAKE_HEADER, MAX_RECORD, RECORD_HEADER};
use crate::wire::Bytes;

/// HandshakeType server_hello, which a HelloRetryRequest is too.
const SERVER_HELLO: u8 = 2;
/// The Random of a HelloRetryRequest: SHA-256 of "HelloRetryRequest" (RFC 8446, section 4.1.3).
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// The most that must be read to know: headers, legacy_version and Random, each byte in a record of its own.
pub const MAX_WIRE: usize = (HANDSHAKE_HEADER + 2 + RETRY_RANDOM.len()) * (RECORD_HEADER + 1);

/// What the server answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It goes on, or refuses with an alert.
    Final,
    /// It asks for another hello.
    Retry,
}

/// Looks at all bytes that have come so far. `Ok(None)`: more are needed.
///
/// # Errors
/// [`Reason::NotTls`]: this is no answer to a hello.
pub fn read(bytes: &[u8]) -> Result<Option<Answer>, Reason> {
    let mut rest = Bytes::new(bytes);
    let mut message = Vec::with_capacity(HANDSHAKE_HEADER + 2 + RETRY_RANDOM.len());
    loop {
        let Ok(content) = rest.u8() else { return Ok(None) };
        if content == CONTENT_ALERT && message.is_empty() {
            return Ok(Some(Answer::Final));
        }
        if content != CONTENT_HANDSHAKE {
            return Err(Reason::NotTls);
        }
        let (Ok(version), Ok(length)) = (rest.u16(), rest.u16()) else { return Ok(None) };
        if version >> 8 != 3 || length == 0 || usize::from(length) > MAX_RECORD {
            return Err(Reason::NotTls);
        }
        let whole = usize::from(length) <= rest.rest().len();
        message.extend_from_slice(rest.take(rest.rest().len().min(length.into())).unwrap_or_default());
        match judge(&message) {
            Ok(Some(answer)) => return Ok(Some(answer)),
            Ok(None) if whole => {}
            Ok(None) => return Ok(None),
            Err(reason) => return Err(reason),
        }
    }
}

/// A server hello's beginning: type, length, legacy_version, Random.
fn judge(message: &[u8]) -> Result<Option<Answer>, Reason> {
    if message.first().is_some_and(|kind| *kind != SERVER_HELLO) {
        return Err(Reason::NotTls);
    }
    let mut reader = Bytes::new(message);
    let random = reader.take(HANDSHAKE_HEADER + 2).and_then(|_| reader.take(RETRY_RANDOM.len()));
    Ok(random.ok().map(|random| if random == RETRY_RANDOM { Answer::Retry } else { Answer::Final }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    use super::*;

    fn server_hello(random: &[u8; 32]) -> Vec<u8> {
        let body = [&[3, 3][..], random, &[0, 0x13, 0x01, 0, 0, 0]].concat();
        [&[SERVER_HELLO, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |piece: &[u8]| [&[22, 3, 3, 0, u8::try_from(piece.len()).unwrap()][..], piece].concat();
        message.chunks(size).flat_map(record).collect()
    }

    /// RFC 8446, section 4.1.3.
    #[test]
    fn the_random_of_a_retry_is_the_hash_of_its_name() {
        assert_eq!(RETRY_RANDOM, <[u8; 32]>::from(Sha256::digest(b"HelloRetryRequest")));
    }

    /// EGR-5, table D 96: a retry request is known however it is cut, within the bytes that are read for it.
    #[test]
    fn a_retry_is_known() {
        for size in 1..60 {
            let wire = records(&server_hello(&RETRY_RANDOM), size);
            assert_eq!(read(&wire[..wire.len().min(MAX_WIRE)]), Ok(Some(Answer::Retry)), "{size}");
        }
        let wire = records(&server_hello(&RETRY_RANDOM), 255);
        for end in 0..43 {
            assert_eq!(read(&wire[..end]), Ok(None), "{end}");
        }
        assert_eq!(read(&wire[..43]), Ok(Some(Answer::Retry)));
    }

    #[test]
    fn other_answers() {
        assert_eq!(read(&records(&server_hello(&[7; 32]), 255)), Ok(Some(Answer::Final)));
        assert_eq!(read(&[21, 3, 3, 0, 2, 2, 40]), Ok(Some(Answer::Final)));
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"SSH-2.0-x\r\n",
            &[22, 3, 3, 0, 0],
            &[22, 3, 3, 0, 1, 1],
            &[23, 3, 3],
        ] {
            assert_eq!(read(bytes), Err(Reason::NotTls), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_random_but_one_is_final(random: [u8; 32]) {
            prop_assert_eq!(read(&records(&server_hello(&random), 255)), Ok(Some(Answer::Final)));
        }
    }
}
