//! What `anet status` shows.

use std::io::Write;

use ipc_proto::control::{Day, EvidenceState, PeerUsed, Sandbox as SandboxState, Status, Used, Warning};
use ipc_proto::limits::LimitName;

use super::*;
use crate::chain::rfc3339;
use crate::explain;

impl Node {
    pub(super) fn status(&mut self) -> Status {
        let policy = &self.job.policy;
        let (records, signed, day) = self.day();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: self.job.mode.as_str().to_owned(),
            uptime_seconds: self.began.elapsed().as_secs(),
            restarts: self.job.restarts,
            last_end: self.job.last_end.clone(),
            sandbox: self.sandbox_state(),
            processes: self.processes.clone(),
            runs: self.desk.running(),
            queued: self.store.as_ref().map_or(0, |store| desk::queued(&store.inbox)),
            day,
            egress_allow: policy.hosts.iter().map(|host| host.as_str().to_owned()).collect(),
            auto_reply: desk::auto_reply(policy),
            evidence: EvidenceState { records, signed },
            warnings: self.warnings(),
        }
    }

    /// The sandbox as it was found last.
    pub(super) fn sandbox_state(&self) -> SandboxState {
        let (found, at) = self.sandbox.last(&self.job);
        let trouble = match &found {
            Some(Err(trouble)) => Some(trouble),
            Some(Ok(())) | None => None,
        };
        SandboxState {
            available: matches!(found, Some(Ok(()))),
            code: trouble.map(|trouble| trouble.code.as_str().to_owned()),
            sentence: trouble.map(|trouble| trouble.sentence.clone()),
            // Memory and tasks need a control group, and a node's runs have none here (LIM-2).
            limits: "partial".to_owned(),
            landlock_abi: self.landlock,
            checked: at.map(rfc3339),
        }
    }

    fn day(&self) -> (u64, Option<u64>, Day) {
        let policy = &self.job.policy;
        let day = self.zone.day(SystemTime::now());
        let limits = (u64::from(policy.runs_per_day), u64::from(policy.runs_per_peer_per_day));
        let (records, signed, used, peers) = match &self.store {
            Ok(store) => {
                let evidence = store.evidence.borrow();
                let counts = evidence.state().counts.of(day.date);
                let peers: Vec<PeerUsed> = counts
                    .peers()
                    .map(|(aid, used)| PeerUsed { aid: aid.to_owned(), used, limit: limits.1 })
                    .collect();
                (evidence.records(), evidence.signed(), counts.runs(), peers)
            }
            Err(_) => (0, None, 0, Vec::new()),
        };
        let day = Day {
            date: day.date.to_string(),
            ends: day.ends_text(),
            runs: Used { used, limit: limits.0 },
            peers,
        };
        (records, signed, day)
    }

    fn warnings(&self) -> Vec<Warning> {
        let limited = [LimitName::Memory, LimitName::Tasks];
        let no_group = limited.iter().any(|name| self.job.policy.limits.get(*name).is_some());
        let codes = [
            (no_group, Code::NoCgroupLimits),
            (self.told.launcher_hello && !self.apart, Code::LauncherNotApart),
        ];
        let codes = codes.into_iter().filter(|(holds, _)| *holds).map(|(_, code)| code);
        let known = codes.map(|code| Trouble::new(code, explain::sentence(code)));
        let store = self.store.as_ref().err().cloned();
        let all = store.into_iter().chain(self.job.warnings.iter().cloned()).chain(known);
        all.map(|trouble| Warning { code: trouble.code.as_str().to_owned(), sentence: trouble.sentence })
            .collect()
    }

    /// PRB-2: a good result is kept for the next life, and for `anet run`.
    pub(super) fn remember_trial(&mut self) {
        if let (Some(Ok(())), _) = self.sandbox.last(&self.job) {
            let text = crate::run::probe_text(&self.job.probe.key, SystemTime::now());
            // A result that cannot be kept costs the next run a probe, nothing else.
            let kept = rustix::fs::ftruncate(&self.probe_cache, 0)
                .and_then(|()| rustix::fs::seek(&self.probe_cache, rustix::fs::SeekFrom::Start(0)));
            if kept.is_ok() {
                let _ = self.probe_cache.write_all(text.as_bytes());
            }
        }
    }
}
