//! Which question a request is (MOD-9).

use http::Method;

use super::interface::{INTERFACES, PREFIX, has, is_anthropic, place};
use super::{Refusal, Route, Rule, Service};

/// The one query that is allowed, on the paths that know it.
const BETA: &str = "beta=true";
const MODELS: &str = "/models";

/// The question behind method and target. The target is compared as it stands: with no escape, dot, doubled or final slash
/// undone, there is no second spelling of a path.
///
/// # Errors
/// `unknown_path`, `method_not_allowed` or `query_not_allowed`.
pub fn route(service: Service, method: &Method, path_and_query: &str) -> Result<Route, Refusal> {
    let (path, query) = match path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path_and_query, None),
    };
    let unknown_path = || Refusal::of(Rule::UnknownPath, path);
    let here = path.strip_prefix(PREFIX).ok_or_else(unknown_path)?;
    let (route, wanted) = if here == MODELS {
        (Route::Models, Method::GET)
    } else {
        let interface = INTERFACES
            .into_iter()
            .find(|interface| place(*interface) == here && has(service, *interface))
            .ok_or_else(unknown_path)?;
        (Route::Model(interface, query.is_some()), Method::POST)
    };
    if *method != wanted {
        let refusal = Refusal::of(Rule::MethodNotAllowed, method.as_str());
        return Err(Refusal { allow: Some(wanted), ..refusal });
    }
    let known = route.interface().is_some_and(is_anthropic);
    match query {
        None => Ok(route),
        Some(BETA) if known => Ok(route),
        Some(_) => Err(Refusal::of(Rule::QueryNotAllowed, path)),
    }
}
