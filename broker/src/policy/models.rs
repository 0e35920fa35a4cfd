//! `GET /v1/models`, answered without asking anybody: the one model that a request gets, whatever it names (MOD-2).

use super::path::escaped;
use super::{Policy, Service};

/// The list, in the service's own shape; a gateway or local server speaks like OpenAI.
#[must_use]
pub fn models(policy: &Policy) -> Vec<u8> {
    let id = escaped(&policy.model);
    let text = match policy.service {
        Service::Anthropic => format!(
            r#"{{"data":[{{"type":"model","id":"{id}","display_name":"{id}","created_at":"1970-01-01T00:00:00Z"}}],"has_more":false,"first_id":"{id}","last_id":"{id}"}}"#
        ),
        Service::OpenAi | Service::Other => format!(
            r#"{{"object":"list","data":[{{"id":"{id}","object":"model","created":0,"owned_by":"operator"}}]}}"#
        ),
    };
    text.into_bytes()
}
