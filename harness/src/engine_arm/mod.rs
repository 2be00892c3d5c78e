//! Engine arms: a long-lived child process that runs a model, driven over its standard input and output.
//!
//! A workload cell races two inference engines on one model: the time of a prompt, or of generated tokens, with a number of
//! tokens in the cache before. A slot is one run of the workload.
//!
//! # Protocol
//!
//! Form, hello, errors and end are those of [`crate::process`]: one JSON object a line, the child speaks first with
//! `{"hello":{"name":...,"about":[...]}}`, every request gets one answer, `{"error":"text"}` where the child cannot do what
//! is asked, and a child that breaks the protocol is killed and named. The requests are
//!
//! - `{"op":"prepare","model":"/.../model.gguf","prompt":512,"generated":0,"depth":0,"threads":2,"seed":1}`, answered by
//!   `{"ok":true,"prompt_tokens":512,"generated_tokens":0,"depth_tokens":0}`: what the child will run. It may load the model
//!   now. Either `prompt` or `generated` is 0. Which tokens the prompt and the depth hold is the child's choice, as long as
//!   it follows from the seed; generation is greedy or follows from the seed, and does not stop before its number.
//! - `{"op":"wake"}`, answered by `{"ok":true}`; it comes before each sample, outside of any timed span.
//! - `{"op":"sample"}`, answered by `{"elapsed_ns":123,"prompt_tokens":512,"generated_tokens":0,"output_sha256":"..."}`: one
//!   run of the workload. The time is that of the prompt, or of the generated tokens, by a monotonic clock, without loading
//!   the model and without filling the cache up to the depth, both of which may happen inside the sample. The digest is
//!   that of whatever the child takes for its output (tokens, or logits of the last one), in 64 hexadecimal digits, and
//!   `null` where it has none to show. Every sample starts from an empty cache.
//! - `{"op":"peak"}`, answered by `{"peak_rss_bytes":123}`: the largest resident memory so far of the process that does the
//!   work, `null` where the child does not know it.
//! - `{"op":"idle"}`, answered by `{"ok":true}` when nothing works any more. From then on neither the child nor a process it
//!   started uses the CPU until the next request: one that does in the slot of another arm makes the quad void.
//! - `{"op":"stop"}`: the child ends, without an answer. It ends at the end of its input too.
//!
//! # Check
//!
//! The check of an engine prepares the workload and runs it twice. The token counts must be those of the cell, and the
//! output of the second run that of the first: the arm's own golden, which two engines need not share. Every later run, in
//! warm-up and slots, is held to both. What does not hold fails the gate with the arm, the run and both numbers.

mod check;
mod child;
mod runner;
#[cfg(test)]
#[cfg(unix)]
mod tests;
mod workload;

pub use check::{ENGINE_RUNS, EngineChecked, EngineTask, Golden, PassedEngine, check_engine, failed_gate};
pub use child::{EngineChild, EngineSample};
pub use runner::{EngineRunner, IDLE_FLOOR_NS};
pub use workload::{CONTRACT, MAX_TOKENS, REVISION, Workload, WorkloadError, model_source};

use std::time::Duration;

use memra_ledger::record::{self, ArmKind};

use crate::arm::{ArmSpec, Commands, ProcessArm, ResolveError};
use crate::process::{Hello, ProcessOptions};

/// Longest time of a sample: it may load a model and fill a deep cache.
const SAMPLE: Duration = Duration::from_mins(20);

/// The limits of engine arms, from those of process arms.
pub fn engine_options(options: &ProcessOptions) -> ProcessOptions {
    ProcessOptions { sample: options.sample.max(SAMPLE), ..options.clone() }
}

/// Finds the command of an engine arm, `engine:NAME`.
///
/// # Errors
/// [`ResolveError`] when the text names no engine or there is no command of that name.
pub fn resolve_engine(text: &str, commands: &Commands) -> Result<ProcessArm, ResolveError> {
    let ArmSpec::Engine(name) = text.parse::<ArmSpec>()? else {
        return Err(ResolveError::NoEngine(text.to_owned()));
    };
    let missing = || ResolveError::Command {
        kind: "engine",
        name: name.clone(),
        hint: memra_kernels::registry::nearest(&name, commands.names()),
    };
    let command = commands.get(&name).ok_or_else(missing)?.clone();
    Ok(ProcessArm { name, command })
}

/// What a cell record says of an engine: what it says of itself, or only the user's name for it where it said nothing.
pub fn engine_record(arm: &ProcessArm, hello: Option<&Hello>) -> record::Arm {
    record::Arm { kind: ArmKind::Engine, ..arm.record(hello) }
}
