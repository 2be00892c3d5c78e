//! `check`: variants against their contract, on committed cases and on real weights.

mod card;
mod record;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use memra_artifact::{GgufModel, Tensor};
use memra_contract::{BlockFormat, DeviceKey, Problem};
use memra_harness::arm::{self, KernelArm};
use memra_harness::cell::BackendKind;
use memra_harness::check::{CheckPlan, Checker, JudgeCache, JudgedCase};
use memra_harness::outcome;
use memra_kernels::backend::Backend as _;
use memra_kernels::backend::host::HostBackend;
use memra_kernels::ops::CONTRACTS;
use memra_kernels::out_of_tree::ArmText;
use memra_kernels::{Contract, Variant, registry};
use memra_ledger::record::GateBody;
use record::Recorder;
use serde::Serialize;

use crate::cli::CheckArguments;
use crate::{checkout, cuda, facts, ui};

/// Seed of the first set of inputs; the others follow.
const FIRST_SEED: u64 = 42;
/// Activation rows that real weights are judged with.
const WEIGHT_ROWS: [u64; 2] = [1, 16];

#[derive(Serialize)]
struct Outcome {
    device_key: String,
    variants: Vec<VariantOutcome>,
    skipped: Vec<Skipped>,
    /// Pairs of a variant and a case that were checked.
    pairs: u64,
    passed: u64,
    failed: u64,
}

impl Outcome {
    fn new(key: DeviceKey) -> Self {
        let device_key = key.to_string();
        Self { device_key, variants: Vec::new(), skipped: Vec::new(), pairs: 0, passed: 0, failed: 0 }
    }

    /// Adds the check of a variant, and writes it where checks are recorded.
    fn add(
        &mut self,
        contract: &'static dyn Contract,
        variant: &'static Variant,
        gate: GateBody,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        recorder.add(&gate)?;
        let failed = gate.failures.iter().map(|failure| &failure.case).collect::<BTreeSet<_>>().len() as u64;
        let passed = u64::from(gate.cases).saturating_sub(failed);
        self.pairs += u64::from(gate.cases);
        self.passed += passed;
        self.failed += failed;
        self.variants.push(VariantOutcome {
            contract: contract.info().id,
            variant: variant.name,
            passed,
            failed,
            is_out_of_tree: contract.arm_file().is_some(),
            gate,
        });
        Ok(())
    }
}

#[derive(Serialize)]
struct VariantOutcome {
    contract: &'static str,
    variant: &'static str,
    passed: u64,
    failed: u64,
    /// Whether it is a file that was never compiled in: not promotable.
    is_out_of_tree: bool,
    gate: GateBody,
}

#[derive(Serialize)]
struct Skipped {
    contract: &'static str,
    variant: &'static str,
    why: String,
}

type Pair = (&'static dyn Contract, &'static Variant);

/// Runs the command. `worker` are the words of this program behind which options of `check` follow.
///
/// # Errors
/// When a name, a problem or a file is wrong.
pub fn run(arguments: &CheckArguments, worker: &[&str]) -> anyhow::Result<u8> {
    if arguments.worker {
        return card::serve(arguments.planted);
    }
    let threads: Vec<_> = arguments.threads.iter().map(|threads| *threads as usize).collect();
    if threads.contains(&0) {
        bail!("--threads 0: a launch runs on at least one thread");
    }
    let (files, names): (Vec<_>, Vec<_>) = arguments.names.iter().cloned().partition(|name| arm::is_file(name));
    // Files alone are checked alone, and a file that is no arm is told of where there is no card, too.
    let targets = if names.is_empty() && !files.is_empty() { Vec::new() } else { targets(&names)? };
    let texts = files.iter().map(|file| ArmText::read(Path::new(file))).collect::<Result<Vec<_>, _>>()?;
    texts.iter().try_for_each(|text| text.header().map(drop))?;
    let card = match (arguments.backend.kind(), files.first()) {
        (Some(BackendKind::Cuda), _) => Some(cuda::needed("check --backend cuda")?),
        (_, Some(file)) => bail!("{file} runs on a card: say --backend cuda"),
        (_, None) if arguments.planted => bail!("--planted is for --backend cuda"),
        (_, None) => None,
    };
    let mut recorder = Recorder::open(arguments, card.as_ref())?;
    let outcome = match &card {
        Some(card) => card::check(arguments, card, targets, &texts, worker, &mut recorder)?,
        None => on_host(arguments, threads, targets, &mut recorder)?,
    };
    if arguments.json {
        ui::print_json(&outcome)?;
    } else {
        show(&outcome)?;
    }
    if arguments.planted {
        return card::judge_planted(&outcome);
    }
    let code = outcome::exit_code(&[], outcome.failed > 0, false);
    recorder.finish(code)?;
    Ok(code)
}

