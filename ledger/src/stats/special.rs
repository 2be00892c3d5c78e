//! Tails and quantiles of the normal, Student and beta distributions.

use super::{StatsError, check_probability};

/// `ln(2 pi) / 2`.
const HALF_LN_TWO_PI: f64 = 0.918_938_533_204_672_8;
/// Above this many degrees of freedom Student's quantile is expanded around the normal one.
const EXPANSION_DEGREES: f64 = 1e5;
/// The continued fraction takes about the square root of its larger parameter in steps.
const FRACTION_STEPS: u32 = 1_000_000;

/// The probability that a standard normal variable lies above `z`.
pub(super) fn normal_upper_tail(z: f64) -> f64 {
    0.5 * libm::erfc(z * core::f64::consts::FRAC_1_SQRT_2)
}

/// The value that a standard normal variable stays below with probability `p`.
///
/// The error function of the `libm` crate, inverted by bisection down to neighbouring doubles.
///
/// # Errors
///
/// `p` is not strictly between 0 and 1.
pub fn normal_quantile(p: f64) -> Result<f64, StatsError> {
    check_probability("probability", p)?;
    Ok(symmetric_quantile(p, normal_upper_tail))
}

/// The value that Student's t with `degrees` degrees of freedom stays below with probability `p`.
///
/// The incomplete beta function, inverted by bisection; above 10^5 degrees the expansion in their reciprocal
/// (Abramowitz and Stegun, 26.7.5). Good to 10^-9 relative for `p` between 10^-6 and 1 - 10^-6.
///
/// # Errors
///
/// `p` is not strictly between 0 and 1, or `degrees` is not positive and finite.
pub fn student_t_quantile(p: f64, degrees: f64) -> Result<f64, StatsError> {
    check_probability("probability", p)?;
    if !(degrees > 0.0 && degrees.is_finite()) {
        return Err(StatsError::OutOfRange {
            what: "degrees of freedom",
            range: "positive and finite",
            value: degrees,
        });
    }
    if degrees > EXPANSION_DEGREES {
        return Ok(student_expansion(normal_quantile(p)?, degrees));
    }
    Ok(symmetric_quantile(p, |t| student_upper_tail(t, degrees)))
}

/// The probability that Student's t lies above `t >= 0`.
fn student_upper_tail(t: f64, degrees: f64) -> f64 {
    let square = t * t;
    let whole = degrees + square;
    0.5 * regularised_beta(degrees / 2.0, 0.5, degrees / whole, square / whole)
}

/// Student's quantile from the normal one `z`, to the second order in the reciprocal of the degrees.
fn student_expansion(z: f64, degrees: f64) -> f64 {
    let square = z * z;
    let first = (square + 1.0) * z / 4.0;
    let second = ((5.0 * square + 16.0) * square + 3.0) * z / 96.0;
    z + (first + second / degrees) / degrees
}

/// The quantile of a distribution symmetric about zero, from its upper tail.
fn symmetric_quantile(p: f64, upper_tail: impl Fn(f64) -> f64) -> f64 {
    if p == 0.5 {
        return 0.0;
    }
    let tail = p.min(1.0 - p);
    let mut low = 0.0;
    let mut high = 1.0;
    while upper_tail(high) > tail && high < 1e300 {
        low = high;
        high *= 2.0;
    }
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if upper_tail(middle) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    if p < 0.5 { -high } else { high }
}

/// The regularised incomplete beta function `I_x(a, b)`, with `y = 1 - x` given beside `x` so that neither loses
/// digits. `a` and `b` are positive.
pub(super) fn regularised_beta(a: f64, b: f64, x: f64, y: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if y <= 0.0 {
        return 1.0;
    }
    if x * (a + b + 2.0) > a + 1.0 {
        return 1.0 - beta_part(b, a, y, x);
    }
    beta_part(a, b, x, y)
}

/// `I_x(a, b)` by its continued fraction (DLMF 8.17.22), evaluated from the front (Lentz, 1976).
fn beta_part(a: f64, b: f64, x: f64, y: f64) -> f64 {
    let tiny = f64::MIN_POSITIVE;
    let away_from_zero = |value: f64| if value.abs() < tiny { tiny } else { value };
    let mut upper = 1.0;
    let mut lower = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = lower;
    for step in 1..=FRACTION_STEPS {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            lower = 1.0 / away_from_zero(1.0 + term * lower);
            upper = away_from_zero(1.0 + term / upper);
            change = upper * lower;
            fraction *= change;
        }
        if (change - 1.0).abs() <= f64::EPSILON {
            break;
        }
    }
    libm::exp(ln_beta_weight(a, b, x, y)) * fraction / a
}

/// `ln(x^a y^b / B(a, b))`, arranged around the mode so that large parameters do not cancel.
fn ln_beta_weight(a: f64, b: f64, x: f64, y: f64) -> f64 {
    let c = a + b;
    a * ln_ratio(c * x, a) + b * ln_ratio(c * y, b) + 0.5 * (libm::log(a) + libm::log(b) - libm::log(c))
        - HALF_LN_TWO_PI
        + (stirling_error(c) - stirling_error(a) - stirling_error(b))
}

/// `ln(value / base)`, exact to the last digits where the two are close.
fn ln_ratio(value: f64, base: f64) -> f64 {
    let excess = (value - base) / base;
    if excess.abs() < 0.5 { libm::log1p(excess) } else { libm::log(value / base) }
}

