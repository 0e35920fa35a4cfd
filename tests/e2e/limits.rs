//! LIM-1: each limit holds exactly: the value passes, one more is refused, the run goes on and the refusal names the
//! limit. BUD: budgets end the run.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tests::harness;
use tests::installed::installed;
use tests::internet::{Host, Internet};
use tests::person::{Outcome, Person, Who};

use crate::egress::client;
use crate::{NONE, marker};

const HOST: &str = "raw.example.com";
const MIB: u64 = 1 << 20;

/// What a TLS server says first: without it the proxy lets nothing more out than the client's first message.
fn server_hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([0x11; 32]);
    body.push(32);
    body.extend([0; 32]);
    body.extend([0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4]);
    let mut message = vec![2, 0, 0, u8::try_from(body.len()).expect("short")];
    message.extend(body);
    let mut record = vec![22, 3, 3, 0, u8::try_from(message.len()).expect("short")];
    record.extend(message);
    record
}

/// A host that answers as a TLS server, and then takes everything.
fn sink(net: &Internet) -> Host {
    net.raw(HOST, |mut raw| {
        let mut buffer = [0; 65536];
        let _ = raw.read(&mut buffer);
        let _ = raw.write_all(&server_hello());
        while matches!(raw.read(&mut buffer), Ok(1..)) {}
    })
}

/// A host that sends so many bytes, its first message included.
fn source(net: &Internet, bytes: u64) -> Host {
    net.raw(HOST, move |mut raw| {
        let mut buffer = [0; 65536];
        let _ = raw.read(&mut buffer);
        let block = [0x17; 65536];
        let hello = server_hello();
        let _ = raw.write_all(&hello);
        let mut left = bytes - hello.len() as u64;
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
            if raw.write_all(&block[..length]).is_err() {
                return;
            }
            left -= length as u64;
        }
        while matches!(raw.read(&mut buffer), Ok(1..)) {}
    })
}

/// The length of the client's first message: part of what is sent.
fn hello_length(person: &Person, net: &Internet) -> u64 {
    let steps = json!([{ "op": "tunnel", "host": HOST }]);
    let (results, _) = client(person, net, &["--allow", HOST], &steps);
    results[0]["hello"].as_u64().expect("a length")
}

fn reasons(outcome: &Outcome) -> Vec<&str> {
    outcome.egress().iter().filter_map(|attempt| attempt["reason"].as_str()).collect()
}

fn used(outcome: &Outcome, limit: &str) -> u64 {
    outcome.record()["limits"][limit]["used"]
        .as_u64()
        .unwrap_or_else(|| panic!("no limit {limit}: {outcome}"))
}

