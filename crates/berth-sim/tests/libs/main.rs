//! The simulated driver and NVML as real programs meet them: separate processes that load the built libraries by path
//! and talk to a running server.
//!
//! `client` is what such a process does when told to, `support` starts servers and clients, the rest are the claims.

// A panic is how a test fails, and the numbers are the test's own.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

mod client;
mod driver;
mod faults;
mod graphs;
mod green;
mod nvml;
mod ptsz;
mod robustness;
mod support;
mod symbols;
mod words;
