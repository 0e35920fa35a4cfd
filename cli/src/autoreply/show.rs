//! `anet autoreply show`: what holds, written as a configuration file, and what of it is a default.

use ipc_proto::job::Budget;
use ipc_proto::limits::{LimitName, Limits, Unit};
use serde_json::{Value, json as value};
use supervisor::config::{self, Backend, Config, Trusted, Untrusted};
use supervisor::error::{Trouble, one_line};
use supervisor::node::job::Mode;
use toml_edit::DocumentMut;

use super::Place;
use super::edit::is_set;
use crate::arguments::Anet;
use crate::linux::print;
use crate::page::json;

/// Where the remark on a default stands.
const REMARK: usize = 40;

/// A table of the file: its name, and its keys with what holds.
type Part = (&'static [&'static str], Vec<(&'static str, Value)>);

pub(super) fn perform(anet: &Anet, place: &Place) -> Result<u8, Trouble> {
    // Read as the node reads it, so that what is wrong with it is said in the same words.
    let (config, text) = config::load(&place.file, anet.config.is_some())?;
    let document: DocumentMut = file_of(&text);
    let parts = parts(&config, place.mode);
    let shown = place.file.display().to_string();
    print(&if anet.json {
        json(&whole(&shown, place.file.exists(), &parts, &document))
    } else {
        page(&shown, place.file.exists(), &parts, &document)
    })?;
    Ok(0)
}

/// The text is a configuration already: it parses.
fn file_of(text: &str) -> DocumentMut {
    text.parse().unwrap_or_default()
}

fn parts(config: &Config, mode: Mode) -> Vec<Part> {
    let reply = &config.auto_reply;
    let sandbox = &reply.sandbox;
    let trusted = match (reply.trusted, mode) {
        (Some(Trusted::Off), _) => "off",
        (Some(Trusted::Direct), _) | (None, Mode::User) => "direct",
        (Some(Trusted::Sandbox), _) | (None, Mode::System) => "sandbox",
    };
    let untrusted = match reply.untrusted {
        Untrusted::Off => "off",
        Untrusted::Sandbox => "sandbox",
    };
    let backend = match reply.backend {
        Backend::Exec => "exec",
        Backend::Openai => "openai",
    };
    let hosts: Vec<&str> = sandbox.egress_allow.iter().map(|host| host.as_str()).collect();
    let mut limits = Limits::untrusted();
    limits.set(LimitName::WallClock, reply.api_timeout_seconds.saturating_mul(1000));
    for (name, number) in sandbox.limits.values() {
        limits.set(name, number);
    }
    let usual = Budget::untrusted(limits.get(LimitName::WallClock));
    let limits = limits.iter().filter(|(name, _)| *name != LimitName::WallClock).map(|(name, number)| {
        let shown = if name.unit() == Unit::Bytes { bytes(Some(number)) } else { value!(number) };
        (name.as_str(), shown)
    });
    vec![
        (&[], vec![("trust", value!(config.trust))]),
        (
            &["auto_reply"],
            vec![
                ("backend", value!(backend)),
                ("agent", value!(reply.agent.as_str())),
                ("command", value!(reply.command)),
                ("trusted", value!(trusted)),
                ("untrusted", value!(untrusted)),
                ("model", value!(reply.model)),
                ("api_base", value!(reply.api_base)),
                ("api_base_private", value!(reply.api_base_private)),
                ("api_timeout_seconds", value!(reply.api_timeout_seconds)),
                ("work_dir", value!(reply.work_dir)),
                ("retention_days", value!(reply.retention_days)),
                ("notify", value!(reply.notify)),
            ],
        ),
        (
            &["auto_reply", "sandbox"],
            vec![
                ("runs_per_day", value!(sandbox.runs_per_day)),
                ("runs_per_peer_per_day", value!(sandbox.runs_per_peer_per_day)),
                ("egress_allow", value!(hosts)),
                ("read_only", value!(sandbox.read_only)),
            ],
        ),
        (&["auto_reply", "sandbox", "limits"], limits.collect()),
        (
            &["auto_reply", "sandbox", "budget"],
            vec![
                ("destinations", value!(sandbox.budget.destinations.or(usual.destinations))),
                ("bytes_out", bytes(sandbox.budget.bytes_out.map(|size| size.0).or(usual.bytes_out))),
                ("window", time(sandbox.budget.window.map(|time| time.0).or(usual.window))),
            ],
        ),
        (
            &["auto_reply", "sandbox", "budget_per_peer_day"],
            vec![
                (
                    "destinations",
                    value!(sandbox.budget_per_peer_day.destinations.unwrap_or(DAY_DESTINATIONS)),
                ),
                (
                    "bytes_out",
                    bytes(Some(sandbox.budget_per_peer_day.bytes_out.map_or(DAY_BYTES_OUT, |size| size.0))),
                ),
            ],
        ),
    ]
}

/// What a peer's day has (BUD-3).
const DAY_DESTINATIONS: u64 = 64;
const DAY_BYTES_OUT: u64 = 128 * 1024 * 1024;

/// As the file would say it: in the largest unit that it is a whole number of.
fn bytes(number: Option<u64>) -> Value {
    let Some(number) = number else { return Value::Null };
    for (unit, factor) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if number > 0 && number % factor == 0 {
            return value!(format!("{}{unit}", number / factor));
        }
    }
    value!(number)
}

