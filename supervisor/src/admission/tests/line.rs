//! Whose turn it is.

use sha2::{Digest, Sha256};

use super::*;
use crate::inbox::Inbox;

fn starts(decisions: &[(Queued, Decision)]) -> Vec<u64> {
    let starts = decisions.iter().filter(|(_, decision)| matches!(decision, Decision::Start { .. }));
    starts.map(|(task, _)| task.number).collect()
}

fn refused(decisions: &[(Queued, Decision)]) -> Vec<u64> {
    let refused = decisions.iter().filter(|(_, decision)| matches!(decision, Decision::Refuse { .. }));
    refused.map(|(task, _)| task.number).collect()
}

/// RUN-5: the oldest task of each of the two peers that wait longest, and what one start takes the next does not have.
#[test]
fn the_oldest_of_two_peers_start() {
    let none = Counts::default();
    let waiting = [queued(1, "a"), queued(2, "a"), queued(3, "b"), queued(4, "c")];
    let decisions = next(&policy(), &situation(&none), &waiting);
    assert_eq!(starts(&decisions), [1, 3]);
    assert_eq!(decisions.len(), 2, "the others stay as they are: {decisions:?}");
    let active = [(aid("a"), false)];
    let decisions = next(&policy(), &Situation { active: &active, ..situation(&none) }, &waiting);
    assert_eq!(starts(&decisions), [3]);
    assert_eq!(next(&policy(), &situation(&none), &[]), []);
}

/// RUN-1, RUN-3: runs that this very scan starts count in it: the last run of the day, or of a peer's, is started once.
#[test]
fn a_scan_counts_its_own_starts() {
    let one_left = counts(&[("x", 19)]);
    let waiting = [queued(1, "a"), queued(2, "b"), queued(3, "a")];
    let decisions = next(&policy(), &situation(&one_left), &waiting);
    assert_eq!(starts(&decisions), [1]);
    assert_eq!(refused(&decisions), [2, 3]);
    let one_left = counts(&[("a", 4)]);
    let waiting = [queued(1, "a"), queued(2, "a"), queued(3, "b"), queued(4, "b")];
    let decisions = next(&policy(), &situation(&one_left), &waiting);
    assert_eq!((starts(&decisions), refused(&decisions)), (vec![1, 3], vec![2]));
}

/// RUN-3: a peer whose runs are used up has its tasks refused many at once, oldest first, and nobody else's.
#[test]
fn many_of_a_used_up_peer_are_refused_at_once() {
    let used = counts(&[("a", 5), ("c", 5)]);
    let mut waiting: Vec<Queued> =
        (1..=1000).map(|number| queued(number, ["a", "c"][number as usize % 2])).collect();
    waiting.push(queued(1001, "b"));
    let mut scans = 0;
    while waiting.iter().any(|task| task.peer != aid("b")) {
        let decisions = next(&policy(), &situation(&used), &waiting);
        assert_eq!(starts(&decisions), [1001]);
        let refused = refused(&decisions);
        assert_eq!(refused, waiting[..REFUSALS_AT_ONCE].iter().map(|task| task.number).collect::<Vec<u64>>());
        waiting.drain(..REFUSALS_AT_ONCE);
        scans += 1;
    }
    assert_eq!(scans, 4);
}

/// PRB-2: one task asks for the sandbox to be tried: the one that would start; none does if none could start.
#[test]
fn one_task_asks_for_the_trial() {
    let used = counts(&[("b", 5)]);
    let waiting = [queued(1, "b"), queued(2, "c"), queued(3, "a")];
    let untried = Situation { sandbox: Sandbox::Unknown, ..situation(&used) };
    let decisions = next(&policy(), &untried, &waiting);
    assert_eq!(refused(&decisions), [1]);
    assert_eq!(decisions[1], (queued(2, "c"), Decision::Wait(Why::SandboxUnknown)));
    assert_eq!(decisions.len(), 2);
    let active = [(aid("x"), false), (aid("y"), false)];
    assert_eq!(refused(&next(&policy(), &Situation { active: &active, ..untried }, &waiting)), [1]);
    assert_eq!(next(&policy(), &Situation { active: &active, ..untried }, &waiting).len(), 1);
    let off = Policy { untrusted: Untrusted::Off, ..policy() };
    assert_eq!(next(&off, &untried, &waiting), []);
}

/// RUN-5: trusted and untrusted peers do not take each other's places, in one scan.
#[test]
fn trusted_peers_have_their_own_places() {
    let none = Counts::default();
    let waiting: Vec<Queued> = (0..60)
        .map(|number| queued(number + 1, ["friend", "a", "b", "friend2"][number as usize % 4]))
        .collect();
    let decisions = next(&policy(), &situation(&none), &waiting);
    assert_eq!(starts(&decisions), [1, 2, 3, 4, 5, 8]);
    // They take turns within one scan too.
    let waiting: Vec<Queued> =
        (1..=20).map(|number| queued(number, if number <= 10 { "friend" } else { "friend2" })).collect();
    assert_eq!(starts(&next(&policy(), &situation(&none), &waiting)), [1, 11, 2, 12]);
}

