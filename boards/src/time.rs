//! Start times as integers, so that order never depends on how a time was spelled.

/// Nanoseconds since 1970 of an RFC 3339 time in UTC; `None` for anything else and for years outside 1970 to 2261.
///
/// Days are counted with the civil-calendar algorithm of H. Hinnant, "chrono-compatible low-level date algorithms".
pub(crate) fn unix_ns(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
    let (date, time) = text.split_once(['T', ' '])?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let is_date = (1970..=2261).contains(&year) && (1..=days_in_month).contains(&day);
    // A leap second counts as the first second of the next minute.
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year / 400;
    let year_of_era = shifted_year % 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds(fraction, time.contains('.'))?)
}

/// Three unsigned numbers of fixed width.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut values = [0; 3];
    for (value, width) in values.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *value = part.parse().ok()?;
    }
    parts.next().is_none().then_some(values)
}

/// The digits after the point, cut to nanoseconds.
fn nanoseconds(fraction: &str, has_point: bool) -> Option<i64> {
    if fraction.is_empty() {
        return (!has_point).then_some(0);
    }
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(
        fraction
            .bytes()
            .chain(std::iter::repeat(b'0'))
            .take(9)
            .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        assert_eq!(unix_ns("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(unix_ns("2000-02-29T12:00:00Z"), Some(951_825_600_000_000_000));
        assert_eq!(unix_ns("2026-08-03T01:02:03.5+00:00"), Some(1_785_718_923_500_000_000));
        assert_eq!(unix_ns("2026-08-03T01:02:03.5Z"), unix_ns("2026-08-03 01:02:03.500000000999Z"));
    }

    #[test]
    fn order_does_not_depend_on_spelling() {
        assert!(unix_ns("2026-01-02T00:00:00Z") < unix_ns("2026-01-02T00:00:00.000000001Z"));
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            "2026-01-02",
            "2026-01-02T00:00:00",
            "2026-01-02T00:00:00+02:00",
            "2026-13-02T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-02T24:00:00Z",
            "2026-01-02T00:00:00.Z",
            "2026-1-02T00:00:00Z",
            "9999-01-02T00:00:00Z",
            "+026-01-02T00:00:00Z",
            "2026-01-02T00:00:00.1x9Z",
        ] {
            assert_eq!(unix_ns(bad), None, "{bad}");
        }
    }
}
