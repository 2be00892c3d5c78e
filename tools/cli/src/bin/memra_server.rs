//! `memra-server`: the command `memra-lab serve` under a short name.

use std::process::ExitCode;

use clap::Parser as _;
use memra_lab::{cli, commands, finish};

fn main() -> ExitCode {
    finish(commands::engine::serve::run(&cli::MemraServer::parse().arguments))
}
