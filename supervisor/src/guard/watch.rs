//! Waiting, and ending: any death ends all.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use confine::Paths;
use confine::manifest::Role;
use confine::sys::signal::Signal;
use confine::sys::spawn::Child;
use confine::sys::wait::{Ask, Status, wait};
use ipc_proto::Code;
use ipc_proto::job::Word;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal as RawSignal, getpid, kill_process, pidfd_send_signal};

use super::plan::Prepared;
use super::processes::Processes;
use crate::error::{STATUS_FAILED, STATUS_SIGNAL, Trouble};
use crate::explain;

/// How long the supervisor may take to write the record of a run whose process died.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long an interrupted start may take to undo what it prepared.
const UNDO: Duration = Duration::from_secs(3);
/// How often orphans are looked for, at most.
const ROUNDS: u32 = 200;

/// Waits until the run is over. The exit status of `anet run`.
pub(super) fn until_the_end(processes: Processes, mut prepared: Prepared) -> u8 {
    let status = match confine::enter(Role::Guard, &Paths::default()) {
        Ok(_) => wait_for_end(&processes, &mut prepared),
        Err(error) => {
            Err(Trouble::new(Code::NotConfined, format!("the guard could not be confined: {error}")))
        }
    };
    let everybody = processes.others.iter().map(|(_, child)| child).chain([&processes.supervisor]);
    end_all(everybody, processes.apart, &processes.strangers);
    if let Some(joined) = &prepared.terminal {
        joined.restore();
    }
    if let Some(words) = prepared.record.as_mut().and_then(|record| record.settle()) {
        say(&words);
    }
    match status {
        Ok(status) => status,
        Err(trouble) => {
            say(&format!("anet: {trouble}"));
            STATUS_FAILED
        }
    }
}

fn wait_for_end(processes: &Processes, prepared: &mut Prepared) -> Result<u8, Trouble> {
    let mut under_way = false;
    let mut interrupted: Option<(u8, Instant)> = None;
    loop {
        let ready = sleep_until_something_happens(processes, interrupted.map(|(_, until)| until))?;
        if ready.supervisor {
            let status = supervisor_status(&processes.supervisor);
            return interrupted.map_or(status, |(status, _)| Ok(status));
        }
        if let Some((status, _)) = interrupted.filter(|(_, until)| *until <= Instant::now()) {
            return Ok(status);
        }
        if let Some(name) = ready.dead {
            return after_a_death(processes, name);
        }
        if ready.words {
            hear_words(processes, &mut under_way);
            if under_way {
                // The probe is over, and with it what it tried to reach.
                prepared.listeners = None;
            }
        }
        while let Ok(Some(signal)) = processes.signals.next() {
            if !under_way && !matches!(signal, Signal::SIGCONT | Signal::SIGTSTP | Signal::SIGTTOU) {
                let status = STATUS_SIGNAL.saturating_add(u8::try_from(signal as i32).unwrap_or(0));
                interrupted.get_or_insert((status, Instant::now() + UNDO));
            }
            pass_on(processes, signal, prepared.terminal.is_some());
        }
    }
}

/// A line for the operator, if there is somebody to read it.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

struct Ready {
    supervisor: bool,
    dead: Option<&'static str>,
    words: bool,
}

fn sleep_until_something_happens(processes: &Processes, until: Option<Instant>) -> Result<Ready, Trouble> {
    let mut fds = vec![
        PollFd::new(&processes.supervisor.pidfd, PollFlags::IN),
        PollFd::new(&processes.words, PollFlags::IN),
        PollFd::new(&processes.signals, PollFlags::IN),
    ];
    fds.extend(processes.others.iter().map(|(_, child)| PollFd::new(&child.pidfd, PollFlags::IN)));
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                return Err(Trouble::new(Code::ProcessDied, format!("the guard cannot wait ({errno})")));
            }
        }
    }
    let is = |index: usize| fds.get(index).is_some_and(|fd| fd.revents().contains(PollFlags::IN));
    let dead =
        processes.others.iter().enumerate().find(|(index, _)| is(index + 3)).map(|(_, (name, _))| *name);
    Ok(Ready { supervisor: is(0), dead, words: is(1) })
}

