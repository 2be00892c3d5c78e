//! A runner with scripted time: the lab proves itself against disturbances whose size is known.
//!
//! Nothing here measures anything, and no receipt is written from it.

use memra_ledger::stats::SplitMix64;

use crate::observe::{Observation, TICK_NS};
use crate::runner::{ArmError, Runner, Seat, SlotTime};

/// CPUs of the scripted machine.
const CPUS: u32 = 2;

/// Time one reading of the scripted clock takes, in nanoseconds.
const READING_NS: u64 = 20;

/// A time in which the scripted machine gives CPU time away.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Start, in nanoseconds.
    pub from_ns: u64,
    /// End, in nanoseconds.
    pub to_ns: u64,
    /// Share of the CPUs' time that goes; slots that start inside last longer by as much.
    pub share: f64,
}

/// What happens to time. Effects are natural logarithms of ratios or fractions; without any, every slot of A lasts
/// `launch_ns` times its launches.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Seed of the noise.
    pub seed: u64,
    /// Time of a launch of A, in nanoseconds.
    pub launch_ns: f64,
    /// ln(B/A): the true effect, and whatever shift this process gives B.
    pub b: f64,
    /// ln(twin/A): the shift this process gives the twin.
    pub twin: f64,
    /// Standard deviation of the noise of a slot, as a fraction.
    pub noise_sd: f64,
    /// Correlation of the noise of a slot with that of the slot before.
    pub noise_correlation: f64,
    /// Fraction by which time grows per second.
    pub linear_per_s: f64,
    /// Fraction by which time grows per second squared.
    pub quadratic_per_s2: f64,
    /// When both drifts begin, in nanoseconds.
    pub drift_from_ns: u64,
    /// Fraction by which the first slot is slower; falls exponentially.
    pub warm_up: f64,
    /// Time constant of that fall, in nanoseconds.
    pub warm_up_ns: u64,
    /// Fraction by which the second slot of a pair is slower.
    pub position: f64,
    /// Moments from which on time is longer by a fraction.
    pub steps: Vec<(u64, f64)>,
    /// Step of the clock in nanoseconds.
    pub quantum_ns: u64,
    /// Time between slots, in nanoseconds.
    pub gap_ns: u64,
    /// Times in which a hypervisor takes the CPUs.
    pub steal: Vec<Burst>,
    /// Times in which other processes take the CPUs.
    pub foreign: Vec<Burst>,
    /// Slots, counted from 0, in which the process of a seat is not idle; in its own slot it may be busy.
    pub busy: Vec<(u64, Seat)>,
    /// Slots after which the arm fails.
    pub fails_after: Option<u64>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            seed: 1,
            launch_ns: 50_000.0,
            b: 0.0,
            twin: 0.0,
            noise_sd: 0.0,
            noise_correlation: 0.0,
            linear_per_s: 0.0,
            quadratic_per_s2: 0.0,
            drift_from_ns: 0,
            warm_up: 0.0,
            warm_up_ns: 1,
            position: 0.0,
            steps: Vec::new(),
            quantum_ns: 1,
            gap_ns: 10_000,
            steal: Vec::new(),
            foreign: Vec::new(),
            busy: Vec::new(),
            fails_after: None,
        }
    }
}

/// Runs a script. Time passes only in slots, in gaps, and when the clock is read.
#[derive(Debug, Clone)]
pub struct FakeRunner {
    script: Script,
    random: SplitMix64,
    noise: f64,
    now_ns: u64,
    slots: u64,
    slots_since_observation: u64,
    not_idle: Vec<Seat>,
}

impl FakeRunner {
    /// A runner at time 0.
    pub fn new(script: Script) -> Self {
        let random = SplitMix64::new(script.seed);
        Self { script, random, noise: 0.0, now_ns: 0, slots: 0, slots_since_observation: 0, not_idle: Vec::new() }
    }

    /// Reads the scripted clock, which takes 20 ns.
    pub fn clock(&mut self) -> u64 {
        self.now_ns += READING_NS;
        self.quantised(self.now_ns)
    }

    fn quantised(&self, ns: u64) -> u64 {
        let quantum_ns = self.script.quantum_ns.max(1);
        ns / quantum_ns * quantum_ns
    }

    /// The next noise value: normal, stationary, correlated with the one before.
    fn next_noise(&mut self) -> f64 {
        let correlation = self.script.noise_correlation;
        let fresh = normal(&mut self.random) * self.script.noise_sd;
        self.noise = if self.slots == 0 {
            fresh
        } else {
            correlation * self.noise + (1.0 - correlation * correlation).max(0.0).sqrt() * fresh
        };
        self.noise
    }

    /// What the time of a slot that starts now is multiplied with, apart from its arm and its noise.
    fn disturbance(&self) -> f64 {
        let script = &self.script;
        let drifting_s = self.now_ns.saturating_sub(script.drift_from_ns) as f64 / 1e9;
        let drift = 1.0 + script.linear_per_s * drifting_s + script.quadratic_per_s2 * drifting_s * drifting_s;
        let warm_up = 1.0 + script.warm_up * (-(self.now_ns as f64) / script.warm_up_ns.max(1) as f64).exp();
        let is_second = !self.slots_since_observation.is_multiple_of(2);
        let position = if is_second { 1.0 + script.position } else { 1.0 };
        let steps = script.steps.iter().filter(|step| step.0 <= self.now_ns).map(|step| 1.0 + step.1);
        let bursts = script.steal.iter().chain(&script.foreign);
        let taken = bursts.filter(|burst| (burst.from_ns..burst.to_ns).contains(&self.now_ns)).map(|b| 1.0 + b.share);
        drift.max(0.01) * warm_up * position * steps.product::<f64>() * taken.product::<f64>()
    }

