//! EGR-5: the first TLS message, however cut, and however malformed.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use serde_json::{Value, json};
use tests::internet::{Internet, Response};
use tests::person::{Person, Who};

use crate::egress::client;

const MALFORMED: &[&str] = &["hello_malformed"];
const NOT_TLS: &[&str] = &["not_tls"];
const VERSION: &[&str] = &["tls_version"];
const ALLOWED: &[&str] = &[];

/// One message: which, with which name (HOST is the requested one), and the reasons that may refuse it (none: it goes
/// through, and a TLS server answers it).
const CASES: &[(&str, &str, &[&str])] = &[
    ("plain", "HOST", ALLOWED),
    ("sni_last", "HOST", ALLOWED),
    ("grease", "HOST", ALLOWED),
    ("h2", "HOST", ALLOWED),
    ("tls12", "HOST", ALLOWED),
    ("records_2", "HOST", ALLOWED),
    ("records_16", "HOST", ALLOWED),
    ("record_in_name", "HOST", ALLOWED),
    ("large", "HOST", ALLOWED),
    ("plain", "evil.example.com", &["sni_mismatch"]),
    ("plain", "xHOST", &["sni_mismatch"]),
    ("plain", "HOST.evil.com", &["sni_mismatch"]),
    ("plain", "HOST.", &["sni_mismatch", "sni_malformed"]),
    ("plain", "151.101.0.1", &["sni_malformed", "sni_mismatch"]),
    ("plain", "HOST\\x00", &["sni_malformed", "sni_mismatch"]),
    ("plain", "HOST\\x00.evil.com", &["sni_malformed", "sni_mismatch"]),
    ("plain", "ü.example.com", &["sni_malformed", "sni_mismatch"]),
    ("plain", " HOST", &["sni_malformed", "sni_mismatch"]),
    ("no_sni", "HOST", &["sni_missing"]),
    ("no_extensions", "HOST", &["sni_missing", "tls_version", "hello_malformed"]),
    ("empty_list", "HOST", &["sni_missing", "sni_malformed", "hello_malformed"]),
    ("empty_extension", "HOST", &["sni_missing", "sni_malformed", "hello_malformed"]),
    ("empty_name", "HOST", &["sni_missing", "sni_malformed", "hello_malformed"]),
    ("two_names", "HOST", &["sni_malformed", "hello_malformed"]),
    ("second_name", "HOST", &["sni_malformed", "hello_malformed", "sni_mismatch"]),
    ("two_extensions", "HOST", MALFORMED),
    ("name_type", "HOST", &["sni_malformed", "hello_malformed", "sni_missing"]),
    ("name_trailing", "HOST", &["sni_malformed", "hello_malformed"]),
    ("ech", "HOST", &["ech_requested"]),
    ("ech_inner", "HOST", &["ech_requested"]),
    ("ech_outer_extensions", "HOST", &["ech_requested", "hello_malformed"]),
    ("early_data", "HOST", &["early_data"]),
    ("psk_not_last", "HOST", MALFORMED),
    ("acme", "HOST", &["alpn_not_allowed"]),
    ("empty_record", "HOST", MALFORMED),
    ("ccs_between", "HOST", MALFORMED),
    ("alert_between", "HOST", MALFORMED),
    ("data_between", "HOST", MALFORMED),
    ("alert_first", "HOST", &["not_tls", "hello_malformed"]),
    ("record_too_long", "HOST", &["hello_malformed", "hello_too_large"]),
    ("too_large", "HOST", &["hello_too_large"]),
    ("two_messages", "HOST", MALFORMED),
    ("trailing", "HOST", MALFORMED),
    ("long_extensions", "HOST", MALFORMED),
    ("short_extensions", "HOST", MALFORMED),
    ("short_message", "HOST", MALFORMED),
    ("server_hello", "HOST", &["hello_malformed", "not_tls"]),
    ("ssl2", "HOST", &["not_tls", "tls_version"]),
    ("ssl3_record", "HOST", &["tls_version", "not_tls", "hello_malformed"]),
    ("tls10", "HOST", VERSION),
    ("tls11_in_versions", "HOST", VERSION),
    ("ssh", "HOST", NOT_TLS),
    ("http", "HOST", NOT_TLS),
    ("h2_preface", "HOST", NOT_TLS),
    ("smtp", "HOST", NOT_TLS),
];

fn name(number: usize) -> String {
    format!("h{number}.example.com")
}