fn sent_limit(options: &[&str], limit: u64) {
    let Some(net) = Internet::new() else { return };
    for who in Who::all() {
        let person = Person::new(*who);
        let host = sink(&net);
        let hello = hello_length(&person, &net);
        let options = [&["--allow", HOST], options].concat();
        // One tunnel takes all of it; and what is left for the next one is nothing.
        for more in [0, 1] {
            let start = host.received();
            let steps = json!([
                { "op": "tunnel", "host": HOST, "greeted": true, "send": limit - hello + more, "receive": 1, "patience_ms": 3_000 },
                { "op": "sleep", "ms": 100 },
                { "op": "raw", "send": format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n"), "patience_ms": 2_000 },
            ]);
            let (_, outcome) = client(&person, &net, &options, &steps);
            assert_eq!(host.wait_received(start + limit) - start, limit, "+{more}: to the byte: {outcome}");
            assert_eq!(used(&outcome, "tunnel_sent"), limit, "+{more}: {outcome}");
            let refused = reasons(&outcome).contains(&"limit_tunnel_sent");
            // The last step finds nothing left in either case.
            assert!(refused || more == 0, "+{more}: the limit is named: {outcome}");
        }
    }
}

#[test]
fn bytes_sent_are_limited_to_the_byte() {
    sent_limit(&["--limit", "tunnel_sent=64KiB"], 64 * 1024);
}

/// A limit beyond one lease, at no multiple of anything.
#[test]
fn bytes_sent_are_limited_to_the_byte_across_leases() {
    sent_limit(&["--limit", "tunnel_sent=3KiB"], 3 * 1024);
}

/// LIM, the value for untrusted runs. The budget of the same size is raised: it would end the run.
#[test]
fn untrusted_runs_send_32_mib() {
    sent_limit(&["--untrusted", "--budget", "bytes_out=64MiB"], 32 * MIB);
}

fn received_limit(options: &[&str], limit: u64) {
    let Some(net) = Internet::new() else { return };
    let person = Person::new(Who::User);
    let options = [&["--allow", HOST], options].concat();
    for more in [0, 1] {
        source(&net, limit + more);
        let steps = json!([
            { "op": "tunnel", "host": HOST, "receive": limit + 1, "patience_ms": 3_000 },
        ]);
        let (results, outcome) = client(&person, &net, &options, &steps);
        assert_eq!(results[0]["received"], limit, "+{more}: to the byte: {outcome}");
        assert_eq!(used(&outcome, "tunnel_received"), limit, "+{more}: {outcome}");
        if more == 1 {
            assert!(reasons(&outcome).contains(&"limit_tunnel_received"), "the limit is named: {outcome}");
            assert_ne!(results[0]["end"], "silence", "the tunnel is closed: {outcome}");
        } else {
            assert!(!reasons(&outcome).contains(&"limit_tunnel_received"), "the value passes: {outcome}");
        }
    }
}

#[test]
fn bytes_received_are_limited_to_the_byte() {
    received_limit(&["--limit", "tunnel_received=64KiB"], 64 * 1024);
}

/// LIM, the value for untrusted runs.
#[test]
fn untrusted_runs_receive_512_mib() {
    received_limit(&["--untrusted"], 512 * MIB);
}

/// LIM-1: the 17th open tunnel.
#[test]
fn tunnels_open_at_once_are_limited() {
    let Some(net) = Internet::new() else { return };
    sink(&net);
    for (options, limit) in [(&["--untrusted"][..], 16), (&["--limit", "tunnels_open=3"], 3)] {
        let person = Person::new(Who::User);
        let steps = json!([
            { "op": "tunnels", "count": limit, "host": HOST, "hold": true },
            { "op": "tunnel", "host": HOST },
            { "op": "release" },
            { "op": "tunnel", "host": HOST },
        ]);
        let (results, outcome) = client(&person, &net, &[&["--allow", HOST], options].concat(), &steps);
        assert!(results[0].as_array().expect("a list").iter().all(|t| t["status"] == 200), "{outcome}");
        assert_eq!(results[1]["status"], 403, "one more: {outcome}");
        assert!(
            results[1]["body"].as_str().is_some_and(|b| b.starts_with("anet:") && b.contains("tunnels_open"))
        );
        assert_eq!(results[3]["status"], 200, "the run goes on: {outcome}");
        assert_eq!(reasons(&outcome).iter().filter(|r| **r == "limit_tunnels_open").count(), 1, "{outcome}");
        assert_eq!(used(&outcome, "tunnels_open"), limit, "{outcome}");
    }
}

/// LIM-1: the 257th tunnel.
#[test]
fn tunnels_in_all_are_limited() {
    let Some(net) = Internet::new() else { return };
    sink(&net);
    for (options, limit) in [(&["--untrusted"][..], 256), (&["--limit", "tunnels_total=3"], 3)] {
        let person = Person::new(Who::User);
        let steps = json!([
            { "op": "tunnels", "count": limit, "host": HOST },
            { "op": "tunnel", "host": HOST },
        ]);
        let (results, outcome) = client(&person, &net, &[&["--allow", HOST], options].concat(), &steps);
        let statuses: Vec<&Value> =
            results[0].as_array().expect("a list").iter().map(|t| &t["status"]).collect();
        assert!(statuses.iter().all(|status| **status == 200), "{statuses:?}");
        assert_eq!(results[1]["status"], 403, "one more");
        assert!(results[1]["body"].as_str().is_some_and(|b| b.contains("tunnels_total")), "{}", results[1]);
        assert_eq!(reasons(&outcome).last(), Some(&"limit_tunnels_total"));
        assert_eq!(used(&outcome, "tunnels_total"), limit);
    }
}

/// LIM-1: the 33rd connection.
#[test]
fn connections_to_the_endpoint_are_limited() {
    let Some(net) = Internet::new() else { return };
    sink(&net);
    for (options, limit) in [(&["--untrusted"][..], 32), (&["--limit", "endpoint_connections=3"], 3)] {
        let person = Person::new(Who::User);
        let steps = json!([
            { "op": "connections", "count": limit + 1 },
            { "op": "release" },
            { "op": "tunnel", "host": HOST },
        ]);
        let (results, outcome) = client(&person, &net, &[&["--allow", HOST], options].concat(), &steps);
        let states = results[0].as_array().expect("a list");
        let waiting = states.iter().filter(|s| s["state"] == "waiting").count();
        assert_eq!(waiting as u64, limit, "{states:?}");
        assert!(states.last().expect("one")["state"] != "waiting", "the last one is too many: {states:?}");
        assert_eq!(results[2]["status"], 200, "the run goes on: {outcome}");
        assert!(reasons(&outcome).contains(&"limit_endpoint_connections"), "{outcome}");
        assert_eq!(used(&outcome, "endpoint_connections"), limit, "{outcome}");
    }
}

/// LIM-1: growth ends the run, wherever it grows; looked at every second.
#[test]
fn growth_ends_the_run() {
    let program = installed().probe();
    let program = program.to_str().expect("text");
    for who in Who::all() {
        let person = Person::new(*who);
        for place in ["$PWD", "$HOME", "$TMPDIR"] {
            let fill = |mib: u32| {
                let options = ["--limit", "growth=16MiB", "--ro", program];
                person.sh(options, &format!("cd {place} && exec {program} fill_disk {mib}")).output()
            };
            fill(12).expect_code(0);
            let outcome = fill(40).expect_code(123);
            assert_eq!(outcome.record()["exit"], json!({ "limit": "growth" }), "{outcome}");
            assert_eq!(outcome.record()["limits"]["growth"]["limit"], 16 * MIB);
            assert!(used(&outcome, "growth") > 16 * MIB, "{outcome}");
            assert!(outcome.took < Duration::from_secs(15), "{outcome}");
        }
    }
}

/// What was there before is no growth; what a run removes and makes again is none either.
#[test]
fn only_growth_counts() {
    let person = Person::new(Who::User);
    let work = person.work_dir("work");
    person.write_work(&work.join("big"), vec![7; 20 << 20]);
    let options = ["--limit", "growth=16MiB", "--work", work.to_str().expect("text")];
    let script = "for i in 1 2 3 4 5; do head -c 8000000 /dev/urandom > f; sleep 0.5; rm f; done";
    person.sh(options, script).output().expect_code(0);
}

/// A file without a name takes space too.
#[test]
fn deleted_files_that_are_held_open_count() {
    let person = Person::new(Who::User);
    let script = "exec 9> f; rm f; head -c 40000000 /dev/zero >&9; sleep 5; echo survived";
    let outcome = person.sh(["--limit", "growth=16MiB"], script).output().expect_code(123);
    assert_eq!(outcome.record()["exit"], json!({ "limit": "growth" }), "{outcome}");
}

/// LIM-2: where there is no control group, the other limits hold and the warning says so.
#[test]
fn memory_and_tasks_are_limited_or_the_warning_says_not() {
    let program = installed().probe();
    let program = program.to_str().expect("text");
    for who in Who::all() {
        let person = Person::new(*who);
        let limits = ["--limit", "memory=128MiB", "--limit", "tasks=40", "--ro", program];
        let outcome = person.run(limits, [program, "fork_many", "10"]).output().expect_code(0);
        let said = |text: &str| text.contains("no_cgroup_limits");
        let warned = said(&outcome.err()) || said(&outcome.record().to_string());
        if warned {
            assert!(said(&outcome.record()["warnings"].to_string()) || said(&outcome.err()), "{outcome}");
            harness::skip(
                "memory and tasks of a run",
                "no control group v2 that anet may use here (no_cgroup_limits)",
            );
            continue;
        }
        assert!(
            Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
            "no warning, and no control group: {outcome}"
        );
        let outcome = person.run(limits, [program, "fork_many", "60"]).output().expect_code(1);
        assert!(outcome.out().contains("Resource temporarily unavailable"), "EAGAIN: {outcome}");
        let outcome = person.run(limits, [program, "memory", "512"]).output().expect_code(123);
        assert_eq!(outcome.record()["exit"], json!({ "limit": "memory" }), "{outcome}");
    }
}

/// BUD-4: exhaustion ends the run and names the dimension; BUD-2: not a byte too many.
#[test]
fn an_exhausted_budget_ends_the_run() {
    let Some(net) = Internet::new() else { return };
    let host = sink(&net);
    let program = installed().client();
    let program = program.to_str().expect("text");
    for who in Who::all() {
        let person = Person::new(*who);
        let start = host.received();
        let steps = json!([
            { "op": "tunnel", "host": HOST, "greeted": true, "send": 200_000, "receive": 1, "patience_ms": 10_000 },
            { "op": "sleep", "ms": 60_000 },
        ]);
        let options = ["--allow", HOST, "--budget", "bytes_out=100KiB", "--ro", program];
        let outcome =
            person.run(options, [program, &steps.to_string()]).within(&net).output().expect_code(123);
        assert_eq!(outcome.record()["exit"], json!({ "budget": "bytes_out" }), "{outcome}");
        assert!(host.received() - start <= 100 * 1024, "{} bytes: {outcome}", host.received() - start);
        assert!(outcome.took < Duration::from_secs(20), "{outcome}");
    }
}

/// BUD-1: destinations are distinct ones.
#[test]
fn destinations_are_budgeted() {
    let Some(net) = Internet::new() else { return };
    let names = ["a.example.com", "b.example.com", "c.example.com"];
    for name in names {
        net.https(name, |_| tests::internet::Response::ok("x"));
    }
    let person = Person::new(Who::User);
    let allow = names.iter().flat_map(|name| ["--allow", name]);
    let options: Vec<&str> = allow.chain(["--budget", "destinations=2"]).collect();
    let fetch = |name: &str| format!("curl -sS -o /dev/null https://{name}/;");
    let within: String = [0, 0, 1, 1, 0].map(|n: usize| fetch(names[n])).concat();
    let outcome = person.sh(&options, &(within.clone() + "true")).within(&net).output().expect_code(0);
    assert_eq!(outcome.record()["budget"]["destinations"], json!({ "limit": 2, "used": 2 }), "{outcome}");
    let asked = net.dns().asked("c.example.com");
    let outcome =
        person.sh(&options, &(within + &fetch(names[2]) + "sleep 60")).within(&net).output().expect_code(123);
    assert_eq!(outcome.record()["exit"], json!({ "budget": "destinations" }), "{outcome}");
    assert_eq!(net.dns().asked("c.example.com"), asked, "no debit, no query");
}

/// BUD-1: the window runs from the start of the run. CLI.md: a budget that ended it gives 123.
#[test]
fn the_window_is_budgeted() {
    let person = Person::new(Who::User);
    let outcome = person.run(["--budget", "window=1s"], ["sleep", &marker()]).output().expect_code(123);
    assert_eq!(outcome.record()["exit"], json!({ "budget": "window" }), "{outcome}");
}

/// LIM: the wall clock holds for a run that is busy refusing.
#[test]
fn a_fork_bomb_and_a_full_disk_end_with_the_clock() {
    let program = installed().probe();
    let program = program.to_str().expect("text");
    let person = Person::new(Who::User);
    let script = format!(
        "{program} fork_many 400 & {program} threads_many 400 & {program} fill_disk_sparse_names 20000; sleep 60"
    );
    let outcome = person.sh(["--timeout", "4s", "--ro", program], &script).output().expect_code(124);
    assert!(outcome.took < Duration::from_secs(20), "{outcome}");
    person.run(NONE, ["true"]).output().expect_code(0);
}
