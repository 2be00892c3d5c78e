//! `ab`: races and what may be compared.

mod compare;
mod plan;
mod report;
mod run;

use std::io::Write as _;

use anyhow::Context as _;
use memra_harness::cell::BackendKind;
use memra_harness::progress::{Event, Progress};
use memra_harness::suite::{ReplicateSpec, run_replicate, run_replicate_on};

pub use run::{Raced, race};

use crate::cli::AbCommand;
use crate::{cuda, ui};

/// Runs a subcommand.
///
/// # Errors
/// Whatever keeps a session from being measured or recorded.
pub fn run(command: &AbCommand) -> anyhow::Result<u8> {
    match command {
        AbCommand::Run(arguments) => run::run(arguments),
        AbCommand::Compare { a, b, root, json } => compare::run(a, b, root.root.as_deref(), *json),
        AbCommand::Replicate => replicate(),
    }
}

/// One replicate in this process: a specification on stdin, a JSON line on stdout for everything found.
fn replicate() -> anyhow::Result<u8> {
    let spec: ReplicateSpec = serde_json::from_reader(std::io::stdin().lock()).context("replicate specification")?;
    let mut broken = None;
    let mut emit = |line: memra_harness::suite::ReplicateLine| {
        let written = serde_json::to_string(&line).map_err(anyhow::Error::from).and_then(|text| {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{text}").and_then(|()| out.flush()).map_err(anyhow::Error::from)
        });
        if let Err(error) = written {
            broken.get_or_insert(error);
        }
    };
    match spec.backend() {
        BackendKind::Host => run_replicate(&spec, &mut emit, &Talk)?,
        BackendKind::Cuda => {
            let card = cuda::open_cuda(cuda::ORDINAL)?;
            run_replicate_on(&spec, &card.backend, Some(card.watch), &mut emit, &Talk)?;
        }
    }
    match broken {
        Some(error) => Err(error.context("replicate output")),
        None => Ok(0),
    }
}

/// Says on stderr what a replicate is doing.
struct Talk;

impl Progress for Talk {
    fn event(&self, event: &Event) {
        match event {
            Event::Cell { cell, number, of } => ui::say(format_args!("cell {number} of {of}: {cell}")),
            Event::Check { arm, what } => ui::say(format_args!("  checking {arm}: {what}")),
            Event::Calibrated { launches, slot_a_ns, slot_b_ns, expected } => ui::say(format_args!(
                "  {launches} launches a slot: A {}, B {}; about {:.0} s",
                ui::time(slot_a_ns.saturating_mul(1000)),
                ui::time(slot_b_ns.saturating_mul(1000)),
                expected.as_secs_f64()
            )),
            Event::Block { block, quads } => ui::say(format_args!("  {block}: {quads} quads")),
            // Too many to say one by one.
            Event::WarmUp { .. } | Event::Quad { .. } => {}
        }
    }
}
