//! The client's first TLS message (RFC 8446, section 4.1.2), and whether it asks for the host that was allowed (EGR-5).
//!
//! The server name is the only part of a tunnel that says whom the client really wants; it stands in the clear unless
//! the client encrypts it, which is refused. What two parsers could read in two ways is refused too.

use std::collections::HashSet;

use ipc_proto::host::MAX_NAME;
use ipc_proto::proxy::Reason;

use crate::record::{Message, MessageReader};
use crate::wire::{Bytes, Short};

/// HandshakeType client_hello.
const CLIENT_HELLO: u8 = 1;
/// ProtocolVersion of TLS 1.2 (RFC 5246) and 1.3 (RFC 8446).
const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;
/// ExtensionType server_name (RFC 6066, section 3).
const SERVER_NAME: u16 = 0;
/// ExtensionType application_layer_protocol_negotiation (RFC 7301).
const ALPN: u16 = 16;
/// ExtensionType pre_shared_key (RFC 8446, section 4.2.11).
const PRE_SHARED_KEY: u16 = 41;
/// ExtensionType early_data (RFC 8446, section 4.2.10).
const EARLY_DATA: u16 = 42;
/// ExtensionType supported_versions (RFC 8446, section 4.2.1).
const SUPPORTED_VERSIONS: u16 = 43;
/// Every way to encrypt the name: ESNI (draft-ietf-tls-esni-02), the numbers that drafts of ECH had, encrypted_client_hello
/// and ech_outer_extensions (RFC 9849).
const ENCRYPTED_NAMES: [u16; 6] = [0xffce, 0xfe08, 0xfe09, 0xfe0a, 0xfe0d, 0xfd00];
/// NameType host_name (RFC 6066, section 3).
const HOST_NAME: u8 = 0;
/// The protocol of RFC 8737: its purpose is to prove to an authority that one controls a name.
const ACME_TLS: &[u8] = b"acme-tls/1";
/// Random, in bytes.
const RANDOM: usize = 32;
/// The longest legacy_session_id, in bytes.
const MAX_SESSION_ID: usize = 32;

/// A hello that passed every check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientHello {
    /// The server name, as the client wrote it.
    pub server_name: String,
    /// How many bytes on the wire the message took. Nothing but these may go out before the server has answered.
    pub length: usize,
}

/// Reads a hello that comes in pieces and checks it against the name that was allowed.
#[derive(Debug)]
pub struct HelloReader(MessageReader);

impl HelloReader {
    /// For the first hello of a connection.
    #[must_use]
    pub fn first() -> Self {
        HelloReader(MessageReader::first())
    }

    /// For the hello that answers a retry request.
    #[must_use]
    pub fn second() -> Self {
        HelloReader(MessageReader::second())
    }

    /// Looks at all bytes that have come so far. `Ok(None)`: more are needed, and nothing may go out yet.
    ///
    /// # Errors
    /// Why the tunnel must be closed.
    pub fn read(&mut self, bytes: &[u8], allowed: &str) -> Result<Option<ClientHello>, Reason> {
        let Some(message) = self.0.read(bytes)? else { return Ok(None) };
        let server_name = check(&message)?;
        if !server_name.eq_ignore_ascii_case(allowed) {
            return Err(Reason::SniMismatch);
        }
        // No client has more to say before the server has answered, unless it is data that nobody has proved a
        // certificate for.
        if bytes.len() > message.length {
            return Err(Reason::EarlyData);
        }
        Ok(Some(ClientHello { server_name, length: message.length }))
    }
}

impl From<Short> for Reason {
    fn from(_: Short) -> Reason {
        Reason::HelloMalformed
    }
}

/// Checks a whole message and returns its server name.
fn check(message: &Message) -> Result<String, Reason> {
    if message.kind != CLIENT_HELLO {
        return Err(Reason::HelloMalformed);
    }
    let mut body = Bytes::new(&message.body);
    let legacy_version = body.u16()?;
    body.take(RANDOM)?;
    if body.vector8()?.rest().len() > MAX_SESSION_ID {
        return Err(Reason::HelloMalformed);
    }
    let cipher_suites = body.vector16()?.rest();
    if cipher_suites.is_empty() || cipher_suites.len() % 2 != 0 {
        return Err(Reason::HelloMalformed);
    }
    if body.vector8()?.is_empty() {
        return Err(Reason::HelloMalformed);
    }
    if body.is_empty() {
        // A hello without any extension, as SSL 3.0 and early TLS 1.0 had it.
        return Err(if legacy_version < TLS_1_2 { Reason::TlsVersion } else { Reason::SniMissing });
    }
    let extensions = body.vector16()?;
    if !body.is_empty() {
        return Err(Reason::HelloMalformed);
    }
    Extensions::read(extensions)?.judge(legacy_version)
}

