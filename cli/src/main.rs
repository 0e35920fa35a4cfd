//! anet: the command line.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(target_os = "linux")]
mod arguments;
#[cfg(target_os = "linux")]
mod autoreply;
#[cfg(target_os = "linux")]
mod credential;
#[cfg(target_os = "linux")]
mod daemon;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod evidence;
#[cfg(target_os = "linux")]
mod inbox;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod node;
#[cfg(target_os = "linux")]
mod page;
#[cfg(target_os = "linux")]
mod request;
#[cfg(target_os = "linux")]
mod show;
#[cfg(target_os = "linux")]
mod status;
#[cfg(target_os = "linux")]
mod story;
#[cfg(target_os = "linux")]
mod submit;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod time;

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
