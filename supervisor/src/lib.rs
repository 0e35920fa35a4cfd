//! The two halves that every run of anet has: the guard, which starts and ends processes and reads nothing from
//! anybody, and the supervisor, which decides and starts nothing.
//!
//! The guard is a library, since it lives inside `anet run` (and `anet daemon`); the supervisor is a program of its own.

#![forbid(unsafe_code)]
// What only auto-reply uses is compiled all the same, but for what needs the inbox's database or the program outside.
#![cfg_attr(not(feature = "auto-reply"), allow(dead_code))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod admission;
pub mod agents;
pub mod chain;
pub mod config;
pub mod credentials;
pub mod error;
pub mod evidence;
pub mod explain;
pub mod guard;
#[cfg(feature = "auto-reply")]
pub mod inbox;
pub mod ledger;
pub mod models;
pub mod node;
#[cfg(feature = "auto-reply")]
pub mod outside;
pub mod record;
pub mod run;

/// Whether this build has auto-reply: tasks in, answers out (SEL-5).
pub const AUTO_REPLY: bool = cfg!(feature = "auto-reply");
