//! Effect sizes: the noise band, the class of an interval, what a plan can detect, and fixed-point ratios.

use super::{
    StatsError, check_not_negative, check_probability, check_values, normal_quantile, special::regularised_beta,
    student_t_quantile,
};

/// The two-sided error that effect sizes are planned for.
pub const MDE_ALPHA: f64 = 0.05;
/// The power that effect sizes are planned for.
pub const MDE_POWER: f64 = 0.8;
/// Parts per million in one.
const MILLION: f64 = 1e6;

/// How the differences are summed up, as far as the minimum detectable effect depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    /// The mean.
    Mean,
    /// The Hodges-Lehmann estimate, 2 % less precise than the mean on normal data.
    HodgesLehmann,
    /// The median, 25 % less precise than the mean on normal data.
    Median,
}

impl Estimator {
    /// The standard error in units of that of the mean.
    pub fn factor(self) -> f64 {
        match self {
            Self::Mean => 1.0,
            Self::HodgesLehmann => 1.02,
            Self::Median => 1.25,
        }
    }
}

/// Where an interval lies with respect to a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// All of it is below minus the threshold.
    Faster,
    /// All of it is above the threshold.
    Slower,
    /// All of it is strictly inside the threshold.
    Equivalent,
    /// None of these.
    Undecided,
}

/// The class of the interval `lo..hi` of theta by the threshold `tau`, all natural logarithms of ratios.
///
/// FASTER if `hi < -tau`, SLOWER if `lo > tau`, EQUIVALENT if `-tau < lo` and `hi < tau`, else UNDECIDED. A threshold
/// that is negative or NaN, and ends that are NaN or out of order, are UNDECIDED too.
pub fn classify(lo: f64, hi: f64, tau: f64) -> Class {
    let is_sound = tau >= 0.0 && lo <= hi;
    if !is_sound {
        Class::Undecided
    } else if hi < -tau {
        Class::Faster
    } else if lo > tau {
        Class::Slower
    } else if -tau < lo && hi < tau {
        Class::Equivalent
    } else {
        Class::Undecided
    }
}

/// The noise band: the largest size among the estimates of A/A blocks. `None` without any.
///
/// With [`coverage_confidence`] this is a tolerance bound. Pass the blocks of a bounded recent window, so that the
/// band can shrink again.
///
/// # Errors
///
/// NaN or infinities among the estimates.
pub fn band(aa_thetas: &[f64]) -> Result<Option<f64>, StatsError> {
    check_values("A/A estimates", aa_thetas, 0)?;
    Ok(aa_thetas.iter().map(|theta| theta.abs()).max_by(f64::total_cmp))
}

/// The confidence that the largest of `m` A/A estimates covers at least the fraction `coverage` of future ones:
/// `1 - coverage^m`.
///
/// # Errors
///
/// `coverage` is not strictly between 0 and 1.
pub fn coverage_confidence(m: u64, coverage: f64) -> Result<f64, StatsError> {
    check_probability("coverage", coverage)?;
    Ok(1.0 - libm::pow(coverage, m as f64))
}

/// The smallest rank, counted from 1, whose order statistic among the sizes of `m` A/A estimates covers the fraction
/// `coverage` of future ones with at least `confidence`. `None` if even the largest does not.
///
/// The confidence of rank `r` is the probability of fewer than `r` successes in `m` trials at `coverage` (Wilks,
/// 1941); rank `m` is [`band`].
///
/// # Errors
///
/// `coverage` or `confidence` is not strictly between 0 and 1.
pub fn band_rank(m: u64, coverage: f64, confidence: f64) -> Result<Option<u64>, StatsError> {
    check_probability("confidence", confidence)?;
    if m == 0 || coverage_confidence(m, coverage)? < confidence {
        return Ok(None);
    }
    // Rank `enough` keeps the confidence, rank `short` does not.
    let (mut short, mut enough) = (0, m);
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        let rest = (m - middle) as f64 + 1.0;
        let kept = regularised_beta(rest, middle as f64, 1.0 - coverage, coverage);
        if kept >= confidence {
            enough = middle;
        } else {
            short = middle;
        }
    }
    Ok(Some(enough))
}

/// The minimum detectable effect of `n` differences with spread `s`, in the unit of `s`, at [`MDE_ALPHA`] two-sided
/// and [`MDE_POWER`]: `(t(1 - alpha / 2) + t(power)) s / sqrt(n)` with `n - 1` degrees of freedom, times the factor
/// of the estimator.
///
/// # Errors
///
/// Fewer than two differences, or a spread that is negative, NaN or infinite.
pub fn mde(s: f64, n: usize, estimator: Estimator) -> Result<f64, StatsError> {
    check_not_negative("spread", s)?;
    if n < 2 {
        return Err(StatsError::TooFew { what: "minimum detectable effect", need: 2, got: n });
    }
    let degrees = (n - 1) as f64;
    let quantiles = student_t_quantile(1.0 - MDE_ALPHA / 2.0, degrees)? + student_t_quantile(MDE_POWER, degrees)?;
    Ok(quantiles * s / (n as f64).sqrt() * estimator.factor())
}

