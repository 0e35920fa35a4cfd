//! MOD-14: every supported agent, as really published, finishes a task through the broker.
//!
//! The agents are those that `scripts/agents` installs, in `ANET_AGENTS_DIR` or `target/agents`; one that is not there is
//! named as skipped.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tests::harness::{self, Harness};
use tests::internet::Internet;
use tests::model::{COMMAND, DONE, FILE, Recorded, Service};
use tests::person::{Call, Outcome, Person, Who};

use crate::model::{CAP, COMPATIBLE, CREDENTIAL, KEY, MODEL, configure, person_with_key, proper};

pub(crate) const TASK: &str = "Create hello.txt with the content hello.";
/// The slowest of them needs half a minute for a task on two processors.
const PATIENCE: Duration = Duration::from_secs(180);

/// An agent and the service that it speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    Claude,
    Codex,
    Opencode,
    Hermes,
    Openclaw,
}

impl Agent {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Agent::Claude => "claude",
            Agent::Codex => "codex",
            Agent::Opencode => "opencode",
            Agent::Hermes => "hermes",
            Agent::Openclaw => "openclaw",
        }
    }

    /// The directory of its commands, as npm and pip make it.
    pub(crate) fn commands(self) -> Option<PathBuf> {
        let root = std::env::var_os("ANET_AGENTS_DIR")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/agents"), PathBuf::from);
        let below = match self {
            Agent::Claude | Agent::Codex | Agent::Opencode | Agent::Openclaw => "node_modules/.bin",
            Agent::Hermes => "bin",
        };
        let dir = fs::canonicalize(root.join(self.name()).join(below)).ok();
        let what = format!("a task of {}", self.name());
        let Some(dir) = dir.filter(|dir| dir.join(self.name()).exists()) else {
            harness::skip(&what, "it is not installed: scripts/agents target/agents");
            return None;
        };
        // Runs have other users than the one who installed it.
        let closed =
            dir.ancestors().find(|d| fs::metadata(d).is_ok_and(|m| m.permissions().mode() & 0o005 != 0o005));
        if let Some(closed) = closed.filter(|_| harness::kind() == Harness::Root) {
            harness::skip(
                &what,
                &format!("{} is closed to other users; set ANET_AGENTS_DIR", closed.display()),
            );
            return None;
        }
        Some(dir)
    }

    pub(crate) fn service(self, net: &Internet) -> Service {
        match self {
            Agent::Claude => Service::anthropic(net, KEY),
            Agent::Codex => Service::openai(net, KEY),
            Agent::Opencode | Agent::Hermes | Agent::Openclaw => Service::compatible(net, COMPATIBLE, KEY),
        }
    }

    /// `anet run --agent NAME --here`, with the model, the service and the key that it needs.
    pub(crate) fn run<'a>(
        self,
        person: &'a Person,
        net: &'a Internet,
        service: &Service,
        work: &Path,
        commands: &Path,
    ) -> Call<'a> {
        self.run_with(person, net, service, work, commands, &[])
    }

    pub(crate) fn run_with<'a>(
        self,
        person: &'a Person,
        net: &'a Internet,
        service: &Service,
        work: &Path,
        commands: &Path,
        more: &[&str],
    ) -> Call<'a> {
        let mut words =
            vec!["run", "--agent", self.name(), "--here", "--model", MODEL, "--credential", CREDENTIAL];
        match self {
            Agent::Claude | Agent::Codex => {}
            Agent::Opencode | Agent::Hermes | Agent::Openclaw => words.extend(["--api-base", service.base()]),
        }
        words.extend(more);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", commands.display());
        person.anet(words).within(net).cwd(work).env("PATH", path).timeout(PATIENCE)
    }
}

/// What every request of an agent is at its service.
#[track_caller]
fn as_the_operator_wants(requests: &[Recorded], service: &Service, outcome: &Outcome) {
    for request in requests {
        assert_ne!(request.status, 401, "MOD-1: the operator's key: {outcome}");
        assert_eq!(request.status, 200, "{}: {outcome}", String::from_utf8_lossy(&request.body));
        proper(request, &service.host().name, MODEL);
        assert!(request.head.iter().any(|line| line.contains(KEY)), "MOD-1: {outcome}");
        assert!(!String::from_utf8_lossy(&request.body).contains(KEY), "{outcome}");
    }
}

