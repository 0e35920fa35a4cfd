//! What a refused agent is told (MOD-10, USE-4).
//!
//! Two read it: the agent's program, which looks at status and `x-should-retry` and must neither try again nor give up on
//! its key; and the model, which reads the sentence and has to know which part of the request to leave out. So every
//! sentence starts with `anet:`, names the rule and the thing, says how to go on, and that a retry changes nothing.

use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};

use super::interface::is_anthropic;
use super::path::{escaped, printable};
use super::{Interface, Service};

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident = $name:literal $status:ident, $what:literal, $advice:expr;)*) => {
        /// Why a request is refused, or has no answer of the service.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Rule { $($(#[$doc])* $variant,)* }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Rule] = &[$(Rule::$variant,)*];

            /// The rule as it stands in sentences and records.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Rule::$variant => $name,)* }
            }

            /// The status of the answer. Never 401 or 429, which agents try again for minutes, and 404 for paths alone,
            /// which they take for a model that does not exist. Nor 403: claude puts "Failed to authenticate" before it,
            /// and codex tries again (measured with claude 2.1.332 and codex 0.171.0).
            #[must_use]
            pub fn status(self) -> StatusCode {
                match self { $(Rule::$variant => StatusCode::$status,)* }
            }

            /// What happened; `{}` stands for the thing that is refused, or for the limit.
            #[must_use]
            pub fn what(self) -> &'static str {
                match self { $(Rule::$variant => $what,)* }
            }

            /// What to do.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self { $(Rule::$variant => $advice,)* }
            }
        }
    };
}

const WITHOUT: &str = "a retry is useless: send the request without it";
const FIX: &str = "a retry of the same request is useless: correct it first";
const INLINE: &str =
    "a retry is useless: put the content itself into the request (base64 or text), or do without it";
const LOCAL_TOOLS: &str = "a retry is useless: only tools that the agent runs itself are available here, so send the request without this one";
const FINISH: &str = "a retry is useless: finish with what you have";
const SERVICE_DOWN: &str = "try once more at most, then end";
const OPERATOR: &str = "a retry is useless: the operator of this machine has to look at it";

