//! What was refused to a run, bounded in number.

use std::time::SystemTime;

use crate::chain::rfc3339;
use crate::record::{MAX_VIOLATIONS, Violation};

/// The violations of one run (SBX-9).
#[derive(Debug, Default)]
pub(super) struct Violations {
    pub(super) list: Vec<Violation>,
    pub(super) omitted: u64,
}

impl Violations {
    /// One more, or one more that is only counted.
    pub(super) fn push(&mut self, kind: &'static str, detail: String) {
        if self.list.len() >= MAX_VIOLATIONS {
            self.omitted += 1;
            return;
        }
        self.list.push(Violation { time: rfc3339(SystemTime::now()), kind, process: String::new(), detail });
    }
}
