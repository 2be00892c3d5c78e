//! The inference engine.
//!
//! - [`arch`]: model families, one file each: metadata and tensors to a configuration.
//! - [`exactness`]: how a prompt is cut and who shares a step with it must not change a bit.
//! - [`fuzzing`]: bodies of the fuzz targets.
//! - [`plan`]: a straight list of steps with every kernel resolved to the device's default, and how it runs.
//! - [`cache`]: paged keys and values.
//! - [`chat`]: text to tokens and back, chat templates.
//! - [`runner`]: a loaded model that runs steps.
//! - [`schedule`]: requests, and the executor thread that owns the device.
//! - [`serve`]: an OpenAI-compatible server.
//! - [`testing`]: synthetic models for tests and benchmarks.

pub mod arch;
pub mod cache;
pub mod chat;
mod error;
pub mod exactness;
pub mod fuzzing;
pub mod plan;
pub mod runner;
pub mod schedule;
pub mod serve;
pub mod testing;

pub use error::LoadError;
