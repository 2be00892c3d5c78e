//! Requests, the executor that owns the device, and what goes between it and the control plane.
//!
//! One thread owns the model. Everything else talks to it through bounded channels: requests one way, tokens the other. A
//! step serves rows of all running sequences, decode rows first, then as much of the waiting prompts as fits.

mod engine;
mod executor;
mod metrics;
mod request;
mod sequence;

pub use engine::{Engine, EngineOptions, EngineStatus, SubmitError};
pub use metrics::{EngineMetrics, FinishLabel, PREFIX};
pub use request::{Event, Finish, FinishReason, Generation, Request, Sampling, Timings};
