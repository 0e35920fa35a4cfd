//! End-to-end tests of anet: what they share.
//!
//! The programs under test are the release binaries as they are shipped ([`installed`]); nothing in them knows that
//! it is tested. A [`person::Person`] is whoever calls `anet`; an [`internet::Internet`] is the network that the
//! call sees, [`model`] the model services in it; a [`node::Node`] is a daemon of theirs; [`processes`] says what is left of a run; [`terminal`] is the terminal that a person sits at.

// A test ends by panicking: here that is the way to report.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod harness;
pub mod installed;
pub mod internet;
pub mod model;
pub mod node;
pub mod person;
pub mod processes;
pub mod terminal;
