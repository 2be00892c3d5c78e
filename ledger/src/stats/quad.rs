//! Quads: the order of their slots, and the difference they measure.

use super::{SplitMix64, StatsError};

/// The most quads one plan may have: 2^24, about 19 hours of slots of one millisecond.
pub const MAX_QUADS: usize = 1 << 24;

/// One of the two competitors of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArmLabel {
    /// The arm compared against.
    A,
    /// The arm under test.
    B,
}

impl ArmLabel {
    /// The competitor.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The order of the four slots of a quad.
///
/// In both orders the two arms have the same mean position, so a drift that is linear in time cancels, and so does a
/// constant effect of being second in a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuadOrder {
    /// A B B A.
    Abba,
    /// B A A B.
    Baab,
}

impl QuadOrder {
    /// The arms in the order of their slots.
    pub fn arms(self) -> [ArmLabel; 4] {
        match self {
            Self::Abba => [ArmLabel::A, ArmLabel::B, ArmLabel::B, ArmLabel::A],
            Self::Baab => [ArmLabel::B, ArmLabel::A, ArmLabel::A, ArmLabel::B],
        }
    }

    /// The arm of the slot at `position`, counted from 0; nothing for positions above 3.
    pub fn arm_at(self, position: usize) -> Option<ArmLabel> {
        self.arms().get(position).copied()
    }

    /// The order with the labels of the arms exchanged.
    #[must_use]
    pub fn swapped(self) -> Self {
        match self {
            Self::Abba => Self::Baab,
            Self::Baab => Self::Abba,
        }
    }
}

/// The difference that one quad measures: `(ln b1 + ln b2) / 2 - (ln a1 + ln a2) / 2`.
///
/// `elapsed_ns` holds the four slots in the order they ran. Both arms launch equally often in a slot, so the number
/// of launches cancels and elapsed times may be used as they are. The result is a natural logarithm of a ratio,
/// negative if B is faster. Exchanging the labels negates it exactly. Times above 2^53 ns (104 days) are rounded.
///
/// # Errors
///
/// [`StatsError::ZeroElapsed`] names the first slot without elapsed time.
pub fn quad_difference(order: QuadOrder, elapsed_ns: [u64; 4]) -> Result<f64, StatsError> {
    if let Some(position) = elapsed_ns.iter().position(|&elapsed| elapsed == 0) {
        return Err(StatsError::ZeroElapsed { position });
    }
    let [first, second, third, fourth] = elapsed_ns.map(|elapsed| libm::log(elapsed as f64));
    let outer = 0.5 * (first + fourth);
    let inner = 0.5 * (second + third);
    Ok(match order {
        QuadOrder::Abba => inner - outer,
        QuadOrder::Baab => outer - inner,
    })
}

