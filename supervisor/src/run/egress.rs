//! What the run tried to reach, as the proxy reports it.

use std::collections::{BTreeSet, HashMap};
use std::time::SystemTime;

use ipc_proto::limits::{LimitName, Limits};
use ipc_proto::proxy::{Decision, TunnelLimits, TunnelReport, TunnelTotals};

use crate::chain::rfc3339;
use crate::record::{Egress, MAX_EGRESS, MAX_VIOLATIONS, Violation};

/// The most attempts that are remembered as over while an earlier one is not. A tunnel that stands for a day while thousands
/// are refused is no contradiction: what is beyond is taken as it comes.
const MAX_AHEAD: usize = 65_536;

/// The attempts of one run.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    pub(super) list: Vec<Egress>,
    pub(super) omitted: u64,
    pub(super) violations: Vec<Violation>,
    pub(super) violations_omitted: u64,
    pub(super) totals: TunnelTotals,
    /// Where an attempt whose tunnel still stands is in the list; none: it was too many to list.
    open: HashMap<u32, Option<usize>>,
    /// Every attempt up to this one is over. They are numbered as they come and over as they may be.
    over_to: u32,
    over: BTreeSet<u32>,
}

/// What a report was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// In the list: it belongs into the chain too.
    Listed,
    /// Beyond the list: counted.
    Counted,
    /// It contradicts those before it.
    Contradiction,
}

impl Attempts {
    /// Takes one report.
    pub(super) fn report(&mut self, report: &TunnelReport) -> Taken {
        let attempt = report.attempt;
        if attempt <= self.over_to || self.over.contains(&attempt) {
            return Taken::Contradiction;
        }
        let place = match self.open.remove(&attempt) {
            // A tunnel that stands has one more thing to report: its end.
            Some(_) if !report.ended => return Taken::Contradiction,
            Some(place) => place,
            None => self.enter(report),
        };
        if report.ended {
            self.finish(attempt);
        } else {
            self.open.insert(attempt, place);
        }
        if report.decision == Decision::Deny {
            self.violation(report);
        }
        match place.and_then(|place| self.list.get_mut(place)) {
            Some(entry) => {
                entry.reason = report.reason.as_str();
                entry.decision = report.decision;
                entry.bytes_out = report.bytes_out;
                entry.bytes_in = report.bytes_in;
                Taken::Listed
            }
            None => Taken::Counted,
        }
    }

    fn enter(&mut self, report: &TunnelReport) -> Option<usize> {
        if self.list.len() >= MAX_EGRESS {
            self.omitted += 1;
            return None;
        }
        self.list.push(Egress {
            host: report.host.clone(),
            port: report.port,
            class: report.class,
            decision: report.decision,
            reason: report.reason.as_str(),
            addresses: report.addresses.clone(),
            bytes_out: report.bytes_out,
            bytes_in: report.bytes_in,
        });
        Some(self.list.len() - 1)
    }

    fn finish(&mut self, attempt: u32) {
        if self.over.len() < MAX_AHEAD {
            self.over.insert(attempt);
        }
        while self.over.remove(&self.over_to.saturating_add(1)) {
            self.over_to += 1;
        }
    }

    fn violation(&mut self, report: &TunnelReport) {
        if self.violations.len() >= MAX_VIOLATIONS {
            self.violations_omitted += 1;
            return;
        }
        self.violations.push(Violation {
            time: rfc3339(SystemTime::now()),
            kind: "egress",
            process: String::new(),
            detail: format!("{}:{} {}", report.host, report.port, report.reason.as_str()),
        });
    }
}

/// The limits that the proxy counts, out of all that hold.
pub(super) fn tunnel_limits(limits: &Limits) -> TunnelLimits {
    TunnelLimits {
        open: limits.get(LimitName::TunnelsOpen),
        total: limits.get(LimitName::TunnelsTotal),
        sent: limits.get(LimitName::TunnelSent),
        received: limits.get(LimitName::TunnelReceived),
        connections: limits.get(LimitName::EndpointConnections),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipc_proto::proxy::{Class, Reason};

    fn report(attempt: u32, decision: Decision, ended: bool) -> TunnelReport {
        TunnelReport {
            attempt,
            host: "a.example.com".into(),
            port: 443,
            class: Class::ThirdParty,
            decision,
            reason: if decision == Decision::Deny { Reason::NotListed } else { Reason::Listed },
            addresses: vec![],
            bytes_out: 0,
            bytes_in: 0,
            ended,
        }
    }

    /// EGR-7: connections overlap, so a later attempt may be decided before an earlier one.
    #[test]
    fn attempts_are_decided_in_any_order() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.report(&report(3, Decision::Deny, true)), Taken::Listed);
        assert_eq!(attempts.report(&report(1, Decision::Allow, false)), Taken::Listed);
        assert_eq!(attempts.report(&report(2, Decision::Deny, true)), Taken::Listed);
        assert_eq!(attempts.report(&report(1, Decision::Allow, true)), Taken::Listed);
        assert_eq!((attempts.list.len(), attempts.violations.len()), (3, 2));
        assert_eq!((attempts.over_to, attempts.over.len()), (3, 0));
    }

    /// PRV-5: what was over stays so, and a tunnel stands once.
    #[test]
    fn contradictions_are_seen() {
        let mut attempts = Attempts::default();
        attempts.report(&report(2, Decision::Deny, true));
        assert_eq!(attempts.report(&report(2, Decision::Deny, true)), Taken::Contradiction);
        attempts.report(&report(3, Decision::Allow, false));
        assert_eq!(attempts.report(&report(3, Decision::Allow, false)), Taken::Contradiction);
        assert_eq!(attempts.report(&report(0, Decision::Deny, true)), Taken::Contradiction);
    }

    /// A run that tries hosts in a loop fills neither memory nor disk: what is too much is counted.
    #[test]
    fn too_many_are_counted() {
        let mut attempts = Attempts::default();
        let most = u32::try_from(MAX_EGRESS).unwrap();
        for attempt in 1..=most {
            assert_eq!(attempts.report(&report(attempt, Decision::Deny, true)), Taken::Listed);
        }
        assert_eq!(attempts.report(&report(most + 1, Decision::Allow, false)), Taken::Counted);
        assert_eq!(attempts.report(&report(most + 1, Decision::Allow, true)), Taken::Counted);
        assert_eq!((attempts.list.len(), attempts.omitted), (MAX_EGRESS, 1));
        assert_eq!(attempts.violations.len(), MAX_VIOLATIONS);
    }
}
