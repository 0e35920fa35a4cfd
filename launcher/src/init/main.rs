//! anet-init: process 1 of a sandbox. `launcher::init` tells its life.

#![forbid(unsafe_code)]

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use launcher::init;

fn main() -> ExitCode {
    // Started by ourselves, in the sandbox and under its walls, to try them as the program would.
    if std::env::args_os().next().is_some_and(|name| name.as_bytes() == init::PROBE.to_bytes()) {
        return ExitCode::from(u8::from(init::probe::child().is_err()));
    }
    // bwrap's own standard error is ours: the launcher reads it. Whatever there is to say goes over the channel.
    ExitCode::from(u8::from(init::live().is_err()))
}
