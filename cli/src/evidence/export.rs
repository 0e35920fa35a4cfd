//! `anet evidence export`.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ipc_proto::Code;
use serde_json::json;
use supervisor::error::Trouble;
use supervisor::evidence::{Begin, Fault, Verified, header, key_text, walk};

use super::arguments::Export;
use super::progress::Line;
use super::{STATUS_BAD, trouble, verify};
use crate::arguments::Anet;
use crate::linux::{complain, print};
use crate::page;
use crate::time::count;

/// Why nothing, or not all, was written.
enum Failure {
    Fault(Fault),
    Write(io::Error),
}

pub(super) fn perform(anet: &Anet, directory: &Path, export: &Export) -> Result<u8, Trouble> {
    match verify::check(directory, None) {
        Ok(verified) => match &export.output {
            Some(output) => into_file(anet, directory, &verified, output),
            None => {
                let written = write(directory, &verified, &mut io::stdout().lock());
                told(written, "standard output")
            }
        },
        Err(fault) => told(Err(Failure::Fault(fault)), ""),
    }
}

/// Whole or not at all: a file of that name is only replaced by one that is complete.
fn into_file(anet: &Anet, directory: &Path, verified: &Verified, output: &Path) -> Result<u8, Trouble> {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part: PathBuf = output.with_file_name(name);
    let written = (OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part))
        .map_err(Failure::Write)
        .and_then(|mut file| {
            write(directory, verified, &mut file)?;
            file.sync_all().and_then(|()| fs::rename(&part, output)).map_err(Failure::Write)
        });
    if written.is_err() {
        let _ = fs::remove_file(&part);
        return told(written, &output.display().to_string());
    }
    print(&if anet.json {
        let key = verified.key.as_ref().map(key_text);
        page::json(&json!({ "output": output, "records": verified.records, "key": key }))
    } else {
        format!("{} written to {}\n", count(verified.records, "record"), output.display())
    })?;
    Ok(0)
}

/// The first line, and the records that were verified, each checked again as it is written.
fn write(directory: &Path, verified: &Verified, output: &mut dyn Write) -> Result<(), Failure> {
    let mut output = BufWriter::with_capacity(256 * 1024, output);
    let mut failed = output.write_all(header(verified.key.as_ref()).as_bytes()).err();
    let mut progress = Line::new();
    walk::<()>(directory, Begin::Origin, verified.key, &mut |_, line, at| {
        progress.say("exporting", at);
        let written = output.write_all(line).and_then(|()| output.write_all(b"\n"));
        failed = failed.take().or(written.err());
        if failed.is_some() || at.records == verified.records {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })
    .map_err(Failure::Fault)?;
    match failed {
        Some(error) => Err(Failure::Write(error)),
        None => output.flush().map_err(Failure::Write),
    }
}

fn told(written: Result<(), Failure>, place: &str) -> Result<u8, Trouble> {
    match written {
        Ok(()) => Ok(0),
        // Whoever reads it has read enough.
        Err(Failure::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(Failure::Write(error)) => Err(Trouble::new(
            Code::BadOption,
            format!(
                "{place} cannot be written ({error}); see its directory and the free space, or give another"
            ),
        )),
        Err(Failure::Fault(fault @ Fault::Unreadable { .. })) => Err(trouble(fault)),
        Err(Failure::Fault(fault @ (Fault::NoKey(_) | Fault::Record { .. }))) => {
            complain(&trouble(fault));
            Ok(STATUS_BAD)
        }
    }
}
