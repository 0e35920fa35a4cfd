//! Values that cannot be wrong once they are parsed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use ipc_proto::broker::{MAX_MODEL, ModelId, ModelIdError};
use ipc_proto::host::HostError;
use ipc_proto::limits::{LIMIT_NAMES, Limits};
use ipc_proto::{HostName, RunId, Upstream, units};
use proptest::prelude::*;

/// EGR-2: whole lower-case names, and nothing else.
#[test]
fn hosts_are_whole_lower_case_names() {
    let long_label = format!("{}.example.com", "a".repeat(64));
    let long_name = format!("{}.com", ["a".repeat(63).as_str(); 4].join("."));
    let refused = [
        ("", HostError::Empty),
        ("*.example.com", HostError::Wildcard),
        ("a.*.com", HostError::Wildcard),
        ("https://example.com", HostError::Url),
        ("example.com/path", HostError::Url),
        ("example.com:443", HostError::Port),
        ("Example.com", HostError::UpperCase),
        ("example.com.", HostError::EmptyLabel),
        (".example.com", HostError::EmptyLabel),
        ("example..com", HostError::EmptyLabel),
        ("1.1.1.1", HostError::Address),
        ("0177.0.0.1", HostError::Address),
        ("0x7f000001", HostError::Address),
        ("0x7f.1", HostError::Address),
        ("2130706433", HostError::Address),
        ("127.1", HostError::Address),
        ("example.0x1", HostError::Address),
        ("example.1", HostError::Address),
        ("[::1]", HostError::Address),
        ("::1", HostError::Address),
        ("fe80::1%eth0", HostError::Address),
        ("localhost", HostError::Local),
        ("a.localhost", HostError::Local),
        ("printer.local", HostError::Local),
        ("db.internal", HostError::Local),
        ("nas.lan", HostError::Local),
        ("x.home.arpa", HostError::Local),
        ("intranet", HostError::SingleLabel),
        ("api.anthropic.com", HostError::ModelService),
        ("api.openai.com", HostError::ModelService),
        ("api_example.com", HostError::Character),
        ("-a.example.com", HostError::Character),
        ("a-.example.com", HostError::Character),
        ("a b.example.com", HostError::Character),
        ("user@example.com", HostError::Character),
        ("api.example.com\0.evil.com", HostError::Character),
        ("api%2eexample.com", HostError::Character),
        ("аpi.example.com", HostError::NotAscii),
        ("api。example.com", HostError::NotAscii),
        ("xn--.example.com", HostError::Character),
        ("xn--a.example.com", HostError::Idna),
        ("ab--c.example.com", HostError::Idna),
        (&long_label, HostError::TooLong),
        (&long_name, HostError::TooLong),
    ];
    for (text, why) in refused {
        assert_eq!(text.parse::<HostName>(), Err(why), "{text}");
    }
    for text in [
        "example.com",
        "a.b.c.example.com",
        "xn--mnchen-3ya.de",
        "1.example.com",
        "a-b.example.co",
        "0x1.com",
    ] {
        assert_eq!(text.parse::<HostName>().unwrap().as_str(), text);
    }
}

/// MOD-2: a model's identifier is one word that no agent takes for an option, and that stands unquoted in JSON, a command
/// line and a configuration file.
#[test]
fn model_identifiers_are_one_plain_word() {
    let longest = "m".repeat(MAX_MODEL);
    for text in ["gpt-5.5", "anthropic/claude-sonnet-4-5@20250929", "llama3.2:3b", "A_b+c", &longest] {
        assert_eq!(ModelId::try_from(text.to_owned()).unwrap().as_str(), text);
    }
    let too_long = format!("{longest}m");
    let refused = [
        "", "-m", "--help", "a b", "a\"b", "a\\b", "a'b", "a\nb", "a\0", "modèle", "a,b", "a=b", "$a",
        &too_long,
    ];
    for text in refused {
        assert_eq!(ModelId::try_from(text.to_owned()), Err(ModelIdError), "{text}");
        let json = serde_json::to_string(text).unwrap();
        assert!(serde_json::from_str::<ModelId>(&json).is_err(), "in a message too: {text}");
    }
}

