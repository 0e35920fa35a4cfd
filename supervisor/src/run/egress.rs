//! What the run tried to reach, as the proxy reports it.

use ipc_proto::limits::{LimitName, Limits};
use ipc_proto::proxy::{Decision, TunnelLimits, TunnelReport, TunnelTotals};

use super::numbered::Numbered;
use super::violations::Violations;
use crate::record::{Egress, MAX_EGRESS};

/// The attempts of one run.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    pub(super) list: Vec<Egress>,
    pub(super) omitted: u64,
    pub(super) totals: TunnelTotals,
    /// Where an attempt whose tunnel still stands is in the list; none: it was too many to list.
    numbers: Numbered<Option<usize>>,
}

/// What a report was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// In the list: it belongs into the chain too.
    Listed,
    /// Beyond the list: counted.
    Counted,
    /// It contradicts those before it.
    Contradiction,
}

impl Attempts {
    /// Takes one report.
    pub(super) fn report(&mut self, report: &TunnelReport, violations: &mut Violations) -> Taken {
        let place = match self.numbers.known(report.attempt, report.ended) {
            Err(_) => return Taken::Contradiction,
            Ok(Some(place)) => place,
            Ok(None) => self.enter(report),
        };
        if self.numbers.keep(report.attempt, report.ended, place).is_err() {
            return Taken::Contradiction;
        }
        if report.decision == Decision::Deny {
            violations.push("egress", format!("{}:{} {}", report.host, report.port, report.reason.as_str()));
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
    use crate::record::MAX_VIOLATIONS;
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
        let (mut attempts, mut violations) = (Attempts::default(), Violations::default());
        assert_eq!(attempts.report(&report(3, Decision::Deny, true), &mut violations), Taken::Listed);
        assert_eq!(attempts.report(&report(1, Decision::Allow, false), &mut violations), Taken::Listed);
        assert_eq!(attempts.report(&report(2, Decision::Deny, true), &mut violations), Taken::Listed);
        assert_eq!(attempts.report(&report(1, Decision::Allow, true), &mut violations), Taken::Listed);
        assert_eq!((attempts.list.len(), violations.list.len()), (3, 2));
        assert_eq!(attempts.numbers.over(), (3, 0));
    }

    /// PRV-5: what was over stays so, and a tunnel stands once.
    #[test]
    fn contradictions_are_seen() {
        let (mut attempts, mut violations) = (Attempts::default(), Violations::default());
        attempts.report(&report(2, Decision::Deny, true), &mut violations);
        assert_eq!(attempts.report(&report(2, Decision::Deny, true), &mut violations), Taken::Contradiction);
        attempts.report(&report(3, Decision::Allow, false), &mut violations);
        assert_eq!(
            attempts.report(&report(3, Decision::Allow, false), &mut violations),
            Taken::Contradiction
        );
        assert_eq!(attempts.report(&report(0, Decision::Deny, true), &mut violations), Taken::Contradiction);
    }

    /// A run that tries hosts in a loop fills neither memory nor disk: what is too much is counted.
    #[test]
    fn too_many_are_counted() {
        let (mut attempts, mut violations) = (Attempts::default(), Violations::default());
        let most = u32::try_from(MAX_EGRESS).unwrap();
        for attempt in 1..=most {
            assert_eq!(
                attempts.report(&report(attempt, Decision::Deny, true), &mut violations),
                Taken::Listed
            );
        }
        assert_eq!(
            attempts.report(&report(most + 1, Decision::Allow, false), &mut violations),
            Taken::Counted
        );
        assert_eq!(
            attempts.report(&report(most + 1, Decision::Allow, true), &mut violations),
            Taken::Counted
        );
        assert_eq!((attempts.list.len(), attempts.omitted), (MAX_EGRESS, 1));
        assert_eq!(violations.list.len(), MAX_VIOLATIONS);
    }
}
