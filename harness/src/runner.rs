//! What a trial drives: two arms, and a second copy of the incumbent, run in turn a slot at a time.

use crate::observe::Observation;

/// Which prepared competitor a slot runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Seat {
    /// The incumbent.
    A,
    /// The incumbent once more, prepared separately: what A is compared with in an A/A block.
    Twin,
    /// The challenger.
    B,
}

impl Seat {
    /// Short name, as it stands in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Twin => "the twin of A",
            Self::B => "B",
        }
    }
}

/// When a slot ran and for how long, by a monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotTime {
    /// Start, in nanoseconds since the runner was made.
    pub start_ns: u64,
    /// Elapsed time of all launches of the slot together, in nanoseconds.
    pub elapsed_ns: u64,
}

/// Runs slots. All of its times, those of [`Observation`] included, count from the moment it was made.
pub trait Runner {
    /// Makes the machine the same for every seat, outside the timed span: parks idle threads, lets idle process arms show
    /// that they are idle. Called before every slot.
    ///
    /// # Errors
    ///
    /// [`ArmError`] where an arm has ended.
    fn prepare(&mut self, seat: Seat) -> Result<(), ArmError>;

    /// Runs `launches` launches back to back and times them.
    ///
    /// [`Seat::B`] must run before [`Runner::seat_challenger`] too: the number of launches in a slot is the same for all
    /// seats and follows from the faster arm, so calibration asks A and B for a few slots. Up to then B need not rotate over
    /// all its copies. [`Seat::Twin`] need not run any more after it.
    ///
    /// # Errors
    ///
    /// [`ArmError`] where an arm could not launch.
    fn slot(&mut self, seat: Seat, launches: u32) -> Result<SlotTime, ArmError>;

    /// Cumulative counters of the machine. Read before and after every quad, never inside one.
    fn observe(&mut self) -> Observation;

    /// Called once, when the A/A blocks are over: the twin's memory may go, and B is laid out in full.
    ///
    /// # Errors
    ///
    /// [`ArmError`] where B could not be laid out.
    fn seat_challenger(&mut self) -> Result<(), ArmError>;

    /// Seats whose process used the CPU for more than 2 % of a slot of another seat, since this was last asked. Asked after
    /// every quad: a quad with such a slot does not count and is blamed on that arm.
    fn not_idle(&mut self) -> Vec<Seat> {
        Vec::new()
    }
}

/// An arm that could not run. Ends the cell, not the session.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// A launch failed.
    #[error("arm `{arm}` failed to launch: {why}")]
    Launch {
        /// Name of the arm.
        arm: String,
        /// What went wrong.
        why: String,
    },
    /// Buffers could not be laid out.
    #[error("arm `{arm}` could not be prepared: {why}")]
    Prepare {
        /// Name of the arm.
        arm: String,
        /// What went wrong.
        why: String,
    },
    /// A process arm did not keep to its protocol, or ended.
    #[error("process arm `{arm}`: {why}")]
    Process {
        /// Name of the arm.
        arm: String,
        /// What went wrong.
        why: String,
    },
    /// An engine ran something else than in its check.
    #[error("arm `{arm}`, {run}: {detail}")]
    Workload {
        /// Name of the arm.
        arm: String,
        /// Which of its runs.
        run: String,
        /// `tokens` or `output`.
        reason: &'static str,
        /// Both numbers.
        detail: String,
    },
    /// A slot was asked of a seat that nobody sits on.
    #[error("{seat} has no arm at this point of the trial")]
    Empty {
        /// Name of the seat.
        seat: &'static str,
    },
}
