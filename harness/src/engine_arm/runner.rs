//! The runner of workloads: two engines and the incumbent's twin in their seats, each a child process.

use std::time::Instant;

use super::check::{EngineTask, Golden, PassedEngine};
use super::child::EngineChild;
use crate::arm::ProcessArm;
use crate::host_runner::IDLE_SHARE;
use crate::observe::{Observation, Observer};
use crate::process::{CpuTime, ProcessError, used_ns};
use crate::runner::{ArmError, Runner, Seat, SlotTime};

/// CPU time in nanoseconds that an idle engine may use in another's slot, however short that is: its thread goes back to
/// waiting after it has answered.
pub const IDLE_FLOOR_NS: u64 = 5_000_000;

/// An engine that passed its check, ready to be started.
#[derive(Debug, Clone)]
struct Entrant {
    arm: ProcessArm,
    golden: Golden,
}

/// An engine in its seat.
#[derive(Debug)]
struct Chair {
    entrant: Entrant,
    child: EngineChild,
}

/// Two checked engines and the incumbent's twin, ready to run slots.
#[derive(Debug)]
pub struct EngineRunner<'a> {
    origin: Instant,
    task: EngineTask<'a>,
    /// Nothing where the machine is not observed.
    observer: Option<Observer>,
    challenger: Entrant,
    a: Option<Chair>,
    twin: Option<Chair>,
    b: Option<Chair>,
    not_idle: Vec<Seat>,
    slots: u64,
}

impl<'a> EngineRunner<'a> {
    /// Seats the incumbent and its twin on a workload that both arms passed their check on. The challenger is started by
    /// [`Runner::seat_challenger`].
    ///
    /// # Errors
    /// [`ArmError`] when a proof is of another arm or workload, or a child does not start or prepares something else.
    pub fn new(
        task: EngineTask<'a>,
        a: (ProcessArm, PassedEngine),
        b: (ProcessArm, PassedEngine),
    ) -> Result<Self, ArmError> {
        let origin = Instant::now();
        let (incumbent, challenger) = (Entrant::new(a.0, &a.1)?, Entrant::new(b.0, &b.1)?);
        let twin = Some(incumbent.seat(&task)?);
        let a = Some(incumbent.seat(&task)?);
        let observer = Some(Observer::new(origin));
        let mut runner = Self { origin, task, observer, challenger, a, twin, b: None, not_idle: Vec::new(), slots: 0 };
        runner.watch_children();
        Ok(runner)
    }

    /// Leaves the machine unobserved, so that no quad becomes void for what others do.
    #[cfg(test)]
    pub(super) fn unobserved(mut self) -> Self {
        self.observer = None;
        self
    }

    /// The largest memory of A and of B so far, in bytes; nothing where an arm does not know it or is not seated.
    ///
    /// # Errors
    /// [`ArmError`] where a child does not answer.
    pub fn peaks(&mut self) -> Result<[Option<u64>; 2], ArmError> {
        let peak = |chair: &mut Option<Chair>| match chair {
            None => Ok(None),
            Some(chair) => chair.child.peak().map_err(|error| failed(&chair.entrant.arm, &error)),
        };
        Ok([peak(&mut self.a)?, peak(&mut self.b)?])
    }

    fn watch_children(&mut self) {
        if self.observer.is_none() {
            return;
        }
        let mut observer = Observer::new(self.origin);
        self.chairs().for_each(|(_, chair)| observer.watch_tree(chair.child.process()));
        self.observer = Some(observer);
    }

    fn chairs(&self) -> impl Iterator<Item = (Seat, &Chair)> {
        let seats = [(Seat::A, &self.a), (Seat::Twin, &self.twin), (Seat::B, &self.b)];
        seats.into_iter().filter_map(|(seat, chair)| chair.as_ref().map(|chair| (seat, chair)))
    }

