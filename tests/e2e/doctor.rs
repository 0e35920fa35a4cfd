//! DIA: `anet doctor`.

use std::process::Command;

use serde_json::Value;
use tests::harness;
use tests::installed::write_script;
use tests::internet::Internet;
use tests::person::{Person, Who};

use crate::NONE;

/// DIA-2, and the failures of `anet run` itself.
const CODES: [&str; 13] = [
    "no_bwrap",
    "userns_blocked",
    "userns_unavailable",
    "sandbox_start_failed",
    "netns_failed",
    "seccomp_failed",
    "agent_unsupported",
    "agent_missing",
    "no_api_key",
    "no_api_base",
    "no_model",
    "no_cgroup_limits",
    "platform_unsupported",
];

#[test]
fn the_doctor_is_content_where_a_sandbox_can_run() {
    for who in Who::all() {
        let person = Person::new(*who);
        let outcome = person.anet(["doctor"]).output().expect_code(0);
        assert!(outcome.out().lines().count() > 3, "each check with its sentence: {outcome}");
        assert!(!outcome.stdout.contains(&0x1b), "no colour without a terminal: {outcome}");
    }
}

/// DIA-3: one JSON document on standard output and nothing else there; SBX-7: it says which level holds.
#[test]
fn the_doctor_speaks_json() {
    for who in Who::all() {
        let person = Person::new(*who);
        for args in [["doctor", "--json"], ["--json", "doctor"]] {
            let outcome = person.anet(args).output().expect_code(0);
            let report: Value =
                serde_json::from_slice(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome}"));
            assert_eq!(report["sandbox"]["available"], true, "{outcome}");
            assert!(report["sandbox"]["landlock_abi"].is_u64(), "{outcome}");
            let limits = report["sandbox"]["limits"].as_str();
            assert!(limits == Some("full") || limits == Some("partial"), "LIM-2: {outcome}");
            let warned = report["warnings"].to_string().contains("no_cgroup_limits");
            assert_eq!(warned, limits == Some("partial"), "LIM-2: {outcome}");
        }
    }
}

#[test]
fn every_code_is_explained() {
    let person = Person::new(Who::User);
    let mut seen = std::collections::HashSet::new();
    for code in CODES {
        let outcome = person.anet(["doctor", "--explain", code]).output().expect_code(0);
        assert!(outcome.out().contains(code) && outcome.out().len() > 40, "{outcome}");
        assert!(seen.insert(outcome.out().replace(code, "")), "{code} has another's sentence");
    }
    person.anet(["doctor", "--explain", "no_such_code"]).output().expect_failure_of_anet(125);
}

/// PLT-3: printed on standard output, no file written, and it parses.
#[test]
fn the_apparmor_profile_is_printed() {
    let person = Person::new(Who::User);
    let outcome = person.anet(["doctor", "--apparmor-profile"]).output().expect_code(0);
    let text = outcome.out();
    for part in ["profile anet-bwrap /usr/bin/bwrap", "userns,", "anet-bwrap-unpriv", "audit deny capability"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        text.contains("anet-bwrap//&anet-bwrap-unpriv") || text.contains("&anet-bwrap-unpriv"),
        "stacked: {text}"
    );
    let parser = "/usr/sbin/apparmor_parser";
    if !std::path::Path::new(parser).exists() || !std::path::Path::new("/etc/apparmor.d/abi/4.0").exists() {
        return harness::skip("parsing the AppArmor profile", "no apparmor_parser 4 here");
    }
    let file = person.path("home").join("profile");
    std::fs::write(&file, &text).expect("profile");
    let output = Command::new(parser).args(["-QKS"]).arg(&file).output().expect("apparmor_parser");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// DIA-2: no_bwrap. SEL-2: nothing starts without the sandbox.
#[test]
fn a_missing_bubblewrap_is_named_and_nothing_runs() {
    let Some(net) = Internet::new() else { return };
    net.empty_dir_over("/usr/bin");
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        let outcome = person
            .anet(["run", "--here", "--", "/bin/sh", "-c", "echo > ran"])
            .cwd(&work)
            .within(&net)
            .output();
        assert_eq!(outcome.expect_failure_of_anet(125), "no_bwrap", "{outcome}");
        assert!(!work.join("ran").exists());
        let doctor = person.anet(["doctor", "--json"]).within(&net).output();
        assert_ne!(doctor.code(), 0, "{doctor}");
        let report: Value =
            serde_json::from_slice(&doctor.stdout).unwrap_or_else(|e| panic!("{e}: {doctor}"));
        assert_eq!(
            (&report["sandbox"]["available"], &report["sandbox"]["code"]),
            (&false.into(), &"no_bwrap".into())
        );
    }
}

/// DIA-2: sandbox_start_failed carries bwrap's own message; PLT-2: AppArmor's refusal is told apart.
#[test]
fn a_bubblewrap_that_fails_is_quoted() {
    let cases = [
        ("bwrap: Creating new namespace failed: strange thing", "sandbox_start_failed", "strange thing"),
        ("bwrap: setting up uid map: Permission denied", "userns_blocked", "apparmor_parser"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "userns_blocked", "apparmor_parser"),
    ];
    for (message, code, words) in cases {
        let Some(net) = Internet::new() else { return };
        let fake = format!(
            "#!/bin/sh\ncase \"$1\" in --version) echo 'bubblewrap 0.8.0'; exit 0;; esac\necho '{message}' >&2\nexit 1\n"
        );
        let person = Person::new(Who::User);
        let file = person.path("bwrap");
        write_script(&fake, &file);
        net.bind(&file, "/usr/bin/bwrap");
        let outcome = person.anet(["run", "--", "true"]).within(&net).output();
        assert_eq!(outcome.expect_failure_of_anet(125), code, "{outcome}");
        assert!(outcome.err().contains(words), "{outcome}");
    }
}

/// Everything has help with an example.
#[test]
fn every_command_has_help() {
    let person = Person::new(Who::User);
    for args in [&["--help"][..], &["run", "--help"], &["doctor", "--help"]] {
        let outcome = person.anet(args.iter().copied()).output().expect_code(0);
        assert!(outcome.out().contains("anet "), "{outcome}");
    }
    let version = person.anet(["--version"]).output().expect_code(0);
    assert!(version.out().starts_with("anet "), "{version}");
    let outcome = person.anet(NONE).output();
    assert_ne!(outcome.code(), 0, "no command at all: {outcome}");
}
