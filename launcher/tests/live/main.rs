//! The real launcher and anet-init with the real bwrap, as the guard starts them: as root with another user for the runs,
//! or as that user alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    unreachable_pub
)]

mod files;
mod node;
mod runs;