fn on_host(
    arguments: &CheckArguments,
    threads: Vec<usize>,
    targets: Vec<Pair>,
    recorder: &mut Recorder,
) -> anyhow::Result<Outcome> {
    let backend = HostBackend::detect();
    let checker = Checker::new(CheckPlan { threads, ..CheckPlan::default() })?;
    let cache = JudgeCache::default();
    let extra = extra_cases(arguments, &targets)?;
    let mut outcome = Outcome::new(backend.device_key());
    for (contract, variant) in targets {
        let cases = cases_of(arguments, contract, variant, &cache, &extra)?;
        let can_run =
            cases.first().map(|case| registry::can_run(contract, variant, case.problem(), backend.device_key()));
        if let Some(Err(error)) = can_run {
            outcome.skipped.push(Skipped {
                contract: contract.info().id,
                variant: variant.name,
                why: error.to_string(),
            });
            continue;
        }
        ui::say(format_args!("checking {}/{} on {} cases", contract.info().id, variant.name, cases.len()));
        let gate = checker.check_kernel(&backend, &KernelArm::explicit(contract, variant), &cases, 0).gate;
        outcome.add(contract, variant, gate, recorder)?;
    }
    Ok(outcome)
}

/// The variants that names stand for: all, those of a contract, or one.
fn targets(names: &[String]) -> anyhow::Result<Vec<Pair>> {
    let of = |contract: &'static dyn Contract| contract.variants().iter().map(move |variant| (contract, *variant));
    if names.is_empty() {
        return Ok(CONTRACTS.iter().flat_map(|contract| of(*contract)).collect());
    }
    let mut targets = Vec::new();
    for name in names {
        match name.split_once('/') {
            Some((contract, variant)) => {
                let contract = registry::contract(contract)?;
                targets.push((contract, registry::variant(contract, variant)?));
            }
            None => targets.extend(of(registry::contract(name)?)),
        }
    }
    Ok(targets)
}

/// Cases beside the committed ones: a problem from the command line, tensors of a file.
fn extra_cases(arguments: &CheckArguments, targets: &[Pair]) -> anyhow::Result<Vec<Arc<JudgedCase>>> {
    let mut contracts: Vec<&'static dyn Contract> = Vec::new();
    for (contract, _) in targets {
        if !contracts.iter().any(|known| known.info().id == contract.info().id) {
            contracts.push(*contract);
        }
    }
    let mut cases = Vec::new();
    if let Some(text) = &arguments.problem {
        let problem: Problem = text.parse()?;
        for contract in &contracts {
            for (family, _) in contract.info().families {
                cases.push(Arc::new(JudgedCase::generated(*contract, &problem, family, FIRST_SEED)?));
            }
        }
    }
    if let Some(file) = &arguments.weights {
        let before = cases.len();
        for contract in contracts {
            cases.extend(weight_cases(contract, file, arguments.tensor.as_deref())?);
        }
        if cases.len() == before {
            bail!("no tensor of {} fits a checked contract: q8_0 and f32 tensors do", file.display());
        }
    }
    Ok(cases)
}

fn weight_cases(
    contract: &'static dyn Contract,
    file: &Path,
    tensor: Option<&str>,
) -> anyhow::Result<Vec<Arc<JudgedCase>>> {
    let model = open_model(file)?;
    let mut cases = Vec::new();
    for (problem, tensor) in fitting(contract, &model, file, tensor)? {
        let inputs = contract.inputs(&problem, "normal", FIRST_SEED)?;
        let inputs = contract
            .with_weights(&problem, inputs, tensor.data())
            .with_context(|| format!("tensor `{}` of {}", tensor.info().name(), file.display()))?;
        ui::say(format_args!("judging {} {problem} on `{}`", contract.info().id, tensor.info().name()));
        let digest = facts::sha256(tensor.data());
        cases.push(Arc::new(JudgedCase::new(contract, &problem, "normal", FIRST_SEED, Some(digest), inputs)?));
    }
    Ok(cases)
}

