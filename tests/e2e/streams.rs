//! Standard streams: whatever bytes, however many, unchanged.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tests::person::{Person, Who};

use crate::NONE;

/// Several pipes, socket buffers and splice lengths long, and no multiple of any.
const LONG: usize = 8 * 1024 * 1024 + 4099;

/// Every byte value, without a period that a lost or doubled block would fit.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 32);
    let mut block = Sha256::digest(b"seed");
    while bytes.len() < length {
        bytes.extend(block);
        block = Sha256::digest(block);
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn bytes_pass_unchanged_through_standard_input_and_output() {
    for who in Who::all() {
        let bytes = noise(LONG);
        let outcome = Person::new(*who).run(NONE, ["cat"]).stdin(bytes.clone()).output().expect_code(0);
        assert_eq!(outcome.stdout.len(), bytes.len());
        assert!(outcome.stdout == bytes, "the bytes differ");
        assert!(outcome.stderr.is_empty(), "{}", outcome.err());
    }
}

#[test]
fn bytes_pass_unchanged_through_standard_error() {
    let bytes = noise(LONG);
    let outcome = Person::new(Who::User).sh(NONE, "cat >&2").stdin(bytes.clone()).output().expect_code(0);
    assert!(
        outcome.stderr == bytes && outcome.stdout.is_empty(),
        "the bytes differ: {}",
        outcome.stderr.len()
    );
}

#[test]
fn the_two_outputs_stay_apart() {
    let outcome = Person::new(Who::User).sh(NONE, "echo out; echo err >&2; echo out").output().expect_code(0);
    assert_eq!((outcome.out().as_str(), outcome.err().as_str()), ("out\nout", "err\n"));
}

#[test]
fn the_end_of_the_input_is_seen() {
    let outcome = Person::new(Who::User).run(NONE, ["wc", "-c"]).stdin("").output();
    outcome.expect_out("0");
}

#[test]
fn a_command_that_does_not_read_ends_all_the_same() {
    let outcome = Person::new(Who::User).run(NONE, ["true"]).stdin(noise(LONG)).output().expect_code(0);
    assert!(outcome.took < Duration::from_secs(20));
}

/// A closed output is a broken pipe for the command, as without anet.
#[test]
fn an_output_that_nobody_reads_ends_the_command() {
    let person = Person::new(Who::User);
    let anet = person.run(NONE, ["yes"]);
    let mut shell = person.command("sh");
    let words = anet.words();
    shell.arg("-c").arg(format!("{} | head -n 3", words));
    let output = shell.output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "y\ny\ny\n");
    assert!(output.status.success());
}

#[test]
fn closed_standard_streams_do_not_let_descriptors_slip_into_their_places() {
    let person = Person::new(Who::User);
    let anet = person.run(NONE, ["sh", "-c", "ls -l /proc/self/fd/ 2>/dev/null | grep -c socket; true"]);
    let mut shell = person.command("sh");
    let words = anet.words();
    shell.arg("-c").arg(format!("{} <&- 2>&-", words));
    let output = shell.output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0", "{output:?}");
}

#[test]
fn arguments_arrive_as_they_are() {
    let arguments =
        ["printf", "%s\\n", "a b", "$HOME", "`id`", "'", "\"", "--", "-x", "", "*", "ü", "{\"a\": [1]}"];
    let outcome = Person::new(Who::User).run(NONE, arguments).output();
    outcome.expect_out("a b\n$HOME\n`id`\n'\n\"\n--\n-x\n\n*\nü\n{\"a\": [1]}");
}

/// SBX-7, SBX-8: memory in the place of a file (a memfd, as some shells pass a here-document) is standard input like any
/// other, and no rule of the second wall fails on it.
#[test]
fn standard_input_may_be_memory() {
    use std::io::{Seek as _, Write as _};
    for who in Who::all() {
        let memory = rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(memory);
        file.write_all(b"from memory").unwrap();
        file.rewind().unwrap();
        let output = Person::new(*who).run(NONE, ["cat"]).command().stdin(file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"from memory");
    }
}
