//! The arguments of `anet evidence`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  anet evidence show -n 20\n  anet evidence verify")]
pub(crate) struct Evidence {
    #[command(subcommand)]
    pub(crate) action: EvidenceAction,
}

#[derive(clap::Subcommand, Debug)]
pub(crate) enum EvidenceAction {
    /// Show records, oldest first
    Show(Show),
    /// Check every record and every signature, and name the first record that does not hold
    Verify(Verify),
    /// Write all records into one file that can be verified anywhere
    Export(Export),
}

#[derive(Args, Debug)]
#[command(
    after_help = "Each record is checked before it is shown; at the first that does not hold it ends with status 1. With \
                  --json: a record a line.\n\nExample:\n  anet evidence show --since 2h --kind egress\n  anet evidence show \
                  --interaction ticket-17 --json | jq .body"
)]
pub(crate) struct Show {
    /// Only what belongs to this run
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<String>,
    /// Only what belongs to this interaction, or to a run of it
    #[arg(long, value_name = "ID")]
    pub(crate) interaction: Option<String>,
    /// Only records of this kind, or of all kinds that begin so: run.ended, egress (repeatable)
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// Only records since then: 30m, 24h, 2026-03-28 (UTC, as all times here), 2026-03-28T10:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// Only the last so many
    #[arg(short = 'n', value_name = "COUNT")]
    pub(crate) count: Option<usize>,
    /// Go on with what a node adds, until Ctrl-C
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
}

#[derive(Args, Debug)]
#[command(
    after_help = "What hashes cannot show, signatures do: up to the last signed record nothing can be changed by somebody \
                  without the node's key. What is behind it can, and how much that is is said. A key that you kept \
                  elsewhere (--key) shows that all of it was not replaced.\n\nExit status: 0 it holds; 1 it does not; 125 it \
                  cannot be read.\n\nExample:\n  anet evidence verify\n  anet evidence verify --key node.pub evidence.jsonl"
)]
pub(crate) struct Verify {
    /// A directory of evidence, or a file of `anet evidence export` (default: the node's own)
    #[arg(value_name = "DIR|FILE")]
    pub(crate) path: Option<PathBuf>,
    /// The node's public key, or a file with it (default: evidence.pub beside the directory)
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "The file begins with a line that has the public key; the records follow as they are. `anet evidence verify \
                  FILE` takes it.\n\nExample:\n  anet evidence export --output evidence.jsonl"
)]
pub(crate) struct Export {
    /// Where to (default: standard output)
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