/// EGR-2: a name that comes over a channel is parsed like one that a person wrote.
#[test]
fn a_host_in_a_message_is_parsed_again() {
    let json: Result<HostName, _> = serde_json::from_str("\"*.example.com\"");
    assert!(json.is_err());
}

proptest! {
    /// Any text: no panic, and what is taken is lower-case ASCII with at least one dot.
    #[test]
    fn any_text_as_a_host(text in "\\PC{0,80}") {
        if let Ok(host) = text.parse::<HostName>() {
            prop_assert!(host.as_str().is_ascii() && host.as_str().contains('.'));
            prop_assert_eq!(host.as_str(), text);
        }
    }

    /// MOD-15: any text as a model service's address: no panic, and what is taken reads back as the same service, which
    /// plain http reaches on the own loopback alone.
    #[test]
    fn any_text_as_a_service(
        scheme in "(https://|http://|)", host in "(\\PC{0,40}|127\\.[0-9.]{1,8}|localhost[a-z.]{0,9}|\\[[0-9a-f:]{1,9}\\])",
        rest in "(:[0-9]{0,6})?(/[a-z.%]{0,4}){0,3}",
    ) {
        let text = format!("{scheme}{host}{rest}");
        if let Ok(upstream) = text.parse::<Upstream>() {
            prop_assert_eq!(&upstream.to_string().parse::<Upstream>().unwrap(), &upstream);
            prop_assert!(text.starts_with("https://") || upstream.is_loopback(), "{}", text);
        }
    }

    /// A run's name reads back, and sorts by its time.
    #[test]
    fn run_ids_read_back_and_sort(a in 0u64..1 << 48, b in 0u64..1 << 48, chance in any::<[u8; 4]>()) {
        let (first, second) = (RunId::new(a, chance), RunId::new(b, chance));
        prop_assert_eq!(first.to_string().parse::<RunId>().unwrap(), first);
        if a < b {
            prop_assert!(first.to_string() < second.to_string());
        }
    }

    /// No text makes a run's name but the 17 letters of one.
    #[test]
    fn any_text_as_a_run_id(text in "\\PC{0,20}") {
        if let Ok(run) = text.parse::<RunId>() {
            prop_assert_eq!(run.to_string(), text);
        }
    }
}

/// CLI: sizes and times have the units of the contract, and nothing overflows.
#[test]
fn sizes_and_times() {
    assert_eq!(units::parse_size("32MiB"), Ok(33_554_432));
    assert_eq!(units::parse_size("0"), Ok(0));
    assert_eq!(units::parse_time("1m").unwrap().as_secs(), 60);
    for bad in ["", "MiB", "1MB", "1 MiB", "+1", "-1", "1.5GiB", "18446744073709551615KiB", "1mib"] {
        assert!(units::parse_size(bad).is_err(), "{bad}");
    }
    for bad in ["", "1", "s", "1S", "1 s", "-1s", "1d", "18446744073709551615h"] {
        assert!(units::parse_time(bad).is_err(), "{bad}");
    }
    assert_eq!(units::show_size(1536), "1.5 KiB");
}

/// LIM: the table of an untrusted run, number by number.
#[test]
fn the_limits_of_an_untrusted_run() {
    let limits = Limits::untrusted();
    let table = [
        ("memory", 2 << 30),
        ("tasks", 256),
        ("growth", 2 << 30),
        ("model_requests", 60),
        ("request_body", 8 << 20),
        ("request_total", 16 << 20),
        ("tunnels_open", 16),
        ("tunnels_total", 256),
        ("tunnel_sent", 32 << 20),
        ("tunnel_received", 512 << 20),
        ("endpoint_connections", 32),
        ("output_tokens", 8192),
        ("wall_clock", 180_000),
    ];
    assert_eq!(LIMIT_NAMES.len(), table.len());
    for (name, value) in table {
        let limit = LIMIT_NAMES.into_iter().find(|limit| limit.as_str() == name).unwrap();
        assert_eq!(limits.get(limit), Some(value), "{name}");
    }
    assert_eq!(Limits::none().iter().count(), 0);
}
