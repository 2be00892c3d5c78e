//! The check of an engine: token counts of the cell, and its own output again and again.

use std::path::Path;

use memra_contract::digest::Digest;
use memra_ledger::record::{self, GateBody, GateFailure};
use sha2::{Digest as _, Sha256};

use super::child::{EngineChild, EngineSample, Prepared};
use super::{CONTRACT, REVISION, Workload, engine_record};
use crate::arm::ProcessArm;
use crate::check::without_paths;
use crate::process::{Hello, ProcessError, ProcessOptions};

/// Runs of a check. The first is the golden of all others.
pub const ENGINE_RUNS: u32 = 2;

/// What an engine has to run, and the limits it has for it.
#[derive(Debug, Clone, Copy)]
pub struct EngineTask<'a> {
    /// The workload.
    pub workload: Workload,
    /// The model file.
    pub model: &'a Path,
    /// Threads.
    pub threads: usize,
    /// Seed of the tokens.
    pub seed: u64,
    /// Limits.
    pub options: &'a ProcessOptions,
}

/// What every run of an engine is held to: the counts of the cell and the engine's own output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Golden {
    workload: Workload,
    output_sha256: Option<Digest>,
}

/// Something of a run that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// `tokens` or `output`.
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

/// An engine passed its check on a workload. Only the check makes one.
#[derive(Debug, Clone)]
pub struct PassedEngine {
    arm: String,
    golden: Golden,
}

/// What a check found.
#[derive(Debug)]
pub struct EngineChecked {
    /// The record of the check, passed or not.
    pub gate: GateBody,
    /// The arm as it stands in a cell record; its gate is filled in when the record has an id.
    pub arm: record::Arm,
    /// The proof, where everything held.
    pub passed: Option<PassedEngine>,
    /// Times of the runs in nanoseconds.
    pub elapsed_ns: Vec<u64>,
}

impl PassedEngine {
    /// The user's name for the arm.
    pub fn arm(&self) -> &str {
        &self.arm
    }

    /// What its runs are held to.
    pub fn golden(&self) -> &Golden {
        &self.golden
    }
}

impl Golden {
    /// The workload that the engine was checked on.
    pub fn workload(&self) -> Workload {
        self.workload
    }

    /// What of a preparation is not the cell's.
    pub(super) fn prepared_difference(&self, prepared: Prepared) -> Option<Difference> {
        prepared_difference(self.workload, prepared)
    }

    /// What of a run is not as it was.
    pub(super) fn difference(&self, sample: &EngineSample) -> Option<Difference> {
        count_difference(self.workload, sample).or_else(|| {
            let (was, is) = (text(self.output_sha256.as_ref()), text(sample.output_sha256.as_ref()));
            let detail = format!("output {is}, and the first run of the check gave {was}");
            (self.output_sha256 != sample.output_sha256).then_some(Difference { reason: "output", detail })
        })
    }
}

fn text(digest: Option<&Digest>) -> &str {
    digest.map_or("none", Digest::as_str)
}

fn counts(pairs: &[(&str, u64, u32)]) -> Option<Difference> {
    let (what, is, wanted) = pairs.iter().find(|(_, is, wanted)| *is != u64::from(*wanted))?;
    Some(Difference { reason: "tokens", detail: format!("{is} {what} tokens, and the cell has {wanted}") })
}

fn count_difference(workload: Workload, sample: &EngineSample) -> Option<Difference> {
    counts(&[
        ("prompt", sample.prompt_tokens, workload.prompt),
        ("generated", sample.generated_tokens, workload.generated),
    ])
}

fn prepared_difference(workload: Workload, prepared: Prepared) -> Option<Difference> {
    counts(&[
        ("prompt", prepared.prompt, workload.prompt),
        ("generated", prepared.generated, workload.generated),
        ("depth", prepared.depth, workload.depth),
    ])
}

