//! `anet evidence show`.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::SystemTime;

use ipc_proto::Code;
use ipc_proto::units::parse_time;
use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::{Value, json};
use supervisor::chain::record::Record;
use supervisor::chain::{hex, rfc3339};
use supervisor::error::{Trouble, one_line};
use supervisor::evidence::{Begin, Fault, Progress, walk};

use super::arguments::Show;
use super::progress::Line;
use super::{STATUS_BAD, follow, trouble};
use crate::arguments::Anet;
use crate::linux::complain;
use crate::page::{self, Screen};
use crate::table::cut;

/// The width of numbers, and of kinds.
const WIDTHS: (usize, usize) = (8, 16);

pub(super) fn perform(anet: &Anet, directory: &Path, show: &Show) -> Result<u8, Trouble> {
    let filter = Filter::new(show, SystemTime::now())?;
    let mut shower = Shower { filter, json: anet.json, screen: Screen::look(), output: Output::new() };
    // Without a filter the last ones are known by their number.
    let begin = match show.count {
        Some(count) if shower.filter.is_empty() => Begin::Last(count as u64),
        Some(_) | None => Begin::Origin,
    };
    let mut progress = Line::new();
    let quiet = show.count.is_none();
    let mut last: VecDeque<String> = VecDeque::new();
    let found = walk::<()>(directory, begin, None, &mut |record, _, at| {
        if !quiet {
            progress.say("reading", at);
        }
        let Some(text) = shower.text(record) else { return ControlFlow::Continue(()) };
        match show.count {
            None => shower.output.put(&text),
            Some(count) => {
                last.push_back(text);
                if last.len() > count {
                    last.pop_front();
                }
                ControlFlow::Continue(())
            }
        }
    });
    drop(progress);
    for text in last {
        if shower.output.put(&text).is_break() {
            break;
        }
    }
    shower.output.end()?;
    match found {
        Ok(verified) if show.follow && !shower.output.gone => {
            follow::perform(directory, verified.records, &mut shower)
        }
        Ok(_) => Ok(0),
        Err(fault) => ended(fault),
    }
}

/// What holds was shown; then it is said what does not.
pub(super) fn ended(fault: Fault) -> Result<u8, Trouble> {
    match fault {
        Fault::Unreadable { .. } => Err(trouble(fault)),
        Fault::NoKey(_) | Fault::Record { .. } => {
            complain(&trouble(fault));
            Ok(STATUS_BAD)
        }
    }
}

/// Shows the records that are wanted.
pub(super) struct Shower {
    filter: Filter,
    json: bool,
    screen: Screen,
    pub(super) output: Output,
}

impl Shower {
    /// The line of a record that is wanted.
    pub(super) fn text(&mut self, record: &Record<'_>) -> Option<String> {
        // What can be said without its body is said first.
        if !self.filter.fits(record) {
            return None;
        }
        let body = record.values();
        if !self.filter.belongs(&body) || !self.filter.fits_kind_and_time(record) {
            return None;
        }
        Some(if self.json {
            page::json(&json!({
                "seq": record.seq, "time": record.time, "kind": record.kind, "body": body, "hash": hex(&record.hash),
            }))
        } else {
            row(record, &body, self.screen)
        })
    }
}

/// Which records are wanted.
#[derive(Debug, Default)]
struct Filter {
    run: Option<String>,
    interaction: Option<String>,
    kinds: Vec<String>,
    /// As it is in a record.
    since: Option<String>,
    /// The runs of the interaction, as far as they are known.
    runs: BTreeSet<String>,
}

impl Filter {
    fn new(show: &Show, now: SystemTime) -> Result<Filter, Trouble> {
        let since = show.since.as_deref().map(|text| since(text, now)).transpose()?;
        let (run, interaction) = (show.run.clone(), show.interaction.clone());
        Ok(Filter { run, interaction, kinds: show.kind.clone(), since, runs: BTreeSet::new() })
    }

    fn is_empty(&self) -> bool {
        self.run.is_none() && self.interaction.is_none() && self.kinds.is_empty() && self.since.is_none()
    }

    fn fits(&self, record: &Record<'_>) -> bool {
        // An interaction's runs are known from records of any kind and time.
        self.interaction.is_some() || self.fits_kind_and_time(record)
    }