/// A node that starts what [`next`] says and ends all of it before the next scan, so often. Who was started, in order.
fn served(inbox: &mut Inbox, scans: u32) -> Vec<String> {
    let none = Counts::default();
    let plenty = Policy { runs_per_day: u32::MAX, runs_per_peer_per_day: u32::MAX, ..policy() };
    let mut order = Vec::new();
    for _ in 0..scans {
        for (task, decision) in next(&plenty, &situation(&none), &inbox.waiting().unwrap()) {
            let Decision::Start { way, trusted, .. } = decision else { panic!("{decision:?}") };
            let run = ipc_proto::RunId::new(task.number, [0; 4]);
            inbox.begin(&task.interaction, run, way, trusted, 1).unwrap();
            let ending = crate::inbox::Ending {
                state: ipc_proto::control::State::Answered,
                answer: Some("answer"),
                refusal: None,
            };
            inbox.finish(&task.interaction, 2, &ending, Some((run, "{}"))).unwrap();
            order.push(task.peer.to_string());
        }
    }
    order
}

fn submit(inbox: &mut Inbox, peer: &str, count: u64) {
    for _ in 0..count {
        let number = inbox.rows(None, 1).unwrap().first().map_or(0, |row| row.number);
        let name = format!("t{number}").parse().unwrap();
        inbox.submit(1, &aid(peer), &name, b"x", &Sha256::digest("x").into()).unwrap();
    }
}

/// RUN-5: peers take turns: between two starts of one, everybody who waited meanwhile has one; a peer with many tasks holds up
/// nobody, nor does one that sends a new task as soon as the last is answered.
#[test]
fn nobody_starves() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    submit(&mut inbox, "many", 30);
    submit(&mut inbox, "b", 3);
    submit(&mut inbox, "c", 3);
    assert_eq!(served(&mut inbox, 1), ["many", "b"]);
    // Who comes anew stands behind those who waited before.
    submit(&mut inbox, "new", 1);
    assert_eq!(served(&mut inbox, 2), ["c", "many", "b", "new"]);
    submit(&mut inbox, "new", 1);
    assert_eq!(served(&mut inbox, 2), ["c", "many", "b", "new"]);
    submit(&mut inbox, "new", 1);
    assert_eq!(served(&mut inbox, 1), ["c", "many"]);
    assert_eq!(served(&mut inbox, 1), ["new", "many"]);

    // Whatever comes anew all the time, the old ones have their turns: none waits for more than one round.
    submit(&mut inbox, "old", 10);
    let mut order = Vec::new();
    for _ in 0..20 {
        for peer in ["x", "y", "z"] {
            submit(&mut inbox, peer, 1);
        }
        order.extend(served(&mut inbox, 1));
    }
    for peer in ["old", "many"] {
        let turns: Vec<usize> = (0..order.len()).filter(|at| order[*at] == peer).collect();
        assert!(turns.len() >= 7, "{peer}: {order:?}");
        assert!(turns.windows(2).all(|pair| pair[1] - pair[0] <= 6), "{peer}: {order:?}");
    }
}

/// RUN-5: a restart forgets whose turn it was, and nothing else.
#[test]
fn after_a_restart_the_oldest_is_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    submit(&mut inbox, "many", 5);
    submit(&mut inbox, "b", 2);
    submit(&mut inbox, "c", 2);
    assert_eq!(served(&mut inbox, 1), ["many", "b"]);
    drop(inbox);
    assert_eq!(served(&mut Inbox::open(dir.path()).unwrap(), 2), ["many", "b", "c", "many"]);
}

/// RUN-5: a scan of as many as the inbox takes is short. Figures: `cargo test --release -- --ignored`.
#[test]
#[ignore = "figures"]
fn measure_a_scan() {
    let waiting: Vec<Queued> =
        (0..10_000).map(|number| queued(number + 1, &format!("peer{}", number % 100))).collect();
    let many: Vec<Queued> = (0..10_000).map(|number| queued(number + 1, &format!("peer{number}"))).collect();
    let none = Counts::default();
    let used = counts(&[("x", 20)]);
    for (what, waiting, counts) in
        [("two start", &waiting, &none), ("all are refused", &waiting, &used), ("a peer each", &many, &none)]
    {
        // Time of the processor: others may be at work.
        let clock = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let mut times: Vec<_> = (0..50)
            .map(|_| {
                let begun = clock();
                let decisions = next(&policy(), &situation(counts), waiting);
                assert!(!decisions.is_empty());
                let used = clock() - begun;
                used.tv_sec * 1_000_000 + used.tv_nsec / 1000
            })
            .collect();
        times.sort_unstable();
        println!("{what}: {} us at the median, {} us at most", times[25], times[49]);
        assert!(times[25] < 20_000);
    }
}
