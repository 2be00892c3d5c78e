//! The GGUF reader and writer, from outside.

#![expect(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]

mod files;
mod malformed;
mod raw;
mod round_trip;
mod writer;
