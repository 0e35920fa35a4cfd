//! The head of a CONNECT request: whatever bytes come and however they are cut, the verdict is the same, and what is
//! accepted is one plain name as it was written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::connect::{HeadReader, MAX_HEAD};

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let whole = HeadReader::default().read(bytes);

    let mut reader = HeadReader::default();
    let first = reader.read(&bytes[..usize::from(cut).min(bytes.len())]);
    let in_two = if first == Ok(None) { reader.read(bytes) } else { first };
    assert_eq!(in_two, whole);

    if let Ok(Some(head)) = whole {
        assert!(head.length <= MAX_HEAD);
        let name = head.target.host();
        let start = [b"CONNECT ", name.as_bytes(), b":443 HTTP/1."].concat();
        assert!(bytes.starts_with(&start));
        assert!(name.parse::<std::net::IpAddr>().is_err());
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
    }
});
