//! What a session says while it runs. The command line decides what of it is shown, and where.

use std::time::Duration;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A cell begins.
    Cell {
        /// Name of the cell.
        cell: String,
        /// Its place in the order of this replicate, from 1.
        number: usize,
        /// Cells in the suite.
        of: usize,
    },
    /// An arm is being checked.
    Check {
        /// Name of the arm.
        arm: String,
        /// What is being judged.
        what: String,
    },
    /// The number of launches in a slot was chosen.
    Calibrated {
        /// Launches in a slot.
        launches: u32,
        /// Slot of A, in nanoseconds.
        slot_a_ns: u64,
        /// Slot of B, in nanoseconds.
        slot_b_ns: u64,
        /// Expected time of the blocks of this cell.
        expected: Duration,
    },
    /// Warm-up goes on.
    WarmUp {
        /// Slots run so far.
        slots: u32,
        /// Time spent so far.
        elapsed: Duration,
        /// Drift over the expected length of the cell, in parts per million; nothing before there are enough slots.
        drift_ppm: Option<i64>,
    },
    /// A block begins.
    Block {
        /// `A/A 1`, `A/B`.
        block: String,
        /// Quads it will run.
        quads: usize,
    },
    /// A quad of the current block is over.
    Quad {
        /// Quads run so far.
        done: usize,
    },
}

/// Receives events. Called outside of timed spans only.
pub trait Progress {
    /// Takes notice of an event.
    fn event(&self, event: &Event);
}

/// Takes no notice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn event(&self, _: &Event) {}
}
