//! SBX-8: a person at a terminal. The operator's terminal never enters; the run has one of its own.

use std::time::Duration;

use nix::sys::signal::Signal;
use tests::person::{Person, Who};
use tests::processes;
use tests::terminal::Terminal;

use crate::{NONE, marker};

fn bash(person: &Person) -> Terminal {
    let call = person.run(["--tty", "auto"], ["bash", "--norc", "--noprofile", "-i"]).env("TERM", "dumb");
    let mut terminal = Terminal::start(person, &call.command());
    // What is typed is shown as well: spelled in two parts, it is not what is waited for.
    terminal.type_in("PS1='rea''dy> '\n");
    terminal.wait_for("ready> ");
    terminal
}

#[test]
fn a_shell_behaves() {
    for who in Who::all() {
        let person = Person::new(*who);
        let mut terminal = bash(&person);
        terminal.type_in("echo $((6*7)) $TERM\n");
        terminal.wait_for("42 dumb");
        terminal.type_in("tty; test -t 0 && test -t 1 && test -t 2 && echo three terminals\n");
        terminal.wait_for("/dev/pts/");
        terminal.wait_for("\nthree terminals");
        terminal.type_in("exit 5\n");
        assert_eq!(terminal.wait().code(), Some(5), "{}", terminal.shown());
        assert!(!terminal.shown().contains("no job control"), "{}", terminal.shown());
    }
}

#[test]
fn the_window_size_is_followed() {
    let person = Person::new(Who::User);
    let mut terminal = bash(&person);
    terminal.type_in("stty size\n");
    terminal.wait_for("24 80");
    terminal.resize(50, 132);
    std::thread::sleep(Duration::from_millis(300));
    terminal.type_in("stty size\n");
    terminal.wait_for("50 132");
    // A program that waits is told.
    terminal.type_in("sh -c 'trap \"stty size\" WINCH; echo wai''ting; while :; do sleep 0.1; done'\n");
    terminal.wait_for("waiting");
    std::thread::sleep(Duration::from_millis(300));
    terminal.resize(10, 40);
    terminal.wait_for("10 40");
    terminal.type_in("\x03");
    terminal.wait_for("ready> ");
    terminal.type_in("exit\n");
    terminal.wait();
}

#[test]
fn ctrl_c_interrupts_the_command_and_not_anet() {
    for who in Who::all() {
        let person = Person::new(*who);
        let mut terminal = bash(&person);
        let marker = marker();
        terminal.type_in(format!("sleep {marker}; echo status $?\n"));
        let running =
            || processes::with_argument(&marker).into_iter().filter(|p| p.name == "sleep").collect();
        assert!(!processes::wait_for(Duration::from_secs(10), running).is_empty());
        terminal.type_in("\x03");
        terminal.wait_for("ready> ");
        terminal.type_in("echo still here\n");
        terminal.wait_for("\nstill here");
        terminal.type_in("\x04");
        terminal.wait();
    }
}

#[test]
fn ctrl_c_ends_a_command_that_does_not_catch_it() {
    let person = Person::new(Who::User);
    let marker = marker();
    let mut terminal = Terminal::start(&person, &person.run(NONE, ["sleep", &marker]).command());
    let running = || processes::with_argument(&marker).into_iter().filter(|p| p.name == "sleep").collect();
    assert!(!processes::wait_for(Duration::from_secs(10), running).is_empty());
    std::thread::sleep(Duration::from_millis(200));
    terminal.type_in("\x03");
    let status = terminal.wait();
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()), 130);
    let gone = processes::wait_gone(Duration::from_secs(2), || processes::with_argument(&marker));
    assert_eq!(gone, []);
}

/// Ctrl-Z stops the run and gives the terminal back to the operator's shell; fg goes on.
#[test]
fn ctrl_z_and_fg_work_in_a_real_shell() {
    for who in Who::all() {
        let person = Person::new(*who);
        // The operator's own shell, outside.
        let mut shell = person.command("bash");
        shell.args(["--norc", "--noprofile", "-i"]).env("TERM", "dumb");
        let mut terminal = Terminal::start(&person, &shell);
        terminal.type_in("PS1='out''er> '\n");
        terminal.wait_for("outer> ");
        let before = terminal.attributes();
        let anet = person.run(NONE, ["sh", "-c", "echo begun; sleep 2; echo went on; exit 6"]);
        let words = anet.words();
        terminal.type_in(words + "\n");
        terminal.wait_for("\nbegun");
        std::thread::sleep(Duration::from_millis(300));
        terminal.type_in("\x1a");
        terminal.wait_for("Stopped");
        terminal.wait_for("outer> ");
        assert_eq!(terminal.attributes(), before, "the shell's terminal is as it was");
        terminal.type_in("echo outer shell $((1+1))\n");
        terminal.wait_for("\nouter shell 2");
        // Long enough for the sleep to be over, if it ran: the time of a stopped run stands still.
        std::thread::sleep(Duration::from_millis(500));
        terminal.type_in("fg\n");
        terminal.wait_for("went on");
        terminal.wait_for("outer> ");
        terminal.type_in("echo status $?\n");
        terminal.wait_for("\nstatus 6");
        terminal.type_in("exit\n");
        terminal.wait();
    }
}

