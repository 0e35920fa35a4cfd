//! The inbox against a few lines that say what it should do.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::inbox::Known;

const BOUNDS: Bounds =
    Bounds { waiting: 8, waiting_of_peer: 4, bytes: 40, bytes_of_peer: 25, ..Bounds::NODE };

#[derive(Clone, Debug)]
enum Act {
    Submit { name: u8, peer: u8, length: u8 },
    Begin { name: u8 },
    Finish { name: u8, well: bool },
    Refuse { name: u8, and: u8 },
    Reopen,
    Interrupt,
    Prune { before: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    let name = 0..12u8;
    prop_oneof![
        8 => (name.clone(), 0..4u8, 1..15u8).prop_map(|(name, peer, length)| Act::Submit { name, peer, length }),
        5 => name.clone().prop_map(|name| Act::Begin { name }),
        4 => (name.clone(), any::<bool>()).prop_map(|(name, well)| Act::Finish { name, well }),
        2 => (name.clone(), name).prop_map(|(name, and)| Act::Refuse { name, and }),
        1 => Just(Act::Reopen),
        1 => Just(Act::Interrupt),
        1 => (0..60u64).prop_map(|before| Act::Prune { before }),
    ]
}

#[derive(Clone, PartialEq, Debug)]
struct One {
    number: u64,
    peer: u8,
    length: u8,
    state: State,
    ended: u64,
    run: u64,
}

#[derive(Default)]
struct Model {
    all: BTreeMap<u8, One>,
    numbers: u64,
    runs: u64,
}

impl Model {
    fn waiting(&self) -> impl Iterator<Item = &One> {
        self.all.values().filter(|one| one.state == State::Queued)
    }

    fn has_room(&self, peer: u8, length: u8) -> bool {
        let length = u64::from(length);
        let sum = |one: &dyn Fn(&&One) -> bool| {
            self.waiting().filter(|o| one(o)).map(|o| u64::from(o.length)).sum::<u64>()
        };
        let of_peer = |one: &&One| one.peer == peer;
        (self.waiting().count() as u64) < BOUNDS.waiting
            && (self.waiting().filter(of_peer).count() as u64) < BOUNDS.waiting_of_peer
            && sum(&|_| true) + length <= BOUNDS.bytes
            && sum(&of_peer) + length <= BOUNDS.bytes_of_peer
    }

    fn change(&mut self, name: u8, from: State, to: State, now: u64) -> bool {
        match self.all.get_mut(&name) {
            Some(one) if one.state == from => {
                one.state = to;
                one.ended = now;
                true
            }
            Some(_) | None => false,
        }
    }
}

fn step(inbox: &mut Inbox, model: &mut Model, act: Act, now: u64) {
    let called = |name: u8| id(&format!("n{name}"));
    match act {
        Act::Submit { name, peer, length } => {
            let text = "x".repeat(length.into());
            let done = submit(inbox, &format!("p{peer}"), called(name).as_str(), &text);
            match model.all.get(&name) {
                Some(one) if one.peer == peer && one.length == length => {
                    assert_eq!(done.unwrap(), Submitted { known: true, number: one.number });
                }
                Some(_) => assert!(matches!(done, Err(InboxError::OtherTask(_)))),
                None if model.has_room(peer, length) => {
                    model.numbers += 1;
                    let number = model.numbers;
                    assert_eq!(done.unwrap(), Submitted { known: false, number });
                    model
                        .all
                        .insert(name, One { number, peer, length, state: State::Queued, ended: 0, run: 0 });
                }
                None => assert_eq!(done.unwrap_err().code(), ipc_proto::Code::InboxFull),
            }
        }
        Act::Begin { name } => {
            model.runs += 1;
            let done = inbox.begin(&called(name), run(model.runs), Way::Sandbox, false, now);
            assert_eq!(done.is_ok(), model.change(name, State::Queued, State::Running, 0));
            if done.is_ok() {
                model.all.get_mut(&name).unwrap().run = model.runs;
            }
        }
        Act::Finish { name, well } => {
            let refusal = refusal();
            let ending = if well { answered("answer") } else { refused(State::Exhausted, &refusal) };
            let number = model.all.get(&name).map_or(0, |one| one.run);
            let done = inbox.finish(&called(name), now, &ending, Some((run(number), "{}")));
            assert_eq!(done.is_ok(), model.change(name, State::Running, ending.state, now));
        }
        Act::Refuse { name, and } => {
            let told = refusal();
            let done = inbox.refuse_all(now, [(&called(name), false, &told), (&called(and), true, &told)]);
            let waits = |name| model.all.get(&name).is_some_and(|one| one.state == State::Queued);
            let both = name != and && waits(name) && waits(and);
            assert_eq!(done.is_ok(), both);
            if both {
                model.change(name, State::Queued, State::Refused, now);
                model.change(and, State::Queued, State::Refused, now);
            }
        }
        Act::Reopen => {}
        Act::Interrupt => {
            let interrupted = inbox.interrupted(now, &refusal()).unwrap();
            let mut running: Vec<_> = (model.all.iter_mut())
                .filter(|(_, one)| one.state == State::Running)
                .map(|(name, one)| {
                    one.state = State::Interrupted;
                    one.ended = now;
                    (one.number, (called(*name), run(one.run)))
                })
                .collect();
            running.sort();
            assert_eq!(interrupted, running.into_iter().map(|(_, pair)| pair).collect::<Vec<_>>());
        }
        Act::Prune { before } => {
            let count = model.all.len();
            model.all.retain(|_, one| !one.state.is_final() || one.ended >= before);
            assert_eq!(inbox.prune(before, 0).unwrap().removed as usize, count - model.all.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// ACC-1, ACC-2: whatever is done in whatever order, the inbox has exactly what it should, and counts right what waits.
    #[test]
    fn the_inbox_does_what_it_should(acts in proptest::collection::vec(act(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model::default();
        let mut inbox = Inbox::open_with(dir.path(), schema::STEPS, BOUNDS).unwrap();
        hurry(&inbox);
        for (now, act) in acts.into_iter().enumerate() {
            if matches!(act, Act::Reopen) {
                drop(inbox);
                inbox = Inbox::open_with(dir.path(), schema::STEPS, BOUNDS).unwrap();
                hurry(&inbox);
            }
            step(&mut inbox, &mut model, act, now as u64);
            prop_assert_eq!(inbox.queued_count().unwrap() as usize, model.waiting().count());
        }
        let rows: BTreeMap<u64, State> = inbox.rows(None, 1000).unwrap().iter().map(|row| (row.number, row.state)).collect();
        prop_assert_eq!(rows, model.all.values().map(|one| (one.number, one.state)).collect());
        let mut numbers: Vec<u64> = model.waiting().map(|one| one.number).collect();
        numbers.sort_unstable();
        prop_assert_eq!(inbox.waiting().unwrap().iter().map(|task| task.number).collect::<Vec<_>>(), numbers);
        for (name, one) in &model.all {
            let known = inbox.outcome(&id(&format!("n{name}"))).unwrap();
            prop_assert_eq!(matches!(known, Known::Final(_)), one.state.is_final());
        }
        assert_sound(&inbox);
    }
}
