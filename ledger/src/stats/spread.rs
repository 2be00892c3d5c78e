//! Medians and measures of spread.

use super::{StatsError, check_values};

/// Turns a median absolute deviation into the standard deviation of normal data.
pub const MAD_TO_SD: f64 = 1.4826;
/// From this count on the sample standard deviation takes part in [`scale`].
pub const SCALE_SD_MIN: usize = 20;

/// The median: the middle value, or the mean of the two middle ones.
///
/// # Errors
///
/// An empty slice, or one with NaN or infinities.
pub fn median(values: &[f64]) -> Result<f64, StatsError> {
    check_values("values", values, 1)?;
    let mut sorted = values.to_vec();
    let middle = sorted.len() / 2;
    let is_even = sorted.len().is_multiple_of(2);
    let (below, &mut upper, _) = sorted.select_nth_unstable_by(middle, f64::total_cmp);
    let median = match below.iter().copied().max_by(f64::total_cmp) {
        Some(lower) if is_even => 0.5 * lower + 0.5 * upper,
        _ => upper,
    };
    Ok(median + 0.0)
}

/// The median of integers, exact: for an even count the mean of the two middle values, rounded down.
///
/// The true median is the result or the result plus one half. `None` for an empty slice.
pub fn median_u64(values: &[u64]) -> Option<u64> {
    if values.is_empty() {
        return None;
    }
    let mut sorted = values.to_vec();
    let middle = sorted.len() / 2;
    let is_even = sorted.len().is_multiple_of(2);
    let (below, &mut upper, _) = sorted.select_nth_unstable(middle);
    match below.iter().copied().max() {
        Some(lower) if is_even => Some(lower.midpoint(upper)),
        _ => Some(upper),
    }
}

/// The median absolute deviation from the median, not scaled.
///
/// # Errors
///
/// An empty slice, or one with NaN or infinities.
pub fn mad(values: &[f64]) -> Result<f64, StatsError> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    median(&deviations)
}

/// The arithmetic mean, summed in the order of the slice, which must not be empty.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sample standard deviation, with `n - 1` in the denominator; two passes in the order of the slice.
///
/// # Errors
///
/// Fewer than two values, or NaN or infinities among them.
pub fn sample_sd(values: &[f64]) -> Result<f64, StatsError> {
    check_values("values", values, 2)?;
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre) * (value - centre)).sum();
    Ok((squares / (values.len() - 1) as f64).sqrt())
}

/// The spread `s` of differences that effect sizes are computed from: 1.4826 MAD, and from [`SCALE_SD_MIN`] values
/// on no less than the sample standard deviation.
///
/// # Errors
///
/// An empty slice, or one with NaN or infinities.
pub fn scale(differences: &[f64]) -> Result<f64, StatsError> {
    let robust = MAD_TO_SD * mad(differences)?;
    if differences.len() < SCALE_SD_MIN {
        return Ok(robust);
    }
    Ok(robust.max(sample_sd(differences)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians_by_hand() {
        assert_eq!(median(&[3.0, 1.0, 2.0]).unwrap(), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]).unwrap(), 2.5);
        assert_eq!(median(&[f64::MAX, f64::MAX]).unwrap(), f64::MAX);
        assert_eq!(median_u64(&[5, 9, 1]), Some(5));
        assert_eq!(median_u64(&[4, 1, 7, 2]), Some(3));
        assert_eq!(median_u64(&[1, 2]), Some(1));
        assert_eq!(median_u64(&[u64::MAX, u64::MAX - 2]), Some(u64::MAX - 1));
        assert_eq!(median_u64(&[]), None);
    }

    #[test]
    fn spread_by_hand() {
        let values = [1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0];
        assert_eq!(mad(&values).unwrap(), 1.0);
        assert_eq!(scale(&values).unwrap(), 1.4826);
        // Mean 5, squares 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, divided by 7.
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(sample_sd(&values).unwrap(), (32.0_f64 / 7.0).sqrt());
    }

    #[test]
    fn the_standard_deviation_counts_from_twenty_values_on() {
        let mut values = vec![0.0; 18];
        values.push(100.0);
        assert_eq!(scale(&values).unwrap(), 0.0);
        values.push(0.0);
        assert_eq!(scale(&values).unwrap(), sample_sd(&values).unwrap());
        assert!(scale(&values).unwrap() > 22.0);
    }

    #[test]
    fn too_few_values_are_refused() {
        assert!(median(&[]).is_err());
        assert!(mad(&[]).is_err());
        assert!(scale(&[f64::NAN]).is_err());
        assert_eq!(sample_sd(&[1.0]).unwrap_err().to_string(), "values needs at least 2 values, got 1");
    }

    proptest! {
        #[test]
        fn medians_equal_those_of_a_sorted_copy(values in prop::collection::vec(any::<u64>(), 1..50)) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let lower = u128::from(sorted[(sorted.len() - 1) / 2]);
            let upper = u128::from(sorted[sorted.len() / 2]);
            prop_assert_eq!(median_u64(&values).map(u128::from), Some(u128::midpoint(lower, upper)));
            let small: Vec<f64> = values.iter().map(|value| (value >> 20) as f64).collect();
            let lower = (sorted[(sorted.len() - 1) / 2] >> 20) as f64;
            let upper = (sorted[sorted.len() / 2] >> 20) as f64;
            prop_assert_eq!(median(&small).unwrap(), lower.midpoint(upper));
        }

        #[test]
        fn spread_ignores_the_sign(values in prop::collection::vec(-1.0_f64..1.0, 2..40)) {
            let negated: Vec<f64> = values.iter().map(|value| -value).collect();
            prop_assert_eq!(mad(&values).unwrap(), mad(&negated).unwrap());
            prop_assert_eq!(sample_sd(&values).unwrap(), sample_sd(&negated).unwrap());
        }
    }
}
