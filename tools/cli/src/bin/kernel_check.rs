//! `kernel-check`: the command `memra-lab check` under a short name.

use std::process::ExitCode;

use clap::Parser as _;
use memra_lab::{cli, commands, finish};

fn main() -> ExitCode {
    finish(commands::check::run(&cli::KernelCheck::parse().arguments, &[]))
}
