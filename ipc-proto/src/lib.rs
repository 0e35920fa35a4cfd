//! What anet's processes say to one another, and how it travels.
//!
//! One `SOCK_SEQPACKET` socketpair joins each pair of processes that talk. A packet is one message: an enum per
//! channel and direction, encoded within a hard limit, with exactly the descriptors that the message declares.
//! Whatever does not decode, or comes with another number of descriptors, is an error that the receiver answers by
//! ending, closed: there is no message to skip and none to ignore.
//!
//! This crate holds no policy: names, limits and the order of messages, nothing about what is allowed.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod broker;
pub mod bulk;
pub mod channel;
mod codec;
pub mod codes;
pub mod control;
pub mod descriptors;
pub mod dial;
mod fdpass;
pub mod host;
pub mod ids;
pub mod init;
pub mod job;
pub mod launcher;
pub mod limits;
#[cfg(feature = "tokio")]
pub mod line;
pub mod outside;
pub mod proxy;
pub mod terminal;
pub mod units;
pub mod upstream;

pub use channel::{Channel, ChannelError, Message, Received};
pub use codes::Code;
pub use host::HostName;
pub use ids::{Aid, InteractionId, RunId};
#[cfg(feature = "tokio")]
pub use line::Line;
pub use upstream::Upstream;
