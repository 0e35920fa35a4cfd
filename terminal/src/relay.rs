//! The loop: bytes both ways, the window's size, and the supervisor's words.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use confine::sys::signal::{Signal, Signals};
use ipc_proto::terminal::{FromTerminal, TerminalMode, ToTerminal};
use ipc_proto::{Channel, ChannelError, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::Pid;
use rustix::termios::tcsetwinsize;

use crate::Fatal;
use crate::flow::Flow;
use crate::operator::OperatorTerminal;

/// How often a background process group looks whether it has come to the foreground: nothing tells it.
const LOOK: Duration = Duration::from_millis(200);
/// How long the last output may take to arrive, once everybody who could write it has ended.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Everything that is joined.
#[derive(Debug)]
pub(crate) struct Relay {
    channel: Channel<FromTerminal, ToTerminal>,
    signals: Signals,
    terminal: OperatorTerminal,
    /// The outer end of the run's pseudo-terminal, where it has one.
    outer: Option<Rc<OwnedFd>>,
    inward: Vec<Flow>,
    outward: Vec<Flow>,
    suspended: bool,
    finish_by: Option<Instant>,
}

impl Relay {
    /// Joins, and says so.
    pub(crate) fn new(
        channel: Channel<FromTerminal, ToTerminal>,
        mode: TerminalMode,
        operator: [OwnedFd; 3],
        pipes: [Option<OwnedFd>; 3],
        outer: OwnedFd,
        signals: Signals,
        group: Pid,
    ) -> Result<Relay, Fatal> {
        let operator = operator.map(Rc::new);
        let terminal = OperatorTerminal::new(&mode, &operator, group);
        let has_outer = mode.run.contains(&true);
        let outer = if has_outer { Some(Rc::new(outer)) } else { None };
        let mut relay = Relay {
            channel,
            signals,
            terminal,
            outer,
            inward: vec![],
            outward: vec![],
            suspended: false,
            finish_by: None,
        };
        relay.join_pseudo_terminal(&mode, &operator)?;
        relay.join_pipes(&mode, &operator, pipes)?;
        relay.terminal.take()?;
        relay.pass_size();
        relay.channel.send(&FromTerminal::Attached, &[])?;
        Ok(relay)
    }

    fn join_pseudo_terminal(
        &mut self,
        mode: &TerminalMode,
        operator: &[Rc<OwnedFd>; 3],
    ) -> Result<(), Fatal> {
        let Some(outer) = &self.outer else { return Ok(()) };
        // A run that does not read must not keep its own output from being passed on.
        ioctl_fionbio(outer, true)?;
        let [input, output, errors] = operator;
        let [run_input, run_output, _] = mode.run;
        let [is_terminal, ..] = mode.operator;
        if run_input {
            self.inward.push(Flow::inward(input, outer, true, is_terminal));
        }
        // The pseudo-terminal has one output; it goes where the operator would have seen it.
        self.outward.push(Flow::outward(outer, if run_output { output } else { errors }));
        Ok(())
    }

    fn join_pipes(
        &mut self,
        mode: &TerminalMode,
        operator: &[Rc<OwnedFd>; 3],
        pipes: [Option<OwnedFd>; 3],
    ) -> Result<(), Fatal> {
        for (place, (pipe, fd)) in pipes.into_iter().zip(operator).enumerate() {
            let is_pipe = mode.operator.get(place) == Some(&true) && mode.run.get(place) == Some(&false);
            let Some(pipe) = pipe.filter(|_| is_pipe) else { continue };
            ioctl_fionbio(&pipe, true)?;
            let pipe = Rc::new(pipe);
            if place == 0 {
                self.inward.push(Flow::inward(fd, &pipe, false, true));
            } else {
                self.outward.push(Flow::outward(&pipe, fd));
            }
        }
        Ok(())
    }

    /// Until the supervisor has had everything, or is gone.
    pub(crate) fn run(mut self) -> Result<(), Fatal> {
        let ended = self.serve();
        self.terminal.give_back();
        if ended? {
            self.channel.send(&FromTerminal::Finished, &[])?;
            // The end of any process ends the run: this one ends when the run is over.
            if let Received::Message(message, _) = self.channel.receive()? {
                return Err(ChannelError::unexpected(&message, "everything is finished").into());
            }
        }
        Ok(())
    }

    /// True: asked to finish, and everything is passed on. False: the supervisor is gone.
    fn serve(&mut self) -> Result<bool, Fatal> {
        loop {
            let is_late = |by: Instant| self.outward.iter().all(Flow::is_over) || Instant::now() >= by;
            if self.finish_by.is_some_and(is_late) {
                return Ok(true);
            }
            let ours = !self.suspended && self.terminal.is_ours();
            if ours && self.terminal.is_awaited() {
                self.terminal.take()?;
                self.pass_size();
            }
            self.wait(ours)?;
            while let Ok(Some(signal)) = self.signals.next() {
                if signal == Signal::SIGWINCH {
                    self.pass_size();
                }
            }
            if !self.hear()? {
                return Ok(false);
            }
        }
    }

    fn wait(&mut self, ours: bool) -> Result<(), Fatal> {
        let (channel, signals) = (&self.channel, &self.signals);
        let mut fds = vec![PollFd::new(channel, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        let flows = || self.inward.iter().chain(&self.outward);
        for flow in flows() {
            let readable = ours || !flow.only_in_foreground;
            if let Some(fd) = flow.source().filter(|_| readable) {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            } else if let Some(fd) = flow.sink() {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
            }
        }
        let waits_for_turn = !ours && !self.suspended;
        let timeout = match self.finish_by {
            Some(by) => Some(by.saturating_duration_since(Instant::now())),
            None => waits_for_turn.then_some(LOOK),
        };
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (mut place, mut moved) = (2, false);
        for flow in self.inward.iter_mut().chain(&mut self.outward) {
            let readable = ours || !flow.only_in_foreground;
            let (reads, writes) = (readable && flow.source().is_some(), flow.sink().is_some());
            if !reads && !writes {
                continue;
            }
            if ready.get(place) == Some(&true) {
                if reads {
                    flow.pull()
                } else {
                    flow.push()
                }
                moved = true;
            }
            place += 1;
        }
        // As long as output still comes, there is more of it to wait for.
        if let Some(by) = self.finish_by.as_mut().filter(|_| moved) {
            *by = Instant::now() + LAST_OUTPUT;
        }
        // A flow that is over lets go of its ends: a pipe's reader then sees the end.
        self.inward.retain(|flow| !flow.is_over());
        Ok(())
    }

    /// The supervisor's words. False: it is gone.
    fn hear(&mut self) -> Result<bool, Fatal> {
        match self.channel.try_receive()? {
            Received::Empty => Ok(true),
            Received::Closed => Ok(false),
            Received::Message(message, _) => {
                match message {
                    ToTerminal::Suspend if !self.suspended && self.finish_by.is_none() => {
                        self.suspended = true;
                        self.terminal.give_back();
                        self.channel.send(&FromTerminal::Suspended, &[])?;
                    }
                    ToTerminal::Resume if self.suspended => {
                        self.suspended = false;
                        self.terminal.take()?;
                        self.pass_size();
                    }
                    ToTerminal::Finish if self.finish_by.is_none() => {
                        self.suspended = false;
                        self.inward.clear();
                        self.finish_by = Some(Instant::now() + LAST_OUTPUT);
                    }
                    ToTerminal::Attach(_) | ToTerminal::Suspend | ToTerminal::Resume | ToTerminal::Finish => {
                        return Err(ChannelError::unexpected(&message, "the terminal is joined").into());
                    }
                }
                Ok(true)
            }
        }
    }

    /// The run's terminal has the size of the operator's; the kernel tells the program.
    fn pass_size(&self) {
        if let (Some(outer), Some(size)) = (&self.outer, self.terminal.size()) {
            let _ = tcsetwinsize(outer, size);
        }
    }
}
