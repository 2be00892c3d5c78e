//! What the machine did during a quad, apart from running it.
//!
//! Counters are read between quads and are coarse: a tick is 10 ms, a quad often less. So no quad is judged by its own
//! ticks. Quads are gathered into windows of at least [`WINDOW_NS`], each window is judged as one, and a window that
//! does not pass loses all of its quads.
//!
//! On a card, time is read on the card. What the host's CPUs did is recorded there and voids nothing; what the card says
//! of itself does.

pub(crate) mod card;
mod sensors;

pub use card::{CardReading, CardSensor, CardState, CardWatch, DECLARED_REASONS};
pub use sensors::Observer;

use memra_ledger::record::{QuadObservation, VoidQuad};

/// Length of a tick in nanoseconds: the kernel's interface counts in hundredths of a second, whatever its own timer does.
pub const TICK_NS: u64 = 10_000_000;

/// Shortest time that is judged as one, in nanoseconds: ten ticks, so that one tick is a tenth of a CPU and not all of it.
pub const WINDOW_NS: u64 = 100_000_000;

/// Most time a hypervisor may give to others, in parts per million of the CPUs' time. A twentieth taken from both arms at
/// random moves a slot by ten times the difference that is worth shipping.
pub const STEAL_LIMIT_PPM: u64 = 50_000;

/// Most CPU time of other processes, in parts per million of the time of one CPU. An idle system stays far below, and a
/// build, a second session or a browser goes far beyond.
pub const FOREIGN_LIMIT_PPM: u64 = 250_000;

const PPM: u128 = 1_000_000;

/// Cumulative counters of the machine at one moment. A counter the system does not offer is `None`, never 0.
///
/// Ticks are summed over the CPUs this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observation {
    /// When the counters were read: nanoseconds since the runner was made, on the clock of its slots.
    pub at_ns: u64,
    /// CPUs this process may use.
    pub cpus: u32,
    /// Time the hypervisor gave to others.
    pub steal_ticks: Option<u64>,
    /// Time these CPUs were not idle.
    pub busy_ticks: Option<u64>,
    /// Time this process and the arms it started used.
    pub own_ticks: Option<u64>,
    /// Clock frequency of the first of these CPUs, in kHz.
    pub clock_khz: Option<u64>,
    /// What the card says, where one is measured.
    pub card: Option<CardReading>,
}

/// What was observed during each quad of a block, and the quads that do not count.
///
/// `boundaries` holds what was read before the first quad and after each, one more than there are quads. Steal and
/// foreign time of a quad are those of its window: the quads up to the first boundary at least [`WINDOW_NS`] after the
/// window's start. Quads that are left at the end join the last window; a block shorter than a window is one.
///
/// A window is void for `steal` above [`STEAL_LIMIT_PPM`] of the CPUs' time, and for `foreign` above
/// [`FOREIGN_LIMIT_PPM`] of one CPU, after what cutting the counters to whole ticks may have added is taken off.
///
/// On a card no window is void. A quad is, for `foreign` where another process computed on the card before or after it,
/// and for `throttle` where the clock had a reason beside [`DECLARED_REASONS`].
pub fn observe_quads(boundaries: &[Observation]) -> (Vec<QuadObservation>, Vec<VoidQuad>) {
    let mut observed = Vec::new();
    let mut void = Vec::new();
    for window in windows(boundaries) {
        let Some(use_) = boundaries.get(window.start).zip(boundaries.get(window.end)).map(|(a, b)| Use::between(a, b))
        else {
            continue;
        };
        let of_window = use_.void_reason();
        for quad in window {
            let (before, after) = (boundaries.get(quad), boundaries.get(quad + 1));
            let cards = [before, after].map(|boundary| boundary.and_then(|boundary| boundary.card));
            let state = cards[1].map(|card| card.state);
            observed.push(QuadObservation {
                steal_ppm: use_.ppm(use_.steal_ticks),
                foreign_ppm: use_.ppm(use_.foreign_ticks),
                clock_khz: state.map_or_else(|| after.and_then(|after| after.clock_khz), |state| state.clock_khz),
                clock_reasons: state.and_then(|state| state.clock_reasons),
                temperature_mc: state.and_then(|state| state.temperature_mc),
                power_mw: state.and_then(|state| state.power_mw),
            });
            let is_on_card = cards.iter().any(Option::is_some);
            if let Some(reason) = if is_on_card { card_reason(cards) } else { of_window } {
                void.push(VoidQuad { quad: quad as u32, reason: reason.to_owned(), blamed: None });
            }
        }
    }
    (observed, void)
}

/// Why a quad between two readings of a card does not count.
fn card_reason(cards: [Option<CardReading>; 2]) -> Option<&'static str> {
    let any = |is: fn(&CardReading) -> bool| cards.iter().flatten().any(is);
    if any(CardReading::is_shared) { Some("foreign") } else { any(CardReading::is_throttled).then_some("throttle") }
}

