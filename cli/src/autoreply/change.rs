//! What `set` was asked to change: each option parsed into a key of the file and its value.

use std::path::Path;

use ipc_proto::broker::ModelId;
use ipc_proto::limits::{LIMIT_NAMES, LimitName, OUTPUT_TOKENS, Unit};
use ipc_proto::proxy::MAX_HOSTS;
use ipc_proto::{Aid, Code, HostName, Upstream, units};
use supervisor::error::Trouble;

use super::words::words;
use crate::arguments::Set;

/// One key and what becomes of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// The option, for errors.
    pub(super) option: &'static str,
    /// Where it stands in the file: tables, then the key.
    pub(super) path: Vec<&'static str>,
    pub(super) value: Value,
}

/// What a key is set to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Text(String),
    Flag(bool),
    Number(u64),
    /// A command line.
    Words(Vec<String>),
    /// A list in which order means nothing: whoever stays keeps their place and comment.
    Members(Vec<String>),
    /// The same, by what comes and goes.
    Differences {
        add: Vec<String>,
        remove: Vec<String>,
    },
    /// The key goes.
    Default,
}

const AUTO_REPLY: &str = "auto_reply";
const SANDBOX: &str = "sandbox";

/// The budgets that can be set, and those of a peer's day.
const BUDGETS: [(&str, Measure); 3] =
    [("destinations", Measure::Count), ("bytes_out", Measure::Bytes), ("window", Measure::Time)];
const DAY_BUDGETS: [(&str, Measure); 2] = [("destinations", Measure::Count), ("bytes_out", Measure::Bytes)];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measure {
    Count,
    Bytes,
    Time,
}

/// The changes, in the order of the file.
pub(super) fn changes(set: &Set) -> Result<Vec<Change>, Trouble> {
    let mut changes = Changes(Vec::new());
    if let Some(list) = &set.trust {
        let members = list_of(list).iter().map(|aid| peer("--trust", aid)).collect::<Result<_, _>>()?;
        changes.push("--trust", &["trust"], Value::Members(members));
    }
    if !set.trust_add.is_empty() || !set.trust_remove.is_empty() {
        let all =
            |option, aids: &[String]| aids.iter().map(|aid| peer(option, aid)).collect::<Result<_, _>>();
        let add = all("--trust-add", &set.trust_add)?;
        let remove = all("--trust-remove", &set.trust_remove)?;
        changes.push("--trust-add", &["trust"], Value::Differences { add, remove });
    }
    changes.text("--backend", "backend", set.backend.as_ref());
    changes.text("--agent", "agent", set.agent.as_ref());
    changes.words("--command", "command", set.command.as_ref())?;
    changes.text("--trusted", "trusted", set.trusted.as_ref());
    changes.text("--untrusted", "untrusted", set.untrusted.as_ref());
    if let Some(model) = set.model.as_ref().filter(|model| !model.is_empty()) {
        ModelId::try_from(model.clone()).map_err(|error| bad("--model", model, &error.to_string()))?;
    }
    changes.text("--model", "model", set.model.as_ref());
    if let Some(base) = set.api_base.as_ref().filter(|base| !base.is_empty()) {
        // Not shown: it may have a key in it, which is what is wrong with it.
        base.parse::<Upstream>()
            .map_err(|error| Trouble::new(Code::BadOption, format!("--api-base: {error}")))?;
    }
    changes.text("--api-base", "api_base", set.api_base.as_ref());
    if let Some(flag) = &set.api_base_private {
        changes.push("--api-base-private", &[AUTO_REPLY, "api_base_private"], Value::Flag(flag == "true"));
    }
    if set.api_timeout_seconds == Some(0) {
        return Err(bad("--api-timeout-seconds", "0", "a run needs some time"));
    }
    changes.number("--api-timeout-seconds", &["api_timeout_seconds"], set.api_timeout_seconds);
    if let Some(dir) = &set.work_dir {
        absolute("--work-dir", dir)?;
    }
    changes.text("--work-dir", "work_dir", set.work_dir.as_ref());
    changes.number("--retention-days", &["retention_days"], set.retention_days);
    changes.words("--notify", "notify", set.notify.as_ref())?;
    changes.number("--runs-per-day", &[SANDBOX, "runs_per_day"], set.runs_per_day);
    changes.number("--runs-per-peer-per-day", &[SANDBOX, "runs_per_peer_per_day"], set.runs_per_peer_per_day);
    if let Some(list) = &set.egress_allow {
        changes.push("--egress-allow", &[AUTO_REPLY, SANDBOX, "egress_allow"], Value::Members(hosts(list)?));
    }
    if let Some(list) = &set.read_only {
        let paths = list_of(list);
        paths.iter().try_for_each(|path| absolute("--read-only", path))?;
        changes.push("--read-only", &[AUTO_REPLY, SANDBOX, "read_only"], Value::Members(paths));
    }
    for option in &set.limit {
        limit(&mut changes, option)?;
    }
    for (option, table, known, given) in [
        ("--budget", "budget", &BUDGETS[..], &set.budget),
        ("--budget-per-peer-day", "budget_per_peer_day", &DAY_BUDGETS[..], &set.budget_per_peer_day),
    ] {
        for text in given {
            budget(&mut changes, option, table, known, text)?;
        }
    }
    if changes.0.is_empty() {
        let what = "name a key to change, such as --untrusted sandbox; see `anet autoreply set --help`";
        return Err(Trouble::new(Code::BadOption, what));
    }
    changes.once()
}

struct Changes(Vec<Change>);