/// The usual task, as everybody; the answer on standard output, nothing else there.
fn finishes(agent: Agent) {
    let Some(commands) = agent.commands() else { return };
    let Some(net) = Internet::new() else { return };
    for who in Who::all() {
        let service = agent.service(&net);
        let person = person_with_key(*who);
        let work = person.work_dir("work");
        let outcome =
            agent.run(&person, &net, &service, &work, &commands).stdin(format!("{TASK}\n")).output();
        let outcome = outcome.expect_out(DONE);
        assert_eq!(fs::read_to_string(work.join(FILE)).ok().as_deref(), Some("hello"), "MOD-14: {outcome}");
        let requests = service.take();
        assert!(requests.len() >= 2, "a tool call and an answer: {outcome}");
        as_the_operator_wants(&requests, &service, &outcome);
        // Nothing but the service was asked for, whatever the agent tried.
        let names = net.dns().queries().into_iter().map(|query| query.name);
        // The second is how a network that translates addresses is recognised.
        let strange: Vec<String> =
            names.filter(|name| *name != service.host().name && name != "ipv4only.arpa").collect();
        assert!(strange.is_empty() && net.strays().is_empty(), "{strange:?}: {outcome}");
        // The agent left nothing of its own beside its work.
        let mut left: Vec<String> = fs::read_dir(&work)
            .expect("work")
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        left.retain(|name| name != FILE);
        assert!(left.is_empty(), "{left:?}: {outcome}");
    }
}

/// MOD-14, MOD-1, MOD-2, MOD-3: claude.
#[test]
fn claude_finishes_a_task() {
    finishes(Agent::Claude);
}

/// MOD-14, MOD-1, MOD-2, MOD-3: codex.
#[test]
fn codex_finishes_a_task() {
    finishes(Agent::Codex);
}

/// MOD-14, MOD-1, MOD-2, MOD-3: opencode.
#[test]
fn opencode_finishes_a_task() {
    finishes(Agent::Opencode);
}

/// MOD-14, MOD-1, MOD-2, MOD-3: hermes.
#[test]
fn hermes_finishes_a_task() {
    finishes(Agent::Hermes);
}

/// MOD-14, MOD-1, MOD-2, MOD-3: openclaw.
#[test]
fn openclaw_finishes_a_task() {
    finishes(Agent::Openclaw);
}

/// MOD-1: what the agent's own commands see of the key is a placeholder; the agent's configuration too. The task is
/// given as `--prompt`, the key by the usual variable, and the cheapest model is asked where none is named (MOD-2).
#[test]
fn an_agents_commands_see_a_placeholder() {
    let Some(net) = Internet::new() else { return };
    for (agent, variable) in [(Agent::Claude, "ANTHROPIC_API_KEY"), (Agent::Codex, "OPENAI_API_KEY")] {
        let Some(commands) = agent.commands() else { continue };
        for who in Who::all() {
            let service = agent.service(&net);
            let person = Person::new(*who);
            let work = person.work_dir("work");
            // The brackets keep the search from finding itself among the command lines.
            let look = "env > env.txt; cat /proc/*/environ /proc/*/cmdline > processes.txt 2>/dev/null; \
                        grep -rl sk-[c]anary / --exclude-dir=proc --exclude-dir=sys > found.txt 2>/dev/null; true";
            let prompt = format!("Look around. [[run:{look}]]");
            let words = ["run", "--agent", agent.name(), "--here", "--prompt", &prompt];
            let path = format!("{}:/usr/local/bin:/usr/bin:/bin", commands.display());
            let call = person.anet(words).within(&net).cwd(&work).env("PATH", path).env(variable, KEY);
            let outcome = call.timeout(PATIENCE).output().expect_out(DONE);
            let seen = |name: &str| fs::read(work.join(name)).unwrap_or_default();
            let env = String::from_utf8_lossy(&seen("env.txt")).into_owned();
            assert!(env.contains("ANET_MODEL_URL=http://127.0.0.1:"), "{env}");
            for file in ["env.txt", "processes.txt", "found.txt"] {
                let bytes = seen(file);
                assert!(
                    !bytes.windows(KEY.len()).any(|w| w == KEY.as_bytes()),
                    "MOD-1: the key is in {file}"
                );
            }
            assert!(seen("found.txt").is_empty(), "MOD-1: {}", String::from_utf8_lossy(&seen("found.txt")));
            for request in service.take() {
                let model = request.json()["model"].as_str().unwrap_or_default().to_owned();
                assert!(!model.is_empty() && model != MODEL, "MOD-2: the cheapest: {model}");
                proper(&request, &service.host().name, &model);
                assert!(request.head.iter().any(|line| line.contains(KEY)), "MOD-1: {outcome}");
            }
        }
    }
}

