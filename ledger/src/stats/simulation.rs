//! Sessions on a simulated clock: the false-positive rates and the coverage that the protocol promises.

use super::{
    Class, QuadOrder, SplitMix64, balanced_orders, classify, hodges_lehmann, interval, quad_difference, t_interval,
};

/// Slots of a session: 20 quads.
const SLOTS: usize = 80;
/// Standard deviation of one slot.
const SLOT_SD: f64 = 0.004;
/// A slot without disturbance.
const SLOT_NS: f64 = 1e9;

/// What disturbs the logarithm of a slot, beside noise.
#[derive(Clone, Copy)]
struct Disturbance {
    /// Drift over the session.
    drift: f64,
    /// Extra time of every second slot.
    second: f64,
    /// Extra time of the second half of the session.
    step: f64,
    /// Extra time of B.
    effect: f64,
}

const NONE: Disturbance = Disturbance { drift: 0.0, second: 0.0, step: 0.0, effect: 0.0 };

struct Noise(SplitMix64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(self.uniform())).sqrt();
        radius * libm::cos(core::f64::consts::TAU * self.uniform())
    }

    fn slot(&mut self, position: usize, is_b: bool, disturbance: Disturbance) -> u64 {
        let share = position as f64 / SLOTS as f64;
        let mut log = SLOT_SD * self.normal() + disturbance.drift * share;
        if position % 2 == 1 {
            log += disturbance.second;
        }
        if share > 0.5 {
            log += disturbance.step;
        }
        if is_b {
            log += disturbance.effect;
        }
        libm::round(SLOT_NS * libm::exp(log)) as u64
    }
}

/// The differences of 20 quads in balanced order.
fn quads(noise: &mut Noise, seed: u64, disturbance: Disturbance) -> Vec<f64> {
    let orders = balanced_orders(SLOTS / 4, seed).unwrap();
    orders
        .iter()
        .enumerate()
        .map(|(quad, &order)| {
            let slots = std::array::from_fn(|place| {
                let is_b = order.arms()[place] == super::ArmLabel::B;
                noise.slot(4 * quad + place, is_b, disturbance)
            });
            quad_difference(order, slots).unwrap()
        })
        .collect()
}

/// The differences of 20 A B pairs that always start with A, on the same clock.
fn pairs(noise: &mut Noise, disturbance: Disturbance) -> Vec<f64> {
    (0..SLOTS / 4)
        .map(|pair| {
            let a = noise.slot(4 * pair, false, disturbance);
            let b = noise.slot(4 * pair + 1, true, disturbance);
            libm::log(b as f64) - libm::log(a as f64)
        })
        .collect()
}

/// The share of sessions whose interval misses `truth`.
fn missed(sessions: u64, truth: f64, mut session: impl FnMut(u64) -> Vec<f64>) -> f64 {
    let count = (0..sessions)
        .filter(|&seed| {
            let found = interval(&session(seed), 0.95).unwrap().unwrap();
            truth < found.lo || found.hi < truth
        })
        .count();
    count as f64 / sessions as f64
}

#[test]
fn balanced_quads_keep_five_percent_under_every_disturbance() {
    let disturbances = [
        NONE,
        Disturbance { drift: 0.03, ..NONE },
        Disturbance { step: 0.03, ..NONE },
        Disturbance { second: 0.003, ..NONE },
        Disturbance { drift: 0.03, second: 0.003, ..NONE },
        Disturbance { step: 0.03, second: 0.003, ..NONE },
    ];
    let mut noise = Noise(SplitMix64::new(20));
    for (case, disturbance) in disturbances.into_iter().enumerate() {
        let share = missed(2_000, 0.0, |seed| quads(&mut noise, seed, disturbance));
        assert!(share <= 0.065, "disturbance {case}: {share}");
    }
}

#[test]
fn plain_pairs_take_a_position_effect_for_a_difference() {
    let mut noise = Noise(SplitMix64::new(21));
    let position = Disturbance { second: 0.003, ..NONE };
    let share = missed(500, 0.0, |_| pairs(&mut noise, position));
    assert!(share > 0.4, "{share}");
}

