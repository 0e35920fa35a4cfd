//! Memory for bodies: what may be held of them at once, counted before they come.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const KIB: u64 = 1024;

/// Room for a bounded sum of bodies. Whoever finds none waits its turn.
#[derive(Debug)]
pub struct Room {
    places: Arc<Semaphore>,
    kib: u32,
}

/// Room that is taken, until it is dropped.
#[derive(Debug)]
pub struct Taken {
    _places: OwnedSemaphorePermit,
}

impl Room {
    /// Room for so many KiB.
    #[must_use]
    pub fn new(kib: u32) -> Room {
        Room { places: Arc::new(Semaphore::new(usize::try_from(kib).unwrap_or(usize::MAX))), kib }
    }

    /// Waits for room for `bytes`. What is larger than all of it has all of it for itself.
    pub async fn take(&self, bytes: u64) -> Option<Taken> {
        let kib = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(self.kib).min(self.kib);
        // Nobody ever closes it.
        Arc::clone(&self.places).acquire_many_owned(kib).await.ok().map(|places| Taken { _places: places })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// LIM, PRV-4: what is taken is never more than there is, and what is given back serves the next; a body over all of it
    /// waits for all of it, and passes.
    #[tokio::test(flavor = "current_thread")]
    async fn bodies_wait_for_room() {
        let room = Room::new(64);
        let half = room.take(32 * KIB).await.unwrap();
        let other = room.take(31 * KIB + 1).await.unwrap();
        let soon = Duration::from_millis(20);
        assert!(timeout(soon, room.take(1)).await.is_err());
        drop(half);
        let third = room.take(32 * KIB).await.unwrap();
        drop((other, third));
        let all = room.take(u64::MAX).await.unwrap();
        assert!(timeout(soon, room.take(1)).await.is_err());
        drop(all);
        assert!(room.take(1).await.is_some());
    }
}
