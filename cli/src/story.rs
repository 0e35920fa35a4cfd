//! An interaction as people read it: whose task, what became of it, and what each run did.

use std::time::SystemTime;

use ipc_proto::control::{RunStory, State, Story};
use ipc_proto::units::show_size;
use serde_json::Value;
use supervisor::error::one_line;

use crate::page::{Page, Screen, Tone};
use crate::time::{duration, moment, seconds_between, seconds_since};

/// The most attempts, and the most refusals, of one run that are listed here; JSON has all that the record has.
const MOST: usize = 40;

/// The document: the node's story, with the records as JSON of their own.
pub(crate) fn document(story: &Story) -> Value {
    let mut document = serde_json::to_value(story).unwrap_or(Value::Null);
    let runs = document.get_mut("runs").and_then(Value::as_array_mut);
    for run in runs.into_iter().flatten() {
        let Some(record) = run.get_mut("record") else { continue };
        let parsed = record.as_str().and_then(|text| serde_json::from_str(text).ok());
        if let Some(parsed) = parsed {
            *record = parsed;
        }
    }
    document
}

/// The page for people.
pub(crate) fn page(story: &Story, with_task: bool, screen: Screen, now: SystemTime) -> Page {
    let mut page = Page::new(screen);
    let row = &story.interaction;
    page.labelled(Tone::Head, "interaction", &row.id);
    let trusted = match row.trusted {
        Some(true) => " (trusted)",
        Some(false) => " (not trusted)",
        None => "",
    };
    page.labelled(Tone::Plain, "peer", &format!("{}{trusted}", row.peer));
    let tone = match row.state {
        State::Answered => Tone::Good,
        State::Queued | State::Running => Tone::Plain,
        State::Refused | State::Exhausted | State::Interrupted => Tone::Warning,
    };
    page.labelled(tone, "state", row.state.as_str());
    if let Some(refusal) = &story.refusal {
        let kind = refusal.kind.as_ref().map_or_else(String::new, |kind| format!(" ({kind})"));
        page.labelled(tone, "code", &format!("{}{kind}: {}", refusal.code, refusal.sentence));
        if let Some(until) = &refusal.until {
            page.labelled(Tone::Plain, "until", until);
        }
    }
    let ago =
        seconds_since(&row.submitted, now).map_or_else(String::new, |ago| format!(", {} ago", duration(ago)));
    page.labelled(Tone::Plain, "came", &format!("{}{ago}", moment(&row.submitted)));
    if let Some(ended) = &row.ended {
        page.labelled(Tone::Plain, "ended", &format!("{}{}", moment(ended), took(&row.submitted, ended)));
    }
    let hint = if with_task { "" } else { " (--task shows it)" };
    page.labelled(Tone::Plain, "task", &format!("{}{hint}", show_size(story.task_bytes)));
    if with_task {
        page.gap();
        page.text(Tone::Head, "Task");
        page.quoted(&story.task);
    }
    if let Some(answer) = &story.answer {
        page.gap();
        page.text(Tone::Head, "Answer");
        page.quoted(answer);
    }
    for run in &story.runs {
        page.gap();
        one_run(&mut page, run);
    }
    page
}

/// How long it took, where both can be read.
fn took(from: &str, to: &str) -> String {
    let seconds = seconds_between(from, to);
    seconds.map_or_else(String::new, |seconds| format!(", after {}", duration(seconds)))
}

fn one_run(page: &mut Page, run: &RunStory) {
    page.labelled(Tone::Head, "run", &format!("{} ({})", run.run, run.way));
    page.labelled(Tone::Plain, "  started", &moment(&run.started));
    let Some(record) = &run.record else {
        page.labelled(Tone::Plain, "  record", "none: it goes on, or the node ended before it");
        return;
    };
    match serde_json::from_str::<Value>(record) {
        Ok(record) => self::record(page, &record),
        Err(_) => page.labelled(Tone::Warning, "  record", "it cannot be read; --json has its bytes"),
    }
}

/// A run's record, in the shape of the command line's contract. What is missing in it is left out.
fn record(page: &mut Page, record: &Value) {
    let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
    if !text("ended").is_empty() {
        page.labelled(
            Tone::Plain,
            "  ended",
            &format!("{}{}", moment(text("ended")), took(text("started"), text("ended"))),
        );
    }
    page.labelled(Tone::Plain, "  agent", text("agent"));
    page.labelled(Tone::Plain, "  exit", &exit(record.get("exit").unwrap_or(&Value::Null)));
    for (label, name) in [("  limits", "limits"), ("  budget", "budget")] {
        let used = bounds(record.get(name));
        if !used.is_empty() {
            page.labelled(Tone::Plain, label, &used.join(", "));
        }
    }
    let number = |value: Option<&Value>, name: &str| {
        value.and_then(|value| value.get(name)).and_then(Value::as_u64).unwrap_or(0)
    };
    let model = record.get("model");
    let (requests, refused) = (number(model, "requests"), number(model, "refused"));
    if requests + refused > 0 {
        page.labelled(Tone::Plain, "  model", &format!("{requests} requests, {refused} refused"));
    }
    list(page, "  reached", record, "egress", |attempt| {
        let part = |name: &str| attempt.get(name).map(plain).unwrap_or_default();
        format!(
            "{}:{} {} ({}, {}), {} out, {} in",
            part("host"),
            part("port"),
            part("decision"),
            part("reason"),
            part("class"),
            show_size(number(Some(attempt), "bytes_out")),
            show_size(number(Some(attempt), "bytes_in"))
        )
    });
    list(page, "  refused", record, "violations", |violation| {
        let part = |name: &str| violation.get(name).map(plain).unwrap_or_default();
        let by = part("process");
        let by = if by.is_empty() { by } else { format!(" by {by}") };
        format!("{}: {}{by}", part("kind"), part("detail"))
    });
    for warning in record.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        page.labelled(Tone::Warning, "  warning", &plain(warning));
    }
}

