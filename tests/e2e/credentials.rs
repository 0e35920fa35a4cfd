//! Keys: where a run takes its own from, how they are stored, and what is said where something is missing.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tests::installed::installed;
use tests::internet::Internet;
use tests::model::Service;
use tests::person::{Outcome, Person, Who};

use crate::model::{CREDENTIAL, KEY, MODEL, messages, person_with_key, post, responses, store};

/// MOD-1, MOD-12: the key by the service's usual variable, and by the stored credential of the usual name; the named one
/// stands above both. A key never goes to a service that it was not named for.
#[test]
fn a_key_comes_from_a_variable_or_the_store() {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let openai = Service::openai(&net, KEY);
    let program = installed().model_client();
    let program = program.to_str().expect("text").to_owned();
    let run = |person: &Person, base: &str, path: &str, body: &Value, env: &[(&str, &str)], more: &[&str]| {
        let work = tempfile::Builder::new().prefix("steps-").tempdir_in("/tmp").expect("a directory");
        person.give_work(work.path());
        let file = work.path().join("steps.json");
        person.write_work(&file, json!([post(path, body)]).to_string());
        let dir = work.path().to_str().expect("text").to_owned();
        let mut words =
            vec!["--agent", "custom", "--api-base", base, "--model", MODEL, "--ro", &program, "--work", &dir];
        words.extend(more);
        let mut call = person.run(&words, [program.as_str(), file.to_str().expect("text")]).within(&net);
        for (name, value) in env {
            call = call.env(*name, *value);
        }
        call.output()
    };
    let status = |outcome: &Outcome| {
        let results: Value =
            serde_json::from_slice(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome}"));
        results[0]["status"].clone()
    };
    let (base, other) = (service.base().to_owned(), openai.base().to_owned());
    let body = messages("[[text:x]]");
    for who in Who::all() {
        let person = Person::new(*who);
        let none = run(&person, &base, "/v1/messages", &body, &[], &[]);
        assert_eq!(none.expect_failure_of_anet(125), "no_api_key", "DIA-2: {none}");
        let by_variable = run(&person, &base, "/v1/messages", &body, &[("ANTHROPIC_API_KEY", KEY)], &[]);
        assert_eq!(status(&by_variable), 200, "{by_variable}");
        // OpenAI's variable says nothing to Anthropic, and the other way round.
        let wrong = run(&person, &base, "/v1/messages", &body, &[("OPENAI_API_KEY", KEY)], &[]);
        assert_eq!(wrong.expect_failure_of_anet(125), "no_api_key", "{wrong}");
        store(&person, "anthropic", KEY);
        let stored = run(&person, &base, "/v1/messages", &body, &[], &[]);
        assert_eq!(status(&stored), 200, "{stored}");
        // The named one counts, right or wrong.
        store(&person, "stale", "sk-stale-key");
        let named = run(
            &person,
            &base,
            "/v1/messages",
            &body,
            &[("ANTHROPIC_API_KEY", KEY)],
            &["--credential", "stale"],
        );
        assert_ne!(status(&named), 200, "--credential stands above the variable: {named}");
        let absent = run(
            &person,
            &base,
            "/v1/messages",
            &body,
            &[("ANTHROPIC_API_KEY", KEY)],
            &["--credential", "absent"],
        );
        assert_eq!(absent.expect_failure_of_anet(125), "no_api_key", "{absent}");
        let elsewhere = run(&person, &other, "/v1/responses", &responses("[[text:x]]"), &[], &[]);
        assert_eq!(elsewhere.expect_failure_of_anet(125), "no_api_key", "{elsewhere}");
        // Passing it in by a slip is refused, not obeyed.
        let slip = run(
            &person,
            &base,
            "/v1/messages",
            &body,
            &[("ANTHROPIC_API_KEY", KEY)],
            &["--env", "ANTHROPIC_API_KEY"],
        );
        assert_eq!(slip.expect_failure_of_anet(125), "bad_option", "MOD-1: {slip}");
        assert!(openai.take().is_empty());
        service.take();
    }
}

