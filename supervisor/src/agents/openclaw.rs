//! openclaw, as npm's openclaw 2026.9 has it.

use std::path::{Path, PathBuf};

use ipc_proto::launcher::INSIDE_HOME;
use serde_json::json;

use super::find::{Search, Via, Why, file_name, resolve, shown};
use super::native::is_elf;
use super::{
    AnswerFormat, CONTEXT_TOKENS, HomeFile, Installed, PLACEHOLDER_KEY, Setup, Start, Stdin, node, word,
};
use crate::config::Agent;
use crate::error::Trouble;

/// The script that node runs, in the package's directory.
const SCRIPT: &str = "openclaw.mjs";
/// Where the package stands relative to a directory above a script that starts it.
const PACKAGES: [&str; 2] = ["node_modules/openclaw", "lib/node_modules/openclaw"];

/// The directory of its state, below HOME.
const STATE: &str = ".openclaw";
/// Its configuration, below HOME.
const CONFIG: &str = ".openclaw/openclaw.json";
/// openclaw ends a turn after ten minutes unless it is told otherwise; the run's wall clock is the guard's to keep. A day,
/// in seconds.
const TIMEOUT: &str = "86400";

/// The package that `real` is part of or starts, and the node for it. `candidate` is the name that it was found by.
pub(super) fn examine(candidate: &Path, real: &Path, search: &Search<'_>) -> Result<Installed, Why> {
    let program = script(real)?;
    let beside = candidate.parent().unwrap_or(candidate);
    let runtime = node::find(beside, search)?;
    if !is_elf(&runtime) {
        return Err(Why::NoNode);
    }
    let visible = shown([modules(&program), runtime.clone()]);
    Ok(Installed { agent: Agent::Openclaw, program, runtime: Some(runtime), visible, via: Via::Script })
}

fn script(real: &Path) -> Result<PathBuf, Why> {
    if file_name(real) == SCRIPT {
        return whole(real.to_path_buf());
    }
    let mut packages = real
        .ancestors()
        .skip(1)
        .flat_map(|above| PACKAGES.iter().map(move |package| above.join(package).join(SCRIPT)));
    packages.find(|file| file.is_file()).map_or(Err(Why::NoProgram), |file| whole(resolve(&file)?))
}

/// The script, if it is the package's own: what stands around it is shown to the run, and a link is easily made to lead
/// elsewhere.
fn whole(script: PathBuf) -> Result<PathBuf, Why> {
    #[derive(serde::Deserialize)]
    struct Package {
        name: String,
    }
    let package = script.with_file_name("package.json");
    let text = std::fs::read(package).unwrap_or_default();
    let is_it = serde_json::from_slice::<Package>(&text).is_ok_and(|package| package.name == "openclaw");
    if is_it && file_name(&script) == SCRIPT { Ok(script) } else { Err(Why::NoProgram) }
}

/// The outermost `node_modules` above it: its dependencies stand beside it or, with pnpm, in a store there, and node finds
/// them only where a directory of that name is in the path. Without one, its own directory.
fn modules(program: &Path) -> PathBuf {
    let outermost = program.ancestors().filter(|above| file_name(above) == "node_modules").last();
    outermost.or(program.parent()).unwrap_or(program).to_path_buf()
}

pub(super) fn environment() -> Vec<(String, String)> {
    super::variables(&[("OPENCLAW_STATE_DIR", &format!("{INSIDE_HOME}/{STATE}"))])
}

pub(super) fn home_files(setup: &Setup<'_>) -> Vec<HomeFile> {
    let config = json!({
        "models": {
            // No other provider, whatever the environment has.
            "mode": "replace",
            "providers": {
                "anet": {
                    "baseUrl": format!("{}/v1", setup.model_url),
                    "apiKey": PLACEHOLDER_KEY,
                    "api": "openai-completions",
                    "models": [{
                        "id": setup.model,
                        "name": setup.model,
                        "reasoning": false,
                        "input": ["text"],
                        "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0 },
                        "contextWindow": CONTEXT_TOKENS,
                        "maxTokens": setup.output_tokens,
                    }],
                },
            },
        },
        "agents": {
            "defaults": {
                "model": { "primary": format!("anet/{}", setup.model) },
                "workspace": setup.directory.to_string_lossy(),
                // Its own notes (AGENTS.md, SOUL.md ...) are not written into the work directory.
                "skipBootstrap": true,
            },
        },
        "tools": { "web": { "search": { "enabled": false }, "fetch": { "enabled": false } } },
        "update": { "checkOnStart": false },
    });
    vec![HomeFile { path: CONFIG, contents: config.to_string().into_bytes() }]
}

pub(super) fn start(installed: &Installed, setup: &Setup<'_>) -> Result<Start, Trouble> {
    let config = format!("{INSIDE_HOME}/{CONFIG}");
    let model = format!("anet/{}", setup.model);
    executing(installed, &["--config", &config, "--model", &model], setup.directory)
}

/// By itself it works in a directory of its own below the operator's home.
pub(super) fn start_direct(installed: &Installed, directory: &Path) -> Result<Start, Trouble> {
    executing(installed, &[], directory)
}

fn executing(installed: &Installed, options: &[&str], directory: &Path) -> Result<Start, Trouble> {
    let mut argv = super::invocation(installed)?;
    for option in ["agent", "exec", "--json"].iter().chain(options).chain(&["--timeout", TIMEOUT, "--cwd"]) {
        argv.push(word(option)?);
    }
    argv.push(word(directory)?);
    argv.extend([word("--message-file")?, word("-")?]);
    Ok(Start {
        argv,
        stdin: Stdin::Task,
        before_task: b"",
        answer: AnswerFormat::Openclaw,
        files: Vec::new(),
    })
}
