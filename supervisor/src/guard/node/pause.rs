//! How long the keeper waits before it starts the guard again (PRV-6).

use std::time::Duration;

/// After the first death.
const FIRST: Duration = Duration::from_millis(100);
/// However often it died.
const LONGEST: Duration = Duration::from_secs(30);
/// A life that lasted so long had no part in the trouble before it.
const GOOD_LIFE: Duration = Duration::from_secs(60);
/// A life that is ended to begin anew lasts so long at least: what changes all the time does not keep a processor busy.
const SHORTEST_LIFE: Duration = Duration::from_millis(500);

/// The next pause: doubled with each death, from the beginning after a good life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) fn new() -> Pauses {
        Pauses(FIRST)
    }

    /// The pause after the death of a life that lasted so long.
    pub(super) fn after_death(&mut self, lasted: Duration) -> Duration {
        if lasted >= GOOD_LIFE {
            self.0 = FIRST;
        }
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        pause
    }

    /// The pause after a life of that length that ended to begin anew.
    pub(super) fn anew(lasted: Duration) -> Duration {
        SHORTEST_LIFE.saturating_sub(lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRV-6: 100 ms, doubled up to 30 s, and from the beginning after a minute of good life.
    #[test]
    fn pauses_double_up_to_half_a_minute() {
        let mut pauses = Pauses::new();
        let short = Duration::from_secs(59);
        let told: Vec<u128> = (0..11).map(|_| pauses.after_death(short).as_millis()).collect();
        assert_eq!(told, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(pauses.after_death(Duration::from_secs(60)).as_millis(), 100);
        assert_eq!(pauses.after_death(Duration::ZERO).as_millis(), 200);
    }

    /// What changes all the time is followed twice a second at most, and anything else at once.
    #[test]
    fn beginning_anew_does_not_spin() {
        assert_eq!(Pauses::anew(Duration::from_secs(2)), Duration::ZERO);
        assert_eq!(Pauses::anew(Duration::from_millis(100)), Duration::from_millis(400));
    }
}
