//! The runner that the host drives: two arms and the incumbent's twin in their seats, each a kernel (on one shared pool of
//! threads, or on a card) or a child process.

mod chair;
pub mod rotation;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use memra_kernels::backend::Backend;
use memra_kernels::backend::host::Pool;

use crate::arm::ResolvedArm;
use crate::cell::CacheMode;
use crate::check::{JudgedCase, Passed};
use crate::observe::{CardWatch, Observation, Observer};
use crate::process::{CpuTime, ProcessOptions, TensorFolder, used_ns};
use crate::runner::{ArmError, Runner, Seat, SlotTime};
use chair::{Chair, Recipe};
use rotation::{Rotation, RotationError};

/// An idle process may use one part in this many of the time of another arm's slot.
pub const IDLE_SHARE: u64 = 50;

/// What two arms are seated with.
#[derive(Clone)]
pub struct HostSetup<'a> {
    /// The backend of kernel arms.
    pub backend: &'a dyn Backend,
    /// The case that is timed.
    pub case: Arc<JudgedCase>,
    /// State of the caches.
    pub cache: CacheMode,
    /// Threads of the pool and of process arms; at least one.
    pub threads: usize,
    /// Last-level cache in bytes, if the machine says.
    pub last_level_bytes: Option<u64>,
    /// Memory available in bytes, if the machine says.
    pub available_bytes: Option<u64>,
    /// The inputs as files, where there is a process arm.
    pub tensors: Option<Arc<TensorFolder>>,
    /// Limits of process arms.
    pub process: ProcessOptions,
    /// The card that kernels run on, where it is one.
    pub card: Option<CardWatch>,
}

/// Arms could not be seated.
#[derive(Debug, thiserror::Error)]
pub enum SeatError {
    /// The proof is of something else.
    #[error("arm `{arm}` cannot be timed: {why}")]
    NotPassed {
        /// The arm.
        arm: String,
        /// What the proof lacks.
        why: String,
    },
    /// The copies cannot be laid out.
    #[error(transparent)]
    Rotation(#[from] RotationError),
    /// The pool could not be started.
    #[error("a pool of {threads} threads: {source}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// An arm could not be laid out.
    #[error(transparent)]
    Arm(#[from] ArmError),
}

/// Two checked arms and the incumbent's twin, ready to run slots.
pub struct HostRunner<'a> {
    origin: Instant,
    setup: HostSetup<'a>,
    pool: Pool,
    observer: Observer,
    rotation: Rotation,
    a: Option<Chair>,
    twin: Option<Chair>,
    b: Option<Chair>,
    challenger: Recipe,
    not_idle: Vec<Seat>,
}

impl std::fmt::Debug for HostRunner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostRunner").field("pool", &self.pool).field("rotation", &self.rotation).finish_non_exhaustive()
    }
}

impl<'a> HostRunner<'a> {
    /// Seats the incumbent, its twin and the challenger, all on one case. Up to [`Runner::seat_challenger`] the challenger
    /// has one copy.
    ///
    /// Every arm must have passed its check on that very case; what is laid out for the trial must give the outputs that
    /// the check saw.
    ///
    /// # Errors
    /// [`SeatError`] when a proof is of something else, or the copies do not fit, or an arm cannot be laid out.
    pub fn new(setup: HostSetup<'a>, a: (ResolvedArm, Passed), b: (ResolvedArm, Passed)) -> Result<Self, SeatError> {
        let origin = Instant::now();
        let incumbent = Recipe::new(a.0, &a.1, &setup.case)?;
        let challenger = Recipe::new(b.0, &b.1, &setup.case)?;
        let copy_bytes = [incumbent.copy_bytes, challenger.copy_bytes];
        let rotation = rotation::plan(setup.cache, copy_bytes, setup.last_level_bytes, setup.available_bytes)?;
        let threads = setup.threads;
        let pool = Pool::new(threads).map_err(|source| SeatError::Threads { threads, source })?;
        let a = incumbent.seat(&setup, &pool, rotation.copies)?;
        let twin = incumbent.seat(&setup, &pool, rotation.copies)?;
        let b = challenger.seat(&setup, &pool, 1)?;
        let mut runner = Self {
            origin,
            setup,
            pool,
            observer: Observer::new(origin),
            rotation,
            a: Some(a),
            twin: Some(twin),
            b: Some(b),
            challenger,
            not_idle: Vec::new(),
        };
        runner.watch_children();
        Ok(runner)
    }

    /// Copies of what rotates; 1 in mode `hot`.
    pub fn copies(&self) -> usize {
        self.rotation.copies
    }

    /// Bytes that rotate, all copies together.
    pub fn rotated_bytes(&self) -> u64 {
        self.rotation.rotated_bytes
    }

    /// Threads of the pool.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn watch_children(&mut self) {
        self.observer = Observer::new(self.origin).with_card(self.setup.card.clone());
        let processes: Vec<u32> = self.chairs().filter_map(|(_, chair)| chair.process()).collect();
        for process in processes {
            self.observer.watch(process);
        }
    }

    fn chairs(&self) -> impl Iterator<Item = (Seat, &Chair)> {
        let seats = [(Seat::A, &self.a), (Seat::Twin, &self.twin), (Seat::B, &self.b)];
        seats.into_iter().filter_map(|(seat, chair)| chair.as_ref().map(|chair| (seat, chair)))
    }

    fn cpu_times(&self) -> Vec<(Seat, CpuTime)> {
        self.chairs().filter_map(|(seat, chair)| chair.cpu_time().map(|time| (seat, time))).collect()
    }

    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Runner for HostRunner<'_> {
    fn prepare(&mut self, _: Seat) -> Result<(), ArmError> {
        for chair in [&mut self.a, &mut self.twin, &mut self.b].into_iter().flatten() {
            chair.idle()?;
        }
        self.pool.park();
        Ok(())
    }

    fn slot(&mut self, seat: Seat, launches: u32) -> Result<SlotTime, ArmError> {
        let before = self.cpu_times();
        let start_ns = self.elapsed_ns();
        let chair = match seat {
            Seat::A => self.a.as_mut(),
            Seat::Twin => self.twin.as_mut(),
            Seat::B => self.b.as_mut(),
        };
        let elapsed_ns = chair.ok_or(ArmError::Empty { seat: seat.name() })?.run(&self.pool, launches)?;
        let slot_ns = self.elapsed_ns().saturating_sub(start_ns);
        for ((other, before), (_, after)) in before.into_iter().zip(self.cpu_times()) {
            let is_busy = used_ns(before, after).is_some_and(|used_ns| is_busy(used_ns, slot_ns));
            if other != seat && is_busy && !self.not_idle.contains(&other) {
                self.not_idle.push(other);
            }
        }
        Ok(SlotTime { start_ns, elapsed_ns })
    }

    fn observe(&mut self) -> Observation {
        self.observer.observe()
    }

    fn seat_challenger(&mut self) -> Result<(), ArmError> {
        self.twin = None;
        // What the challenger had for calibration goes before its copies are made, so that there is room for them.
        self.b = None;
        self.b = Some(self.challenger.seat(&self.setup, &self.pool, self.rotation.copies)?);
        self.watch_children();
        self.not_idle.clear();
        Ok(())
    }

    fn not_idle(&mut self) -> Vec<Seat> {
        std::mem::take(&mut self.not_idle)
    }
}

/// Whether CPU time used by an idle arm is too much for a slot.
fn is_busy(used_ns: u64, slot_ns: u64) -> bool {
    used_ns.saturating_mul(IDLE_SHARE) > slot_ns
}
