//! The whole environment of the command (SBX-6), built from nothing.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use ipc_proto::init::EGRESS_PORT;
use ipc_proto::launcher::{INSIDE_HOME, INSIDE_PATH, INSIDE_TEMPORARY};
use ipc_proto::{Code, RunId};

use super::agent::Setting;
use super::request::{EnvOption, RunRequest};
use crate::error::Trouble;

/// Variables that pass from the operator: the locale.
const LOCALE: [&str; 13] = [
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_COLLATE",
    "LC_MESSAGES",
    "LC_NUMERIC",
    "LC_TIME",
    "LC_MONETARY",
    "LC_PAPER",
    "LC_NAME",
    "LC_ADDRESS",
    "LC_MEASUREMENT",
];
/// Variables that are anet's to set.
const RESERVED: [&str; 4] = ["ANET_RUN", "ANET_MODEL_URL", "HTTPS_PROXY", "https_proxy"];

/// The whole environment of the command (SBX-6), built from nothing; without a run, of any.
pub(super) fn environment(
    request: &RunRequest,
    setting: &Setting,
    run: Option<RunId>,
    terminal: bool,
) -> Result<Vec<CString>, Trouble> {
    let mut variables: Vec<(String, Vec<u8>)> = Vec::new();
    let mut set = |name: &str, value: Vec<u8>| {
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_owned(), value));
    };
    set("LANG", b"C.UTF-8".to_vec());
    for name in LOCALE {
        if let Some(value) = std::env::var_os(name).filter(|value| is_plain(value)) {
            set(name, value.as_bytes().to_vec());
        }
    }
    let mut path = INSIDE_PATH.as_bytes().to_vec();
    if let Some(more) = &setting.on_path {
        path.push(b':');
        path.extend_from_slice(more.as_os_str().as_bytes());
    }
    set("PATH", path);
    set("HOME", INSIDE_HOME.into());
    set("TMPDIR", INSIDE_TEMPORARY.into());
    if terminal {
        let kind = std::env::var_os("TERM").filter(|value| is_plain(value)).unwrap_or_else(|| "dumb".into());
        set("TERM", kind.as_bytes().to_vec());
    }
    for (name, value) in &setting.environment {
        set(name, value.clone().into_bytes());
    }
    for option in &request.environment {
        let (name, value) = match option {
            EnvOption::Set(name, value) => (name, Some(value.clone())),
            EnvOption::Pass(name) => (name, std::env::var_os(name).map(|value| value.as_bytes().to_vec())),
        };
        if RESERVED.contains(&name.as_str()) {
            return Err(Trouble::new(
                Code::BadOption,
                format!("--env {name}: anet sets this variable itself"),
            ));
        }
        let Some(value) = value else {
            return Err(Trouble::new(
                Code::BadOption,
                format!("--env {name}: there is no such variable here; set it, or give --env {name}=VALUE"),
            ));
        };
        set(name, value);
    }
    if let Some(run) = run {
        set("ANET_RUN", run.to_string().into_bytes());
    }
    let proxy = format!("http://127.0.0.1:{EGRESS_PORT}");
    set("HTTPS_PROXY", proxy.clone().into_bytes());
    set("https_proxy", proxy.into_bytes());
    variables
        .into_iter()
        .map(|(name, mut value)| {
            let mut entry = name.clone().into_bytes();
            entry.push(b'=');
            entry.append(&mut value);
            CString::new(entry)
                .map_err(|_| Trouble::new(Code::BadOption, format!("--env {name}: a value with a NUL byte")))
        })
        .collect()
}

/// A locale or terminal name: nothing that could be a path or a program's own syntax.
fn is_plain(value: &OsStr) -> bool {
    let bytes = value.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= 64
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.-@+:".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::request;
    use super::*;

    /// SBX-6: nothing of the operator's environment but the locale, and nobody sets what is anet's.
    #[test]
    fn the_environment_is_built_from_nothing() {
        let mut request = request();
        request.environment =
            vec![EnvOption::Set("A".into(), b"1".to_vec()), EnvOption::Set("A".into(), b"2".to_vec())];
        let run = RunId::new(1, [0; 4]);
        let names: Vec<String> = environment(&request, &Setting::default(), Some(run), false)
            .unwrap()
            .iter()
            .map(|entry| entry.to_str().unwrap().to_owned())
            .filter(|entry| !entry.starts_with("LANG") && !entry.starts_with("LC_"))
            .collect();
        assert_eq!(
            names,
            [
                "PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
                "HOME=/home/anet".into(),
                "TMPDIR=/tmp".into(),
                "A=2".into(),
                format!("ANET_RUN={run}"),
                "HTTPS_PROXY=http://127.0.0.1:61080".into(),
                "https_proxy=http://127.0.0.1:61080".into(),
            ]
        );
        request.environment = vec![EnvOption::Set("https_proxy".into(), b"x".to_vec())];
        assert_eq!(
            environment(&request, &Setting::default(), Some(run), false).unwrap_err().code,
            Code::BadOption
        );
    }
}
