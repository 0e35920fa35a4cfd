use ipc_proto::broker::ModelId;
use proptest::prelude::*;

use super::*;

fn run(limits: ModelLimits, debits: bool) -> Rc<Run> {
    let model: ModelId = "m".to_owned().try_into().unwrap();
    let policy = ModelPolicy { model, output_tokens: 8192, silence: 1000 };
    Rc::new(Run::new(RunId::new(1, [0; 4]), Service::Other, &policy, limits, debits))
}

/// LIM-1: each limit is said as the operator wrote it.
#[test]
fn limits_are_named() {
    const MIB: u64 = 1024 * 1024;
    let limits =
        ModelLimits { requests: Some(0), body: Some(8 * MIB), total: Some(16 * MIB), connections: Some(0) };
    let of = run(limits, false);
    let sentence = |refusal: Refusal| refusal.sentence;
    assert!(sentence(of.check_requests().unwrap_err()).contains("ask the model 0 times"));
    assert!(sentence(of.check_body(8 * MIB + 1).unwrap_err()).contains("8 MiB"));
    assert!(of.check_body(8 * MIB).is_ok());
    assert!(sentence(of.enter_connection().unwrap_err()).contains("0 connections"));
    let of = run(ModelLimits { total: Some(10), ..ModelLimits::default() }, false);
    assert!(of.enter_request(Bodies { asked: 11, outgoing: 10 }).is_ok());
    let refusal = of.enter_request(Bodies { asked: 10, outgoing: 11 }).unwrap_err();
    assert_eq!(refusal.rule, Rule::LimitRequestTotal);
    assert!(refusal.sentence.contains("10 bytes"), "{}", refusal.sentence);
}

/// LIM-1: where nothing is set the broker's own bounds hold, and requests are not bounded.
#[test]
fn bounds_of_its_own_hold() {
    let of = run(ModelLimits::default(), false);
    assert!(of.check_body(LARGEST_BODY).is_ok());
    assert_eq!(of.check_body(LARGEST_BODY + 1).unwrap_err().rule, Rule::LimitRequestBody);
    let places: Vec<_> = (0..MOST_CONNECTIONS).map(|_| of.enter_connection().unwrap()).collect();
    assert!(of.enter_connection().is_err());
    drop(places);
    assert!(of.enter_connection().is_ok());
    for _ in 0..1000 {
        of.enter_request(Bodies { asked: 1, outgoing: 1 }).unwrap().goes();
    }
    assert_eq!((of.totals().requests, of.totals().connections), (1000, MOST_CONNECTIONS));
}

/// BUD-2: no answer is no, and an answer that nobody asked for is a breach.
#[test]
fn a_debit_is_asked_for_and_answered_once() {
    let of = run(ModelLimits::default(), true);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut one = std::pin::pin!(of.debit(1, 70));
    assert!(one.as_mut().poll(&mut context).is_pending());
    assert!(matches!(of.try_next_message(), Some(FromBroker::Want { request: 1, bytes: 70, .. })));
    assert_eq!(of.answer_debit(2, true), Err(Unasked));
    assert_eq!(of.answer_debit(1, false), Ok(()));
    let std::task::Poll::Ready(Err(refusal)) = one.as_mut().poll(&mut context) else { panic!("not refused") };
    assert_eq!(refusal.rule, Rule::Budget);
    assert_eq!(of.answer_debit(1, true), Err(Unasked));
    // Where no budget asks nothing is asked.
    let of = run(ModelLimits::default(), false);
    let mut free = std::pin::pin!(of.debit(1, 70));
    assert!(matches!(free.as_mut().poll(&mut context), std::task::Poll::Ready(Ok(()))));
    assert!(of.try_next_message().is_none());
}

/// What waits for the supervisor is bounded: the next request waits until something was taken.
#[test]
fn a_run_waits_for_its_record() {
    let of = run(ModelLimits::default(), true);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..MOST_WAITING {
        assert!(std::pin::pin!(of.may_ask()).poll(&mut context).is_ready());
        of.tell(FromBroker::Opened { run: of.id() });
    }
    let mut waits = std::pin::pin!(of.may_ask());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert!(of.try_next_message().is_some());
    assert!(waits.as_mut().poll(&mut context).is_ready());
}

/// Bodies wait for room in memory, and one that is larger than all of it gets all of it.
#[test]
fn bodies_share_the_brokers_memory() {
    let of = run(ModelLimits::default(), false);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut take = |bytes| {
        let mut room = std::pin::pin!(of.room_for(bytes));
        match room.as_mut().poll(&mut context) {
            std::task::Poll::Ready(room) => room,
            std::task::Poll::Pending => None,
        }
    };
    let (one, two) = (take(LARGEST_BODY).unwrap(), take(LARGEST_BODY).unwrap());
    assert!(take(1).is_none());
    drop(one);
    assert!(take(1).is_some());
    drop(two);
    assert!(take(10 * LARGEST_BODY).is_some());
}

proptest! {
    /// LIM-1: whatever comes, ends unsent or goes out in whatever order, no limit is ever passed, the counts are exact, and
    /// what was refused would have passed it.
    #[test]
    fn limits_hold_in_any_order(
        steps in prop::collection::vec((0..3u8, 0..50u64, 0..50u64), 0..60),
        requests in 0..10u64,
        total in 0..200u64,
    ) {
        let limits = ModelLimits { requests: Some(requests), total: Some(total), ..ModelLimits::default() };
        let of = run(limits, false);
        let mut open: Vec<RequestPlace> = Vec::new();
        let (mut sent, mut bytes, mut largest) = (0u64, 0u64, 0u64);
        for (step, asked, outgoing) in steps {
            match step {
                0 => {
                    let held: u64 = open.iter().map(|place| place.bodies.outgoing).sum();
                    let count = u64::try_from(open.len()).unwrap();
                    match of.enter_request(Bodies { asked, outgoing }) {
                        Ok(place) => open.push(place),
                        Err(refusal) => match refusal.rule {
                            Rule::LimitModelRequests => prop_assert_eq!(sent + count, requests),
                            Rule::LimitRequestTotal => prop_assert!(bytes + held + outgoing > total),
                            other => prop_assert!(false, "{}", other),
                        },
                    }
                }
                1 => drop(open.pop()),
                _ => {
                    if let Some(place) = open.pop() {
                        let Bodies { asked, outgoing } = place.bodies;
                        (sent, bytes, largest) = (sent + 1, bytes + outgoing, largest.max(asked));
                        place.goes();
                    }
                }
            }
            prop_assert!(sent <= requests && bytes <= total);
        }
        drop(open);
        let totals = of.totals();
        prop_assert_eq!((totals.requests, totals.total, totals.body), (sent, bytes, largest));
    }
}
