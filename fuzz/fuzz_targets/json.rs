//! JSON of a stranger: what is read is what another parser reads, and is written as the same thing; what another parser
//! refuses is refused.
#![no_main]

use broker::policy::json;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let other = serde_json::from_slice::<serde_json::Value>(bytes);
    let Ok(object) = json::read(bytes) else { return };
    let other = other.expect("another parser refuses it");
    let written = json::write(object.clone()).expect("what was read can be written");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&written).expect("JSON"), other);
    assert_eq!(json::read(&written).expect("what was written can be read"), object);
});
