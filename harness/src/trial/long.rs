//! One cell of slots that last a second or more: a declared warm-up in the place of the slope gate.

use memra_ledger::judge::block_orders;
use memra_ledger::record::{Block, WarmUp};

use super::{Measured, NO_WARM_UP, TrialError, run_block};
use crate::progress::{Event, Progress};
use crate::runner::{Runner, Seat};

/// Slots of each arm that are run and not recorded, before the A/A blocks and again before the A/B block.
pub const LONG_WARM_UP_SLOTS: u32 = 2;

/// What is declared before the first slot of such a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongPlan {
    /// Quads of every block.
    pub quads: u32,
    /// A/A blocks.
    pub aa_blocks: u32,
    /// Seed of the quad orders.
    pub seed: u64,
    /// Slots of each arm that are run and not recorded, before the A/A blocks and again before the A/B block.
    pub warm_up_slots: u32,
}

/// Measures one cell whose slots are one launch each, however long it lasts.
///
/// A and its twin run the declared slots, the A/A blocks run, B takes its seat, A and B run the declared slots, the A/B
/// block runs. There is no calibration, and no slope that could end the trial: twenty slots of a second would take longer
/// than what they guard. The warm-up record holds the slots, and a drift of 0 of 0 allowed. An arm that fails ends the
/// trial: finished blocks are kept, and the fault stands beside them. Orders follow from the seed as in
/// [`run_trial`](super::run_trial).
pub fn run_long_trial(runner: &mut dyn Runner, plan: &LongPlan, progress: &dyn Progress) -> Measured {
    let mut measured = Measured { launches: 1, warm_up: NO_WARM_UP, aa: Vec::new(), ab: None, fault: None };
    measured.fault = run(&mut measured, runner, plan, progress).err();
    measured
}

fn run(
    measured: &mut Measured,
    runner: &mut dyn Runner,
    plan: &LongPlan,
    progress: &dyn Progress,
) -> Result<(), TrialError> {
    plan.warm_up(&mut measured.warm_up, runner, Seat::Twin, progress)?;
    for index in 0..plan.aa_blocks {
        let name = format!("A/A {}", u64::from(index) + 1);
        measured.aa.push(plan.block(runner, index.saturating_add(1), &name, Seat::Twin, progress)?);
    }
    runner.seat_challenger()?;
    plan.warm_up(&mut measured.warm_up, runner, Seat::B, progress)?;
    measured.ab = Some(plan.block(runner, 0, "A/B", Seat::B, progress)?);
    Ok(())
}

impl LongPlan {
    /// Runs the declared slots of A and another seat in turn and adds them to the record.
    fn warm_up(
        &self,
        record: &mut WarmUp,
        runner: &mut dyn Runner,
        other: Seat,
        progress: &dyn Progress,
    ) -> Result<(), TrialError> {
        for _ in 0..self.warm_up_slots {
            for seat in [Seat::A, other] {
                runner.prepare(seat)?;
                let slot = runner.slot(seat, 1)?;
                record.slots = record.slots.saturating_add(1);
                record.elapsed_ns = record.elapsed_ns.saturating_add(slot.elapsed_ns);
                let elapsed = std::time::Duration::from_nanos(record.elapsed_ns);
                progress.event(&Event::WarmUp { slots: record.slots, elapsed, drift_ppm: None });
            }
        }
        record.is_steady = true;
        Ok(())
    }

    fn block(
        &self,
        runner: &mut dyn Runner,
        number: u32,
        name: &str,
        other: Seat,
        progress: &dyn Progress,
    ) -> Result<Block, TrialError> {
        let orders = block_orders(self.seed, number, self.quads as usize)?;
        progress.event(&Event::Block { block: name.to_owned(), quads: orders.len() });
        let mut after_quad = |done| progress.event(&Event::Quad { done });
        Ok(run_block(runner, &orders, Seat::A, other, 1, &mut after_quad)?)
    }

    /// Slots of a cell: of A, its twin included, and of B.
    pub fn slots(&self) -> [u64; 2] {
        let (quads, warm) = (u64::from(self.quads), u64::from(self.warm_up_slots));
        let a = quads.saturating_mul(4 * u64::from(self.aa_blocks) + 2).saturating_add(3 * warm);
        [a, 2 * quads + warm]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeRunner, Script};
    use crate::progress::Silent;
    use memra_ledger::judge::{judge_cell, order_text};
    use memra_ledger::record::{CellPlan, CellResult, Verdict};

    const PLAN: LongPlan = LongPlan { quads: 6, aa_blocks: 1, seed: 3, warm_up_slots: 2 };

    fn judged(measured: &Measured) -> CellResult {
        let plan = CellPlan {
            launches: measured.launches,
            copies: 1,
            rotated_bytes: 0,
            seed: PLAN.seed,
            timer_ns: 30,
            moved_bytes: 0,
            flops: 0,
            workload: None,
        };
        judge_cell(&measured.aa, measured.ab.as_ref(), &plan, &measured.warm_up, 5_000)
    }

    fn second(script: Script) -> Script {
        Script { launch_ns: 1e9, noise_sd: 0.004, ..script }
    }

    #[test]
    fn slots_of_a_second_give_verdicts_in_minutes() {
        for (seed, b, verdict) in [(1, 0.0, None), (2, 0.05, Some(Verdict::Slower)), (3, -0.05, Some(Verdict::Faster))]
        {
            let measured =
                run_long_trial(&mut FakeRunner::new(second(Script { seed, b, ..Script::default() })), &PLAN, &Silent);
            assert!(measured.fault.is_none());
            assert_eq!((measured.launches, measured.warm_up.slots, measured.warm_up.is_steady), (1, 8, true));
            assert_eq!((measured.warm_up.drift_ppm, measured.warm_up.allowed_drift_ppm), (0, 0));
            assert_eq!(measured.ab.as_ref().unwrap().order, order_text(&block_orders(3, 0, 6).unwrap()));
            let result = judged(&measured);
            assert!(result.is_provisional && result.n == 6 && result.reasons.is_empty(), "{result:?}");
            match verdict {
                Some(verdict) => assert_eq!(result.verdict, verdict, "{result:?}"),
                None => assert!(!matches!(result.verdict, Verdict::Faster | Verdict::Slower), "{result:?}"),
            }
        }
        let [a, b] = PLAN.slots();
        assert_eq!(a + b, 8 + 48);
    }

    #[test]
    fn an_arm_that_fails_leaves_what_was_finished() {
        let script = second(Script { fails_after: Some(4 + 24 + 4 + 5), ..Script::default() });
        let measured = run_long_trial(&mut FakeRunner::new(script), &PLAN, &Silent);
        assert_eq!((measured.aa.len(), measured.ab.is_none()), (1, true));
        assert!(measured.fault.is_some());
        let result = judged(&measured);
        assert_eq!(
            (result.verdict, result.reasons.as_slice()),
            (Verdict::Void, ["there is no A/B block".to_owned()].as_slice())
        );
        let early = second(Script { fails_after: Some(1), ..Script::default() });
        let measured = run_long_trial(&mut FakeRunner::new(early), &PLAN, &Silent);
        assert_eq!((measured.warm_up.slots, measured.warm_up.is_steady), (1, false));
    }
}
