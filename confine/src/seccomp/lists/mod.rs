//! The lists, one a file. In each the calls are sorted, one a line, with the reason why it is there.
//!
//! The processes that start nothing have lists of what they may do (all else ends them by SIGSYS); those that start
//! programs have lists of what is refused, because a filter is inherited by whatever they start.

pub mod broker;
pub mod guard;
pub mod launcher;
pub mod node;
pub mod proxy;
pub mod run;
pub mod supervisor;
pub mod terminal;

use super::rule::List;

/// All of them.
pub const ALL: &[&List] = &[
    &guard::LIST,
    &supervisor::LIST,
    &node::LIST,
    &launcher::LIST,
    &proxy::LIST,
    &broker::LIST,
    &terminal::LIST,
    &run::LIST,
];