fn supervisor_status(supervisor: &Child) -> Result<u8, Trouble> {
    match wait(supervisor.pidfd.as_fd(), Ask::default()) {
        Ok(Some(Status::Exited(status))) => Ok(u8::try_from(status).unwrap_or(STATUS_FAILED)),
        Ok(Some(Status::Killed(signal))) => Err(died("anet-supervisor", Some(signal))),
        Ok(Some(Status::Stopped(_)) | None) | Err(_) => Err(died("anet-supervisor", None)),
    }
}

/// One of the others died first. The supervisor, who hears of it by its channel, writes the record; we end the rest.
fn after_a_death(processes: &Processes, name: &'static str) -> Result<u8, Trouble> {
    for (_, child) in &processes.others {
        let _ = pidfd_send_signal(&child.pidfd, RawSignal::KILL);
    }
    let deadline = Instant::now() + LAST_WORDS;
    let mut fds = [PollFd::new(&processes.supervisor.pidfd, PollFlags::IN)];
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(_) => {}
            Ok(_) => return supervisor_status(&processes.supervisor),
        }
    }
    Err(died(name, None))
}

fn died(name: &str, signal: Option<i32>) -> Trouble {
    let how = signal
        .map_or_else(|| format!("{name} died"), |signal| format!("{name} was ended by signal {signal}"));
    Trouble::new(Code::ProcessDied, explain::with_detail(Code::ProcessDied, &how))
}

fn hear_words(processes: &Processes, under_way: &mut bool) {
    let mut byte = [0u8; 1];
    let Ok(1) = rustix::io::read(&processes.words, &mut byte) else { return };
    let [byte] = byte;
    match Word::parse(byte) {
        Some(Word::Started) => *under_way = true,
        // Heard while starting.
        Some(Word::Launched) => {}
        Some(Word::Stop) => stop_ourselves(),
        // Words of a node's supervisor, and this is a run's.
        Some(Word::Ready | Word::Anew) => {
            let _ = pidfd_send_signal(&processes.supervisor.pidfd, RawSignal::KILL);
        }
        // No such word: the supervisor is not what it was.
        None => {
            let _ = pidfd_send_signal(&processes.supervisor.pidfd, RawSignal::KILL);
        }
    }
}

fn pass_on(processes: &Processes, signal: Signal, has_terminal: bool) {
    if signal == Signal::SIGTTOU {
        return;
    }
    if let Some(raw) = RawSignal::from_named_raw(signal as i32) {
        let _ = pidfd_send_signal(&processes.supervisor.pidfd, raw);
    }
    // Where a terminal process has to give the terminal back first, the supervisor says when.
    if signal == Signal::SIGTSTP && !has_terminal {
        stop_ourselves();
    }
}

/// So that the shell which started anet sees a stopped job.
fn stop_ourselves() {
    let _ = kill_process(getpid(), RawSignal::STOP);
}

/// SIGKILL to everybody, until nobody is left. What the launcher started ends with its PID namespace; where it has
/// none, orphans have become our children.
pub(super) fn end_all<'a>(
    everybody: impl Iterator<Item = &'a Child> + Clone,
    apart: bool,
    strangers: &[Pid],
) {
    for child in everybody.clone() {
        let _ = pidfd_send_signal(&child.pidfd, RawSignal::KILL);
    }
    for child in everybody {
        let _ = wait(child.pidfd.as_fd(), Ask::default());
    }
    if apart {
        return;
    }
    for _ in 0..ROUNDS {
        let mut orphans = children();
        // Whoever became `anet` by exec may have had children before: those are not ours.
        orphans.retain(|orphan| !strangers.contains(orphan));
        if orphans.is_empty() {
            break;
        }
        for orphan in orphans {
            let _ = kill_process(orphan, RawSignal::KILL);
            let _ = rustix::process::waitpid(Some(orphan), rustix::process::WaitOptions::empty());
        }
    }
}

/// The children of this process.
pub(super) fn children() -> Vec<Pid> {
    let path = format!("/proc/self/task/{}/children", rustix::thread::gettid().as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw).collect()
}
