//! The interfaces of the services: where each is, and who has it.

pub use ipc_proto::broker::Interface;

use super::Service;

/// Every interface.
pub const INTERFACES: [Interface; 4] =
    [Interface::Messages, Interface::CountTokens, Interface::Responses, Interface::ChatCompletions];

/// What stands before every path, as the agent asks for it; before the service's own, what its address says.
pub const PREFIX: &str = "/v1";

/// Where an interface is, behind [`PREFIX`] and its like.
#[must_use]
pub fn place(interface: Interface) -> &'static str {
    match interface {
        Interface::Messages => "/messages",
        Interface::CountTokens => "/messages/count_tokens",
        Interface::Responses => "/responses",
        Interface::ChatCompletions => "/chat/completions",
    }
}

/// Whether a service has it.
#[must_use]
pub fn has(service: Service, interface: Interface) -> bool {
    match service {
        Service::Anthropic => is_anthropic(interface),
        Service::OpenAi => !is_anthropic(interface),
        // Gateways and local servers speak whatever their users ask for; the tables are the same for all.
        Service::Other => true,
    }
}

/// Whether it is one of Anthropic's.
#[must_use]
pub fn is_anthropic(interface: Interface) -> bool {
    match interface {
        Interface::Messages | Interface::CountTokens => true,
        Interface::Responses | Interface::ChatCompletions => false,
    }
}