    /// Ticks of all CPUs that bursts took up to now.
    fn taken_ticks(&self, bursts: &[Burst]) -> u64 {
        let taken_ns = bursts.iter().map(|burst| {
            let overlap_ns = self.now_ns.min(burst.to_ns).saturating_sub(burst.from_ns);
            overlap_ns as f64 * burst.share * f64::from(CPUS)
        });
        (taken_ns.sum::<f64>() / TICK_NS as f64) as u64
    }
}

impl Runner for FakeRunner {
    fn prepare(&mut self, _: Seat) -> Result<(), ArmError> {
        self.now_ns = self.now_ns.saturating_add(self.script.gap_ns);
        Ok(())
    }

    fn slot(&mut self, seat: Seat, launches: u32) -> Result<SlotTime, ArmError> {
        if self.script.fails_after.is_some_and(|slots| self.slots >= slots) {
            return Err(ArmError::Launch { arm: format!("fake {}", seat.name()), why: "as scripted".to_owned() });
        }
        let effect = match seat {
            Seat::A => 0.0,
            Seat::Twin => self.script.twin,
            Seat::B => self.script.b,
        };
        let quiet_ns = self.script.launch_ns * f64::from(launches) * effect.exp();
        let noise = (1.0 + self.next_noise()).max(0.01);
        let elapsed_ns = (quiet_ns * self.disturbance() * noise).round() as u64;
        let start_ns = self.quantised(self.now_ns);
        self.now_ns = self.now_ns.saturating_add(elapsed_ns);
        let busy = self.script.busy.iter().filter(|(slot, busy)| *slot == self.slots && *busy != seat);
        self.not_idle.extend(busy.map(|(_, busy)| *busy));
        self.slots += 1;
        self.slots_since_observation += 1;
        Ok(SlotTime { start_ns, elapsed_ns: self.quantised(self.now_ns) - start_ns })
    }

    fn observe(&mut self) -> Observation {
        self.slots_since_observation = 0;
        let own_ticks = self.now_ns / TICK_NS;
        Observation {
            at_ns: self.quantised(self.now_ns),
            cpus: CPUS,
            steal_ticks: Some(self.taken_ticks(&self.script.steal)),
            busy_ticks: Some(own_ticks + self.taken_ticks(&self.script.foreign)),
            own_ticks: Some(own_ticks),
            clock_khz: None,
            card: None,
        }
    }

    fn seat_challenger(&mut self) -> Result<(), ArmError> {
        Ok(())
    }

    fn not_idle(&mut self) -> Vec<Seat> {
        std::mem::take(&mut self.not_idle)
    }
}

/// A value with mean 0 and variance 1: the sum of twelve 16-bit uniforms, the same bits on every platform.
fn normal(random: &mut SplitMix64) -> f64 {
    let mut sum = 0_u32;
    for _ in 0..3 {
        let bits = random.next_u64();
        for lane in 0..4 {
            sum += (bits >> (16 * lane)) as u32 & 0xFFFF;
        }
    }
    (f64::from(sum) - 393_210.0) / 65_536.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elapsed(script: Script, slots: usize) -> Vec<f64> {
        let mut runner = FakeRunner::new(script);
        (0..slots).map(|_| runner.slot(Seat::A, 1_000).unwrap().elapsed_ns as f64 / 1e6 - 1.0).collect()
    }

    fn script() -> Script {
        Script { launch_ns: 1_000.0, ..Script::default() }
    }

    #[test]
    fn noise_has_the_spread_and_correlation_it_was_given() {
        for correlation in [0.0, 0.7] {
            let noise = elapsed(Script { noise_sd: 0.01, noise_correlation: correlation, ..script() }, 20_000);
            let variance = noise.iter().map(|x| x * x).sum::<f64>() / noise.len() as f64;
            let lagged = noise.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / noise.len() as f64;
            assert!((variance.sqrt() - 0.01).abs() < 5e-4, "{variance}");
            assert!((lagged / variance - correlation).abs() < 0.03, "{lagged}");
        }
    }

    #[test]
    fn disturbances_are_what_the_script_says() {
        // A slot of 1 ms starts 1 ms after the one before.
        let drift = elapsed(Script { linear_per_s: 0.1, ..script() }, 2);
        assert!((drift[1] - 1e-4).abs() < 1e-6, "{drift:?}");
        let curve = elapsed(Script { warm_up: 0.3, warm_up_ns: 1_300_000, ..script() }, 2);
        assert!((curve[0] - 0.3).abs() < 1e-6 && (curve[1] - 0.3 / std::f64::consts::E).abs() < 1e-5, "{curve:?}");
        let position = elapsed(Script { position: 0.5, ..script() }, 3);
        assert_eq!(position, [0.0, 0.5, 0.0]);
        let step = elapsed(Script { steps: vec![(1_500_000, 0.5)], ..script() }, 3);
        assert_eq!(step, [0.0, 0.0, 0.5]);
    }

    #[test]
    fn a_coarse_clock_shows_whole_steps() {
        let mut runner = FakeRunner::new(Script { quantum_ns: 65_000, ..script() });
        for _ in 0..10 {
            let time = runner.slot(Seat::B, 100).unwrap();
            assert!(time.start_ns.is_multiple_of(65_000) && time.elapsed_ns.is_multiple_of(65_000));
        }
        assert_eq!(crate::trial::timer::resolution_ns(&mut || runner.clock()), Ok(65_000));
    }
}
