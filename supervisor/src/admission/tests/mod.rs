//! Tests of admission. What several of them need stands here.

mod counting;
mod days;
mod deciding;
mod line;
mod over_time;

use std::time::SystemTime;

use ipc_proto::Aid;
use ipc_proto::limits::Limits;

use super::*;
use crate::config::{Agent, Backend, Trusted, Untrusted};
use crate::inbox::{Queued, Turn, Way};
use crate::node::job::{PeerDay, Policy};

fn aid(name: &str) -> Aid {
    name.parse().unwrap()
}

fn date(text: &str) -> Date {
    text.parse().unwrap()
}

/// A moment from RFC 3339.
fn at(text: &str) -> SystemTime {
    text.parse::<jiff::Timestamp>().unwrap().try_into().unwrap()
}

fn policy() -> Policy {
    Policy {
        trust: vec![aid("friend"), aid("friend2")],
        trusted: Trusted::Direct,
        untrusted: Untrusted::Sandbox,
        backend: Backend::Exec,
        agent: Agent::Custom,
        runs_per_day: 20,
        runs_per_peer_per_day: 5,
        hosts: Vec::new(),
        limits: Limits::default(),
        budget: ipc_proto::job::Budget::default(),
        peer_day: PeerDay { destinations: 64, bytes_out: 1 },
        retention_days: 7,
    }
}

fn berlin() -> Zone {
    let zone = Zone::load(Some("Europe/Berlin"));
    assert_eq!(zone.warning(), None, "these tests need the system's time zones (tzdata)");
    zone
}

fn situation(counts: &Counts) -> Situation<'_> {
    Situation {
        day: berlin().day(at("2026-03-29T10:00:00Z")),
        counts,
        sandbox: Sandbox::Available,
        active: &[],
        direct: true,
        model: true,
    }
}

fn counts(runs: &[(&str, u64)]) -> Counts {
    let mut counts = Counts::default();
    for (peer, runs) in runs {
        for _ in 0..*runs {
            counts.reserve(date("2026-03-29"), peer);
        }
    }
    counts
}

fn queued(number: u64, peer: &str) -> Queued {
    Queued {
        number,
        interaction: format!("i{number}").parse().unwrap(),
        peer: aid(peer),
        submitted_ms: number,
        task_bytes: 1,
        turn: Turn::default(),
    }
}
