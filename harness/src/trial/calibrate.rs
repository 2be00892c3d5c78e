//! The number of launches in a slot.

use super::TrialError;
use crate::runner::{ArmError, Runner, Seat};

/// Shortest slot, in nanoseconds.
pub const MIN_SLOT_NS: u64 = 1_000_000;

/// Timer resolutions in the shortest slot.
pub const RESOLUTIONS_PER_SLOT: u64 = 200;

/// Longest slot of either arm, in nanoseconds. Beyond it the arms are too uneven, or the problem too large, for a trial.
pub const MAX_SLOT_NS: u64 = 10_000_000_000;

/// Most launches in a slot. A launch that needs more lasts less than 60 ps: it does nothing.
pub const MAX_LAUNCHES: u32 = 1 << 24;

/// Slots of an arm of which the shortest is believed: the first may load something, and any may be interrupted.
const TRIES: u32 = 3;

/// Launches grow by no more than this factor at once, because the time of few launches says little about that of many.
const GROWTH: u32 = 16;

/// How the arms fill a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Calibration {
    /// Launches in a slot.
    pub(super) launches: u32,
    /// Shortest slot of A.
    pub(super) slot_a_ns: u64,
    /// Shortest slot of B.
    pub(super) slot_b_ns: u64,
}

/// The least time a slot must last for a timer of this resolution.
pub(super) fn needed_ns(timer_ns: u64) -> u64 {
    timer_ns.saturating_mul(RESOLUTIONS_PER_SLOT).max(MIN_SLOT_NS)
}

/// Finds a number of launches, no smaller than `from`, with which a slot of the faster arm lasts as long as it must. The
/// slower arm gets the same number, however long that takes, up to [`MAX_SLOT_NS`].
pub(super) fn calibrate(runner: &mut dyn Runner, timer_ns: u64, from: u32) -> Result<Calibration, TrialError> {
    let needed_ns = needed_ns(timer_ns);
    let mut launches = from.clamp(1, MAX_LAUNCHES);
    loop {
        let slot_a_ns = shortest_slot(runner, Seat::A, launches)?;
        let slot_b_ns = shortest_slot(runner, Seat::B, launches)?;
        let fastest_ns = slot_a_ns.min(slot_b_ns);
        let next = if fastest_ns >= needed_ns { launches } else { more(launches, fastest_ns, needed_ns) };
        for (seat, slot_ns) in [(Seat::A, slot_a_ns), (Seat::B, slot_b_ns)] {
            let expected = u128::from(slot_ns) * u128::from(next) / u128::from(launches);
            if expected > u128::from(MAX_SLOT_NS) {
                let slot_ms = u64::try_from(expected / 1_000_000).unwrap_or(u64::MAX);
                return Err(TrialError::SlotTooLong { arm: seat.name(), launches: next, slot_ms });
            }
        }
        if next == launches {
            return Ok(Calibration { launches, slot_a_ns, slot_b_ns });
        }
        if next > MAX_LAUNCHES {
            return Err(TrialError::SlotTooShort { launches, slot_ns: fastest_ns, needed_ns });
        }
        launches = next;
    }
}

/// Launches that should last a quarter longer than needed, by what fewer of them lasted.
fn more(launches: u32, slot_ns: u64, needed_ns: u64) -> u32 {
    let most = launches.saturating_mul(GROWTH);
    let target_ns = u128::from(needed_ns) * 5 / 4;
    let wanted = (u128::from(launches) * target_ns).checked_div(u128::from(slot_ns));
    wanted.and_then(|wanted| u32::try_from(wanted).ok()).unwrap_or(most).clamp(launches + 1, most.max(launches + 1))
}

fn shortest_slot(runner: &mut dyn Runner, seat: Seat, launches: u32) -> Result<u64, ArmError> {
    let mut shortest = u64::MAX;
    for _ in 0..TRIES {
        runner.prepare(seat)?;
        shortest = shortest.min(runner.slot(seat, launches)?.elapsed_ns);
    }
    Ok(shortest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeRunner, Script};

    fn calibrated(script: Script, timer_ns: u64) -> Result<Calibration, TrialError> {
        calibrate(&mut FakeRunner::new(script), timer_ns, 1)
    }

    #[test]
    fn the_faster_arm_fills_a_slot_whichever_it_is() {
        for (launch_ns, b) in [(20.0, 0.0), (900.0, -2.0), (900.0, 2.0), (50_000.0, -1.0), (3e6, 0.5)] {
            let script = Script { launch_ns, b, noise_sd: 0.01, ..Script::default() };
            let found = calibrated(script, 30).unwrap();
            let fastest = found.slot_a_ns.min(found.slot_b_ns);
            assert!(fastest >= MIN_SLOT_NS, "{found:?}");
            assert!(fastest < 2 * MIN_SLOT_NS || found.launches == 1, "{found:?}");
        }
    }

    #[test]
    fn a_coarse_timer_needs_longer_slots() {
        for launch_ns in [20_000.0, 30_000.0] {
            let script = Script { launch_ns, quantum_ns: 65_000, ..Script::default() };
            let found = calibrated(script, 65_000).unwrap();
            assert!(found.slot_a_ns >= 200 * 65_000 && found.slot_b_ns >= 200 * 65_000, "{found:?}");
        }
    }

    #[test]
    fn slots_nobody_can_run_are_refused() {
        let error = calibrated(Script { launch_ns: 0.0, ..Script::default() }, 30).unwrap_err();
        assert!(matches!(error, TrialError::SlotTooShort { slot_ns: 0, .. }), "{error}");
        let error = calibrated(Script { launch_ns: 2e10, ..Script::default() }, 30).unwrap_err();
        assert!(matches!(error, TrialError::SlotTooLong { arm: "A", launches: 1, .. }), "{error}");
        // B is 60000 times slower: a slot of A of 1 ms would make B's last a minute.
        let error = calibrated(Script { launch_ns: 1_000.0, b: 11.0, ..Script::default() }, 30).unwrap_err();
        assert!(matches!(error, TrialError::SlotTooLong { arm: "B", .. }), "{error}");
        // A timer that is too coarse for any slot.
        let error = calibrated(Script::default(), 100_000_000).unwrap_err();
        assert!(matches!(error, TrialError::SlotTooLong { .. }), "{error}");
    }

    #[test]
    fn calibration_only_raises_what_it_is_given() {
        let mut runner = FakeRunner::new(Script { launch_ns: 1_000.0, ..Script::default() });
        assert_eq!(calibrate(&mut runner, 30, 5_000).unwrap().launches, 5_000);
        assert_eq!(calibrate(&mut runner, 30, 0).unwrap().launches, 1_250);
    }
}
