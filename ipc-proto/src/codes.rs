//! The codes of DIA-2 and of `anet run`'s own failures. What each says to a person stands in `supervisor::explain`.

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// What is wrong, by a name that can be looked up with `anet doctor --explain CODE`.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The code as it is printed.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)* }
            }

            /// The code of that name.
            #[must_use]
            pub fn parse(text: &str) -> Option<Code> {
                match text { $($text => Some(Code::$variant),)* _ => None }
            }
        }
    };
}

codes! {
    /// bubblewrap is not installed.
    NoBwrap = "no_bwrap",
    /// bubblewrap is older than 0.8.
    OldBwrap = "old_bwrap",
    /// An AppArmor policy keeps bubblewrap from making namespaces.
    UsernsBlocked = "userns_blocked",
    /// The kernel makes no user namespaces for this user.
    UsernsUnavailable = "userns_unavailable",
    /// bubblewrap ended before the sandbox stood.
    SandboxStartFailed = "sandbox_start_failed",
    /// The sandbox has no network of its own, or not one that is closed.
    NetnsFailed = "netns_failed",
    /// The filter of system calls is not in force.
    SeccompFailed = "seccomp_failed",
    /// The probe found the sandbox open in another way.
    SandboxWeak = "sandbox_weak",
    /// anet does not run this agent.
    AgentUnsupported = "agent_unsupported",
    /// The agent's program is not installed.
    AgentMissing = "agent_missing",
    /// No key for the model service.
    NoApiKey = "no_api_key",
    /// No address of a model service.
    NoApiBase = "no_api_base",
    /// No model.
    NoModel = "no_model",
    /// Memory and tasks cannot be limited here.
    NoCgroupLimits = "no_cgroup_limits",
    /// The launcher has no namespaces of its own.
    LauncherNotApart = "launcher_not_apart",
    /// Not Linux.
    PlatformUnsupported = "platform_unsupported",
    /// An option or its value is wrong.
    BadOption = "bad_option",
    /// A host that cannot be allowed.
    BadHost = "bad_host",
    /// The configuration cannot be read or understood.
    BadConfig = "bad_config",
    /// A path that was named cannot be used.
    BadPath = "bad_path",
    /// Something that this version does not have yet.
    NotInThisVersion = "not_in_this_version",
    /// One of anet's own programs is missing or not safe to start.
    ProgramMissing = "program_missing",
    /// The state or cache directory cannot be used.
    StateUnusable = "state_unusable",
    /// One of anet's processes died; everything was ended.
    ProcessDied = "process_died",
    /// One of anet's processes could not be confined.
    NotConfined = "not_confined",
    /// No such run.
    NoSuchRun = "no_such_run",
    /// The record or chain could not be written.
    RecordFailed = "record_failed",
    /// To a peer: no sandbox just now, or the node was interrupted; it may send again later.
    SandboxUnavailable = "sandbox_unavailable",
    /// To a peer: a budget is used up.
    Budget = "budget",
    /// To a peer: the agent ended without an answer.
    AgentFailed = "agent_failed",
    /// No node runs.
    NoNode = "no_node",
    /// A node runs already.
    NodeRunning = "node_running",
    /// The node is not of this version.
    OtherVersion = "other_version",
    /// The caller may not command this node.
    NotAllowed = "not_allowed",
    /// A task that cannot be taken.
    BadTask = "bad_task",
    /// The interaction is known with another text.
    OtherTask = "other_task",
    /// The inbox has as many waiting tasks as it takes.
    InboxFull = "inbox_full",
    /// No such interaction.
    NoSuchInteraction = "no_such_interaction",
    /// The inbox's database cannot be used.
    BadDatabase = "bad_database",
    /// The evidence does not verify.
    BadEvidence = "bad_evidence",
    /// A direct run was asked of a service.
    DirectInService = "direct_in_service",
    /// Two roots of work directories overlap.
    RootsOverlap = "roots_overlap",
    /// This build has no auto-reply.
    NoAutoReply = "no_auto_reply",
}

impl Code {
    /// A warning does not keep a run from starting.
    #[must_use]
    pub fn is_warning(self) -> bool {
        matches!(self, Code::NoCgroupLimits | Code::LauncherNotApart | Code::NoApiKey)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
