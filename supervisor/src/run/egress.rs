//! What the run tried to reach, as the proxy reports it.

use std::collections::HashMap;
use std::time::SystemTime;

use ipc_proto::limits::{LimitName, Limits};
use ipc_proto::proxy::{Decision, TunnelLimits, TunnelReport, TunnelTotals};

use crate::chain::rfc3339;
use crate::record::{Egress, MAX_EGRESS, MAX_VIOLATIONS, Violation};

/// The attempts of one run.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    pub(super) list: Vec<Egress>,
    pub(super) omitted: u64,
    pub(super) violations: Vec<Violation>,
    pub(super) violations_omitted: u64,
    pub(super) totals: TunnelTotals,
    /// Where an attempt whose tunnel still stands is in the list.
    open: HashMap<u32, usize>,
    last: u32,
}

impl Attempts {
    /// Takes one report. False: it contradicts those before it.
    pub(super) fn report(&mut self, report: &TunnelReport) -> bool {
        if let Some(place) = self.open.remove(&report.attempt) {
            if !report.ended {
                return false;
            }
            if let Some(entry) = self.list.get_mut(place) {
                entry.reason = report.reason.as_str();
                entry.decision = report.decision;
                entry.bytes_out = report.bytes_out;
                entry.bytes_in = report.bytes_in;
            }
            if report.decision == Decision::Deny {
                self.violation(report);
            }
            return true;
        }
        // The second report of an attempt that was too many to list.
        if report.attempt <= self.last {
            return report.ended && self.omitted > 0;
        }
        self.last = report.attempt;
        if report.decision == Decision::Deny {
            self.violation(report);
        }
        if self.list.len() >= MAX_EGRESS {
            self.omitted += 1;
            return true;
        }
        if !report.ended {
            self.open.insert(report.attempt, self.list.len());
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
        true
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
