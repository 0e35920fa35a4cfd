//! EGR: the way out. Real curl for what people do, the byte-exact client for what attackers do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde_json::{Value, json};
use tests::installed::installed;
use tests::internet::{Answer, Internet, NEAR_V4, NEAR_V6, Query, Response, Transport};
use tests::person::{Outcome, Person, Who};

use crate::NONE;

const HOST: &str = "pkg.example.com";

/// curl, which has to find the proxy by itself.
fn curl<'a>(person: &'a Person, net: &'a Internet, options: &[&str], args: &[&str]) -> Outcome {
    let command = ["curl", "-sS", "--max-time", "30"].iter().chain(args);
    person.run(options, command).within(net).timeout(Duration::from_secs(90)).output()
}

/// The steps, done by the client inside one run; what became of each, and the run.
pub(crate) fn client(
    person: &Person,
    net: &Internet,
    options: &[&str],
    steps: &Value,
) -> (Vec<Value>, Outcome) {
    let program = installed().client();
    let program = program.to_str().expect("text");
    let options = [&["--ro", program], options].concat();
    let outcome = person
        .run(options, [program, &steps.to_string()])
        .within(net)
        .timeout(Duration::from_secs(150))
        .output();
    let outcome = outcome.expect_code(0);
    let results: Vec<Value> =
        serde_json::from_slice(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome}"));
    (results, outcome)
}

/// Steps that ask for a tunnel to each of these targets and send nothing into it.
fn connects(targets: &[String]) -> Value {
    let heads = targets.iter().map(|t| format!("CONNECT {t} HTTP/1.1\r\nHost: {t}\r\n\r\n"));
    heads.map(|head| json!({ "op": "raw", "send": head, "patience_ms": 15_000 })).collect()
}

