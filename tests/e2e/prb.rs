//! PRB: the sandbox is checked before it is relied on.

use std::path::Path;

use tests::installed::{copy_program, write_script};
use tests::internet::Internet;
use tests::person::{Person, Who};

use crate::NONE;

/// A bubblewrap that drops some of its options: it reads those that come through `--args`, and passes the rest on.
pub(crate) fn weakened(real: &str, drop: &[&str], add: &[&str]) -> String {
    format!(
        r#"#!/usr/bin/python3 -ISE
import os, sys
drop, add, real = {drop:?}, {add:?}, {real:?}
arguments, given = [], sys.argv[1:]
while given:
    word = given.pop(0)
    if word == "--args":
        data = b""
        fd = int(given.pop(0))
        while part := os.read(fd, 65536):
            data += part
        arguments += [w.decode(errors="surrogateescape") for w in data.split(b"\0")][:-1]
    else:
        arguments.append(word)
kept, index = [], 0
while index < len(arguments):
    word = arguments[index]
    name = word.split(" ")[0]
    if name in drop:
        index += 1 + (2 if name in ("--ro-bind",) else 1 if name in ("--cap-drop", "--uid", "--hostname") else 0)
        continue
    kept.append(word)
    index += 1
for fd in range(3, 64):
    try:
        os.set_inheritable(fd, True)
    except OSError:
        pass
os.execv(real, ["bwrap"] + add + kept)
"#
    )
}

fn install(net: &Internet, person: &Person, script: &str) {
    let file = person.path("bwrap");
    write_script(script, &file);
    net.bind(&file, "/usr/bin/bwrap");
}

/// The real program under another name.
pub(crate) fn real(person: &Person) -> String {
    let real = person.path("bwrap-real");
    copy_program(Path::new("/usr/bin/bwrap"), &real);
    real.to_str().expect("text").to_owned()
}

/// The wrapper itself is no reason for a refusal: one that drops nothing runs.
#[test]
fn a_wrapper_that_drops_nothing_runs() {
    for who in Who::all() {
        let Some(net) = Internet::new() else { return };
        let person = Person::new(*who);
        install(&net, &person, &weakened(&real(&person), &[], &[]));
        person.run(NONE, ["true"]).within(&net).output().expect_code(0);
    }
}

/// PRB-1, PRB-3: a weakened sandbox makes the probe fail, and nothing starts.
#[test]
fn a_weakened_sandbox_is_not_used() {
    let cases: [(&[&str], &[&str], &[&str]); 5] = [
        (&["--unshare-net"], &[], &["netns_failed"]),
        (&["--unshare-pid"], &[], &["sandbox_weak", "sandbox_start_failed"]),
        (&["--unshare-ipc"], &[], &["sandbox_weak", "sandbox_start_failed"]),
        (&["--unshare-uts"], &[], &["sandbox_weak", "sandbox_start_failed"]),
        (&["--unshare-cgroup", "--unshare-cgroup-try"], &[], &["sandbox_weak", "sandbox_start_failed"]),
    ];
    let mut wrong = Vec::new();
    for who in Who::all() {
        for (drop, add, codes) in cases {
            let Some(net) = Internet::new() else { return };
            let person = Person::new(*who);
            let work = person.work_dir("work");
            install(&net, &person, &weakened(&real(&person), drop, add));
            let call = person.anet(["run", "--here", "--", "sh", "-c", "echo > ran"]);
            let outcome = call.cwd(&work).within(&net).output();
            let code = outcome.err().split(": ").nth(1).unwrap_or_default().to_owned();
            if outcome.code() != 125 || !codes.contains(&code.as_str()) || work.join("ran").exists() {
                wrong.push(format!(
                    "{who:?} without {drop:?}: {} {code:?}, expected {codes:?}\n{outcome}",
                    outcome.code()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// PRB-2: the result is cached, and dropped when the bwrap binary changes.
#[test]
fn a_cached_result_does_not_outlive_the_binary() {
    for who in Who::all() {
        let Some(net) = Internet::new() else { return };
        let person = Person::new(*who);
        person.run(NONE, ["true"]).within(&net).output().expect_code(0);
        person.run(NONE, ["true"]).within(&net).output().expect_code(0);
        install(&net, &person, &weakened(&real(&person), &["--unshare-net"], &[]));
        let outcome = person.anet(["run", "--", "true"]).within(&net).output();
        assert_eq!(outcome.expect_failure_of_anet(125), "netns_failed", "{outcome}");
        // A failure is no reason to look less closely next time.
        let again = person.anet(["run", "--", "true"]).within(&net).output();
        assert_eq!(again.expect_failure_of_anet(125), "netns_failed", "{again}");
    }
}

/// A network that is open a little: a sandbox that shares the host's loopback is found by what answers there.
#[test]
fn a_sandbox_in_the_hosts_network_is_found_even_if_it_says_otherwise() {
    let Some(net) = Internet::new() else { return };
    let person = Person::new(Who::User);
    install(&net, &person, &weakened(&real(&person), &["--unshare-net"], &["--share-net"]));
    let outcome = person.anet(["run", "--", "true"]).within(&net).output();
    assert_eq!(outcome.code(), 125, "{outcome}");
}
