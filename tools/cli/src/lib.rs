//! The commands a user types. This package alone sees all others; it reads the environment, and nothing below it does.
//!
//! Results go to stdout, talk goes to stderr. `memra-lab` holds every command; `kernel-check` is the same `check` in a binary
//! that does not pull the boards in.

pub mod checkout;
pub mod cli;
pub mod commands;
pub mod cuda;
pub mod facts;
pub mod nvml;
pub mod toolkit;
pub mod ui;

use std::process::ExitCode;

/// Exit code of an error that is none of the protocol's outcomes.
pub const EXIT_ERROR: u8 = 1;
/// Exit code of records that do not verify.
pub const EXIT_INTEGRITY: u8 = 15;

/// Turns the outcome of a command into the code of the process, with the chain of causes on stderr.
pub fn finish(outcome: anyhow::Result<u8>) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            ui::say(format_args!("error: {error:#}"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}