#[test]
fn an_allowed_host_is_reached() {
    let Some(net) = Internet::new() else { return };
    for who in Who::all() {
        let host = net.https(HOST, |request| Response::ok(format!("hello from {}", request.path())));
        let person = Person::new(*who);
        let outcome = curl(&person, &net, &["--allow", HOST], &["https://pkg.example.com/x"]);
        let outcome = outcome.expect_out("hello from /x");
        let [attempt] = outcome.egress() else { panic!("one attempt: {outcome}") };
        assert_eq!((&attempt["host"], &attempt["port"]), (&json!(HOST), &json!(443)), "{outcome}");
        assert_eq!(
            (&attempt["class"], &attempt["decision"]),
            (&json!("third_party"), &json!("allow")),
            "BUD-6: {outcome}"
        );
        // The tunnel's end can be the run's.
        assert!(
            ["listed", "run_ended"].contains(&attempt["reason"].as_str().unwrap_or_default()),
            "{outcome}"
        );
        let addresses: Vec<&str> =
            attempt["addresses"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert!(addresses.contains(&host.v4.to_string().as_str()), "{outcome}");
        let out = attempt["bytes_out"].as_u64().expect("a number");
        assert_eq!(out, host.received(), "what is recorded is what arrived: {outcome}");
        assert!(attempt["bytes_in"].as_u64() > Some(500), "{outcome}");
    }
}

#[test]
fn each_family_alone_is_enough() {
    let Some(net) = Internet::new() else { return };
    let person = Person::new(Who::User);
    net.https(HOST, |_| Response::ok("four"));
    net.dns().set_aaaa(HOST, Answer::Addresses(Vec::new()));
    net.https("six.example.com", |_| Response::ok("six"));
    net.dns().set_a("six.example.com", Answer::Addresses(Vec::new()));
    let options = ["--allow", HOST, "--allow", "six.example.com"];
    curl(&person, &net, &options, &["https://pkg.example.com/"]).expect_out("four");
    curl(&person, &net, &options, &["https://six.example.com/"]).expect_out("six");
}

/// EGR-8: policy first, then DNS: a name that is not allowed is never looked up.
#[test]
fn a_name_that_is_not_allowed_causes_no_query() {
    let Some(net) = Internet::new() else { return };
    for who in Who::all() {
        let person = Person::new(*who);
        let other = net.https("other.example.com", |_| Response::ok("no"));
        for options in [vec!["--allow", HOST], vec![]] {
            let outcome = curl(&person, &net, &options, &["https://other.example.com/"]);
            assert_ne!(outcome.code(), 0, "{outcome}");
            if !options.is_empty() {
                assert_eq!(outcome.refusals(), ["not_listed"], "{outcome}");
                assert_eq!(outcome.egress()[0]["class"], "unknown", "BUD-6: {outcome}");
                assert!(
                    outcome.record()["violations"].as_array().is_some_and(|v| v.len() == 1),
                    "BUD-6: {outcome}"
                );
            }
        }
        assert_eq!(net.dns().queries().len(), 0, "{:?}", net.dns().queries());
        assert_eq!(other.connections(), 0);
    }
}

/// SBX-2: without the proxy there is no way out: no DNS, no route.
#[test]
fn nothing_leaves_beside_the_proxy() {
    let Some(net) = Internet::new() else { return };
    let host = net.https(HOST, |_| Response::ok("no"));
    for who in Who::all() {
        let person = Person::new(*who);
        let options = ["--allow", HOST];
        for args in [
            vec!["--noproxy", "*", "https://pkg.example.com/"],
            vec!["--noproxy", "*", "-k", "https://151.101.0.1/"],
            vec!["--noproxy", "*", "-k", "https://[2a04:4e42::1]/"],
            vec!["--noproxy", "*", "http://52.95.110.2/"],
            vec!["http://pkg.example.com/"],
        ] {
            let outcome = curl(&person, &net, &options, &args);
            assert_ne!(outcome.code(), 0, "{args:?}: {outcome}");
        }
        let resolve = "import socket; socket.getaddrinfo('pkg.example.com', 443)";
        assert_ne!(person.run(options, ["python3", "-c", resolve]).within(&net).output().code(), 0);
        assert_eq!(net.dns().queries().len(), 0);
        assert_eq!((host.connections(), net.strays()), (0, Vec::new()));
    }
}

/// EGR-6: never through a proxy, whatever the environment says.
#[test]
fn a_proxy_of_the_operators_environment_is_not_used() {
    let Some(net) = Internet::new() else { return };
    net.https(HOST, |_| Response::ok("direct"));
    let proxy = net.host_service(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let person = Person::new(Who::User);
    let mut call = person.run(["--allow", HOST], ["curl", "-sS", "https://pkg.example.com/"]).within(&net);
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        call = call.env(name, format!("http://{proxy}"));
    }
    call.output().expect_out("direct");
    assert_eq!(net.strays(), []);
}

/// EGR-3: only port 443; names, not addresses. Each with its own reason.
#[test]
fn other_ports_and_literal_addresses_are_refused() {
    let Some(net) = Internet::new() else { return };
    net.https(HOST, |_| Response::ok("no"));
    let person = Person::new(Who::User);
    let cases = [
        ("https://pkg.example.com:8443/", "port_not_allowed"),
        ("https://pkg.example.com:22/", "port_not_allowed"),
        ("https://151.101.0.1/", "ip_literal"),
        ("https://[2a04:4e42::1]/", "ip_literal"),
        ("https://other.example.com/", "not_listed"),
    ];
    for (url, reason) in cases {
        let outcome = curl(&person, &net, &["--allow", HOST], &["-k", url]);
        assert_eq!(outcome.code(), 56, "curl: the proxy refused: {outcome}");
        assert_eq!(outcome.refusals(), [reason], "{url}: {outcome}");
        assert_eq!(outcome.record()["egress"][0]["bytes_out"], 0, "{outcome}");
    }
    assert_eq!((net.dns().queries().len(), net.strays()), (0, Vec::new()));
}

/// What refuses: a status, and one of these reasons.
type Expected = (&'static str, u64, &'static [&'static str]);

const MALFORMED: u64 = 400;
const TARGET: &[&str] = &["malformed_target"];
const UNLISTED: &[&str] = &["not_listed", "malformed_target"];
const LITERAL: &[&str] = &["ip_literal"];

/// EGR-3: the request's target, byte by byte.
#[test]
fn targets_are_compared_exactly() {
    let Some(net) = Internet::new() else { return };
    let host = net.https(HOST, |_| Response::ok("no"));
    let cases: [Expected; 47] = [
        ("PKG.example.com:443", 0, UNLISTED),
        ("pkg.example.com.:443", 0, UNLISTED),
        ("pkg.example.com..:443", MALFORMED, TARGET),
        (".pkg.example.com:443", MALFORMED, TARGET),
        ("evil-pkg.example.com:443", 403, &["not_listed"]),
        ("pkg.example.com.evil.com:443", 403, &["not_listed"]),
        ("xpkg.example.com:443", 403, &["not_listed"]),
        ("a.pkg.example.com:443", 403, &["not_listed"]),
        ("example.com:443", 403, &["not_listed"]),
        ("pkg_example.com:443", 0, UNLISTED),
        ("pkg.example.com\\x00.evil.com:443", 0, &["malformed_target", "malformed_request"]),
        ("pkg%2eexample.com:443", MALFORMED, TARGET),
        ("user@pkg.example.com:443", MALFORMED, TARGET),
        ("pkg.example.com@evil.com:443", MALFORMED, TARGET),
        ("u:p@pkg.example.com:443", MALFORMED, TARGET),
        ("pkg.example.com#@evil.com:443", MALFORMED, TARGET),
        ("pkg.example.com\\x5c@evil.com:443", MALFORMED, TARGET),
        ("http://pkg.example.com:443/", MALFORMED, TARGET),
        ("/pkg.example.com:443", MALFORMED, TARGET),
        ("pkg.example.com:443/", 0, &["malformed_target", "port_not_allowed"]),
        ("ｐｋｇ.example.com:443", 0, &["malformed_target", "malformed_request"]),
        ("рkg.example.com:443", 0, &["malformed_target", "malformed_request"]),
        ("xn--kg-6kc.example.com:443", 403, &["not_listed", "malformed_target"]),
        ("pkg。example.com:443", 0, &["malformed_target", "malformed_request"]),
        ("127.0.0.1:443", 403, LITERAL),
        ("1.1.1.1:443", 403, LITERAL),
        ("0177.0.0.1:443", 403, LITERAL),
        ("0x7f000001:443", 403, LITERAL),
        ("2130706433:443", 403, LITERAL),
        ("127.1:443", 403, LITERAL),
        ("0:443", 403, LITERAL),
        ("[::1]:443", 403, LITERAL),
        ("[::ffff:1.1.1.1]:443", 403, LITERAL),
        ("[2606:4700::1111]:443", 403, LITERAL),
        ("[fe80::1%25eth0]:443", 0, &["ip_literal", "malformed_target"]),
        ("[pkg.example.com]:443", MALFORMED, TARGET),
        ("[[::1]]:443", MALFORMED, TARGET),
        ("[v1.x]:443", MALFORMED, TARGET),
        ("pkg.example.com:0443", MALFORMED, TARGET),
        ("pkg.example.com:+443", MALFORMED, TARGET),
        ("pkg.example.com:443x", MALFORMED, TARGET),
        ("pkg.example.com:", MALFORMED, TARGET),
        ("pkg.example.com", MALFORMED, TARGET),
        ("pkg.example.com:80", 403, &["port_not_allowed"]),
        ("pkg.example.com:65979", 0, &["malformed_target", "port_not_allowed"]),
        ("pkg.example.com:443:443", MALFORMED, TARGET),
        (":443", MALFORMED, TARGET),
    ];
    let targets: Vec<String> = cases.iter().map(|(target, ..)| (*target).to_owned()).collect();
    let person = Person::new(Who::User);
    let (results, outcome) = client(&person, &net, &["--allow", HOST], &connects(&targets));
    let reasons = outcome.refusals();
    assert_eq!(reasons.len(), cases.len(), "one decision for each: {outcome}");
    let mut wrong = Vec::new();
    for (((target, status, allowed), result), reason) in cases.iter().zip(&results).zip(&reasons) {
        let got = result["status"].as_u64().unwrap_or_default();
        // A status of 0 in the table: either of the two is right.
        let right = if *status == 0 { got == 400 || got == 403 } else { got == *status };
        let body = result["body"].as_str().unwrap_or_default();
        if !right || !allowed.contains(&reason.as_str()) || !body.starts_with("anet:") {
            wrong.push(format!("{target:?}: {got} {reason} {body:?}, expected {status} {allowed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((net.dns().queries().len(), host.connections(), net.strays()), (0, 0, Vec::new()));
}

/// The request's head: nothing that two readers could read in two ways.
#[test]
fn heads_that_are_no_plain_connect_are_refused() {
    let Some(net) = Internet::new() else { return };
    let host = net.https(HOST, |_| Response::ok("no"));
    let target = "pkg.example.com:443";
    let ok = format!("Host: {target}\r\n\r\n");
    let line = format!("CONNECT {target} HTTP/1.1\r\n");
    let heads: Vec<(String, &[&str])> = vec![
        (format!("{line}Host: other.example.com:443\r\n\r\n"), &["host_mismatch"]),
        (format!("{line}\r\n"), &["host_mismatch", "malformed_request"]),
        (format!("{line}Host: {target}\r\nHost: {target}\r\n\r\n"), &["host_mismatch", "malformed_request"]),
        // HTTP/1.0 as such is served: pip on Debian 12 speaks it.
        (format!("CONNECT {target} HTTP/1.0\r\nHost: other.example.com:443\r\n\r\n"), &["host_mismatch"]),
        (format!("CONNECT {target} HTTP/1.2\r\n{ok}"), &["http_version", "malformed_request"]),
        (format!("CONNECT {target} HTTP/2.0\r\n{ok}"), &["http_version"]),
        (format!("CONNECT {target}\r\n{ok}"), &["malformed_request", "http_version"]),
        (
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
            &["http_version", "method_not_allowed", "malformed_request"],
        ),
        (format!("{line}Content-Length: 5\r\n{ok}hello"), &["body_not_allowed"]),
        (format!("{line}Transfer-Encoding: chunked\r\n{ok}"), &["body_not_allowed"]),
        (
            "GET http://pkg.example.com/ HTTP/1.1\r\nHost: pkg.example.com\r\n\r\n".into(),
            &["method_not_allowed"],
        ),
        ("GET / HTTP/1.1\r\nHost: pkg.example.com\r\n\r\n".into(), &["method_not_allowed"]),
        (format!("connect {target} HTTP/1.1\r\n{ok}"), &["method_not_allowed", "malformed_request"]),
        (format!("{line}X: a\r\n b\r\n{ok}"), &["malformed_request"]),
        (format!("{line}X : a\r\n{ok}"), &["malformed_request"]),
        (format!("{line}X(: a\r\n{ok}"), &["malformed_request"]),
        (format!("{line}: a\r\n{ok}"), &["malformed_request"]),
        (format!("CONNECT {target} HTTP/1.1\nHost: {target}\n\n"), &["malformed_request"]),
        (format!("{line}X: a\\x00b\r\n{ok}"), &["malformed_request"]),
        (format!("{line}X: a\rb\r\n{ok}"), &["malformed_request"]),
        (format!("CONNECT  {target} HTTP/1.1\r\n{ok}"), &["malformed_request", "malformed_target"]),
        (format!(" CONNECT {target} HTTP/1.1\r\n{ok}"), &["malformed_request", "method_not_allowed"]),
        (format!("CONNECT {target} HTTP/1.1 \r\n{ok}"), &["malformed_request", "http_version"]),
        (format!("{line}X: {}\r\n{ok}", "a".repeat(100_000)), &["head_too_large"]),
        (format!("{line}{}{ok}", "X: a\r\n".repeat(2_000)), &["head_too_large", "malformed_request"]),
        ("\\x16\\x03\\x01\\x00\\x05hello".into(), &["malformed_request"]),
    ];
    let steps: Value =
        heads.iter().map(|(head, _)| json!({ "op": "raw", "send": head, "patience_ms": 12_000 })).collect();
    let person = Person::new(Who::User);
    let (results, outcome) = client(&person, &net, &["--allow", HOST], &steps);
    let reasons = outcome.refusals();
    assert_eq!(reasons.len(), heads.len(), "one decision for each: {outcome}");
    let mut wrong = Vec::new();
    for (((head, allowed), result), reason) in heads.iter().zip(&results).zip(&reasons) {
        let status = result["status"].as_u64().unwrap_or_default();
        if !(400..500).contains(&status) && status != 505
            || result["closed"] != true
            || !allowed.contains(&reason.as_str())
        {
            wrong.push(format!(
                "{:.80?}: {status} {reason} closed {}, expected {allowed:?}",
                head, result["closed"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((net.dns().queries().len(), host.connections()), (0, 0));
}

/// One total deadline for the head: a byte now and then does not extend it.
#[test]
fn a_head_that_takes_its_time_is_cut_off() {
    let Some(net) = Internet::new() else { return };
    let person = Person::new(Who::User);
    let head = format!("CONNECT pkg.example.com:443 HTTP/1.1\r\nX: {}", "a".repeat(400));
    let steps = json!([{ "op": "raw", "send": head, "every_ms": 100, "patience_ms": 1000 }]);
    let (results, outcome) = client(&person, &net, &["--allow", HOST], &steps);
    assert!(outcome.took < Duration::from_secs(40), "{outcome}");
    assert_eq!(outcome.refusals(), ["head_timeout"], "{outcome}");
    assert_eq!(results[0]["closed"], true);
}

/// EGR-7: a refusal is a 403 with Proxy-Status and a body that starts with `anet:`; USE-4: one that teaches.
#[test]
fn a_refusal_says_who_refuses_and_why() {
    let Some(net) = Internet::new() else { return };
    let person = Person::new(Who::User);
    let steps = connects(&["other.example.com:443".to_owned()]);
    let (results, _) = client(&person, &net, &["--allow", HOST], &steps);
    let (status, head) = (&results[0]["status"], results[0]["head"].as_str().expect("a head"));
    assert_eq!(status, 403);
    let proxy_status =
        head.lines().find(|l| l.to_ascii_lowercase().starts_with("proxy-status:")).expect("Proxy-Status");
    assert!(proxy_status.contains("error="), "RFC 9209: {proxy_status}");
    let body = results[0]["body"].as_str().expect("a body");
    assert!(body.starts_with("anet:") && body.contains("other.example.com") && body.contains(HOST), "{body}");
}

/// EGR-7: a failure to reach the host is 502 or 504.
#[test]
fn a_host_that_cannot_be_reached_is_a_failure_not_a_refusal() {
    let Some(net) = Internet::new() else { return };
    let gone = Ipv4Addr::new(151, 101, 200, 1);
    let mute = Ipv4Addr::new(151, 101, 200, 2);
    net.unreachable(gone);
    net.silent(mute);
    net.dns().a("gone.example.com", &[gone]);
    net.dns().a("mute.example.com", &[mute]);
    let person = Person::new(Who::User);
    let options = ["--allow", "gone.example.com", "--allow", "mute.example.com"];
    let steps = json!([
        { "op": "raw", "send": "CONNECT gone.example.com:443 HTTP/1.1\r\nHost: gone.example.com:443\r\n\r\n" },
        { "op": "raw", "send": "CONNECT mute.example.com:443 HTTP/1.1\r\nHost: mute.example.com:443\r\n\r\n", "patience_ms": 60_000 },
    ]);
    let (results, outcome) = client(&person, &net, &options, &steps);
    assert_eq!((&results[0]["status"], &results[1]["status"]), (&json!(502), &json!(504)), "{outcome}");
    let egress = outcome.egress();
    assert_eq!(
        (&egress[0]["decision"], &egress[0]["reason"]),
        (&json!("fail"), &json!("connect_failed")),
        "{outcome}"
    );
    assert_eq!(
        (&egress[1]["decision"], &egress[1]["reason"]),
        (&json!("fail"), &json!("connect_timeout")),
        "{outcome}"
    );
    assert!(outcome.record()["violations"].as_array().is_some_and(Vec::is_empty), "no violation: {outcome}");
}

/// One way of several leads to the host.
#[test]
fn the_next_address_is_tried_when_one_does_not_answer() {
    let Some(net) = Internet::new() else { return };
    let host = net.https(HOST, |_| Response::ok("found"));
    let gone = Ipv4Addr::new(151, 101, 200, 1);
    net.unreachable(gone);
    net.dns().a(HOST, &[gone, host.v4]);
    net.dns().set_aaaa(HOST, Answer::Addresses(Vec::new()));
    let person = Person::new(Who::User);
    curl(&person, &net, &["--allow", HOST], &["https://pkg.example.com/"]).expect_out("found");
}

/// EGR-4: any address that is not globally routable refuses the name; nothing is connected to.
#[test]
fn a_name_with_an_address_that_is_not_public_is_refused() {
    let Some(net) = Internet::new() else { return };
    let public = IpAddr::V4(Ipv4Addr::new(151, 101, 77, 1));
    let private: [(&str, &[&str]); 44] = [
        ("0.0.0.0", &["address_reserved"]),
        ("0.1.2.3", &["address_reserved"]),
        ("10.0.0.1", &["address_private"]),
        ("172.16.0.1", &["address_private"]),
        ("172.31.255.255", &["address_private"]),
        ("192.168.1.1", &["address_private"]),
        ("100.64.0.1", &["address_shared"]),
        ("100.100.100.200", &["address_shared"]),
        ("127.0.0.1", &["address_loopback"]),
        ("127.255.255.254", &["address_loopback"]),
        ("169.254.169.254", &["address_link_local"]),
        ("192.0.0.192", &["address_reserved"]),
        ("192.0.2.1", &["address_documentation"]),
        ("198.51.100.1", &["address_documentation"]),
        ("203.0.113.1", &["address_documentation"]),
        ("192.31.196.1", &["address_reserved"]),
        ("192.52.193.1", &["address_reserved"]),
        ("192.88.99.1", &["address_reserved", "address_embedded"]),
        ("192.175.48.1", &["address_reserved"]),
        ("198.18.0.1", &["address_benchmarking"]),
        ("198.19.255.255", &["address_benchmarking"]),
        ("224.0.0.1", &["address_multicast"]),
        ("240.0.0.1", &["address_reserved"]),
        ("255.255.255.255", &["address_multicast", "address_reserved"]),
        ("168.63.129.16", &["address_metadata"]),
        ("::", &["address_reserved"]),
        ("::1", &["address_loopback"]),
        ("::151.101.77.1", &["address_embedded", "address_reserved"]),
        ("::ffff:10.0.0.1", &["address_embedded", "address_private"]),
        ("::ffff:151.101.77.1", &["address_embedded"]),
        ("64:ff9b::151.101.77.1", &["address_embedded"]),
        ("64:ff9b:1::1", &["address_embedded", "address_reserved"]),
        ("100::1", &["address_reserved"]),
        ("2001::1", &["address_embedded", "address_reserved"]),
        ("2001:2::1", &["address_benchmarking"]),
        ("2001:20::1", &["address_reserved"]),
        ("2001:db8::1", &["address_documentation"]),
        ("3fff::1", &["address_documentation"]),
        ("2002:9765:4d01::1", &["address_embedded"]),
        ("2620:4f:8000::1", &["address_reserved"]),
        ("5f00::1", &["address_reserved"]),
        ("fd00:ec2::254", &["address_private"]),
        ("fe80::1", &["address_link_local"]),
        ("ff02::1", &["address_multicast"]),
    ];
    let own = [(NEAR_V4.to_string(), ["address_own"]), (NEAR_V6.to_string(), ["address_own"])];
    let rows: Vec<(String, &[&str])> = private
        .iter()
        .map(|(address, reasons)| ((*address).to_owned(), *reasons))
        .chain(own.iter().map(|(address, reasons)| (address.clone(), reasons.as_slice())))
        .collect();
    // A service of the host at its own address: refused because it is the host's.
    net.host_service(IpAddr::V4(NEAR_V4), 443);
    net.host_service(IpAddr::V6(NEAR_V6), 443);
    net.host_service(IpAddr::V4(Ipv4Addr::LOCALHOST), 443);
    net.host_service(IpAddr::V6(Ipv6Addr::LOCALHOST), 443);
    let mut options = Vec::new();
    let mut targets = Vec::new();
    for (number, (address, _)) in rows.iter().enumerate() {
        let name = format!("h{number}.example.com");
        let address: IpAddr = address.parse().expect("an address");
        // Among public ones, not first: one is enough to refuse the name.
        let answer = Answer::Addresses(match address {
            IpAddr::V4(_) => vec![public, address],
            IpAddr::V6(_) => vec![IpAddr::V6(Ipv6Addr::new(0x2a04, 0x4e42, 7, 0, 0, 0, 0, 7)), address],
        });
        match address {
            IpAddr::V4(_) => net.dns().set_a(&name, answer),
            IpAddr::V6(_) => net.dns().set_aaaa(&name, answer),
        }
        options.extend(["--allow".to_owned(), name.clone()]);
        targets.push(format!("{name}:443"));
    }
    for who in Who::all() {
        let person = Person::new(*who);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let (results, outcome) = client(&person, &net, &options, &connects(&targets));
        let mut wrong = Vec::new();
        for ((row, result), attempt) in rows.iter().zip(&results).zip(outcome.egress()) {
            let reason = attempt["reason"].as_str().unwrap_or_default();
            if result["status"] != 403 || !row.1.contains(&reason) || attempt["class"] != "internal" {
                wrong.push(format!(
                    "{}: {} {reason} {}, expected {:?}",
                    row.0, result["status"], attempt["class"], row.1
                ));
            }
        }
        assert!(wrong.is_empty(), "{who:?}\n{}", wrong.join("\n"));
        assert_eq!(outcome.egress().len(), rows.len());
        assert_eq!(net.strays(), [], "a connection was made");
    }
}

/// EGR-4, EGR-8: what a name server can do to a name.
#[test]
fn a_name_server_that_lies_or_fails_refuses_the_name() {
    let Some(net) = Internet::new() else { return };
    let good = net.https("good.example.com", |_| Response::ok("x"));
    let dns = net.dns();
    let v4 = vec![IpAddr::V4(good.v4)];
    let v6 = vec![IpAddr::V6(good.v6)];
    let private = vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))];
    let ok = |addresses: &Vec<IpAddr>| Answer::Addresses(addresses.clone());
    let many = |count: u8| (0..count).map(|n| IpAddr::V4(Ipv4Addr::new(151, 101, 88, n))).collect::<Vec<_>>();
    const INCOMPLETE: &[&str] = &["dns_incomplete"];
    const FOUND: &[&str] = &[];
    let rows: Vec<(&str, Answer, Answer, &[&str])> = vec![
        (
            "v6-loopback",
            ok(&v4),
            Answer::Addresses(vec![IpAddr::V6(Ipv6Addr::LOCALHOST)]),
            &["address_loopback"],
        ),
        ("v6-servfail", ok(&v4), Answer::ServFail, INCOMPLETE),
        ("v4-servfail", Answer::ServFail, ok(&v6), INCOMPLETE),
        ("v6-refused", ok(&v4), Answer::Refused, INCOMPLETE),
        ("v6-silence", ok(&v4), Answer::Silence, INCOMPLETE),
        ("v4-silence", Answer::Silence, ok(&v6), INCOMPLETE),
        ("both-servfail", Answer::ServFail, Answer::ServFail, INCOMPLETE),
        ("no-name", Answer::NoName, Answer::NoName, &["name_not_found"]),
        ("no-address", ok(&Vec::new()), ok(&Vec::new()), &["name_not_found"]),
        (
            "alias-in",
            Answer::Alias("db.internal".into(), private.clone()),
            ok(&Vec::new()),
            &["address_private"],
        ),
        ("alias-out", Answer::Alias("good.example.com".into(), v4.clone()), ok(&Vec::new()), FOUND),
        ("alias-loop", Answer::AliasLoop, Answer::AliasLoop, &["dns_incomplete", "name_not_found"]),
        ("many", Answer::Addresses(many(33)), ok(&Vec::new()), &["too_many_addresses"]),
        ("cut", Answer::Truncated(None), ok(&v6), INCOMPLETE),
        ("long", Answer::Truncated(Some(v4.clone())), ok(&v6), FOUND),
        ("forged", Answer::Spoofed(private.clone(), v4.clone()), ok(&v6), FOUND),
        // A forger who does not see the question cannot spell it: asked again over TCP, where nobody can forge.
        ("other-case", Answer::OtherCase(v4.clone()), ok(&v6), FOUND),
    ];
    let mut options = vec!["--allow".to_owned(), "good.example.com".to_owned()];
    let mut targets = Vec::new();
    for (name, a, aaaa, _) in &rows {
        let name = format!("{name}.example.com");
        dns.set_a(&name, a.clone());
        dns.set_aaaa(&name, aaaa.clone());
        options.extend(["--allow".to_owned(), name.clone()]);
        targets.push(format!("{name}:443"));
    }
    let steps: Value = targets
        .iter()
        .zip(&rows)
        .map(|(t, row)| {
            // A byte that is no TLS behind the head ends a tunnel that was opened: nobody has to wait for it.
            let more = if row.3.is_empty() { "\\x00" } else { "" };
            json!({ "op": "raw", "patience_ms": 20_000,
                    "send": format!("CONNECT {t} HTTP/1.1\r\nHost: {t}\r\n\r\n{more}") })
        })
        .collect();
    let person = Person::new(Who::User);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (results, outcome) = client(&person, &net, &options, &steps);
    let mut wrong = Vec::new();
    for (number, (name, _, _, reasons)) in rows.iter().enumerate() {
        let status = &results[number]["status"];
        let full = format!("{name}.example.com");
        let attempt =
            outcome.egress().iter().find(|a| a["host"] == full.as_str()).cloned().unwrap_or_default();
        let reason = attempt["reason"].as_str().unwrap_or("none");
        let right =
            if reasons.is_empty() { *status == 200 } else { *status != 200 && reasons.contains(&reason) };
        if !right {
            wrong.push(format!("{name}: {status} {reason}, expected {reasons:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let over_tcp = |q: &Query| q.name == "other-case.example.com" && q.transport == Transport::Tcp;
    assert!(net.dns().queries().iter().any(over_tcp), "the datagram of the forger was believed");
    assert_eq!(net.strays(), [], "a connection was made");
}

/// EGR-4: an answer that changes later changes nothing: one resolution, and only what was verified is dialled.
#[test]
fn a_rebinding_name_is_judged_by_the_answer_that_is_used() {
    let Some(net) = Internet::new() else { return };
    let host = net.https(HOST, |_| Response::ok("once"));
    net.host_service(IpAddr::V4(Ipv4Addr::LOCALHOST), 443);
    let loopback = Answer::Addresses(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    net.dns().set_a(HOST, Answer::Turns(vec![Answer::Addresses(vec![IpAddr::V4(host.v4)]), loopback]));
    net.dns().set_aaaa(HOST, Answer::Addresses(Vec::new()));
    let person = Person::new(Who::User);
    let script = "curl -sS https://pkg.example.com/; curl -sS https://pkg.example.com/ 2>/dev/null; true";
    let outcome = person.sh(["--allow", HOST], script).within(&net).output().expect_out("once");
    assert_eq!(outcome.refusals(), ["address_loopback"], "{outcome}");
    assert_eq!(host.connections(), 1);
    assert_eq!(net.strays(), []);
    let asked = net.dns().queries().iter().filter(|q| q.kind == 1).count();
    assert_eq!(asked, 2, "once for each request, and nothing is kept");
}

/// EGR-8: hosts files and search domains play no part.
#[test]
fn a_hosts_file_changes_nothing() {
    let Some(net) = Internet::new() else { return };
    net.https(HOST, |_| Response::ok("from the name server"));
    net.replace_file("/etc/hosts", b"127.0.0.1 localhost pkg.example.com\n10.0.0.1 other.example.com\n");
    net.replace_file("/etc/resolv.conf", b"search evil.com\noptions ndots:5\nnameserver 45.90.28.53\n");
    let person = Person::new(Who::User);
    let options = ["--allow", HOST, "--allow", "other.example.com"];
    curl(&person, &net, &options, &["https://pkg.example.com/"]).expect_out("from the name server");
    let outcome = curl(&person, &net, &options, &["https://other.example.com/"]);
    assert_eq!(outcome.egress()[0]["reason"], "name_not_found", "{outcome}");
    assert!(net.dns().queries().iter().all(|q| !q.name.ends_with("evil.com")), "{:?}", net.dns().queries());
}

/// EGR-5: what curl calls the server inside TLS is what it asked the proxy for.
#[test]
fn a_server_name_that_is_not_the_requested_name_is_refused() {
    let Some(net) = Internet::new() else { return };
    let host = net.https(HOST, |_| Response::ok("no"));
    let person = Person::new(Who::User);
    // The tunnel leads to the allowed name, TLS and HTTP ask for another one: domain fronting.
    let args =
        ["-k", "--connect-to", "evil.example.com:443:pkg.example.com:443", "https://evil.example.com/"];
    let outcome = curl(&person, &net, &["--allow", HOST], &args);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert_eq!(outcome.refusals(), ["sni_mismatch"], "{outcome}");
    assert_eq!(host.received(), 0, "no byte went out");
}

/// A run without allowed hosts has no way out at all.
#[test]
fn without_allowed_hosts_nothing_is_reached() {
    let Some(net) = Internet::new() else { return };
    let host = net.https(HOST, |_| Response::ok("no"));
    let person = Person::new(Who::User);
    let outcome = curl(&person, &net, &NONE, &["https://pkg.example.com/"]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert_eq!((net.dns().queries().len(), host.connections()), (0, 0));
}
