//! How `anet run` ends: CLI.md's exit statuses, and what the record says of each.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use tests::person::{Person, Who};
use tests::processes;

use crate::{NONE, marker};

/// A grace for processes that are ending.
const SOON: Duration = Duration::from_secs(2);

#[test]
fn a_command_ends_with_its_own_status() {
    for who in Who::all() {
        let person = Person::new(*who);
        for status in [0, 1, 7, 42, 123, 124, 125, 126, 127, 255] {
            let outcome = person.sh(NONE, &format!("exit {status}")).output().expect_code(status);
            assert_eq!(outcome.record()["exit"], json!({ "status": status }), "{outcome}");
            assert_eq!(outcome.err(), "", "anet is silent about a command's own status");
        }
    }
}

#[test]
fn a_command_ended_by_a_signal_gives_128_and_its_number() {
    for who in Who::all() {
        let person = Person::new(*who);
        for (name, number) in [("KILL", 9), ("TERM", 15), ("SEGV", 11), ("INT", 2)] {
            let outcome = person.sh(NONE, &format!("kill -{name} $$")).output().expect_code(128 + number);
            assert_eq!(outcome.record()["exit"], json!({ "signal": number }), "{outcome}");
        }
    }
}

/// LIM: wall clock; SBX-5: nothing is left.
#[test]
fn time_that_is_up_gives_124_and_leaves_no_process() {
    for who in Who::all() {
        let person = Person::new(*who);
        let marker = marker();
        let script = format!("trap '' TERM INT HUP; setsid sleep {marker} & sleep {marker}; sleep {marker}");
        let outcome = person.sh(["--timeout", "1s"], &script).output().expect_code(124);
        assert!(outcome.took >= Duration::from_secs(1) && outcome.took < Duration::from_secs(6), "{outcome}");
        assert_eq!(outcome.record()["exit"], json!({ "limit": "wall_clock" }), "{outcome}");
        assert_eq!(processes::wait_gone(SOON, || processes::with_argument(&marker)), [], "survivors");
    }
}

#[test]
fn a_missing_program_gives_127_and_one_that_is_none_126() {
    for who in Who::all() {
        let person = Person::new(*who);
        for program in ["no-such-program-anywhere", "/usr/bin/no-such-program-anywhere"] {
            let outcome = person.run(NONE, [program]).output().expect_code(127);
            assert!(
                outcome.err().lines().count() == 1 && outcome.err().contains(program),
                "as a shell: {outcome}"
            );
        }
        let work = person.work_dir("work");
        person.write_work(&work.join("data"), "no program");
        let work = work.to_str().expect("text");
        for program in [format!("{work}/data"), work.to_owned()] {
            let outcome = person.run(["--work", work], [&program]).output().expect_code(126);
            assert!(
                outcome.err().lines().count() == 1 && outcome.err().contains(&program),
                "as a shell: {outcome}"
            );
        }
    }
}

#[test]
fn a_bad_option_gives_125_and_one_line() {
    let person = Person::new(Who::User);
    let cases: [&[&str]; 18] = [
        &["--no-such-option", "--", "true"],
        &["--timeout", "soon", "--", "true"],
        &["--timeout", "-1s", "--", "true"],
        &["--timeout", "5", "--", "true"],
        &["--limit", "no_such_limit=1", "--", "true"],
        &["--limit", "tunnels_open", "--", "true"],
        &["--limit", "tunnels_open=many", "--", "true"],
        &["--limit", "growth=99999999999999999999GiB", "--", "true"],
        &["--limit", "growth=5MB", "--", "true"],
        &["--budget", "no_such_budget=1", "--", "true"],
        &["--tty", "perhaps", "--", "true"],
        &["--env", "=x", "--", "true"],
        &["--env", "", "--", "true"],
        &["--here", "--work", "/tmp", "--", "true"],
        &["--json", "--", "true"],
        &["--"],
        &[],
        &["--work"],
    ];
    for case in cases {
        let outcome = person.anet(["run"].iter().chain(case).copied()).output();
        assert_eq!(outcome.expect_failure_of_anet(125), "bad_option", "{case:?}: {outcome}");
    }
}

/// EGR-2: an entry is a whole lower-case public host name.
#[test]
fn a_bad_host_gives_125_and_one_line() {
    let person = Person::new(Who::User);
    let long_label = format!("{}.example.com", "a".repeat(64));
    let long_name = format!("{}example.com", "a.".repeat(125));
    let hosts = [
        "*.example.com",
        "*",
        "PKG.example.com",
        "pkg.example.com.",
        "pkg.example.com:443",
        "https://pkg.example.com",
        "pkg.example.com/",
        "127.0.0.1",
        "1.1",
        "0x7f000001",
        "2130706433",
        "[::1]",
        "::1",
        "localhost",
        "sub.localhost",
        "printer.local",
        "db.internal",
        "nas.lan",
        "router.home.arpa",
        "example",
        "",
        "a..example.com",
        "-a.example.com",
        "a-.example.com",
        "a_b.example.com",
        "user@example.com",
        "exa mple.com",
        "pkg.example.com\n",
        "bücher.example.com",
        "xn--a.example.com",
        "xn--\u{e9}.example.com",
        "api.anthropic.com",
        "api.openai.com",
        &long_label,
        &long_name,
    ];
    for host in hosts {
        let outcome = person.anet(["run", &format!("--allow={host}"), "--", "true"]).output();
        assert_eq!(outcome.expect_failure_of_anet(125), "bad_host", "{host:?}: {outcome}");
    }
    let many: Vec<String> =
        (0..65).flat_map(|n| ["--allow".to_owned(), format!("h{n}.example.com")]).collect();
    let call = |hosts: usize| {
        let hosts = many.iter().take(2 * hosts).map(String::as_str);
        person.anet(["run"].into_iter().chain(hosts).chain(["--", "true"])).output()
    };
    call(64).expect_code(0);
    assert_eq!(call(65).expect_failure_of_anet(125), "bad_host");
}

