//! MOD-10, MOD-11: what the published agents make of a refusal and of a service that fails: they go on without what is refused,
//! or end, at once. An agent that tries again for seconds fails these tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tests::internet::Internet;
use tests::model::{DONE, FILE, Recorded, Service};
use tests::person::{Call, Outcome, Person, Who};

use crate::agents::{Agent, TASK};
use crate::model::{KEY, MODEL, configure, person_with_key};

/// From the first refusal to the end of the run: the agent goes on or says why not, and ends. One that tries again takes
/// longer, or is refused more often than [`MOST_REFUSALS`].
const AT_ONCE: Duration = Duration::from_secs(5);
/// What a run may be refused until its agent has understood.
const MOST_REFUSALS: u64 = 2;

/// One run of an agent that meets a refusal.
struct Met {
    outcome: Outcome,
    record: Value,
    requests: Vec<Recorded>,
}

impl Met {
    /// Makes the call, whose options name this file for the record.
    fn of(agent: Agent, call: Call<'_>, service: &Service, file: &Path) -> Met {
        let outcome = call.output();
        let record = fs::read(file).unwrap_or_else(|e| panic!("the record: {e}: {outcome}"));
        let record: Value = serde_json::from_slice(&record).expect("JSON");
        let met = Met { outcome, record, requests: service.take() };
        let (name, refused) = (agent.name(), met.record["model"]["refused"].as_u64().unwrap_or_default());
        assert!((1..=MOST_REFUSALS).contains(&refused), "MOD-10: {name} was refused {refused} times: {met}");
        let violations = met.record["violations"].as_array().into_iter().flatten();
        let first = violations.filter(|v| v["kind"] == "model").map(|v| time_of_day(&v["time"])).next();
        let first = first.unwrap_or_else(|| panic!("MOD-10: the refusal is no violation: {}", met.record));
        // Around midnight a run ends on the day after.
        let since = (time_of_day(&met.record["ended"]) + DAY - first).as_millis() % DAY.as_millis();
        assert!(since < AT_ONCE.as_millis(), "MOD-10: {name} went on for {since} ms: {met}");
        eprintln!("{name}: refused {refused} times, ended {since} ms after the first");
        met
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The time of day in a time of the record, `2026-12-01T00:46:22.387Z`.
fn time_of_day(time: &Value) -> Duration {
    let text = time.as_str().and_then(|text| text.split_once('T')?.1.strip_suffix('Z'));
    let text = text.unwrap_or_else(|| panic!("a time: {time}"));
    let parts: Vec<f64> = text.split(':').map(|part| part.parse().expect("a number")).collect();
    let [hours, minutes, seconds] = parts[..] else { panic!("a time: {time}") };
    Duration::from_secs_f64((hours * 60.0 + minutes) * 60.0 + seconds)
}

impl std::fmt::Display for Met {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (model, violations) = (&self.record["model"], &self.record["violations"]);
        writeln!(f, "{} requests, record {model} {violations}", self.requests.len())?;
        self.outcome.fmt(f)
    }
}

/// A person, a directory, and a name for a record.
fn place() -> (Person, PathBuf, PathBuf) {
    let person = person_with_key(Who::User);
    let work = person.work_dir("work");
    let file = person.path("records").join("refused.json");
    (person, work, file)
}

/// MOD-4, MOD-10: claude with its web search, which asks the service to search in a request of its own: that is refused, the
/// model reads why, and the task is finished without it.
#[test]
fn claude_goes_on_without_a_refused_tool() {
    let Some(net) = Internet::new() else { return };
    let agent = Agent::Claude;
    let Some(commands) = agent.commands() else { return };
    let service = agent.service(&net);
    let (person, work, file) = place();
    let record = file.to_str().expect("text");
    let prompt = format!("Look for it on the web. [[tool:WebSearch]] {TASK}");
    let more = [
        "--record",
        record,
        "--",
        "claude",
        "-p",
        "--output-format=json",
        "--dangerously-skip-permissions",
        "--no-session-persistence",
        "--allowedTools=WebSearch",
        &prompt,
    ];
    let call = agent.run_with(&person, &net, &service, &work, &commands, &more);
    let met = Met::of(agent, call, &service, &file);
    assert_eq!(met.outcome.code(), 0, "it went on: {met}");
    let said: Value = serde_json::from_slice(&met.outcome.stdout).unwrap_or_else(|e| panic!("{e}: {met}"));
    assert_eq!((&said["is_error"], &said["result"]), (&Value::Bool(false), &Value::from(DONE)), "{met}");
    assert_eq!(met.requests.len(), 2, "the call of the tool, and what came of it: {met}");
    for request in &met.requests {
        let body = request.json();
        let mut tools = body["tools"].as_array().into_iter().flatten();
        assert!(tools.all(|tool| tool["type"].is_null()), "MOD-4: it reached the service: {body}");
    }
    let told = met.requests[1].json()["messages"].to_string();
    assert!(
        told.contains("anet:") && told.contains("tool_not_allowed"),
        "USE-4: the model reads why: {told}"
    );
}

/// MOD-4, MOD-10: codex with its web search, which stands in every request: it ends at once and says why.
#[test]
fn codex_ends_at_a_refused_tool() {
    let Some(net) = Internet::new() else { return };
    let agent = Agent::Codex;
    let Some(commands) = agent.commands() else { return };
    let service = agent.service(&net);
    let (person, work, file) = place();
    let record = file.to_str().expect("text");
    let more = [
        "--record",
        record,
        "--",
        "codex",
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "--ephemeral",
        "--color=never",
        "--config=web_search=\"live\"",
        &format!("--model={MODEL}"),
        "-",
    ];
    let call = agent.run_with(&person, &net, &service, &work, &commands, &more).stdin(TASK);
    let met = Met::of(agent, call, &service, &file);
    assert_ne!(met.outcome.code(), 0, "it could not: {met}");
    assert!(
        met.requests.is_empty() && !work.join(FILE).exists(),
        "MOD-4: nothing reached the service: {met}"
    );
    let said = met.outcome.out() + &met.outcome.err();
    assert!(said.contains("anet: ") && said.contains("tool_not_allowed"), "USE-4: it says why: {met}");
    assert!(said.contains("web_search"), "MOD-4: by name: {met}");
}

/// MOD-10, LIM-1: a limit that is reached ends an agent at once, with the sentence in what it says.
#[test]
fn a_limit_ends_an_agent_at_once() {
    let Some(net) = Internet::new() else { return };
    for agent in [Agent::Claude, Agent::Codex, Agent::Opencode] {
        let Some(commands) = agent.commands() else { continue };
        // Reached by the second request, or by the first.
        for (limit, answered) in [("model_requests", 1), ("request_body", 0)] {
            let service = agent.service(&net);
            let (person, work, file) = place();
            let record = file.to_str().expect("text");
            let more = ["--limit", &format!("{limit}=1"), "--record", record];
            let call = agent.run_with(&person, &net, &service, &work, &commands, &more).stdin(TASK);
            let met = Met::of(agent, call, &service, &file);
            assert_ne!(met.outcome.code(), 0, "it did not finish: {met}");
            assert_eq!(met.requests.len(), answered, "LIM-1: {limit}: {met}");
            let said = met.outcome.out() + &met.outcome.err();
            assert!(said.contains("anet:") && said.contains(limit), "MOD-10: {}: {met}", agent.name());
        }
    }
}

/// MOD-11: a service that fails is an error of the agent's, soon, and one line for the operator.
#[test]
fn a_failing_service_ends_an_agent() {
    let Some(net) = Internet::new() else { return };
    for agent in [Agent::Claude, Agent::Codex] {
        let Some(commands) = agent.commands() else { continue };
        for (order, word) in [
            ("[[status:401]]", "401"),
            ("[[status:429]]", "429"),
            ("[[status:500]]", "500"),
            ("[[hang]]", "time"),
        ] {
            let service = agent.service(&net);
            let person = person_with_key(Who::User);
            configure(&person, "[auto_reply]\napi_timeout_seconds = 3\n");
            let work = person.work_dir("work");
            let outcome = agent
                .run(&person, &net, &service, &work, &commands)
                .stdin(format!("{order} {TASK}"))
                .output();
            assert_ne!(outcome.code(), 0, "{order}: {outcome}");
            assert!(outcome.took < Duration::from_secs(60), "MOD-11: {} {order}: {outcome}", agent.name());
            assert!(
                outcome.err().contains(word),
                "the operator reads which: {} {order}: {outcome}",
                agent.name()
            );
            assert!(!(outcome.out() + &outcome.err()).contains(KEY), "MOD-11: {outcome}");
        }
    }
}
