//! SBX-6: the environment is built from nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tests::harness::{self, Harness};
use tests::installed::{copy_program, installed};
use tests::person::{Call, Person, Who};
use tests::processes;

use crate::{NONE, marker};

/// What CLI.md and SBX-6 allow, besides LC_*.
const NAMES: [&str; 9] =
    ["ANET_RUN", "HOME", "TMPDIR", "PATH", "LANG", "LANGUAGE", "TERM", "HTTPS_PROXY", "https_proxy"];

fn variables(call: Call<'_>) -> BTreeMap<String, String> {
    let outcome = call.output().expect_code(0);
    let text = String::from_utf8(outcome.stdout).expect("text");
    let entries = text.split_terminator('\0').map(|entry| entry.split_once('=').expect("a variable"));
    entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn only_the_promised_variables_are_there() {
    for who in Who::all() {
        let person = Person::new(*who);
        let call = person.run(["--allow", "pkg.example.com"], ["env", "-0"]);
        let call = call.env("LC_ALL", "C.UTF-8").env("TERM", "xterm");
        let call = call.env("ANTHROPIC_API_KEY", "sk-secret").env("HTTP_PROXY", "http://10.0.0.1:3128");
        let call =
            call.env("HTTPS_PROXY", "http://10.0.0.1:3128").env("LD_PRELOAD", "").env("SSH_AUTH_SOCK", "/x");
        let found =
            variables(call.env("NO_PROXY", "*").env("ALL_PROXY", "socks5://10.0.0.1").env("USER", "x"));
        let strange: BTreeSet<_> =
            found.keys().filter(|name| !NAMES.contains(&name.as_str()) && !name.starts_with("LC_")).collect();
        assert_eq!(strange, BTreeSet::new(), "nothing else of the environment enters");
        for name in ["ANET_RUN", "HOME", "TMPDIR", "PATH", "HTTPS_PROXY", "https_proxy"] {
            assert!(found.contains_key(name), "{name} in {found:?}");
        }
        assert_eq!(found.get("HTTPS_PROXY"), found.get("https_proxy"));
        assert!(found["HTTPS_PROXY"].starts_with("http://127.0.0.1:"), "{found:?}");
        assert_eq!(found.get("LC_ALL").map(String::as_str), Some("C.UTF-8"));
        assert!(
            !found.values().any(|value| value.contains("secret") || value.contains("10.0.0.1")),
            "{found:?}"
        );
    }
}

#[test]
fn named_variables_enter() {
    let person = Person::new(Who::User);
    let options = ["--env", "TAKEN", "--env", "GIVEN=a=b c", "--env", "EMPTY="];
    let found = variables(person.run(options, ["env", "-0"]).env("TAKEN", "taken").env("OTHER", "other"));
    assert_eq!(found.get("TAKEN").map(String::as_str), Some("taken"));
    assert_eq!(found.get("GIVEN").map(String::as_str), Some("a=b c"));
    assert_eq!(found.get("EMPTY").map(String::as_str), Some(""));
    assert_eq!(found.get("OTHER"), None);
    // A name that was mistyped is told, not passed over.
    let absent = person.anet(["run", "--env", "ABSENT", "--", "true"]).output();
    assert_eq!(absent.expect_failure_of_anet(125), "bad_option", "{absent}");
}

#[test]
fn each_run_has_a_name_of_its_own() {
    let person = Person::new(Who::User);
    let name = || person.run(NONE, ["sh", "-c", "echo $ANET_RUN"]).output().expect_code(0);
    let (one, two) = (name(), name());
    assert_ne!(one.out(), two.out());
    assert_eq!(one.record()["run"], one.out());
}

/// The operator's variables are in no process that the run can read: not in bwrap's, not in process 1.
#[test]
fn a_secret_of_the_caller_is_in_no_process_that_the_run_sees() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        copy_program(&installed().probe(), &work.join("probe"));
        let probe = work.join("probe");
        // Outside, the same search finds it.
        let mut outside = person.command(&probe);
        outside.args(["find_secret", "canary-", "5a17"]).env("MY_SECRET", "canary-5a17");
        assert!(outside.status().expect("probe").success(), "the search itself works");
        let command = [probe.to_str().expect("text"), "find_secret", "canary-", "5a17"];
        let call = person.run(["--work", work.to_str().expect("text")], command);
        let outcome = call.env("MY_SECRET", "canary-5a17").output();
        outcome.expect_code(1);
    }
}

