//! opencode, as `opencode-ai` 1.18 has it.

use serde_json::json;

use super::{AnswerFormat, CONTEXT_TOKENS, Installed, PLACEHOLDER_KEY, Setup, Start, Stdin, words};
use crate::error::Trouble;

pub(super) fn environment(setup: &Setup<'_>) -> Vec<(String, String)> {
    let model = format!("anet/{}", setup.model);
    // As a variable and not as a file: it stands above the configuration of the project that opencode works in.
    let config = json!({
        "autoupdate": false,
        "share": "disabled",
        "lsp": false,
        "permission": "allow",
        "enabled_providers": ["anet"],
        "model": model,
        "small_model": model,
        "provider": {
            "anet": {
                "name": "anet",
                // Within opencode's own program: nothing is fetched for it.
                "npm": "@ai-sdk/openai-compatible",
                "options": { "baseURL": format!("{}/v1", setup.model_url), "apiKey": PLACEHOLDER_KEY },
                "models": {
                    (setup.model): {
                        "name": setup.model,
                        "tool_call": true,
                        "limit": { "context": CONTEXT_TOKENS, "output": setup.output_tokens },
                    },
                },
            },
        },
    });
    super::variables(&[
        ("OPENCODE_CONFIG_CONTENT", &config.to_string()),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
        // A project's `.opencode` is protected (FS-4), and opencode fails where it cannot write into one that it reads.
        ("OPENCODE_DISABLE_PROJECT_CONFIG", "1"),
    ])
}

pub(super) fn start(installed: &Installed, setup: &Setup<'_>) -> Result<Start, Trouble> {
    let model = format!("--model=anet/{}", setup.model);
    // With a title of its own it does not ask the model for one.
    let argv = words(&installed.program, &["run", "--pure", "--format=json", "--title=anet", &model])?;
    Ok(Start {
        argv,
        stdin: Stdin::Task,
        before_task: b"",
        answer: AnswerFormat::Opencode,
        files: Vec::new(),
    })
}

/// What its configuration asks about is refused to it: nobody is there to be asked.
pub(super) fn start_direct(installed: &Installed) -> Result<Start, Trouble> {
    let argv = words(&installed.program, &["run", "--format=json"])?;
    Ok(Start {
        argv,
        stdin: Stdin::Task,
        before_task: b"",
        answer: AnswerFormat::Opencode,
        files: Vec::new(),
    })
}
