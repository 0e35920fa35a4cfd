//! What is done with a peer's next task (SEL, RUN).

use ipc_proto::Aid;
use ipc_proto::control::Refusal;

use super::{Counts, Day, runs_used_up, sandbox_unavailable};
use crate::config::{Backend, Trusted, Untrusted};
use crate::inbox::Way;
use crate::node::job::Policy;

/// RUN-5: active runs for untrusted peers, one for each.
pub const PLACES: usize = 2;
/// Active runs for trusted peers. They take no place of the others, and are bounded by what a host carries: each may use 2 GiB
/// of memory (LIM).
pub const TRUSTED_AT_ONCE: usize = 4;

/// Whether a sandbox can be relied on now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sandbox {
    /// It was tried, and held.
    Available,
    /// It was tried, and did not; or it cannot be made.
    Unavailable,
    /// It has to be tried.
    Unknown,
}

/// All that a decision depends on, apart from the policy.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The local day.
    pub day: Day,
    /// What is counted in it, runs that are under way included.
    pub counts: &'a Counts,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Whose runs are active, and whether the peer was trusted when its run began.
    pub active: &'a [(Aid, bool)],
    /// Agents can be started outside of the sandbox (for trusted peers, in a user's node).
    pub direct: bool,
    /// The node itself can ask a model (the `openai` backend).
    pub model: bool,
}

/// What is done with a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Its run begins.
    Start {
        /// The peer is trusted.
        trusted: bool,
        /// How it is run. Never otherwise (SEL-2).
        way: Way,
        /// It counts in the day's runs (RUN-1).
        counted: bool,
    },
    /// It is refused.
    Refuse {
        /// The peer is trusted.
        trusted: bool,
        /// What the peer is told.
        refusal: Refusal,
    },
    /// It stays, and nobody is told.
    Wait(Why),
}

/// Why a task waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Why {
    /// `auto_reply` is off for such peers (SEL-1).
    Off,
    /// The runs of a day are 0 (RUN-2).
    NoRuns,
    /// As many runs are active as may be (RUN-5).
    NoPlace,
    /// A run of this peer is active (RUN-5).
    PeerBusy,
    /// It is to be run outside of the sandbox, and nothing does that here.
    NoDirect,
    /// The sandbox has to be tried first (PRB-2).
    SandboxUnknown,
}

/// What is done with the next task of `peer`.
///
/// The first of these that applies, for an untrusted peer:
/// 1. `untrusted` is off, or a number of runs is 0: it waits, whatever else is wrong (SEL-1, RUN-2).
/// 2. The day's runs are used up: refused with the day's end (RUN-3). This comes before the sandbox: a peer that heard
///    `sandbox_unavailable` would send again today, for nothing.
/// 3. What would run it is not there: refused (SEL-2). This comes before the places: there is nothing to wait for.
/// 4. No place, or a run of this peer is active: it waits (RUN-5).
/// 5. The sandbox has to be tried: it waits for that. Last, so that nothing is tried for a task that could not start.
///
/// For a trusted peer: off; what would run it is not there; as many trusted runs as may be; the sandbox has to be tried.
#[must_use]
pub fn decide(policy: &Policy, situation: &Situation<'_>, peer: &Aid) -> Decision {
    decide_after(policy, situation, &[], peer, policy.trust.contains(peer))
}

/// As [`decide`], when these starts were decided on as well: the peer, and whether it is trusted.
pub(super) fn decide_after(
    policy: &Policy,
    situation: &Situation<'_>,
    starts: &[(Aid, bool)],
    peer: &Aid,
    trusted: bool,
) -> Decision {
    let active = |is: &dyn Fn(&(Aid, bool)) -> bool| {
        situation.active.iter().chain(starts).filter(|run| is(run)).count()
    };
    if trusted {
        let way = match (policy.trusted, policy.backend) {
            (Trusted::Off, _) => return Decision::Wait(Why::Off),
            (Trusted::Direct | Trusted::Sandbox, Backend::Openai) => Way::Openai,
            (Trusted::Direct, Backend::Exec) => Way::Direct,
            (Trusted::Sandbox, Backend::Exec) => Way::Sandbox,
        };
        let has_place = active(&|(_, trusted)| *trusted) < TRUSTED_AT_ONCE;
        return start(situation, true, way, if has_place { Ok(()) } else { Err(Why::NoPlace) });
    }
    let way = match (policy.untrusted, policy.backend) {
        (Untrusted::Off, _) => return Decision::Wait(Why::Off),
        (Untrusted::Sandbox, Backend::Openai) => Way::Openai,
        (Untrusted::Sandbox, Backend::Exec) => Way::Sandbox,
    };
    if policy.runs_per_day == 0 || policy.runs_per_peer_per_day == 0 {
        return Decision::Wait(Why::NoRuns);
    }
    let counted = situation.counts.of(situation.day.date);
    // A start that was just decided on is not in the counts yet.
    let begun = |is: &dyn Fn(&Aid) -> bool| {
        starts.iter().filter(|(peer, trusted)| !trusted && is(peer)).count() as u64
    };
    let of_all = counted.runs().saturating_add(begun(&|_| true));
    let of_peer = counted.peer(peer.as_str()).saturating_add(begun(&|other| other == peer));
    if of_all >= u64::from(policy.runs_per_day) || of_peer >= u64::from(policy.runs_per_peer_per_day) {
        return Decision::Refuse { trusted: false, refusal: runs_used_up(&situation.day) };
    }
    let place = if active(&|(other, _)| other == peer) > 0 {
        Err(Why::PeerBusy)
    } else if active(&|(_, trusted)| !trusted) >= PLACES {
        Err(Why::NoPlace)
    } else {
        Ok(())
    };
    start(situation, false, way, place)
}

/// A start in this way, if what it needs is there and it has a place.
fn start(situation: &Situation<'_>, trusted: bool, way: Way, place: Result<(), Why>) -> Decision {
    let refused = Decision::Refuse { trusted, refusal: sandbox_unavailable() };
    let unknown = match way {
        Way::Direct if !situation.direct => return Decision::Wait(Why::NoDirect),
        Way::Direct => false,
        Way::Openai if !situation.model => return refused,
        Way::Openai => false,
        Way::Sandbox => match situation.sandbox {
            Sandbox::Unavailable => return refused,
            Sandbox::Unknown => true,
            Sandbox::Available => false,
        },
    };
    match place {
        Err(why) => Decision::Wait(why),
        Ok(()) if unknown => Decision::Wait(Why::SandboxUnknown),
        // RUN-1: whatever is run for an untrusted peer counts, by a model alone too (SEL-3); nothing else does.
        Ok(()) => Decision::Start { trusted, way, counted: !trusted },
    }
}
