//! `check --backend cuda`: every variant in a process of its own, and kernels that are wrong on purpose.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use memra_artifact::GgufModel;
use memra_contract::{DeviceKey, Problem};
use memra_harness::arm::KernelArm;
use memra_harness::cell::FileTensor;
use memra_harness::check::{CaseRecipe, CheckPlan, CheckWorker, Checker, IsolatedCheck, WorkerEnd, WorkerProcess};
use memra_harness::outcome;
use memra_harness::planted::{self, Planted};
use memra_kernels::contract::Target;
use memra_kernels::out_of_tree::{ArmFile, ArmText};
use memra_kernels::{Contract, registry};
use memra_ledger::record::GateBody;

use super::record::Recorder;
use super::{FIRST_SEED, Outcome, Pair, Skipped, fitting, open_model};
use crate::cli::CheckArguments;
use crate::cuda::Card;
use crate::{cuda, ui};

/// How long a worker may take over one case: its judges run on the host and are slow.
const PATIENCE: Duration = Duration::from_mins(10);

/// Contracts of cards: the registered ones, and the planted one where it is asked for.
fn find(name: &str, is_planted: bool) -> Result<&'static dyn Contract, String> {
    if is_planted && name == planted::ID {
        return Ok(&Planted);
    }
    registry::contract(name).map_err(|error| error.to_string())
}

/// Answers the requests of a check until there are no more or the card is lost.
pub(super) fn serve(is_planted: bool) -> anyhow::Result<u8> {
    let card = cuda::open_cuda(cuda::ORDINAL)?;
    let checker = Checker::new(CheckPlan::for_card())?;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let find = move |name: &str| find(name, is_planted);
    let mut worker = CheckWorker::new(&card.backend, checker, &find, cpus);
    let mut out = std::io::stdout().lock();
    worker.serve(std::io::stdin().lock(), &mut out)?;
    out.flush()?;
    Ok(0)
}

/// Checks variants and files on the card. `worker` are the words of this program behind which options of `check` follow.
pub(super) fn check(
    arguments: &CheckArguments,
    card: &Card,
    targets: Vec<Pair>,
    texts: &[ArmText],
    worker: &[&str],
    recorder: &mut Recorder,
) -> anyhow::Result<Outcome> {
    let key = DeviceKey::Cuda(card.facts.class);
    let program = std::env::current_exe().context("path of this program")?;
    let start = || -> std::io::Result<Box<dyn WorkerEnd>> {
        let mut command = Command::new(&program);
        command.args(worker).arg("--worker");
        if arguments.planted {
            command.arg("--planted");
        }
        Ok(Box::new(WorkerProcess::start(command, PATIENCE)?))
    };
    let mut isolated = IsolatedCheck::new(CheckPlan::for_card(), Box::new(start));
    let mut targets = if arguments.planted {
        Planted.variants().iter().map(|variant| -> Pair { (&Planted, *variant) }).collect()
    } else {
        on_cards(arguments, targets)
    };
    for text in texts {
        let file = ArmFile::load(text, key)?;
        targets.push((file, file.variant()));
    }
    let mut outcome = Outcome::new(key);
    for (contract, variant) in targets {
        let cases = recipes(arguments, contract)?;
        let serves = |case: &CaseRecipe| -> anyhow::Result<Option<String>> {
            let problem: Problem = case.problem.parse()?;
            Ok(registry::can_run(contract, variant, &problem, key).err().map(|error| error.to_string()))
        };
        let (mut served, mut why) = (Vec::new(), None);
        for case in cases {
            match serves(&case)? {
                None => served.push(case),
                Some(reason) => why = Some(reason),
            }
        }
        if let (true, Some(why)) = (served.is_empty(), why) {
            outcome.skipped.push(Skipped { contract: contract.info().id, variant: variant.name, why });
            continue;
        }
        ui::say(format_args!("checking {}/{} on {} cases", contract.info().id, variant.name, served.len()));
        let gate = isolated.check(&KernelArm::explicit(contract, variant), &served, 0)?.gate;
        outcome.add(contract, variant, gate, recorder)?;
    }
    Ok(outcome)
}

