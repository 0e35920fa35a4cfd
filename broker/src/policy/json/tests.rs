use proptest::prelude::*;

use super::{MAX_DEPTH, MAX_VALUES, Value, read, write};
use crate::policy::Rule;

fn rule(text: &str) -> Rule {
    read(text.as_bytes()).expect_err(text).rule
}

fn again(text: &str) -> String {
    String::from_utf8(write(read(text.as_bytes()).unwrap()).unwrap()).unwrap()
}

/// MOD-8: what is written is what was read: order, integers of 64 bits, text.
#[test]
fn written_as_read() {
    for text in [
        r#"{"b":1,"a":2,"":{}}"#,
        r#"{"a":[18446744073709551615,-9223372036854775808,0,-1,1.5,1e+300,-0.0]}"#,
        r#"{"a":"\u0000\"\\é😀\u001f","b":null,"c":true,"d":false,"e":[[],{}]}"#,
    ] {
        assert_eq!(again(text), text);
    }
    assert_eq!(again(r#"{ "\u0061" : "\u00e9\ud83d\ude00\/" }"#), "{\"a\":\"é😀/\"}");
    // Beyond 64 bits: the nearest double, and that is sent.
    assert_eq!(again(r#"{"a":18446744073709551616}"#), r#"{"a":1.8446744073709552e+19}"#);
}

/// MOD-8: depth and number of values end at their bounds and not before.
#[test]
fn bounds_are_exact() {
    let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(read(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
    assert_eq!(rule(&nested(MAX_DEPTH)), Rule::JsonTooDeep);
    let many = |values: usize| format!("{{\"a\":[{}0]}}", "0,".repeat(values - 3));
    assert!(read(many(MAX_VALUES).as_bytes()).is_ok());
    assert_eq!(rule(&many(MAX_VALUES + 1)), Rule::JsonTooLarge);
}

/// What the bound on values is worth rests on their size: four pairs are the least that an object allocates.
#[test]
fn the_bound_on_values_is_one_on_memory() {
    let most = 4 * std::mem::size_of::<(String, Value)>() + 2 * std::mem::size_of::<usize>();
    assert!(std::mem::size_of::<Value>() <= 32 && most * MAX_VALUES < 128 * 1024 * 1024);
}

/// MOD-8: a key twice, at any depth and by any escape, also among very many.
#[test]
fn keys_stand_once() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"\u0061":1}"#,
        r#"{"x":[{"y":{"a":1,"b":2,"a":3}}]}"#,
        r#"{"😀":1,"\ud83d\ude00":1}"#,
        r#"{"":1,"":1}"#,
    ] {
        assert_eq!(rule(text), Rule::JsonDuplicateKey);
    }
    let many: Vec<String> = (0..200_000).map(|key| format!("\"{key}\":0")).collect();
    assert!(read(format!("{{{}}}", many.join(",")).as_bytes()).is_ok());
    assert_eq!(rule(&format!("{{{},\"77\":0}}", many.join(","))), Rule::JsonDuplicateKey);
    // Not the same: another form of the same letter, another case.
    assert!(read("{\"\u{e9}\":1,\"e\u{301}\":1,\"E\":1,\"e\":1}".as_bytes()).is_ok());
}

/// MOD-8: an error names the place and never quotes the body.
#[test]
fn errors_quote_nothing() {
    let refusal = read(b"{\"a\": canary}").unwrap_err();
    assert!(
        refusal.sentence.contains("line 1, column 7") && !refusal.sentence.contains("canary"),
        "{refusal}"
    );
    assert_eq!(read(b"[\"canary\"]").unwrap_err().rule, Rule::JsonNotObject);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<u64>().prop_map(Value::Unsigned),
        (i64::MIN..0).prop_map(Value::Signed),
        any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(Value::Float),
        ".*".prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            prop::collection::btree_map(".*", inner, 0..8)
                .prop_map(|map| Value::Object(super::Object { pairs: map.into_iter().collect() })),
        ]
    })
}

proptest! {
    /// MOD-8: every value comes back the same, and another parser reads the same.
    #[test]
    fn round_trip(value in any_value()) {
        let object = super::Object::from([("a", value)]);
        let bytes = write(object.clone()).unwrap();
        prop_assert_eq!(read(&bytes).unwrap(), object);
        let other: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let reread: serde_json::Value = serde_json::from_slice(&write(read(&bytes).unwrap()).unwrap()).unwrap();
        prop_assert_eq!(other, reread);
    }

    /// MOD-8: any bytes are an object that is written as one, or are refused.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100), text in r#"[\{\}\[\]",:0-9aeu\\. -]{0,60}"#) {
        for bytes in [bytes.as_slice(), text.as_bytes()] {
            if let Ok(object) = read(bytes) {
                prop_assert_eq!(read(&write(object.clone()).unwrap()).unwrap(), object);
            }
        }
    }
}
