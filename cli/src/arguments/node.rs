//! The arguments of the commands that ask a node.

use std::ffi::OsString;

use clap::Args;

#[derive(Args, Debug)]
#[command(
    after_help = "Prints the interaction's id; with --wait the answer. The same id with the same text is the same task, so a \
                  call that failed may be repeated. A trusted peer is whoever the configuration trusts: naming one is up to \
                  you, and so is who may call this.\n\nExit status: 0 taken, or with --wait answered; 75 refused, with a \
                  code; 69 no node; 125 a wrong option.\n\nExample:\n  anet submit --peer alice --wait \"What does src/main.rs \
                  do?\"\n  anet submit --peer alice --interaction ticket-17 < task.txt"
)]
pub(crate) struct Submit {
    /// Whose task it is: the peer's id
    #[arg(long, value_name = "AID")]
    pub(crate) peer: String,
    /// The task's own id (default: a new one)
    #[arg(long, value_name = "ID")]
    pub(crate) interaction: Option<String>,
    /// Wait for the answer and print it
    #[arg(long)]
    pub(crate) wait: bool,
    /// The task (default: standard input)
    pub(crate) text: Option<OsString>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "States: queued running answered refused exhausted interrupted. Without -n the table shows the newest 50, \
                  JSON all.\n\nExample:\n  anet inbox --state refused --peer alice\n  anet inbox --json | jq '.[].id'"
)]
pub(crate) struct Inbox {
    /// Only those in this state
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Only those of this peer
    #[arg(long, value_name = "AID")]
    pub(crate) peer: Option<String>,
    /// At most so many
    #[arg(short = 'n', value_name = "COUNT")]
    pub(crate) count: Option<usize>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "A node's interaction or run is asked of the node; a run of `anet run` is read from the state directory.\n\n\
                  Example:\n  anet show i01k9w3c5d8e2f4g6\n  anet show --task i01k9w3c5d8e2f4g6\n  anet show --json \
                  r01k9w3c5d8e2f4g6"
)]
pub(crate) struct Show {
    /// An interaction's id, or a run's, as `anet inbox`, `anet status` and records name it
    pub(crate) id: String,
    /// The task's text as well
    #[arg(long)]
    pub(crate) task: bool,
}

#[derive(Args, Debug)]
#[command(
    after_help = "With --watch and --json: one document a line, each second.\n\nExit status: 0; 69 no node.\n\nExample:\n  anet \
                  status --watch\n  anet status --json | jq .day.runs"
)]
pub(crate) struct Status {
    /// Show it anew each second, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
}