/// The quads judged as one: ranges that follow each other and cover all quads.
fn windows(boundaries: &[Observation]) -> Vec<std::ops::Range<usize>> {
    let mut windows: Vec<std::ops::Range<usize>> = Vec::new();
    let (mut start, mut start_ns) = (0, boundaries.first().map_or(0, |first| first.at_ns));
    for (index, boundary) in boundaries.iter().enumerate().skip(1) {
        if boundary.at_ns.saturating_sub(start_ns) >= WINDOW_NS {
            windows.push(start..index);
            (start, start_ns) = (index, boundary.at_ns);
        }
    }
    let quads = boundaries.len().saturating_sub(1);
    if start < quads {
        match windows.last_mut() {
            Some(last) => last.end = quads,
            None => windows.push(start..quads),
        }
    }
    windows
}

/// What happened between two observations.
struct Use {
    wall_ns: u64,
    cpus: u32,
    steal_ticks: Option<u64>,
    foreign_ticks: Option<u64>,
}

impl Use {
    fn between(before: &Observation, after: &Observation) -> Self {
        // A counter that fell, such as that of a child that ended, says nothing.
        let rise = |before: Option<u64>, after: Option<u64>| after?.checked_sub(before?);
        let busy = rise(before.busy_ticks, after.busy_ticks);
        let own = rise(before.own_ticks, after.own_ticks);
        Self {
            wall_ns: after.at_ns.saturating_sub(before.at_ns),
            cpus: after.cpus,
            steal_ticks: rise(before.steal_ticks, after.steal_ticks),
            foreign_ticks: busy.zip(own).map(|(busy, own)| busy.saturating_sub(own)),
        }
    }

    fn capacity_ns(&self) -> u128 {
        u128::from(self.wall_ns) * u128::from(self.cpus)
    }

    /// Ticks in parts per million of the CPUs' time, at most all of it.
    fn ppm(&self, ticks: Option<u64>) -> Option<u32> {
        let ppm = (u128::from(ticks?) * u128::from(TICK_NS) * PPM).checked_div(self.capacity_ns())?;
        Some(ppm.min(PPM) as u32)
    }

    fn void_reason(&self) -> Option<&'static str> {
        let cpus = u64::from(self.cpus);
        let is_above = |ticks: Option<u64>, counters: u64, limit_ppm: u64, of_ns: u128| {
            let certain = ticks.unwrap_or(0).saturating_sub(rounding_ticks(counters));
            u128::from(certain) * u128::from(TICK_NS) * PPM > u128::from(limit_ppm) * of_ns
        };
        if is_above(self.steal_ticks, cpus, STEAL_LIMIT_PPM, self.capacity_ns()) {
            return Some("steal");
        }
        // User and system time of every CPU, and the process's own.
        let counters = cpus.saturating_mul(2).saturating_add(1);
        let is_foreign = is_above(self.foreign_ticks, counters, FOREIGN_LIMIT_PPM, u128::from(self.wall_ns));
        is_foreign.then_some("foreign")
    }
}

