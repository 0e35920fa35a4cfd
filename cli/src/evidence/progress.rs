//! How far a long look through the evidence is, on a terminal.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::stdio::stderr;
use rustix::termios::isatty;
use supervisor::evidence::Progress;

/// Nothing is said of what is done so soon.
const QUIET: Duration = Duration::from_millis(400);
/// Between two words.
const PAUSE: Duration = Duration::from_millis(100);

/// One line on standard error, written over; nothing where that is no terminal.
pub(super) struct Line {
    next: Option<Instant>,
    shown: bool,
}

impl Line {
    pub(super) fn new() -> Line {
        Line { next: isatty(stderr()).then(|| Instant::now() + QUIET), shown: false }
    }

    pub(super) fn say(&mut self, what: &str, progress: Progress) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + PAUSE);
        self.shown = true;
        let percent = progress.bytes.saturating_mul(100) / progress.of.max(1);
        let text = format!("\r{what} {:3} %, {} records", percent.min(100), progress.records);
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown {
            // ECMA-48, erase in line.
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}
