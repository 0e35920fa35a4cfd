//! The node: tasks in, answers out, for as long as the daemon runs.

pub mod job;

pub use job::NodeJob;
