//! Admission: what is done with a task, decided by pure functions (SEL, RUN).
//!
//! No function here asks a clock or reads a file, but for [`Zone::load`] and [`Zone::has_changed`]: time, zone, counts and
//! what runs come in, a decision goes out. `decide` decides about one peer; `next` goes through everything that waits.

mod counts;
mod date;
#[cfg(feature = "auto-reply")]
mod decide;
#[cfg(feature = "auto-reply")]
mod line;
#[cfg(feature = "auto-reply")]
mod refusals;
mod zone;

#[cfg(all(test, feature = "auto-reply"))]
mod tests;

pub use counts::{Counts, MAX_PEERS, OfDay};
pub use date::{Date, DateError};
#[cfg(feature = "auto-reply")]
pub use decide::{Decision, PLACES, Sandbox, Situation, TRUSTED_AT_ONCE, Why, decide};
#[cfg(feature = "auto-reply")]
pub use line::{REFUSALS_AT_ONCE, next};
#[cfg(feature = "auto-reply")]
pub use refusals::{agent_failed, runs_used_up, sandbox_unavailable};
pub use zone::{Day, Zone};
