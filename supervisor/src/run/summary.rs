//! What `anet run` says when a command has ended: what was refused, and how to allow it (ASK-3).

use std::collections::BTreeMap;
use std::fmt::Write;

use ipc_proto::RunId;
use ipc_proto::proxy::Decision;

use crate::error::one_line;
use crate::record::Egress;

/// The most hosts that are listed.
const MAX_LISTED: usize = 10;

/// The lines to print; empty where nothing was refused.
pub(super) fn refusals(run: RunId, attempts: &[Egress]) -> String {
    let mut refused: BTreeMap<(&str, u16, &str), u64> = BTreeMap::new();
    for attempt in attempts.iter().filter(|attempt| attempt.decision == Decision::Deny) {
        *refused.entry((&attempt.host, attempt.port, attempt.reason)).or_default() += 1;
    }
    let mut text = String::new();
    if refused.is_empty() {
        return text;
    }
    let total: u64 = refused.values().sum();
    let _ =
        writeln!(text, "anet: run {run}: refused {total} connection{}", if total == 1 { "" } else { "s" });
    for ((host, port, reason), count) in refused.iter().take(MAX_LISTED) {
        let _ = write!(text, "anet:   {}:{port}  {reason}", one_line(host));
        if *count > 1 {
            let _ = write!(text, " ({count} times)");
        }
        if *reason == "not_listed" {
            let _ = write!(text, "; to allow it: --allow {}", one_line(host));
        }
        text.push('\n');
    }
    if refused.len() > MAX_LISTED {
        let _ =
            writeln!(text, "anet:   and {} more; `anet show {run}` lists all", refused.len() - MAX_LISTED);
    }
    text
}
