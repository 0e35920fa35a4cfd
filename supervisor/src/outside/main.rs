//! anet-outside: starts what runs outside of the sandbox, and, with the word `mind`, is the process above one such program.

#![forbid(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;

use confine::manifest::Role;
use confine::sys::inherited;
use ipc_proto::{Channel, ChannelError, bulk, descriptors};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::{Errno, pread};
use supervisor::outside::{self, KEYS, MINDER, MinderPlan, OutsidePlan, STDIO, minder};

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
    #[error("a variable that was withheld cannot be read ({0})")]
    Key(Errno),
    #[error(transparent)]
    Outside(#[from] outside::Error),
    #[error(transparent)]
    Minder(#[from] minder::Error),
}

/// The longest value of a variable, in bytes (`MAX_ARG_STRLEN`).
const LONGEST: usize = 32 * 4096;

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
    let mut plan: OutsidePlan = bulk::open(take(descriptors::PLAN)?.as_fd())?;
    let keys: Vec<OwnedFd> = (KEYS..).take(plan.keys.len()).map(take).collect::<Result<_, _>>()?;
    let program = openat(CWD, "/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(Error::Program)?;
    confine::enter(Role::Outside, &confine::Paths::default())?;
    // From here on nobody of the same user can look inside.
    for (name, key) in plan.keys.iter().zip(keys) {
        plan.surroundings.environment.extend(variable(name, &key).map_err(Error::Key)?);
    }
    // A second descriptor of the same pipe.
    let log = log.as_ref().and_then(|log| log.try_clone().ok());
    Ok(outside::serve(channel, plan, program, log)?)
}

/// `NAME=value`, the value read without a change to where others read it; none: it cannot be a variable's.
fn variable(name: &CString, value: &OwnedFd) -> Result<Option<CString>, Errno> {
    let length = usize::try_from(fstat(value)?.st_size).unwrap_or(0).min(LONGEST);
    let mut entry = [name.as_bytes(), b"="].concat();
    let start = entry.len();
    entry.resize(start + length, 0);
    let read = pread(value, entry.get_mut(start..).unwrap_or_default(), 0)?;
    entry.truncate(start + read);
    Ok(CString::new(entry).ok())
}

fn mind(log: &mut Option<File>) -> Result<(), Error> {
    let channel = Channel::from_fd(take(descriptors::CHANNEL)?)?;
    let plan: MinderPlan = bulk::open(take(descriptors::PLAN)?.as_fd())?;
    let [input, output, errors] = STDIO;
    let stdio = [take(input)?, take(output)?, take(errors)?];
    confine::enter(Role::Outside, &confine::Paths::default())?;
    Ok(minder::mind(&channel, &plan, stdio, log)?)
}
