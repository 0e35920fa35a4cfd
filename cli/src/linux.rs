//! The command line, where there is a sandbox to run commands in.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use ipc_proto::Code;
use supervisor::error::{STATUS_FAILED, Trouble};
use supervisor::{AUTO_REPLY, explain};

use crate::arguments::{Anet, Subcommand};
use crate::{autoreply, credential, daemon, doctor, evidence, inbox, request, show, status, submit};

pub(crate) fn main() -> ExitCode {
    let outcome = match Anet::try_parse() {
        Ok(anet) => perform(&anet),
        Err(error) => explain_usage(&error),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(trouble) => {
            complain(&trouble);
            ExitCode::from(if trouble.code == Code::NoNode { STATUS_NO_NODE } else { STATUS_FAILED })
        }
    }
}

/// The exit status where there is no node to ask (`EX_UNAVAILABLE` of sysexits.h).
const STATUS_NO_NODE: u8 = 69;

/// One line on standard error. Where nobody reads it there is nobody to tell.
pub(crate) fn complain(trouble: &Trouble) {
    let _ = writeln!(std::io::stderr(), "anet: {trouble}");
}

fn perform(anet: &Anet) -> Result<u8, Trouble> {
    match &anet.subcommand {
        Subcommand::Submit(_) | Subcommand::Inbox(_) | Subcommand::AutoReply(_) if !AUTO_REPLY => {
            Err(Trouble::new(Code::NoAutoReply, explain::sentence(Code::NoAutoReply)))
        }
        Subcommand::Run(run) => supervisor::guard::run(&request::from_arguments(anet, run)?),
        Subcommand::Daemon => daemon::perform(anet),
        Subcommand::Submit(submit) => submit::perform(anet, submit),
        Subcommand::Inbox(inbox) => inbox::perform(anet, inbox),
        Subcommand::Show(show) => show::perform(anet, show),
        Subcommand::Status(status) => status::perform(anet, status),
        Subcommand::Doctor(doctor) => doctor::perform(anet, doctor),
        Subcommand::AutoReply(autoreply) => autoreply::perform(anet, autoreply),
        Subcommand::Credential(credential) => credential::perform(anet, credential),
        Subcommand::Evidence(evidence) => evidence::perform(anet, evidence),
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
    // clap puts the missing names, and the values that there are, on lines of their own.
    let more = |line: &&str| ["<", "--", "[possible values"].iter().any(|start| line.starts_with(start));
    let names: Vec<&str> = lines.take_while(more).collect();
    let what = if names.is_empty() { first.to_owned() } else { format!("{first}: {}", names.join(" ")) };
    Err(Trouble::new(Code::BadOption, format!("{what}; see `anet --help`")))
}
