//! anet-outside: starts what runs outside of the sandbox, and, with the word `mind`, is the process above one such program.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;

use confine::manifest::Role;
use confine::sys::inherited;
use ipc_proto::{Channel, ChannelError, bulk, descriptors};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use supervisor::outside::{self, MINDER, MinderPlan, OutsidePlan, STDIO, minder};

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("descriptor {number} is not there ({source}); anet-outside is started by anet, not by hand")]
    NotInherited { number: RawFd, source: Errno },
    #[error("its own program cannot be found ({0}); mount /proc")]
    Program(Errno),
    #[error(transparent)]
    NotConfined(#[from] confine::Error),
    #[error(transparent)]
    Plan(#[from] bulk::BulkError),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Outside(#[from] outside::Error),
    #[error(transparent)]
    Minder(#[from] minder::Error),
}

fn main() -> ExitCode {
    let mut log = inherited::take(descriptors::LOG).map(File::from).ok();
    let is_minder = std::env::args_os().nth(1).is_some_and(|word| word == MINDER);
    match if is_minder { mind(&mut log) } else { serve(&log) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(log) = &mut log {
                // Nobody may be reading; where it matters the status says that it went wrong.
                let _ = writeln!(log, "anet-outside: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

fn take(number: RawFd) -> Result<OwnedFd, Error> {
    inherited::take(number).map_err(|source| Error::NotInherited { number, source })
}

fn serve(log: &Option<File>) -> Result<(), Error> {
    let channel = Channel::from_fd(take(descriptors::CHANNEL)?)?;
    let plan: OutsidePlan = bulk::open(take(descriptors::PLAN)?.as_fd())?;
    let program = openat(CWD, "/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(Error::Program)?;
    confine::enter(Role::Outside, &confine::Paths::default())?;
    // A second descriptor of the same pipe.
    let log = log.as_ref().and_then(|log| log.try_clone().ok());
    Ok(outside::serve(channel, plan, program, log)?)
}

fn mind(log: &mut Option<File>) -> Result<(), Error> {
    let channel = Channel::from_fd(take(descriptors::CHANNEL)?)?;
    let plan: MinderPlan = bulk::open(take(descriptors::PLAN)?.as_fd())?;
    let [input, output, errors] = STDIO;
    let stdio = [take(input)?, take(output)?, take(errors)?];
    confine::enter(Role::Outside, &confine::Paths::default())?;
    Ok(minder::mind(&channel, &plan, stdio, log)?)
}
