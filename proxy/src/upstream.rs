//! Connections for the broker: it has no socket of its own, and says only when, never where (MOD-12).

use std::os::fd::AsFd;
use std::rc::Rc;

use ipc_proto::dial::{FromDialer, MOST_DIALS, ToDialer};
use ipc_proto::line::Line;
use ipc_proto::proxy::{Decision, DialReport, FromProxy, Reason};
use ipc_proto::{Channel, ChannelError, Received, Upstream};
use tokio::task::JoinSet;

use crate::gauge::{Gauge, Place};
use crate::reach::{Reach, Reached, Unreached};
use crate::refusal::Refusal;
use crate::run::Outbox;

/// The broker, and the one service that it may have connections to.
#[derive(Debug)]
pub struct Broker {
    /// The channel.
    pub channel: Channel<FromDialer, ToDialer>,
    /// The service, from the operator's configuration.
    pub service: Upstream,
}

/// Connects for the broker until it is gone, inside a `LocalSet`.
///
/// # Errors
/// The channel failed, or the broker broke its protocol.
pub(crate) async fn serve<R: Reach + 'static>(
    broker: Broker,
    reach: Rc<R>,
    outbox: Outbox,
) -> Result<(), ChannelError> {
    let dialer = Rc::new(Dialer { line: Line::new(broker.channel)?, service: broker.service, reach, outbox });
    let places = Gauge::new(Some(MOST_DIALS as u64));
    let mut dials = JoinSet::new();
    let mut last: u32 = 0;
    loop {
        let received = tokio::select! {
            // A task that panicked has ended the process (panic = abort).
            Some(Ok(ended)) = dials.join_next() => {
                ended?;
                continue;
            }
            received = dialer.line.receive() => received?,
        };
        match received {
            Received::Message(message @ ToDialer::Dial { dial }, _) => {
                last = last.wrapping_add(1);
                if dial != last {
                    return Err(ChannelError::unexpected(&message, "another number is the next"));
                }
                let Some(place) = places.enter() else {
                    return Err(ChannelError::unexpected(&message, "as many are asked for as may be"));
                };
                dials.spawn_local(Rc::clone(&dialer).dial(dial, place));
            }
            Received::Empty => {}
            // What is still being connected is for nobody: its tasks end with the set.
            Received::Closed => return Ok(()),
        }
    }
}

struct Dialer<R> {
    line: Line<FromDialer, ToDialer>,
    service: Upstream,
    reach: Rc<R>,
    outbox: Outbox,
}

impl<R: Reach> Dialer<R> {
    /// The place is free once the answer has left: whoever has it may ask again.
    async fn dial(self: Rc<Self>, dial: u32, place: Place) -> Result<(), ChannelError> {
        let reached = self.reach.reach_service(&self.service).await;
        // Recorded before the broker can send a byte. Without a supervisor the process is about to end.
        let _ = self.outbox.send(FromProxy::Dialled(report(&reached))).await;
        let sent = match reached {
            Ok(Reached { stream, .. }) => {
                self.line.send(&FromDialer::Dialled { dial }, &[stream.as_fd()]).await
            }
            Err(Unreached { reason, .. }) => self.line.send(&FromDialer::Failed { dial, reason }, &[]).await,
        };
        drop(place);
        match sent {
            Err(error) if error.is_closed() => Ok(()),
            sent => sent,
        }
    }
}

fn report(reached: &Result<Reached, Unreached>) -> DialReport {
    match reached {
        Ok(Reached { addresses, .. }) => {
            DialReport { decision: Decision::Allow, reason: Reason::Configured, addresses: addresses.clone() }
        }
        Err(Unreached { reason, addresses }) => {
            // As for tunnels: what a bad gateway's status would tell is a failure, everything else a refusal.
            let decision = match Refusal::of(*reason).and_then(|refusal| refusal.status) {
                Some(502 | 504) => Decision::Fail,
                Some(_) | None => Decision::Deny,
            };
            DialReport { decision, reason: *reason, addresses: addresses.clone() }
        }
    }
}

#[cfg(test)]
mod tests;
