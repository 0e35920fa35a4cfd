//! The arguments, as the contract of the command line names them. Values are kept as text here and checked in
//! `request`, where a wrong one gets its own code and sentence.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser};

mod autoreply;
mod node;

pub(crate) use autoreply::{AutoReply, AutoReplyAction, Set, Test};
pub(crate) use node::{Inbox, Show, Status, Submit};

/// Runs a command that you do not trust in a sandbox: no network but the hosts you allow, no files but those you name.
#[derive(Parser, Debug)]
#[command(
    name = "anet",
    version,
    arg_required_else_help = true,
    after_help = "Example:\n  anet run --here --allow pkg.example.com -- make test"
)]
pub(crate) struct Anet {
    /// The configuration file (default: $XDG_CONFIG_HOME/anet/anet.toml)
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The node of this user
    #[arg(long, global = true, conflicts_with = "system")]
    pub(crate) user: bool,
    /// The node that runs as a service
    #[arg(long, global = true)]
    pub(crate) system: bool,
    /// One JSON document on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say more
    #[arg(short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) subcommand: Subcommand,
}

#[derive(clap::Subcommand, Debug)]
pub(crate) enum Subcommand {
    /// Run one command in the sandbox, in the foreground
    Run(Box<Run>),
    /// Run the node in the foreground: it takes tasks of peers and answers them
    #[command(
        after_help = "It reloads its configuration by itself when the file changes, and on SIGHUP; SIGTERM or Ctrl-C \
                            ends it.\n\nExample:\n  anet daemon\n  sudo anet daemon --system"
    )]
    Daemon,
    /// Give the node a task of a peer
    Submit(Submit),
    /// List the tasks that came, newest first
    Inbox(Inbox),
    /// Show one task with its answer and its runs, or what a run of `anet run` did
    Show(Show),
    /// Show how the node is: sandbox, runs, budgets of the day, processes, warnings
    Status(Status),
    /// Check whether a sandbox can run here, and say what to do where it cannot
    Doctor(Doctor),
    /// Show, change or try how tasks are answered
    #[command(name = "autoreply")]
    AutoReply(AutoReply),
    /// Store the keys of model services, list their names, remove them
    Credential(Credential),
    /// Show, verify or export what a node recorded
    Evidence(crate::evidence::Evidence),
}

