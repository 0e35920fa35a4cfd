//! Decisions about one peer.

use ipc_proto::Code;
use ipc_proto::control::Refusal;

use super::*;

const START: Decision = Decision::Start { trusted: false, way: Way::Sandbox, counted: true };

fn wait(why: Why) -> Decision {
    Decision::Wait(why)
}

fn refused_with(decision: &Decision) -> &Refusal {
    match decision {
        Decision::Refuse { refusal, .. } => refusal,
        Decision::Start { .. } | Decision::Wait(_) => panic!("{decision:?}"),
    }
}

/// SEL-1: a peer is trusted only if its aid is in `trust`, letter for letter.
#[test]
fn trust_is_by_the_whole_name() {
    let none = Counts::default();
    let situation = situation(&none);
    let trusted = Decision::Start { trusted: true, way: Way::Direct, counted: false };
    assert_eq!(decide(&policy(), &situation, &aid("friend")), trusted);
    for stranger in ["Friend", "friend3", "frien", "friend.", "x"] {
        assert_eq!(decide(&policy(), &situation, &aid(stranger)), START, "{stranger}");
    }
    let nobody = Policy { trust: Vec::new(), ..policy() };
    assert_eq!(decide(&nobody, &situation, &aid("friend")), START);
}

/// SEL-1: off is off: the task waits, whatever else is wrong, and nobody is refused.
#[test]
fn off_waits() {
    let used = counts(&[("p", 5), ("q", 15)]);
    let off = Policy { untrusted: Untrusted::Off, trusted: Trusted::Off, ..policy() };
    for sandbox in [Sandbox::Available, Sandbox::Unavailable, Sandbox::Unknown] {
        for backend in [Backend::Exec, Backend::Openai] {
            let policy = Policy { backend, ..off.clone() };
            let situation = Situation { sandbox, ..situation(&used) };
            for peer in ["p", "friend"] {
                assert_eq!(decide(&policy, &situation, &aid(peer)), wait(Why::Off));
            }
        }
    }
}

/// RUN-2: with 0 nothing runs for untrusted peers, and there is no refusal, whatever else is wrong; trusted ones run.
#[test]
fn zero_waits() {
    let used = counts(&[("p", 5), ("q", 15)]);
    for (a_day, of_peer) in [(0, 5), (20, 0), (0, 0)] {
        for sandbox in [Sandbox::Available, Sandbox::Unavailable, Sandbox::Unknown] {
            for backend in [Backend::Exec, Backend::Openai] {
                let policy =
                    Policy { runs_per_day: a_day, runs_per_peer_per_day: of_peer, backend, ..policy() };
                let situation = Situation { sandbox, ..situation(&used) };
                assert_eq!(decide(&policy, &situation, &aid("p")), wait(Why::NoRuns));
                assert!(matches!(decide(&policy, &situation, &aid("friend")), Decision::Start { .. }));
            }
        }
    }
}

/// RUN-1, RUN-3: the last run of a day starts, the next is refused with the day's end; of one peer and of all.
#[test]
fn used_up_is_refused_with_the_end_of_the_day() {
    for (used, starts) in [
        (counts(&[("p", 4)]), true),
        (counts(&[("p", 5)]), false),
        (counts(&[("p", 6)]), false),
        (counts(&[("p", 4), ("q", 5), ("r", 5), ("s", 5)]), true),
        (counts(&[("p", 4), ("q", 5), ("r", 5), ("s", 6)]), false),
        (counts(&[("q", 5), ("r", 15)]), false),
    ] {
        let decision = decide(&policy(), &situation(&used), &aid("p"));
        if starts {
            assert_eq!(decision, START);
            continue;
        }
        let refusal = refused_with(&decision);
        assert_eq!((refusal.code.as_str(), refusal.kind.as_deref()), ("budget", Some("runs")));
        assert_eq!(refusal.until.as_deref(), Some("2026-03-30T00:00:00+02:00"));
    }
}

/// RUN-1: counts of another date say nothing; the day is the one of the operator's zone.
#[test]
fn each_local_day_has_its_own_runs() {
    let used = counts(&[("p", 5)]);
    for (moment, starts) in [
        ("2026-03-28T22:59:59.999999999Z", true),
        ("2026-03-28T23:00:00Z", false),
        ("2026-03-29T21:59:59.999999999Z", false),
        ("2026-03-29T22:00:00Z", true),
    ] {
        let situation = Situation { day: berlin().day(at(moment)), ..situation(&used) };
        assert_eq!(decide(&policy(), &situation, &aid("p")) == START, starts, "{moment}");
    }
}