/// What of the extensions matters.
#[derive(Default)]
struct Extensions<'a> {
    server_name: Option<Bytes<'a>>,
    versions: Option<Bytes<'a>>,
    alpn: Option<Bytes<'a>>,
    encrypted_name: bool,
    early_data: bool,
}

impl<'a> Extensions<'a> {
    fn read(mut block: Bytes<'a>) -> Result<Self, Reason> {
        let mut found = Extensions::default();
        let mut seen = HashSet::new();
        while !block.is_empty() {
            let kind = block.u16()?;
            let data = block.vector16()?;
            // Two of one type, of which two readers might take two (RFC 8446, section 4.2).
            if !seen.insert(kind) {
                return Err(Reason::HelloMalformed);
            }
            match kind {
                SERVER_NAME => found.server_name = Some(data),
                SUPPORTED_VERSIONS => found.versions = Some(data),
                ALPN => found.alpn = Some(data),
                EARLY_DATA => found.early_data = true,
                // It must be the last one (RFC 8446, section 4.2.11): what it signs ends where it begins.
                PRE_SHARED_KEY if !block.is_empty() => return Err(Reason::HelloMalformed),
                kind if ENCRYPTED_NAMES.contains(&kind) => found.encrypted_name = true,
                // GREASE (RFC 8701) and everything that does not say where the client goes.
                _ => {}
            }
        }
        Ok(found)
    }

    /// The name, if everything else is as it must be.
    fn judge(self, legacy_version: u16) -> Result<String, Reason> {
        let speaks_new_tls = match self.versions {
            Some(data) => list_of_versions(data)?.any(|version| version == TLS_1_2 || version == TLS_1_3),
            None => legacy_version == TLS_1_2,
        };
        if !speaks_new_tls {
            return Err(Reason::TlsVersion);
        }
        if self.encrypted_name {
            return Err(Reason::EchRequested);
        }
        let name = host_name(self.server_name.ok_or(Reason::SniMissing)?)?;
        if self.early_data {
            return Err(Reason::EarlyData);
        }
        if self.alpn.map(offers_acme).transpose()? == Some(true) {
            return Err(Reason::AlpnNotAllowed);
        }
        Ok(name)
    }
}

fn list_of_versions(mut data: Bytes<'_>) -> Result<impl Iterator<Item = u16>, Reason> {
    let list = data.vector8()?.rest();
    if !data.is_empty() || list.is_empty() || list.len() % 2 != 0 {
        return Err(Reason::HelloMalformed);
    }
    Ok(list.as_chunks::<2>().0.iter().map(|pair| u16::from_be_bytes(*pair)))
}

/// The one host name of a server_name extension: exactly one entry, of the only type there is, a host name's bytes.
fn host_name(mut data: Bytes<'_>) -> Result<String, Reason> {
    let sni = |_: Short| Reason::SniMalformed;
    let mut list = data.vector16().map_err(sni)?;
    if !data.is_empty() || list.u8().map_err(sni)? != HOST_NAME {
        return Err(Reason::SniMalformed);
    }
    let name = list.vector16().map_err(sni)?.rest();
    let sound = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    // No root dot: RFC 6066, section 3.
    if !list.is_empty()
        || name.is_empty()
        || name.len() > MAX_NAME
        || !name.iter().all(sound)
        || name.ends_with(b".")
    {
        return Err(Reason::SniMalformed);
    }
    String::from_utf8(name.to_vec()).map_err(|_| Reason::SniMalformed)
}

fn offers_acme(mut data: Bytes<'_>) -> Result<bool, Reason> {
    let mut list = data.vector16()?;
    if !data.is_empty() || list.is_empty() {
        return Err(Reason::HelloMalformed);
    }
    let mut acme = false;
    while !list.is_empty() {
        let protocol = list.vector8()?.rest();
        if protocol.is_empty() {
            return Err(Reason::HelloMalformed);
        }
        acme |= protocol == ACME_TLS;
    }
    Ok(acme)
}

#[cfg(test)]
pub(crate) mod tests;
