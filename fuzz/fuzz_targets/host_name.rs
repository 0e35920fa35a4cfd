//! Names of allowed hosts: any text is refused, or is a whole lower-case name that stays the same.
#![no_main]

use ipc_proto::HostName;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(host) = text.parse::<HostName>() {
        assert_eq!(host.as_str(), text);
        assert!(text.contains('.') && text.is_ascii() && !text.bytes().any(|byte| byte.is_ascii_uppercase()));
        assert!(text.parse::<std::net::IpAddr>().is_err());
    }
});
