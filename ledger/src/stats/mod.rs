//! The statistics of a session: differences of quads, their estimate and interval, tests, spread, and effect sizes.
//!
//! Everything here is a pure function of its arguments. Logarithms, exponentials and the error function come from the
//! `libm` crate, sums run in the order of the slice, and the generator of orders is spelled out in [`SplitMix64`], so
//! the same slots give the same bits on every platform. A reader of a receipt recomputes what the writer computed.
//!
//! The sign convention is that of the effect: `theta` is the mean of `ln b - ln a`, and a negative value means that
//! arm B is faster.

mod binomial;
mod effect;
mod quad;
mod random;
mod signed_rank;
#[cfg(test)]
mod simulation;
mod slope;
mod special;
mod spread;
mod student;
mod walsh;

pub use binomial::{OrderStatisticInterval, SignTest, binomial_two_sided, order_statistic_interval, sign_test};
pub use effect::{
    Class, Estimator, MDE_ALPHA, MDE_POWER, band, band_rank, classify, coverage_confidence, from_ppm, mde,
    relative_effect, required_n, to_ppm,
};
pub use quad::{ArmLabel, MAX_QUADS, QuadOrder, balanced_orders, quad_difference};
pub use random::SplitMix64;
pub use signed_rank::{EXACT_SIGNED_RANK_MAX, SignedRankInterval, SignedRankMethod, hodges_lehmann, interval};
pub use slope::{log_slope_per_s, ols_slope};
pub use special::{normal_quantile, student_t_quantile};
pub use spread::{MAD_TO_SD, SCALE_SD_MIN, mad, median, median_u64, sample_sd, scale};
pub use student::{TInterval, t_interval};

/// Why a statistic could not be computed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// The statistic needs more values than it was given.
    #[error("{what} needs at least {need} values, got {got}")]
    TooFew {
        /// The statistic.
        what: &'static str,
        /// The smallest count it is defined for.
        need: usize,
        /// The count it was given.
        got: usize,
    },
    /// A value is NaN or infinite.
    #[error("{what} holds a value that is not finite at index {index}: {value}")]
    NotFinite {
        /// The slice.
        what: &'static str,
        /// The place in the slice.
        index: usize,
        /// The value found there.
        value: f64,
    },
    /// A slot has no elapsed time, so its logarithm does not exist.
    #[error("slot {position} has an elapsed time of 0 ns")]
    ZeroElapsed {
        /// The place of the slot in its quad or slice, counted from 0.
        position: usize,
    },
    /// An argument lies outside its range.
    #[error("{what} must be {range}, got {value}")]
    OutOfRange {
        /// The argument.
        what: &'static str,
        /// The range in words.
        range: &'static str,
        /// The value given.
        value: f64,
    },
    /// A part is larger than its whole.
    #[error("{part} successes among {whole} trials")]
    CountAboveTotal {
        /// The successes.
        part: u64,
        /// The trials.
        whole: u64,
    },
    /// A plan asks for more quads than the library prepares.
    #[error("{got} quads are above the limit of {MAX_QUADS}")]
    TooManyQuads {
        /// The number asked for.
        got: usize,
    },
    /// Two slices that belong together differ in length.
    #[error("{left} has {left_len} values, but {right} has {right_len}")]
    LengthMismatch {
        /// The first slice.
        left: &'static str,
        /// Its length.
        left_len: usize,
        /// The second slice.
        right: &'static str,
        /// Its length.
        right_len: usize,
    },
    /// A line cannot be fitted because all its times are equal.
    #[error("a slope needs two different times, all {count} are equal")]
    NoSpread {
        /// The number of times.
        count: usize,
    },
}

/// Refuses slices that are shorter than `need` or hold NaN or infinities.
fn check_values(what: &'static str, values: &[f64], need: usize) -> Result<(), StatsError> {
    if values.len() < need {
        return Err(StatsError::TooFew { what, need, got: values.len() });
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(StatsError::NotFinite { what, index, value: values[index] }),
        None => Ok(()),
    }
}

/// Refuses probabilities that are not strictly between 0 and 1.
fn check_probability(what: &'static str, value: f64) -> Result<(), StatsError> {
    if value > 0.0 && value < 1.0 {
        Ok(())
    } else {
        Err(StatsError::OutOfRange { what, range: "strictly between 0 and 1", value })
    }
}

/// Refuses values that are negative, NaN or infinite.
fn check_not_negative(what: &'static str, value: f64) -> Result<(), StatsError> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(StatsError::OutOfRange { what, range: "finite and not negative", value })
    }
}
