//! Repository chores, run as `cargo xtask <task>`.
//!
//! The only task is `tidy`: rules about the whole tree that neither the compiler nor clippy can see.

mod code;
mod tidy;
mod tree;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "usage: cargo xtask tidy

tidy    checks the files that git tracks: edges between packages, sizes, unsafe code, citations, words, headers, links";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let outcome = match arguments[..] {
        ["tidy"] => run_tidy(),
        ["-h" | "--help" | "help"] => say(&mut io::stdout(), USAGE, ExitCode::SUCCESS),
        _ => say(&mut io::stderr(), USAGE, ExitCode::from(2)),
    };
    outcome.unwrap_or_else(|error| {
        // Nothing is left to tell where standard error is closed.
        say(&mut io::stderr(), &format!("error: {error:#}"), ExitCode::from(2)).unwrap_or(ExitCode::from(2))
    })
}

fn say(out: &mut impl Write, text: &str, code: ExitCode) -> Result<ExitCode> {
    writeln!(out, "{text}")?;
    Ok(code)
}

fn run_tidy() -> Result<ExitCode> {
    let tree = tree::Tree::read(&std::env::current_dir()?)?;
    let failures = tidy::report(&tree, &tidy::RULES, &mut io::stdout().lock())?;
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
