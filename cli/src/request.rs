//! From arguments to a run that can be prepared: every value parsed into its type, each error with its option.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use ipc_proto::limits::{LIMIT_NAMES, LimitName, Unit};
use ipc_proto::proxy::MAX_HOSTS;
use ipc_proto::{Code, HostName, Upstream, units};
use supervisor::config::Agent;
use supervisor::error::Trouble;
use supervisor::guard::{AgentRequest, EnvOption, RunRequest, TerminalChoice, Work};

use crate::arguments::{Anet, Run};

/// Checks everything that can be checked without looking at the host.
pub(crate) fn from_arguments(anet: &Anet, run: &Run) -> Result<RunRequest, Trouble> {
    if anet.json {
        return Err(bad(
            "--json: standard output is the command's; use --record FILE for the run's record".into()
        ));
    }
    if anet.system {
        return Err(to_come("--system"));
    }
    refuse_what_is_to_come(run)?;
    let agent = agent(run)?;
    if run.command.is_empty() && agent.is_none() {
        return Err(bad(
            "there is no command to run; give one after --, such as: anet run -- make test".into()
        ));
    }
    let mut request = RunRequest {
        configuration: anet.config.clone(),
        command: run.command.iter().map(|word| c_string("the command", word)).collect::<Result<_, _>>()?,
        agent,
        work: match (&run.work, run.here) {
            (Some(directory), _) => Work::Directory(directory.clone()),
            (None, true) => Work::Here,
            (None, false) => Work::Fresh,
        },
        read_write: run.rw.clone(),
        read_only: run.ro.clone(),
        deny: run.deny.clone(),
        environment: run.env.iter().map(|option| variable(option)).collect::<Result<_, _>>()?,
        hosts: hosts(&run.allow)?,
        timeout: None,
        untrusted: run.untrusted,
        limits: run.limit.iter().map(|option| limit(option)).collect::<Result<_, _>>()?,
        budget_destinations: None,
        budget_bytes_out: None,
        budget_window: None,
        record: run.record.clone(),
        terminal: match run.tty.as_str() {
            "auto" => TerminalChoice::Auto,
            "always" => TerminalChoice::Always,
            "never" => TerminalChoice::Never,
            other => return Err(bad(format!("--tty {other}: give auto, always or never"))),
        },
        quiet: run.quiet,
        verbose: anet.verbose > 0,
    };
    if let Some(text) = &run.timeout {
        let timeout = units::parse_time(text).map_err(|error| bad(format!("--timeout {text}: {error}")))?;
        if timeout.is_zero() {
            return Err(bad(format!("--timeout {text}: leaves no time at all")));
        }
        request.timeout = Some(timeout);
    }
    for option in &run.budget {
        budget(&mut request, option)?;
    }
    Ok(request)
}

/// Options whose part of anet is not there yet: said as such, never ignored.
fn refuse_what_is_to_come(run: &Run) -> Result<(), Trouble> {
    let given =
        [("--settings", run.settings.is_some()), ("--ask", run.ask), ("--decider", run.decider.is_some())];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(to_come(option)),
        None => Ok(()),
    }
}

/// The agent, and what only an agent has.
fn agent(run: &Run) -> Result<Option<AgentRequest>, Trouble> {
    let Some(name) = &run.agent else {
        let given = [
            ("--prompt", run.prompt.is_some()),
            ("--model", run.model.is_some()),
            ("--api-base", run.api_base.is_some()),
            ("--credential", run.credential.is_some()),
        ];
        return match given.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(bad(format!("{option} is an agent's; say which one with --agent NAME"))),
            None => Ok(None),
        };
    };
    let agent = Agent::parse(name).ok_or_else(|| {
        let names: Vec<&str> = Agent::ALL.into_iter().map(Agent::as_str).collect();
        bad(format!("--agent {name}: no such agent; there are {}", names.join(" ")))
    })?;
    let api_base = run
        .api_base
        .as_ref()
        .map(|text| text.parse::<Upstream>().map_err(|error| bad(format!("--api-base: {error}"))));
    Ok(Some(AgentRequest {
        agent,
        prompt: run.prompt.clone(),
        model: run.model.clone(),
        api_base: api_base.transpose()?,
        credential: run.credential.as_ref().map(|name| name.parse()).transpose()?,
    }))
}

fn hosts(texts: &[String]) -> Result<Vec<HostName>, Trouble> {
    let mut hosts: Vec<HostName> = Vec::new();
    for text in texts {
        let host =
            text.parse().map_err(|error| Trouble::new(Code::BadHost, format!("--allow {text}: {error}")))?;
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    if hosts.len() > MAX_HOSTS {
        let what = format!("--allow: {} hosts, and at most {MAX_HOSTS} can be allowed", hosts.len());
        return Err(Trouble::new(Code::BadHost, what));
    }
    Ok(hosts)
}

fn variable(option: &OsStr) -> Result<EnvOption, Trouble> {
    let bytes = option.as_bytes();
    let shown = option.to_string_lossy();
    let cut = bytes.iter().position(|byte| *byte == b'=');
    let (name, value) = match cut {
        Some(cut) => (bytes.get(..cut).unwrap_or_default(), Some(bytes.get(cut + 1..).unwrap_or_default())),
        None => (bytes, None),
    };
    let starts_well = name.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    if !starts_well || !name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        // Only the name: a value may be a secret.
        let shown = shown.split('=').next().unwrap_or_default();
        return Err(bad(format!(
            "--env {shown}: a variable's name has letters, digits and _, and no digit first"
        )));
    }
    let name = String::from_utf8_lossy(name).into_owned();
    Ok(match value {
        Some(value) => EnvOption::Set(name, value.to_vec()),
        None => EnvOption::Pass(name),
    })
}

