//! Warm-up: both arms in turn until their time no longer drifts.

use std::time::Duration;

use memra_ledger::record::WarmUp;
use memra_ledger::stats::{self, StatsError};
use serde::{Deserialize, Serialize};

use crate::progress::{Event, Progress};
use crate::runner::{ArmError, Runner, Seat, SlotTime};

/// Fewest slots of a warm-up, and of its part that follows a change of the launches.
pub const MIN_SLOTS: u32 = 20;

/// Points that the slope is fitted to, where there are enough slots.
const POINTS: usize = 20;

/// Stands in for the noise band as long as that is unknown, in parts per million: the smallest difference usually asked for.
pub const ASSUMED_BAND_PPM: i64 = 5_000;

/// Standard errors of the drift that noise alone may show.
const NOISE_ERRORS: f64 = 2.0;

/// How long a warm-up takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmUpLimits {
    /// Shortest warm-up, in milliseconds.
    pub at_least_ms: u64,
    /// Time after which a warm-up that does not become steady is given up, in milliseconds.
    pub give_up_ms: u64,
}

impl Default for WarmUpLimits {
    fn default() -> Self {
        Self { at_least_ms: 1_500, give_up_ms: 10_000 }
    }
}

impl WarmUpLimits {
    /// The limits of a cell on a device that another cell has just warmed: a tenth at least, and the slope gate has as long as
    /// before to open.
    #[must_use]
    pub fn on_warm_device(self) -> Self {
        Self { at_least_ms: self.at_least_ms / 10, ..self }
    }

    /// The limits of the short warm-up that follows when the challenger has taken its seat: a third.
    #[must_use]
    pub(super) fn shortened(self) -> Self {
        Self { at_least_ms: self.at_least_ms / 3, give_up_ms: self.give_up_ms / 3 }
    }
}

/// The drift that the slope of the last slots gives over a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Drift {
    drift_ppm: i64,
    allowed_ppm: i64,
}

impl Drift {
    fn is_allowed(self) -> bool {
        self.drift_ppm.unsigned_abs() <= self.allowed_ppm.max(0).unsigned_abs()
    }
}

/// A warm-up under way.
pub(super) struct Warming<'a> {
    seats: [Seat; 2],
    limits: WarmUpLimits,
    smallest_ppm: i64,
    progress: &'a dyn Progress,
    /// Start of a pair of slots, and the mean of the logarithms of the time of a launch in both.
    pairs: Vec<(u64, f64)>,
    first_ns: u64,
    end_ns: u64,
}

impl<'a> Warming<'a> {
    pub(super) fn new(seats: [Seat; 2], limits: WarmUpLimits, smallest_ppm: i64, progress: &'a dyn Progress) -> Self {
        Self { seats, limits, smallest_ppm, progress, pairs: Vec::new(), first_ns: 0, end_ns: 0 }
    }

    /// Runs both seats in turn for the shortest time of a warm-up, without looking at the slope.
    pub(super) fn settle(&mut self, runner: &mut dyn Runner, launches: u32) -> Result<(), ArmError> {
        while self.slots() < MIN_SLOTS || self.elapsed() < Duration::from_millis(self.limits.at_least_ms) {
            self.run_pairs(runner, launches, MIN_SLOTS as usize / 2)?;
            self.tell(None);
        }
        Ok(())
    }

