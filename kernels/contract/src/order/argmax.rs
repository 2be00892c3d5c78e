//! The largest of a row.

use super::OrderClass;

/// Index of the largest value.
pub const ARGMAX_LOWEST: OrderClass = OrderClass {
    id: "argmax_lowest",
    text: "index of the largest value, the lowest index of equals; -0 equals +0, NaN never wins, a row of NaN gives 0",
};

/// [`ARGMAX_LOWEST`] for one row.
pub fn argmax(values: &[f32]) -> u32 {
    let mut best: Option<(usize, f32)> = None;
    for (i, value) in values.iter().enumerate() {
        if !value.is_nan() && best.is_none_or(|(_, best)| *value > best) {
            best = Some((i, *value));
        }
    }
    best.map_or(0, |(i, _)| i as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_and_nan_follow_the_text() {
        let nan = f32::NAN;
        for (values, wanted) in [
            (&[1.0_f32, 3.0, 3.0, 2.0] as &[f32], 1),
            (&[-0.0, 0.0], 0),
            (&[0.0, -0.0], 0),
            (&[nan, -1.0, nan, -1.0], 1),
            (&[nan, nan], 0),
            (&[nan, f32::NEG_INFINITY], 1),
            (&[f32::NEG_INFINITY, f32::NEG_INFINITY], 0),
            (&[1.0, f32::INFINITY, f32::INFINITY], 1),
        ] {
            assert_eq!(argmax(values), wanted, "{values:?}");
        }
    }
}
