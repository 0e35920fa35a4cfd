//! SBX-8: signals, and a terminal of the run's own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ipc_proto::init::{Exit, TerminalPlan, WindowSize};
use ipc_proto::launcher::{FromLauncher, LaunchPlan, ToLauncher};

use crate::node::{Node, with_terminal};

const PLAN: TerminalPlan =
    TerminalPlan { stdio: [true; 3], size: WindowSize { rows: 31, columns: 97 }, echo: false };

/// Signals reach the program's group.
#[test]
fn signals_are_passed_on() {
    let node = Node::start();
    let plan = node.sh("trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let null = File::open("/dev/null").unwrap();
    node.launch(&plan, [null.as_fd(), writer.as_fd(), writer.as_fd()]);
    drop(writer);
    assert!(matches!(node.receive().0, FromLauncher::Ready { .. }));
    node.send(&ToLauncher::Go(plan.run));
    let mut line = [0u8; 6];
    reader.read_exact(&mut line).unwrap();
    node.send(&ToLauncher::Signal(plan.run, 10));
    // SIGSTOP and on: without a terminal it is told all the same.
    assert!(matches!(node.receive().0, FromLauncher::Exited { exit: Some(Exit::Status(5)), .. }));
    assert!(matches!(node.receive().0, FromLauncher::Closed { .. }));
}

struct Session<'a> {
    node: &'a Node,
    plan: LaunchPlan,
    outer: File,
}

impl<'a> Session<'a> {
    fn start(node: &'a Node, script: &str) -> Session<'a> {
        let mut plan = node.plan(&["/bin/bash", "--norc", "-c", script]);
        with_terminal(&mut plan, PLAN);
        Session::with(node, plan)
    }
    fn with(node: &'a Node, plan: LaunchPlan) -> Session<'a> {
        let null = File::open("/dev/null").unwrap();
        node.launch(&plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
        let (ready, mut passed) = node.receive();
        assert!(matches!(ready, FromLauncher::Ready { terminal: true, .. }), "{ready:?} {}", node.log());
        let outer: OwnedFd = passed.pop().unwrap();
        node.send(&ToLauncher::Go(plan.run));
        Session { node, plan, outer: outer.into() }
    }
    fn expect(&mut self, text: &str) {
        let mut seen = String::new();
        while !seen.contains(text) {
            let mut buffer = [0u8; 256];
            let length = self.outer.read(&mut buffer).unwrap_or(0);
            assert_ne!(length, 0, "ended without {text:?}: {seen:?}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    }
    fn type_in(&mut self, text: &str) {
        self.outer.write_all(text.as_bytes()).unwrap();
    }
    fn end(self) -> Option<Exit> {
        let (message, _) = self.node.receive();
        let FromLauncher::Exited { exit, .. } = message else { panic!("{message:?}") };
        assert!(matches!(self.node.receive().0, FromLauncher::Closed { .. }));
        exit
    }
}

#[test]
fn a_terminal_has_size_and_controls_the_program() {
    let node = Node::start();
    let mut session =
        Session::start(&node, "tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo yes; sleep 60");
    session.expect("/dev/pts/0\r\n31 97\r\nyes\r\n");
    session.type_in("\x03");
    assert_eq!(session.end(), Some(Exit::Signal(2)));
}

/// Ctrl-Z stops the program; Resume continues it in the foreground of its terminal.
#[test]
fn a_stopped_program_is_resumed() {
    let node = Node::start();
    let mut session = Session::start(&node, "echo up; read line; echo again $line");
    session.expect("up\r\n");
    for _ in 0..2 {
        session.type_in("\x1a");
        let (message, _) = node.receive();
        assert!(matches!(message, FromLauncher::Stopped { signal: 20, .. }), "{message:?}");
        node.send(&ToLauncher::Resume(session.plan.run));
        std::thread::sleep(Duration::from_millis(50));
    }
    session.type_in("word\n");
    session.expect("again word");
    assert_eq!(session.end(), Some(Exit::Status(0)));
}

/// An interactive shell has job control of its own.
#[test]
fn an_interactive_shell_has_job_control() {
    let node = Node::start();
    let mut plan = node.plan(&["/bin/bash", "--norc", "--noprofile", "-i"]);
    with_terminal(&mut plan, PLAN);
    let mut session = Session::with(&node, plan);
    session.expect("$ ");
    session.type_in("sleep 60\n");
    std::thread::sleep(Duration::from_millis(300));
    session.type_in("\x1a");
    session.expect("Stopped");
    session.type_in("kill %1; fg; echo job=$?\n");
    session.expect("job=143");
    session.type_in("suspend -f\n");
    let (message, _) = node.receive();
    assert!(matches!(message, FromLauncher::Stopped { .. }), "{message:?}");
    node.send(&ToLauncher::Resume(session.plan.run));
    session.type_in("exit 9\n");
    assert_eq!(session.end(), Some(Exit::Status(9)));
}

/// Some streams are the terminal, others what was given.
#[test]
fn streams_may_be_mixed() {
    let node = Node::start();
    let mut plan = node.sh("test -t 0 || echo no terminal; test -t 2 && cat; echo err >&2");
    with_terminal(&mut plan, TerminalPlan { stdio: [false, false, true], ..PLAN });
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (input, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"fed").unwrap();
    drop(feed);
    let null = File::open("/dev/null").unwrap();
    node.launch(&plan, [input.as_fd(), writer.as_fd(), null.as_fd()]);
    drop((writer, input));
    let (_, mut passed) = node.receive();
    node.send(&ToLauncher::Go(plan.run));
    let mut outer: File = passed.pop().unwrap().into();
    let mut buffer = [0u8; 16];
    let length = outer.read(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"err\r\n");
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    assert_eq!(output, "no terminal\nfed");
    while !matches!(node.receive().0, FromLauncher::Closed { .. }) {}
}