/// The number of differences with spread `s` that detect an effect of `delta` at [`MDE_ALPHA`] and [`MDE_POWER`]:
/// `(z(1 - alpha / 2) + z(power))^2 (s / delta)^2`, rounded up; at least 1, at most `u64::MAX`.
///
/// The normal quantiles make it somewhat small where the answer is below 20.
///
/// # Errors
///
/// A spread that is negative, NaN or infinite; an effect that is not positive and finite.
pub fn required_n(s: f64, delta: f64) -> Result<u64, StatsError> {
    check_not_negative("spread", s)?;
    if !(delta > 0.0 && delta.is_finite()) {
        return Err(StatsError::OutOfRange { what: "effect", range: "positive and finite", value: delta });
    }
    let quantiles = normal_quantile(1.0 - MDE_ALPHA / 2.0)? + normal_quantile(MDE_POWER)?;
    let root = quantiles * (s / delta);
    Ok(((root * root).ceil() as u64).max(1))
}

/// The relative effect of a logarithm of a ratio: `exp(theta) - 1`, negative if B is faster.
pub fn relative_effect(theta: f64) -> f64 {
    libm::expm1(theta)
}

/// A fraction in parts per million, rounded half away from zero; sizes beyond `i64` give its ends.
///
/// # Errors
///
/// `x` is NaN.
pub fn to_ppm(x: f64) -> Result<i64, StatsError> {
    if x.is_nan() {
        return Err(StatsError::OutOfRange { what: "ratio in parts per million", range: "a number", value: x });
    }
    Ok(libm::round(x * MILLION) as i64)
}

