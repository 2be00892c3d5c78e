//! The server over real HTTP, on a local port, with a synthetic model.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod bodies;
mod faults;
mod fields;
mod life;
mod streams;