fn open_model(file: &Path) -> anyhow::Result<GgufModel> {
    if !file.is_file() {
        bail!("no model file {}{}", file.display(), checkout::nearest_model(file));
    }
    GgufModel::open(file).with_context(|| format!("model file {}", file.display()))
}

/// Problems of a contract with the tensors that are weights of them: one tensor, or all of a model that fit.
fn fitting<'a>(
    contract: &dyn Contract,
    model: &'a GgufModel,
    file: &Path,
    tensor: Option<&str>,
) -> anyhow::Result<Vec<(Problem, Tensor<'a>)>> {
    let tensors: Vec<Tensor<'a>> = match tensor {
        None => model.tensors().collect(),
        Some(name) => {
            let hint = || registry::nearest(name, model.names());
            vec![model.tensor(name).with_context(|| format!("{} has no tensor `{name}`{}", file.display(), hint()))?]
        }
    };
    let mut fitting = Vec::new();
    for tensor in tensors {
        for problem in problems_for(contract, &tensor) {
            fitting.push((contract.normalise(&problem)?, tensor));
        }
    }
    Ok(fitting)
}

/// Problems of a contract that a stored tensor is a weight of.
fn problems_for(contract: &dyn Contract, tensor: &Tensor<'_>) -> Vec<Problem> {
    let info = tensor.info();
    match (contract.info().id, info.dims(), info.format()) {
        ("rms_norm", [hidden], format) if format == BlockFormat::F32 => {
            WEIGHT_ROWS.iter().map(|m| Problem::new().with("m", *m).with("hidden", *hidden)).collect()
        }
        ("matmul", [k, n], format) if format == BlockFormat::Q8_0 || format == BlockFormat::F32 => WEIGHT_ROWS
            .iter()
            .map(|m| Problem::new().with("m", *m).with("k", *k).with_word("seg", &format!("{format}:{n}")))
            .collect(),
        _ => Vec::new(),
    }
}

fn cases_of(
    arguments: &CheckArguments,
    contract: &'static dyn Contract,
    variant: &Variant,
    cache: &JudgeCache,
    extra: &[Arc<JudgedCase>],
) -> anyhow::Result<Vec<Arc<JudgedCase>>> {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let serves = |problem: &Problem| contract.supports(variant, problem).is_ok();
    let mut cases = Vec::new();
    for seed in 0..u64::from(arguments.seeds) {
        cases.extend(cache.committed(contract, FIRST_SEED + seed, workers, &serves)?);
    }
    cases.extend(extra.iter().filter(|case| case.contract().info().id == contract.info().id).cloned());
    cases.retain(|case| serves(case.problem()));
    Ok(cases)
}

fn show(outcome: &Outcome) -> anyhow::Result<()> {
    let rows = outcome
        .variants
        .iter()
        .map(|checked| {
            vec![
                format!("{}/{}", checked.contract, checked.variant),
                checked.gate.cases.to_string(),
                format!("{:.2e}", checked.gate.max_error_ppb as f64 / 1e9),
                format!("{:.2e}", checked.gate.allowed_error_ppb as f64 / 1e9),
                if checked.failed == 0 { "passed".to_owned() } else { format!("FAILED {}", checked.failed) },
            ]
        })
        .collect();
    ui::print(ui::table(&["variant", ">cases", ">error", ">allowed", "result"], rows))?;
    for checked in &outcome.variants {
        for failure in &checked.gate.failures {
            ui::print(format_args!(
                "{}/{} {} on {} threads: {}: {}",
                checked.contract, checked.variant, failure.case, failure.threads, failure.reason, failure.detail
            ))?;
        }
    }
    for checked in outcome.variants.iter().filter(|checked| checked.is_out_of_tree) {
        ui::print(format_args!("{}/{} is out of the tree: not promotable", checked.contract, checked.variant))?;
    }
    for skipped in &outcome.skipped {
        ui::print(format_args!("skipped: {}", skipped.why))?;
    }
    ui::print(format_args!(
        "{} (variant, case) pairs: {} passed, {} failed on {}",
        outcome.pairs, outcome.passed, outcome.failed, outcome.device_key
    ))
}
