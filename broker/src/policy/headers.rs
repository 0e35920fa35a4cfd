//! Which headers go on (MOD-7) and which come back (MOD-11): lists of what may, so that a credential, a route or an
//! organisation that the agent names has no way through, under any name.

use http::HeaderMap;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, UPGRADE};

use super::interface::is_anthropic;
use super::path::printable;
use super::{Interface, Refusal, Rule};

const ANTHROPIC_BETA: &str = "anthropic-beta";
const ANTHROPIC_VERSION: &str = "anthropic-version";

/// Headers of an agent's request that go on as they are, each once: what the service reads, and nothing that says who asks.
/// As sent by claude 2.1.332 and codex 0.171.0 (2026-11-30); the SDK's x-stainless-*, tracing and window ids are left out.
const MESSAGES: &[&str] = &["accept", ANTHROPIC_VERSION, "user-agent"];
const RESPONSES: &[&str] = &[
    "accept",
    "user-agent",
    "originator",
    // The two ids are the key of the prompt cache; codex makes them up per session.
    "session-id",
    "thread-id",
    "x-client-request-id",
    // Says that tools stand in the input (code mode), so the body is not understood without it.
    "x-openai-internal-codex-responses-lite",
];
const CHAT_COMPLETIONS: &[&str] = &["accept", "user-agent"];

/// The longest value of a header that goes on.
const MAX_VALUE: usize = 512;

/// Betas that change how the model is asked and nothing else, as of 2026-11-30 (claude 2.1.332, @anthropic-ai/sdk 1.14.0).
/// Each that reaches elsewhere, stores or costs otherwise (files, skills, code execution, MCP, web search, advisor, fast
/// mode, fallbacks, batches, threads, agents, OAuth) is absent, and so is whatever comes after this date.
const BETAS: &[&str] = &[
    "advanced-tool-use-2025-11-20",
    "claude-code-20250219",
    "computer-use-2024-10-22",
    "computer-use-2025-01-24",
    "computer-use-2025-11-24",
    "context-management-2025-06-27",
    "effort-2025-11-24",
    "extended-cache-ttl-2025-04-11",
    "fine-grained-tool-streaming-2025-05-14",
    "interleaved-thinking-2025-05-14",
    "mid-conversation-system-2026-04-07",
    "mid-conversation-tool-changes-2026-07-01",
    "per-turn-control-2026-07-01",
    "prompt-caching-2024-07-31",
    "structured-outputs-2025-09-17",
    "structured-outputs-2025-11-13",
    "structured-outputs-2025-12-15",
    "thinking-token-count-2026-05-13",
    "token-counting-2024-11-01",
    "tool-search-tool-2025-10-19",
];

/// What comes back from the service.
const ANSWER: &[&str] =
    &["content-type", "request-id", "x-request-id", "retry-after", "retry-after-ms", "x-should-retry"];
const ANSWER_PREFIXES: &[&str] = &["anthropic-ratelimit-", "x-ratelimit-"];

/// What goes on of a request's headers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Headers {
    /// The headers to send; the key, the host, length and `accept-encoding` are whoever's who sends.
    pub forward: HeaderMap,
    /// The betas that stand in `forward`, and those that do not any more.
    pub betas: Betas,
}

/// Beta tokens, as they came and as they go on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Betas {
    kept: Vec<&'static str>,
    removed: Vec<String>,
}

impl Betas {
    /// Whether what belongs to a family of betas (`context-management-`, whatever its date) has to go: one was asked for
    /// and taken away, and none is left.
    #[must_use]
    pub fn lost(&self, family: &str) -> bool {
        self.removed.iter().any(|beta| beta.starts_with(family))
            && !self.kept.iter().any(|beta| beta.starts_with(family))
    }

    /// Reads all values of the header.
    fn of(given: &HeaderMap) -> Result<Betas, Refusal> {
        let mut betas = Betas::default();
        for value in given.get_all(ANTHROPIC_BETA) {
            let text = text(value, ANTHROPIC_BETA)?;
            for token in text.split(',').map(str::trim).filter(|token| !token.is_empty()) {
                match BETAS.iter().find(|known| **known == token) {
                    Some(known) if betas.kept.contains(known) => {}
                    Some(known) => betas.kept.push(known),
                    None => betas.removed.push(token.to_ascii_lowercase()),
                }
            }
        }
        Ok(betas)
    }
}

