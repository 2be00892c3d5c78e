//! Order statistics of the Walsh averages `(d_i + d_j) / 2`, `i <= j`, without writing them down.

use super::{StatsError, check_values};

/// The Walsh averages of a set of differences, in linear memory.
///
/// With the differences sorted, the averages form a triangle that is sorted along rows and columns; rounding is
/// monotone, so this holds for the rounded sums too. How many of them are at most `v` is counted in one walk along
/// the border between smaller and larger ones. The order statistic is found by bisecting the doubles themselves, in
/// at most 64 such walks: O(n log n) for the sort and 64 n for a selection, exact for any input.
pub(super) struct WalshAverages {
    /// Halves of the differences, ascending. Halving first keeps the sums finite.
    halves: Vec<f64>,
}

impl WalshAverages {
    /// Takes the differences in any order.
    pub(super) fn new(differences: &[f64]) -> Result<Self, StatsError> {
        check_values("differences", differences, 1)?;
        // Adding zero turns a negative zero into a positive one.
        let mut halves: Vec<f64> = differences.iter().map(|d| 0.5 * d + 0.0).collect();
        halves.sort_unstable_by(f64::total_cmp);
        Ok(Self { halves })
    }

    /// The number of averages, `n (n + 1) / 2`.
    pub(super) fn len(&self) -> u64 {
        walsh_count(self.halves.len())
    }

    /// The average of rank `rank`, counted from 0 in ascending order; ranks past the end give the largest.
    pub(super) fn select(&self, rank: u64) -> f64 {
        let (Some(&least), Some(&most)) = (self.halves.first(), self.halves.last()) else {
            return f64::NAN;
        };
        let wanted = rank.saturating_add(1).min(self.len());
        let mut low = ordinal(least + least);
        let mut high = ordinal(most + most);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.count_at_most(from_ordinal(middle)) >= wanted {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        from_ordinal(low) + 0.0
    }

    /// The median of the averages: the middle one, or the mean of the two middle ones.
    pub(super) fn median(&self) -> f64 {
        let len = self.len();
        let lower_rank = (len - 1) / 2;
        let lower = self.select(lower_rank);
        if len % 2 == 1 || self.count_at_most(lower) > lower_rank + 1 {
            return lower;
        }
        0.5 * lower + 0.5 * self.least_above(lower)
    }

    /// How many averages are at most `bound`.
    fn count_at_most(&self, bound: f64) -> u64 {
        let mut end = self.halves.len();
        let mut count = 0;
        for (row, &half) in self.halves.iter().enumerate() {
            while end > row && half + self.halves[end - 1] > bound {
                end -= 1;
            }
            if end <= row {
                break;
            }
            count += (end - row) as u64;
        }
        count
    }

    /// The smallest average above `bound`, infinity if there is none.
    fn least_above(&self, bound: f64) -> f64 {
        let mut end = self.halves.len();
        let mut least = f64::INFINITY;
        for (row, &half) in self.halves.iter().enumerate() {
            while end > row && half + self.halves[end - 1] > bound {
                end -= 1;
            }
            if let Some(&partner) = self.halves.get(end) {
                least = least.min(half + partner);
            }
            if end <= row {
                break;
            }
        }
        least
    }
}

/// The number of Walsh averages of `n` differences.
pub(super) fn walsh_count(n: usize) -> u64 {
    let n = n as u64;
    if n.is_multiple_of(2) { n / 2 * (n + 1) } else { n.div_ceil(2) * n }
}

/// Maps finite doubles to integers of the same order; negative zero comes right before positive zero.
fn ordinal(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The inverse of [`ordinal`].
fn from_ordinal(ordinal: u64) -> f64 {
    f64::from_bits(if ordinal >> 63 == 1 { ordinal & !(1 << 63) } else { !ordinal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(differences: &[f64]) -> Vec<f64> {
        let mut all = Vec::new();
        for (i, a) in differences.iter().enumerate() {
            for b in &differences[i..] {
                all.push(0.5 * a + 0.5 * b);
            }
        }
        all.sort_by(f64::total_cmp);
        all
    }

    fn naive_median(differences: &[f64]) -> f64 {
        let all = naive(differences);
        let (lower, upper) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
        if lower == upper {
            return lower;
        }
        0.5 * lower + 0.5 * upper
    }

    fn difference() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => -0.02_f64..0.02,
            2 => (-4_i32..=4).prop_map(|step| f64::from(step) / 8.0),
            1 => Just(-0.0),
            1 => prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO,
        ]
    }

    proptest! {
        #[test]
        fn every_rank_equals_the_naive_one(d in prop::collection::vec(difference(), 1..40)) {
            let all = naive(&d);
            let walsh = WalshAverages::new(&d).unwrap();
            prop_assert_eq!(walsh.len(), all.len() as u64);
            for (rank, &expected) in all.iter().enumerate() {
                prop_assert_eq!(walsh.select(rank as u64), expected);
            }
            prop_assert_eq!(walsh.median(), naive_median(&d));
        }

        #[test]
        fn ordinals_keep_the_order(a: f64, b: f64) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            prop_assert_eq!(ordinal(a).cmp(&ordinal(b)), a.total_cmp(&b));
            prop_assert_eq!(from_ordinal(ordinal(a)).to_bits(), a.to_bits());
        }
    }

    #[test]
    fn three_thousand_differences_equal_the_naive_median() {
        let mut random = crate::stats::SplitMix64::new(3);
        for n in [2_999, 3_000] {
            let d: Vec<f64> = (0..n).map(|_| (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 - 0.3).collect();
            assert_eq!(WalshAverages::new(&d).unwrap().median(), naive_median(&d), "{n}");
        }
    }

    #[test]
    fn equal_differences_and_the_largest_doubles_are_selected() {
        let walsh = WalshAverages::new(&[0.25; 1000]).unwrap();
        assert_eq!(walsh.select(0), 0.25);
        assert_eq!(walsh.median(), 0.25);
        let walsh = WalshAverages::new(&[f64::MAX, f64::MAX, -f64::MAX]).unwrap();
        assert_eq!(walsh.select(0), -f64::MAX);
        assert_eq!(walsh.select(2), 0.0);
        assert_eq!(walsh.select(u64::MAX), f64::MAX);
    }

    #[test]
    fn counts_do_not_wrap() {
        assert_eq!(walsh_count(0), 0);
        assert_eq!(walsh_count(20), 210);
        assert_eq!(walsh_count(25), 325);
        assert_eq!(walsh_count(4_294_967_296), 9_223_372_039_002_259_456);
    }
}
