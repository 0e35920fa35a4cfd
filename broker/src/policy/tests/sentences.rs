//! What a refused agent reads.

use serde_json::Value as Json;

use super::{MODEL, policy};
use crate::policy::{Interface, Refusal, Rule, Service, models};

/// MOD-10, USE-4: every sentence starts with `anet:`, is one printable line, names its rule, and says what to do; statuses are
/// those that agents neither try again nor misread.
#[test]
fn every_rule_is_told() {
    for rule in Rule::ALL.iter().copied() {
        let sentence = rule.sentence();
        assert!(sentence.starts_with("anet: ") && sentence.contains(&format!("({rule}); ")), "{sentence}");
        assert!(sentence.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) && sentence.len() < 300);
        assert!(sentence.matches("{}").count() <= 1);
        assert_eq!(rule.status().as_u16() == 404, rule == Rule::UnknownPath);
        assert!(!matches!(rule.status().as_u16(), 401 | 429));
        assert_eq!(
            rule.status().is_server_error(),
            rule.retry_may_help()
                || matches!(rule, Rule::UpstreamAddress | Rule::UpstreamTls | Rule::Internal)
        );
        let names = Rule::ALL.iter().filter(|other| other.as_str() == rule.as_str()).count();
        assert_eq!(names, 1, "{rule} stands for two rules");
        let useless =
            Refusal::plain(rule).headers().get("x-should-retry").is_some_and(|value| value == "false");
        assert_eq!(useless, !rule.retry_may_help());
    }
}

/// MOD-10: whatever a stranger put into the request, the sentence stays one bounded line of ASCII, in JSON that parses, in the
/// shape of the interface that was asked.
#[test]
fn bodies_have_the_services_shape() {
    let long = "\"\\\u{1b}[31m\r\nSet-Cookie: x\u{202e}\u{0}é{}".repeat(100);
    for rule in Rule::ALL.iter().copied() {
        let refusal = Refusal::of(rule, &long);
        assert!(
            refusal.sentence.len() < 700
                && refusal.sentence.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        );
        for service in [Service::Anthropic, Service::OpenAi, Service::Other] {
            for interface in [
                None,
                Some(Interface::Messages),
                Some(Interface::CountTokens),
                Some(Interface::Responses),
                Some(Interface::ChatCompletions),
            ] {
                let body: Json = serde_json::from_slice(&refusal.body(interface, service)).unwrap();
                assert_eq!(body["error"]["message"], refusal.sentence.as_str());
                let anthropic = interface.map_or(service == Service::Anthropic, |interface| {
                    matches!(interface, Interface::Messages | Interface::CountTokens)
                });
                if anthropic {
                    assert_eq!(body["type"], "error");
                    let kind = body["error"]["type"].as_str().unwrap();
                    match refusal.status.as_u16() {
                        400 => assert_eq!(kind, "invalid_request_error"),
                        404 => assert_eq!(kind, "not_found_error"),
                        _ => assert!(["invalid_request_error", "api_error", "timeout_error"].contains(&kind)),
                    }
                } else {
                    assert_eq!(body["error"]["code"], rule.as_str());
                    assert!(body["error"]["param"].is_null());
                }
            }
        }
    }
}

/// MOD-9: the list has the pinned model alone, in the service's own shape.
#[test]
fn models_are_the_pinned_one() {
    for service in [Service::Anthropic, Service::OpenAi, Service::Other] {
        let list: Json = serde_json::from_slice(&models(&policy(service))).unwrap();
        assert_eq!(list["data"].as_array().unwrap().len(), 1);
        assert_eq!(list["data"][0]["id"], MODEL);
        assert_eq!(list.get("object").is_some(), service != Service::Anthropic);
    }
}
