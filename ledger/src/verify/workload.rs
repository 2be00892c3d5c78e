//! A cell in which engines run a model: its plan, its key and its arms belong together.

use super::Checks;
use crate::record::{ArmKind, CellBody};

/// Contract of the key of such a cell.
const CONTRACT: &str = "workload";
/// Host mode of the key of such a cell.
const HOST_MODE: &str = "engine";

pub(super) fn check(cell: &CellBody, checks: &mut Checks<'_>) {
    let key = &cell.key;
    let is_workload = key.contract == CONTRACT;
    for (name, arm) in [("a", &cell.a), ("b", &cell.b)] {
        if (arm.kind == ArmKind::Engine) != is_workload {
            checks.field(format!("{name}.kind"), "engines run workloads, and nothing else does");
        }
    }
    if (key.host_mode == HOST_MODE) != is_workload {
        checks.field("key.host_mode", format!("is {}, and the contract is {}", key.host_mode, key.contract));
    }
    let Some(plan) = cell.plan.workload.as_ref().filter(|_| is_workload) else {
        if is_workload {
            checks.field("plan.workload", "is missing for a workload");
        } else if cell.plan.workload.is_some() {
            checks.field("plan.workload", format!("stands in a cell of the contract {}", key.contract));
        }
        if !is_workload && cell.peaks.is_some() {
            checks.field("peaks", "stand in a cell without engines");
        }
        return;
    };
    checks.equal("key.problem", &key.problem, &plan.problem(), "the plan says");
    if (plan.prompt_tokens == 0) == (plan.generated_tokens == 0) {
        checks.field("plan.workload", "times a prompt or generated tokens, and not both or neither");
    }
    if cell.plan.launches > 1 {
        checks.field("plan.launches", format!("is {}, and a slot of a workload is one run", cell.plan.launches));
    }
    if !key.inputs.weights.as_ref().is_some_and(|model| model.tensor.is_empty()) {
        checks.field("key.inputs.weights", "must be a whole model file");
    }
    // Two arms before the A/A blocks, and two before the A/B block.
    let planned = plan.warm_up_slots.saturating_mul(4);
    if cell.ab.is_some() && cell.warm_up.slots != planned {
        checks.equal("warm_up.slots", &cell.warm_up.slots, &planned, "the plan says");
    }
    if cell.warm_up.drift_ppm != 0 || cell.warm_up.allowed_drift_ppm != 0 {
        checks.field("warm_up.drift_ppm", "is 0 by the plan of a workload");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Body, PeakMemory, WeightSource, WorkloadPlan};
    use crate::synthetic::{Synthetic, SyntheticCell};

    /// A cell of engines, made of a synthetic one of kernels.
    fn workload() -> CellBody {
        let session = Synthetic { cells: vec![SyntheticCell::named("tg")], ..Synthetic::new(3) };
        let file = crate::chain::read_bytes("f", session.text().unwrap().as_bytes()).unwrap();
        let mut cell = (file.records.into_iter())
            .find_map(|record| match record.body {
                Body::Cell(cell) => Some(*cell),
                _ => None,
            })
            .unwrap();
        let plan = WorkloadPlan { prompt_tokens: 0, generated_tokens: 128, depth_tokens: 64, warm_up_slots: 2 };
        (cell.a.kind, cell.b.kind) = (ArmKind::Engine, ArmKind::Engine);
        (cell.key.contract, cell.key.host_mode) = (CONTRACT.to_owned(), HOST_MODE.to_owned());
        cell.key.problem = "depth=64,generated=128,prompt=0".to_owned();
        let tensor_sha256 = cell.a.gate.clone().unwrap();
        cell.key.inputs.weights =
            Some(WeightSource { file: "m.gguf".to_owned(), tensor: String::new(), tensor_sha256 });
        (cell.plan.launches, cell.plan.workload) = (1, Some(plan));
        (cell.warm_up.slots, cell.warm_up.drift_ppm, cell.warm_up.allowed_drift_ppm) = (8, 0, 0);
        cell.peaks = Some(PeakMemory { a_bytes: Some(1), b_bytes: None });
        cell
    }

    type Change = fn(&mut CellBody);

    fn problems(change: impl Fn(&mut CellBody)) -> Vec<String> {
        let mut cell = workload();
        change(&mut cell);
        let mut problems = Vec::new();
        check(&cell, &mut Checks { file: "f", line: None, problems: &mut problems });
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn plan_key_and_arms_of_a_workload_belong_together() {
        assert_eq!(problems(|_| {}), Vec::<String>::new());
        let cases: [(Change, &str); 11] = [
            (|cell| cell.b.kind = ArmKind::Process, "b.kind: engines run workloads"),
            (|cell| cell.key.host_mode = "pool".to_owned(), "key.host_mode: is pool"),
            (|cell| cell.plan.workload = None, "plan.workload: is missing"),
            (|cell| cell.key.contract = "matmul".to_owned(), "a.kind: engines run workloads"),
            (|cell| cell.key.problem.push('0'), "key.problem: is depth=64,generated=128,prompt=00, the plan says"),
            (|cell| cell.plan.launches = 2, "plan.launches: is 2"),
            (|cell| cell.key.inputs.weights = None, "key.inputs.weights: must be a whole model file"),
            (|cell| cell.warm_up.slots = 7, "warm_up.slots: is 7, the plan says 8"),
            (|cell| cell.warm_up.drift_ppm = 1, "warm_up.drift_ppm: is 0"),
            (
                |cell| {
                    let plan = cell.plan.workload.as_mut().unwrap();
                    plan.prompt_tokens = 1;
                    cell.key.problem = plan.problem();
                },
                "plan.workload: times a prompt or generated tokens",
            ),
            (
                |cell| {
                    (cell.a.kind, cell.b.kind) = (ArmKind::Kernel, ArmKind::Kernel);
                    (cell.key.contract, cell.key.host_mode) = ("matmul".to_owned(), "pool".to_owned());
                },
                "plan.workload: stands in a cell of the contract matmul",
            ),
        ];
        for (change, needle) in cases {
            let found = problems(change);
            assert!(found.iter().any(|problem| problem.contains(needle)), "{needle}: {found:?}");
        }
        // A cell that ended before its A/B block may have had fewer slots.
        let cut = |cell: &mut CellBody| (cell.ab, cell.warm_up.slots) = (None, 3);
        assert_eq!(problems(cut), Vec::<String>::new());
    }
}
