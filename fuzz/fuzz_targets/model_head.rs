//! The head of a request to the model: whatever bytes come and however they are cut, the verdict is the same, and a general
//! parser reads what passed whole and in the same way.

#![no_main]

use broker::head::{HeadReader, MAX_HEAD, MAX_HEADERS};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let hosts = ["127.0.0.1:61081".to_owned(), "localhost:61081".to_owned()];
    let whole = HeadReader::default().read(bytes, &hosts);

    let mut reader = HeadReader::default();
    let first = reader.read(&bytes[..usize::from(cut).min(bytes.len())], &hosts);
    let in_two = if first == Ok(None) { reader.read(bytes, &hosts) } else { first };
    assert_eq!(in_two, whole);

    if let Ok(Some(head)) = whole {
        assert!(head.length <= MAX_HEAD);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        assert_eq!(request.parse(&bytes[..head.length]), Ok(httparse::Status::Complete(head.length)));
        assert!(request.path.expect("a path").parse::<http::Uri>().is_ok());
        let count = |name: &str| {
            request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).count()
        };
        assert_eq!((count("host"), count("transfer-encoding")), (1, 0));
        assert!(count("content-length") <= 1);
    }
});
