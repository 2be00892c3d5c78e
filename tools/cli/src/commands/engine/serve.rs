//! `serve`.

use crate::cli::ServeArguments;

/// Runs.
///
/// # Errors
/// Any.
pub fn run(_arguments: &ServeArguments) -> anyhow::Result<u8> {
    anyhow::bail!("later")
}
