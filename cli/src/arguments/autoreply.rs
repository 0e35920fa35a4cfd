//! The arguments of `anet autoreply`.

use std::ffi::OsString;

use clap::Args;
use clap::builder::PossibleValuesParser;

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  anet autoreply set --agent claude --untrusted sandbox\n  anet autoreply test"
)]
pub(crate) struct AutoReply {
    #[command(subcommand)]
    pub(crate) action: AutoReplyAction,
}

#[derive(clap::Subcommand, Debug)]
pub(crate) enum AutoReplyAction {
    /// Show what holds, and what of it is a default
    #[command(
        after_help = "Prints a configuration file that says what holds now.\n\nExample:\n  anet autoreply show\n  anet \
                      autoreply show --json | jq .auto_reply.sandbox.egress_allow"
    )]
    Show,
    /// Change the configuration file, keeping its comments; the node takes it from the next run on
    Set(Box<Set>),
    /// Run one sandboxed turn from end to end, uncounted, and say each step
    Test(Test),
}

#[derive(Args, Debug)]
#[command(
    after_help = "Steps go to standard error, the answer to standard output.\n\nExit status: 0 answered; 75 not; 69 no \
                  node.\n\nExample:\n  anet autoreply test\n  anet autoreply test \"Which directory are you in?\""
)]
pub(crate) struct Test {
    /// The task (default: one that asks for a short answer)
    pub(crate) text: Option<OsString>,
}

/// The keys of the configuration, with dashes.
#[derive(Args, Debug, Default)]
#[command(
    after_help = "A list is given whole, with commas, and \"\" empties it. COMMAND is a JSON array, or words as a shell would \
                  split them. NAME=default takes a limit or budget out of the file.\n\nAn allowed host is a way out for what \
                  a task knows: adding one needs a confirmation typed on a terminal, removing one does not.\n\nExample:\n  \
                  anet autoreply set --agent custom --command '[\"/usr/bin/python3\", \"/opt/agent.py\"]' --untrusted \
                  sandbox\n  anet autoreply set --egress-allow pkg.example.com,crates.example.org\n  anet autoreply set \
                  --limit memory=1GiB --budget destinations=8"
)]
pub(crate) struct Set {
    /// The trusted peers, all of them: AID,AID
    #[arg(long, value_name = "LIST")]
    pub(crate) trust: Option<String>,
    /// Trust one more peer (repeatable)
    #[arg(long, value_name = "AID", conflicts_with = "trust")]
    pub(crate) trust_add: Vec<String>,
    /// Trust one peer less (repeatable)
    #[arg(long, value_name = "AID", conflicts_with = "trust")]
    pub(crate) trust_remove: Vec<String>,
    /// What answers: an agent's program, or the node itself through an OpenAI-compatible service
    #[arg(long, value_name = "WHAT", value_parser = PossibleValuesParser::new(["exec", "openai"]))]
    pub(crate) backend: Option<String>,
    /// Which agent
    #[arg(long, value_name = "NAME", value_parser = agents())]
    pub(crate) agent: Option<String>,
    /// The command line of a custom agent
    #[arg(long, value_name = "COMMAND", allow_hyphen_values = true)]
    pub(crate) command: Option<String>,
    /// Trusted peers' tasks
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(["off", "direct", "sandbox"]))]
    pub(crate) trusted: Option<String>,
    /// Everybody else's tasks
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(["off", "sandbox"]))]
    pub(crate) untrusted: Option<String>,
    /// The model ("" for the service's cheapest)
    #[arg(long, value_name = "ID")]
    pub(crate) model: Option<String>,
    /// The model service, such as https://api.example.com/v1
    #[arg(long, value_name = "URL")]
    pub(crate) api_base: Option<String>,
    /// Whether the model service may have a private address
    #[arg(long, value_name = "BOOL", value_parser = PossibleValuesParser::new(["true", "false"]))]
    pub(crate) api_base_private: Option<String>,
    /// The longest that a run may take, in seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) api_timeout_seconds: Option<u32>,
    /// Where direct runs work ("" for the usual place)
    #[arg(long, value_name = "DIR")]
    pub(crate) work_dir: Option<String>,
    /// How long work directories, tasks and answers are kept, in days
    #[arg(long, value_name = "DAYS")]
    pub(crate) retention_days: Option<u32>,
    /// A command that is told of events ("" for none)
    #[arg(long, value_name = "COMMAND", allow_hyphen_values = true)]
    pub(crate) notify: Option<String>,
    /// Runs a day for untrusted peers together
    #[arg(long, value_name = "COUNT")]
    pub(crate) runs_per_day: Option<u32>,
    /// Runs a day for one untrusted peer
    #[arg(long, value_name = "COUNT")]
    pub(crate) runs_per_peer_per_day: Option<u32>,
    /// The allowed hosts, all of them: HOST,HOST
    #[arg(long, value_name = "LIST")]
    pub(crate) egress_allow: Option<String>,
    /// More paths that a run may read, all of them: PATH,PATH
    #[arg(long, value_name = "LIST")]
    pub(crate) read_only: Option<String>,
    /// A limit of a run (repeatable): memory, tasks, growth, tunnels_open, tunnels_total, tunnel_sent, tunnel_received,
    /// endpoint_connections, model_requests, request_body, request_total, output_tokens
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) limit: Vec<String>,
    /// A budget of a run (repeatable): destinations, bytes_out, window
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) budget: Vec<String>,
    /// A budget of a peer's day (repeatable): destinations, bytes_out
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) budget_per_peer_day: Vec<String>,
}

fn agents() -> PossibleValuesParser {
    PossibleValuesParser::new(supervisor::config::Agent::ALL.map(supervisor::config::Agent::as_str))
}
