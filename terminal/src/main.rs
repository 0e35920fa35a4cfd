//! anet-terminal: joins the operator's terminal to the pseudo-terminal of a run (SBX-8).
//!
//! It copies bytes and reads none: what a run prints may be hostile to a parser, and there is no parser here. It lives
//! in the operator's session and process group, since the terminal is that group's to use.

#![forbid(unsafe_code)]

mod flow;
mod operator;
mod relay;

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use confine::manifest::Role;
use confine::sys::inherited::take;
use confine::sys::signal::{Signal, Signals};
use confine::{Paths, enter};
use ipc_proto::terminal::{FromTerminal, ToTerminal};
use ipc_proto::{Channel, ChannelError, Received, descriptors};

/// Why it cannot go on; the supervisor ends the run when it is gone.
#[derive(Debug, thiserror::Error)]
enum Fatal {
    /// It was not started by anet.
    #[error("anet-terminal is started by anet, not by hand; run `anet run` instead ({0})")]
    NotOurs(rustix::io::Errno),
    /// It could not give up its privileges.
    #[error("anet-terminal could not be confined: {0}")]
    Confine(#[from] confine::Error),
    /// A channel broke, or carried what does not belong there.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The system refused.
    #[error("the terminal cannot be joined ({0})")]
    System(#[from] rustix::io::Errno),
}

/// Heard as data; with the terminal's stops blocked, giving the terminal back never stops the one who does it.
const HEARD: [Signal; 9] = [
    Signal::SIGWINCH,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGCONT,
];

fn main() -> ExitCode {
    let Ok(log) = take(descriptors::LOG).map(File::from) else { return ExitCode::FAILURE };
    match live() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fatal) => {
            // One line for the operator; where it cannot be written there is nobody to tell.
            let _ = writeln!(&log, "anet: process_died: {fatal}");
            ExitCode::FAILURE
        }
    }
}

/// Enter, confine, serve, leave.
fn live() -> Result<(), Fatal> {
    let channel =
        Channel::<FromTerminal, ToTerminal>::from_fd(take(descriptors::CHANNEL).map_err(Fatal::NotOurs)?)?;
    let [input, output, errors] = descriptors::OPERATOR;
    let operator = [
        take(input).map_err(Fatal::NotOurs)?,
        take(output).map_err(Fatal::NotOurs)?,
        take(errors).map_err(Fatal::NotOurs)?,
    ];
    let pipes: [Option<OwnedFd>; 3] = descriptors::RUN_PIPES.map(|number| take(number).ok());
    let signals =
        Signals::block(&HEARD).map_err(|errno| rustix::io::Errno::from_raw_os_error(errno as i32))?;
    let group = rustix::process::getpgrp();
    enter(Role::Terminal, &Paths::default())?;
    match channel.receive()? {
        Received::Message(ToTerminal::Attach(mode), mut outer) => {
            let outer = outer.pop().ok_or(rustix::io::Errno::BADF)?;
            relay::Relay::new(channel, mode, operator, pipes, outer, signals, group)?.run()
        }
        Received::Message(message @ (ToTerminal::Suspend | ToTerminal::Resume | ToTerminal::Finish), _) => {
            Err(ChannelError::unexpected(&message, "nothing is attached").into())
        }
        // The run never came to stand.
        Received::Closed | Received::Empty => Ok(()),
    }
}