    /// Goes on until the gate opens or the limit is reached. `expected_ns` is how long the blocks will take that follow.
    ///
    /// The slope is taken over the later half of the warm-up, cut into [`POINTS`] points of equally many pairs of slots:
    /// twenty single slots of a millisecond cannot tell a drift of a quarter of a percent from noise of as much. A point
    /// is the median of its pairs, and both seats weigh the same in every pair, so that arms of different speed do not
    /// look like a slope. The gate is open if the drift over `expected_ns` is at most half of the larger of
    /// `smallest_ppm` and [`ASSUMED_BAND_PPM`], plus [`NOISE_ERRORS`] standard errors of the drift itself.
    pub(super) fn wait_until_steady(
        &mut self,
        runner: &mut dyn Runner,
        launches: u32,
        expected_ns: u64,
    ) -> Result<WarmUp, ArmError> {
        loop {
            // Looking again after a tenth more keeps the number of looks small.
            let pairs = (self.pairs.len() / 10).max(MIN_SLOTS as usize / 2);
            self.run_pairs(runner, launches, pairs)?;
            let drift = drift(later_half(&self.pairs, self.end_ns), expected_ns, self.smallest_ppm);
            self.tell(drift.ok().map(|drift| drift.drift_ppm));
            let is_steady = drift.is_ok_and(Drift::is_allowed);
            if is_steady || self.elapsed() >= Duration::from_millis(self.limits.give_up_ms) {
                // Points that no line can be fitted to have no drift to speak of and do not open the gate.
                let drift = drift.unwrap_or(Drift { drift_ppm: 0, allowed_ppm: 0 });
                return Ok(WarmUp {
                    slots: self.slots(),
                    elapsed_ns: self.end_ns.saturating_sub(self.first_ns),
                    drift_ppm: drift.drift_ppm,
                    allowed_drift_ppm: drift.allowed_ppm,
                    is_steady,
                });
            }
        }
    }

    fn slots(&self) -> u32 {
        u32::try_from(self.pairs.len().saturating_mul(2)).unwrap_or(u32::MAX)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(self.first_ns))
    }

    fn tell(&self, drift_ppm: Option<i64>) {
        self.progress.event(&Event::WarmUp { slots: self.slots(), elapsed: self.elapsed(), drift_ppm });
    }

    fn run_pairs(&mut self, runner: &mut dyn Runner, launches: u32, pairs: usize) -> Result<(), ArmError> {
        for _ in 0..pairs {
            let [first, second] = self.seats;
            let first = run_slot(runner, first, launches)?;
            let second = run_slot(runner, second, launches)?;
            if self.pairs.is_empty() {
                self.first_ns = first.start_ns;
            }
            self.end_ns = second.start_ns.saturating_add(second.elapsed_ns);
            let log = |slot: SlotTime| (slot.elapsed_ns.max(1) as f64 / f64::from(launches)).ln();
            self.pairs.push((first.start_ns, f64::midpoint(log(first), log(second))));
        }
        Ok(())
    }
}

/// Two warm-ups of a cell as one: their slots and times together, and the drift that is nearer to its limit or farther
/// beyond it.
pub(super) fn together(first: &WarmUp, second: &WarmUp) -> WarmUp {
    let beyond = |warm_up: &WarmUp| i128::from(warm_up.drift_ppm).abs() - i128::from(warm_up.allowed_drift_ppm);
    let is_first_worse = (!first.is_steady, beyond(first)) >= (!second.is_steady, beyond(second));
    let worse = if is_first_worse { first } else { second };
    WarmUp {
        slots: first.slots.saturating_add(second.slots),
        elapsed_ns: first.elapsed_ns.saturating_add(second.elapsed_ns),
        drift_ppm: worse.drift_ppm,
        allowed_drift_ppm: worse.allowed_drift_ppm,
        is_steady: first.is_steady && second.is_steady,
    }
}

fn run_slot(runner: &mut dyn Runner, seat: Seat, launches: u32) -> Result<SlotTime, ArmError> {
    runner.prepare(seat)?;
    runner.slot(seat, launches)
}

/// The pairs that started in the later half of the warm-up, at least ten where there are as many.
fn later_half(pairs: &[(u64, f64)], end_ns: u64) -> &[(u64, f64)] {
    let first_ns = pairs.first().map_or(0, |pair| pair.0);
    let middle_ns = first_ns.midpoint(end_ns);
    let later = pairs.partition_point(|pair| pair.0 < middle_ns);
    &pairs[later.min(pairs.len().saturating_sub(MIN_SLOTS as usize / 2))..]
}

