//! The inference engine.
//!
//! - [`arch`]: model families, one file each: metadata and tensors to a configuration.
//! - [`plan`]: a straight list of steps with every kernel resolved to the device's default, and how it runs.
//! - [`cache`]: paged keys and values.
//! - [`runner`]: a loaded model that runs steps.
//! - [`schedule`]: requests, and the executor thread that owns the device.

pub mod arch;
pub mod cache;
mod error;
pub mod plan;
pub mod runner;
pub mod schedule;

pub use error::LoadError;