#[test]
fn intervals_cover_a_true_effect_as_often_as_promised() {
    let mut noise = Noise(SplitMix64::new(22));
    let truth = -0.02;
    let disturbance = Disturbance { effect: truth, second: 0.003, drift: 0.03, ..NONE };
    let share = missed(2_000, truth, |seed| quads(&mut noise, seed, disturbance));
    assert!((0.035..0.065).contains(&share), "{share}");
}

#[test]
fn classes_follow_the_true_effect() {
    let mut noise = Noise(SplitMix64::new(23));
    let tau = 0.003;
    let mut classes = |effect: f64| {
        let disturbance = Disturbance { effect, second: 0.003, drift: 0.03, ..NONE };
        let mut counts = [0_u32; 4];
        for seed in 0..500 {
            let found = interval(&quads(&mut noise, seed, disturbance), 0.95).unwrap().unwrap();
            counts[classify(found.lo, found.hi, tau) as usize] += 1;
        }
        counts
    };
    let place = |class: Class| class as usize;
    let none = classes(0.0);
    assert_eq!(none[place(Class::Faster)] + none[place(Class::Slower)], 0, "{none:?}");
    assert!(none[place(Class::Equivalent)] > 250, "{none:?}");
    let faster = classes(-0.01);
    assert!(faster[place(Class::Faster)] > 480, "{faster:?}");
    assert_eq!(faster[place(Class::Slower)] + faster[place(Class::Equivalent)], 0, "{faster:?}");
    let slower = classes(0.01);
    assert!(slower[place(Class::Slower)] > 480, "{slower:?}");
}

#[test]
fn estimates_grow_with_the_dose() {
    let mut noise = Noise(SplitMix64::new(24));
    let estimates: Vec<f64> = [0.0, 0.005, 0.01, 0.02, 0.05]
        .into_iter()
        .map(|effect| {
            let disturbance = Disturbance { effect, drift: 0.15, ..NONE };
            let d = quads(&mut noise, 5, disturbance);
            let found = interval(&d, 0.99).unwrap().unwrap();
            assert!(found.lo <= effect && effect <= found.hi, "{found:?} misses {effect}");
            hodges_lehmann(&d).unwrap()
        })
        .collect();
    assert!(estimates.is_sorted(), "{estimates:?}");
}

#[test]
fn replicates_see_the_shift_between_processes() {
    let mut noise = Noise(SplitMix64::new(25));
    let process_sd = 0.003;
    let (mut flat, mut by_replicate) = (0, 0);
    let sessions = 400;
    for session in 0..sessions {
        let mut all = Vec::new();
        let mut estimates = Vec::new();
        for replicate in 0..5 {
            let disturbance = Disturbance { effect: process_sd * noise.normal(), ..NONE };
            let d = quads(&mut noise, 5 * session + replicate, disturbance);
            estimates.push(hodges_lehmann(&d).unwrap());
            all.extend(d);
        }
        let pooled = interval(&all, 0.95).unwrap().unwrap();
        flat += u32::from(pooled.lo > 0.0 || pooled.hi < 0.0);
        let t = t_interval(&estimates, 0.95).unwrap();
        by_replicate += u32::from(t.lo > 0.0 || t.hi < 0.0);
    }
    assert!(f64::from(flat) > 0.3 * sessions as f64, "{flat}");
    assert!(f64::from(by_replicate) < 0.08 * sessions as f64, "{by_replicate}");
}

#[test]
fn exchanged_labels_mirror_a_session() {
    let mut noise = Noise(SplitMix64::new(26));
    for seed in 0..200 {
        let orders = balanced_orders(20, seed).unwrap();
        let slots: Vec<[u64; 4]> =
            (0..20).map(|quad| std::array::from_fn(|place| noise.slot(4 * quad + place, false, NONE))).collect();
        let differences = |flip: fn(QuadOrder) -> QuadOrder| -> Vec<f64> {
            let quads = orders.iter().zip(&slots);
            quads.map(|(&order, &slots)| quad_difference(flip(order), slots).unwrap()).collect()
        };
        let (one, two) = (differences(|order| order), differences(QuadOrder::swapped));
        assert_eq!(hodges_lehmann(&two).unwrap(), -hodges_lehmann(&one).unwrap());
        let one = interval(&one, 0.95).unwrap().unwrap();
        let two = interval(&two, 0.95).unwrap().unwrap();
        assert_eq!((two.lo, two.hi), (-one.hi, -one.lo));
    }
}
