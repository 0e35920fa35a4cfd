//! The name of an allowed host, as EGR-2 admits it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name, in bytes, without a root dot (RFC 1035, section 2.3.4: 255 octets on the wire).
pub const MAX_NAME: usize = 253;
/// The longest label, in bytes (RFC 1035, section 2.3.4).
pub const MAX_LABEL: usize = 63;
/// Names under these never mean the same thing on two networks.
const LOCAL_SUFFIXES: [&str; 5] = ["localhost", "local", "internal", "lan", "home.arpa"];

/// Model services (2026-11-30): a tunnel to one would go around every check of what a model is asked.
const MODEL_SERVICES: [&str; 12] = [
    "api.anthropic.com",
    "api.cohere.com",
    "api.deepseek.com",
    "api.fireworks.ai",
    "api.groq.com",
    "api.mistral.ai",
    "api.openai.com",
    "api.perplexity.ai",
    "api.together.xyz",
    "api.x.ai",
    "generativelanguage.googleapis.com",
    "openrouter.ai",
];

/// A whole host name in lower case: at least two labels, letters, digits and hyphens, no address in any spelling.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

/// Why text is no allowed host.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum HostError {
    /// Nothing there.
    #[error("an empty host; give a whole name such as pkg.example.com")]
    Empty,
    /// RFC 1035's limits.
    #[error("longer than a host name can be (253 bytes in all, 63 a label)")]
    TooLong,
    /// `https://...`, or a path.
    #[error("a URL where a host name belongs; give the name alone, such as pkg.example.com")]
    Url,
    /// `host:443`.
    #[error("a port; only 443 is ever reached, so give the name alone")]
    Port,
    /// `*.example.com`.
    #[error("a wildcard; list each host by its whole name")]
    Wildcard,
    /// `EXAMPLE.com`.
    #[error("upper-case letters; write the name in lower case")]
    UpperCase,
    /// `example.com.`, `a..b`.
    #[error("an empty label (a leading, trailing or doubled dot)")]
    EmptyLabel,
    /// `192.0.2.1`, `0x7f.1`, `[::1]`.
    #[error(
        "an IP address; only names can be allowed, since an address says nothing about who answers there"
    )]
    Address,
    /// `localhost`, `intranet`.
    #[error("a single label; give the whole name of a public host")]
    SingleLabel,
    /// `printer.local`.
    #[error("a name that only a local network knows (localhost, .local, .internal, .lan, .home.arpa)")]
    Local,
    /// `api.openai.com`.
    #[error(
        "a model service; a run reaches its model through --agent, where requests are checked and counted"
    )]
    ModelService,
    /// Letters outside ASCII.
    #[error("letters outside ASCII; give the name's xn-- form")]
    NotAscii,
    /// Anything else that no host name has.
    #[error("a character that no host name has (letters a-z, digits, hyphens inside a label, dots)")]
    Character,
    /// `xn--` followed by what is no Punycode.
    #[error("a label that begins with xn-- and is no valid IDNA label")]
    Idna,
}

impl HostName {
    /// The name, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        shape(text)?;
        for label in text.split('.') {
            check_label(label)?;
        }
        // WHATWG URL, section 3.5: a last label that is a number makes the whole an IPv4 address, however spelt.
        let last = text.rsplit('.').next().unwrap_or_default();
        if is_number(last) {
            return Err(HostError::Address);
        }
        if LOCAL_SUFFIXES.iter().any(|local| text == *local || is_below(text, local)) {
            return Err(HostError::Local);
        }
        if !text.contains('.') {
            return Err(HostError::SingleLabel);
        }
        if MODEL_SERVICES.contains(&text) {
            return Err(HostError::ModelService);
        }
        Ok(HostName(text.to_owned()))
    }
}

/// What is wrong with the text as a whole, said as what the writer most likely meant.
fn shape(text: &str) -> Result<(), HostError> {
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    if text.contains("://") || text.contains('/') {
        return Err(HostError::Url);
    }
    if text.contains('*') {
        return Err(HostError::Wildcard);
    }
    if text.starts_with('[') || text.bytes().filter(|byte| *byte == b':').count() > 1 {
        return Err(HostError::Address);
    }
    if text.contains(':') {
        return Err(HostError::Port);
    }
    if !text.is_ascii() {
        return Err(HostError::NotAscii);
    }
    if text.len() > MAX_NAME {
        return Err(HostError::TooLong);
    }
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(HostError::UpperCase);
    }
    Ok(())
}

fn check_label(label: &str) -> Result<(), HostError> {
    if label.is_empty() {
        return Err(HostError::EmptyLabel);
    }
    if label.len() > MAX_LABEL {
        return Err(HostError::TooLong);
    }
    if !label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        return Err(HostError::Character);
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(HostError::Character);
    }
    if label.starts_with("xn--") {
        return check_idna(label);
    }
    // RFC 5891, section 4.2.3.1: "--" in the third and fourth place is reserved for IDNA.
    match label.as_bytes().get(2..4) {
        Some(b"--") => Err(HostError::Idna),
        Some(_) | None => Ok(()),
    }
}

/// An A-label must decode and come back the same, or two names could mean one host.
fn check_idna(label: &str) -> Result<(), HostError> {
    let (unicode, valid) = idna::domain_to_unicode(label);
    if valid.is_err() || unicode.is_ascii() {
        return Err(HostError::Idna);
    }
    match idna::domain_to_ascii_strict(&unicode) {
        Ok(ascii) if ascii == label => Ok(()),
        Ok(_) | Err(_) => Err(HostError::Idna),
    }
}

fn is_number(label: &str) -> bool {
    label.bytes().all(|byte| byte.is_ascii_digit())
        || label.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'))
}

impl TryFrom<String> for HostName {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self, HostError> {
        text.parse()
    }
}

impl From<HostName> for String {
    fn from(host: HostName) -> String {
        host.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
