//! `anet evidence`: what a node recorded, verified, shown, exported. It reads the files; no node has to run.

mod arguments;
mod export;
mod follow;
mod progress;
mod show;
mod verify;

use std::io;
use std::path::{Path, PathBuf};

use ipc_proto::Code;
use supervisor::error::Trouble;
use supervisor::evidence::Fault;
use supervisor::guard::Directories;

use crate::arguments::Anet;
use crate::node;

pub(crate) use arguments::Evidence;
use arguments::EvidenceAction;

/// The exit status where the evidence does not hold.
const STATUS_BAD: u8 = 1;

pub(crate) fn perform(anet: &Anet, evidence: &Evidence) -> Result<u8, Trouble> {
    match &evidence.action {
        EvidenceAction::Show(show) => show::perform(anet, &own(anet)?, show),
        EvidenceAction::Verify(verify) => {
            let path = match &verify.path {
                Some(path) => path.clone(),
                None => own(anet)?,
            };
            verify::perform(anet, &path, verify)
        }
        EvidenceAction::Export(export) => export::perform(anet, &own(anet)?, export),
    }
}

/// Where the node's evidence is.
fn own(anet: &Anet) -> Result<PathBuf, Trouble> {
    Ok(Directories::of(node::mode(anet)?)?.state.join("evidence"))
}

/// What is wrong, with its code.
fn trouble(fault: Fault) -> Trouble {
    match fault {
        Fault::Unreadable { path, error } if error.kind() == io::ErrorKind::NotFound => missing(&path),
        Fault::Unreadable { .. } => Trouble::new(Code::StateUnusable, fault.to_string()),
        Fault::NoKey(_) | Fault::Record { .. } => Trouble::new(Code::BadEvidence, fault.to_string()),
    }
}

fn missing(path: &Path) -> Trouble {
    Trouble::new(
        Code::StateUnusable,
        format!(
            "there is no evidence at {}; a node makes it at its first start: see --user, --system, `anet daemon`",
            path.display()
        ),
    )
}
