//! hermes, as PyPI's hermes-agent 0.19 has it.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use ipc_proto::launcher::INSIDE_HOME;
use serde_json::json;

use super::find::{Installed, Via, Why, head, resolve, shown};
use super::native::is_elf;
use super::{
    AnswerFormat, CONTEXT_TOKENS, HomeFile, PLACEHOLDER_KEY, Setup, Start, Stdin, task_argument, word,
};
use crate::config::Agent;
use crate::error::Trouble;

/// The directory of its state, below HOME.
const STATE: &str = ".hermes";
/// Requests in all, where the service answers with what may be better the next time; hermes's own number is 3, with seconds
/// between them.
const TRIES: u8 = 2;
/// Starts hermes in a Python that is not the one of its own environment: argument 1 is that environment's packages.
const START_BESIDE: &str = "import site,sys;site.addsitedir(sys.argv.pop(1));sys.argv[0]='hermes';\
                            from hermes_cli.main import main;sys.exit(main())";

/// The Python that starts the script `real`, and where both find their packages.
pub(super) fn examine(real: &Path) -> Result<Installed, Why> {
    let named = interpreter(real).ok_or(Why::NotPython)?;
    let (Some(directory), Some(name)) = (named.parent(), named.file_name()) else {
        return Err(Why::NotPython);
    };
    // The directory without links; the name itself is one in a virtual environment, and Python needs it to know that it
    // is in one.
    let python = resolve(directory)?.join(name);
    let base = resolve(&python)?;
    let base_prefix = prefix(&base);
    // All of it is shown to the run, and a link is easily made to lead elsewhere.
    if !is_elf(&base) || !is_python_prefix(&base_prefix) {
        return Err(Why::NotPython);
    }
    let environment = prefix(&python);
    let is_virtual = environment.join("pyvenv.cfg").is_file();
    let (packages, source) = packages(real, &environment, is_virtual)?;
    let mut visible = source.map_or_else(Vec::new, |source| vec![source]);
    visible.push(if is_virtual { environment } else { real.to_path_buf() });
    if !packages.starts_with("/usr") {
        visible.push(packages.clone());
    }
    if !base_prefix.starts_with("/usr") {
        visible.push(base_prefix);
    }
    let visible = shown(visible);
    let own = prefix(&python);
    // A Python finds by itself what is below its own prefix; the user's own packages are below HOME, which is another
    // inside.
    let finds = packages.starts_with(&own) || packages.starts_with("/usr") && own.starts_with("/usr");
    let (runtime, via) = if finds && is_direct(&python, &visible) {
        (python, Via::Script)
    } else {
        (base, Via::Packages(packages))
    };
    Ok(Installed { agent: Agent::Hermes, program: real.to_path_buf(), runtime: Some(runtime), visible, via })
}

/// The absolute interpreter of a script of pip, pipx or uv: in its first line, or in its second where that would be too
/// long or has a blank (`'''exec' "/a path/python" "$0" "$@"`).
fn interpreter(script: &Path) -> Option<PathBuf> {
    let bytes = head(script)?;
    let text = std::str::from_utf8(bytes.split(|byte| *byte == 0).next()?).ok()?;
    let mut lines = text.lines();
    let first = lines.next()?.strip_prefix("#!")?.trim();
    let named = if first == "/bin/sh" {
        let rest = lines.next()?.strip_prefix("'''exec' ")?;
        match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next()?,
            None => rest.split(' ').next()?,
        }
    } else {
        first.split(' ').next()?
    };
    let path = PathBuf::from(named);
    let is_python = path.file_name()?.to_str()?.starts_with("python");
    (path.is_absolute() && is_python).then_some(path)
}

/// Whether a Python is installed below it: its own library is where Python looks for it.
fn is_python_prefix(prefix: &Path) -> bool {
    libraries_of(prefix).any(|version| version.join("os.py").is_file())
}

/// `/p` of `/p/bin/python3`.
fn prefix(python: &Path) -> PathBuf {
    python.parent().and_then(Path::parent).unwrap_or(python).to_path_buf()
}

