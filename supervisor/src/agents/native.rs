//! Agents that are one program each: claude, codex, opencode. Their npm packages hold a small script, and the program in a
//! package of its own for each kind of machine; their installers put the program itself somewhere.

use std::path::{Path, PathBuf};

use super::find::{Installed, Via, Why, file_name, head, is_program, resolve, shown};
use crate::config::Agent;

/// The first bytes of a program.
const ELF: &[u8] = b"\x7fELF";
/// Programs that stand in for others under those others' names. They need their own configuration and the network.
const SWITCHES: [&str; 4] = ["mise", "asdf", "volta-shim", "proto-shim"];
/// Names a directory that is one whole package of codex, in npm and without it.
const CODEX_PACKAGE: &str = "codex-package.json";

/// Where the packages of one agent have its program; `ARCH` and `TRIPLE` stand for this machine's words.
#[derive(Debug)]
pub(super) struct Layout {
    /// Packages, the best first.
    packages: &'static [&'static str],
    /// The program within one of them.
    programs: &'static [&'static str],
    /// Programs that belong beside it where it is installed alone.
    companions: &'static [&'static str],
}

pub(super) const CLAUDE: Layout = Layout {
    packages: &["@anthropic-ai/claude-code-linux-ARCH", "@anthropic-ai/claude-code-linux-ARCH-musl"],
    programs: &["claude"],
    companions: &[],
};
pub(super) const CODEX: Layout = Layout {
    // Before there was a package for each machine all of them were in one.
    packages: &["@openai/codex-linux-ARCH", "@openai/codex"],
    programs: &["vendor/TRIPLE/bin/codex", "vendor/TRIPLE/codex/codex"],
    // Without it the tools of newer models fail.
    companions: &["codex-code-mode-host"],
};
pub(super) const OPENCODE: Layout = Layout {
    packages: &[
        "opencode-linux-ARCH",
        "opencode-linux-ARCH-baseline",
        "opencode-linux-ARCH-musl",
        "opencode-linux-ARCH-baseline-musl",
    ],
    programs: &["bin/opencode"],
    companions: &[],
};

/// The program that `real` is or stands for.
pub(super) fn examine(agent: Agent, real: &Path, layout: &Layout) -> Result<Installed, Why> {
    if SWITCHES.contains(&file_name(real)) {
        return Err(Why::Switch);
    }
    let program = if is_elf(real) { real.to_path_buf() } else { in_packages(real, layout)? };
    let visible = match package(&program) {
        Some(package) => vec![package],
        None => alone(&program, layout),
    };
    Ok(Installed { agent, program, runtime: None, visible: shown(visible), via: Via::Script })
}

/// Whether it is a program of its own and not a script or anything else.
pub(super) fn is_elf(path: &Path) -> bool {
    head(path).is_some_and(|bytes| bytes.starts_with(ELF))
}

/// As node looks for a package: in `node_modules` beside the script and beside every directory above it. That covers one
/// directory a project, one for the user or host, packages nested in each other, and pnpm's store.
fn in_packages(script: &Path, layout: &Layout) -> Result<PathBuf, Why> {
    for above in script.ancestors().skip(1) {
        let modules = above.join("node_modules");
        if !modules.is_dir() {
            continue;
        }
        for package in layout.packages.iter().filter_map(|package| for_this_machine(package)) {
            let package = modules.join(package);
            let mut programs = layout.programs.iter().filter_map(|program| for_this_machine(program));
            if let Some(program) = programs.find_map(|program| {
                Some(package.join(program)).filter(|file| is_program(file) && is_elf(file))
            }) {
                return resolve(&program);
            }
        }
    }
    Err(Why::NoProgram)
}

/// None: there is no such program for this machine, or it would not run here.
fn for_this_machine(pattern: &str) -> Option<String> {
    let (arch, triple) = match std::env::consts::ARCH {
        "x86_64" => ("x64", "x86_64-unknown-linux-musl"),
        "aarch64" => ("arm64", "aarch64-unknown-linux-musl"),
        _ => return None,
    };
    if pattern.starts_with("opencode-") && !pattern.contains("baseline") && !has_avx2() {
        return None;
    }
    Some(pattern.replace("ARCH", arch).replace("TRIPLE", triple))
}

/// opencode's usual program for x86-64 needs it; its baseline does not.
fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return true;
}

/// The directory of the package that the program is part of.
fn package(program: &Path) -> Option<PathBuf> {
    let in_npm = program.components().any(|part| part.as_os_str() == "node_modules");
    let marker = if in_npm { "package.json" } else { CODEX_PACKAGE };
    program
        .ancestors()
        .skip(1)
        // Not beyond the package: what is above are other packages, or a person's project.
        .take_while(|above| file_name(above) != "node_modules")
        .find(|above| above.join(marker).is_file())
        .map(Path::to_path_buf)
}

/// The program alone, and what belongs beside it.
fn alone(program: &Path, layout: &Layout) -> Vec<PathBuf> {
    let companions =
        layout.companions.iter().map(|name| program.with_file_name(name)).filter(|file| is_program(file));
    std::iter::once(program.to_path_buf()).chain(companions).collect()
}
