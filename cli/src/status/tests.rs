//! The page of `anet status` and its watching.

use std::time::{Duration, SystemTime};

use ipc_proto::control::FromNode;
use supervisor::chain::at_unix_ms;
use unicode_width::UnicodeWidthStr;

use super::*;
use crate::node::fake::{Fake, Life, serves, status, without_bwrap};

/// 2026-03-28T10:00:12Z.
fn now() -> SystemTime {
    at_unix_ms(1_774_692_012_000)
}

fn wide(columns: usize) -> Screen {
    Screen { columns: Some(columns), rows: Some(24), colour: false }
}

fn shown(state: &State, screen: Screen) -> Vec<String> {
    page(state, screen, now()).lines().collect()
}

/// What has to be seen at a glance, whatever the width.
#[test]
fn everything_is_on_the_page_and_fits() {
    let state = status();
    for columns in [40, 80, 200] {
        let lines = shown(&state, wide(columns));
        for line in &lines {
            assert!(line.width() <= columns, "{columns}: {line:?}");
        }
        let text = lines.join("\n");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "anet 0.1.0",
            "3 h 12 min",
            "killed by signal 9",
            "available",
            "12 s ago",
            "partial",
            "version 7",
            "claude",
            "direct",
            "7 of 20 runs",
            "2026-03-28",
            "2026-03-29T00:00:00+01:00",
            "in 12 h 59 min",
            "3 tasks",
            "1234 records",
            "1200",
            "pkg.example.com",
            "no_cgroup_limits",
            "alice@",
            "r01k9w3c5d8e2f4g6",
            "1m",
            "supervisor",
            "101",
        ] {
            assert!(words.contains(part), "{columns}: {part}\n{text}");
        }
    }
    assert!(shown(&state, wide(80)).len() < 24, "one screen of 80 columns: {:?}", shown(&state, wide(80)));
    let mut service = state.clone();
    service.processes[1].uid = 990;
    let text = shown(&service, Screen::PLAIN).join("\n");
    assert!(text.contains("guard 100 (user 1000), supervisor 101 (user 990)"), "{text}");
    // Nothing is cut where it is no terminal.
    let plain = shown(&state, Screen::PLAIN).join("\n");
    assert!(!plain.contains('…') && !plain.contains('\x1b'), "{plain}");
}

/// DIA-2: a sandbox that cannot run is named with its code and sentence.
#[test]
fn an_unavailable_sandbox_is_said() {
    let state = State { sandbox: without_bwrap(), ..status() };
    let text = shown(&state, wide(80)).join("\n");
    assert!(text.contains("UNAVAILABLE: no_bwrap: bubblewrap is not installed"), "{text}");
    let coloured = shown(&state, Screen { colour: true, ..wide(80) }).join("\n");
    assert!(coloured.contains("\x1b[31m") && coloured.contains("\x1b[0m"), "{coloured:?}");
    let mut unknown = without_bwrap();
    unknown.code = None;
    let text = shown(&State { sandbox: unknown, ..status() }, wide(80)).join("\n");
    assert!(text.contains("not known yet"), "{text}");
}

/// USE-1: what peers, agents or another node's words hold never steers a terminal, nor breaks the page.
#[test]
fn hostile_words_are_tame() {
    let hostile =
        "\x1b[2J\x1b]0;owned\x07\u{202e}\u{9b}31m\r\nroot@host# \u{200f}日本語日本語日本語日本語日本語日本語";
    let mut state = status();
    state.version = hostile.to_owned();
    state.mode = hostile.to_owned();
    state.last_end = Some(hostile.repeat(20));
    state.sandbox = without_bwrap();
    state.sandbox.code = Some(hostile.to_owned());
    state.sandbox.sentence = Some(hostile.to_owned());
    state.sandbox.limits = hostile.to_owned();
    state.day.ends = hostile.to_owned();
    state.day.peers[0].aid = hostile.to_owned();
    state.runs[0].run = hostile.to_owned();
    state.runs[0].peer = hostile.to_owned();
    state.runs[0].started = hostile.to_owned();
    state.processes[0].name = hostile.to_owned();
    state.egress_allow = vec![hostile.to_owned(); 50];
    state.warnings[0].sentence = hostile.to_owned();
    for columns in [20, 40, 80, 200] {
        for line in shown(&state, wide(columns)) {
            assert!(!line.chars().any(supervisor::error::steers), "{line:?}");
            // Tables keep what cannot be spared; the terminal cuts those.
            assert!(columns < 40 || line.width() <= columns, "{columns}: {line:?}");
        }
    }
    let document = json(&state);
    assert!(!document.trim_end().chars().any(supervisor::error::steers));
    let back: State = serde_json::from_str(&document).unwrap();
    assert_eq!(back, state, "the escapes mean the same");
}

