//! MOD-11, MOD-13: services that fail, are silent, are not there, or are not who they should be.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use tests::internet::Internet;
use tests::model::Service;
use tests::person::{Person, Who};

use crate::model::{
    COMPATIBLE, KEY, World, chat, client, configure, merged, options, person_with_key, post, refusal, with,
};

/// What a failing service is to the agent: the status where the answer is streamed, and where it is not; and the words for it
/// in the operator's one line.
const FAILURES: &[(&str, [u64; 2], &[&str])] = &[
    ("[[status:401]]", [401, 401], &["401", "key"]),
    ("[[status:404]]", [404, 404], &["404"]),
    ("[[status:429]]", [429, 429], &["429"]),
    ("[[status:500]]", [500, 500], &["500"]),
    ("[[status:529]]", [529, 529], &["529"]),
    ("[[cut]]", [200, 200], &["upstream_closed", "ended", "cut", "broke"]),
    ("[[hang]]", [504, 504], &["upstream_timeout", "within", "time"]),
    ("[[hang:head]]", [200, 200], &["upstream_timeout", "within", "time"]),
    ("[[hang:middle]]", [200, 200], &["upstream_timeout", "within", "time"]),
];

/// MOD-11: an upstream's failure becomes its own error, never a hang; the operator reads one line that says which; the
/// run goes on, and the next question is answered.
#[test]
fn a_failing_service_is_an_error_and_never_a_hang() {
    let Some(net) = Internet::new() else { return };
    let world = World::new(&net);
    let person = person_with_key(Who::User);
    configure(&person, "[auto_reply]\napi_timeout_seconds = 3\n");
    // Most of the time is spent waiting for a service that is silent: at the same time for each.
    std::thread::scope(|scope| {
        for (service, path, body) in world.questions() {
            let (net, person) = (&net, &person);
            scope.spawn(move || failures(person, net, service, path, &body));
        }
    });
}

fn failures(person: &Person, net: &Internet, service: &Service, path: &str, body: &Value) {
    for streamed in [true, false] {
        for (order, statuses, words) in FAILURES {
            let text = body.to_string().replace("[[text:Good day.]]", &format!("{order}[[text:Good day.]]"));
            let failing: Value = serde_json::from_str(&text).expect("JSON");
            let failing = merged(failing, &json!({ "stream": streamed }));
            let steps = json!([with(post(path, &failing), "patience_ms", json!(20_000)), post(path, body)]);
            let (results, outcome) = client(person, net, &options(service), &steps);
            let case = format!("{path} {order} streamed {streamed}");
            let (failed, next) = (&results[0], &results[1]);
            let status = failed["status"].as_u64().unwrap_or_default();
            let wanted = if streamed { statuses[0] } else { statuses[1] };
            assert_eq!(
                status, wanted,
                "MOD-11: the service's own, or what says how it failed: {case}: {failed}"
            );
            assert_ne!(failed["end"], "silence", "MOD-11: {case} hangs: {failed}");
            assert!(failed["after_ms"].as_u64() < Some(8_000), "MOD-11: {case}: {failed}");
            if status == 200 {
                // A head is out already: what tells the agent is an end that is none, or an event that says so.
                let said = failed["body"].as_str().unwrap_or_default();
                let told = failed["end"] != "whole" || said.contains("anet:");
                assert!(told, "MOD-11: {case}: half an answer looks whole: {failed}");
            }
            assert_eq!(next["status"], 200, "{case}: the run goes on: {outcome}");
            let err = outcome.err();
            let line = |line: &&str| words.iter().any(|word| line.contains(word));
            assert_eq!(err.lines().filter(line).count(), 1, "one line for the operator: {case}: {outcome}");
            assert!(!err.contains(KEY) && !failed.to_string().contains(KEY), "MOD-11: {case}: {outcome}");
        }
    }
}

/// MOD-11, MOD-13: a service that is not there, and one that cannot prove who it is.
#[test]
fn a_service_that_is_not_there_or_not_itself_is_an_error() {
    let Some(net) = Internet::new() else { return };
    let service = Service::compatible(&net, COMPATIBLE, KEY);
    let person = person_with_key(Who::User);
    let ask = || json!([post("/v1/chat/completions", &chat("[[text:x]]"))]);
    let absent = Ipv4Addr::new(151, 101, 200, 9);
    net.unreachable(absent);
    net.dns().a("gone.example.com", &[absent]);
    let mut elsewhere = options(&service);
    elsewhere[3] = "https://gone.example.com/v1".into();
    let (results, outcome) = client(&person, &net, &elsewhere, &ask());
    assert_eq!(results[0]["status"], 502, "{outcome}");
    assert!(refusal(&results[0], false).contains("upstream_unreachable"), "{outcome}");
    // The store has another authority now: the service's certificate is nobody's.
    net.replace_file("/etc/ssl/certs/ca-certificates.crt", OTHER_AUTHORITY.as_bytes());
    let (results, outcome) = client(&person, &net, &options(&service), &ask());
    assert_eq!(results[0]["status"], 502, "MOD-13: {outcome}");
    assert!(refusal(&results[0], false).contains("upstream_tls"), "MOD-13: {outcome}");
    assert!(outcome.err().lines().any(|line| line.contains("certificate")), "{outcome}");
    assert_eq!(service.requests().len(), 0, "MOD-13: not a byte of the request");
}

/// A certificate authority that signed nothing here (made with openssl for this test; its key was thrown away).
const OTHER_AUTHORITY: &str = include_str!("other-authority.pem");
