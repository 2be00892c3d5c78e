//! One module a command.

pub mod ab;
#[cfg(feature = "boards")]
pub mod board;
pub mod check;
pub mod doctor;
pub mod engine;
pub mod kernels;
pub mod ledger;
pub mod promote;
pub mod receipts;
pub mod rig;
mod session;

use crate::cli::{Cli, Command};

/// Runs a command and returns the exit code.
///
/// # Errors
/// Whatever is none of the protocol's outcomes, with its chain of causes.
pub fn run(cli: Cli) -> anyhow::Result<u8> {
    match cli.command {
        Command::Gen(arguments) => engine::generate::run(&arguments),
        Command::Serve(arguments) => engine::serve::run(&arguments),
        Command::Bench(arguments) => engine::bench::run(&arguments),
        Command::Explain(arguments) => engine::explain::run(&arguments),
        Command::Model { command } => engine::inspect::run(&command),
        Command::Logits(arguments) => engine::logits::run(&arguments),
        Command::EngineArm => engine::arm::run(),
        Command::Ab { command } => ab::run(&command),
        Command::Check(arguments) => check::run(&arguments, &["check"]),
        Command::Kernels { command } => kernels::run(&command),
        Command::Receipts { command } => receipts::run(&command),
        #[cfg(feature = "boards")]
        Command::Board { command } => board::run(&command),
        Command::Rig { command } => rig::run(&command),
        Command::Promote(arguments) => promote::run(&arguments),
        Command::Ledger { command } => ledger::run(&command),
        Command::Doctor { json } => doctor::run(json),
    }
}

/// Today, as an RFC 3339 date in UTC.
fn today() -> String {
    chrono::Utc::now().format("%Y-%m-%d").to_string()
}

/// Now, as RFC 3339 in UTC.
fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// What keeps private facts out of receipts: the host's and the user's names.
fn privacy() -> memra_ledger::chain::PrivacyLint {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let user = std::env::var("USER").ok();
    memra_ledger::chain::PrivacyLint::new(host.as_deref().map(str::trim), user.as_deref())
}
