//! The command line, where there is a sandbox to run commands in.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use ipc_proto::Code;
use supervisor::error::{STATUS_FAILED, Trouble};

use crate::arguments::{Anet, Subcommand};
use crate::{credential, doctor, request, show};

pub(crate) fn main() -> ExitCode {
    let outcome = match Anet::try_parse() {
        Ok(anet) => perform(&anet),
        Err(error) => explain_usage(&error),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(trouble) => {
            // Where nobody reads it there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "anet: {trouble}");
            ExitCode::from(STATUS_FAILED)
        }
    }
}

fn perform(anet: &Anet) -> Result<u8, Trouble> {
    match &anet.subcommand {
        Subcommand::Run(run) => supervisor::guard::run(&request::from_arguments(anet, run)?),
        Subcommand::Doctor(doctor) => doctor::perform(anet, doctor),
        Subcommand::Show(show) => show::perform(anet, show),
        Subcommand::Credential(credential) => credential::perform(anet, credential),
    }
}

/// Prints to standard output. A reader that went away has read enough; a disk that is full is an error.
pub(crate) fn print(text: &str) -> Result<(), Trouble> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Trouble::new(
            Code::BadOption,
            format!("standard output cannot be written ({error}); give another"),
        )),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Help goes to standard output; a usage that is wrong is one line.
fn explain_usage(error: &clap::Error) -> Result<u8, Trouble> {
    let kind = error.kind();
    if matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A pager that was closed has read enough.
        let _ = error.print();
        return Ok(0);
    }
    if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Ok(STATUS_FAILED);
    }
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ").trim_end_matches(':');
    // clap puts the missing names on lines of their own.
    let names: Vec<&str> = lines.take_while(|line| line.starts_with('<')).collect();
    let what = if names.is_empty() { first.to_owned() } else { format!("{first}: {}", names.join(" ")) };
    Err(Trouble::new(Code::BadOption, format!("{what}; see `anet --help`")))
}
