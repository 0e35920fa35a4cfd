//! Broker and proxy: connections to the one service that both were started for. The broker says when, never where.

use serde::{Deserialize, Serialize};

use crate::channel::Message;
use crate::proxy::Reason;

/// The most connections that may be asked for at once; a broker that asks for more breaks the protocol.
pub const MOST_DIALS: usize = 64;

/// Broker to proxy.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum ToDialer {
    /// Connect to the service. `dial` counts from 1.
    Dial {
        /// Which question.
        dial: u32,
    },
}

/// Proxy to broker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum FromDialer {
    /// It stands (one descriptor: the connected socket).
    Dialled {
        /// Which question.
        dial: u32,
    },
    /// It does not.
    Failed {
        /// Which question.
        dial: u32,
        /// Why.
        reason: Reason,
    },
}

impl Message for ToDialer {
    const DIRECTION: &'static str = "broker to proxy";
    fn descriptors(&self) -> usize {
        match self {
            ToDialer::Dial { .. } => 0,
        }
    }
}

impl Message for FromDialer {
    const DIRECTION: &'static str = "proxy to broker";
    fn descriptors(&self) -> usize {
        match self {
            FromDialer::Dialled { .. } => 1,
            FromDialer::Failed { .. } => 0,
        }
    }
}