/// One line for each, up to [`MOST`].
fn list(page: &mut Page, label: &str, record: &Value, name: &str, words: impl Fn(&Value) -> String) {
    let all = record.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (number, one) in all.iter().take(MOST).enumerate() {
        page.labelled(Tone::Plain, if number == 0 { label } else { "" }, &words(one));
    }
    let omitted = record.get(format!("{name}_omitted")).and_then(Value::as_u64).unwrap_or(0);
    let more = u64::try_from(all.len().saturating_sub(MOST)).unwrap_or(0).saturating_add(omitted);
    if more > 0 {
        page.labelled(Tone::Plain, "", &format!("and {more} more"));
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// What the contract says of an end: `status`, `signal`, `limit`, `budget`.
fn exit(exit: &Value) -> String {
    let Some(exit) = exit.as_object() else { return "unknown".to_owned() };
    let words: Vec<String> =
        exit.iter().map(|(name, value)| format!("{} {}", one_line(name), plain(value))).collect();
    words.join(", ")
}

/// `memory 12 MiB of 2 GiB`, for what was used at all.
fn bounds(table: Option<&Value>) -> Vec<String> {
    let rows = table.and_then(Value::as_object).into_iter().flatten();
    rows.filter_map(|(name, bound)| {
        let (used, limit) = (bound.get("used")?.as_u64()?, bound.get("limit")?.as_u64()?);
        (used > 0)
            .then(|| format!("{} {} of {}", one_line(name), measured(name, used), measured(name, limit)))
    })
    .collect()
}

/// A number in the unit of its limit or budget.
fn measured(name: &str, number: u64) -> String {
    use ipc_proto::limits::{LIMIT_NAMES, Unit};
    let unit =
        LIMIT_NAMES.into_iter().find(|limit| limit.as_str() == name).map(ipc_proto::limits::LimitName::unit);
    match (unit, name) {
        (Some(Unit::Bytes), _) | (None, "bytes_out") => show_size(number),
        (Some(Unit::Milliseconds), _) | (None, "window") => {
            format!("{}.{} s", number / 1000, number % 1000 / 100)
        }
        (Some(Unit::Count), _) | (None, _) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use supervisor::chain::at_unix_ms;

    use super::*;
    use crate::node::fake::{refusal, story};

    fn text(story: &Story, with_task: bool) -> String {
        page(story, with_task, Screen::PLAIN, at_unix_ms(1_774_692_012_000)).whole()
    }

    /// ACC-2: answer, refusal, and each run's record, in words.
    #[test]
    fn a_story_says_what_became_of_a_task() {
        let shown = text(&story(), false);
        for part in [
            "i0000000000000001",
            "p1 (not trusted)",
            "answered",
            "after 30 s",
            "2 KiB (--task",
            "Answer\ndone\n",
            "r1 (sandbox)",
            "after 12 s",
            "status 0",
            "memory 1 MiB of 2 GiB",
            "bytes_out 2 KiB of 32 MiB",
            "window 12.3 s of 180.0 s",
            "2 requests, 1 refused",
            "pkg.example.com:443 allow (listed, third_party), 1 KiB out, 4 KiB in",
            "and 3 more",
            "egress: evil.example.com:443 not_listed by curl",
            "no_cgroup_limits",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("do this") && !shown.contains("tasks 0"), "{shown}");
        assert!(text(&story(), true).contains("Task\ndo this\n"));
        let refused = Story { answer: None, refusal: Some(refusal()), ..story() };
        let shown = text(&refused, false);
        assert!(
            shown.contains("budget (runs): no more runs today")
                && shown.contains("2026-03-29T00:00:00+01:00"),
            "{shown}"
        );
    }

    /// DIA-3: the record is JSON in the document, not text with JSON in it.
    #[test]
    fn records_are_json() {
        let document = document(&story());
        assert_eq!(document["runs"][0]["record"]["exit"]["status"], 0);
        assert_eq!(document["interaction"]["id"], "i0000000000000001");
        let mut odd = story();
        odd.runs[0].record = Some("no JSON".to_owned());
        assert_eq!(super::document(&odd)["runs"][0]["record"], "no JSON");
        assert!(text(&odd, false).contains("cannot be read"));
        odd.runs[0].record = Some("[1, {}]".to_owned());
        text(&odd, false);
        odd.runs[0].record = None;
        assert!(text(&odd, false).contains("none: it goes on"));
    }

    /// USE-1: neither a task nor an answer nor a record steers a terminal.
    #[test]
    fn hostile_words_are_tame() {
        let hostile = "\x1b[2J\u{202e}\x07\u{9b}x";
        let mut story = story();
        story.task = hostile.to_owned();
        story.answer = Some(hostile.to_owned());
        story.interaction.peer = hostile.to_owned();
        story.interaction.submitted = hostile.to_owned();
        story.runs[0].way = hostile.to_owned();
        let record = serde_json::json!({
            "agent": hostile, "exit": { hostile: hostile }, "limits": { hostile: { "limit": 1, "used": 1 } },
            "egress": [{ "host": hostile, "port": [hostile], "reason": { hostile: 1 } }],
            "violations": [{ "kind": hostile, "detail": hostile, "process": hostile }], "warnings": [hostile, [hostile]],
        });
        story.runs[0].record = Some(record.to_string());
        for line in text(&story, true).lines() {
            assert!(!line.chars().any(supervisor::error::steers), "{line:?}");
        }
    }
}
