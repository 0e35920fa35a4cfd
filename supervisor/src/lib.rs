//! The two halves that every run of anet has: the guard, which starts and ends processes and reads nothing from
//! anybody, and the supervisor, which decides and starts nothing.
//!
//! The guard is a library, since it lives inside `anet run` (and `anet daemon`); the supervisor is a program of its own.

#![forbid(unsafe_code)]
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
pub mod inbox;
pub mod ledger;
pub mod models;
pub mod node;
pub mod outside;
pub mod record;
pub mod run;