/// Nothing in arguments: a value that a variable carries in is in no command line of the machine.
#[test]
fn a_passed_value_stands_in_no_argument_list() {
    for who in Who::all() {
        let person = Person::new(*who);
        let marker = marker();
        let call = person.run(["--env", "TOKEN"], ["sleep", &marker]).env("TOKEN", "canary-99d2");
        let mut child = call.spawn();
        let running =
            || processes::with_argument(&marker).into_iter().filter(|p| p.name == "sleep").collect();
        assert!(!processes::wait_for(Duration::from_secs(20), running).is_empty(), "it runs");
        assert_eq!(processes::with_argument("canary-99d2"), []);
        processes::signal(child.id(), nix::sys::signal::Signal::SIGTERM);
        child.wait().expect("wait");
    }
}

/// SBX-8: no descriptor beyond 0, 1, 2.
#[test]
fn no_descriptor_is_inherited() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        copy_program(&installed().probe(), &work.join("probe"));
        let probe = work.join("probe");
        let with_open_files = |words: String| {
            let mut shell = person.command("bash");
            shell.arg("-c").arg(format!("exec 3</etc/hostname 7</etc/passwd 200</; {words}"));
            shell.output().expect("bash")
        };
        let outside = format!("{} inherited_descriptors", probe.display());
        assert!(with_open_files(outside).status.success(), "outside they are inherited");
        let command = [probe.to_str().expect("text"), "inherited_descriptors"];
        let inside = person.run(["--work", work.to_str().expect("text")], command).words();
        let output = with_open_files(inside);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// SBX-3: the user inside is 1000, the host's user 0 is nowhere in the map.
#[test]
fn the_user_inside_is_1000_and_user_0_is_not_mapped() {
    for who in Who::all() {
        let person = Person::new(*who);
        person.sh(NONE, "echo $(id -u) $(id -g) $(id -G)").output().expect_out("1000 1000 1000");
        // Seen from here: inside, the numbers are those of the namespace around it.
        let marker = marker();
        let mut child = person.run(NONE, ["sleep", &marker]).spawn();
        let running =
            || processes::with_argument(&marker).into_iter().filter(|p| p.name == "sleep").collect();
        let agent = processes::wait_for(Duration::from_secs(20), running).first().expect("it runs").pid;
        for kind in ["uid", "gid"] {
            let map = std::fs::read_to_string(format!("/proc/{agent}/{kind}_map")).expect("a map");
            let numbers: Vec<u32> = map.split_whitespace().map(|n| n.parse().expect("a number")).collect();
            let [inside, outside, count] = numbers[..] else { panic!("one line: {map}") };
            assert_eq!((inside, count), (1000, 1), "{map}");
            assert!(
                outside != 0 || harness::kind() != Harness::Root,
                "{kind} 0 of the host is mapped: {map}"
            );
        }
        processes::signal(child.id(), nix::sys::signal::Signal::SIGTERM);
        child.wait().expect("wait");
        let status = person.run(NONE, ["cat", "/proc/self/status"]).output().expect_code(0).out();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_whitespace().nth(1).unwrap_or_default().to_owned()
        };
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{set} in {status}");
        }
        assert_eq!((field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()), ("1", "2"), "{status}");
    }
}

/// SBX-1: namespaces of its own.
#[test]
fn every_namespace_is_the_runs_own() {
    for who in Who::all() {
        let person = Person::new(*who);
        let script = "for kind in user pid ipc uts cgroup net mnt; do readlink /proc/self/ns/$kind; done";
        let inside: Vec<String> =
            person.sh(NONE, script).output().expect_code(0).out().lines().map(str::to_owned).collect();
        let outside = person.command("sh").arg("-c").arg(script).output().expect("sh");
        let outside: Vec<String> =
            String::from_utf8_lossy(&outside.stdout).lines().map(str::to_owned).collect();
        assert_eq!((inside.len(), outside.len()), (7, 7));
        for (inside, outside) in inside.iter().zip(&outside) {
            assert_ne!(inside, outside);
        }
    }
}