/// CLI.md: a configuration that does not parse, or has an unknown key, names file, line and key, and nothing starts.
#[test]
fn an_unreadable_configuration_gives_125_and_one_line() {
    for who in Who::all() {
        let person = Person::new(*who);
        let dir = person.path("config").join("anet");
        fs::create_dir(&dir).expect("directory");
        person.give(&dir);
        let file = dir.join("anet.toml");
        let run = || person.anet(["run", "--", "true"]).output();
        let cases = [
            ("trust = [\n", "anet.toml", ""),
            ("\n\nno_such_key = 1\n", "3", "no_such_key"),
            ("[auto_reply]\nbackend = \"exec\"\nuntrustd = \"off\"\n", "3", "untrustd"),
            ("[auto_reply]\nuntrusted = \"perhaps\"\n", "2", "untrusted"),
            ("[auto_reply.sandbox]\nruns_per_day = \"many\"\n", "2", "runs_per_day"),
            ("[auto_reply.sandbox.limits]\nno_such_limit = 1\n", "2", "no_such_limit"),
        ];
        for (text, line, key) in cases {
            fs::write(&file, text).expect("configuration");
            person.give(&file);
            let outcome = run();
            assert_eq!(outcome.expect_failure_of_anet(125), "bad_config", "{text}: {outcome}");
            for word in ["anet.toml", line, key] {
                assert!(outcome.err().contains(word), "{word:?} for {text:?}: {outcome}");
            }
        }
        fs::write(&file, "trust = []\n").expect("configuration");
        run().expect_code(0);
        fs::write(&file, b"trust = [\"\xff\"]\n").expect("configuration");
        assert_eq!(run().expect_failure_of_anet(125), "bad_config");
        if *who == Who::User {
            fs::write(&file, "").expect("configuration");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("mode");
            assert_eq!(run().expect_failure_of_anet(125), "bad_config", "a file that cannot be opened");
        }
        fs::remove_file(&file).expect("remove");
        fs::create_dir(&file).expect("a directory in its place");
        assert_eq!(run().expect_failure_of_anet(125), "bad_config", "a directory");
        let missing = person.anet(["--config", "/nowhere/anet.toml", "run", "--", "true"]).output();
        assert_eq!(missing.expect_failure_of_anet(125), "bad_config", "a named file that is not there");
    }
}

/// Options of later versions are refused, never ignored.
#[test]
fn what_this_version_does_not_have_says_so() {
    let person = Person::new(Who::User);
    let settings = person.path("home").join("settings.json");
    fs::write(&settings, "{}").expect("settings");
    let settings = settings.to_str().expect("text");
    let cases: [&[&str]; 2] = [&["--settings", settings, "--", "true"], &["--ask", "--", "true"]];
    for case in cases {
        let outcome = person.anet(["run"].iter().chain(case).copied()).output();
        assert_eq!(outcome.expect_failure_of_anet(125), "not_in_this_version", "{case:?}: {outcome}");
    }
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    for who in Who::all() {
        let person = Person::new(*who);
        let marker = marker();
        // Double fork, a session of its own, signals ignored: a daemon.
        let script = format!("(setsid sh -c \"trap '' TERM HUP INT; sleep {marker}\" &) ; sleep 0.2; exit 3");
        person.sh(NONE, &script).output().expect_code(3);
        assert_eq!(processes::wait_gone(SOON, || processes::with_argument(&marker)), [], "survivors");
    }
}

/// SBX-8: without a terminal, signals to anet are passed on.
#[test]
fn a_signal_to_anet_reaches_the_command() {
    for who in Who::all() {
        let person = Person::new(*who);
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            let work = person.work_dir(&format!("work-{signal}"));
            let marker = marker();
            let script = format!(
                "trap 'echo {signal} > got; exit 33' TERM INT HUP; touch ready; \
                 while :; do sleep {marker} & wait; done"
            );
            let options = ["--work", work.to_str().expect("text")];
            let mut child = person.sh(options, &script).spawn();
            let ready = || if work.join("ready").exists() { processes::all() } else { Vec::new() };
            processes::wait_for(Duration::from_secs(20), ready);
            processes::signal(child.id(), signal);
            let status = child.wait().expect("wait");
            assert_eq!(status.code(), Some(33), "{signal} as {who:?}");
            assert!(work.join("got").exists(), "{signal} reached the command");
            assert_eq!(processes::wait_gone(SOON, || processes::with_argument(&marker)), [], "survivors");
        }
    }
}

/// SBX-8: ... then after a grace the run is ended.
#[test]
fn a_command_that_ignores_the_signal_is_ended_after_a_grace() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        let marker = marker();
        let script = format!("trap '' TERM INT HUP; touch ready; while :; do sleep {marker}; done");
        let mut child = person.sh(["--work", work.to_str().expect("text")], &script).spawn();
        let ready = || if work.join("ready").exists() { processes::all() } else { Vec::new() };
        processes::wait_for(Duration::from_secs(20), ready);
        let started = std::time::Instant::now();
        processes::signal(child.id(), Signal::SIGTERM);
        child.wait().expect("wait");
        assert!(started.elapsed() < Duration::from_secs(30), "ended after {:?}", started.elapsed());
        assert_eq!(processes::wait_gone(SOON, || processes::with_argument(&marker)), [], "survivors");
    }
}
