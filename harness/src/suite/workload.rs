//! One workload cell of a replicate: opened, checked, seated, measured, and made into a record.

use std::time::Duration;

use memra_ledger::judge::judge_cell;
use memra_ledger::record::{CellBody, CellPlan, GateBody, PeakMemory};

use super::cell::{CellFault, Replicate, not_measured};
use super::{CLOCK, ReplicateLine, derive_seed};
use crate::cell::CellSpec;
use crate::engine_arm::{EngineChecked, EngineRunner, PassedEngine, check_engine, failed_gate};
use crate::open::{OpenWorkload, Side};
use crate::progress::Event;
use crate::runner::ArmError;
use crate::trial::{LONG_WARM_UP_SLOTS, LongPlan, Measured, TrialError, run_long_trial};

/// Why a workload is not measured, or its arm fails in the trial.
fn gate_fault(open: &OpenWorkload, side: Side, gate: &GateBody) -> CellFault {
    let why = gate.failures.first().map(|failure| format!("{}: {}: {}", failure.case, failure.reason, failure.detail));
    let arm = open.arm(side).name.clone();
    CellFault::Gate { side: side.name(), arm, why: why.unwrap_or_else(|| "no reason is given".to_owned()) }
}

impl Replicate<'_, '_> {
    /// Measures a workload and emits its gates and its record, but not why it failed.
    ///
    /// An arm that passed its check and then ran something else has a second gate, which did not pass.
    pub(super) fn run_workload(
        &mut self,
        cell: &CellSpec,
        emit: &mut dyn FnMut(ReplicateLine),
    ) -> Result<(), CellFault> {
        let open = self.workshop.open_workload(cell)?;
        let (gate_a, a) = self.check_engine(&open, Side::A, emit);
        let (gate_b, b) = self.check_engine(&open, Side::B, emit);
        let plan = LongPlan {
            quads: self.spec.quads,
            aa_blocks: self.spec.aa_blocks,
            seed: derive_seed(self.spec.seed, self.spec.replicate, &cell.name),
            warm_up_slots: LONG_WARM_UP_SLOTS,
        };
        self.announce(&plan, &a, &b);
        let mut peaks = None;
        let (measured, fault) = match (&a.passed, &b.passed) {
            (Some(passed_a), Some(passed_b)) => self.measure_engines(&open, passed_a, passed_b, &plan, &mut peaks),
            (None, _) => (not_measured(), Some(gate_fault(&open, Side::A, &a.gate))),
            (_, None) => (not_measured(), Some(gate_fault(&open, Side::B, &b.gate))),
        };
        if let Some(CellFault::Trial(TrialError::Arm(error))) = &fault {
            self.withdraw(&open, error, [&a.gate, &b.gate], emit);
        }
        let cell_plan = CellPlan {
            launches: measured.launches,
            copies: 1,
            rotated_bytes: 0,
            seed: plan.seed,
            timer_ns: self.timer_ns,
            moved_bytes: 0,
            flops: 0,
            workload: Some(open.workload.plan(plan.warm_up_slots)),
        };
        let Measured { warm_up, aa, ab, .. } = measured;
        let body = CellBody {
            cell: cell.name.clone(),
            replicate: self.spec.replicate,
            key: open.key(&self.workshop.device_key(), CLOCK),
            a: a.arm,
            b: b.arm,
            result: judge_cell(&aa, ab.as_ref(), &cell_plan, &warm_up, self.spec.smallest_ppm),
            plan: cell_plan,
            warm_up,
            aa,
            ab,
            peaks,
        };
        let of_passed = |local, gate: &GateBody| gate.is_passed.then_some(local);
        let (gate_a, gate_b) = (of_passed(gate_a, &a.gate), of_passed(gate_b, &b.gate));
        emit(ReplicateLine::Cell { gate_a, gate_b, cell: Box::new(body) });
        fault.map_or(Ok(()), Err)
    }

    fn check_engine(
        &mut self,
        open: &OpenWorkload,
        side: Side,
        emit: &mut dyn FnMut(ReplicateLine),
    ) -> (u32, EngineChecked) {
        let arm = open.arm(side);
        let what = format!("{} of {}", open.workload, open.source.file);
        self.progress.event(&Event::Check { arm: arm.name.clone(), what });
        let checked = check_engine(arm, &open.task(), self.spec.replicate);
        (self.emit_gate(checked.gate.clone(), emit), checked)
    }

    /// Says how long the blocks will take, by the runs of the checks.
    fn announce(&self, plan: &LongPlan, a: &EngineChecked, b: &EngineChecked) {
        let (Some(&slot_a_ns), Some(&slot_b_ns)) = (a.elapsed_ns.iter().min(), b.elapsed_ns.iter().min()) else {
            return;
        };
        let [slots_a, slots_b] = plan.slots();
        let expected_ns = slots_a.saturating_mul(slot_a_ns).saturating_add(slots_b.saturating_mul(slot_b_ns));
        let expected = Duration::from_nanos(expected_ns);
        self.progress.event(&Event::Calibrated { launches: 1, slot_a_ns, slot_b_ns, expected });
    }

    fn measure_engines(
        &self,
        open: &OpenWorkload,
        a: &PassedEngine,
        b: &PassedEngine,
        plan: &LongPlan,
        peaks: &mut Option<PeakMemory>,
    ) -> (Measured, Option<CellFault>) {
        let arms = ((open.a.clone(), a.clone()), (open.b.clone(), b.clone()));
        let mut runner = match EngineRunner::new(open.task(), arms.0, arms.1) {
            Ok(runner) => runner,
            Err(error) => return (not_measured(), Some(TrialError::from(error).into())),
        };
        let mut measured = run_long_trial(&mut runner, plan, self.progress);
        let mut fault = measured.fault.take();
        if fault.is_none() {
            match runner.peaks() {
                Ok([a_bytes, b_bytes]) => *peaks = Some(PeakMemory { a_bytes, b_bytes }),
                Err(error) => fault = Some(error.into()),
            }
        }
        (measured, fault.map(CellFault::from))
    }

    /// Emits the failed gate of an arm that did not hold to its check.
    fn withdraw(
        &mut self,
        open: &OpenWorkload,
        error: &ArmError,
        gates: [&GateBody; 2],
        emit: &mut dyn FnMut(ReplicateLine),
    ) {
        let ArmError::Workload { arm, reason, .. } = error else { return };
        let [gate_a, gate_b] = gates;
        let gate = if *arm == open.a.name { gate_a } else { gate_b };
        self.emit_gate(failed_gate(&open.task(), gate, reason, &error.to_string()), emit);
    }
}
