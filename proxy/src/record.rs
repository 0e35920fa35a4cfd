//! One plaintext handshake message out of TLS records (RFC 8446, section 5.1), however it is cut.
//!
//! A message may be spread over records and a record over TCP segments; both are used to hide a server name from
//! readers that look at the first packet alone. Here nothing is looked at before the message is whole.

use ipc_proto::proxy::Reason;

use crate::wire::Bytes;

/// The longest message, in bytes: a hello with post-quantum keys has 2 KiB, one with many tickets a few more.
pub const MAX_MESSAGE: usize = 64 * 1024;
/// The most records of one message.
pub const MAX_RECORDS: usize = 16;
/// The longest record body, in bytes: 2^14 and the expansion that TLS 1.3 allows (RFC 8446, section 5.2).
pub const MAX_RECORD: usize = 16 * 1024 + 256;
/// The most bytes that a message can take on the wire.
pub const MAX_WIRE: usize =
    MAX_MESSAGE + HANDSHAKE_HEADER + (MAX_RECORDS + 1) * RECORD_HEADER + CHANGE_CIPHER_SPEC.len();

/// ContentType, ProtocolVersion, length (RFC 8446, section 5.1).
pub(crate) const RECORD_HEADER: usize = 5;
/// HandshakeType, length (RFC 8446, section 4).
pub(crate) const HANDSHAKE_HEADER: usize = 4;
/// ContentType handshake.
pub(crate) const CONTENT_HANDSHAKE: u8 = 22;
/// ContentType alert.
pub(crate) const CONTENT_ALERT: u8 = 21;
/// legacy_record_version: TLS 1.0 in a first hello, TLS 1.2 elsewhere (RFC 8446, section 5.1).
const RECORD_VERSIONS: std::ops::RangeInclusive<u16> = 0x0301..=0x0303;
/// The record of SSL 3.0, forbidden by RFC 7568.
const RECORD_SSL3: u16 = 0x0300;
/// The one record that may stand before a second hello (RFC 8446, appendix D.4): change_cipher_spec, for middleboxes.
pub(crate) const CHANGE_CIPHER_SPEC: [u8; 6] = [20, 3, 3, 0, 1, 1];

/// A whole message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// HandshakeType.
    pub kind: u8,
    /// Its body, without the header.
    pub body: Vec<u8>,
    /// How many bytes on the wire it took, with whatever came before it.
    pub length: usize,
}

/// Collects one message.
#[derive(Debug)]
pub struct MessageReader {
    /// Where the next record begins.
    position: usize,
    records: usize,
    message: Vec<u8>,
    may_change_cipher: bool,
}

impl MessageReader {
    /// For the first message of a connection.
    #[must_use]
    pub fn first() -> Self {
        MessageReader { position: 0, records: 0, message: Vec::new(), may_change_cipher: false }
    }

    /// For a second hello, which one change_cipher_spec may precede.
    #[must_use]
    pub fn second() -> Self {
        MessageReader { may_change_cipher: true, ..MessageReader::first() }
    }

    /// Looks at all bytes that have come so far. `Ok(None)`: more are needed.
    ///
    /// # Errors
    /// Why these are no single handshake message.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<Message>, Reason> {
        while let Some(rest) = bytes.get(self.position..).filter(|rest| !rest.is_empty()) {
            if self.skip_change_cipher(rest)? == Skip::More {
                return Ok(None);
            }
            let rest = bytes.get(self.position..).unwrap_or_default();
            let Some(body) = self.record(rest)? else { return Ok(None) };
            self.records += 1;
            if self.records > MAX_RECORDS {
                return Err(Reason::HelloTooLarge);
            }
            self.position += RECORD_HEADER + body.len();
            self.message.extend_from_slice(body);
            if let Some(message) = self.whole()? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Steps over the one change_cipher_spec, if it is here.
    fn skip_change_cipher(&mut self, rest: &[u8]) -> Result<Skip, Reason> {
        if !self.may_change_cipher || rest.first() != CHANGE_CIPHER_SPEC.first() {
            return Ok(Skip::Done);
        }
        let length = rest.len().min(CHANGE_CIPHER_SPEC.len());
        if rest.get(..length) != CHANGE_CIPHER_SPEC.get(..length) {
            return Err(Reason::HelloMalformed);
        }
        if length < CHANGE_CIPHER_SPEC.len() {
            return Ok(Skip::More);
        }
        self.may_change_cipher = false;
        self.position += length;
        Ok(Skip::Done)
    }

    /// The body of the record that `rest` begins with, once it is whole. Its header is judged byte by byte.
    fn record<'a>(&self, rest: &'a [u8]) -> Result<Option<&'a [u8]>, Reason> {
        let foreign = if self.records == 0 { Reason::NotTls } else { Reason::HelloMalformed };
        let mut reader = Bytes::new(rest);
        let Ok(content) = reader.u8() else { return Ok(None) };
        if content != CONTENT_HANDSHAKE {
            return Err(foreign);
        }
        let Ok(version) = reader.u16() else { return Ok(None) };
        if version == RECORD_SSL3 {
            return Err(Reason::TlsVersion);
        }
        if !RECORD_VERSIONS.contains(&version) {
            return Err(foreign);
        }
        let Ok(length) = reader.u16() else { return Ok(None) };
        // Handshake messages cannot be cut into empty pieces (RFC 8446, section 5.1).
        if length == 0 {
            return Err(Reason::HelloMalformed);
        }
        if usize::from(length) > MAX_RECORD {
            return Err(Reason::HelloTooLarge);
        }
        Ok(reader.take(length.into()).ok())
    }

    /// The message, once all of it is here. Another one behind it in the same record is refused: it could not be
    /// judged, and no client has a reason to send one.
    fn whole(&mut self) -> Result<Option<Message>, Reason> {
        let mut reader = Bytes::new(&self.message);
        let (Ok(kind), Ok(length)) = (reader.u8(), reader.u24()) else { return Ok(None) };
        if length > MAX_MESSAGE {
            return Err(Reason::HelloTooLarge);
        }
        let body = reader.rest();
        match body.len().cmp(&length) {
            std::cmp::Ordering::Less => Ok(None),
            std::cmp::Ordering::Equal => {
                Ok(Some(Message { kind, body: body.to_vec(), length: self.position }))
            }
            std::cmp::Ordering::Greater => Err(Reason::HelloMalformed),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Skip {
    Done,
    More,
}
