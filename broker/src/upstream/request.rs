//! A request as the service gets it, to the byte.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, EXPECT, HOST,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use ipc_proto::Upstream;

use super::Outgoing;
use crate::key::Key;
use crate::policy::{self, Interface};

/// The header of Anthropic's key.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// What stands around the parts of a request's first line.
const FIRST_LINE: usize = "POST  HTTP/1.1\r\n".len();
/// What stands around the parts of a header's line.
const HEADER_LINE: usize = ": \r\n".len();
/// The end of a head.
const BLANK_LINE: usize = "\r\n".len();

/// What is set here or belongs to one connection. The policy lets none of it pass; should it ever, it goes no further.
const NEVER: [HeaderName; 14] = [
    ACCEPT_ENCODING,
    AUTHORIZATION,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    COOKIE,
    EXPECT,
    HOST,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    X_API_KEY,
];

/// The path of a request.
pub(super) fn path(upstream: &Upstream, request: &Outgoing) -> String {
    let place = policy::place(request.interface);
    let query = if request.keep_beta { "?beta=true" } else { "" };
    format!("{}{place}{query}", upstream.prefix())
}

/// The header and value that say who pays.
fn credential(interface: Interface, key: &Key) -> (HeaderName, HeaderValue) {
    match interface {
        Interface::Messages | Interface::CountTokens => (X_API_KEY, key.header()),
        Interface::Responses | Interface::ChatCompletions => (AUTHORIZATION, key.bearer()),
    }
}

/// All headers of a request.
fn headers(upstream: &Upstream, key: Option<&Key>, request: &Outgoing) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(request.headers.len() + 4);
    // An address that was read has no character that a header could not carry.
    if let Ok(host) = HeaderValue::try_from(upstream.authority()) {
        headers.insert(HOST, host);
    }
    for (name, value) in &request.headers {
        if !NEVER.contains(name) {
            headers.append(name, value.clone());
        }
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(request.body.len()));
    if let Some(key) = key {
        let (name, value) = credential(request.interface, key);
        headers.insert(name, value);
    }
    headers
}

/// The request; none: it cannot be written, which a checked address does not bring about.
pub(super) fn build(
    upstream: &Upstream,
    key: Option<&Key>,
    outgoing: Outgoing,
) -> Option<Request<Full<bytes::Bytes>>> {
    let uri: Uri = path(upstream, &outgoing).parse().ok()?;
    let headers = headers(upstream, key, &outgoing);
    let mut request = Request::new(Full::new(outgoing.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Some(request)
}

/// Bytes of head and body as they are written, before TLS.
pub(super) fn wire_size(upstream: &Upstream, key: Option<&Key>, request: &Outgoing) -> u64 {
    let headers = headers(upstream, key, request);
    let lines: usize =
        headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_LINE).sum();
    (FIRST_LINE + path(upstream, request).len() + lines + BLANK_LINE + request.body.len()) as u64
}
