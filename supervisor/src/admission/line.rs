//! Whose turn it is: one look at everything that waits.

use std::collections::{HashMap, HashSet};

use ipc_proto::Aid;

use super::decide::decide_after;
use super::{Decision, Situation, Why};
use crate::inbox::{Queued, Turn};
use crate::node::job::Policy;

/// The most refusals of one look: each is written down, and meanwhile the node does nothing else.
pub const REFUSALS_AT_ONCE: usize = 250;

/// A peer that has waiting tasks.
struct Peer<'a> {
    aid: &'a Aid,
    trusted: bool,
    /// Oldest first.
    tasks: Vec<&'a Queued>,
    /// The next one of them.
    next: usize,
    /// Where its last start put it.
    turn: Turn,
}

impl<'a> Peer<'a> {
    fn head(&self) -> Option<&'a Queued> {
        self.tasks.get(self.next).copied()
    }

    /// All that are left, which no longer wait.
    fn take_all(&mut self) -> impl Iterator<Item = &'a Queued> {
        let rest = self.tasks.split_off(self.next.min(self.tasks.len()));
        rest.into_iter()
    }
}

/// What is done with the tasks that wait, which come oldest first: every start, then the refusals, each task at most once. If the
/// sandbox has to be tried for one, that one is there with [`Why::SandboxUnknown`]. Any other one stays as it is.
///
/// There are at most [`REFUSALS_AT_ONCE`], the oldest; the next look finds the others.
///
/// Peers take turns ([`Turn`]), and a peer's own tasks go in their order: one with a thousand of them holds up nobody. What one
/// start takes - a place, a run of the day - the next no longer has.
#[must_use]
pub fn next(policy: &Policy, situation: &Situation<'_>, waiting: &[Queued]) -> Vec<(Queued, Decision)> {
    let mut peers = by_peer(policy, waiting);
    let newest = waiting.iter().map(|task| Turn::came(task.number).max(task.turn)).max();
    let mut last = newest.unwrap_or_default();
    let mut starts: Vec<(Aid, bool)> = Vec::new();
    let mut decisions: Vec<(Queued, Decision)> = Vec::new();
    let mut refusals: Vec<(&Queued, usize)> = Vec::new();
    let mut told: Vec<Decision> = Vec::new();
    loop {
        let mut first: Option<(Turn, usize, Decision)> = None;
        let mut untried: Option<(Turn, &Queued)> = None;
        for (index, peer) in peers.iter_mut().enumerate() {
            let Some(head) = peer.head() else { continue };
            let place = peer.turn.max(Turn::came(head.number));
            let decision = decide_after(policy, situation, &starts, peer.aid, peer.trusted);
            match decision {
                Decision::Start { .. } => {
                    if first.as_ref().is_none_or(|(before, _, _)| place < *before) {
                        first = Some((place, index, decision));
                    }
                }
                // No later start makes it otherwise, and it holds for all of the peer's.
                Decision::Refuse { .. } => {
                    refusals.extend(peer.take_all().map(|task| (task, told.len())));
                    told.push(decision);
                }
                Decision::Wait(Why::SandboxUnknown) => {
                    if untried.is_none_or(|(before, _)| place < before) {
                        untried = Some((place, head));
                    }
                }
                Decision::Wait(Why::Off | Why::NoRuns | Why::NoPlace | Why::PeerBusy | Why::NoDirect) => {}
            }
        }
        let chosen = first.and_then(|(_, index, decision)| Some((peers.get_mut(index)?, decision)));
        let Some((peer, decision)) = chosen else {
            refusals.sort_unstable_by_key(|(task, _)| task.number);
            let first = refusals.into_iter().take(REFUSALS_AT_ONCE);
            decisions.extend(first.filter_map(|(task, of)| Some((task.clone(), told.get(of)?.clone()))));
            decisions.extend(untried.map(|(_, task)| (task.clone(), Decision::Wait(Why::SandboxUnknown))));
            return decisions;
        };
        decisions.extend(peer.head().map(|task| (task.clone(), decision)));
        starts.push((peer.aid.clone(), peer.trusted));
        last = last.after();
        peer.turn = last;
        peer.next += 1;
    }
}

fn by_peer<'a>(policy: &Policy, waiting: &'a [Queued]) -> Vec<Peer<'a>> {
    let trust: HashSet<&Aid> = policy.trust.iter().collect();
    let mut peers: Vec<Peer<'a>> = Vec::new();
    let mut places: HashMap<&Aid, usize> = HashMap::new();
    for task in waiting {
        let at = *places.entry(&task.peer).or_insert(peers.len());
        if let Some(peer) = peers.get_mut(at) {
            peer.tasks.push(task);
        } else {
            let trusted = trust.contains(&task.peer);
            peers.push(Peer { aid: &task.peer, trusted, tasks: vec![task], next: 0, turn: task.turn });
        }
    }
    peers
}