fn drift(pairs: &[(u64, f64)], expected_ns: u64, smallest_ppm: i64) -> Result<Drift, StatsError> {
    let size = (pairs.len() / POINTS).max(1);
    let origin_ns = pairs.first().map_or(0, |pair| pair.0);
    let (mut times, mut values) = (Vec::new(), Vec::new());
    // The oldest pairs are left out where the points do not divide them evenly.
    for point in pairs.rchunks_exact(size) {
        let seconds = point.iter().map(|pair| pair.0.saturating_sub(origin_ns) as f64 / 1e9);
        times.push(seconds.sum::<f64>() / size as f64);
        values.push(stats::median(&point.iter().map(|pair| pair.1).collect::<Vec<f64>>())?);
    }
    let slope = stats::ols_slope(&times, &values)?;
    let error = slope_error(&times, &values, slope);
    let expected_s = expected_ns as f64 / 1e9;
    let ppm = |value: f64| stats::to_ppm(value);
    let base_ppm = smallest_ppm.max(ASSUMED_BAND_PPM) / 2;
    Ok(Drift {
        drift_ppm: ppm(slope * expected_s)?,
        allowed_ppm: base_ppm.saturating_add(ppm(NOISE_ERRORS * error * expected_s)?),
    })
}

/// The standard error of a least-squares slope, from the residuals.
fn slope_error(times: &[f64], values: &[f64], slope: f64) -> f64 {
    let count = times.len() as f64;
    let (mean_time, mean_value) = (times.iter().sum::<f64>() / count, values.iter().sum::<f64>() / count);
    let (mut residuals, mut spread) = (0.0, 0.0);
    for (time, value) in times.iter().zip(values) {
        residuals += ((value - mean_value) - slope * (time - mean_time)).powi(2);
        spread += (time - mean_time).powi(2);
    }
    if times.len() <= 2 || spread == 0.0 {
        return 0.0;
    }
    (residuals / (count - 2.0) / spread).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeRunner, Script};
    use crate::progress::Silent;
    use crate::trial::{TrialPlan, run_trial};

    fn warmed(script: Script, limits: WarmUpLimits, expected_ms: u64) -> WarmUp {
        let mut runner = FakeRunner::new(script);
        let mut warming = Warming::new([Seat::A, Seat::B], limits, 5_000, &Silent);
        warming.settle(&mut runner, 1_000).unwrap();
        warming.wait_until_steady(&mut runner, 1_000, expected_ms * 1_000_000).unwrap()
    }

    fn script() -> Script {
        Script { launch_ns: 1_250.0, noise_sd: 0.004, ..Script::default() }
    }

    #[test]
    fn noise_alone_opens_the_gate_at_once() {
        let limits = WarmUpLimits { at_least_ms: 300, give_up_ms: 2_000 };
        let mut opened_late = 0;
        for seed in 0..50 {
            // Arms whose speeds differ by a third do not look like a slope.
            let warm_up = warmed(Script { seed, b: -0.3, ..script() }, limits, 300);
            assert!(warm_up.is_steady, "{warm_up:?}");
            assert!(warm_up.allowed_drift_ppm >= 2_500 && warm_up.drift_ppm.abs() <= warm_up.allowed_drift_ppm);
            assert!(warm_up.elapsed_ns >= 300_000_000 && warm_up.slots >= 240);
            opened_late += u32::from(warm_up.elapsed_ns > 400_000_000);
        }
        assert!(opened_late <= 5, "{opened_late} of 50");
    }

    #[test]
    fn a_curve_keeps_the_gate_shut_until_it_is_flat() {
        let limits = WarmUpLimits { at_least_ms: 100, give_up_ms: 4_000 };
        let curve = Script { warm_up: 0.3, warm_up_ns: 200_000_000, ..script() };
        let warm_up = warmed(curve, limits, 300);
        assert!(warm_up.is_steady, "{warm_up:?}");
        // Over the later half of 0.6 s the curve still falls by 3 %.
        assert!(warm_up.elapsed_ns > 600_000_000, "{warm_up:?}");
    }

    #[test]
    fn a_lasting_drift_is_given_up() {
        let limits = WarmUpLimits { at_least_ms: 100, give_up_ms: 600 };
        let warm_up = warmed(Script { linear_per_s: 0.1, ..script() }, limits, 300);
        assert!(!warm_up.is_steady, "{warm_up:?}");
        assert!(warm_up.drift_ppm > 15_000 && warm_up.allowed_drift_ppm < 15_000, "{warm_up:?}");
        assert!(warm_up.elapsed_ns >= 600_000_000 && warm_up.elapsed_ns < 900_000_000);
    }

    #[test]
    fn a_warm_device_costs_a_tenth_and_keeps_its_gate() {
        // Launches of 20 us, eight quads, one A/A block: what a suite on a card is made of.
        let cell = |warm_up: WarmUpLimits, script: Script| {
            let plan =
                TrialPlan { quads: 8, aa_blocks: 1, seed: script.seed, smallest_ppm: 5_000, timer_ns: 500, warm_up };
            let mut runner = FakeRunner::new(Script { launch_ns: 20_000.0, gap_ns: 50_000, ..script });
            let measured = run_trial(&mut runner, &plan, &Silent);
            (runner.clock(), measured.warm_up.is_steady, measured.ab.is_some())
        };
        let full = WarmUpLimits::default();
        let (mut first_ns, mut later_ns) = (0, 0);
        for seed in 0..20 {
            let script = || Script { seed, noise_sd: 0.003, ..Script::default() };
            let (ns, is_steady, is_measured) = cell(full, script());
            assert!(is_steady && is_measured);
            first_ns += ns;
            let (ns, is_steady, is_measured) = cell(full.on_warm_device(), script());
            assert!(is_steady && is_measured);
            later_ns += ns;
        }
        let milliseconds = |ns: u64| ns / 20 / 1_000_000;
        assert!((2_000..2_500).contains(&milliseconds(first_ns)), "{}", milliseconds(first_ns));
        assert!((200..450).contains(&milliseconds(later_ns)), "{}", milliseconds(later_ns));
        // A device that is not warm after all is waited for.
        let curve = Script { warm_up: 0.3, warm_up_ns: 200_000_000, noise_sd: 0.003, ..Script::default() };
        let (ns, is_steady, _) = cell(full.on_warm_device(), curve);
        assert!(is_steady && ns > 600_000_000, "{ns}");
        let drift = Script { linear_per_s: 0.2, noise_sd: 0.003, ..Script::default() };
        assert!(!cell(full.on_warm_device(), drift).1);
    }

    #[test]
    fn a_limit_without_time_still_gets_its_slots() {
        let warm_up = warmed(script(), WarmUpLimits { at_least_ms: 0, give_up_ms: 0 }, 300);
        assert_eq!(warm_up.slots, 2 * MIN_SLOTS);
    }

    #[test]
    fn the_error_of_a_slope_by_hand() {
        // Residuals of 0, 1, 0, 1 at 0, 1, 2, 3 from the line with slope 0.2: squares sum to 0.8, spread is 5.
        let error = slope_error(&[0.0, 1.0, 2.0, 3.0], &[0.0, 1.0, 0.0, 1.0], 0.2);
        assert!((error - (0.8_f64 / 2.0 / 5.0).sqrt()).abs() < 1e-12, "{error}");
        assert_eq!(slope_error(&[0.0, 1.0], &[0.0, 1.0], 1.0), 0.0);
    }

    #[test]
    fn of_two_warm_ups_the_worse_drift_is_kept() {
        let warm_up =
            |drift_ppm, is_steady| WarmUp { slots: 20, elapsed_ns: 7, drift_ppm, allowed_drift_ppm: 2_500, is_steady };
        let both = together(&warm_up(-100, true), &warm_up(50, true));
        assert_eq!(both, WarmUp { slots: 40, elapsed_ns: 14, ..warm_up(-100, true) });
        let both = together(&warm_up(-100, true), &warm_up(9_000, false));
        assert_eq!((both.drift_ppm, both.is_steady), (9_000, false));
        assert_eq!(together(&warm_up(9_000, false), &warm_up(100, true)).drift_ppm, 9_000);
        let both = together(&warm_up(0, false), &warm_up(100, true));
        assert_eq!((both.drift_ppm, both.is_steady), (0, false));
    }

    #[test]
    fn points_without_a_line_do_not_open_the_gate() {
        assert!(drift(&[], 1, 0).is_err());
        assert!(drift(&[(5, 1.0); 10], 1, 0).is_err());
    }
}