/// Refuses a change of protocol.
pub(super) fn no_upgrade(given: &HeaderMap) -> Result<(), Refusal> {
    if let Some(value) = given.get(UPGRADE) {
        return Err(Refusal::of(Rule::Upgrade, &String::from_utf8_lossy(value.as_bytes())));
    }
    if named_by_connection(given)?.iter().any(|name| name == "upgrade") {
        return Err(Refusal::of(Rule::Upgrade, "connection: upgrade"));
    }
    Ok(())
}

/// Judges the headers of a request to the model that asks for [no upgrade](no_upgrade), and keeps those that go on.
///
/// # Errors
/// `content_encoding`, `content_type`, `header_repeated` or `header_value`.
pub(super) fn headers(interface: Interface, given: &HeaderMap) -> Result<Headers, Refusal> {
    // Before what Connection names is left out: an encoded body is one, whatever the hop.
    for value in given.get_all(CONTENT_ENCODING) {
        if !value.as_bytes().eq_ignore_ascii_case(b"identity") {
            return Err(Refusal::of(Rule::ContentEncoding, &String::from_utf8_lossy(value.as_bytes())));
        }
    }
    let mut given = given.clone();
    for name in named_by_connection(&given)? {
        given.remove(name.as_str());
    }
    content_type(&given)?;

    let mut headers = Headers::default();
    headers.forward.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let list = match interface {
        Interface::Messages | Interface::CountTokens => MESSAGES,
        Interface::Responses => RESPONSES,
        Interface::ChatCompletions => CHAT_COMPLETIONS,
    };
    for name in list {
        if let Some(value) = single(&given, name)? {
            text(value, name)?;
            headers.forward.insert(HeaderName::from_static(name), value.clone());
        }
    }
    if is_anthropic(interface) {
        headers.betas = Betas::of(&given)?;
        let kept = headers.betas.kept.join(",");
        if let (false, Ok(value)) = (kept.is_empty(), HeaderValue::from_str(&kept)) {
            headers.forward.insert(HeaderName::from_static(ANTHROPIC_BETA), value);
        }
    }
    Ok(headers)
}

/// What of an answer's headers the agent gets: nothing that sets a cookie, names the account or belongs to the hop.
#[must_use]
pub fn response_headers(given: &HeaderMap) -> HeaderMap {
    let mut forward = HeaderMap::new();
    for (name, value) in given {
        let name_text = name.as_str();
        if ANSWER.contains(&name_text) || ANSWER_PREFIXES.iter().any(|prefix| name_text.starts_with(prefix)) {
            forward.append(name, value.clone());
        }
    }
    forward
}

/// The header names that belong to the agent's own connection (RFC 9110, section 7.6.1).
fn named_by_connection(given: &HeaderMap) -> Result<Vec<String>, Refusal> {
    let mut names = Vec::new();
    for value in given.get_all(CONNECTION) {
        let value = text(value, CONNECTION.as_str())?;
        names.extend(value.split(',').map(|name| name.trim().to_ascii_lowercase()));
    }
    Ok(names)
}

/// The body is JSON in UTF-8, and says so. A form or text would be read by nobody, but it is what a page in a browser can
/// send to a loopback address without asking.
fn content_type(given: &HeaderMap) -> Result<(), Refusal> {
    let Some(value) = single(given, CONTENT_TYPE.as_str())? else {
        return Err(Refusal::of(Rule::ContentType, "not given"));
    };
    let whole = text(value, CONTENT_TYPE.as_str())?.to_ascii_lowercase();
    let mut parts = whole.split(';').map(str::trim);
    let json = parts.next() == Some("application/json");
    if json && parts.all(|part| matches!(part, "" | "charset=utf-8" | "charset=\"utf-8\"" | "charset=utf8")) {
        Ok(())
    } else {
        Err(Refusal::of(Rule::ContentType, &whole))
    }
}

fn single<'a>(given: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Refusal> {
    let mut values = given.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(Refusal::of(Rule::HeaderRepeated, name)),
    }
}

/// A value as text: printable ASCII of a sane length.
fn text<'a>(value: &'a HeaderValue, name: &str) -> Result<&'a str, Refusal> {
    let most = if name == ANTHROPIC_BETA || name == CONNECTION.as_str() { 8 * MAX_VALUE } else { MAX_VALUE };
    value
        .to_str()
        .ok()
        .filter(|text| text.len() <= most)
        .ok_or_else(|| Refusal::of(Rule::HeaderValue, &printable(name)))
}
