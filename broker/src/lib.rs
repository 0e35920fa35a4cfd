//! The model broker: the only process of anet that holds a key, and one without a socket of its own, a file or a program.
//!
//! An agent's request for its model is read, checked, rewritten and written anew by [`policy`], one file a service.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)
)]

pub mod answer;
pub mod ask;
pub mod connection;
pub mod gate;
pub mod head;
pub mod key;
pub mod policy;
pub mod report;
pub mod requests;
pub mod room;
pub mod run;
pub mod service;
pub mod signing;
pub mod upstream;
pub mod whose;
