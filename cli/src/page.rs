//! What people read on a terminal or in a pipe: lines that fit, without anything that a terminal obeys. What programs read: JSON.

use rustix::stdio::stdout;
use rustix::termios::{isatty, tcgetwinsize};
use serde::Serialize;
use supervisor::error::{one_line, steers};

use crate::table::{Table, wrapped};

/// The width of labels, gap included.
const LABEL: usize = 12;
/// Narrower than this nothing is readable; lines may then be cut by the terminal.
const NARROWEST: usize = 20;

/// How standard output shows a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Screen {
    /// Columns; none: it is no terminal, and nothing is cut or wrapped.
    pub(crate) columns: Option<usize>,
    /// Rows, where it is a terminal.
    pub(crate) rows: Option<usize>,
    /// Whether tones are shown.
    pub(crate) colour: bool,
}

impl Screen {
    /// No terminal: a pipe, a file.
    pub(crate) const PLAIN: Screen = Screen { columns: None, rows: None, colour: false };

    /// What standard output is now.
    pub(crate) fn look() -> Screen {
        if !isatty(stdout()) {
            return Screen::PLAIN;
        }
        let size = tcgetwinsize(stdout()).ok();
        let of = |value: Option<u16>, usual: usize| match value {
            // A terminal that does not know its size, as on a serial line.
            None | Some(0) => usual,
            Some(value) => usize::from(value),
        };
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let can = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        Screen {
            columns: Some(of(size.map(|size| size.ws_col), 80).max(NARROWEST)),
            rows: Some(of(size.map(|size| size.ws_row), 24)),
            colour: can && set("NO_COLOR").is_none(),
        }
    }
}

/// How a line is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    /// As it is.
    Plain,
    /// The head of what follows.
    Head,
    /// All is well.
    Good,
    /// To be known.
    Warning,
    /// To be mended.
    Bad,
}

impl Tone {
    /// ECMA-48, select graphic rendition.
    fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Head => "\x1b[1m",
            Tone::Good => "\x1b[32m",
            Tone::Warning => "\x1b[33m",
            Tone::Bad => "\x1b[31m",
        }
    }
}

/// Lines of text.
#[derive(Debug)]
pub(crate) struct Page {
    screen: Screen,
    lines: Vec<(Tone, String)>,
}

impl Page {
    pub(crate) fn new(screen: Screen) -> Page {
        Page { screen, lines: Vec::new() }
    }

    /// A line between two parts.
    pub(crate) fn gap(&mut self) {
        self.lines.push((Tone::Plain, String::new()));
    }

    /// Text from the left border on.
    pub(crate) fn text(&mut self, tone: Tone, text: &str) {
        let text = one_line(text);
        for line in wrapped(&text, self.screen.columns) {
            self.lines.push((tone, line));
        }
    }

    /// Text beside a label.
    pub(crate) fn labelled(&mut self, tone: Tone, label: &str, text: &str) {
        let room = self.screen.columns.map(|columns| columns.saturating_sub(LABEL).max(NARROWEST - LABEL));
        let text = one_line(text);
        for (number, line) in wrapped(&text, room).into_iter().enumerate() {
            let label = if number == 0 { label } else { "" };
            self.lines.push((tone, format!("{label:<width$}{line}", width = LABEL).trim_end().to_owned()));
        }
    }

    /// Text of several lines that is not ours, as it stands but for what a terminal obeys.
    pub(crate) fn quoted(&mut self, text: &str) {
        for line in supervisor::run::tame(text).lines() {
            self.lines.push((Tone::Plain, line.to_owned()));
        }
    }

    /// A table; nothing where it has no rows.
    pub(crate) fn table(&mut self, table: &Table<'_>) {
        let mut lines = table.lines(self.screen.columns).into_iter();
        self.lines.extend(lines.next().map(|head| (Tone::Head, head)));
        self.lines.extend(lines.map(|line| (Tone::Plain, line)));
    }

    /// The lines as they are written, each with its tone.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.lines.iter().map(|(tone, line)| {
            let code = tone.code();
            if self.screen.colour && !code.is_empty() && !line.is_empty() {
                format!("{code}{line}\x1b[0m")
            } else {
                line.clone()
            }
        })
    }

    /// The whole page.
    pub(crate) fn whole(&self) -> String {
        self.lines().map(|line| line + "\n").collect()
    }
}

/// A document for a program: what a terminal would obey stands as an escape of JSON, which means the same.
pub(crate) fn json<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    let mut safe = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        if steers(letter) {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(letter);
        }
    }
    safe.push('\n');
    safe
}