fn limit(option: &str) -> Result<(LimitName, u64), Trouble> {
    let (name, value) = pair("--limit", option)?;
    let known = LIMIT_NAMES.into_iter().filter(|known| *known != LimitName::WallClock);
    let Some(limit) = known.clone().find(|known| known.as_str() == name) else {
        let names: Vec<&str> = known.map(LimitName::as_str).collect();
        return Err(bad(format!("--limit {name}: no such limit; there are {}", names.join(" "))));
    };
    let number = match limit.unit() {
        Unit::Bytes => units::parse_size(value),
        Unit::Count => units::parse_count(value),
        Unit::Milliseconds => {
            units::parse_time(value).map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        }
    };
    Ok((limit, number.map_err(|error| bad(format!("--limit {option}: {error}")))?))
}

fn budget(request: &mut RunRequest, option: &str) -> Result<(), Trouble> {
    let (name, value) = pair("--budget", option)?;
    let wrong = |error: units::UnitError| bad(format!("--budget {option}: {error}"));
    match name {
        "destinations" => request.budget_destinations = Some(units::parse_count(value).map_err(wrong)?),
        "bytes_out" => request.budget_bytes_out = Some(units::parse_size(value).map_err(wrong)?),
        "window" => {
            let window = units::parse_time(value).map_err(wrong)?;
            request.budget_window = Some(u64::try_from(window.as_millis()).unwrap_or(u64::MAX));
        }
        "credentials" => return Err(to_come("--budget credentials")),
        other => {
            let names = "destinations bytes_out window credentials";
            return Err(bad(format!("--budget {other}: no such budget; there are {names}")));
        }
    }
    Ok(())
}

fn pair<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a str), Trouble> {
    text.split_once('=')
        .ok_or_else(|| bad(format!("{option} {text}: give NAME=VALUE, such as tunnels_open=4")))
}

fn c_string(what: &str, text: &OsStr) -> Result<CString, Trouble> {
    CString::new(text.as_bytes()).map_err(|_| bad(format!("{what} has a NUL byte")))
}

fn bad(sentence: String) -> Trouble {
    Trouble::new(Code::BadOption, sentence)
}

fn to_come(what: &str) -> Trouble {
    Trouble::new(Code::NotInThisVersion, format!("{what} is not in this version; leave it out"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn parse(words: &[&str]) -> Result<RunRequest, Trouble> {
        let anet = Anet::try_parse_from(["anet", "run"].iter().chain(words)).unwrap();
        let crate::arguments::Subcommand::Run(run) = &anet.subcommand else { panic!() };
        from_arguments(&anet, run)
    }

    /// USE-3: a command alone is enough, and what follows it is its own.
    #[test]
    fn a_command_keeps_its_own_options() {
        let request = parse(&["--", "sh", "-c", "exit 7"]).unwrap();
        assert_eq!(request.command, [c"sh".into(), c"-c".into(), CString::from(c"exit 7")]);
        let request = parse(&["ls", "--here", "-l"]).unwrap();
        assert_eq!((request.command.len(), request.work), (3, Work::Fresh));
        assert!(Anet::try_parse_from(["anet", "run", "--no-such-option", "ls"]).is_err());
    }

    /// EGR-2, USE-1: what is wrong gets its own code, and names its option.
    #[test]
    fn wrong_values_are_named() {
        for (words, code, name) in [
            (vec!["--allow", "*.example.com", "ls"], Code::BadHost, "wildcard"),
            (vec!["--allow", "example.com:443", "ls"], Code::BadHost, "port"),
            (vec!["--timeout", "10", "ls"], Code::BadOption, "--timeout 10"),
            (vec!["--limit", "memory=2GB", "ls"], Code::BadOption, "memory"),
            (vec!["--limit", "wall_clock=1", "ls"], Code::BadOption, "no such limit"),
            (vec!["--model", "m", "ls"], Code::BadOption, "--agent NAME"),
            (vec!["--agent", "aider", "ls"], Code::BadOption, "no such agent"),
            (
                vec!["--agent", "opencode", "--api-base", "http://api.example.com"],
                Code::BadOption,
                "plain http",
            ),
            (vec!["--agent", "claude", "--credential", "sk-ANT"], Code::BadOption, "lower-case"),
            (vec!["--budget", "luck=1", "ls"], Code::BadOption, "no such budget"),
            (vec!["--env", "1A=secret", "ls"], Code::BadOption, "--env 1A:"),
            (vec!["--tty", "maybe", "ls"], Code::BadOption, "--tty maybe"),
            (vec!["--ask", "ls"], Code::NotInThisVersion, "--ask"),
            (vec!["--here"], Code::BadOption, "no command"),
        ] {
            let trouble = parse(&words).unwrap_err();
            assert_eq!(trouble.code, code, "{words:?}");
            assert!(trouble.sentence.contains(name), "{words:?}: {trouble}");
            assert!(!trouble.sentence.contains("secret"), "a value of a variable is never shown");
        }
    }
}
