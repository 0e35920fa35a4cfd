//! anet: the command line.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(target_os = "linux")]
mod arguments;
#[cfg(target_os = "linux")]
mod credential;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod request;
#[cfg(target_os = "linux")]
mod show;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    linux::main()
}

/// PLT-5: never a run without a sandbox.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!(
        "anet: platform_unsupported: anet runs on Linux (on Windows: in WSL2); it never runs a command without its sandbox"
    );
    ExitCode::from(125)
}