    fn fits_kind_and_time(&self, record: &Record<'_>) -> bool {
        let is = |kind: &String| {
            record
                .kind
                .strip_prefix(kind.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        (self.kinds.is_empty() || self.kinds.iter().any(is))
            && self.since.as_ref().is_none_or(|since| record.time >= since.as_str())
    }

    /// Learns from each record.
    fn belongs(&mut self, body: &Value) -> bool {
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        if let Some(interaction) = &self.interaction {
            let named = text("interaction") == Some(interaction);
            match text("run") {
                Some(run) if named => {
                    self.runs.insert(run.to_owned());
                }
                Some(run) if self.runs.contains(run) => {}
                Some(_) | None if named => {}
                Some(_) | None => return false,
            }
        }
        self.run.as_deref().is_none_or(|run| text("run") == Some(run))
    }
}

/// The first time that is wanted, as it is in a record.
fn since(text: &str, now: SystemTime) -> Result<String, Trouble> {
    if let Ok(ago) = parse_time(text) {
        return Ok(rfc3339(now.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH)));
    }
    // A day is one of UTC, as the times in the records are.
    if let Ok(day) = text.parse::<Date>().map(|day| day.to_string())
        && day == text
    {
        return Ok(format!("{day}T00:00:00.000Z"));
    }
    let at = text.parse::<Timestamp>().ok().and_then(|at| SystemTime::try_from(at).ok());
    let at = at.ok_or_else(|| {
        let what = format!("--since {text}: neither a time that passed (30m, 24h) nor a day or time (2026-03-28, 2026-03-28T10:00:00Z)");
        Trouble::new(Code::BadOption, what)
    })?;
    Ok(rfc3339(at))
}

/// A record as people read it.
fn row(record: &Record<'_>, body: &Value, screen: Screen) -> String {
    let (numbers, kinds) = WIDTHS;
    let what = words(body);
    let line = format!("{:>numbers$}  {}  {:<kinds$}  {what}", record.seq, record.time, record.kind);
    let line = line.trim_end();
    match screen.columns {
        Some(columns) => cut(line, columns) + "\n",
        None => format!("{line}\n"),
    }
}

/// What belongs to a record: whose it is first.
fn words(body: &Value) -> String {
    let Some(fields) = body.as_object() else { return String::new() };
    let first = ["run", "interaction", "peer"];
    let named = first.iter().filter_map(|name| fields.get_key_value(*name));
    let rest = fields.iter().filter(|(name, _)| !first.contains(&name.as_str()));
    let words = named.chain(rest).filter(|(_, value)| !value.is_null()).map(|(name, value)| match value {
        Value::String(text) => format!("{name}={}", one_line(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            format!("{name}={}", one_line(&value.to_string()))
        }
    });
    words.collect::<Vec<String>>().join(" ")
}

/// Standard output, until whoever reads it has read enough.
pub(super) struct Output {
    to: BufWriter<io::Stdout>,
    failed: Option<io::Error>,
    /// Nobody reads any more.
    pub(super) gone: bool,
}

impl Output {
    fn new() -> Output {
        Output { to: BufWriter::with_capacity(64 * 1024, io::stdout()), failed: None, gone: false }
    }

    pub(super) fn put(&mut self, text: &str) -> ControlFlow<()> {
        match self.to.write_all(text.as_bytes()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: io::Error) -> ControlFlow<()> {
        self.gone = true;
        if error.kind() != io::ErrorKind::BrokenPipe {
            self.failed = Some(error);
        }
        ControlFlow::Break(())
    }

    /// Everything is written, or it is said why not.
    pub(super) fn end(&mut self) -> Result<(), Trouble> {
        if !self.gone
            && let Err(error) = self.to.flush()
        {
            let _ = self.fail(error);
        }
        match self.failed.take() {
            None => Ok(()),
            Some(error) => Err(Trouble::new(
                Code::BadOption,
                format!("standard output cannot be written ({error}); give another"),
            )),
        }
    }
}

/// One more walk, from a record on.
pub(super) fn from(
    directory: &Path,
    next: u64,
    each: &mut dyn FnMut(&Record<'_>) -> ControlFlow<()>,
) -> Result<u64, Fault> {
    let found = walk::<()>(
        directory,
        Begin::Record(next),
        None,
        &mut |record: &Record<'_>, _: &[u8], _: Progress| {
            if record.seq < next { ControlFlow::Continue(()) } else { each(record) }
        },
    )?;
    Ok(found.records)
}

#[cfg(test)]
mod tests {
    use supervisor::chain::at_unix_ms;
    use supervisor::chain::record::write;

    use super::*;

    fn line(seq: u64, kind: &str, body: &Value) -> String {
        write(seq, at_unix_ms(1_774_692_012_000 + seq * 1000), kind, body, &[0; 32]).unwrap().0
    }

    fn wanted(filter: Filter) -> Vec<u64> {
        let records = [
            line(0, "node.started", &json!({ "version": "1" })),
            line(1, "task.submitted", &json!({ "interaction": "i1", "peer": "p" })),
            line(2, "run.admitted", &json!({ "interaction": "i1", "run": "r1" })),
            line(3, "run.admitted", &json!({ "interaction": "i2", "run": "r2" })),
            line(4, "egress.decided", &json!({ "run": "r1" })),
            line(5, "run.ended", &json!({ "run": "r2" })),
            line(6, "run.ended", &json!({ "run": "r1" })),
        ];
        let mut shower = Shower { filter, json: true, screen: Screen::PLAIN, output: Output::new() };
        let record = |line: &String| shower.text(&Record::read(line.trim_end().as_bytes()).unwrap());
        let texts: Vec<String> = records.iter().filter_map(record).collect();
        texts
            .iter()
            .map(|text| serde_json::from_str::<Value>(text).unwrap()["seq"].as_u64().unwrap())
            .collect()
    }

    /// EVI-2: records are found by run, by interaction with its runs, by kind and by time.
    #[test]
    fn records_are_found() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(wanted(Filter::default()), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(wanted(Filter { run: text("r1"), ..Filter::default() }), [2, 4, 6]);
        assert_eq!(wanted(Filter { interaction: text("i1"), ..Filter::default() }), [1, 2, 4, 6]);
        assert_eq!(wanted(Filter { kinds: vec!["run".into()], ..Filter::default() }), [2, 3, 5, 6]);
        assert_eq!(
            wanted(Filter { kinds: vec!["run.ended".into(), "node".into()], ..Filter::default() }),
            [0, 5, 6]
        );
        assert_eq!(wanted(Filter { kinds: vec!["ru".into()], ..Filter::default() }), [0; 0]);
        assert_eq!(wanted(Filter { since: text("2026-03-28T10:00:17.000Z"), ..Filter::default() }), [5, 6]);
        let both = Filter { interaction: text("i1"), kinds: vec!["run.ended".into()], ..Filter::default() };
        assert_eq!(wanted(both), [6]);
    }

    /// EVI-2: a time is given as one that passed, a day or a point.
    #[test]
    fn since_is_read() {
        let now = at_unix_ms(1_774_692_012_000);
        assert_eq!(since("2h", now).unwrap(), "2026-03-28T08:00:12.000Z");
        assert_eq!(since("2026-03-28T11:00:00+01:00", now).unwrap(), "2026-03-28T10:00:00.000Z");
        assert_eq!(since("2026-03-28", now).unwrap(), "2026-03-28T00:00:00.000Z");
        assert!(since("yesterday", now).is_err() && since("", now).is_err());
    }

    /// USE-2: a row fits the terminal, and nothing in it steers one.
    #[test]
    fn a_row_fits() {
        let body =
            json!({ "host": "a.example\u{1b}[2J", "run": "r1", "list": ["\u{202e}"], "none": null, "n": 3 });
        let line = line(7, "egress.decided", &body);
        let record = Record::read(line.trim_end().as_bytes()).unwrap();
        let whole = row(&record, &body, Screen::PLAIN);
        assert!(whole.contains("run=r1 host=a.example"), "{whole}");
        assert!(
            !whole.trim_end().chars().any(supervisor::error::steers) && !whole.contains("none"),
            "{whole}"
        );
        let cut = row(&record, &body, Screen { columns: Some(60), rows: None, colour: false });
        assert!(cut.trim_end().chars().count() <= 60 && cut.ends_with("…\n"), "{cut}");
    }
}