/// SEL-2: without a sandbox nothing that belongs into it starts, for nobody; an untried one is tried first.
#[test]
fn no_sandbox_no_start() {
    let none = Counts::default();
    let sandboxed = Policy { trusted: Trusted::Sandbox, ..policy() };
    for peer in ["p", "friend"] {
        let situation = Situation { sandbox: Sandbox::Unavailable, ..situation(&none) };
        let decision = decide(&sandboxed, &situation, &aid(peer));
        assert_eq!(refused_with(&decision).code, "sandbox_unavailable");
        let situation = Situation { sandbox: Sandbox::Unknown, ..situation };
        assert_eq!(decide(&sandboxed, &situation, &aid(peer)), wait(Why::SandboxUnknown));
    }
    // Direct needs none, and openai neither (SEL-3).
    let situation = Situation { sandbox: Sandbox::Unavailable, ..situation(&none) };
    let direct = Decision::Start { trusted: true, way: Way::Direct, counted: false };
    assert_eq!(decide(&policy(), &situation, &aid("friend")), direct);
    let openai = Policy { backend: Backend::Openai, ..policy() };
    let asked = Decision::Start { trusted: false, way: Way::Openai, counted: true };
    assert_eq!(decide(&openai, &situation, &aid("p")), asked);
}

/// RUN-3, DIA-1: a peer whose runs are used up hears that and not that the sandbox is missing: it would send again for nothing.
#[test]
fn used_up_comes_before_no_sandbox() {
    let used = counts(&[("p", 5)]);
    let situation = Situation { sandbox: Sandbox::Unavailable, ..situation(&used) };
    assert_eq!(refused_with(&decide(&policy(), &situation, &aid("p"))).code, "budget");
    assert_eq!(refused_with(&decide(&policy(), &situation, &aid("q"))).code, "sandbox_unavailable");
}

/// SEL-3: openai counts and takes a place as any other; without a model nothing starts.
#[test]
fn openai_counts() {
    let openai = Policy { backend: Backend::Openai, ..policy() };
    let used = counts(&[("p", 5)]);
    assert_eq!(refused_with(&decide(&openai, &situation(&used), &aid("p"))).code, "budget");
    let active = [(aid("q"), false), (aid("r"), false)];
    let full = Situation { active: &active, ..situation(&used) };
    assert_eq!(decide(&openai, &full, &aid("s")), wait(Why::NoPlace));
    let friend = Decision::Start { trusted: true, way: Way::Openai, counted: false };
    assert_eq!(decide(&openai, &full, &aid("friend")), friend);
    let without = Situation { model: false, ..situation(&used) };
    for peer in ["q", "friend"] {
        assert_eq!(refused_with(&decide(&openai, &without, &aid(peer))).code, "sandbox_unavailable");
    }
}

/// RUN-5: two places for untrusted peers, one for each peer; a turn without one waits.
#[test]
fn two_places_one_a_peer() {
    let none = Counts::default();
    let (p, q, friend) = ((aid("p"), false), (aid("q"), false), (aid("friend"), true));
    for (active, peer, expected) in [
        (vec![], "p", START),
        (vec![q.clone()], "p", START),
        (vec![p.clone()], "p", wait(Why::PeerBusy)),
        (vec![p.clone(), q.clone()], "p", wait(Why::PeerBusy)),
        (vec![p.clone(), q.clone()], "r", wait(Why::NoPlace)),
        (vec![friend.clone(), friend.clone(), q.clone()], "p", START),
        // A peer that was trusted when its run began, and no longer is.
        (vec![(aid("p"), true)], "p", wait(Why::PeerBusy)),
    ] {
        let situation = Situation { active: &active, ..situation(&none) };
        assert_eq!(decide(&policy(), &situation, &aid(peer)), expected, "{active:?}");
    }
    // No place is no refusal, whatever the sandbox is; but nobody waits for a place in a sandbox that is not there.
    let active = [p, q];
    let untried = Situation { active: &active, sandbox: Sandbox::Unknown, ..situation(&none) };
    assert_eq!(decide(&policy(), &untried, &aid("r")), wait(Why::NoPlace));
    let missing = Situation { active: &active, sandbox: Sandbox::Unavailable, ..situation(&none) };
    assert_eq!(refused_with(&decide(&policy(), &missing, &aid("r"))).code, "sandbox_unavailable");
}

/// RUN-1, RUN-5: trusted peers' runs do not count and take no place; there are at most four of them.
#[test]
fn trusted_runs_take_no_place() {
    let used = counts(&[("friend", 9), ("q", 20)]);
    let strangers = [(aid("p"), false), (aid("q"), false)];
    for trusted in [Trusted::Direct, Trusted::Sandbox] {
        let policy = Policy { trusted, ..policy() };
        let situation = Situation { active: &strangers, ..situation(&used) };
        let decision = decide(&policy, &situation, &aid("friend"));
        assert!(matches!(decision, Decision::Start { trusted: true, counted: false, .. }), "{decision:?}");
    }
    let friends = vec![(aid("friend"), true); TRUSTED_AT_ONCE];
    let full = Situation { active: &friends, ..situation(&used) };
    assert_eq!(decide(&policy(), &full, &aid("friend2")), wait(Why::NoPlace));
    let room = Situation { active: &friends[1..], ..full };
    assert!(matches!(decide(&policy(), &room, &aid("friend2")), Decision::Start { .. }));
}

