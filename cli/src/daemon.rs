//! `anet daemon`: the node, in the foreground.

use supervisor::error::Trouble;
use supervisor::guard::node::{self, DaemonRequest};
use supervisor::node::job::Mode;

use crate::arguments::Anet;

/// Runs the node until it is told to end. The exit status.
pub(crate) fn perform(anet: &Anet) -> Result<u8, Trouble> {
    node::daemon(&DaemonRequest {
        configuration: anet.config.clone(),
        mode: if anet.system { Mode::System } else { Mode::User },
        verbose: anet.verbose > 0,
    })
}