/// CLI: the document has the fields of the contract.
#[test]
fn the_document_is_the_contracts() {
    let document: serde_json::Value = serde_json::from_str(&json(&status())).unwrap();
    assert_eq!(document["mode"], "user");
    assert!(document["uptime_seconds"].is_u64());
    for (path, field) in [
        ("/sandbox", "available"),
        ("/sandbox", "code"),
        ("/sandbox", "sentence"),
        ("/sandbox", "limits"),
        ("/sandbox", "landlock_abi"),
        ("/sandbox", "checked"),
        ("/processes/0", "name"),
        ("/processes/0", "pid"),
        ("/processes/0", "uid"),
        ("/runs/0", "run"),
        ("/runs/0", "interaction"),
        ("/runs/0", "peer"),
        ("/runs/0", "state"),
        ("/runs/0", "started"),
        ("/day", "date"),
        ("/day", "ends"),
        ("/day/runs", "used"),
        ("/day/runs", "limit"),
        ("/day/peers/0", "aid"),
        ("/day/peers/0", "used"),
        ("/day/peers/0", "limit"),
        ("/warnings/0", "code"),
        ("/warnings/0", "sentence"),
        ("", "egress_allow"),
        ("", "version"),
    ] {
        assert!(document.pointer(path).unwrap().get(field).is_some(), "{path}/{field}");
    }
}

/// PRV-6: a watched node that goes away is said to be away, and shown again when it is back.
#[test]
fn a_watch_lives_over_a_restart() {
    let gives = |caller: &crate::node::fake::Caller| {
        caller.greet();
        caller.hear();
        caller.give(&FromNode::Document, &status());
    };
    let node = Fake::start(vec![serves(gives), Life::Away(Duration::from_millis(300)), serves(gives)]);
    let mut watched = Watched::new(node.places()).unwrap();
    let mut seen = vec![matches!(watched.look(), Ok(Seen::There(state)) if *state == status())];
    let end = Instant::now() + Duration::from_secs(20);
    while seen.len() < 3 && Instant::now() < end {
        let there = match watched.look().unwrap() {
            Seen::There(_) => true,
            Seen::Away(_) => false,
        };
        if seen.last() != Some(&there) {
            seen.push(there);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(seen, [true, false, true]);
    node.join();
    // It counts anew each time.
    let Seen::Away(time) = watched.look().unwrap() else { panic!("nobody is there") };
    assert!(time < Duration::from_millis(100), "{time:?}");
}

/// A page that is taller than the terminal is cut, so that nothing scrolls away.
#[test]
fn a_small_window_gets_a_part() {
    let screen = Screen { columns: Some(40), rows: Some(6), colour: false };
    let text = drawn("title", Some((&status(), now())), screen);
    assert_eq!(text.matches('\n').count(), 5, "{text:?}");
    assert!(text.starts_with(HOME) && text.ends_with(END_OF_SCREEN) && text.contains("more"), "{text:?}");
    let whole = drawn("title", Some((&status(), now())), Screen { rows: Some(200), ..screen });
    assert!(whole.contains("supervisor") && !whole.contains("window taller"), "{whole:?}");
}
