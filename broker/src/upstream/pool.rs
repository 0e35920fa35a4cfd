//! Connections that are kept for the next request: a handshake costs two round trips, and a service counts them.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use http::HeaderMap;
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, sleep_until, timeout};

use super::link::Link;

/// The longest that a connection is kept without a request.
const IDLE: Duration = Duration::from_secs(60);
/// The most that are kept; the eldest goes first.
const MOST: usize = 16;
/// How long a kept connection may take until it is ready: its last answer has been read, so that only the end of an upload
/// that the service did not wait for could be missing.
const READY: Duration = Duration::from_millis(100);
/// How much earlier a connection is given up than the service says that it will: a request on its way needs time too.
const MARGIN: Duration = Duration::from_secs(1);

/// The kept connections of one service.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// In the order of their last use.
    kept: RefCell<Vec<Kept>>,
    sweeping: Cell<bool>,
}

#[derive(Debug)]
struct Kept {
    link: Link,
    until: Instant,
}

impl Pool {
    /// The connection that was used last and is still good, with nothing of an earlier request on it.
    pub(super) async fn take(&self) -> Option<Link> {
        if self.kept.borrow().is_empty() {
            return None;
        }
        // Lets the runtime look at the sockets: a connection that the service has closed shows itself before it is chosen.
        yield_now().await;
        loop {
            let Kept { mut link, until } = self.kept.borrow_mut().pop()?;
            if Instant::now() < until && !link.is_closed() && timeout(READY, link.ready()).await == Ok(true) {
                return Some(link);
            }
        }
    }

    /// Keeps a connection whose last answer was read to its end.
    pub(super) fn keep(self: &Rc<Self>, link: Link, idle: Duration) {
        if link.is_closed() || idle.is_zero() {
            return;
        }
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= MOST {
            kept.remove(0);
        }
        kept.push(Kept { link, until: Instant::now() + idle });
        drop(kept);
        if !self.sweeping.replace(true) {
            spawn_local(sweep(Rc::downgrade(self)));
        }
    }

    /// Closes what has been kept for long enough; when the next is due.
    fn expire(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut kept = self.kept.borrow_mut();
        kept.retain(|kept| now < kept.until && !kept.link.is_closed());
        kept.iter().map(|kept| kept.until).min()
    }
}

/// Ends when nothing is kept any more; the next that is kept begins it anew.
async fn sweep(pool: Weak<Pool>) {
    while let Some(pool_) = pool.upgrade() {
        let Some(next) = pool_.expire() else {
            pool_.sweeping.set(false);
            return;
        };
        drop(pool_);
        sleep_until(next).await;
    }
}

/// How long a connection may be kept after an answer with these headers: [`IDLE`], or less where the service says so
/// (`keep-alive: timeout=5`).
pub(super) fn idle(headers: &HeaderMap) -> Duration {
    let seconds = headers
        .get("keep-alive")
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.split(',').find_map(|part| part.trim().strip_prefix("timeout=")?.parse().ok()));
    seconds.map_or(IDLE, |seconds| Duration::from_secs(seconds).saturating_sub(MARGIN).min(IDLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MOD-12: a service that says how long it keeps a connection is believed, but for more than a minute.
    #[test]
    fn the_services_word_on_time_counts() {
        for (text, seconds) in [
            ("timeout=5", 4),
            ("timeout=5, max=100", 4),
            ("max=100, timeout=3", 2),
            ("timeout=1", 0),
            ("timeout=0", 0),
            ("timeout=600", 60),
            ("timeout=-1", 60),
            ("timeout=", 60),
            ("nonsense", 60),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("keep-alive", text.parse().unwrap());
            assert_eq!(idle(&headers), Duration::from_secs(seconds), "{text}");
        }
        assert_eq!(idle(&HeaderMap::new()), IDLE);
    }
}
