//! The interval over the estimates of replicates.

use super::spread::{mean, sample_sd};
use super::{StatsError, check_probability, check_values, student_t_quantile};

/// A mean with Student's interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TInterval {
    /// The mean of the estimates.
    pub mean: f64,
    /// The lower end.
    pub lo: f64,
    /// The upper end.
    pub hi: f64,
}

/// Student's interval for the mean of `estimates`, one a replicate, at `confidence` (0.95 for 95 %).
///
/// Differences between processes are part of the spread of the estimates, which the quads of one process cannot
/// show. Negated estimates give exactly the mirrored interval.
///
/// # Errors
///
/// Fewer than two estimates, NaN or infinities among them, or a confidence not strictly between 0 and 1.
pub fn t_interval(estimates: &[f64], confidence: f64) -> Result<TInterval, StatsError> {
    check_probability("confidence", confidence)?;
    check_values("estimates", estimates, 2)?;
    let count = estimates.len() as f64;
    let quantile = student_t_quantile(0.5 + confidence / 2.0, count - 1.0)?;
    let half_width = quantile * sample_sd(estimates)? / count.sqrt();
    let mean = mean(estimates) + 0.0;
    Ok(TInterval { mean, lo: mean - half_width, hi: mean + half_width })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn five_replicates_by_hand() {
        // Mean 3, sd sqrt(2.5), t = 2.776445 for four degrees: 3 -+ 1.963243.
        let found = t_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95).unwrap();
        assert_eq!(found.mean, 3.0);
        assert!((found.lo - 1.036_756_838_522_439).abs() < 1e-12, "{found:?}");
        assert!((found.hi - 4.963_243_161_477_561).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn two_replicates_are_the_least() {
        let found = t_interval(&[-0.01, -0.01], 0.95).unwrap();
        assert_eq!((found.lo, found.hi), (-0.01, -0.01));
        assert_eq!(t_interval(&[0.5], 0.95).unwrap_err(), StatsError::TooFew { what: "estimates", need: 2, got: 1 });
        assert!(t_interval(&[0.5, f64::NAN], 0.95).is_err());
        assert!(t_interval(&[0.5, 0.5], 1.0).is_err());
    }

    proptest! {
        #[test]
        fn negated_estimates_mirror_the_interval(
            estimates in prop::collection::vec(-0.1_f64..0.1, 2..12),
            confidence in 0.5_f64..0.999,
        ) {
            let negated: Vec<f64> = estimates.iter().map(|value| -value).collect();
            let one = t_interval(&estimates, confidence).unwrap();
            let two = t_interval(&negated, confidence).unwrap();
            prop_assert_eq!((two.mean, two.lo, two.hi), (-one.mean, -one.hi, -one.lo));
            prop_assert!(one.lo <= one.mean && one.mean <= one.hi);
        }
    }
}
