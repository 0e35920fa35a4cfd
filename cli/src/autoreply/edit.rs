//! The file with some keys changed, and everything else as it stands: comments, order, spacing.

use ipc_proto::Code;
use supervisor::config;
use supervisor::error::Trouble;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value as Toml, value};

use super::array::set_members;
use super::change::{Change, Value};

#[cfg(test)]
mod tests;

/// A file's text after the changes, and what they were.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Edited {
    pub(super) text: String,
    pub(super) changed: Vec<Changed>,
}

/// A key that is not what it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Changed {
    /// With dots.
    pub(super) key: String,
    /// As TOML; none: it was not in the file.
    pub(super) old: Option<String>,
    /// As TOML; none: it is in the file no longer.
    pub(super) new: Option<String>,
}

/// Makes the changes. What comes out is a valid configuration, or an error.
pub(super) fn edit(text: &str, changes: &[Change]) -> Result<Edited, Trouble> {
    // TOML's line ends are two, and toml_edit writes one of them.
    let is_dos = text.contains("\r\n") && !text.replace("\r\n", "").contains('\n');
    let unix = if is_dos { text.replace("\r\n", "\n") } else { text.to_owned() };
    let mut document: DocumentMut = unix
        .parse()
        .map_err(|error: toml_edit::TomlError| Trouble::new(Code::BadConfig, error.message().to_owned()))?;
    let was_empty = document.is_empty();
    let mut changed = Vec::new();
    for change in changes {
        changed.extend(apply(&mut document, change)?);
    }
    if changed.is_empty() {
        return Ok(Edited { text: text.to_owned(), changed });
    }
    settle_trailing(&mut document, changes, was_empty);
    let mut text = document.to_string();
    if is_dos {
        text = text.replace('\n', "\r\n");
    }
    config::parse(&text).map_err(|error| {
        let keys: Vec<&str> = changed.iter().map(|changed| changed.key.as_str()).collect();
        let what = format!("with {} changed the configuration would not be valid: {error}", keys.join(", "));
        Trouble::new(Code::BadOption, what)
    })?;
    Ok(Edited { text, changed })
}

/// Whether the file says something of this key.
pub(super) fn is_set(document: &DocumentMut, path: &[&str]) -> bool {
    let mut item = document.as_item();
    for key in path {
        match item.as_table_like().and_then(|table| table.get(key)) {
            Some(found) => item = found,
            None => return false,
        }
    }
    true
}

fn apply(document: &mut DocumentMut, change: &Change) -> Result<Option<Changed>, Trouble> {
    let Some((key, tables)) = change.path.split_last() else { return Ok(None) };
    if change.value == Value::Default && !is_set(document, &change.path) {
        return Ok(None);
    }
    let place = table(document, tables).ok_or_else(|| {
        let what = format!("{} is no table in this file; write it as [{0}]", tables.join("."));
        Trouble::new(Code::BadConfig, what)
    })?;
    let old = place.get(key).and_then(Item::as_value).map(shown);
    match &change.value {
        Value::Default => {
            place.remove(key);
        }
        Value::Text(text) => assign(place, key, text.as_str().into()),
        Value::Flag(flag) => assign(place, key, (*flag).into()),
        Value::Number(number) => assign(place, key, i64::try_from(*number).unwrap_or(i64::MAX).into()),
        Value::Words(words) => assign(place, key, Toml::Array(words.iter().collect())),
        Value::Members(members) => set_members(array(place, key)?, members),
        Value::Differences { add, remove } => {
            let array = array(place, key)?;
            let there = array.iter().filter_map(Toml::as_str).map(str::to_owned);
            let mut members: Vec<String> = there.chain(add.iter().cloned()).collect();
            members.retain(|member| !remove.contains(member));
            set_members(array, &members);
        }
    }
    let new = place.get(key).and_then(Item::as_value).map(shown);
    // An empty list that was not there says no more than none.
    let is_nothing = old.is_none() && new.as_deref() == Some("[]");
    if is_nothing && matches!(change.value, Value::Members(_) | Value::Differences { .. }) {
        place.remove(key);
        return Ok(None);
    }
    let key = change.path.join(".");
    Ok((old != new).then_some(Changed { key, old, new }))
}

