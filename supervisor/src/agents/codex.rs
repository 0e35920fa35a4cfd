//! codex, as `@openai/codex` 0.171 has it.

use serde::Serialize;

use super::{AnswerFormat, HomeFile, Installed, PLACEHOLDER_KEY, Setup, Start, Stdin, words};
use crate::error::Trouble;

/// The variable that the provider below names for its key.
const KEY_VARIABLE: &str = "OPENAI_API_KEY";
/// Tries again, of a request and of a stream that broke: enough for a connection that was closed while it lay idle.
const RETRIES: u8 = 1;

pub(super) fn environment() -> Vec<(String, String)> {
    // No address: codex takes none from the environment, and waits for minutes on the one that it has built in.
    super::variables(&[(KEY_VARIABLE, PLACEHOLDER_KEY)])
}

/// `~/.codex/config.toml`. All of its keys pass codex's own `--strict-config`; they are not started with it, since an
/// older or newer version that lacks a switch here would not run at all for a thing that the broker refuses anyway.
#[derive(Serialize)]
struct Config<'a> {
    model: &'a str,
    model_provider: &'a str,
    web_search: &'a str,
    check_for_update_on_startup: bool,
    model_providers: Providers<'a>,
    analytics: Switch,
    otel: Otel<'a>,
    features: Features,
    agents: Switch,
}

#[derive(Serialize)]
struct Providers<'a> {
    anet: Provider<'a>,
}

/// A provider of its own: the built-in one opens a WebSocket first, and sends no key from the environment.
#[derive(Serialize)]
struct Provider<'a> {
    name: &'a str,
    base_url: String,
    env_key: &'a str,
    wire_api: &'a str,
    supports_websockets: bool,
    request_max_retries: u8,
    stream_max_retries: u8,
}

#[derive(Serialize)]
struct Switch {
    enabled: bool,
}

#[derive(Serialize)]
struct Otel<'a> {
    exporter: &'a str,
    metrics_exporter: &'a str,
    trace_exporter: &'a str,
}

/// What asks other hosts when codex starts and ends, and what runs at the service.
#[derive(Serialize)]
struct Features {
    plugins: bool,
    apps: bool,
    remote_plugin: bool,
    skill_search: bool,
    image_generation: bool,
}

pub(super) fn home_files(setup: &Setup<'_>) -> Vec<HomeFile> {
    let config = Config {
        model: setup.model,
        model_provider: "anet",
        web_search: "disabled",
        check_for_update_on_startup: false,
        model_providers: Providers {
            anet: Provider {
                name: "anet",
                base_url: format!("{}/v1", setup.model_url),
                env_key: KEY_VARIABLE,
                wire_api: "responses",
                supports_websockets: false,
                request_max_retries: RETRIES,
                stream_max_retries: RETRIES,
            },
        },
        analytics: Switch { enabled: false },
        otel: Otel { exporter: "none", metrics_exporter: "none", trace_exporter: "none" },
        features: Features {
            plugins: false,
            apps: false,
            remote_plugin: false,
            skill_search: false,
            image_generation: false,
        },
        agents: Switch { enabled: false },
    };
    // Strings, numbers and tables only: this cannot fail, and an empty file would reach no model.
    let contents = toml::to_string(&config).unwrap_or_default().into_bytes();
    vec![HomeFile { path: ".codex/config.toml", contents }]
}

pub(super) fn start(installed: &Installed, setup: &Setup<'_>) -> Result<Start, Trouble> {
    let model = format!("--model={}", setup.model);
    let argv = words(
        &installed.program,
        &[
            "exec",
            "--skip-git-repo-check",
            // Its own sandbox cannot be made within ours: commands would fail, and codex report success.
            "--dangerously-bypass-approvals-and-sandbox",
            "--ephemeral",
            "--color=never",
            "--json",
            &model,
            // The task is standard input.
            "-",
        ],
    )?;
    Ok(Start { argv, stdin: Stdin::Task, before_task: b"", answer: AnswerFormat::Codex, files: Vec::new() })
}

/// Its own sandbox is the operator's to set; a work directory is no repository, which it would refuse to start in.
pub(super) fn start_direct(installed: &Installed) -> Result<Start, Trouble> {
    let argv = words(&installed.program, &["exec", "--skip-git-repo-check", "--color=never", "--json", "-"])?;
    Ok(Start { argv, stdin: Stdin::Task, before_task: b"", answer: AnswerFormat::Codex, files: Vec::new() })
}
