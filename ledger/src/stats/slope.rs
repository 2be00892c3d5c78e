//! The least-squares slope that the warm-up gate looks at.

use super::spread::mean;
use super::{StatsError, check_values};

/// Nanoseconds in a second.
const NS_PER_S: f64 = 1e9;

/// The ordinary least-squares slope of `values` on `times`, in units of a value per unit of time.
///
/// # Errors
///
/// Fewer than two points, slices of different length, NaN or infinities, or times that are all equal.
pub fn ols_slope(times: &[f64], values: &[f64]) -> Result<f64, StatsError> {
    check_lengths("times", times.len(), "values", values.len())?;
    check_values("times", times, 2)?;
    check_values("values", values, 2)?;
    let mean_time = mean(times);
    let mean_value = mean(values);
    let mut products = 0.0;
    let mut squares = 0.0;
    for (time, value) in times.iter().zip(values) {
        products += (time - mean_time) * (value - mean_value);
        squares += (time - mean_time) * (time - mean_time);
    }
    if squares == 0.0 {
        return Err(StatsError::NoSpread { count: times.len() });
    }
    Ok(products / squares)
}

/// The slope of `ln elapsed` on the start of the slots, per second.
///
/// `start_ns` counts from any origin and does not fall; the first start is subtracted before anything is rounded.
/// Times the expected length of a session in seconds this is the drift that the session would see, as a fraction.
///
/// # Errors
///
/// As [`ols_slope`]; a slot without elapsed time; a start before the first one.
pub fn log_slope_per_s(start_ns: &[u64], elapsed_ns: &[u64]) -> Result<f64, StatsError> {
    check_lengths("starts", start_ns.len(), "elapsed times", elapsed_ns.len())?;
    let origin = start_ns.first().copied().unwrap_or(0);
    let mut times = Vec::with_capacity(start_ns.len());
    let mut values = Vec::with_capacity(start_ns.len());
    for (position, (&start, &elapsed)) in start_ns.iter().zip(elapsed_ns).enumerate() {
        if elapsed == 0 {
            return Err(StatsError::ZeroElapsed { position });
        }
        let Some(since) = start.checked_sub(origin) else {
            return Err(StatsError::OutOfRange {
                what: "start of a slot",
                range: "not before the first start",
                value: start as f64,
            });
        };
        times.push(since as f64 / NS_PER_S);
        values.push(libm::log(elapsed as f64));
    }
    ols_slope(&times, &values)
}

fn check_lengths(left: &'static str, left_len: usize, right: &'static str, right_len: usize) -> Result<(), StatsError> {
    if left_len == right_len {
        return Ok(());
    }
    Err(StatsError::LengthMismatch { left, left_len, right, right_len })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slope_by_hand() {
        assert_eq!(ols_slope(&[0.0, 1.0, 2.0], &[1.0, 3.0, 5.0]).unwrap(), 2.0);
        // Means 1.5 and 1: products sum to 1.5 - 0.5, squares to 5.
        assert_eq!(ols_slope(&[0.0, 1.0, 2.0, 3.0], &[0.0, 2.0, 1.0, 1.0]).unwrap(), 0.2);
    }

    #[test]
    fn a_fading_clock_is_seen_from_any_origin() {
        for origin in [0, 1 << 62] {
            let start: Vec<u64> = (0..20).map(|slot| origin + slot * 1_000_000).collect();
            let elapsed: Vec<u64> =
                (0..20).map(|slot| libm::round(1e9 * libm::exp(0.001 * f64::from(slot))) as u64).collect();
            let slope = log_slope_per_s(&start, &elapsed).unwrap();
            assert!((slope - 1.0).abs() < 1e-6, "{slope}");
        }
    }

    #[test]
    fn bad_points_are_named() {
        assert_eq!(ols_slope(&[1.0, 1.0], &[0.0, 2.0]).unwrap_err(), StatsError::NoSpread { count: 2 });
        assert_eq!(ols_slope(&[1.0], &[0.0, 2.0]).unwrap_err().to_string(), "times has 1 values, but values has 2");
        assert!(ols_slope(&[1.0], &[0.0]).is_err());
        assert!(ols_slope(&[1.0, f64::NAN], &[0.0, 1.0]).is_err());
        assert_eq!(log_slope_per_s(&[0, 1, 2], &[5, 0, 5]).unwrap_err(), StatsError::ZeroElapsed { position: 1 });
        assert!(log_slope_per_s(&[5, 1], &[5, 5]).is_err());
        assert!(log_slope_per_s(&[], &[]).is_err());
    }

    proptest! {
        #[test]
        fn a_straight_line_gives_its_slope(
            slope in -10.0_f64..10.0,
            offset in -10.0_f64..10.0,
            n in 2_usize..50,
        ) {
            let times: Vec<f64> = (0..n).map(|t| t as f64).collect();
            let values: Vec<f64> = times.iter().map(|t| offset + slope * t).collect();
            prop_assert!((ols_slope(&times, &values).unwrap() - slope).abs() < 1e-10);
        }
    }
}
