//! How far a run may reach (BUD): a pure state machine, with no clock and no input of its own.
//!
//! A debit is granted whole before its effect, or not at all; exhaustion is a state that nothing leaves.

use std::collections::BTreeSet;

use ipc_proto::HostName;
use ipc_proto::job::Budget;
use ipc_proto::proxy::LEASE;

/// What can run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dimension {
    /// Distinct destinations.
    Destinations,
    /// Bytes outward.
    BytesOut,
    /// Time from the start.
    Window,
}

impl Dimension {
    /// The name that options and the record use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Dimension::Destinations => "destinations",
            Dimension::BytesOut => "bytes_out",
            Dimension::Window => "window",
        }
    }
}

/// What becomes of a model request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Debit {
    /// It is debited.
    Granted,
    /// It is not, and the run ends.
    Refused,
    /// Not yet: the proxy holds bytes that it may not need. They are called back first, since an unused lease exhausts
    /// nothing (BUD-2); then it is asked again.
    AfterRecall,
}

/// The ledger of one run.
#[derive(Clone, Debug)]
pub struct Ledger {
    budget: Budget,
    destinations: BTreeSet<HostName>,
    /// The model's service was reached: one destination, however it is called.
    model: bool,
    /// Of it what the proxy was leased, used or not: no more than that can come back.
    to_proxy: u64,
    /// Some of that may come back still.
    lent: bool,
    /// Granted and not given back, in bytes.
    leased: u64,
    exhausted: Option<Dimension>,
}

impl Ledger {
    /// A run that has spent nothing.
    #[must_use]
    pub fn new(budget: Budget) -> Ledger {
        Ledger {
            budget,
            destinations: BTreeSet::new(),
            model: false,
            to_proxy: 0,
            lent: false,
            leased: 0,
            exhausted: None,
        }
    }

    /// Debits a destination; one that was debited before costs nothing. False: it is not granted, and the run ends.
    pub fn destination(&mut self, host: &HostName) -> bool {
        if self.exhausted.is_some() {
            return false;
        }
        if self.destinations.contains(host) {
            return true;
        }
        if self.budget.destinations.is_some_and(|limit| self.destinations() >= limit) {
            self.exhausted = Some(Dimension::Destinations);
            return false;
        }
        self.destinations.insert(host.clone());
        true
    }

    /// Debits one request to the model: its service as a destination, and every byte that is about to leave.
    pub fn request(&mut self, bytes: u64) -> Debit {
        if self.exhausted.is_some() {
            return Debit::Refused;
        }
        if !self.model && self.budget.destinations.is_some_and(|limit| self.destinations() >= limit) {
            self.exhausted = Some(Dimension::Destinations);
            return Debit::Refused;
        }
        if let Some(limit) = self.budget.bytes_out {
            if bytes > limit.saturating_sub(self.leased) {
                if self.lent {
                    return Debit::AfterRecall;
                }
                self.exhausted = Some(Dimension::BytesOut);
                return Debit::Refused;
            }
            self.leased += bytes;
        }
        self.model = true;
        Debit::Granted
    }

    /// Leases bytes that are about to leave, as many as are given at once and still left. None: bytes are not bounded.
    /// 0: there are none left, and the run ends, since somebody waits to send more.
    pub fn lease(&mut self) -> Option<u64> {
        let limit = self.budget.bytes_out?;
        if self.exhausted.is_some() {
            return Some(0);
        }
        let grant = LEASE.min(limit.saturating_sub(self.leased));
        if grant == 0 {
            self.exhausted = Some(Dimension::BytesOut);
        }
        self.leased = self.leased.saturating_add(grant);
        self.to_proxy = self.to_proxy.saturating_add(grant);
        self.lent = grant > 0;
        Some(grant)
    }

    /// The first lease, given ahead with the run's opening: with nothing to give, nothing is exhausted yet.
    pub fn first_lease(&mut self) -> Option<u64> {
        let limit = self.budget.bytes_out?;
        let grant = LEASE.min(limit);
        self.leased = grant;
        self.to_proxy = grant;
        self.lent = grant > 0;
        Some(grant)
    }

    /// Takes back what of the last lease was not used. More than was leased is a lie: false, and nothing is changed.
    pub fn give_back(&mut self, unused: u64) -> bool {
        match self.to_proxy.checked_sub(unused) {
            Some(left) => {
                self.to_proxy = left;
                self.leased = self.leased.saturating_sub(unused);
                // Bytes that were on their way may come back into the lease after it was called back.
                self.lent = unused > 0;
                true
            }
            None => false,
        }
    }

    /// The time of the budget is over.
    pub fn window_over(&mut self) {
        self.exhausted.get_or_insert(Dimension::Window);
    }