/// Ticks that a difference of a sum of counters may be too large because each is cut to whole ticks. One counter is wrong
/// by less than a tick; the errors of several are independent and add up like the root of their number.
fn rounding_ticks(counters: u64) -> u64 {
    1 + counters.isqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Boundaries `step_ms` apart whose counters rise as `rise` says for each quad: steal, busy, own.
    fn boundaries(step_ms: u64, rises: &[(u64, u64, u64)]) -> Vec<Observation> {
        let mut at = Observation {
            at_ns: 5_000_000,
            cpus: 2,
            steal_ticks: Some(100),
            busy_ticks: Some(1_000),
            own_ticks: Some(300),
            clock_khz: None,
            card: None,
        };
        let mut all = vec![at];
        for (steal, busy, own) in rises {
            at.at_ns += step_ms * 1_000_000;
            at.steal_ticks = at.steal_ticks.map(|ticks| ticks + steal);
            at.busy_ticks = at.busy_ticks.map(|ticks| ticks + busy);
            at.own_ticks = at.own_ticks.map(|ticks| ticks + own);
            all.push(at);
        }
        all
    }

    fn voided(boundaries: &[Observation]) -> Vec<(u32, String)> {
        observe_quads(boundaries).1.into_iter().map(|void| (void.quad, void.reason)).collect()
    }

    #[test]
    fn a_lone_tick_voids_nothing() {
        let mut rises = vec![(0, 1, 1); 40];
        rises[17] = (1, 2, 0);
        let boundaries = boundaries(6, &rises);
        assert_eq!(voided(&boundaries), []);
        let (observed, _) = observe_quads(&boundaries);
        assert_eq!(observed.len(), 40);
        // Quads 0 to 16 are the first window; the other 23 are one, since 6 are too few for a third.
        assert_eq!(observed[0].steal_ppm, Some(0));
        // One tick of two CPUs over 138 ms.
        assert_eq!(observed[17].steal_ppm, Some(36_231));
        assert_eq!(observed[39].steal_ppm, observed[17].steal_ppm);
        // Two ticks too many.
        assert_eq!(observed[20].foreign_ppm, Some(72_463));
    }

    #[test]
    fn a_burst_voids_its_window_and_no_other() {
        let mut rises = vec![(0, 1, 1); 60];
        for rise in &mut rises[20..26] {
            *rise = (1, 0, 0);
        }
        let quads: Vec<u32> = voided(&boundaries(6, &rises)).iter().map(|(quad, _)| *quad).collect();
        assert_eq!(quads, (17..34).collect::<Vec<_>>());
        assert!(voided(&boundaries(6, &rises)).iter().all(|(_, reason)| reason == "steal"));
        // Long quads are windows of their own.
        assert_eq!(voided(&boundaries(200, &[(0, 40, 40), (9, 31, 31), (0, 40, 40)])), [(1, "steal".to_owned())]);
    }

    #[test]
    fn a_second_process_is_noticed() {
        // Two CPUs for 100 ms: 20 ticks, of which another process has 8.
        assert_eq!(voided(&boundaries(100, &[(0, 20, 20), (0, 20, 12)])), [(1, "foreign".to_owned())]);
        // Over a second a third of one CPU is clear, a tenth is not enough.
        assert_eq!(voided(&boundaries(1_000, &[(0, 133, 100)])), [(0, "foreign".to_owned())]);
        assert_eq!(voided(&boundaries(1_000, &[(0, 110, 100)])), []);
    }

    #[test]
    fn a_short_block_is_one_window() {
        let rises = vec![(2, 0, 0); 5];
        assert_eq!(voided(&boundaries(6, &rises)).len(), 5);
        assert_eq!(observe_quads(&boundaries(6, &[])), (vec![], vec![]));
        assert_eq!(observe_quads(&[]), (vec![], vec![]));
    }

    #[test]
    fn what_is_not_known_is_null_and_voids_nothing() {
        let mut all = boundaries(200, &[(30, 40, 0), (30, 40, 0)]);
        for boundary in &mut all {
            boundary.steal_ticks = None;
            boundary.own_ticks = None;
        }
        let (observed, void) = observe_quads(&all);
        assert_eq!(void, []);
        assert!(observed.iter().all(|quad| quad.steal_ppm.is_none() && quad.foreign_ppm.is_none()));
        // A counter that falls is not a counter.
        let mut all = boundaries(200, &[(30, 40, 0)]);
        all[1].steal_ticks = Some(1);
        assert_eq!(observe_quads(&all).0[0].steal_ppm, None);
        // No time, no share.
        let mut all = boundaries(0, &[(0, 0, 0)]);
        all[1].clock_khz = Some(2_500_000);
        let expected = QuadObservation { clock_khz: Some(2_500_000), ..QuadObservation::default() };
        assert_eq!(observe_quads(&all).0, [expected]);
    }

    #[test]
    fn on_a_card_the_card_decides() {
        // A host that would void every window, quads of 6 ms.
        let mut all = boundaries(6, &[(9, 20, 0); 6]);
        assert_eq!(voided(&all).len(), 6);
        let card = |reasons, foreign_processes| {
            let state = CardState { clock_khz: Some(1_980_000), clock_reasons: reasons, ..CardState::default() };
            Some(CardReading { state, foreign_processes })
        };
        for boundary in &mut all {
            boundary.card = card(Some(4), Some(0));
            boundary.clock_khz = Some(2_500_000);
        }
        assert_eq!(voided(&all), []);
        // A hot card after quad 2: the quads on both sides of the reading.
        all[3].card = card(Some(0x44), Some(0));
        // Somebody else before the first quad.
        all[0].card = card(Some(0x20), Some(2));
        let reason = |quad, reason: &str| (quad, reason.to_owned());
        assert_eq!(voided(&all), [reason(0, "foreign"), reason(2, "throttle"), reason(3, "throttle")]);
        let (observed, _) = observe_quads(&all);
        assert_eq!((observed[2].clock_khz, observed[2].clock_reasons), (Some(1_980_000), Some(0x44)));
        assert!(observed[0].steal_ppm.is_some(), "what the host did is recorded all the same");
        // A card that says nothing voids nothing, and the host's clock does not stand in for its own.
        for boundary in &mut all {
            boundary.card = Some(CardReading::default());
        }
        let (observed, void) = observe_quads(&all);
        assert_eq!((void.len(), observed[2].clock_khz, observed[2].clock_reasons), (0, None, None));
    }

    proptest! {
        #[test]
        fn windows_hold_every_quad_once_and_are_long_enough(steps in prop::collection::vec(0_u64..80_000_000, 0..60)) {
            let mut at = Observation { at_ns: 3, cpus: 1, ..Observation::default() };
            let mut all = vec![at];
            for step in &steps {
                at.at_ns += step;
                all.push(at);
            }
            let windows = windows(&all);
            let quads: Vec<usize> = windows.iter().cloned().flatten().collect();
            prop_assert_eq!(quads, (0..steps.len()).collect::<Vec<_>>());
            for window in &windows {
                let length = all[window.end].at_ns - all[window.start].at_ns;
                prop_assert!(length >= WINDOW_NS || windows.len() == 1);
            }
            let (observed, void) = observe_quads(&all);
            prop_assert_eq!((observed.len(), void.len()), (steps.len(), 0));
        }
    }
}