fn time(milliseconds: Option<u64>) -> Value {
    match milliseconds {
        None => Value::Null,
        Some(time) if time % 1000 == 0 => value!(format!("{}s", time / 1000)),
        Some(time) => value!(format!("{time}ms")),
    }
}

/// The values in the file's own shape, and the names of the keys that the file sets.
fn whole(file: &str, exists: bool, parts: &[Part], document: &DocumentMut) -> Value {
    let mut root = value!({ "file": file, "exists": exists, "set": [] });
    let mut set = Vec::new();
    for (tables, keys) in parts {
        let mut place = &mut root;
        for table in *tables {
            place = &mut place[*table];
        }
        for (key, value) in keys {
            place[*key] = value.clone();
        }
        set.extend(
            keys.iter().filter(|(key, _)| says(document, tables, key)).map(|(key, _)| dotted(tables, key)),
        );
    }
    root["set"] = value!(set);
    root
}

fn says(document: &DocumentMut, tables: &[&str], key: &str) -> bool {
    is_set(document, &[tables, &[key]].concat())
}

fn dotted(tables: &[&str], key: &str) -> String {
    [tables, &[key]].concat().join(".")
}

fn page(file: &str, exists: bool, parts: &[Part], document: &DocumentMut) -> String {
    let missing = if exists { "" } else { " (not there: all defaults)" };
    let mut text = format!("# {}{missing}\n", one_line(file));
    for (tables, keys) in parts {
        if !tables.is_empty() {
            text.push_str(&format!("\n[{}]\n", tables.join(".")));
        }
        for (key, value) in keys {
            let Some(shown) = toml(value) else { continue };
            let line = one_line(&format!("{key} = {shown}"));
            if says(document, tables, key) {
                text.push_str(&format!("{line}\n"));
            } else {
                text.push_str(&format!("{line:<REMARK$} # default\n"));
            }
        }
    }
    text
}

/// The value as TOML; none where there is none.
fn toml(value: &Value) -> Option<String> {
    let text = |text: &str| toml_edit::Value::from(text).to_string();
    Some(match value {
        Value::String(string) => text(string),
        Value::Array(all) => format!("[{}]", all.iter().filter_map(toml).collect::<Vec<_>>().join(", ")),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Null | Value::Object(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, mode: Mode) -> (String, Value) {
        let config = config::parse(text).unwrap();
        let parts = parts(&config, mode);
        let document = file_of(text);
        (page("/x", true, &parts, &document), whole("/x", true, &parts, &document))
    }

    /// What is shown is a configuration that means the same, with every key of the file's and no default taken for one.
    #[test]
    fn what_is_shown_is_a_configuration() {
        let text = "trust = ['a']\n[auto_reply]\nuntrusted = 'sandbox'\ncommand = [\"/bin/sh\", \"a'\\\"\\\\\\u001b\"]\n\
                    [auto_reply.sandbox]\negress_allow = ['a.example.com']\n[auto_reply.sandbox.limits]\nmemory = 1073741824\n\
                    [auto_reply.sandbox.budget]\nwindow = '1500ms'\n";
        let (page, document) = shown(text, Mode::User);
        let again = config::parse(&page).unwrap();
        assert_eq!(again.auto_reply.command, ["/bin/sh", "a'\"\\\x1b"]);
        assert_eq!(again.trust, ["a"]);
        assert_eq!(again.auto_reply.sandbox.limits.tasks, Some(256));
        assert_eq!(again.auto_reply.sandbox.budget.window.unwrap().0, 1500);
        assert!(!page.contains('\x1b'), "{page:?}");
        for line in page.lines().filter(|line| line.contains('=')) {
            let key = line.split(" = ").next().unwrap();
            let is_set = ["trust", "untrusted", "command", "egress_allow", "memory", "window"].contains(&key);
            assert_eq!(!line.ends_with("# default"), is_set, "{line}");
        }
        assert_eq!(document["auto_reply"]["untrusted"], "sandbox");
        assert_eq!(document["auto_reply"]["sandbox"]["limits"]["memory"], "1GiB");
        assert_eq!(document["auto_reply"]["sandbox"]["runs_per_day"], 20);
        let set = document["set"].as_array().unwrap();
        assert_eq!(set.len(), 6);
        assert!(set.contains(&value!("auto_reply.sandbox.limits.memory")), "{set:?}");
    }

    /// SEL-1, SEL-4, BUD-3, RUN-1: the defaults of each kind of node.
    #[test]
    fn defaults_are_those_that_hold() {
        let (_, user) = shown("", Mode::User);
        let (_, service) = shown("", Mode::System);
        assert_eq!(
            (&user["auto_reply"]["trusted"], &service["auto_reply"]["trusted"]),
            (&value!("direct"), &value!("sandbox"))
        );
        let sandbox = &user["auto_reply"]["sandbox"];
        assert_eq!(sandbox["budget"], value!({ "destinations": 16, "bytes_out": "32MiB", "window": "180s" }));
        assert_eq!(sandbox["budget_per_peer_day"], value!({ "destinations": 64, "bytes_out": "128MiB" }));
        let (_, slower) = shown("[auto_reply]\napi_timeout_seconds = 60\n", Mode::User);
        assert_eq!(
            slower["auto_reply"]["sandbox"]["budget"]["window"], "60s",
            "the window is the wall clock"
        );
    }
}
