//! What the tunnels of one run may still carry, to the byte.
//!
//! Bytes are taken before they leave a socket and given back when they could not be passed on: no debit, no byte
//! (BUD-2). All tunnels of a run take from the same counters, in one thread, so together they can exceed no limit.

use std::cell::Cell;

use ipc_proto::proxy::Reason;
use tokio::sync::Notify;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the run to the host.
    Out,
    /// From the host to the run.
    In,
}

/// What a taker gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grant {
    /// So many bytes, at least one.
    Bytes(u64),
    /// Not one more.
    Refused(Reason),
    /// None now: [`Meter::refill`] asks for more.
    Empty,
}

#[derive(Debug)]
struct Counter {
    limit: Option<u64>,
    used: Cell<u64>,
}

impl Counter {
    fn left(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.used.get()))
    }
}

/// Whether more can be leased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Supply {
    Idle,
    Asked,
    Ended,
}

/// Bytes outward that a budget has granted.
#[derive(Debug)]
struct Lease {
    left: Cell<u64>,
    supply: Cell<Supply>,
}

/// The counters of one run.
#[derive(Debug)]
pub struct Meter {
    sent: Counter,
    received: Counter,
    lease: Option<Lease>,
    wanted: Notify,
    refilled: Notify,
}

impl Meter {
    /// Limits of all tunnels together, and the first lease where a budget counts what leaves.
    #[must_use]
    pub fn new(sent: Option<u64>, received: Option<u64>, lease: Option<u64>) -> Self {
        let counter = |limit| Counter { limit, used: Cell::new(0) };
        Meter {
            sent: counter(sent),
            received: counter(received),
            lease: lease.map(|bytes| Lease { left: Cell::new(bytes), supply: Cell::new(Supply::Idle) }),
            wanted: Notify::new(),
            refilled: Notify::new(),
        }
    }

    fn counter(&self, direction: Direction) -> (&Counter, Option<&Lease>) {
        match direction {
            Direction::Out => (&self.sent, self.lease.as_ref()),
            Direction::In => (&self.received, None),
        }
    }

    /// Takes up to `wish` bytes, which must not be 0.
    pub fn take(&self, direction: Direction, wish: u64) -> Grant {
        let (counter, lease) = self.counter(direction);
        let granted = wish.min(counter.left());
        if granted == 0 {
            return Grant::Refused(match direction {
                Direction::Out => Reason::LimitTunnelSent,
                Direction::In => Reason::LimitTunnelReceived,
            });
        }
        let granted = match lease {
            None => granted,
            Some(lease) => match (granted.min(lease.left.get()), lease.supply.get()) {
                (0, Supply::Ended) => return Grant::Refused(Reason::Budget),
                (0, Supply::Idle | Supply::Asked) => return Grant::Empty,
                (leased, Supply::Idle | Supply::Asked | Supply::Ended) => {
                    lease.left.set(lease.left.get() - leased);
                    leased
                }
            },
        };
        counter.used.set(counter.used.get() + granted);
        Grant::Bytes(granted)
    }

    /// Returns bytes that were taken and not passed on.
    pub fn give_back(&self, direction: Direction, bytes: u64) {
        let (counter, lease) = self.counter(direction);
        counter.used.set(counter.used.get().saturating_sub(bytes));
        if let Some(lease) = lease.filter(|_| bytes > 0) {
            lease.left.set(lease.left.get() + bytes);
            self.refilled.notify_waiters();
        }
    }

    /// Takes exactly `count` bytes, waiting for leases where it must.
    ///
    /// # Errors
    /// The limit or budget that does not reach that far; nothing is taken then.
    pub async fn take_all(&self, direction: Direction, count: u64) -> Result<(), Reason> {
        let mut taken = 0;
        while taken < count {
            match self.take(direction, count - taken) {
                Grant::Bytes(bytes) => taken += bytes,
                Grant::Empty => self.refill().await,
                Grant::Refused(reason) => {
                    self.give_back(direction, taken);
                    return Err(reason);
                }
            }
        }
        Ok(())
    }

