//! Things that are reported by number, once or twice each: in any order, but never against what was said before.

use std::collections::{BTreeSet, HashMap};

/// The most numbers that are remembered as over while an earlier one is not. A tunnel that stands for a day while thousands
/// are refused is no contradiction: what is beyond is taken as it comes.
const MAX_AHEAD: usize = 65_536;

/// The most that can be going on at once: more connections than a process may have descriptors for.
const MAX_OPEN: usize = 65_536;

/// What is known of each number, from 1.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    open: HashMap<u32, T>,
    /// Every number up to this one is over. They are given in order, and over as they may be.
    over_to: u32,
    over: BTreeSet<u32>,
}

/// A report that contradicts those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Contradiction;

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered { open: HashMap::new(), over_to: 0, over: BTreeSet::new() }
    }
}

impl<T> Numbered<T> {
    /// What was kept of a number that was reported as begun; none: this is its first report.
    pub(super) fn known(&mut self, number: u32, ended: bool) -> Result<Option<T>, Contradiction> {
        if number <= self.over_to || self.over.contains(&number) {
            return Err(Contradiction);
        }
        match self.open.remove(&number) {
            // What has begun has one more thing to report: its end.
            Some(_) if !ended => Err(Contradiction),
            known => Ok(known),
        }
    }

    /// Keeps it until its end, or remembers that it is over. More at once than there can be is a contradiction too.
    pub(super) fn keep(&mut self, number: u32, ended: bool, kept: T) -> Result<(), Contradiction> {
        if self.open.len() >= MAX_OPEN {
            return Err(Contradiction);
        }
        if !ended {
            self.open.insert(number, kept);
            return Ok(());
        }
        if self.over.len() < MAX_AHEAD {
            self.over.insert(number);
        }
        while self.over.remove(&self.over_to.saturating_add(1)) {
            self.over_to += 1;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn over(&self) -> (u32, usize) {
        (self.over_to, self.over.len())
    }
}
