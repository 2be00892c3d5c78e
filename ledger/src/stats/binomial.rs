//! Tests and intervals that only count signs.

use super::special::regularised_beta;
use super::{StatsError, check_probability, check_values};

/// Up to this many fair coins tails are summed as integers.
const EXACT_COINS: u64 = 120;

/// The sign test of differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignTest {
    /// Differences above zero.
    pub positive: u64,
    /// Differences other than zero.
    pub nonzero: u64,
    /// The two-sided probability of a split at least this uneven among fair signs.
    pub p: f64,
}

/// An interval of the median that needs no symmetry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderStatisticInterval {
    /// The `k`-th smallest difference.
    pub lo: f64,
    /// The `k`-th largest difference.
    pub hi: f64,
    /// The place of `lo` and, from the other end, of `hi`, counted from 1.
    pub k: u64,
    /// The probability that the interval covers the median.
    pub achieved_coverage: f64,
}

/// The probability of `at_least` or more heads among `coins` fair coins.
///
/// Exact integers up to 120 coins, above that the incomplete beta function.
fn fair_upper_tail(at_least: u64, coins: u64) -> f64 {
    if at_least == 0 {
        return 1.0;
    }
    if at_least > coins {
        return 0.0;
    }
    if coins > EXACT_COINS {
        let a = at_least as f64;
        return regularised_beta(a, (coins - at_least) as f64 + 1.0, 0.5, 0.5);
    }
    // Ways to have 0, 1, 2, ... tails; no sum exceeds 2^120.
    let mut ways = 1_u128;
    let mut sum = 1_u128;
    for tails in 1..=coins - at_least {
        ways = ways * u128::from(coins - tails + 1) / u128::from(tails);
        sum += ways;
    }
    sum as f64 / libm::exp2(coins as f64)
}

/// The two-sided probability of a split at least as uneven as `k` among `n` fair coins:
/// `min(1, 2 P(X >= max(k, n - k)))`. It is 1 for no coins.
///
/// Asks, for example, whether voids fall on one arm: `k` blamed on A among `n` blamed on either.
///
/// # Errors
///
/// [`StatsError::CountAboveTotal`] if `k > n`.
pub fn binomial_two_sided(k: u64, n: u64) -> Result<f64, StatsError> {
    let Some(rest) = n.checked_sub(k) else {
        return Err(StatsError::CountAboveTotal { part: k, whole: n });
    };
    Ok((2.0 * fair_upper_tail(k.max(rest), n)).min(1.0))
}

/// The two-sided sign test among the differences other than zero.
///
/// # Errors
///
/// NaN or infinities among the differences. No differences at all are no evidence: `p` is 1.
pub fn sign_test(differences: &[f64]) -> Result<SignTest, StatsError> {
    check_values("differences", differences, 0)?;
    let positive = differences.iter().filter(|&&d| d > 0.0).count() as u64;
    let nonzero = differences.iter().filter(|&&d| d != 0.0).count() as u64;
    Ok(SignTest { positive, nonzero, p: binomial_two_sided(positive, nonzero)? })
}