    fn cpu_times(&self) -> Vec<(Seat, CpuTime)> {
        self.chairs().map(|(seat, chair)| (seat, chair.child.cpu_time())).collect()
    }

    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Entrant {
    fn new(arm: ProcessArm, passed: &PassedEngine) -> Result<Self, ArmError> {
        if passed.arm() != arm.name {
            let why = format!("the check was of `{}`", passed.arm());
            return Err(ArmError::Prepare { arm: arm.name, why });
        }
        Ok(Self { arm, golden: passed.golden().clone() })
    }

    fn seat(&self, task: &EngineTask<'_>) -> Result<Chair, ArmError> {
        if self.golden.workload() != task.workload {
            let why = format!("the check was on {}, not on {}", self.golden.workload(), task.workload);
            return Err(ArmError::Prepare { arm: self.arm.name.clone(), why });
        }
        let start = || -> Result<_, ProcessError> {
            let mut child = EngineChild::start(&self.arm, task.options)?;
            let prepared = child.prepare(task)?;
            child.idle()?;
            Ok((child, prepared))
        };
        let (child, prepared) = start().map_err(|error| failed(&self.arm, &error))?;
        if let Some(difference) = self.golden.prepared_difference(prepared) {
            let (arm, reason) = (self.arm.name.clone(), difference.reason);
            return Err(ArmError::Workload { arm, run: "preparation".to_owned(), reason, detail: difference.detail });
        }
        Ok(Chair { entrant: self.clone(), child })
    }
}

fn failed(arm: &ProcessArm, error: &ProcessError) -> ArmError {
    ArmError::Process { arm: arm.name.clone(), why: error.to_string() }
}

impl Runner for EngineRunner<'_> {
    fn prepare(&mut self, _: Seat) -> Result<(), ArmError> {
        for chair in [&mut self.a, &mut self.twin, &mut self.b].into_iter().flatten() {
            chair.child.idle().map_err(|error| failed(&chair.entrant.arm, &error))?;
        }
        Ok(())
    }

    /// Runs the workload `launches` times; a slot of a workload is one run.
    fn slot(&mut self, seat: Seat, launches: u32) -> Result<SlotTime, ArmError> {
        self.slots += 1;
        let number = self.slots;
        let before = self.cpu_times();
        let start_ns = self.elapsed_ns();
        let chair = match seat {
            Seat::A => self.a.as_mut(),
            Seat::Twin => self.twin.as_mut(),
            Seat::B => self.b.as_mut(),
        };
        let Some(chair) = chair else { return Err(ArmError::Empty { seat: seat.name() }) };
        let mut elapsed_ns = 0_u64;
        for _ in 0..launches {
            let sample = chair.child.sample().map_err(|error| failed(&chair.entrant.arm, &error))?;
            if let Some(difference) = chair.entrant.golden.difference(&sample) {
                let (arm, reason) = (chair.entrant.arm.name.clone(), difference.reason);
                let run = format!("slot {number} of the trial, {}", seat.name());
                return Err(ArmError::Workload { arm, run, reason, detail: difference.detail });
            }
            elapsed_ns = elapsed_ns.saturating_add(sample.elapsed_ns);
        }
        let slot_ns = self.elapsed_ns().saturating_sub(start_ns);
        for ((other, before), (_, after)) in before.into_iter().zip(self.cpu_times()) {
            let is_busy = used_ns(before, after).is_some_and(|used_ns| is_busy(used_ns, slot_ns));
            if other != seat && is_busy && !self.not_idle.contains(&other) {
                self.not_idle.push(other);
            }
        }
        // The workload ends with the answer; what came before it, such as loading, belongs to the gap.
        Ok(SlotTime { start_ns: self.elapsed_ns().saturating_sub(elapsed_ns), elapsed_ns })
    }

    fn observe(&mut self) -> Observation {
        let at_ns = self.elapsed_ns();
        self.observer.as_mut().map_or(Observation { at_ns, cpus: 1, ..Observation::default() }, Observer::observe)
    }

    fn seat_challenger(&mut self) -> Result<(), ArmError> {
        self.twin = None;
        self.b = None;
        self.b = Some(self.challenger.seat(&self.task)?);
        self.watch_children();
        self.not_idle.clear();
        Ok(())
    }

    fn not_idle(&mut self) -> Vec<Seat> {
        std::mem::take(&mut self.not_idle)
    }
}

/// Whether CPU time used by an idle engine is too much for a slot.
fn is_busy(used_ns: u64, slot_ns: u64) -> bool {
    used_ns > IDLE_FLOOR_NS && used_ns.saturating_mul(IDLE_SHARE) > slot_ns
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn idle_time_has_a_floor_and_a_share() {
        assert!(!is_busy(IDLE_FLOOR_NS, 1) && is_busy(IDLE_FLOOR_NS + 1, 1));
        assert!(!is_busy(20_000_000, 1_000_000_000) && is_busy(20_000_001, 1_000_000_000));
    }
}
