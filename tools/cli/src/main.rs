//! `memra-lab`: every command of the lab.

use std::process::ExitCode;

use clap::Parser as _;
use memra_lab::{cli, commands, finish};

fn main() -> ExitCode {
    finish(commands::run(cli::Cli::parse()))
}
