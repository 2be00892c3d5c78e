//! Numbers that boards derive, and how pages print them. Basic IEEE operations and integers only.

/// exp(theta) - 1 in parts per million, from theta in parts per million, rounded to the nearest.
///
/// Theta is held between -30 and 25, where the result still fits. The argument is halved until it is below one half,
/// expanded by Taylor and doubled back with `e(2x) = e(x) (e(x) + 2)`, all in IEEE basic operations.
pub(crate) fn delta_ppm(theta_ppm: i64) -> i64 {
    let mut x = theta_ppm.clamp(-30_000_000, 25_000_000) as f64 / 1e6;
    let mut halvings = 0;
    while x.abs() > 0.5 {
        x /= 2.0;
        halvings += 1;
    }
    let mut sum = 0.0;
    for term in (1..=18).rev() {
        sum = (sum + 1.0) * x / f64::from(term);
    }
    for _ in 0..halvings {
        sum *= sum + 2.0;
    }
    (sum * 1e6).round() as i64
}

/// `amount` a launch over a launch time in picoseconds, as amount per second, rounded to the nearest.
pub(crate) fn per_second(amount: u64, launch_ps: u64) -> Option<u64> {
    if launch_ps == 0 {
        return None;
    }
    let launch_ps = u128::from(launch_ps);
    let scaled = u128::from(amount) * 1_000_000_000_000 + launch_ps / 2;
    u64::try_from(scaled / launch_ps).ok()
}

/// Parts per million as a signed percentage with two decimals, one from 100 % up.
pub(crate) fn percent(ppm: i64) -> String {
    let (digits, unit) = if ppm.unsigned_abs() >= 1_000_000 { (1, 1_000) } else { (2, 100) };
    let size = fixed((ppm.unsigned_abs() + unit / 2) / unit, digits);
    let is_zero = ppm.unsigned_abs() < unit / 2;
    let sign = match ppm {
        _ if is_zero => "",
        0.. => "+",
        _ => "-",
    };
    format!("{sign}{size} %")
}

/// Parts per million as a percentage without a plus sign.
pub(crate) fn percent_size(ppm: i64) -> String {
    percent(ppm).trim_start_matches('+').to_owned()
}

/// An interval of two percentages.
pub(crate) fn interval(lo_ppm: i64, hi_ppm: i64) -> String {
    let lo = percent(lo_ppm);
    format!("[{}, {}]", lo.trim_end_matches(" %"), percent(hi_ppm))
}

/// A time in picoseconds with four significant digits and its unit.
pub(crate) fn duration(ps: u64) -> String {
    let (unit, name) = match ps {
        0..1_000 => return format!("{ps} ps"),
        1_000..1_000_000 => (1_000, "ns"),
        1_000_000..1_000_000_000 => (1_000_000, "µs"),
        1_000_000_000..1_000_000_000_000 => (1_000_000_000, "ms"),
        _ => (1_000_000_000_000, "s"),
    };
    format!("{} {name}", significant(ps, unit))
}

/// A time in picoseconds in microseconds with four significant digits, without the unit's name.
pub(crate) fn microseconds(ps: u64) -> String {
    significant(ps, 1_000_000)
}

/// An amount per second in units of 10^9 per second with four significant digits, without the unit's name.
pub(crate) fn giga(per_s: u64) -> String {
    significant(per_s, 1_000_000_000)
}

/// Thousandths as whole units with four significant digits, without the unit's name.
pub(crate) fn thousandths(milli: u64) -> String {
    significant(milli, 1_000)
}

/// `1 thread`, `2 threads`.
pub(crate) fn threads(number: u32) -> String {
    format!("{number} thread{}", if number == 1 { "" } else { "s" })
}

/// Bytes in the largest binary unit that divides them evenly, or plain bytes.
pub(crate) fn bytes(count: u64) -> String {
    for (shift, name) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let unit = 1_u64 << shift;
        if count >= unit && count.is_multiple_of(unit) {
            return format!("{} {name}", count / unit);
        }
    }
    format!("{count} B")
}

/// `value / unit` with four significant digits at least, three decimals at most. `unit` is a power of ten from 1000 up.
fn significant(value: u64, unit: u64) -> String {
    let digits = match value / unit {
        0..10 => 3,
        10..100 => 2,
        100..1_000 => 1,
        _ => 0,
    };
    let step = unit / 10_u64.pow(digits);
    fixed(value / step + u64::from(value % step >= step.div_ceil(2)), digits)
}

/// An integer with a decimal point `digits` places from its end.
fn fixed(value: u64, digits: u32) -> String {
    let unit = 10_u64.pow(digits);
    if digits == 0 {
        return value.to_string();
    }
    format!("{}.{:0width$}", value / unit, value % unit, width = digits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_follows_exp() {
        for theta in (-14_000_000..14_000_000).step_by(9_973) {
            let want = (theta as f64 / 1e6).exp_m1() * 1e6;
            assert!((delta_ppm(theta) as f64 - want).abs() <= 0.5 + want.abs() * 1e-12, "{theta}: {want}");
        }
        assert_eq!(delta_ppm(0), 0);
        assert_eq!(delta_ppm(5_000), 5_013);
        assert_eq!(delta_ppm(i64::MIN), -1_000_000);
        assert_eq!(delta_ppm(i64::MAX), delta_ppm(25_000_000));
    }

    #[test]
    fn rates_are_exact_and_never_overflow() {
        assert_eq!(per_second(1_000, 1_000_000), Some(1_000_000_000));
        assert_eq!(per_second(2, 3), Some(666_666_666_667));
        assert_eq!(per_second(u64::MAX, 1), None);
        assert_eq!(per_second(1, 0), None);
    }

    #[test]
    fn percentages_round_and_keep_their_sign() {
        assert_eq!(percent(-8_420), "-0.84 %");
        assert_eq!(percent(-8_450), "-0.85 %");
        assert_eq!(percent(49), "0.00 %");
        assert_eq!(percent(-49), "0.00 %");
        assert_eq!(percent(-50), "-0.01 %");
        assert_eq!(percent(3_000_400), "+300.0 %");
        assert_eq!(percent(999_999), "+100.00 %");
        assert_eq!(percent_size(5_000), "0.50 %");
        assert_eq!(percent(i64::MIN), "-922337203685477.6 %");
        assert_eq!(interval(-9_900, 7_010), "[-0.99, +0.70 %]");
    }

    #[test]
    fn times_and_sizes_pick_their_unit() {
        assert_eq!(duration(999), "999 ps");
        assert_eq!(duration(1_000), "1.000 ns");
        assert_eq!(duration(12_345_678), "12.35 µs");
        assert_eq!(duration(999_960_000), "1000.0 µs");
        assert_eq!(duration(42_000_000_000_000), "42.00 s");
        assert_eq!(duration(u64::MAX), "18446744 s");
        assert_eq!((microseconds(12_345_678), microseconds(999)), ("12.35".to_owned(), "0.001".to_owned()));
        assert_eq!(giga(123_456_789), "0.123");
        assert_eq!(giga(45_678_000_000), "45.68");
        assert_eq!(thousandths(45_678), "45.68");
        assert_eq!(thousandths(1_234_567), "1235");
        assert_eq!(bytes(1_310_720), "1280 KiB");
        assert_eq!(bytes(33_554_432), "32 MiB");
        assert_eq!(bytes(1_000), "1000 B");
    }
}
