//! One cell of a replicate: opened, checked, seated, measured, and made into a record.

use std::time::{Duration, Instant};

use memra_ledger::judge::judge_cell;
use memra_ledger::record::{CellBody, CellPlan, GateBody};

use super::{CLOCK, ReplicateLine, ReplicateSpec, derive_seed};
use crate::cell::CellSpec;
use crate::check::{Checked, Passed};
use crate::host_runner::SeatError;
use crate::open::{CheckError, OpenCell, OpenError, Side, Workshop};
use crate::progress::{Event, Progress};
use crate::trial::{Measured, NO_WARM_UP, TrialError, TrialPlan, WarmUpLimits, run_trial};

/// Time without load after which a card is warmed up again as if it had not been.
const STAYS_WARM: Duration = Duration::from_secs(20);

/// Why a cell was not measured to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum CellFault {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("arm {side} `{arm}`: {source}")]
    Check { side: &'static str, arm: String, source: CheckError },
    #[error("arm {side} `{arm}` did not pass its check: {why}")]
    Gate { side: &'static str, arm: String, why: String },
    #[error(transparent)]
    Seat(#[from] SeatError),
    #[error(transparent)]
    Trial(#[from] TrialError),
}

/// A replicate under way.
pub(super) struct Replicate<'a, 'w> {
    pub(super) spec: &'a ReplicateSpec,
    pub(super) workshop: &'a Workshop<'w>,
    pub(super) timer_ns: u64,
    gates: u32,
    /// When the last warm-up of the device ended that became steady, with the trial behind it.
    warmed: Option<Instant>,
    pub(super) progress: &'a dyn Progress,
}

/// What the seats held.
#[derive(Default)]
struct Rotated {
    copies: u32,
    bytes: u64,
}

impl<'a, 'w> Replicate<'a, 'w> {
    pub(super) fn new(
        spec: &'a ReplicateSpec,
        workshop: &'a Workshop<'w>,
        timer_ns: u64,
        progress: &'a dyn Progress,
    ) -> Self {
        Self { spec, workshop, timer_ns, gates: 0, warmed: None, progress }
    }

    /// Measures a cell and emits its gates and its record, but not why it failed.
    pub(super) fn run_cell(&mut self, cell: &CellSpec, emit: &mut dyn FnMut(ReplicateLine)) -> Result<(), CellFault> {
        let open = self.workshop.open(cell)?;
        let (gate_a, a) = self.check(&open, Side::A, emit)?;
        let (gate_b, b) = self.check(&open, Side::B, emit)?;
        let plan = TrialPlan {
            quads: self.spec.quads,
            aa_blocks: self.spec.aa_blocks,
            seed: derive_seed(self.spec.seed, self.spec.replicate, &cell.name),
            smallest_ppm: self.spec.smallest_ppm,
            timer_ns: self.timer_ns,
            warm_up: self.warm_up(),
        };
        let mut rotated = Rotated::default();
        let (measured, fault) = match passed(&open, a.passed, &a.gate, b.passed, &b.gate) {
            Ok((a, b)) => self.measure(&open, a, b, &plan, &mut rotated),
            Err(fault) => (not_measured(), Some(fault)),
        };
        if measured.warm_up.is_steady {
            self.warmed = Some(Instant::now());
        }
        let cell_plan = CellPlan {
            launches: measured.launches,
            copies: rotated.copies,
            rotated_bytes: rotated.bytes,
            seed: plan.seed,
            timer_ns: plan.timer_ns,
            moved_bytes: open.cost.moved_bytes(),
            flops: open.cost.flops,
            workload: None,
        };
        let Measured { warm_up, aa, ab, .. } = measured;
        let body = CellBody {
            cell: cell.name.clone(),
            replicate: self.spec.replicate,
            key: self.workshop.key(&open, CLOCK),
            a: a.arm,
            b: b.arm,
            result: judge_cell(&aa, ab.as_ref(), &cell_plan, &warm_up, plan.smallest_ppm),
            plan: cell_plan,
            warm_up,
            aa,
            ab,
            peaks: None,
        };
        let of_passed = |local, gate: &GateBody| gate.is_passed.then_some(local);
        let (gate_a, gate_b) = (of_passed(gate_a, &a.gate), of_passed(gate_b, &b.gate));
        emit(ReplicateLine::Cell { gate_a, gate_b, cell: Box::new(body) });
        fault.map_or(Ok(()), Err)
    }

    /// A card is warmed up once; a cell that follows soon enough only has its slope gate. The host is warmed up for every
    /// cell, because what else runs on it changes.
    fn warm_up(&self) -> WarmUpLimits {
        let is_warm = self.warmed.is_some_and(|at| at.elapsed() < STAYS_WARM);
        if self.workshop.is_card() && is_warm { self.spec.warm_up.on_warm_device() } else { self.spec.warm_up }
    }

    fn check(
        &mut self,
        open: &OpenCell,
        side: Side,
        emit: &mut dyn FnMut(ReplicateLine),
    ) -> Result<(u32, Checked), CellFault> {
        let arm = open.arm(side).name().to_owned();
        self.progress.event(&Event::Check { arm: arm.clone(), what: open.problem().to_string() });
        let checked = self.workshop.check(open, side, self.spec.replicate);
        let checked = checked.map_err(|source| CellFault::Check { side: side.name(), arm, source })?;
        Ok((self.emit_gate(checked.gate.clone(), emit), checked))
    }

    /// Emits a gate and gives its number in this replicate.
    pub(super) fn emit_gate(&mut self, gate: GateBody, emit: &mut dyn FnMut(ReplicateLine)) -> u32 {
        let local = self.gates;
        self.gates += 1;
        emit(ReplicateLine::Gate { local, gate: Box::new(gate) });
        local
    }

    fn measure(
        &self,
        open: &OpenCell,
        a: Passed,
        b: Passed,
        plan: &TrialPlan,
        rotated: &mut Rotated,
    ) -> (Measured, Option<CellFault>) {
        let mut runner = match self.workshop.seat(open, a, b) {
            Ok(runner) => runner,
            Err(error) => return (not_measured(), Some(error.into())),
        };
        rotated.copies = u32::try_from(runner.copies()).unwrap_or(u32::MAX);
        rotated.bytes = runner.rotated_bytes();
        let mut measured = run_trial(&mut runner, plan, self.progress);
        let fault = measured.fault.take().map(CellFault::from);
        (measured, fault)
    }
}

/// What there is of a cell whose trial did not begin.
pub(super) fn not_measured() -> Measured {
    Measured { launches: 0, warm_up: NO_WARM_UP, aa: Vec::new(), ab: None, fault: None }
}

/// Both proofs, or the first thing that did not hold.
fn passed(
    open: &OpenCell,
    a: Option<Passed>,
    gate_a: &GateBody,
    b: Option<Passed>,
    gate_b: &GateBody,
) -> Result<(Passed, Passed), CellFault> {
    let fault = |side: Side, gate: &GateBody| {
        let first = gate.failures.first();
        let why = first.map(|failure| format!("{}: {}: {}", failure.case, failure.reason, failure.detail));
        let arm = open.arm(side).name().to_owned();
        CellFault::Gate { side: side.name(), arm, why: why.unwrap_or_else(|| "no reason is given".to_owned()) }
    };
    let a = a.ok_or_else(|| fault(Side::A, gate_a))?;
    let b = b.ok_or_else(|| fault(Side::B, gate_b))?;
    Ok((a, b))
}
