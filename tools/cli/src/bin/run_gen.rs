//! `run-gen`: the command `memra-lab gen` under a short name.

use std::process::ExitCode;

use clap::Parser as _;
use memra_lab::{cli, commands, finish};

fn main() -> ExitCode {
    finish(commands::engine::generate::run(&cli::RunGen::parse().arguments))
}