/// Judges an engine on a workload: [`ENGINE_RUNS`] runs with the token counts of the cell and one output. The child is
/// started for it and ends with it. A child that fails is a failure of the gate.
pub fn check_engine(arm: &ProcessArm, task: &EngineTask<'_>, replicate: u32) -> EngineChecked {
    let mut hello = None;
    let mut samples = Vec::new();
    let failure = match run_child(arm, task, &mut hello, &mut samples) {
        Ok(None) => None,
        Ok(Some((run, difference))) => {
            let detail = format!("arm `{}`, {run}: {}", arm.name, difference.detail);
            Some(failure(task, difference.reason, &detail))
        }
        Err(error) => Some(failure(task, "launch", &error.to_string())),
    };
    let record = engine_record(arm, hello.as_ref());
    let golden =
        samples.first().map(|first| Golden { workload: task.workload, output_sha256: first.output_sha256.clone() });
    let gate = gate(task, &record, replicate, golden.as_ref(), samples.len(), failure.into_iter().collect());
    let passed = golden.filter(|_| gate.is_passed).map(|golden| PassedEngine { arm: arm.name.clone(), golden });
    let elapsed_ns = samples.iter().map(|sample| sample.elapsed_ns).collect();
    EngineChecked { gate, arm: record, passed, elapsed_ns }
}

/// The gate record of an engine that passed its check and did not hold to it in the trial.
pub fn failed_gate(task: &EngineTask<'_>, passed: &GateBody, reason: &str, detail: &str) -> GateBody {
    GateBody { is_passed: false, failures: vec![failure(task, reason, detail)], ..passed.clone() }
}

/// Runs the workload as often as the check does; the first difference ends it.
fn run_child(
    arm: &ProcessArm,
    task: &EngineTask<'_>,
    hello: &mut Option<Hello>,
    samples: &mut Vec<EngineSample>,
) -> Result<Option<(String, Difference)>, ProcessError> {
    let mut child = EngineChild::start(arm, task.options)?;
    *hello = Some(child.hello().clone());
    let prepared = child.prepare(task)?;
    if let Some(difference) = prepared_difference(task.workload, prepared) {
        return Ok(Some(("preparation".to_owned(), difference)));
    }
    for run in 1..=ENGINE_RUNS {
        let sample = child.sample()?;
        let golden = samples.first().unwrap_or(&sample);
        let golden = Golden { workload: task.workload, output_sha256: golden.output_sha256.clone() };
        let difference = golden.difference(&sample);
        samples.push(sample);
        if let Some(difference) = difference {
            return Ok(Some((format!("run {run} of the check"), difference)));
        }
    }
    child.idle()?;
    Ok(None)
}

fn failure(task: &EngineTask<'_>, reason: &str, detail: &str) -> GateFailure {
    GateFailure {
        case: task.workload.to_string(),
        threads: threads(task),
        reason: reason.to_owned(),
        detail: without_paths(detail),
    }
}

fn threads(task: &EngineTask<'_>) -> u32 {
    u32::try_from(task.threads).unwrap_or(u32::MAX)
}

fn gate(
    task: &EngineTask<'_>,
    arm: &record::Arm,
    replicate: u32,
    golden: Option<&Golden>,
    runs: usize,
    failures: Vec<GateFailure>,
) -> GateBody {
    let output = golden.and_then(|golden| golden.output_sha256.as_ref());
    let said = format!("{} {}\n", task.workload, text(output));
    GateBody {
        replicate,
        contract: CONTRACT.to_owned(),
        revision: REVISION,
        variant: arm.variant.clone(),
        source_sha256: None,
        rule: if output.is_some() { "workload" } else { "workload-counts" }.to_owned(),
        order_class: None,
        problems: vec![task.workload.to_string()],
        cases: 1,
        threads: vec![threads(task)],
        repeats: u32::try_from(runs).unwrap_or(u32::MAX),
        poison: Vec::new(),
        max_error_ppb: 0,
        allowed_error_ppb: 0,
        output_sha256: Digest::from_bytes(&Sha256::digest(said).into()),
        is_passed: failures.is_empty(),
        failures,
    }
}