/// Comments at the end of the file stand before what was added behind them, as they would if it had been typed.
fn settle_trailing(document: &mut DocumentMut, changes: &[Change], was_empty: bool) {
    let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
    if !trailing.contains('#') {
        return;
    }
    let rendered = document.to_string();
    let Some(body) = rendered.strip_suffix(&trailing) else { return };
    let head = body.lines().map(str::trim).rfind(|line| line.starts_with('['));
    for change in changes {
        let Some((key, tables)) = change.path.split_last() else { continue };
        let prefix = format!("{}\n", trailing.trim_end());
        match head {
            // Nothing but comments was there before.
            None if tables.is_empty() && was_empty => {
                if let Some(mut key) = document.key_mut(key) {
                    key.leaf_decor_mut().set_prefix(prefix);
                    document.set_trailing("");
                }
                return;
            }
            Some(head) if head == format!("[{}]", tables.join(".")) => {
                if let Some(table) = new_table(document, tables) {
                    table.decor_mut().set_prefix(format!("{prefix}\n"));
                    document.set_trailing("");
                }
                return;
            }
            Some(_) | None => {}
        }
    }
}

/// The table of these names, if it was made here: it stood nowhere yet.
fn new_table<'a>(document: &'a mut DocumentMut, names: &[&str]) -> Option<&'a mut Table> {
    let mut table = document.as_table_mut();
    for name in names {
        table = table.get_mut(name)?.as_table_mut()?;
    }
    Some(table).filter(|table| table.position().is_none())
}

/// A value on one line, in one spelling: what it says, whatever it looks like.
fn shown(value: &Toml) -> String {
    plain(value).to_string()
}

fn plain(value: &Toml) -> Toml {
    match value {
        Toml::String(text) => text.value().as_str().into(),
        Toml::Integer(number) => (*number.value()).into(),
        Toml::Boolean(flag) => (*flag.value()).into(),
        Toml::Array(array) => Toml::Array(array.iter().map(plain).collect()),
        other @ (Toml::Float(_) | Toml::Datetime(_) | Toml::InlineTable(_)) => other.clone(),
    }
}

/// The table of these names, made where it is not there: in the way in which the one around it is written.
fn table<'a>(document: &'a mut DocumentMut, names: &[&str]) -> Option<&'a mut dyn TableLike> {
    let mut place: &mut dyn TableLike = document.as_table_mut();
    let mut inline = false;
    let mut dotted = false;
    for (depth, name) in names.iter().enumerate() {
        if !place.contains_key(name) {
            let made = if inline {
                value(InlineTable::new())
            } else {
                let mut table = Table::new();
                // Those on the way need no head of their own.
                table.set_implicit(depth + 1 < names.len());
                table.set_dotted(dotted);
                Item::Table(table)
            };
            place.insert(name, made);
        }
        let item = place.get_mut(name)?;
        inline = item.is_inline_table();
        dotted = item.as_table().is_some_and(Table::is_dotted);
        place = item.as_table_like_mut()?;
    }
    Some(place)
}

/// Sets a value; one that is there keeps its comment and spacing.
fn assign(place: &mut dyn TableLike, key: &str, mut new: Toml) {
    match place.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) if shown(old) == shown(&new) => {}
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => {
            place.insert(key, Item::Value(new));
        }
    }
}

fn array<'a>(place: &'a mut dyn TableLike, key: &str) -> Result<&'a mut Array, Trouble> {
    if !place.contains_key(key) {
        place.insert(key, value(Array::new()));
    }
    place
        .get_mut(key)
        .and_then(Item::as_array_mut)
        .ok_or_else(|| Trouble::new(Code::BadConfig, format!("{key} is no list in this file; make it one")))
}
