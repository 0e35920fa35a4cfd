//! What an agent may ask of a model.
//!
//! Pure functions: bytes in, bytes or a refusal out; no clock, no socket, no key. A request goes down this page once:
//! [`head`] says which question it is and keeps the headers of an allow list, [`body`] reads the JSON, checks all of it
//! against the service's own table and writes it anew, so that what was checked is what is sent (MOD-8). What stands in no
//! table is refused by name: services grow tools and fields that reach elsewhere every few weeks, and a list of what is
//! forbidden would be out of date before it is released.

mod anthropic;
mod chat;
mod check;
mod headers;
mod interface;
pub mod json;
mod models;
mod path;
mod refusal;
mod responses;
mod route;

#[cfg(test)]
mod tests;

pub use headers::{Betas, Headers, response_headers};
pub use interface::{INTERFACES, Interface, PREFIX, has, is_anthropic, place};
pub use json::{Object, Value};
pub use models::models;
pub use path::{amount, printable, seconds};
pub use refusal::{Refusal, Rule};
pub use route::route;

/// Whose service is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// api.anthropic.com.
    Anthropic,
    /// api.openai.com.
    OpenAi,
    /// Whatever `api_base` names.
    Other,
}

/// What holds for every request of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Whose service.
    pub service: Service,
    /// The operator's model; it stands in every request (MOD-2).
    pub model: String,
    /// The most tokens that one answer may have (MOD-3): 8192 unless the operator raised it for a run of their own.
    pub output_tokens: u64,
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The model, through this interface; and whether `?beta=true` stays on the path.
    Model(Interface, bool),
    /// `GET /v1/models`, which [`models`] answers without asking anybody.
    Models,
}

impl Route {
    /// The interface, where one is asked.
    #[must_use]
    pub fn interface(self) -> Option<Interface> {
        match self {
            Route::Model(interface, _) => Some(interface),
            Route::Models => None,
        }
    }
}

/// A body to be sent: its bytes were written from what was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    /// One JSON object.
    pub bytes: Vec<u8>,
}

/// Judges a request before its body: which question, and the headers that go on with it (none for [`Route::Models`]).
///
/// An upgrade is looked for first: it stands on a GET of a path that takes POST alone, and an agent falls back to POST only
/// when it is told 426.
///
/// # Errors
/// The refusal to answer with.
pub fn head(
    policy: &Policy,
    method: &http::Method,
    path_and_query: &str,
    given: &http::HeaderMap,
) -> Result<(Route, Headers), Refusal> {
    headers::no_upgrade(given)?;
    let route = route(policy.service, method, path_and_query)?;
    let headers = match route {
        Route::Model(interface, _) => headers::headers(interface, given)?,
        Route::Models => Headers::default(),
    };
    Ok((route, headers))
}

/// Reads, checks and rewrites a body.
///
/// # Errors
/// The refusal to answer with.
pub fn body(interface: Interface, policy: &Policy, headers: &Headers, bytes: &[u8]) -> Result<Body, Refusal> {
    let mut object = json::read(bytes)?;
    match interface {
        Interface::Messages => anthropic::messages(&mut object, policy, &headers.betas)?,
        Interface::CountTokens => anthropic::count_tokens(&mut object, policy, &headers.betas)?,
        Interface::Responses => responses::responses(&mut object, policy)?,
        Interface::ChatCompletions => chat::chat_completions(&mut object, policy)?,
    }
    Ok(Body { bytes: json::write(object)? })
}
