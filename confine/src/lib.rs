//! What each process of anet may do, as data ([`manifest`]), and the code that makes it keep to that ([`enter`]).
//!
//! A process calls [`enter`] once, as early as it can: after it opened what only it may open, before its first thread
//! and before it reads a byte from anybody.
//!
//! All unsafe code of the project is in [`sys`].

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod enter;
pub mod landlock;
pub mod manifest;
pub mod memory;
pub mod seccomp;
pub mod sys;

pub use enter::{Error, Paths, Report, enter};
pub use manifest::{Privileges, Role, privileges};
