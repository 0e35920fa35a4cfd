//! The egress proxy: the only process of anet with a network, and one without a key, a file or a secret.
//!
//! A run reaches an allowed host by asking for a tunnel. What happens to a request happens in this order, and each step
//! is a module: [`connect`] reads the request, the list decides, [`resolve`] asks for the name, [`address`] verifies
//! every address, [`dial`] connects to a verified one, [`client_hello`] checks whom the client really wants, [`relay`]
//! carries the bytes. [`refusal`] says what a refused client is told. [`upstream`] connects for the broker.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)
)]

pub mod address;
pub mod client_hello;
pub mod connect;
pub mod dial;
pub mod gauge;
pub mod meter;
pub mod nat64;
pub mod own;
pub mod reach;
pub mod record;
pub mod refusal;
pub mod relay;
pub mod resolve;
pub mod run;
pub mod server_hello;
pub mod service;
mod tunnel;
pub mod upstream;
mod wait;
mod wire;