/// `anet credential`: the value from standard input, stored for its owner alone, replaced whole, listed without it.
#[test]
fn credentials_are_stored_listed_and_removed() {
    use std::os::unix::fs::PermissionsExt as _;
    for who in Who::all() {
        let person = Person::new(*who);
        store(&person, "one", "sk-canary-first");
        store(&person, "two", "sk-canary-other");
        store(&person, "one", "sk-canary-second");
        let files = holding(&person.path(""), b"sk-canary-");
        assert_eq!(files.len(), 2, "one file each, and nothing of the value that was replaced: {files:?}");
        for file in &files {
            let mode = fs::metadata(file).expect("metadata").permissions().mode() & 0o777;
            assert!(mode == 0o600 || mode == 0o400, "{}: {mode:o}", file.display());
        }
        assert!(holding(&person.path(""), b"sk-canary-first").is_empty(), "replaced");
        let list = person.anet(["credential", "list"]).output().expect_code(0);
        assert!(
            list.out().contains("one") && list.out().contains("two") && !list.out().contains("canary"),
            "{list}"
        );
        let json = person.anet(["--json", "credential", "list"]).output().expect_code(0);
        serde_json::from_slice::<Value>(&json.stdout).unwrap_or_else(|e| panic!("DIA-3: {e}: {json}"));
        assert!(!json.out().contains("canary"), "{json}");
        person.anet(["credential", "remove", "one"]).output().expect_code(0);
        assert!(holding(&person.path(""), b"sk-canary-second").is_empty(), "removed");
        let again = person.anet(["credential", "remove", "one"]).output();
        assert_ne!(again.code(), 0, "what is not there cannot be removed: {again}");
        for (name, value) in [("../x", "v"), ("UPPER", "v"), ("", "v"), ("ok", ""), ("ok", "two\nlines")] {
            let refused = person.anet(["credential", "set", name]).stdin(value).output();
            assert_ne!(refused.code(), 0, "{name:?} {value:?}: {refused}");
        }
        // A value as an argument would be in every process list.
        assert_ne!(person.anet(["credential", "set", "three", "sk-canary-argument"]).output().code(), 0);
    }
}

/// Files below a directory that hold these bytes.
pub(crate) fn holding(dir: &Path, bytes: &[u8]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            found.extend(holding(&path, bytes));
        } else if kind.is_file() {
            let content = fs::read(&path).unwrap_or_default();
            if content.windows(bytes.len()).any(|window| window == bytes) {
                found.push(path);
            }
        }
    }
    found
}

/// MOD-12, DIA-2: what is missing is said before anything starts, each with its code.
#[test]
fn what_is_missing_is_said_before_anything_starts() {
    let person = person_with_key(Who::User);
    let cases: &[(&[&str], &str)] = &[
        (&["--agent", "cursor", "--prompt", "x"], "agent_unsupported"),
        (&["--agent", "claude", "--prompt", "x"], "agent_missing"),
        (&["--agent", "opencode", "--prompt", "x"], "no_api_base"),
        (&["--agent", "hermes", "--", "true"], "no_api_base"),
        (&["--agent", "custom", "--", "true"], "no_api_base"),
        (
            &[
                "--agent",
                "custom",
                "--api-base",
                "https://api.example.com/v1",
                "--credential",
                CREDENTIAL,
                "--",
                "true",
            ],
            "no_model",
        ),
        (
            &["--agent", "custom", "--api-base", "https://api.example.com/v1", "--model", "m", "--", "true"],
            "no_api_key",
        ),
        (&["--agent", "claude", "--api-base", "https://api.example.com", "--", "true"], "bad_option"),
        (&["--agent", "codex", "--api-base", "https://api.example.com", "--", "true"], "bad_option"),
        (&["--agent", "nobody", "--", "true"], "bad_option"),
    ];
    for (words, code) in cases {
        let call = person.anet(["run"].iter().chain(*words).copied());
        // Only what the test puts there: an agent that the machine happens to have is not found.
        let outcome = call.env("PATH", "/usr/bin:/bin").output();
        assert_eq!(outcome.expect_failure_of_anet(125), *code, "{words:?}: {outcome}");
    }
}
