//! Axes: from values to pixels, and where the ticks stand.

use crate::number::percent_size;

/// An axis of equal parts between knots. Two knots make it linear.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    knots: Vec<f64>,
    from_px: i32,
    to_px: i32,
}

/// A place on an axis with its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tick {
    /// Pixel.
    pub(crate) px: i32,
    /// Label.
    pub(crate) label: String,
}

impl Axis {
    /// A linear axis. An empty range is widened.
    pub(crate) fn linear(lo: f64, hi: f64, from_px: i32, to_px: i32) -> Self {
        let hi = if hi > lo { hi } else { lo + 1.0 };
        Self { knots: vec![lo, hi], from_px, to_px }
    }

    /// The pixel of a value; values beyond the ends stand at the ends.
    pub(crate) fn px(&self, value: f64) -> i32 {
        let (Some(&first), Some(&last)) = (self.knots.first(), self.knots.last()) else { return self.from_px };
        let value = value.clamp(first, last);
        let segments = (self.knots.len() - 1).max(1) as f64;
        let below = self.knots.iter().skip(1).take_while(|&&knot| knot < value).count();
        let share = match (self.knots.get(below), self.knots.get(below + 1)) {
            (Some(&lo), Some(&hi)) => (below as f64 + (value - lo) / (hi - lo)) / segments,
            _ => 1.0,
        };
        self.from_px + (share * f64::from(self.to_px - self.from_px)).round() as i32
    }

    /// Whether equal steps have equal lengths.
    pub(crate) fn is_linear(&self) -> bool {
        self.knots.len() == 2
    }
}

/// The largest difference that a linear axis of differences shows, in parts per million.
const LINEAR_LIMIT_PPM: i64 = 120_000;

/// Knots of the compressed axis of differences, in parts per million.
const KNOTS_PPM: [i64; 19] = [
    0,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    100_000_000_000,
    1_000_000_000_000,
    i64::MAX,
];

/// An axis of differences that holds zero and all values, with ticks at least `apart_px` apart.
///
/// Up to 12 % it is linear. Beyond, each step of 0, 1, 2, 5, 10, 20, 50 ... % takes the same length.
pub(crate) fn difference_axis(lo_ppm: i64, hi_ppm: i64, from_px: i32, to_px: i32, apart_px: i32) -> (Axis, Vec<Tick>) {
    let (lo_ppm, hi_ppm) = (lo_ppm.min(0), hi_ppm.max(0));
    if lo_ppm >= -LINEAR_LIMIT_PPM && hi_ppm <= LINEAR_LIMIT_PPM {
        let margin = ((hi_ppm - lo_ppm) / 20).max(500);
        let (lo, hi) = (lo_ppm - margin, hi_ppm + margin);
        let axis = Axis::linear(lo as f64, hi as f64, from_px, to_px);
        let step = nice_step((hi - lo) as f64, f64::from((to_px - from_px).max(1)) / f64::from(apart_px)) as i64;
        let first = lo.div_euclid(step) + i64::from(lo.rem_euclid(step) != 0);
        let ticks = (first..=hi.div_euclid(step)).map(|count| tick(&axis, count * step)).collect();
        return (axis, ticks);
    }
    let side = |limit: i64| -> Vec<i64> {
        let inside = KNOTS_PPM.iter().take_while(|&&knot| knot < limit).count();
        KNOTS_PPM.iter().take(inside + 1).copied().collect()
    };
    let mut values: Vec<i64> = if lo_ppm < 0 { side(lo_ppm.saturating_neg()) } else { vec![0] };
    values = values.into_iter().rev().map(|knot| -knot).collect();
    values.extend(if hi_ppm > 0 { side(hi_ppm) } else { vec![0] }.into_iter().skip(1));
    let axis = Axis { knots: values.iter().map(|&value| value as f64).collect(), from_px, to_px };
    // Zero keeps its label; the others are thinned from there outwards.
    let zero = values.iter().position(|&value| value == 0).unwrap_or(0);
    let each_px = (to_px - from_px) / (values.len() as i32 - 1).max(1);
    let every = (apart_px / each_px.max(1) + i32::from(apart_px % each_px.max(1) != 0)).max(1) as usize;
    let ticks = values
        .iter()
        .enumerate()
        .filter(|(at, _)| at.abs_diff(zero).is_multiple_of(every))
        .map(|(_, &value)| tick(&axis, value))
        .collect();
    (axis, ticks)
}

fn tick(axis: &Axis, ppm: i64) -> Tick {
    let size = percent_size(ppm);
    let number = size.trim_end_matches(" %");
    let short = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    let sign = if ppm > 0 { "+" } else { "" };
    Tick { px: axis.px(ppm as f64), label: format!("{sign}{short}") }
}

/// The smallest of 1, 2, 5 times a power of ten that takes at most `count` steps to cover `range`; 1 at least.
pub(crate) fn nice_step(range: f64, count: f64) -> f64 {
    let wanted = range / count.max(1.0);
    let mut step = 1.0;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            if step * factor >= wanted {
                return step * factor;
            }
        }
        step *= 10.0;
        if step > 1e24 {
            return step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_map_their_ends_and_clamp() {
        let axis = Axis::linear(-10.0, 10.0, 100, 300);
        assert_eq!([-10.0, 0.0, 10.0, 99.0, -99.0].map(|v| axis.px(v)), [100, 200, 300, 300, 100]);
        assert_eq!(Axis::linear(3.0, 3.0, 0, 10).px(3.0), 0);
    }

    #[test]
    fn small_differences_get_a_linear_axis_with_zero_in_it() {
        let (axis, ticks) = difference_axis(-9_900, -7_010, 0, 400, 40);
        assert!(axis.is_linear());
        assert!(ticks.iter().any(|tick| tick.label == "0"), "{ticks:?}");
        assert!(ticks.windows(2).all(|two| two[1].px - two[0].px >= 40), "{ticks:?}");
    }

    #[test]
    fn large_differences_get_a_compressed_axis() {
        let (axis, ticks) = difference_axis(-800_000, 3_000_000, 0, 400, 24);
        assert!(!axis.is_linear());
        let values = [-800_000, -100_000, -5_000, 0, 5_000, 1_000_000, 3_000_000].map(|ppm| axis.px(f64::from(ppm)));
        assert!(values.is_sorted() && values[0] > 0 && values[6] < 400, "{values:?}");
        let labels: Vec<&str> = ticks.iter().map(|tick| tick.label.as_str()).collect();
        assert!(labels.contains(&"0"), "{labels:?}");
        assert!(ticks.windows(2).all(|two| two[1].px - two[0].px >= 24), "{ticks:?}");
    }

    #[test]
    fn any_difference_finds_a_place() {
        for (lo, hi) in [(i64::MIN, i64::MAX), (0, 0), (i64::MIN, 0), (0, i64::MAX), (-1, 1)] {
            let (axis, ticks) = difference_axis(lo, hi, 0, 400, 30);
            assert!(!ticks.is_empty());
            assert!((0..=400).contains(&axis.px(lo as f64)) && (0..=400).contains(&axis.px(hi as f64)));
        }
    }

    #[test]
    fn steps_are_one_two_five() {
        assert_eq!(nice_step(100.0, 5.0), 20.0);
        assert_eq!(nice_step(7.0, 5.0), 2.0);
        assert_eq!(nice_step(0.1, 5.0), 1.0);
        assert!(nice_step(f64::INFINITY, 5.0) > 1e18);
    }
}