/// An answer that comes slowly, and a task that is long: neither is cut.
#[test]
fn a_slow_answer_and_a_long_task_are_whole() {
    let Some(net) = Internet::new() else { return };
    let agent = Agent::Claude;
    let Some(commands) = agent.commands() else { return };
    let service = agent.service(&net);
    let person = person_with_key(Who::User);
    let work = person.work_dir("work");
    let words = "A long answer that comes in many small pieces, one after another.";
    let task = format!("[[slow]][[text:{words}]] {}", "This is only padding. ".repeat(20_000));
    agent.run(&person, &net, &service, &work, &commands).stdin(task).output().expect_out(words);
    for request in service.take() {
        assert!(request.body.len() > 400_000, "the whole task arrived");
        assert!(request.json()["max_tokens"].as_u64() <= Some(CAP), "MOD-3");
    }
}

/// `custom`: the operator's own command line, which finds the task and the model where CLI.md says.
#[test]
fn a_custom_agent_gets_the_task() {
    let Some(net) = Internet::new() else { return };
    for who in Who::all() {
        let service = Service::compatible(&net, COMPATIBLE, KEY);
        let person = person_with_key(*who);
        let work = person.work_dir("work");
        let script = r#"task=$(cat); curl -sS "$ANET_MODEL_URL/v1/chat/completions" -H 'Content-Type: application/json' \
            -d "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"$task\"}]}" | grep -o 'Good day'"#;
        let base = service.base();
        let command = serde_json::to_string(&["sh", "-c", script]).expect("JSON");
        configure(
            &person,
            &format!(
                "[auto_reply]\nagent = \"custom\"\napi_base = \"{base}\"\nmodel = \"{MODEL}\"\ncommand = {command}\n"
            ),
        );
        let words = ["run", "--agent", "custom", "--here", "--credential", CREDENTIAL];
        let call = person.anet(words).within(&net).cwd(&work).stdin("[[text:Good day]]");
        call.output().expect_out("Good day");
        let [request] = &service.take()[..] else { panic!("one request") };
        proper(request, COMPATIBLE, MODEL);
        // A command after `--` takes the configured one's place.
        let words =
            ["run", "--agent", "custom", "--here", "--credential", CREDENTIAL, "--", "sh", "-c", COMMAND];
        person.anet(words).within(&net).cwd(&work).output().expect_out("");
        assert_eq!(fs::read_to_string(work.join(FILE)).ok().as_deref(), Some("hello"));
    }
}

/// The record of an agent's run names it, and counts its requests; it holds neither task nor key (EVI-4).
#[test]
fn the_record_of_an_agents_run() {
    let agent = Agent::Claude;
    let Some(commands) = agent.commands() else { return };
    let Some(net) = Internet::new() else { return };
    let service = agent.service(&net);
    let person = person_with_key(Who::User);
    let work = person.work_dir("work");
    let file = person.path("records").join("agent.json");
    let more = ["--record", file.to_str().expect("text"), "--untrusted"];
    let outcome = agent
        .run_with(&person, &net, &service, &work, &commands, &more)
        .stdin(TASK)
        .output()
        .expect_out(DONE);
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{e}: {outcome}"));
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let requests = service.take();
    assert_eq!(record["agent"], "claude", "{text}");
    assert_eq!(record["model"]["requests"], requests.len(), "{text}");
    assert_eq!(record["model"]["refused"], 0, "claude as anet sets it up trips over no rule: {text}");
    assert_eq!(record["limits"]["model_requests"]["used"], requests.len(), "{text}");
    assert!(record["budget"]["bytes_out"]["used"].as_u64() > Some(1000), "BUD-1: {text}");
    assert!(!text.contains("Create hello.txt") && !text.contains(KEY), "EVI-4: {text}");
}

/// MOD-14, CLI: an operator's command finds the agent by its name, set up as if it ran by itself.
#[test]
fn a_command_finds_its_agent() {
    let Some(net) = Internet::new() else { return };
    for agent in [Agent::Claude, Agent::Codex] {
        let Some(commands) = agent.commands() else { continue };
        let service = agent.service(&net);
        let person = person_with_key(Who::User);
        let work = person.work_dir("work");
        let name = agent.name();
        let call = agent.run_with(
            &person,
            &net,
            &service,
            &work,
            &commands,
            &["--", "sh", "-c", &format!("command -v {name} && {name} --version")],
        );
        let outcome = call.output().expect_code(0);
        assert!(outcome.out().contains(&format!(".anet/bin/{name}\n")), "{outcome}");
        assert!(outcome.out().lines().count() >= 2, "its version: {outcome}");
    }
}