/// Everything at once: the one run is also the proof that no refusal disturbs the next attempt.
fn judge(segment: Option<u64>) {
    let Some(net) = Internet::new() else { return };
    let hosts: Vec<_> =
        (0..CASES.len()).map(|number| net.https(&name(number), |_| Response::ok("x"))).collect();
    let steps: Value = CASES
        .iter()
        .enumerate()
        .map(|(number, (hello, sni, reasons))| {
            let sni = sni.replace("HOST", &name(number));
            // A byte of answer tells that a server heard it; refused ones are closed without.
            let mut step = json!({ "op": "tunnel", "host": name(number), "hello": hello, "sni": sni,
                                   "receive": 1, "patience_ms": 3_000 });
            if let Some(segment) = segment {
                step["segment"] = json!(segment);
            }
            // Bytes after a message that is whole: they must not go out either.
            if !reasons.is_empty() {
                step["send"] = json!(0);
            }
            step
        })
        .collect();
    let options: Vec<String> =
        (0..CASES.len()).flat_map(|number| ["--allow".to_owned(), name(number)]).collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let person = Person::new(Who::User);
    let (results, outcome) = client(&person, &net, &options, &steps);
    let mut wrong = Vec::new();
    for (number, (hello, sni, reasons)) in CASES.iter().enumerate() {
        let (result, host) = (&results[number], &hosts[number]);
        let attempt =
            outcome.egress().iter().find(|a| a["host"] == name(number).as_str()).cloned().unwrap_or_default();
        let reason = attempt["reason"].as_str().unwrap_or("none");
        // A server's hello is a handshake record; what the proxy says is an alert, or words to who speaks no TLS.
        let answered = result["first"] == 22;
        let right = if reasons.is_empty() {
            answered && reason == "listed" && host.received() > 0
        } else {
            !answered
                && reasons.contains(&reason)
                && host.received() == 0
                && attempt["bytes_out"] == 0
                && result["end"] != "silence"
        };
        if !right {
            let sent = host.received();
            wrong.push(format!(
                "{hello} {sni:?}: {reason}, {sent} bytes went out, {result}; expected {reasons:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(outcome.egress().len(), CASES.len(), "one decision for each: {outcome}");
}

#[test]
fn first_messages_are_judged_whole() {
    judge(None);
}

#[test]
fn first_messages_are_judged_a_byte_a_segment() {
    judge(Some(1));
}

/// EGR-5, time: who says nothing, or too slowly, is cut off; nothing goes out.
#[test]
fn a_first_message_that_does_not_come_in_time_is_cut_off() {
    let Some(net) = Internet::new() else { return };
    for (case, step) in [
        (
            "silent",
            json!({ "op": "tunnel", "host": "slow.example.com", "hello": "silent", "receive": 1, "patience_ms": 40_000 }),
        ),
        (
            "trickle",
            json!({ "op": "tunnel", "host": "slow.example.com", "segment": 1, "every_ms": 100, "receive": 1 }),
        ),
    ] {
        let host = net.https("slow.example.com", |_| Response::ok("x"));
        let person = Person::new(Who::User);
        let (results, outcome) = client(&person, &net, &["--allow", "slow.example.com"], &json!([step]));
        assert_eq!(outcome.refusals(), ["hello_timeout"], "{case}: {outcome}");
        assert!(outcome.took < Duration::from_secs(30), "{case}: one total deadline: {outcome}");
        assert_ne!(results[0]["end"], "silence", "{case}: it was closed: {outcome}");
        assert_eq!(host.received(), 0, "{case}");
    }
}

/// A server's request to say hello again (RFC 8446 4.1.4): version 1.2 on the wire, the fixed random value.
fn retry_request() -> Vec<u8> {
    let random = [
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
        0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ];
    let extensions = [0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 23];
    let mut body = vec![3, 3];
    body.extend(random);
    body.push(32);
    body.extend([0; 32]);
    body.extend([0x13, 1, 0, 0, u8::try_from(extensions.len()).expect("short")]);
    body.extend(extensions);
    let mut message = vec![2, 0, 0, u8::try_from(body.len()).expect("short")];
    message.extend(body);
    let mut record = vec![22, 3, 3, 0, u8::try_from(message.len()).expect("short")];
    record.extend(message);
    record
}

/// EGR-5: a second hello after a retry request is checked too.
#[test]
fn a_second_hello_with_another_name_is_cut_off() {
    let Some(net) = Internet::new() else { return };
    for (second, allowed) in [("retry.example.com", true), ("evil.example.com", false)] {
        let host = net.raw("retry.example.com", |mut raw| {
            let mut buffer = [0; 4096];
            let _ = raw.read(&mut buffer);
            let _ = raw.write_all(&retry_request());
            let _ = raw.read(&mut buffer);
            let _ = raw.write_all(b"!");
            while matches!(raw.read(&mut buffer), Ok(1..)) {}
        });
        let step = json!([{ "op": "tunnel", "host": "retry.example.com", "second_sni": second, "receive": 1,
                            "patience_ms": 5_000 }]);
        let person = Person::new(Who::User);
        let (results, outcome) = client(&person, &net, &["--allow", "retry.example.com"], &step);
        assert!(results[0]["retry"].as_u64() > Some(0), "the retry request came through: {outcome}");
        let hello = results[0]["hello"].as_u64().expect("a length");
        if allowed {
            assert_eq!(results[0]["received"], 1, "{second}: {outcome}");
            assert_eq!(host.wait_received(2 * hello), 2 * hello);
        } else {
            assert_eq!(results[0]["received"], 0, "{second}: {outcome}");
            assert_eq!(outcome.egress().last().expect("an attempt")["reason"], "retry_mismatch", "{outcome}");
            assert_eq!(host.received(), hello, "the second message did not go out");
        }
    }
}