rules! {
    // The head.
    /// Not a well-formed HTTP/1.1 request.
    MalformedHead = "malformed_head" BAD_REQUEST, "the request's head is not well-formed HTTP/1.1: {}", FIX;
    /// The head is too large.
    HeadTooLarge = "head_too_large" REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's head is over {}", "a retry is useless: send fewer and shorter headers";
    /// The head took too long.
    HeadTimeout = "head_timeout" REQUEST_TIMEOUT, "the request's head did not come within {}", "send the whole request at once";
    /// No such path.
    UnknownPath = "unknown_path" NOT_FOUND, "there is nothing at {}", "a retry is useless: only the model's own paths are served here";
    /// A query that is not allowed.
    QueryNotAllowed = "query_not_allowed" BAD_REQUEST, "the query of {} is not allowed", "a retry is useless: send the request without the query";
    /// The wrong method.
    MethodNotAllowed = "method_not_allowed" METHOD_NOT_ALLOWED, "this path does not take {}", "a retry is useless: use POST for the model's paths and GET for /v1/models";
    /// A change of protocol.
    Upgrade = "upgrade" UPGRADE_REQUIRED, "a change of protocol is not possible here: {}", "a retry is useless: send a plain HTTP/1.1 POST";
    /// A header that may stand once stands more often.
    HeaderRepeated = "header_repeated" BAD_REQUEST, "the header {} stands more than once", FIX;
    /// A header whose value cannot be sent on.
    HeaderValue = "header_value" BAD_REQUEST, "the header {} has a value that cannot be sent on", FIX;
    /// A body that is encoded.
    ContentEncoding = "content_encoding" UNSUPPORTED_MEDIA_TYPE, "the body is encoded ({})", "a retry is useless: send plain JSON, without compression";
    /// A body that is not JSON by its type.
    ContentType = "content_type" UNSUPPORTED_MEDIA_TYPE, "the body's type is {}", "a retry is useless: send application/json in UTF-8";

    // The body's bytes.
    /// No body.
    BodyMissing = "body_missing" BAD_REQUEST, "the request has no body", FIX;
    /// The body took too long.
    BodyTimeout = "body_timeout" REQUEST_TIMEOUT, "the request's body did not come within {}", "send the whole request at once";
    /// The body ended early or its framing is broken.
    BodyMalformed = "body_malformed" BAD_REQUEST, "the request's body could not be read: {}", FIX;
    /// Not JSON.
    JsonMalformed = "json_malformed" BAD_REQUEST, "the body is not well-formed JSON: {}", FIX;
    /// JSON, but not an object.
    JsonNotObject = "json_not_object" BAD_REQUEST, "the body is {} where one JSON object belongs", FIX;
    /// Two values for one name: which one counts is anybody's guess.
    JsonDuplicateKey = "json_duplicate_key" BAD_REQUEST, "the body has the key {} twice in one object", "a retry is useless: send each key once";
    /// Too deeply nested.
    JsonTooDeep = "json_too_deep" BAD_REQUEST, "the body is nested deeper than {} levels", "a retry is useless: send a flatter request";
    /// Too many values.
    JsonTooLarge = "json_too_large" BAD_REQUEST, "the body has more than {} values", "a retry is useless: send a smaller request";

    // What the body says.
    /// A field of another type than the interface has.
    WrongType = "wrong_type" BAD_REQUEST, "{}", FIX;
    /// A field that is not in the table.
    UnknownField = "unknown_field" BAD_REQUEST, "the field {} is not known here", WITHOUT;
    /// A word that is not in the table.
    UnknownValue = "unknown_value" BAD_REQUEST, "{} is not known here", WITHOUT;
    /// A number of tokens that cannot be one.
    TokenCount = "token_count" BAD_REQUEST, "{} is no whole number of tokens", "a retry is useless: send a plain positive integer";
    /// A field that lets the service reach elsewhere or keep something.
    FieldNotAllowed = "field_not_allowed" BAD_REQUEST, "the field {} would let the service reach elsewhere or keep something", WITHOUT;
    /// State that the service would have to keep.
    StateNotAllowed = "state_not_allowed" BAD_REQUEST, "{} refers to something that is stored at the service", "a retry is useless: send the whole conversation in the request itself";
    /// A tool that is not on the list: it may run at the service.
    ToolNotAllowed = "tool_not_allowed" BAD_REQUEST, "{} is no tool that the agent runs itself", LOCAL_TOOLS;
    /// A tool that something else than the model may call.
    CallersNotAllowed = "callers_not_allowed" BAD_REQUEST, "{} lets something else than the model call the tool", "a retry is useless: only \"direct\" is allowed here";
    /// A kind of content that is not on the list.
    ContentNotAllowed = "content_not_allowed" BAD_REQUEST, "{} is no content that may be sent", WITHOUT;
    /// Media by reference.
    MediaReference = "media_reference" BAD_REQUEST, "{} refers to media by URL or file id", INLINE;
    /// Something extra in the answer that is not on the list.
    IncludeNotAllowed = "include_not_allowed" BAD_REQUEST, "{} may not be asked for", WITHOUT;

    // What a run may do.
    /// No request is left.
    LimitModelRequests = "limit_model_requests" BAD_REQUEST, "this run may ask the model {} times", FINISH;
    /// The body is too large.
    LimitRequestBody = "limit_request_body" BAD_REQUEST, "one request may have {}", "a retry is useless: send a shorter request";
    /// All bodies together are too large.
    LimitRequestTotal = "limit_request_total" BAD_REQUEST, "the requests of this run may have {} in all", FINISH;
    /// Too many connections.
    LimitEndpointConnections = "limit_endpoint_connections" BAD_REQUEST, "this run may have {} connections here at once", "close one before opening another";
    /// The budget is used up.
    Budget = "budget" BAD_REQUEST, "this run's budget does not reach that far", FINISH;
    /// No key for the service.
    NoKey = "no_key" BAD_REQUEST, "there is no key for the model service", OPERATOR;

    // The service.
    /// No connection to the service.
    UpstreamUnreachable = "upstream_unreachable" BAD_GATEWAY, "the model service could not be reached: {}", SERVICE_DOWN;
    /// The service is at no address that may be reached: nothing about that changes by itself.
    UpstreamAddress = "upstream_address" BAD_GATEWAY, "the model service has no address that may be reached: {}", OPERATOR;
    /// The service is not who it should be.
    UpstreamTls = "upstream_tls" BAD_GATEWAY, "the model service could not prove who it is: {}", OPERATOR;
    /// The service's answer cannot be read.
    UpstreamMalformed = "upstream_malformed" BAD_GATEWAY, "the model service's answer could not be read: {}", SERVICE_DOWN;
    /// The service ended the connection.
    UpstreamClosed = "upstream_closed" BAD_GATEWAY, "the model service ended the connection before its answer was whole", SERVICE_DOWN;
    /// The service took too long.
    UpstreamTimeout = "upstream_timeout" GATEWAY_TIMEOUT, "the model service did not answer within {}", SERVICE_DOWN;
    /// Something of anet's own failed.
    Internal = "internal" BAD_GATEWAY, "anet could not pass the request on: {}", OPERATOR;
}

