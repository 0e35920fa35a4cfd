//! claude, as `@anthropic-ai/claude-code` 2.1 and its native installer have it.

use std::ffi::CString;

use super::{AnswerFormat, Installed, PLACEHOLDER_KEY, Setup, Start, Stdin, words};
use crate::error::Trouble;

/// The tools that work at the service, which the broker would refuse (MOD-4), and one that asks a host that is never
/// allowed before each fetch.
const NO_TOOLS: &str = "WebSearch,WebFetch";
/// Tries again after an answer that may be better the next time (429, 500, 529); by itself claude goes on for minutes.
const RETRIES: &str = "2";

pub(super) fn environment(setup: &Setup<'_>) -> Vec<(String, String)> {
    let cap = setup.output_tokens.to_string();
    super::variables(&[
        // Without /v1: claude adds its paths to this.
        ("ANTHROPIC_BASE_URL", setup.model_url),
        ("ANTHROPIC_API_KEY", PLACEHOLDER_KEY),
        ("ANTHROPIC_MODEL", setup.model),
        // Whichever model it would take for a task of its own: all are one here (MOD-2).
        ("ANTHROPIC_DEFAULT_HAIKU_MODEL", setup.model),
        ("ANTHROPIC_DEFAULT_SONNET_MODEL", setup.model),
        ("ANTHROPIC_DEFAULT_OPUS_MODEL", setup.model),
        ("CLAUDE_CODE_SUBAGENT_MODEL", setup.model),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", &cap),
        ("CLAUDE_CODE_MAX_RETRIES", RETRIES),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_TELEMETRY", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
    ])
}

pub(super) fn start(installed: &Installed, setup: &Setup<'_>) -> Result<Start, Trouble> {
    let model = format!("--model={}", setup.model);
    let argv = words(
        &installed.program,
        &[
            "--print",
            "--output-format=json",
            "--dangerously-skip-permissions",
            "--no-session-persistence",
            &format!("--disallowedTools={NO_TOOLS}"),
            &model,
        ],
    )?;
    Ok(printing(argv))
}

/// A tool that the operator's settings do not allow is refused to it: nobody is there to be asked.
pub(super) fn start_direct(installed: &Installed) -> Result<Start, Trouble> {
    Ok(printing(words(&installed.program, &["--print", "--output-format=json"])?))
}

fn printing(argv: Vec<CString>) -> Start {
    Start {
        argv,
        stdin: Stdin::Task,
        // A text whose first character is a slash is a command of claude's own (`/clear`, `/model`), which it answers
        // without asking the model; after an empty line it is text.
        before_task: b"\n",
        answer: AnswerFormat::Claude,
        files: Vec::new(),
    }
}