impl Changes {
    fn push(&mut self, option: &'static str, path: &[&'static str], value: Value) {
        self.0.push(Change { option, path: path.to_vec(), value });
    }

    fn text(&mut self, option: &'static str, key: &'static str, text: Option<&String>) {
        if let Some(text) = text {
            self.push(option, &[AUTO_REPLY, key], Value::Text(text.clone()));
        }
    }

    fn words(
        &mut self,
        option: &'static str,
        key: &'static str,
        text: Option<&String>,
    ) -> Result<(), Trouble> {
        if let Some(text) = text {
            let words = words(text).map_err(|error| bad(option, text, &error.to_string()))?;
            self.push(option, &[AUTO_REPLY, key], Value::Words(words));
        }
        Ok(())
    }

    fn number(&mut self, option: &'static str, path: &[&'static str], number: Option<u32>) {
        if let Some(number) = number {
            let path: Vec<&'static str> = [AUTO_REPLY].iter().chain(path).copied().collect();
            self.push(option, &path, Value::Number(number.into()));
        }
    }

    /// A key that is given twice has two values, and neither is meant.
    fn once(self) -> Result<Vec<Change>, Trouble> {
        for (number, change) in self.0.iter().enumerate() {
            if self.0.iter().take(number).any(|other| other.path == change.path) {
                return Err(bad(change.option, change.path.last().unwrap_or(&""), "it is given twice"));
            }
        }
        Ok(self.0)
    }
}

/// The parts of a list with commas; none of an empty text.
fn list_of(text: &str) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if !list.iter().any(|known| known == part) {
            list.push(part.to_owned());
        }
    }
    list
}

fn peer(option: &str, text: &str) -> Result<String, Trouble> {
    text.parse::<Aid>().map(String::from).map_err(|error| bad(option, text, &error.to_string()))
}

fn hosts(list: &str) -> Result<Vec<String>, Trouble> {
    let list = list_of(list);
    for host in &list {
        host.parse::<HostName>()
            .map_err(|error| Trouble::new(Code::BadHost, format!("--egress-allow {host}: {error}")))?;
    }
    if list.len() > MAX_HOSTS {
        let what = format!("--egress-allow: {} hosts, and at most {MAX_HOSTS} can be allowed", list.len());
        return Err(Trouble::new(Code::BadHost, what));
    }
    Ok(list)
}

fn absolute(option: &str, path: &str) -> Result<(), Trouble> {
    if path.is_empty() || Path::new(path).is_absolute() {
        return Ok(());
    }
    Err(bad(option, path, "the node has no directory that it would be relative to; give a path from / on"))
}

fn limit(changes: &mut Changes, option: &str) -> Result<(), Trouble> {
    let (name, value) = pair("--limit", option)?;
    let known = || LIMIT_NAMES.into_iter().filter(|limit| *limit != LimitName::WallClock);
    let Some(limit) = known().find(|limit| limit.as_str() == name) else {
        let names: Vec<&str> = known().map(LimitName::as_str).collect();
        return Err(bad("--limit", name, &format!("no such limit; there are {}", names.join(" "))));
    };
    let measure = match limit.unit() {
        Unit::Bytes => Measure::Bytes,
        Unit::Count => Measure::Count,
        Unit::Milliseconds => Measure::Time,
    };
    let value = measured("--limit", option, measure, value)?;
    if let (LimitName::OutputTokens, Value::Number(tokens)) = (limit, &value)
        && !(1..=OUTPUT_TOKENS).contains(tokens)
    {
        return Err(bad(
            "--limit",
            option,
            &format!("an answer of the model has 1 to {OUTPUT_TOKENS} tokens"),
        ));
    }
    changes.push("--limit", &[AUTO_REPLY, SANDBOX, "limits", limit.as_str()], value);
    Ok(())
}

fn budget(
    changes: &mut Changes,
    option: &'static str,
    table: &'static str,
    known: &[(&'static str, Measure)],
    text: &str,
) -> Result<(), Trouble> {
    let (name, value) = pair(option, text)?;
    let Some((name, measure)) = known.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        return Err(bad(option, name, &format!("no such budget; there are {}", names.join(" "))));
    };
    let value = measured(option, text, *measure, value)?;
    changes.push(option, &[AUTO_REPLY, SANDBOX, table, name], value);
    Ok(())
}

/// A number in its unit: as the operator wrote it, where it has one.
fn measured(option: &str, whole: &str, measure: Measure, text: &str) -> Result<Value, Trouble> {
    if text == "default" {
        return Ok(Value::Default);
    }
    let wrong = |error: units::UnitError| bad(option, whole, &error.to_string());
    Ok(match measure {
        Measure::Count => Value::Number(storable(option, whole, units::parse_count(text).map_err(wrong)?)?),
        Measure::Bytes => {
            let bytes = storable(option, whole, units::parse_size(text).map_err(wrong)?)?;
            if text.parse::<u64>().is_ok() { Value::Number(bytes) } else { Value::Text(text.to_owned()) }
        }
        Measure::Time => {
            units::parse_time(text).map_err(wrong)?;
            Value::Text(text.to_owned())
        }
    })
}

/// TOML's whole numbers are signed.
fn storable(option: &str, whole: &str, number: u64) -> Result<u64, Trouble> {
    if i64::try_from(number).is_ok() {
        Ok(number)
    } else {
        Err(bad(option, whole, "it is more than there is of anything"))
    }
}

fn pair<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a str), Trouble> {
    text.split_once('=').ok_or_else(|| bad(option, text, "give NAME=VALUE"))
}

fn bad(option: &str, value: &str, why: &str) -> Trouble {
    Trouble::new(Code::BadOption, format!("{option} {value}: {why}"))
}
