//! `anet autoreply set`: the configuration file, changed key by key.

use std::path::Path;

use ipc_proto::host::HostError;
use ipc_proto::{Code, Upstream};
use serde_json::{Value, json as value};
use supervisor::config::{self, Config, Trusted};
use supervisor::error::{Trouble, one_line};
use supervisor::explain;
use supervisor::node::job::Mode;
use toml_edit::Value as Toml;

use super::Place;
use super::change::{Change, changes};
use super::confirm::{Person, Terminal, confirm};
use super::edit::{Changed, edit};
use super::file::{self, Locked};
use crate::arguments::{Anet, Set};
use crate::linux::print;
use crate::page::json;

#[cfg(test)]
mod tests;

pub(super) fn perform(anet: &Anet, set: &Set, place: &Place) -> Result<u8, Trouble> {
    let changes = changes(set)?;
    let changed = change(place, &changes, &mut Terminal)?;
    print(&if anet.json { document(&place.file, &changed) } else { words(&place.file, &changed) })?;
    Ok(0)
}

/// Confirms what needs it, then changes the file. What was confirmed is what is done: a file that somebody else changed
/// meanwhile is looked at again.
fn change(place: &Place, changes: &[Change], person: &mut impl Person) -> Result<Vec<Changed>, Trouble> {
    let confirmed = added_hosts(place, &file::read(&place.file)?, changes)?;
    confirm(person, &confirmed)?;
    let file = Locked::new(&place.file)?;
    let text = file.read()?;
    let added = added_hosts(place, &text, changes)?;
    if added.iter().any(|host| !confirmed.contains(host)) {
        return Err(Trouble::new(
            Code::BadOption,
            "the file was changed meanwhile, and more hosts would be added than were confirmed; nothing was changed: try again",
        ));
    }
    let edited = edit(&text, changes)?;
    if !edited.changed.is_empty() {
        file.replace(&edited.text)?;
    }
    Ok(edited.changed)
}

/// The hosts that the changes would add to a file with this text; all of it is checked on the way.
fn added_hosts(place: &Place, text: &str, changes: &[Change]) -> Result<Vec<String>, Trouble> {
    let named = |error: &dyn std::fmt::Display| {
        Trouble::new(Code::BadConfig, format!("{}: {error}; mend it first", place.file.display()))
    };
    let before = config::parse(text).map_err(|error| named(&error))?;
    let after = edit(text, changes).map_err(|trouble| {
        if trouble.code == Code::BadConfig { named(&trouble.sentence) } else { trouble }
    })?;
    let after = config::parse(&after.text).map_err(|error| named(&error))?;
    check(place.mode, &after)?;
    let hosts = |config: &Config| -> Vec<String> {
        config.auto_reply.sandbox.egress_allow.iter().map(|host| host.as_str().to_owned()).collect()
    };
    let known = hosts(&before);
    Ok(hosts(&after).into_iter().filter(|host| !known.contains(host)).collect())
}

/// What no single key says: the node would not start with it.
fn check(mode: Mode, config: &Config) -> Result<(), Trouble> {
    let reply = &config.auto_reply;
    if mode == Mode::System && reply.trusted == Some(Trusted::Direct) {
        return Err(Trouble::new(Code::DirectInService, explain::sentence(Code::DirectInService)));
    }
    // EGR-2: the model's service is reached through the broker alone.
    let service = reply.api_base.parse::<Upstream>().map(|upstream| upstream.host().to_string()).ok();
    let allowed = &reply.sandbox.egress_allow;
    match allowed.iter().find(|host| Some(host.as_str()) == service.as_deref()) {
        Some(host) => {
            Err(Trouble::new(Code::BadHost, format!("--egress-allow {host}: {}", HostError::ModelService)))
        }
        None => Ok(()),
    }
}

fn document(file: &Path, changed: &[Changed]) -> String {
    let rows: Vec<_> = changed
        .iter()
        .map(|changed| value!({ "key": changed.key, "old": of_toml(&changed.old), "new": of_toml(&changed.new) }))
        .collect();
    json(&value!({ "file": file.display().to_string(), "changed": rows }))
}

/// The value for a program; none: the default holds.
fn of_toml(text: &Option<String>) -> Value {
    fn of(value: &Toml) -> Value {
        match value {
            Toml::String(text) => value!(text.value()),
            Toml::Integer(number) => value!(number.value()),
            Toml::Boolean(flag) => value!(flag.value()),
            Toml::Array(array) => array.iter().map(of).collect(),
            other @ (Toml::Float(_) | Toml::Datetime(_) | Toml::InlineTable(_)) => value!(other.to_string()),
        }
    }
    text.as_ref().and_then(|text| text.parse().ok()).map_or(Value::Null, |value| of(&value))
}

fn words(file: &Path, changed: &[Changed]) -> String {
    if changed.is_empty() {
        return format!("{}: it says so already\n", one_line(&file.display().to_string()));
    }
    let of =
        |text: &Option<String>| text.as_ref().map_or_else(|| "(default)".to_owned(), |text| one_line(text));
    changed
        .iter()
        .map(|changed| format!("{}: {} -> {}\n", changed.key, of(&changed.old), of(&changed.new)))
        .collect()
}