/// While it is stopped, nothing of the run runs.
#[test]
fn a_stopped_run_stands_still() {
    let person = Person::new(Who::User);
    let work = person.work_dir("work");
    let mut shell = person.command("bash");
    shell.args(["--norc", "--noprofile", "-i"]).env("TERM", "dumb");
    let mut terminal = Terminal::start(&person, &shell);
    terminal.type_in("PS1='out''er> '\n");
    terminal.wait_for("outer> ");
    let script = "echo begun; while :; do date +%s%N > tick; sleep 0.05; done";
    let anet = person.sh(["--work", work.to_str().expect("text")], script);
    let words = anet.words();
    terminal.type_in(words + "\n");
    terminal.wait_for("\nbegun");
    std::thread::sleep(Duration::from_millis(300));
    terminal.type_in("\x1a");
    terminal.wait_for("outer> ");
    std::thread::sleep(Duration::from_millis(300));
    let tick = || std::fs::read_to_string(work.join("tick")).unwrap_or_default();
    let stopped = tick();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(tick(), stopped, "it goes on");
    terminal.type_in("fg\n");
    std::thread::sleep(Duration::from_millis(1000));
    assert_ne!(tick(), stopped, "it went on");
    terminal.type_in("\x03");
    terminal.wait_for("outer> ");
    terminal.type_in("exit\n");
    terminal.wait();
}

/// The terminal is as it was, however the run ends.
#[test]
fn the_terminal_is_restored() {
    let person = Person::new(Who::User);
    let cases = [
        ("exit 0", None),
        ("stty raw -echo; exit 3", None),
        ("kill -9 $$", None),
        ("stty raw -echo; echo up; sleep 60", Some(Signal::SIGTERM)),
        ("stty raw -echo; echo up; sleep 60", Some(Signal::SIGINT)),
    ];
    for (script, signal) in cases {
        let mut shell = person.command("sh");
        let anet = person.sh(NONE, script);
        let words = anet.words();
        // A shell around it, so that the terminal outlives anet.
        shell
            .arg("-c")
            .arg(format!("trap : INT TERM; stty -a >/dev/null; read go; {}; echo over; read end", words));
        let mut terminal = Terminal::start(&person, &shell);
        let before = terminal.attributes();
        terminal.type_in("\n");
        if let Some(signal) = signal {
            terminal.wait_for("up");
            let anet = || processes::tree(terminal.pid()).into_iter().filter(|p| p.name == "anet").collect();
            let found = processes::wait_for(Duration::from_secs(5), anet);
            processes::signal(found.first().expect("anet").pid, signal);
        }
        terminal.wait_for("over");
        assert_eq!(terminal.attributes(), before, "{script:?} {signal:?}");
        terminal.type_in("\n");
        terminal.wait();
    }
}

/// A pipe at either end is no terminal for the command.
#[test]
fn a_pipe_stays_a_pipe_beside_a_terminal() {
    let person = Person::new(Who::User);
    let mut shell = person.command("sh");
    let anet = person
        .run(NONE, ["sh", "-c", "test -t 0 && echo in; test -t 1 && echo out; test -t 2 && echo err; cat"]);
    let words = anet.words();
    shell.arg("-c").arg(format!("echo piped | {words} | sed 's/^/got /'; echo over; read end"));
    let mut terminal = Terminal::start(&person, &shell);
    let text = terminal.wait_for("over");
    assert!(text.contains("got piped") && !text.contains("got in") && !text.contains("got out"), "{text}");
    terminal.type_in("\n");
    terminal.wait();
}

#[test]
fn a_terminal_can_be_refused_and_forced() {
    let person = Person::new(Who::User);
    let script = "test -t 1 && echo a-terminal || echo no-terminal";
    let mut terminal = Terminal::start(&person, &person.sh(["--tty", "never"], script).command());
    terminal.wait_for("no-terminal");
    terminal.wait();
    person.sh(["--tty", "always"], script).output().expect_code(0);
    let outcome = person.sh(["--tty", "always"], script).output();
    assert_eq!(outcome.out().trim_end(), "a-terminal", "{outcome}");
}

/// The operator's terminal is not reachable: not as /dev/tty, not as a descriptor, not by its name.
#[test]
fn the_operators_terminal_does_not_enter() {
    for who in Who::all() {
        let person = Person::new(*who);
        let mut terminal = bash(&person);
        let outer = processes::tree(terminal.pid());
        assert!(!outer.is_empty());
        let fd = std::fs::read_link(format!("/proc/{}/fd/0", terminal.pid()));
        if let Ok(line) = fd {
            // The number is another terminal inside, or none.
            let line = line.display().to_string();
            terminal.type_in(format!("(echo on-the-outside > {line}) 2>/dev/null; stat -c '%d:%i:%r' {line} $(tty) 2>&1; echo checked\n"));
            terminal.wait_for("\nchecked");
        }
        terminal.type_in("ls -l /proc/self/fd /proc/1/fd 2>&1 | grep -c -v -e pts -e proc -e total -e : ; (exec 9<>/dev/tty; stty size <&9)\n");
        terminal.wait_for("24 80");
        terminal.type_in("exit 0\n");
        assert_eq!(terminal.wait().code(), Some(0));
    }
}

/// The terminal hangs up: the run ends.
#[test]
fn a_terminal_that_goes_away_ends_the_run() {
    let person = Person::new(Who::User);
    let marker = marker();
    let script = format!("trap '' HUP TERM INT; echo up; while :; do sleep {marker}; done");
    let mut terminal = Terminal::start(&person, &person.sh(NONE, &script).command());
    terminal.wait_for("up");
    // The session's leader dies and its terminal with it.
    drop(terminal);
    let gone = processes::wait_gone(Duration::from_secs(15), || processes::with_argument(&marker));
    assert_eq!(gone, []);
}
