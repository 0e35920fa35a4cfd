//! anet-supervisor: decides. It holds no key, opens no network, starts nothing.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use confine::manifest::Role;
use confine::sys::inherited::take;
use confine::sys::signal::Signals;
use confine::{Paths, enter};
use ipc_proto::{Channel, Code, bulk, descriptors, job::Job};
use supervisor::error::{STATUS_FAILED, Trouble};
use supervisor::run::{Ends, Foreground, Lines, PASSED_ON};

fn main() -> ExitCode {
    let Ok(log) = take(descriptors::LOG).map(File::from) else { return ExitCode::from(STATUS_FAILED) };
    match start(log.try_clone()) {
        Ok(foreground) => ExitCode::from(foreground.run()),
        Err(trouble) => {
            // One line for the operator; where it cannot be written there is nobody to tell.
            let _ = writeln!(&log, "anet: {trouble}");
            ExitCode::from(STATUS_FAILED)
        }
    }
}

/// Takes what the guard gave, and nothing else ever again.
fn start(log: std::io::Result<File>) -> Result<Foreground, Trouble> {
    let broken = |what: String| {
        Trouble::new(
            Code::ProcessDied,
            format!("anet-supervisor was not started by anet: {what}; run `anet` instead"),
        )
    };
    let fd = |number| take(number).map_err(|errno| broken(format!("descriptor {number}: {errno}")));
    let job: Job = {
        let memory = fd(descriptors::JOB)?;
        bulk::open(std::os::fd::AsFd::as_fd(&memory)).map_err(|error| broken(error.to_string()))?
    };
    let optional = |wanted: bool, number| if wanted { fd(number).map(Some) } else { Ok(None) };
    let [input, output, errors] = descriptors::STDIO;
    let terminal = optional(job.terminal.is_some(), descriptors::TERMINAL)?;
    let ends = Ends {
        lines: Lines {
            launcher: Channel::from_fd(fd(descriptors::CHANNEL)?)
                .map_err(|error| broken(error.to_string()))?,
            proxy: Channel::from_fd(fd(descriptors::PROXY)?).map_err(|error| broken(error.to_string()))?,
            broker: (optional(job.model.is_some(), descriptors::BROKER)?.map(Channel::from_fd).transpose())
                .map_err(|error| broken(error.to_string()))?,
        },
        answer: match job.answer {
            Some(_) => Some((File::from(fd(descriptors::ANSWER)?), File::from(fd(descriptors::OUTPUT)?))),
            None => None,
        },
        terminal: (terminal.map(Channel::from_fd).transpose()).map_err(|error| broken(error.to_string()))?,
        chain: File::from(fd(descriptors::CHAIN)?),
        guard: File::from(fd(descriptors::GUARD)?),
        stdio: [fd(input)?, fd(output)?, fd(errors)?],
        record: optional(job.record, descriptors::RECORD)?.map(File::from),
        probe_cache: optional(job.probe.is_some(), descriptors::PROBE_CACHE)?.map(File::from),
        control_group: optional(job.control_group, descriptors::CONTROL_GROUP)?,
        log: log.map_err(|error| broken(error.to_string()))?,
        null: null().map_err(|errno| broken(errno.to_string()))?,
    };
    let signals = Signals::block(&PASSED_ON).map_err(|errno| broken(errno.to_string()))?;
    enter(Role::Supervisor, &Paths::default()).map_err(|error| {
        Trouble::new(Code::NotConfined, format!("anet-supervisor could not be confined: {error}"))
    })?;
    Foreground::new(job, ends, signals).map_err(|fatal| Trouble::new(fatal.code(), fatal.to_string()))
}

/// Standard input is /dev/null in this process.
fn null() -> Result<OwnedFd, rustix::io::Errno> {
    rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
}
