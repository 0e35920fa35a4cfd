//! `anet autoreply`: how tasks are answered. `show` and `set` read and write the configuration file with the caller's own right;
//! the control socket has no call for it (EGR-1).

mod array;
mod change;
mod confirm;
mod edit;
mod file;
mod set;
mod show;
mod test;
mod words;

use std::path::PathBuf;

use supervisor::error::Trouble;
use supervisor::guard::Directories;
use supervisor::node::job::Mode;

use crate::arguments::{Anet, AutoReply, AutoReplyAction};
use crate::node;

pub(crate) fn perform(anet: &Anet, autoreply: &AutoReply) -> Result<u8, Trouble> {
    match &autoreply.action {
        AutoReplyAction::Show => show::perform(anet, &Place::find(anet)?),
        AutoReplyAction::Set(set) => set::perform(anet, set, &Place::find(anet)?),
        AutoReplyAction::Test(test) => test::perform(anet, test),
    }
}

/// Which file, and for which kind of node.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    file: PathBuf,
    mode: Mode,
}

impl Place {
    fn find(anet: &Anet) -> Result<Place, Trouble> {
        let mode = node::mode(anet)?;
        let file = match &anet.config {
            Some(file) => file.clone(),
            None => Directories::of(mode)?.configuration.join("anet.toml"),
        };
        Ok(Place { file, mode })
    }
}