/// What Stirling's formula misses: `ln gamma(x) - ((x - 1/2) ln x - x + ln(2 pi) / 2)`.
fn stirling_error(x: f64) -> f64 {
    if x < 16.0 {
        return libm::lgamma(x) - ((x - 0.5) * libm::log(x) - x + HALF_LN_TWO_PI);
    }
    // Bernoulli terms 1/12, 1/360, 1/1260, 1/1680, 1/1188 (DLMF 5.11.1).
    let r = 1.0 / (x * x);
    (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0 - r / 1188.0)))) / x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Degrees, probability and quantile: the printed tables, carried to 16 digits with 30-digit arithmetic.
    const TABLE: [(f64, f64, f64); 15] = [
        (3.0, 0.8, 0.978_472_312_363_304_4),
        (3.0, 0.975, 3.182_446_305_283_71),
        (3.0, 0.9995, 12.923_978_636_687_48),
        (7.0, 0.8, 0.896_029_644_313_765),
        (7.0, 0.975, 2.364_624_251_592_785),
        (10.0, 0.975, 2.228_138_851_986_275),
        (19.0, 0.8, 0.860_950_550_269_928_8),
        (19.0, 0.975, 2.093_024_054_408_31),
        (19.0, 0.9995, 3.883_405_852_592_083),
        (39.0, 0.8, 0.850_935_019_920_124_1),
        (79.0, 0.975, 1.990_450_210_230_129),
        (120.0, 0.9995, 3.373_453_768_562_5),
        (1000.0, 0.975, 1.962_339_080_826_408),
        (50_000.0, 0.8, 0.841_628_422_450_417_7),
        (50_000.0, 0.9995, 3.290_721_336_558_794),
    ];

    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance * expected.abs().max(1.0), "{found} is not {expected}");
    }

    #[test]
    fn published_normal_quantiles() {
        close(normal_quantile(0.975).unwrap(), 1.959_963_984_540_054, 1e-14);
        close(normal_quantile(0.8).unwrap(), 0.841_621_233_572_914_2, 1e-14);
        close(normal_quantile(0.995).unwrap(), 2.575_829_303_548_901, 1e-14);
        close(normal_quantile(0.001).unwrap(), -3.090_232_306_167_813, 1e-14);
        assert_eq!(normal_quantile(0.5).unwrap(), 0.0);
    }

    #[test]
    fn student_quantiles_with_a_closed_form() {
        for p in [0.55, 0.8, 0.9, 0.975, 0.995, 0.9995] {
            let one = libm::tan(core::f64::consts::PI * (p - 0.5));
            close(student_t_quantile(p, 1.0).unwrap(), one, 1e-11);
            let alpha = 4.0 * p * (1.0 - p);
            let two = 2.0 * (p - 0.5) * (2.0 / alpha).sqrt();
            close(student_t_quantile(p, 2.0).unwrap(), two, 1e-11);
            let root = alpha.sqrt();
            let angle = libm::cos(libm::acos(root) / 3.0) / root;
            close(student_t_quantile(p, 4.0).unwrap(), 2.0 * (angle - 1.0).sqrt(), 1e-11);
        }
    }

    #[test]
    fn published_student_quantiles() {
        for (degrees, p, expected) in TABLE {
            close(student_t_quantile(p, degrees).unwrap(), expected, 1e-9);
            close(student_t_quantile(1.0 - p, degrees).unwrap(), -expected, 1e-9);
        }
    }

    #[test]
    fn the_expansion_meets_the_bisection() {
        for p in [0.6, 0.8, 0.975, 0.9999] {
            let z = normal_quantile(p).unwrap();
            let exact = symmetric_quantile(p, |t| student_upper_tail(t, EXPANSION_DEGREES));
            close(student_expansion(z, EXPANSION_DEGREES), exact, 1e-10);
        }
        let far = student_t_quantile(0.975, 1e15).unwrap();
        close(far, 1.959_963_984_540_054, 1e-13);
    }

    #[test]
    fn beta_values_by_hand() {
        close(regularised_beta(1.0, 1.0, 0.3, 0.7), 0.3, 1e-15);
        close(regularised_beta(2.0, 3.0, 0.4, 0.6), 0.5248, 1e-14);
        close(regularised_beta(0.5, 0.5, 0.5, 0.5), 0.5, 1e-14);
        close(regularised_beta(125_000.0, 125_000.0, 0.5, 0.5), 0.5, 1e-12);
        assert_eq!(regularised_beta(2.0, 3.0, 0.0, 1.0), 0.0);
        assert_eq!(regularised_beta(2.0, 3.0, 1.0, 0.0), 1.0);
    }

    #[test]
    fn bad_arguments_are_refused() {
        for p in [0.0, 1.0, f64::NAN] {
            assert!(normal_quantile(p).is_err());
            assert!(student_t_quantile(p, 3.0).is_err());
        }
        for degrees in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            let error = student_t_quantile(0.9, degrees).unwrap_err();
            assert!(error.to_string().starts_with("degrees of freedom must be positive"));
        }
    }

    proptest! {
        #[test]
        fn quantiles_come_back_through_their_tails(
            p in 0.500_001_f64..0.999_999,
            degrees in prop_oneof![(1_u32..200).prop_map(f64::from), 0.5_f64..90_000.0],
        ) {
            let t = student_t_quantile(p, degrees).unwrap();
            let tail = student_upper_tail(t, degrees);
            prop_assert!((tail - (1.0 - p)).abs() <= 1e-9 * (1.0 - p), "{tail} at {t}");
            let z = normal_quantile(p).unwrap();
            prop_assert!((normal_upper_tail(z) - (1.0 - p)).abs() <= 1e-13 * (1.0 - p));
            prop_assert!(t >= z);
        }
    }
}
