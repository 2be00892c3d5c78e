//! The Hodges-Lehmann estimate and the interval that belongs to the signed-rank test.

use super::walsh::{WalshAverages, walsh_count};
use super::{StatsError, check_probability, normal_quantile, special::normal_upper_tail};

/// The largest number of differences for which the exact signed-rank table is used.
pub const EXACT_SIGNED_RANK_MAX: usize = 25;

/// Where the rank of an interval's ends came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedRankMethod {
    /// The exact distribution of the signed-rank sum.
    Exact,
    /// Its normal approximation.
    Normal,
}

/// An interval of the Hodges-Lehmann estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignedRankInterval {
    /// The lower end, in the unit of the differences.
    pub lo: f64,
    /// The upper end, in the unit of the differences.
    pub hi: f64,
    /// The probability that the interval covers the centre of symmetry; for [`SignedRankMethod::Normal`] with
    /// the continuity correction.
    pub achieved_coverage: f64,
    /// The rank of `lo` among the Walsh averages, counted from 0; `hi` has the same rank from the other end.
    pub rank: u64,
    /// Where the rank came from.
    pub method: SignedRankMethod,
}

/// The Hodges-Lehmann estimate: the median of all `(d_i + d_j) / 2` with `i <= j` (Hodges and Lehmann, 1963).
///
/// `differences` has one value a quad, in any order. Exact for any number of them; memory is linear.
///
/// # Errors
///
/// An empty slice, or one with NaN or infinities.
pub fn hodges_lehmann(differences: &[f64]) -> Result<f64, StatsError> {
    Ok(WalshAverages::new(differences)?.median())
}

/// The interval of the Hodges-Lehmann estimate at `confidence` (0.95 for 95 %).
///
/// With the `M = n (n + 1) / 2` Walsh averages in ascending order the interval reaches from rank `K` to rank
/// `M - 1 - K`. Up to [`EXACT_SIGNED_RANK_MAX`] differences `K` is the largest rank for which the signed-rank sum `T`
/// has `2 P(T <= K) <= 1 - confidence`; above that it is `floor(M / 2 - z sqrt(n (n + 1) (2 n + 1) / 24))` with `z`
/// the full-precision normal quantile (1.95996... at 95 %).
///
/// `None` means that no such rank exists: the interval is unbounded. At 95 % this is so below six differences.
///
/// # Errors
///
/// An empty slice, one with NaN or infinities, or a confidence that is not strictly between 0 and 1.
pub fn interval(differences: &[f64], confidence: f64) -> Result<Option<SignedRankInterval>, StatsError> {
    check_probability("confidence", confidence)?;
    let walsh = WalshAverages::new(differences)?;
    let n = differences.len();
    let (rank, achieved_coverage, method) = if n <= EXACT_SIGNED_RANK_MAX {
        let Some((rank, coverage)) = exact_rank(n, 1.0 - confidence) else {
            return Ok(None);
        };
        (rank, coverage, SignedRankMethod::Exact)
    } else {
        let Some((rank, coverage)) = normal_rank(n, confidence)? else {
            return Ok(None);
        };
        (rank, coverage, SignedRankMethod::Normal)
    };
    Ok(Some(SignedRankInterval {
        lo: walsh.select(rank),
        hi: walsh.select(walsh.len() - 1 - rank),
        achieved_coverage,
        rank,
        method,
    }))
}

/// The number of subsets of `1..=n` for each sum `0..=n (n + 1) / 2`: the distribution of the signed-rank sum times
/// 2^n. Counts fit for `n` up to 64.
fn signed_rank_counts(n: usize) -> Vec<u64> {
    let mut counts = vec![0_u64; walsh_count(n) as usize + 1];
    counts[0] = 1;
    for rank in 1..=n {
        for sum in (rank..counts.len()).rev() {
            counts[sum] += counts[sum - rank];
        }
    }
    counts
}

/// The largest `K` with `2 P(T <= K) <= alpha`, and the coverage it gives.
fn exact_rank(n: usize, alpha: f64) -> Option<(u64, f64)> {
    let all = (1_u64 << n) as f64;
    let mut below = 0_u64;
    let mut found = None;
    for (rank, count) in signed_rank_counts(n).into_iter().enumerate() {
        below += count;
        let missed = 2.0 * below as f64 / all;
        if missed > alpha {
            break;
        }
        found = Some((rank as u64, 1.0 - missed));
    }
    found
}

