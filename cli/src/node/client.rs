//! A client that outlives the node's lives.

use std::time::{Duration, Instant};

use super::{Failure, Node, PAUSE, Places, RETURN};

/// A connection that held so long was no part of the last trouble.
const SETTLED: Duration = Duration::from_secs(1);

/// Whoever asks a node again after it was lost: whatever it asks may be asked twice.
#[derive(Debug)]
pub(crate) struct Client {
    places: Places,
    node: Option<Node>,
    returns: Duration,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(places: Places) -> Result<Client, Failure> {
        let node = places.reach();
        // One that ends at this moment may be about to come back.
        let node = match node {
            Err(Failure::Lost) => None,
            connected => Some(connected?),
        };
        Ok(Client { places, node, returns: RETURN })
    }

    #[cfg(test)]
    pub(crate) fn patient_for(mut self, returns: Duration) -> Client {
        self.returns = returns;
        self
    }

    /// Asks, and asks again after a node that was lost has come back.
    pub(crate) fn ask<T>(&mut self, question: impl Fn(&Node) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut lost: Option<Instant> = None;
        loop {
            let node = match self.node.take() {
                Some(node) => Ok(node),
                None => self.places.connect(),
            };
            match node {
                Ok(node) => match question(&node) {
                    Err(Failure::Lost) if node.since.elapsed() >= SETTLED => lost = None,
                    Err(Failure::Lost) => {}
                    answer => {
                        self.node = Some(node);
                        return answer;
                    }
                },
                Err(Failure::Lost | Failure::Absent) => {}
                Err(failure @ Failure::Trouble(_)) => return Err(failure),
            }
            let since = *lost.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.returns {
                return Err(Failure::Lost);
            }
            // A node that is being started anew needs the processor more than we do.
            std::thread::sleep(PAUSE);
        }
    }
}
