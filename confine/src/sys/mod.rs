//! The system calls that no crate offers safely, each behind a safe function.
#![allow(unsafe_code)]

pub mod inherited;
pub mod signal;
pub mod spawn;
pub mod wait;