/// The rank by the normal approximation, and the coverage it gives.
fn normal_rank(n: usize, confidence: f64) -> Result<Option<(u64, f64)>, StatsError> {
    let count = n as f64;
    let middle = walsh_count(n) as f64 / 2.0;
    let deviation = (count * (count + 1.0) * (2.0 * count + 1.0) / 24.0).sqrt();
    let z = normal_quantile(0.5 + confidence / 2.0)?;
    let rank = (middle - z * deviation).floor();
    if rank < 0.0 {
        return Ok(None);
    }
    let rank = (rank as u64).min((walsh_count(n) - 1) / 2);
    let missed = 2.0 * normal_upper_tail((middle - rank as f64 - 0.5) / deviation);
    Ok(Some((rank, (1.0 - missed).max(0.0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Class, classify};
    use proptest::prelude::*;

    /// Critical values of the two-sided signed-rank test at 5 %, n = 6 to 25 (Wilcoxon; McCornack, 1965).
    const CRITICAL: [u64; 20] = [0, 2, 3, 5, 8, 10, 13, 17, 21, 25, 29, 34, 40, 46, 52, 58, 65, 73, 81, 89];

    #[test]
    fn exact_ranks_are_the_published_critical_values() {
        for (n, expected) in (6..=25).zip(CRITICAL) {
            let (rank, coverage) = exact_rank(n, 0.05).unwrap();
            assert_eq!(rank, expected, "n = {n}");
            assert!((0.95..0.97).contains(&coverage) || n < 8, "{n}: {coverage}");
        }
        assert_eq!(exact_rank(6, 0.05), Some((0, 0.968_75)));
        assert_eq!(exact_rank(5, 0.05), None);
        assert_eq!(exact_rank(5, 0.0625), Some((0, 0.9375)));
    }

    #[test]
    fn small_distributions_by_hand() {
        assert_eq!(signed_rank_counts(1), [1, 1]);
        assert_eq!(signed_rank_counts(3), [1, 1, 1, 2, 1, 1, 1]);
        assert_eq!(signed_rank_counts(4), [1, 1, 1, 2, 2, 2, 2, 2, 1, 1, 1]);
        assert_eq!(signed_rank_counts(25).iter().sum::<u64>(), 1 << 25);
    }

    #[test]
    fn the_approximation_gives_the_exact_rank() {
        for n in 26..=60 {
            let all = libm::exp2(n as f64);
            let mut below = 0_u64;
            let mut exact = 0;
            let mut exact_coverages = Vec::new();
            for (rank, count) in signed_rank_counts(n).into_iter().enumerate() {
                below += count;
                exact_coverages.push(1.0 - 2.0 * below as f64 / all);
                if 2.0 * below as f64 / all > 0.05 {
                    break;
                }
                exact = rank as u64;
            }
            let (rank, coverage) = normal_rank(n, 0.95).unwrap().unwrap();
            assert_eq!(rank, exact, "n = {n}");
            let true_coverage = exact_coverages[rank as usize];
            assert!((coverage - true_coverage).abs() < 2e-3, "n = {n}");
        }
    }

    #[test]
    fn an_estimate_by_hand() {
        // Walsh averages of 1, 2, 4: 1, 1.5, 2, 2.5, 3, 4.
        assert_eq!(hodges_lehmann(&[4.0, 1.0, 2.0]).unwrap(), 2.25);
        assert_eq!(hodges_lehmann(&[3.5]).unwrap(), 3.5);
        assert_eq!(hodges_lehmann(&[1.0, 2.0]).unwrap(), 1.5);
    }

    #[test]
    fn the_interval_of_six_is_its_range() {
        let found = interval(&[6.0, 1.0, 5.0, 2.0, 4.0, 3.0], 0.95).unwrap().unwrap();
        assert_eq!((found.lo, found.hi, found.rank), (1.0, 6.0, 0));
        assert_eq!(found.method, SignedRankMethod::Exact);
        assert_eq!(interval(&[1.0; 5], 0.95).unwrap(), None);
        let twenty_six: Vec<f64> = (0..26).map(f64::from).collect();
        let found = interval(&twenty_six, 0.95).unwrap().unwrap();
        assert_eq!(found.rank, 98);
        assert_eq!(found.method, SignedRankMethod::Normal);
        assert_eq!(interval(&twenty_six, 1.0 - 1e-12).unwrap(), None);
    }

    #[test]
    fn bad_input_is_named() {
        assert_eq!(hodges_lehmann(&[]).unwrap_err().to_string(), "differences needs at least 1 values, got 0");
        assert_eq!(
            hodges_lehmann(&[0.0, f64::INFINITY]).unwrap_err().to_string(),
            "differences holds a value that is not finite at index 1: inf"
        );
        for confidence in [0.0, 1.0, -3.0, f64::NAN] {
            let error = interval(&[1.0; 9], confidence).unwrap_err();
            assert!(matches!(error, StatsError::OutOfRange { .. }), "{error}");
        }
    }

    fn differences() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(-0.03_f64..0.03, 6..60)
    }

    /// Multiples of 1/1024 below 64 in size: sums and halves of them are exact.
    fn grid() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec((-65_536_i32..65_536).prop_map(|step| f64::from(step) / 1024.0), 6..60)
    }

    proptest! {
        #[test]
        fn negated_differences_mirror_the_estimate_and_the_interval(
            d in differences(),
            tau in 0.0_f64..0.03,
        ) {
            let mirrored: Vec<f64> = d.iter().map(|value| -value).collect();
            prop_assert_eq!(hodges_lehmann(&mirrored).unwrap(), -hodges_lehmann(&d).unwrap());
            let one = interval(&d, 0.95).unwrap().unwrap();
            let two = interval(&mirrored, 0.95).unwrap().unwrap();
            prop_assert_eq!((two.lo, two.hi), (-one.hi, -one.lo));
            let expected = match classify(one.lo, one.hi, tau) {
                Class::Faster => Class::Slower,
                Class::Slower => Class::Faster,
                same => same,
            };
            prop_assert_eq!(classify(two.lo, two.hi, tau), expected);
        }

        #[test]
        fn a_shift_moves_everything(d in grid(), shift in (-1000_i32..1000).prop_map(f64::from)) {
            let moved: Vec<f64> = d.iter().map(|value| value + shift).collect();
            prop_assert_eq!(hodges_lehmann(&moved).unwrap(), hodges_lehmann(&d).unwrap() + shift);
            let one = interval(&d, 0.95).unwrap().unwrap();
            let two = interval(&moved, 0.95).unwrap().unwrap();
            prop_assert_eq!((two.lo, two.hi), (one.lo + shift, one.hi + shift));
        }

        #[test]
        fn the_order_of_quads_does_not_matter(d in differences(), seed: u64) {
            let mut shuffled = d.clone();
            crate::stats::SplitMix64::new(seed).shuffle(&mut shuffled);
            prop_assert_eq!(hodges_lehmann(&shuffled).unwrap(), hodges_lehmann(&d).unwrap());
            prop_assert_eq!(interval(&shuffled, 0.9).unwrap(), interval(&d, 0.9).unwrap());
        }

        #[test]
        fn larger_differences_never_lower_the_result(
            d in differences(),
            at in 0_usize..60,
            more in 0.0_f64..0.05,
        ) {
            let mut raised = d.clone();
            raised[at % d.len()] += more;
            prop_assert!(hodges_lehmann(&raised).unwrap() >= hodges_lehmann(&d).unwrap());
            let one = interval(&d, 0.95).unwrap().unwrap();
            let two = interval(&raised, 0.95).unwrap().unwrap();
            prop_assert!(two.lo >= one.lo && two.hi >= one.hi);
        }

        #[test]
        fn intervals_hold_the_estimate_and_grow_with_confidence(
            d in differences(),
            low in 0.01_f64..0.96,
            more in 0.0_f64..0.03,
        ) {
            let narrow = interval(&d, low).unwrap().unwrap();
            let theta = hodges_lehmann(&d).unwrap();
            prop_assert!(narrow.lo <= theta && theta <= narrow.hi);
            prop_assert!((0.0..=1.0).contains(&narrow.achieved_coverage));
            if let Some(wide) = interval(&d, low + more).unwrap() {
                prop_assert!(wide.lo <= narrow.lo && narrow.hi <= wide.hi);
            }
        }
    }
}