/// The fraction of a number of parts per million.
pub fn from_ppm(ppm: i64) -> f64 {
    ppm as f64 / MILLION
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn boundaries_are_strict() {
        let tau = 0.005;
        assert_eq!(classify(-0.02, -0.005_001, tau), Class::Faster);
        assert_eq!(classify(-0.02, -0.005, tau), Class::Undecided);
        assert_eq!(classify(0.005_001, 0.02, tau), Class::Slower);
        assert_eq!(classify(0.005, 0.02, tau), Class::Undecided);
        assert_eq!(classify(-0.004_999, 0.004_999, tau), Class::Equivalent);
        assert_eq!(classify(-0.005, 0.0, tau), Class::Undecided);
        assert_eq!(classify(0.0, 0.005, tau), Class::Undecided);
        assert_eq!(classify(-1.0, 1.0, tau), Class::Undecided);
        assert_eq!(classify(0.0, 0.0, 0.0), Class::Undecided);
        assert_eq!(classify(f64::NEG_INFINITY, -0.1, tau), Class::Faster);
    }

    #[test]
    fn unsound_arguments_decide_nothing() {
        for (lo, hi, tau) in [
            (f64::NAN, -1.0, 0.1),
            (-1.0, f64::NAN, 0.1),
            (-2.0, -1.0, f64::NAN),
            (-2.0, -1.0, -0.1),
            (-1.0, -2.0, 0.1),
        ] {
            assert_eq!(classify(lo, hi, tau), Class::Undecided);
        }
    }

    #[test]
    fn the_protocol_table_of_detectable_effects() {
        // Spread and effects in percent for n = 8, 12, 20, 40, 80, as printed.
        let table = [
            (0.1, ["0.12", "0.09", "0.07", "0.05", "0.03"]),
            (0.5, ["0.58", "0.44", "0.33", "0.23", "0.16"]),
            (1.0, ["1.15", "0.89", "0.66", "0.45", "0.32"]),
            (2.0, ["2.3", "1.8", "1.3", "0.91", "0.63"]),
        ];
        for (s, row) in table {
            for (n, expected) in [8, 12, 20, 40, 80].into_iter().zip(row) {
                let found = mde(s, n, Estimator::Mean).unwrap();
                let digits = expected.len() - 2;
                assert_eq!(format!("{found:.digits$}"), expected, "s {s} n {n}");
            }
        }
        let mean = mde(0.01, 20, Estimator::Mean).unwrap();
        assert_eq!(mde(0.01, 20, Estimator::HodgesLehmann).unwrap(), mean * 1.02);
        assert_eq!(mde(0.01, 20, Estimator::Median).unwrap(), mean * 1.25);
        assert_eq!(mde(0.0, 20, Estimator::Mean).unwrap(), 0.0);
        assert!(mde(0.01, 1, Estimator::Mean).is_err());
        assert!(mde(f64::NAN, 20, Estimator::Mean).is_err());
    }

    #[test]
    fn required_counts() {
        // (1.959964 + 0.841621)^2 = 7.8489.
        assert_eq!(required_n(1.0, 1.0).unwrap(), 8);
        assert_eq!(required_n(0.01, 0.005).unwrap(), 32);
        assert_eq!(required_n(0.02, 0.002).unwrap(), 785);
        assert_eq!(required_n(0.0, 0.002).unwrap(), 1);
        assert_eq!(required_n(1e300, 1e-300).unwrap(), u64::MAX);
        for delta in [0.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(required_n(0.01, delta).is_err());
        }
    }

    #[test]
    fn the_protocol_table_of_band_sessions() {
        for (coverage, confidence, sessions) in [(0.9, 0.9, 22), (0.9, 0.95, 29), (0.95, 0.9, 45), (0.95, 0.95, 59)] {
            assert!(coverage_confidence(sessions, coverage).unwrap() >= confidence);
            assert!(coverage_confidence(sessions - 1, coverage).unwrap() < confidence);
            assert_eq!(band_rank(sessions, coverage, confidence).unwrap(), Some(sessions));
            assert_eq!(band_rank(sessions - 1, coverage, confidence).unwrap(), None);
        }
        assert_eq!(coverage_confidence(1, 0.75).unwrap(), 0.25);
        assert_eq!(coverage_confidence(0, 0.75).unwrap(), 0.0);
        // The second largest suffices from 38 sessions on for 90/90 (Wilks).
        assert_eq!(band_rank(37, 0.9, 0.9).unwrap(), Some(37));
        assert_eq!(band_rank(38, 0.9, 0.9).unwrap(), Some(37));
        assert_eq!(band_rank(0, 0.9, 0.9).unwrap(), None);
        assert!(band_rank(22, 1.0, 0.9).is_err());
    }

    #[test]
    fn the_band_is_the_largest_size() {
        assert_eq!(band(&[0.001, -0.003, 0.002]).unwrap(), Some(0.003));
        assert_eq!(band(&[]).unwrap(), None);
        assert!(band(&[f64::NAN]).is_err());
    }

    #[test]
    fn parts_per_million_round_half_away_from_zero() {
        for (x, expected) in [
            (0.0, 0),
            (2.5e-6, 3),
            (-2.5e-6, -3),
            (0.49e-6, 0),
            (-0.008_42, -8420),
            (1e300, i64::MAX),
            (f64::NEG_INFINITY, i64::MIN),
        ] {
            assert_eq!(to_ppm(x).unwrap(), expected, "{x}");
        }
        assert!(to_ppm(f64::NAN).is_err());
        assert!((relative_effect(core::f64::consts::LN_2) - 1.0).abs() < 1e-15);
    }

    proptest! {
        #[test]
        fn swapping_the_arms_swaps_the_class(
            lo in -0.02_f64..0.02,
            width in 0.0_f64..0.02,
            tau in 0.0_f64..0.02,
        ) {
            let hi = lo + width;
            let expected = match classify(lo, hi, tau) {
                Class::Faster => Class::Slower,
                Class::Slower => Class::Faster,
                same => same,
            };
            prop_assert_eq!(classify(-hi, -lo, tau), expected);
        }

        #[test]
        fn a_larger_threshold_never_adds_a_claim(lo in -0.02_f64..0.02, width in 0.0_f64..0.02, tau in 0.0_f64..0.02) {
            let wide = classify(lo, lo + width, tau + 0.001);
            if wide == Class::Faster || wide == Class::Slower {
                prop_assert_eq!(classify(lo, lo + width, tau), wide);
            }
        }

        #[test]
        fn parts_per_million_come_back(ppm in -9_000_000_000_000_i64..9_000_000_000_000) {
            prop_assert_eq!(to_ppm(from_ppm(ppm)).unwrap(), ppm);
        }

        #[test]
        fn more_differences_detect_less(s in 1e-4_f64..0.1, n in 2_usize..500) {
            let here = mde(s, n, Estimator::HodgesLehmann).unwrap();
            prop_assert!(mde(s, n + 1, Estimator::HodgesLehmann).unwrap() < here);
            prop_assert!(to_ppm(here).unwrap() > 0);
        }

        #[test]
        fn band_ranks_keep_their_confidence(m in 22_u64..500) {
            let rank = band_rank(m, 0.9, 0.9).unwrap().unwrap();
            prop_assert!(rank <= m && rank as f64 > 0.9 * m as f64);
            prop_assert!(band_rank(m + 1, 0.9, 0.9).unwrap().unwrap() >= rank);
        }
    }
}