    /// Asks for another lease, unless somebody has, and waits until the lease is another one.
    pub async fn refill(&self) {
        let refilled = self.refilled.notified();
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.supply.get() == Supply::Idle) {
            lease.supply.set(Supply::Asked);
            self.wanted.notify_one();
        }
        refilled.await;
    }

    /// Waits until a lease is wanted: one question for any number of tunnels that wait.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// A lease has come; 0: none is left, and none will come.
    ///
    /// # Errors
    /// Nobody asked for it.
    pub fn lease(&self, bytes: u64) -> Result<(), Unasked> {
        let lease = self.lease.as_ref().filter(|lease| lease.supply.get() == Supply::Asked).ok_or(Unasked)?;
        lease.supply.set(if bytes == 0 { Supply::Ended } else { Supply::Idle });
        lease.left.set(lease.left.get().saturating_add(bytes));
        self.refilled.notify_waiters();
        Ok(())
    }

    /// Gives back what of the leases is left; none: nothing is leased at all. Bytes on their way stay with the run, and
    /// those that come back of them are used or given back later. The next byte asks.
    pub fn recall(&self) -> Option<u64> {
        let lease = self.lease.as_ref()?;
        let unused = lease.left.replace(0);
        // "No more" was said when whoever leases had none; now there is this again, and it may be asked for.
        if unused > 0 && lease.supply.get() == Supply::Ended {
            lease.supply.set(Supply::Idle);
        }
        Some(unused)
    }

    /// Leased bytes that were not used.
    #[must_use]
    pub fn unused(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.left.get())
    }

    /// Bytes that have gone one way.
    #[must_use]
    pub fn used(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Out => self.sent.used.get(),
            Direction::In => self.received.used.get(),
        }
    }

    /// The limit that is used up, if one is: no new tunnel makes sense then.
    #[must_use]
    pub fn spent(&self) -> Option<Reason> {
        if self.sent.left() == 0 {
            return Some(Reason::LimitTunnelSent);
        }
        if self.received.left() == 0 {
            return Some(Reason::LimitTunnelReceived);
        }
        let ended = |lease: &Lease| lease.left.get() == 0 && lease.supply.get() == Supply::Ended;
        self.lease.as_ref().is_some_and(ended).then_some(Reason::Budget)
    }
}

