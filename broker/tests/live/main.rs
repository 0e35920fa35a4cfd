//! The broker's program, started as it is in life: its descriptors, its confinement and all. A test is its supervisor, its
//! proxy, its agents and the model's service at once; only TLS is left out, since its certificates are the system's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]

mod asking;
mod echo;
mod endings;
mod exchange;
mod limits;
mod memory;
mod protocol;
mod runs;
mod signing;
mod stage;