/// The interval of the median between two order statistics at `confidence` (0.95 for 95 %).
///
/// `k` is the largest integer with `2 P(X < k) <= 1 - confidence` for `X` heads among `n` fair coins. `None` means
/// that no such `k` exists and the interval is unbounded; at 95 % this is so below six differences.
///
/// # Errors
///
/// An empty slice, one with NaN or infinities, or a confidence not strictly between 0 and 1.
pub fn order_statistic_interval(
    differences: &[f64],
    confidence: f64,
) -> Result<Option<OrderStatisticInterval>, StatsError> {
    check_probability("confidence", confidence)?;
    check_values("differences", differences, 1)?;
    let n = differences.len() as u64;
    let missed = |k: u64| 2.0 * fair_upper_tail(n - k + 1, n);
    let (mut largest, mut too_large) = (0, n / 2 + 1);
    while too_large - largest > 1 {
        let middle = largest + (too_large - largest) / 2;
        if missed(middle) <= 1.0 - confidence {
            largest = middle;
        } else {
            too_large = middle;
        }
    }
    if largest == 0 {
        return Ok(None);
    }
    let mut sorted = differences.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let k = largest as usize;
    let (Some(&lo), Some(&hi)) = (sorted.get(k - 1), sorted.get(sorted.len() - k)) else {
        return Ok(None);
    };
    Ok(Some(OrderStatisticInterval {
        lo: lo + 0.0,
        hi: hi + 0.0,
        k: largest,
        achieved_coverage: 1.0 - missed(largest),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_protocol_table_of_order_statistics() {
        let table = [
            (8, 1, 99.2),
            (10, 2, 97.9),
            (12, 3, 96.1),
            (16, 4, 97.9),
            (20, 6, 95.9),
            (24, 7, 97.7),
            (30, 10, 95.7),
            (40, 14, 96.1),
            (60, 22, 97.3),
        ];
        for (n, k, percent) in table {
            let d: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            let found = order_statistic_interval(&d, 0.95).unwrap().unwrap();
            assert_eq!(found.k, k, "n = {n}");
            assert_eq!((found.lo, found.hi), (k as f64, f64::from(n) + 1.0 - k as f64));
            // The table cuts 96.152 at n = 40 down and rounds the others: within half a digit and a little.
            let off = 100.0 * found.achieved_coverage - percent;
            assert!(off.abs() < 0.055, "n = {n}: {off}");
        }
        assert_eq!(order_statistic_interval(&[1.0; 5], 0.95).unwrap(), None);
        assert_eq!(order_statistic_interval(&[1.0; 6], 0.95).unwrap().unwrap().k, 1);
    }

    #[test]
    fn sign_tests_by_hand() {
        for (n, expected) in [(6, 0.031_25), (8, 0.007_812_5), (11, 0.000_976_562_5)] {
            let test = sign_test(&vec![-0.5; n]).unwrap();
            assert_eq!((test.positive, test.nonzero, test.p), (0, n as u64, expected));
        }
        let test = sign_test(&[1.0, 2.0, 0.0, -0.0, -1.0, 3.0, 4.0]).unwrap();
        // Four of five: 2 (5 + 1) / 32.
        assert_eq!((test.positive, test.nonzero, test.p), (4, 5, 0.375));
        assert_eq!(sign_test(&[0.0]).unwrap().p, 1.0);
        assert_eq!(sign_test(&[]).unwrap().p, 1.0);
        assert!(sign_test(&[f64::NAN]).is_err());
    }

    #[test]
    fn blamed_voids_by_hand() {
        assert_eq!(binomial_two_sided(3, 3).unwrap(), 0.25);
        assert_eq!(binomial_two_sided(8, 8).unwrap(), 0.007_812_5);
        assert_eq!(binomial_two_sided(5, 10).unwrap(), 1.0);
        assert_eq!(binomial_two_sided(0, 0).unwrap(), 1.0);
        assert_eq!(binomial_two_sided(4, 3).unwrap_err().to_string(), "4 successes among 3 trials");
    }

    #[test]
    fn large_counts_follow_the_normal_distribution() {
        // 1 000 above the mean of a million coins: z = 1.999 with the continuity correction.
        let p = binomial_two_sided(501_000, 1_000_000).unwrap();
        let z = (1_000.0 - 0.5) / 500.0;
        let normal = 2.0 * crate::stats::special::normal_upper_tail(z);
        assert!((p / normal - 1.0).abs() < 1e-4, "{p} and {normal}");
        assert!(binomial_two_sided(u64::MAX, u64::MAX).unwrap() < 1e-300);
    }

    proptest! {
        #[test]
        fn integers_and_the_beta_function_agree(n in 1_u64..=120, pick in 0_u64..120) {
            let at_least = 1 + pick % n;
            let exact = fair_upper_tail(at_least, n);
            let beta = regularised_beta(at_least as f64, (n - at_least) as f64 + 1.0, 0.5, 0.5);
            prop_assert!((beta / exact - 1.0).abs() < 1e-11, "{beta} and {exact}");
        }

        #[test]
        fn both_sides_are_alike(n in 0_u64..400, pick in 0_u64..400) {
            let k = pick % (n + 1);
            let p = binomial_two_sided(k, n).unwrap();
            prop_assert_eq!(binomial_two_sided(n - k, n).unwrap(), p);
            prop_assert!((0.0..=1.0).contains(&p));
            if k > 0 && 2 * k <= n {
                prop_assert!(binomial_two_sided(k - 1, n).unwrap() <= p);
            }
        }

        #[test]
        fn the_rank_is_the_largest_that_keeps_the_confidence(n in 6_usize..300, confidence in 0.5_f64..0.96) {
            let d: Vec<f64> = (0..n).map(|value| value as f64).collect();
            let found = order_statistic_interval(&d, confidence).unwrap().unwrap();
            prop_assert!(found.achieved_coverage >= confidence - 1e-12);
            let next = 1.0 - 2.0 * fair_upper_tail(n as u64 - found.k, n as u64);
            prop_assert!(next < confidence);
            prop_assert_eq!(found.lo, -(found.hi - (n as f64 - 1.0)));
        }
    }
}
