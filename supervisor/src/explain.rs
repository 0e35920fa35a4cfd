//! What each code means, in one sentence that says what happened, why, and what to do (DIA-2).

use ipc_proto::Code;

use crate::error::one_line;

/// The sentence for a code.
#[must_use]
pub fn sentence(code: Code) -> &'static str {
    match code {
        Code::NoBwrap => {
            "bubblewrap is not installed at /usr/bin/bwrap, and nothing runs without it; install it: \
             sudo apt install bubblewrap"
        }
        Code::OldBwrap => {
            "the installed bubblewrap is older than 0.8.0, which anet needs; install the distribution's current one"
        }
        Code::UsernsBlocked => {
            "an AppArmor policy keeps bubblewrap from making its namespaces; unless it has a profile already, install a \
             narrow one: anet doctor --apparmor-profile | sudo tee /etc/apparmor.d/anet-bwrap >/dev/null && \
             sudo apparmor_parser -r /etc/apparmor.d/anet-bwrap"
        }
        Code::UsernsUnavailable => {
            "the kernel makes no user namespace for this user, because of kernel.unprivileged_userns_clone=0, \
             user.max_user_namespaces=0 or a container around anet; allow them with sysctl, or run anet on the host \
             itself"
        }
        Code::SandboxStartFailed => {
            "bubblewrap ended before the sandbox stood; run `anet doctor --json` and report it, or set \
             untrusted = \"off\""
        }
        Code::NetnsFailed => {
            "the sandbox has no closed network of its own, so nothing was started; see whether bubblewrap was \
             replaced, and run `anet doctor`"
        }
        Code::SeccompFailed => {
            "the filter of system calls is not in force inside the sandbox, so nothing was started; the kernel needs \
             CONFIG_SECCOMP_FILTER"
        }
        Code::SandboxWeak => {
            "the sandbox was tried before use and lacks one of its walls, so nothing was started; see whether \
             bubblewrap was replaced, and run `anet doctor`"
        }
        Code::AgentUnsupported => {
            "this agent cannot be run: its model service cannot be pinned to an address; choose claude, codex, \
             opencode, hermes, openclaw or custom"
        }
        Code::AgentMissing => "the agent's program is not installed where the sandbox can see it; install it",
        Code::NoApiKey => {
            "there is no key for the model service; store one: anet credential set NAME (it reads the value from a \
             prompt)"
        }
        Code::NoApiBase => {
            "api_base is not set, and this agent has no service of its own; set it in anet.toml"
        }
        Code::NoModel => "no model is set and the service has no default here; set model in anet.toml",
        Code::NoCgroupLimits => {
            "memory and tasks cannot be limited here, since no systemd user manager or delegated control group (v2) \
             was found; all other limits hold"
        }
        Code::LauncherNotApart => {
            "this host does not let anet give its launcher namespaces of its own: the launcher has the host's network, \
             and a run is ended through process descriptors instead of by the kernel; allow user namespaces for anet"
        }
        Code::PlatformUnsupported => {
            "anet runs on Linux (on Windows: in WSL2); it never runs a command without its sandbox"
        }
        Code::BadOption => "an option or its value is wrong; see `anet run --help`",
        Code::BadHost => {
            "a host that cannot be allowed; give whole names of public hosts such as pkg.example.com, without \
             wildcard, port or scheme"
        }
        Code::BadConfig => {
            "the configuration cannot be read or understood, and nothing starts on a guess; mend the file, line and \
             key that the message names"
        }
        Code::BadPath => {
            "a path that was named cannot be used in the sandbox; the message says which and why"
        }
        Code::NotInThisVersion => "this option belongs to a part of anet that this version does not have yet",
        Code::ProgramMissing => {
            "one of anet's own programs is missing or could be changed by somebody else; install anet again"
        }
        Code::StateUnusable => {
            "the state or cache directory cannot be made or written; see its owner, its mode and the free space"
        }
        Code::ProcessDied => {
            "one of anet's own processes ended or broke its protocol, and everything of the run was ended with it; if \
             you did not end it yourself, report this"
        }
        Code::NotConfined => {
            "one of anet's own processes could not give up its privileges, so it did not go on; the kernel must be \
             Linux 5.15 or newer with seccomp filters"
        }
        Code::NoSuchRun => {
            "there is no run of that name in the state directory; `anet run --record` names the run"
        }
        Code::RecordFailed => {
            "the run's chain or record cannot be written; see the free space and the rights of the state directory"
        }
        Code::SandboxUnavailable => {
            "no agent was started for this task, or its run was interrupted; the task may be sent again later, and \
             `anet status` says what is wrong"
        }
        Code::Budget => {
            "a budget is used up, so no agent works on this task; the message says which and until when, and \
             `anet status` shows what was used"
        }
        Code::AgentFailed => {
            "the agent ended without an answer; `anet show` has its run's record, and `anet autoreply test` tries the \
             set-up"
        }
        Code::NoNode => {
            "no node is running, so there is nobody to ask; start one with `anet daemon`, or name the other with --user or --system"
        }
        Code::NodeRunning => {
            "a node of this user is running already, and two would spend one budget twice; use that one, or stop it first"
        }
        Code::OtherVersion => {
            "the running node and this command are of different versions; start the node again"
        }
        Code::NotAllowed => {
            "only the node's operator, or for a service a member of the group anet, may command this node; use sudo, or join \
             the group"
        }
        Code::BadTask => {
            "a task has 1 byte to 1 MiB of text; shorten it, or put what is long into a file that the agent fetches"
        }
        Code::OtherTask => {
            "this interaction is known with another task or of another peer, and a name means one task; choose another name"
        }
        Code::InboxFull => {
            "so many tasks are waiting that no further one is taken; see `anet inbox`, and send it again later"
        }
        Code::NoSuchInteraction => {
            "there is no interaction or run of that name here; `anet inbox` lists them"
        }
        Code::BadDatabase => {
            "the inbox's database cannot be used; it is left as it is: see the free space and the rights of the state \
             directory, or whether another version of anet wrote it"
        }
        Code::BadEvidence => {
            "the evidence does not verify, so somebody or something changed it; keep a copy, and see `anet evidence verify`"
        }
        Code::DirectInService => {
            "trusted = \"direct\" would run an agent as the service's own user, outside of the sandbox; set trusted to \
             \"sandbox\" or \"off\", or run the node as a user"
        }
        Code::RootsOverlap => {
            "auto_reply.work_dir and the sandboxed runs' directory overlap, so what an untrusted run leaves behind could \
             appear where an unsandboxed agent starts; name another work_dir"
        }
        Code::NoAutoReply => {
            "this build of anet has no auto-reply, so it takes no tasks and has no inbox; `anet run` runs an agent, and a build \
             with the feature auto-reply answers tasks"
        }
    }
}

/// The sentence with what the system or another program said.
#[must_use]
pub fn with_detail(code: Code, detail: &str) -> String {
    let detail = one_line(detail);
    if detail.is_empty() { sentence(code).to_owned() } else { format!("{} ({detail})", sentence(code)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// USE-1: every code can be looked up by its name, and says something of its own.
    #[test]
    fn every_code_has_its_own_sentence() {
        let mut seen = std::collections::BTreeSet::new();
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
            assert!(seen.insert(sentence(*code)), "{code} has another's sentence");
        }
        assert_eq!(Code::parse("nonsense"), None);
    }

    /// DIA-2, PLT-2: the sentences that have to name a command do.
    #[test]
    fn the_promised_advice_is_there() {
        assert!(sentence(Code::UsernsBlocked).contains("sudo apparmor_parser -r /etc/apparmor.d/anet-bwrap"));
        assert!(sentence(Code::SandboxStartFailed).contains("anet doctor --json"));
        assert!(with_detail(Code::SandboxStartFailed, "bwrap: x\ny").ends_with("(bwrap: x y)"));
    }
}