/// SEL-2, SEL-4: what is to run outside of the sandbox waits where nothing does that, and never runs elsewhere.
#[test]
fn direct_is_nothing_else() {
    let none = Counts::default();
    let situation = Situation { direct: false, ..situation(&none) };
    assert_eq!(decide(&policy(), &situation, &aid("friend")), wait(Why::NoDirect));
    assert_eq!(decide(&policy(), &situation, &aid("p")), START);
}

/// SEL-1, SEL-2, SEL-3, RUN-1: over every combination: who is not trusted never runs outside; nothing runs in a way that the
/// policy does not name; whatever starts has what it needs; exactly what untrusted peers start counts.
#[test]
fn every_combination() {
    let mut starts = 0;
    let counts = [counts(&[]), counts(&[("p", 4)]), counts(&[("p", 5)]), counts(&[("q", 20)])];
    let (p, q, friend) = ((aid("p"), false), (aid("q"), false), (aid("friend"), true));
    let active = [vec![], vec![p.clone()], vec![q.clone()], vec![q.clone(), p.clone()], vec![friend; 4]];
    for trusted in [Trusted::Off, Trusted::Direct, Trusted::Sandbox] {
        for untrusted in [Untrusted::Off, Untrusted::Sandbox] {
            for backend in [Backend::Exec, Backend::Openai] {
                for runs_per_day in [0, 20] {
                    let policy = Policy { trusted, untrusted, backend, runs_per_day, ..policy() };
                    for sandbox in [Sandbox::Available, Sandbox::Unavailable, Sandbox::Unknown] {
                        for bits in 0..4 {
                            let (direct, model) = (bits & 1 != 0, bits & 2 != 0);
                            for counts in &counts {
                                for active in &active {
                                    let situation =
                                        Situation { sandbox, active, direct, model, ..situation(counts) };
                                    for peer in ["p", "friend"] {
                                        starts += check(&policy, &situation, peer);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(starts > 500, "{starts}");
}

fn check(policy: &Policy, situation: &Situation<'_>, peer: &str) -> u32 {
    let is_friend = peer == "friend";
    let what = format!("{peer}: {policy:?} {situation:?}");
    match decide(policy, situation, &aid(peer)) {
        Decision::Start { trusted, way, counted } => {
            assert_eq!((trusted, counted), (is_friend, !is_friend), "{what}");
            match way {
                Way::Direct => {
                    assert!(is_friend && policy.trusted == Trusted::Direct && situation.direct, "{what}");
                    assert_eq!(policy.backend, Backend::Exec, "{what}");
                }
                Way::Sandbox => {
                    assert!(situation.sandbox == Sandbox::Available, "{what}");
                    assert!(!is_friend || policy.trusted == Trusted::Sandbox, "{what}");
                    assert_eq!(policy.backend, Backend::Exec, "{what}");
                }
                Way::Openai => assert!(policy.backend == Backend::Openai && situation.model, "{what}"),
            }
            assert!(if is_friend {
                policy.trusted != Trusted::Off
            } else {
                policy.untrusted != Untrusted::Off
            });
            1
        }
        Decision::Refuse { trusted, refusal } => {
            assert_eq!(trusted, is_friend, "{what}");
            let is_budget = refusal.code == Code::Budget.as_str();
            assert!(is_budget || refusal.code == Code::SandboxUnavailable.as_str(), "{what}");
            assert!(!is_budget || !is_friend, "{what}");
            assert!(is_friend || policy.runs_per_day > 0, "{what}");
            0
        }
        Decision::Wait(_) => 0,
    }
}

/// DIA-1, USE-1: what a peer is told says what to do, and nothing of the host, of other peers or of how much there was.
#[test]
fn refusals_say_what_to_do_and_nothing_else() {
    let day = berlin().day(at("2026-10-25T10:00:00Z"));
    for refusal in [sandbox_unavailable(), runs_used_up(&day)] {
        let sentence = &refusal.sentence;
        assert!(sentence.len() < 200 && sentence.contains("send it again"), "{sentence}");
        for word in ["bwrap", "bubblewrap", "/", "probe", "peer", "limit", "20", "root", "kernel"] {
            let without_time = sentence.replace(refusal.until.as_deref().unwrap_or("-"), "");
            assert!(!without_time.contains(word), "{sentence}");
        }
        assert!(Code::parse(&refusal.code).is_some());
    }
    assert_eq!(runs_used_up(&day).until.as_deref(), Some("2026-10-26T00:00:00+01:00"));
    let failed = agent_failed("no_answer", "the agent ended without an answer");
    assert_eq!((failed.code.as_str(), failed.kind.as_deref()), ("agent_failed", Some("no_answer")));
}