    /// What is left: destinations and bytes outward, where they are bounded (BUD-6).
    #[must_use]
    pub fn remaining(&self) -> (Option<u64>, Option<u64>) {
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        (left(self.budget.destinations, self.destinations()), left(self.budget.bytes_out, self.leased))
    }

    /// What ran out, if anything did.
    #[must_use]
    pub fn exhausted(&self) -> Option<Dimension> {
        self.exhausted
    }

    /// Debited destinations.
    #[must_use]
    pub fn destinations(&self) -> u64 {
        self.destinations.len() as u64 + u64::from(self.model)
    }

    /// Bytes leased and not given back.
    #[must_use]
    pub fn bytes_out(&self) -> u64 {
        self.leased
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(index: u8) -> HostName {
        format!("h{index}.example.com").parse().unwrap()
    }

    proptest! {
        /// BUD-2, BUD-4: in whatever order debits come, no limit is passed by one byte or one destination, and what
        /// is exhausted stays so.
        #[test]
        fn no_order_of_debits_passes_a_limit(
            destinations in 0u64..4, bytes in 0u64..5_000_000,
            steps in prop::collection::vec((0u8..3, 0u8..8), 0..64),
        ) {
            let budget = Budget { destinations: Some(destinations), bytes_out: Some(bytes), window: None };
            let mut ledger = Ledger::new(budget);
            let mut sent = ledger.first_lease().unwrap();
            let mut reached = BTreeSet::new();
            for (kind, index) in steps {
                let before = ledger.exhausted();
                match kind {
                    0 => if ledger.destination(&host(index)) { reached.insert(index); },
                    1 => sent += ledger.lease().unwrap(),
                    _ => ledger.window_over(),
                }
                prop_assert!(reached.len() as u64 <= destinations);
                prop_assert!(sent <= bytes);
                prop_assert!(before.is_none() || ledger.exhausted() == before);
            }
            prop_assert_eq!(ledger.bytes_out(), sent);
        }
    }

    /// BUD-1: the same destination is debited once; exactly the limit passes.
    #[test]
    fn exactly_the_limit_passes() {
        let mut ledger = Ledger::new(Budget { destinations: Some(2), bytes_out: None, window: None });
        assert!(ledger.destination(&host(1)) && ledger.destination(&host(1)) && ledger.destination(&host(2)));
        assert_eq!(ledger.exhausted(), None);
        assert!(!ledger.destination(&host(3)));
        assert_eq!(ledger.exhausted(), Some(Dimension::Destinations));
        assert!(!ledger.destination(&host(1)), "nothing is granted after the end");
        assert_eq!(ledger.lease(), None, "bytes are not bounded");
    }

    /// BUD-1, BUD-2: model requests debit too, to the byte, and what the proxy holds unused is called back first.
    #[test]
    fn requests_debit_to_the_byte() {
        let mut ledger = Ledger::new(Budget { destinations: Some(1), bytes_out: Some(100), window: None });
        assert_eq!(ledger.first_lease(), Some(100));
        assert_eq!(ledger.request(60), Debit::AfterRecall);
        assert!(ledger.give_back(80));
        assert_eq!(ledger.request(90), Debit::AfterRecall, "more may come back");
        assert!(ledger.give_back(10));
        assert!(ledger.give_back(0));
        assert_eq!(ledger.remaining(), (Some(1), Some(90)));
        assert_eq!((ledger.request(60), ledger.request(30)), (Debit::Granted, Debit::Granted));
        assert_eq!((ledger.bytes_out(), ledger.destinations()), (100, 1));
        assert!(!ledger.give_back(11), "what requests were debited is not the proxy's to give back");
        assert!(!ledger.destination(&host(1)), "the service is a destination");
        let mut ledger = Ledger::new(Budget { destinations: None, bytes_out: Some(100), window: None });
        assert_eq!(ledger.request(100), Debit::Granted);
        assert_eq!(ledger.request(1), Debit::Refused);
        assert_eq!(ledger.exhausted(), Some(Dimension::BytesOut));
        assert_eq!(ledger.request(0), Debit::Refused, "nothing is granted after the end");
    }

    /// BUD-2: unused bytes come back, more than was leased does not.
    #[test]
    fn only_what_was_leased_comes_back() {
        let mut ledger = Ledger::new(Budget { destinations: None, bytes_out: Some(10), window: None });
        assert_eq!(ledger.first_lease(), Some(10));
        assert!(!ledger.give_back(11));
        assert!(ledger.give_back(4));
        assert_eq!(ledger.bytes_out(), 6);
        assert_eq!(ledger.lease(), Some(4));
        assert_eq!(ledger.exhausted(), None);
        assert_eq!(ledger.lease(), Some(0));
        assert_eq!(ledger.exhausted(), Some(Dimension::BytesOut));
    }
}
