//! How many runs were counted, by local date and peer (RUN-1). Made from the evidence, record by record (RUN-4).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Date;

/// The dates that are kept before the one that is asked for: a clock that is put back by as many finds what it counted.
const KEPT_BEFORE: usize = 7;
/// The dates that are kept in all: a clock that jumped ahead leaves some that are yet to come.
const KEPT: usize = 32;
/// Peers that are counted one by one in a date. Any further ones share one count, which is as if they were one peer: it can
/// refuse too early, never too late.
pub const MAX_PEERS: usize = 1024;

/// The counts of all dates that matter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    dates: BTreeMap<Date, OfDay>,
}

/// The counts of one date.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfDay {
    runs: u64,
    /// One that gave all of its runs back stays, with none: so whether a peer is counted here or among the others never changes
    /// within a date.
    peers: BTreeMap<String, u64>,
    others: u64,
}

static NONE: OfDay = OfDay { runs: 0, peers: BTreeMap::new(), others: 0 };

impl Counts {
    /// Counts one run.
    pub fn reserve(&mut self, date: Date, peer: &str) {
        let day = self.dates.entry(date).or_default();
        day.runs += 1;
        if let Some(runs) = day.peers.get_mut(peer) {
            *runs += 1;
        } else if day.peers.len() < MAX_PEERS {
            day.peers.insert(peer.to_owned(), 1);
        } else {
            day.others += 1;
        }
    }

    /// Counts it no longer. What was not counted changes nothing.
    pub fn give_back(&mut self, date: Date, peer: &str) {
        let Some(day) = self.dates.get_mut(&date) else { return };
        let runs = day.peers.get_mut(peer).unwrap_or(&mut day.others);
        if *runs > 0 {
            *runs -= 1;
            day.runs = day.runs.saturating_sub(1);
        }
    }

    /// The counts of a date.
    #[must_use]
    pub fn of(&self, date: Date) -> &OfDay {
        self.dates.get(&date).unwrap_or(&NONE)
    }

    /// Forgets the dates before this one, but for the last seven that have counts; and of those that are yet to come the
    /// farthest, should there be very many.
    pub fn forget_before(&mut self, date: Date) {
        let before = self.dates.range(..date).count();
        for _ in KEPT_BEFORE..before {
            self.dates.pop_first();
        }
        while self.dates.len() > KEPT {
            self.dates.pop_last();
        }
    }
}

impl OfDay {
    /// Runs of all untrusted peers together.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Runs of this peer; of one that is not counted by itself: of all such together.
    #[must_use]
    pub fn peer(&self, peer: &str) -> u64 {
        self.peers.get(peer).copied().unwrap_or(self.others)
    }

    /// The peers that have runs, by name, and how many.
    pub fn peers(&self) -> impl Iterator<Item = (&str, u64)> {
        self.peers.iter().map(|(peer, runs)| (peer.as_str(), *runs)).filter(|(_, runs)| *runs > 0)
    }
}