/// The orders of `n_quads` quads: as many ABBA as BAAB, shuffled by [`SplitMix64`] from `seed`.
///
/// The first draw decides by its highest bit which order has the extra quad if the count is odd (set: BAAB); it is
/// taken for even counts too. The list starts as all ABBA followed by all BAAB, and is then shuffled.
///
/// # Errors
///
/// [`StatsError::TooManyQuads`] above [`MAX_QUADS`].
pub fn balanced_orders(n_quads: usize, seed: u64) -> Result<Vec<QuadOrder>, StatsError> {
    if n_quads > MAX_QUADS {
        return Err(StatsError::TooManyQuads { got: n_quads });
    }
    let mut random = SplitMix64::new(seed);
    let extra_is_baab = random.next_u64() >> 63 == 1;
    let baab_count = if extra_is_baab { n_quads.div_ceil(2) } else { n_quads / 2 };
    let mut orders = vec![QuadOrder::Abba; n_quads - baab_count];
    orders.resize(n_quads, QuadOrder::Baab);
    random.shuffle(&mut orders);
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count_baab(orders: &[QuadOrder]) -> usize {
        orders.iter().filter(|&&order| order == QuadOrder::Baab).count()
    }

    /// Elapsed times of eight slots whose logarithm follows `curve` of the position.
    fn slots(curve: impl Fn(f64) -> f64) -> [u64; 8] {
        std::array::from_fn(|t| libm::round(1e12 * libm::exp(curve(t as f64))) as u64)
    }

    fn halves(slots: [u64; 8]) -> ([u64; 4], [u64; 4]) {
        let [a, b, c, d, e, f, g, h] = slots;
        ([a, b, c, d], [e, f, g, h])
    }

    #[test]
    fn a_hand_computed_quad() {
        let d = quad_difference(QuadOrder::Abba, [100, 200, 800, 400]).unwrap();
        assert!((d - core::f64::consts::LN_2).abs() < 1e-15);
        let d = quad_difference(QuadOrder::Baab, [100, 200, 800, 400]).unwrap();
        assert!((d + core::f64::consts::LN_2).abs() < 1e-15);
    }

    #[test]
    fn orders_name_their_arms() {
        let text = |order: QuadOrder| -> String {
            (0..4)
                .map(|position| match order.arm_at(position) {
                    Some(ArmLabel::A) => 'A',
                    Some(ArmLabel::B) => 'B',
                    None => '?',
                })
                .collect()
        };
        assert_eq!(text(QuadOrder::Abba), "ABBA");
        assert_eq!(text(QuadOrder::Baab), "BAAB");
        assert_eq!(QuadOrder::Abba.arm_at(4), None);
        for order in [QuadOrder::Abba, QuadOrder::Baab] {
            assert_eq!(order.swapped().arms(), order.arms().map(ArmLabel::other));
        }
    }

    #[test]
    fn a_slot_without_time_is_named() {
        let error = quad_difference(QuadOrder::Abba, [5, 5, 0, 0]).unwrap_err();
        assert_eq!(error, StatsError::ZeroElapsed { position: 2 });
        assert_eq!(error.to_string(), "slot 2 has an elapsed time of 0 ns");
    }

    #[test]
    fn quadratic_drift_leaves_two_gamma_and_eight_slots_cancel_it() {
        let gamma = 1e-4;
        let (first, second) = halves(slots(|t| gamma * t * t));
        let abba = quad_difference(QuadOrder::Abba, first).unwrap();
        let baab = quad_difference(QuadOrder::Baab, first).unwrap();
        assert!((abba + 2.0 * gamma).abs() < 1e-11);
        assert!((baab - 2.0 * gamma).abs() < 1e-11);
        let next = quad_difference(QuadOrder::Baab, second).unwrap();
        assert!((abba + next).abs() < 1e-11);
    }

    #[test]
    fn the_order_of_a_seed_is_pinned() {
        let text: String = balanced_orders(21, 7)
            .unwrap()
            .iter()
            .map(|order| match order {
                QuadOrder::Abba => 'A',
                QuadOrder::Baab => 'B',
            })
            .collect();
        assert_eq!(text, "BBBABBAABAABAABAAABBA");
        assert_eq!(balanced_orders(0, 7).unwrap(), []);
    }

    #[test]
    fn the_extra_quad_of_an_odd_count_falls_on_both_sides() {
        let extra_baab = (0..1000).filter(|&seed| count_baab(&balanced_orders(5, seed).unwrap()) == 3).count();
        assert!((430..570).contains(&extra_baab), "{extra_baab}");
    }

    #[test]
    fn a_plan_above_the_limit_is_refused() {
        assert_eq!(balanced_orders(usize::MAX, 0), Err(StatsError::TooManyQuads { got: usize::MAX }));
    }

    proptest! {
        #[test]
        fn orders_are_balanced_and_repeatable(n in 0_usize..400, seed: u64) {
            let orders = balanced_orders(n, seed).unwrap();
            prop_assert_eq!(orders.len(), n);
            let baab = count_baab(&orders);
            prop_assert!(baab == n / 2 || baab == n.div_ceil(2));
            prop_assert_eq!(&orders, &balanced_orders(n, seed).unwrap());
        }

        #[test]
        fn swapping_the_labels_negates_exactly(slots in prop::array::uniform4(1_u64..u64::MAX)) {
            for order in [QuadOrder::Abba, QuadOrder::Baab] {
                let d = quad_difference(order, slots).unwrap();
                prop_assert_eq!(quad_difference(order.swapped(), slots).unwrap(), -d);
            }
        }

        #[test]
        fn linear_drift_and_a_position_effect_cancel(
            slope in -0.01_f64..0.01,
            second in -0.01_f64..0.01,
            effect in -0.05_f64..0.05,
        ) {
            for order in [QuadOrder::Abba, QuadOrder::Baab] {
                let slots: [u64; 4] = std::array::from_fn(|t| {
                    let own = if order.arm_at(t) == Some(ArmLabel::B) { effect } else { 0.0 };
                    let place = if t % 2 == 1 { second } else { 0.0 };
                    libm::round(1e12 * libm::exp(slope * t as f64 + place + own)) as u64
                });
                let d = quad_difference(order, slots).unwrap();
                prop_assert!((d - effect).abs() < 1e-11, "{d} for {effect}");
            }
        }
    }
}
