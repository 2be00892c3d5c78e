//! The exponential that softmax and gates share.

/// Below this argument the result is zero.
pub const EXP_LOWEST: f32 = -87.0;
/// Larger arguments count as this one.
pub const EXP_HIGHEST: f32 = 88.0;

/// The upper bits of ln 2: products with small integers are exact.
pub const LN2_HIGH: f32 = f32::from_bits(0x3F31_8000); // 0.693359375
/// ln 2 less [`LN2_HIGH`].
pub const LN2_LOW: f32 = -2.121_944_4e-4;
/// Coefficients of `(e^r - 1 - r) / r^2` for `|r| <= ln 2 / 2`, highest power first (Cephes `expf`).
pub const EXP_COEFFICIENTS: [f32; 6] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

/// `e^x` for finite `x`, at most two units in the last place off between [`EXP_LOWEST`] and [`EXP_HIGHEST`].
///
/// `n = round_half_even(x * log2 e)`, `r` by two fmas, Horner in fmas, then `fma(p, r * r, r) + 1` times `2^n`. The product
/// `r * r` and the last sum round by themselves.
pub fn exp(x: f32) -> f32 {
    if x < EXP_LOWEST {
        return 0.0;
    }
    let x = x.min(EXP_HIGHEST);
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = n.mul_add(-LN2_HIGH, x);
    let r = n.mul_add(-LN2_LOW, r);
    let mut p = EXP_COEFFICIENTS[0];
    for c in &EXP_COEFFICIENTS[1..] {
        p = p.mul_add(r, *c);
    }
    let y = p.mul_add(r * r, r) + 1.0;
    y * f32::from_bits(((n as i32 + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_below_two_units_in_the_last_place() {
        let mut worst = 0.0_f64;
        for i in 0..=400_000 {
            let x = -87.0 + i as f32 * (175.0 / 400_000.0);
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "{worst:e}");
    }

    #[test]
    fn ends_are_flat_and_zero_gives_one() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-87.001), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(89.0), exp(88.0));
        assert!(exp(88.0).is_finite());
    }
}