/// A lease that nobody asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unasked;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// LIM-1: the value passes, one more is refused, and the refusal names the limit.
    #[test]
    fn limits_hold_exactly() {
        let meter = Meter::new(Some(10), Some(20), None);
        assert_eq!(meter.take(Direction::Out, 7), Grant::Bytes(7));
        assert_eq!(meter.take(Direction::Out, 7), Grant::Bytes(3));
        assert_eq!(meter.take(Direction::Out, 1), Grant::Refused(Reason::LimitTunnelSent));
        assert_eq!(meter.take(Direction::In, 30), Grant::Bytes(20));
        assert_eq!(meter.take(Direction::In, 1), Grant::Refused(Reason::LimitTunnelReceived));
        meter.give_back(Direction::Out, 1);
        assert_eq!(meter.take(Direction::Out, 7), Grant::Bytes(1));
        assert_eq!((meter.used(Direction::Out), meter.used(Direction::In)), (10, 20));
        assert_eq!(meter.spent(), Some(Reason::LimitTunnelSent));
    }

    #[test]
    fn without_limits_nothing_is_refused() {
        let meter = Meter::new(None, None, None);
        assert_eq!(meter.take(Direction::Out, u64::MAX >> 1), Grant::Bytes(u64::MAX >> 1));
        assert_eq!(meter.spent(), None);
    }

    /// BUD-2: a lease is exact, asked for once, and 0 ends it.
    #[test]
    fn leases_hold_exactly() {
        let meter = Meter::new(None, None, Some(4));
        assert_eq!(meter.take(Direction::Out, 10), Grant::Bytes(4));
        assert_eq!(meter.take(Direction::Out, 1), Grant::Empty);
        assert_eq!(meter.take(Direction::In, 100), Grant::Bytes(100));
        assert_eq!(meter.lease(5), Err(Unasked));
        let mut refill = std::pin::pin!(meter.refill());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(refill.as_mut().poll(&mut cx).is_pending());
        assert_eq!(meter.lease(5), Ok(()));
        assert!(refill.as_mut().poll(&mut cx).is_ready());
        assert_eq!(meter.take(Direction::Out, 10), Grant::Bytes(5));
        let mut refill = std::pin::pin!(meter.refill());
        assert!(refill.as_mut().poll(&mut cx).is_pending());
        assert_eq!(meter.lease(0), Ok(()));
        assert!(refill.as_mut().poll(&mut cx).is_ready());
        assert_eq!(meter.take(Direction::Out, 1), Grant::Refused(Reason::Budget));
        assert_eq!(meter.spent(), Some(Reason::Budget));
        meter.give_back(Direction::Out, 2);
        assert_eq!((meter.unused(), meter.used(Direction::Out), meter.spent()), (2, 7, None));
        assert_eq!(meter.take(Direction::Out, 9), Grant::Bytes(2));
        assert_eq!(meter.take(Direction::Out, 1), Grant::Refused(Reason::Budget));
    }

    /// BUD-2: what is given back is gone, also from under whoever waits; a question that crosses it is answered as ever.
    #[test]
    fn a_recalled_lease_is_asked_for_anew() {
        let meter = Meter::new(None, None, Some(10));
        assert_eq!(meter.take(Direction::Out, 4), Grant::Bytes(4));
        assert_eq!(meter.recall(), Some(6));
        assert_eq!(meter.recall(), Some(0));
        assert_eq!((meter.take(Direction::Out, 1), meter.spent()), (Grant::Empty, None));
        // Two of the four on their way come back: they are still leased.
        meter.give_back(Direction::Out, 2);
        assert_eq!(meter.unused(), 2);
        assert_eq!(meter.take(Direction::Out, 9), Grant::Bytes(2));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut refill = std::pin::pin!(meter.refill());
        assert!(refill.as_mut().poll(&mut cx).is_pending());
        assert_eq!(meter.recall(), Some(0));
        assert_eq!(meter.lease(3), Ok(()));
        assert!(refill.as_mut().poll(&mut cx).is_ready());
        assert_eq!(meter.recall(), Some(3));
        assert_eq!(Meter::new(None, None, None).recall(), None);
    }

    /// BUD-2: after "no more" nothing is asked for, unless something was given back since.
    #[test]
    fn the_end_of_leases_stands_unless_some_is_given_back() {
        let meter = Meter::new(None, None, Some(0));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut refill = std::pin::pin!(meter.refill());
        assert!(refill.as_mut().poll(&mut cx).is_pending());
        assert_eq!(meter.lease(0), Ok(()));
        assert_eq!(meter.recall(), Some(0));
        assert_eq!(meter.take(Direction::Out, 1), Grant::Refused(Reason::Budget));
        meter.give_back(Direction::Out, 5);
        assert_eq!(meter.recall(), Some(5));
        assert_eq!(meter.take(Direction::Out, 1), Grant::Empty);
    }

    /// LIM-1: what cannot be taken whole is not taken at all.
    #[test]
    fn all_or_nothing() {
        let meter = Meter::new(Some(10), None, None);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut over = std::pin::pin!(meter.take_all(Direction::Out, 11));
        assert_eq!(over.as_mut().poll(&mut cx), std::task::Poll::Ready(Err(Reason::LimitTunnelSent)));
        let mut exact = std::pin::pin!(meter.take_all(Direction::Out, 10));
        assert_eq!(exact.as_mut().poll(&mut cx), std::task::Poll::Ready(Ok(())));
    }

    proptest! {
        /// BUD-2, LIM-1: whatever is taken and given back in whatever order, the sum never passes limit or leases.
        #[test]
        fn never_over(limit in 0u64..1000, first in 0u64..500, steps in proptest::collection::vec((1u64..200, 0u64..200, 0u64..50, any::<bool>()), 0..60)) {
            let meter = Meter::new(Some(limit), None, Some(first));
            // What is left of `leased` is what was leased and not given back.
            let (mut held, mut leased) = (0u64, first);
            for (wish, back, more, recalled) in steps {
                if recalled {
                    let unused = meter.recall().unwrap_or_default();
                    leased -= unused;
                    prop_assert_eq!((leased, meter.unused()), (held, 0));
                }
                match meter.take(Direction::Out, wish) {
                    Grant::Bytes(bytes) => {
                        prop_assert!(bytes >= 1 && bytes <= wish);
                        held += bytes;
                    }
                    Grant::Refused(_) => {}
                    Grant::Empty => {
                        let mut refill = std::pin::pin!(meter.refill());
                        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                        prop_assert!(refill.as_mut().poll(&mut cx).is_pending());
                        prop_assert_eq!(meter.lease(more), Ok(()));
                        leased += more;
                    }
                }
                prop_assert!(held <= limit && held <= leased);
                prop_assert_eq!(meter.used(Direction::Out), held);
                prop_assert_eq!(meter.unused(), leased - held);
                let back = back.min(held);
                meter.give_back(Direction::Out, back);
                held -= back;
            }
        }
    }
}
