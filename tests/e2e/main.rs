//! End-to-end tests: the release binaries, called as people call them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agents;
mod attacks;
mod credentials;
mod directories;
mod doctor;
mod echo;
mod egress;
mod environment;
mod exit;
mod failures;
mod hello;
mod hostile;
mod interactive;
mod key;
mod kill;
mod left_out;
mod limits;
mod model;
mod model_limits;
mod node_basics;
mod node_budget;
mod node_config;
mod node_damage;
mod node_direct;
mod node_kill;
mod node_load;
mod node_model;
mod node_pressure;
mod node_sandbox;
mod prb;
mod programs;
mod protected;
mod race;
mod record;
mod refused_agents;
mod streams;

/// No options.
const NONE: [&str; 0] = [];

/// A word that nothing else on the machine has in its arguments.
fn marker() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // sleep(1) takes it as a number of seconds, longer than any test.
    format!("98765.{}{:04}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