impl Rule {
    /// The whole sentence with its blank open: one line of the documentation.
    #[must_use]
    pub fn sentence(self) -> String {
        format!("anet: {} ({}); {}", self.what(), self.as_str(), self.advice())
    }

    /// Whether trying again can help: it does only where the service or the network failed.
    #[must_use]
    pub fn retry_may_help(self) -> bool {
        match self {
            Rule::UpstreamUnreachable
            | Rule::UpstreamMalformed
            | Rule::UpstreamClosed
            | Rule::UpstreamTimeout => true,
            Rule::MalformedHead
            | Rule::HeadTooLarge
            | Rule::HeadTimeout
            | Rule::UnknownPath
            | Rule::QueryNotAllowed
            | Rule::MethodNotAllowed
            | Rule::Upgrade
            | Rule::HeaderRepeated
            | Rule::HeaderValue
            | Rule::ContentEncoding
            | Rule::ContentType
            | Rule::BodyMissing
            | Rule::BodyTimeout
            | Rule::BodyMalformed
            | Rule::JsonMalformed
            | Rule::JsonNotObject
            | Rule::JsonDuplicateKey
            | Rule::JsonTooDeep
            | Rule::JsonTooLarge
            | Rule::WrongType
            | Rule::UnknownField
            | Rule::UnknownValue
            | Rule::TokenCount
            | Rule::FieldNotAllowed
            | Rule::StateNotAllowed
            | Rule::ToolNotAllowed
            | Rule::CallersNotAllowed
            | Rule::ContentNotAllowed
            | Rule::MediaReference
            | Rule::IncludeNotAllowed
            | Rule::LimitModelRequests
            | Rule::LimitRequestBody
            | Rule::LimitRequestTotal
            | Rule::LimitEndpointConnections
            | Rule::Budget
            | Rule::NoKey
            | Rule::UpstreamAddress
            | Rule::UpstreamTls
            | Rule::Internal => false,
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal, ready to be told.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// Why.
    pub rule: Rule,
    /// The sentence: one line, printable, bounded.
    pub sentence: String,
    /// The method that the path takes, where another one was used (RFC 9110, section 15.5.6: such an answer has to say).
    pub allow: Option<Method>,
}

impl Refusal {
    /// A refusal whose rule has no blank.
    #[must_use]
    pub fn plain(rule: Rule) -> Refusal {
        Refusal::of(rule, "")
    }

    /// A refusal of a thing, or by a limit: what stands in the rule's blank, cut and made printable here.
    #[must_use]
    pub fn of(rule: Rule, thing: &str) -> Refusal {
        let sentence = rule.sentence().replacen("{}", &printable(thing), 1);
        Refusal { status: rule.status(), rule, sentence, allow: None }
    }

    /// The body of the answer, in the error shape of the interface that was asked, or else of the service.
    #[must_use]
    pub fn body(&self, interface: Option<Interface>, service: Service) -> Vec<u8> {
        let anthropic = interface.map_or(service == Service::Anthropic, is_anthropic);
        let message = escaped(&self.sentence);
        let text = if anthropic {
            let kind = self.anthropic_type();
            format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#)
        } else {
            let kind = if self.status.is_server_error() { "server_error" } else { "invalid_request_error" };
            let code = self.rule.as_str();
            format!(r#"{{"error":{{"message":"{message}","type":"{kind}","param":null,"code":"{code}"}}}}"#)
        };
        text.into_bytes()
    }

    /// The headers of the answer.
    #[must_use]
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if !self.rule.retry_may_help() {
            headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
        }
        if let Some(Ok(allow)) = self.allow.as_ref().map(|method| HeaderValue::from_str(method.as_str())) {
            headers.insert(ALLOW, allow);
        }
        headers
    }

    /// The types that Anthropic's own errors have for these statuses.
    fn anthropic_type(&self) -> &'static str {
        match self.status {
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::GATEWAY_TIMEOUT => "timeout_error",
            status if status.is_server_error() => "api_error",
            _ => "invalid_request_error",
        }
    }
}