#[derive(Args, Debug)]
#[command(
    after_help = "Exit status: the command's own; 128+N if signal N ended it; 124 out of time; 123 memory, growth or a \
                  budget ended it; 125 anet could not run it; 126 and 127 as a shell's. An agent that \
                  runs itself and ends with 0 without an answer counts as failed (1).\n\nExample:\n  anet run --here \
                  --allow pkg.example.com --record record.json -- curl -O https://pkg.example.com/file\n  echo \"Mend \
                  the failing test\" | anet run --agent claude --here"
)]
pub(crate) struct Run {
    /// Work in the current directory, read-write (default: in a fresh directory, removed at the end)
    #[arg(long, conflicts_with = "work")]
    pub(crate) here: bool,
    /// Work in DIR, read-write
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Open a path for reading and writing
    #[arg(long, value_name = "PATH")]
    pub(crate) rw: Vec<PathBuf>,
    /// Open a path for reading
    #[arg(long, value_name = "PATH")]
    pub(crate) ro: Vec<PathBuf>,
    /// Close a path within an open one
    #[arg(long, value_name = "PATH")]
    pub(crate) deny: Vec<PathBuf>,
    /// Pass a variable on, or set it
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// Allow a host
    #[arg(long, value_name = "HOST")]
    pub(crate) allow: Vec<String>,
    /// Set up model access for an agent: claude, codex, opencode, hermes, openclaw or custom; without COMMAND the agent itself
    /// runs, its task on standard input or in --prompt
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// The agent's task
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// The model that every request asks (default: the service's cheapest)
    #[arg(long, value_name = "ID")]
    pub(crate) model: Option<String>,
    /// The model service, such as https://api.example.com/v1
    #[arg(long, value_name = "URL")]
    pub(crate) api_base: Option<String>,
    /// The stored credential that is the model's key (default: the service's usual variable, else the stored one of its name)
    #[arg(long, value_name = "NAME")]
    pub(crate) credential: Option<String>,
    /// An srt settings file
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// Ask about hosts that are not on the list
    #[arg(long)]
    pub(crate) ask: bool,
    /// A program that is asked instead
    #[arg(long, value_name = "ARGV")]
    pub(crate) decider: Option<String>,
    /// No summary of what was refused
    #[arg(long)]
    pub(crate) quiet: bool,
    /// End the command after TIME (500ms, 30s, 2m, 1h)
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,
    /// With all limits and budgets of a task from somebody untrusted
    #[arg(long)]
    pub(crate) untrusted: bool,
    /// A limit: memory, tasks, growth, tunnels_open, tunnels_total, tunnel_sent, tunnel_received, endpoint_connections,
    /// model_requests, request_body, request_total, output_tokens
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) limit: Vec<String>,
    /// A budget: destinations, bytes_out, window
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) budget: Vec<String>,
    /// Write the run's record to FILE when it ends
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// A pseudo-terminal for the command: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) tty: String,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
#[command(after_help = "Exits 0 if a sandboxed command could run now.\n\nExample:\n  anet doctor --json")]
pub(crate) struct Doctor {
    /// Print the AppArmor profile for bubblewrap, and write no file. To remove it once installed: sudo apparmor_parser
    /// -R /etc/apparmor.d/anet-bwrap && sudo rm /etc/apparmor.d/anet-bwrap
    #[arg(long, conflicts_with = "explain")]
    pub(crate) apparmor_profile: bool,
    /// Say what a code means
    #[arg(long, value_name = "CODE")]
    pub(crate) explain: Option<String>,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  anet credential set anthropic")]
pub(crate) struct Credential {
    #[command(subcommand)]
    pub(crate) action: CredentialAction,
}

#[derive(clap::Subcommand, Debug)]
pub(crate) enum CredentialAction {
    /// Store a value, read from a prompt or from standard input
    #[command(after_help = "Example:\n  anet credential set anthropic")]
    Set(CredentialName),
    /// List the names of the stored ones
    #[command(after_help = "Example:\n  anet credential list --json")]
    List,
    /// Remove one
    #[command(after_help = "Example:\n  anet credential remove anthropic")]
    Remove(CredentialName),
}

#[derive(Args, Debug)]
pub(crate) struct CredentialName {
    /// Its name: that of the service (anthropic, openai, openrouter ...), its host's, or any for --credential
    pub(crate) name: String,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// CLI, USE-1: every command has help with an example, and the tree of commands is sound.
    #[test]
    fn every_command_has_an_example() {
        fn look(command: &mut clap::Command, path: &str) {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example:") && help.contains("anet "), "{path}: {help}");
            for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
                let path = format!("{path} {}", inner.get_name());
                look(inner, &path);
            }
        }
        let mut command = Anet::command();
        command.clone().debug_assert();
        command.build();
        look(&mut command, "anet");
    }

    /// CLI: the contract's words are taken as it has them.
    #[test]
    fn the_contracts_commands_are_taken() {
        for line in [
            "anet submit --peer a --wait --interaction i text",
            "anet submit --peer a",
            "anet --user inbox --state queued --peer p -n 3 --json",
            "anet show ID",
            "anet status --watch --json",
            "anet --system status",
            "anet doctor --json",
            "anet doctor --explain no_bwrap",
            "anet doctor --apparmor-profile",
            "anet autoreply show",
            "anet autoreply set --egress-allow a.example,b.example",
            "anet autoreply set --egress-allow=",
            "anet autoreply test",
            "anet autoreply test text --config f",
        ] {
            let words = line.split(' ');
            assert!(Anet::try_parse_from(words).is_ok(), "{line}");
        }
        for line in ["anet submit text", "anet --user --system status", "anet autoreply", "anet inbox -n -1"]
        {
            assert!(Anet::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
