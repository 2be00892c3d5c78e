//! How far an output may stand from the f64 reference, and why.

/// A bound on `|output - reference| / scale`, element by element.
///
/// The reference supplies `scale` for every element (for a product, the sum of the absolute values of its terms), so
/// that cancellation in the data does not turn a correct result into a failure, and zeros do not pass as a small error.
#[derive(Debug, Clone, PartialEq)]
pub struct Tolerance {
    /// Largest allowed ratio, as a fraction.
    pub max_scaled_error: f64,
    /// Where the number comes from, in one sentence.
    pub reason: &'static str,
}

/// Half the distance between 1 and the next f32: the relative error of one correctly rounded f32 operation.
pub const F32_UNIT_ROUNDOFF: f64 = 1.0 / 16_777_216.0;
