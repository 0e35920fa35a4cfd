//! Counting what is there at once, exactly, with the most that ever was.

use std::cell::Cell;
use std::rc::Rc;

/// How many there are, and how many there may be.
#[derive(Debug)]
pub struct Gauge {
    limit: Option<u64>,
    now: Cell<u64>,
    peak: Cell<u64>,
}

impl Gauge {
    /// With at most so many at once.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Rc<Self> {
        Rc::new(Gauge { limit, now: Cell::new(0), peak: Cell::new(0) })
    }

    /// Takes a place, if there is one; it is free again when dropped.
    pub fn enter(self: &Rc<Self>) -> Option<Place> {
        let now = self.now.get() + 1;
        if self.limit.is_some_and(|limit| now > limit) {
            return None;
        }
        self.now.set(now);
        self.peak.set(self.peak.get().max(now));
        Some(Place(Rc::clone(self)))
    }

    /// The most that were there at once.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak.get()
    }

    /// How many there may be.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }
}

/// One that is there.
#[derive(Debug)]
pub struct Place(Rc<Gauge>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.now.set(self.0.now.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LIM-1: the value passes, one more is refused, and a place that was left can be taken again.
    #[test]
    fn a_gauge_holds_exactly() {
        let gauge = Gauge::new(Some(2));
        let first = gauge.enter();
        let second = gauge.enter();
        assert!(first.is_some() && second.is_some() && gauge.enter().is_none());
        drop(first);
        assert!(gauge.enter().is_some());
        assert_eq!(gauge.peak(), 2);
    }

    #[test]
    fn a_limit_of_none_refuses_all() {
        assert!(Gauge::new(Some(0)).enter().is_none());
        assert!(Gauge::new(None).enter().is_some());
    }
}