/// The directory of packages, and that of hermes's source where it was installed from one in place.
fn packages(script: &Path, environment: &Path, is_virtual: bool) -> Result<(PathBuf, Option<PathBuf>), Why> {
    // pip's `--user` puts scripts and packages below ~/.local, whichever Python it is.
    let mut prefixes = vec![environment.to_path_buf()];
    if !is_virtual {
        prefixes.push(prefix(script));
        prefixes.push("/usr/local".into());
    }
    let all: Vec<PathBuf> = prefixes.iter().flat_map(|prefix| libraries(prefix)).collect();
    if let Some(found) = all.iter().find(|packages| packages.join("hermes_cli").is_dir()) {
        return Ok((found.clone(), None));
    }
    // hermes's own installer: an environment within the source, which is installed in place.
    let source = environment.parent().filter(|above| is_virtual && above.join("hermes_cli").is_dir());
    match (source, all.first()) {
        (Some(source), Some(packages)) => Ok((packages.clone(), Some(source.to_path_buf()))),
        (Some(_) | None, _) => Err(Why::NoPackages),
    }
}

/// `lib/python3.*` below a prefix.
fn libraries_of(prefix: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| super::find::file_name(path).starts_with("python3"))
}

/// `lib/python3.*/{site,dist}-packages` below a prefix.
fn libraries(prefix: &Path) -> Vec<PathBuf> {
    let both = libraries_of(prefix)
        .flat_map(|version| ["site-packages", "dist-packages"].map(|packages| version.join(packages)));
    both.filter(|packages| packages.is_dir()).collect()
}

/// Every link from this name to the program itself stands in a directory that is there inside under its own name. (A link
/// through a directory that is itself a link, as some version managers make, leads nowhere inside.)
fn is_direct(python: &Path, visible: &[PathBuf]) -> bool {
    /// As many links as the kernel follows.
    const LINKS: usize = 40;
    let mut path = python.to_path_buf();
    for _ in 0..LINKS {
        let is_inside = path.starts_with("/usr") || visible.iter().any(|shown| path.starts_with(shown));
        if !is_inside || path.parent().is_none_or(|parent| resolve(parent).ok().as_deref() != Some(parent)) {
            return false;
        }
        match std::fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(&path).join(target),
            Err(_) => return path.is_file(),
        }
    }
    false
}

pub(super) fn environment() -> Vec<(String, String)> {
    super::variables(&[("HERMES_HOME", &format!("{INSIDE_HOME}/{STATE}"))])
}

pub(super) fn home_files(setup: &Setup<'_>) -> Vec<HomeFile> {
    let config = json!({
        "model": {
            "provider": "custom",
            "default": setup.model,
            "base_url": format!("{}/v1", setup.model_url),
            "api_key": PLACEHOLDER_KEY,
            "max_tokens": setup.output_tokens,
            "context_length": CONTEXT_TOKENS,
        },
        "agent": { "api_max_retries": TRIES },
        // Both fetch programs from hosts that are not allowed, and wait for them.
        "security": { "tirith_enabled": false, "allow_lazy_installs": false },
    });
    // JSON is YAML.
    vec![HomeFile { path: ".hermes/config.yaml", contents: config.to_string().into_bytes() }]
}

/// What starts it, before any argument of its own.
pub(super) fn invocation(installed: &Installed) -> Result<Vec<CString>, Trouble> {
    Ok(match (&installed.runtime, &installed.via) {
        (Some(python), Via::Packages(packages)) => {
            vec![word(python)?, word("-P")?, word("-c")?, word(START_BESIDE)?, word(packages)?]
        }
        (Some(python), Via::Script) => vec![word(python)?, word(&installed.program)?],
        (None, Via::Script | Via::Packages(_)) => vec![word(&installed.program)?],
    })
}

pub(super) fn start(installed: &Installed, task: &[u8]) -> Result<Start, Trouble> {
    let mut argv = invocation(installed)?;
    // In one argument with the option: a task that starts with a dash is still a task.
    argv.push(task_argument("hermes", b"--oneshot=", task)?);
    Ok(Start {
        argv,
        // What it finds there it would read as more of the task.
        stdin: Stdin::Nothing,
        before_task: b"",
        answer: AnswerFormat::Hermes,
        files: Vec::new(),
    })
}