/// Variants of cards, and those of others that were named one by one, which say why they are skipped.
fn on_cards(arguments: &CheckArguments, mut targets: Vec<Pair>) -> Vec<Pair> {
    targets.retain(|(contract, variant)| {
        let name = format!("{}/{}", contract.info().id, variant.name);
        matches!(variant.target, Target::Cuda(_)) || arguments.names.contains(&name)
    });
    targets
}

/// The cases of a contract: committed ones under every seed, and those of the command line.
fn recipes(arguments: &CheckArguments, contract: &'static dyn Contract) -> anyhow::Result<Vec<CaseRecipe>> {
    let mut recipes = Vec::new();
    for seed in 0..u64::from(arguments.seeds) {
        for case in &contract.cases().cases {
            let problem = contract.normalise(&case.problem()?)?;
            let families = case.families.iter();
            recipes.extend(families.map(|family| CaseRecipe::generated(&problem, family, FIRST_SEED + seed)));
        }
    }
    if let Some(text) = &arguments.problem {
        let problem = contract.normalise(&text.parse()?)?;
        let families = contract.info().families.iter();
        recipes.extend(families.map(|(family, _)| CaseRecipe::generated(&problem, family, FIRST_SEED)));
    }
    if let Some(file) = &arguments.weights {
        let model: GgufModel = open_model(file)?;
        for (problem, tensor) in fitting(contract, &model, file, arguments.tensor.as_deref())? {
            let weights = FileTensor { file: file.clone(), tensor: tensor.info().name().to_owned() };
            recipes.push(CaseRecipe::generated(&problem, "normal", FIRST_SEED).with_weights(weights));
        }
    }
    Ok(recipes)
}

/// Says which planted faults were found; 0 only where all were and the right kernel behind them passed.
pub(super) fn judge_planted(outcome: &Outcome) -> anyhow::Result<u8> {
    let gates: Vec<&GateBody> = outcome.variants.iter().map(|checked| &checked.gate).collect();
    for gate in &gates {
        let first = gate.failures.first();
        let found = first.map_or_else(
            || "passes".to_owned(),
            |failure| format!("is found: {}: {}: {}", failure.case, failure.reason, failure.detail),
        );
        ui::print(format_args!("{} {found}", gate.variant))?;
    }
    let is_sound = is_sound(&gates);
    ui::print(if is_sound { "the check finds what is planted" } else { "THE CHECK DOES NOT FIND WHAT IS PLANTED" })?;
    Ok(if is_sound { outcome::PASSED } else { outcome::GATE_FAILED })
}

/// Whether every planted kernel was judged, each fault found, and the right one, which stands last, passed.
fn is_sound(gates: &[&GateBody]) -> bool {
    gates.len() == Planted.variants().len()
        && gates.iter().all(|gate| gate.is_passed == (gate.variant == planted::RIGHT))
        && gates.last().is_some_and(|gate| gate.variant == planted::RIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_faults_must_all_be_found_and_the_right_kernel_pass() {
        let plan = CheckPlan::for_card();
        let gates: Vec<GateBody> = Planted
            .variants()
            .iter()
            .map(|variant| {
                let mut gate = plan.checked(&KernelArm::explicit(&Planted, variant), Vec::new(), 0).gate;
                gate.is_passed = variant.name == planted::RIGHT;
                gate
            })
            .collect();
        let all: Vec<&GateBody> = gates.iter().collect();
        assert!(is_sound(&all));
        assert!(!is_sound(&all[1..]) && !is_sound(&[]));
        for wrong in 0..gates.len() {
            let mut gates = gates.clone();
            gates[wrong].is_passed = !gates[wrong].is_passed;
            assert!(!is_sound(&gates.iter().collect::<Vec<_>>()), "{wrong}");
        }
    }

    #[test]
    fn the_planted_contract_is_found_only_where_it_is_asked_for() {
        assert!(find(planted::ID, true).is_ok() && find("argmax", true).is_ok());
        assert!(find(planted::ID, false).is_err());
    }
}
