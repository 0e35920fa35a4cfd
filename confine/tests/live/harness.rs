//! Running tests one after the other in this thread, and this program as their child.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use confine::sys::spawn::{Child, Command, Program};
use confine::sys::wait::{Ask, Status, wait};
use rustix::fs::{Mode, OFlags, open};
use rustix::pipe::{PipeFlags, pipe_with};

/// A test and its name.
pub(crate) type Test = (&'static str, fn());
/// What this program does when it is started as a child.
pub(crate) type Action = (&'static str, fn(&[&str]));

/// An ordinary user: nobody of Debian.
pub(crate) const NOBODY: u32 = 65534;

/// Runs the tests whose names contain one of the words, as cargo's own harness would.
pub(crate) fn run_all(words: &[&str], tests: &[Test]) {
    let filters: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    if words.contains(&"--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let chosen: Vec<&Test> = tests
        .iter()
        .filter(|(name, _)| filters.is_empty() || filters.iter().any(|filter| name.contains(**filter)))
        .collect();
    println!("\nrunning {} tests", chosen.len());
    let mut failed = 0;
    for (name, test) in &chosen {
        let passed = std::panic::catch_unwind(test).is_ok();
        failed += usize::from(!passed);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out\n",
        chosen.len() - failed,
        tests.len() - chosen.len()
    );
    std::process::exit(i32::from(failed != 0));
}

/// Whether this is root, who alone can give other users; the tests that need it say so and pass for others.
pub(crate) fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not root: only the half of this test that an ordinary user can do");
    }
    root
}

/// A text as exec wants it.
pub(crate) fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

/// This program.
pub(crate) fn own_program() -> OwnedFd {
    open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// How a child ended, and what it printed on 1 and 2.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How it ended.
    pub(crate) status: Status,
    /// What it printed.
    pub(crate) text: String,
}

/// A child of which 0, 1 and 2 are ours.
pub(crate) struct Running {
    /// The process.
    pub(crate) child: Child,
    /// Its standard input.
    pub(crate) input: OwnedFd,
    output: File,
}

impl Running {
    /// Reads one line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.output.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    /// Its output alone; it is reaped.
    pub(crate) fn output(self) -> File {
        wait(self.child.pidfd.as_fd(), Ask::default()).unwrap();
        self.output
    }

    /// Waits for its end; closes its input before.
    pub(crate) fn end(mut self) -> Outcome {
        drop(self.input);
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        let status = wait(self.child.pidfd.as_fd(), Ask::default()).unwrap().unwrap();
        Outcome { status, text }
    }
}

/// Starts this program as a child with an action and its words; `change` is applied to the command before.
pub(crate) fn start(action: &str, words: &[&str], change: impl FnOnce(&mut Command<'_>)) -> Running {
    let program = own_program();
    let (input, theirs_in) = {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        (write, read)
    };
    let (output, theirs_out) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let mut command = Command::new(Program::Descriptor(program.as_fd()));
    command.argv = ["live", "child", action].iter().chain(words).map(|word| c(word)).collect();
    command.descriptors = vec![(theirs_in.as_fd(), 0), (theirs_out.as_fd(), 1), (theirs_out.as_fd(), 2)];
    change(&mut command);
    let child = command.spawn().unwrap();
    drop(theirs_out);
    Running { child, input, output: File::from(output) }
}

/// Starts it and waits for its end.
pub(crate) fn outcome(action: &str, words: &[&str], change: impl FnOnce(&mut Command<'_>)) -> Outcome {
    start(action, words, change).end()
}

/// A line of /proc/PID/status.
pub(crate) fn status_field(status: &str, field: &str) -> String {
    let line = status.lines().find(|line| line.split(':').next() == Some(field));
    line.unwrap_or_else(|| panic!("{field} in {status}")).split_once(':').unwrap().1.trim().to_owned()
}
