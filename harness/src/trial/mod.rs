//! One cell measured in one session: launches in a slot, warm-up, A/A blocks, and the A/B block.

mod block;
mod calibrate;
mod long;
pub mod timer;
mod warm_up;

pub use block::run_block;
pub use calibrate::{MAX_LAUNCHES, MAX_SLOT_NS, MIN_SLOT_NS, RESOLUTIONS_PER_SLOT};
pub use long::{LONG_WARM_UP_SLOTS, LongPlan, run_long_trial};
pub use warm_up::{ASSUMED_BAND_PPM, MIN_SLOTS, WarmUpLimits};

use std::time::Duration;

use memra_ledger::judge::block_orders;
use memra_ledger::record::{Block, WarmUp};
use memra_ledger::stats::StatsError;

use crate::progress::{Event, Progress};
use crate::runner::{ArmError, Runner, Seat};
use calibrate::{Calibration, calibrate};
use warm_up::{Warming, together};

/// What is declared before the first slot of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialPlan {
    /// Quads of every block.
    pub quads: u32,
    /// A/A blocks.
    pub aa_blocks: u32,
    /// Seed of the quad orders.
    pub seed: u64,
    /// Smallest difference worth shipping, in parts per million.
    pub smallest_ppm: i64,
    /// Resolution of the clock that slots are timed with, in nanoseconds.
    pub timer_ns: u64,
    /// Warm-up.
    pub warm_up: WarmUpLimits,
}

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Launches in a slot; 0 where that was not found.
    pub launches: u32,
    /// Warm-up, that of the challenger included.
    pub warm_up: WarmUp,
    /// Incumbent against its twin, as far as it came.
    pub aa: Vec<Block>,
    /// Incumbent against challenger; nothing where the trial ended before.
    pub ab: Option<Block>,
    /// What ended the trial, unless it was a warm-up that did not become steady.
    pub fault: Option<TrialError>,
}

/// The record of a warm-up that never was.
pub const NO_WARM_UP: WarmUp = WarmUp { slots: 0, elapsed_ns: 0, drift_ppm: 0, allowed_drift_ppm: 0, is_steady: false };

/// A cell that could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// An arm could not run.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// A plan that has no orders.
    #[error("orders of the quads: {0}")]
    Orders(#[from] StatsError),
    /// No number of launches fills a slot.
    #[error("{launches} launches of the faster arm last {slot_ns} ns, and a slot must last {needed_ns} ns")]
    SlotTooShort {
        /// Launches tried last.
        launches: u32,
        /// How long they lasted.
        slot_ns: u64,
        /// How long a slot must last.
        needed_ns: u64,
    },
    /// A slot would last too long.
    #[error(
        "a slot of {launches} launches, which the faster arm needs, would last {slot_ms} ms with {arm}; at most {} ms are \
         allowed",
        MAX_SLOT_NS / 1_000_000
    )]
    SlotTooLong {
        /// The slower arm.
        arm: &'static str,
        /// Launches.
        launches: u32,
        /// Expected time of the slot in milliseconds.
        slot_ms: u64,
    },
}

/// Measures one cell.
///
/// A and B are calibrated, A and its twin are warmed up and calibrated again, the gate waits until they are steady, the
/// A/A blocks run; then B takes its seat, is warmed up beside A, and the A/B block runs. A warm-up that does not become
/// steady ends the trial, and so does an arm that fails: finished blocks are kept, and the fault stands beside them. Orders
/// follow from the seed of the plan: block 0 is A/B, block j + 1 is A/A block j.
pub fn run_trial(runner: &mut dyn Runner, plan: &TrialPlan, progress: &dyn Progress) -> Measured {
    let mut measured = Measured { launches: 0, warm_up: NO_WARM_UP, aa: Vec::new(), ab: None, fault: None };
    measured.fault = measured.run(runner, plan, progress).err();
    measured
}

impl Measured {
    fn run(&mut self, runner: &mut dyn Runner, plan: &TrialPlan, progress: &dyn Progress) -> Result<(), TrialError> {
        let cold = calibrate(runner, plan.timer_ns, 1)?;
        let mut warming = Warming::new([Seat::A, Seat::Twin], plan.warm_up, plan.smallest_ppm, progress);
        warming.settle(runner, cold.launches)?;
        // Warm arms may be faster than cold ones.
        let calibration = calibrate(runner, plan.timer_ns, cold.launches)?;
        self.launches = calibration.launches;
        let expected_ns = plan.aa_ns(&calibration).saturating_add(plan.ab_ns(&calibration));
        progress.event(&Event::Calibrated {
            launches: self.launches,
            slot_a_ns: calibration.slot_a_ns,
            slot_b_ns: calibration.slot_b_ns,
            expected: Duration::from_nanos(expected_ns),
        });
        self.warm_up = warming.wait_until_steady(runner, self.launches, expected_ns)?;
        if !self.warm_up.is_steady {
            return Ok(());
        }
        for index in 0..plan.aa_blocks {
            let name = format!("A/A {}", u64::from(index) + 1);
            let block = plan.run(runner, index.saturating_add(1), &name, Seat::Twin, self.launches, progress)?;
            self.aa.push(block);
        }
        runner.seat_challenger()?;
        let mut warming = Warming::new([Seat::A, Seat::B], plan.warm_up.shortened(), plan.smallest_ppm, progress);
        warming.settle(runner, self.launches)?;
        let second = warming.wait_until_steady(runner, self.launches, plan.ab_ns(&calibration))?;
        self.warm_up = together(&self.warm_up, &second);
        if self.warm_up.is_steady {
            self.ab = Some(plan.run(runner, 0, "A/B", Seat::B, self.launches, progress)?);
        }
        Ok(())
    }
}

impl TrialPlan {
    fn run(
        &self,
        runner: &mut dyn Runner,
        number: u32,
        name: &str,
        other: Seat,
        launches: u32,
        progress: &dyn Progress,
    ) -> Result<Block, TrialError> {
        let orders = block_orders(self.seed, number, self.quads as usize)?;
        progress.event(&Event::Block { block: name.to_owned(), quads: orders.len() });
        let mut after_quad = |done| progress.event(&Event::Quad { done });
        Ok(run_block(runner, &orders, Seat::A, other, launches, &mut after_quad)?)
    }

    /// Expected time of all A/A blocks, without what lies between slots.
    fn aa_ns(&self, calibration: &Calibration) -> u64 {
        let slots = 4 * u64::from(self.quads) * u64::from(self.aa_blocks);
        slots.saturating_mul(calibration.slot_a_ns)
    }

    /// Expected time of the A/B block, without what lies between slots.
    fn ab_ns(&self, calibration: &Calibration) -> u64 {
        let pair_ns = calibration.slot_a_ns.saturating_add(calibration.slot_b_ns);
        (2 * u64::from(self.quads)).saturating_mul(pair_ns)
    }
}
