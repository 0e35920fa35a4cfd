//! A list in which order means nothing, changed member by member: whoever stays keeps their place, their lines and their comments.
//!
//! What stands between the values of an array belongs to one of them: what is before it, back to the comma, is its prefix; what
//! is between it and its comma its suffix; and what follows the last comma is the array's trailing text.

use std::collections::BTreeSet;

use toml_edit::{Array, Value};

/// Makes the array's members those that are wanted. The comments of one that goes stay.
pub(super) fn set_members(array: &mut Array, wanted: &[String]) {
    keep(array, wanted);
    let there: BTreeSet<String> = array.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    for member in wanted.iter().filter(|member| !there.contains(*member)) {
        add(array, member);
    }
}

/// Removes what is not wanted, or there twice.
fn keep(array: &mut Array, wanted: &[String]) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut carried = String::new();
    // How the first one stands, which its successor takes over.
    let first = array.get(0).map(|value| prefix(value).to_owned()).filter(|prefix| !prefix.contains('#'));
    let mut at = 0;
    while let Some(value) = array.get_mut(at) {
        let stays = value
            .as_str()
            .is_some_and(|text| wanted.iter().any(|member| member == text) && seen.insert(text.to_owned()));
        if stays {
            if at == 0 && carried.is_empty() && !prefix(value).contains('#') {
                value.decor_mut().set_prefix(first.clone().unwrap_or_default());
            }
            if !carried.is_empty() {
                let prefix = std::mem::take(&mut carried) + prefix(value);
                value.decor_mut().set_prefix(prefix);
            }
            at += 1;
            continue;
        }
        for part in [prefix(value), suffix(value)] {
            if part.contains('#') {
                carried.push_str(part);
            }
        }
        array.remove(at);
    }
    if !carried.is_empty() {
        let trailing = carried + text(array.trailing().as_str());
        array.set_trailing(trailing);
    }
}

/// Adds one at the end, on a line of its own where the others have one.
fn add(array: &mut Array, member: &str) {
    let has_comma = array.trailing_comma();
    let in_lines = array.iter().any(|value| prefix(value).contains('\n'));
    let indents = array.iter().filter_map(|value| prefix(value).rsplit_once('\n')).map(|(_, indent)| indent);
    let indent = indents.last().unwrap_or("  ").to_owned();
    let is_empty = array.is_empty();
    // What stood behind the last value stands before the new one now.
    let mut tail = text(array.trailing().as_str()).to_owned();
    if let (false, Some(last)) = (has_comma, array.len().checked_sub(1).and_then(|last| array.get_mut(last)))
    {
        tail.insert_str(0, suffix(last));
        last.decor_mut().set_suffix("");
    }
    let lines = in_lines || tail.contains('\n');
    // Up to its last line end, which stays behind.
    let (before, behind) = match tail.rfind('\n') {
        Some(end) => tail.split_at(end),
        None => (tail.as_str(), ""),
    };
    let prefix = match (lines, is_empty) {
        (true, _) => format!("{}\n{indent}", before.trim_end()),
        (false, true) => String::new(),
        (false, false) => " ".to_owned(),
    };
    let mut value = Value::from(member);
    value.decor_mut().set_prefix(prefix);
    if has_comma || array.is_empty() {
        array.set_trailing(behind);
    } else {
        value.decor_mut().set_suffix(behind);
        array.set_trailing("");
    }
    array.push_formatted(value);
}

fn prefix(value: &Value) -> &str {
    text(value.decor().prefix().and_then(toml_edit::RawString::as_str))
}

fn suffix(value: &Value) -> &str {
    text(value.decor().suffix().and_then(toml_edit::RawString::as_str))
}

fn text(raw: Option<&str>) -> &str {
    raw.unwrap_or_default()
}
