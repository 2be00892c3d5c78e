//! Angles of the rotary embedding, and their cosines and sines for the rows of a launch.

pub use memra_contract::order::RotationKind;

/// The turns of the rows of a launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotation {
    /// Which dimensions form a pair.
    pub kind: RotationKind,
    /// Dimensions of a head that are turned: even, at most `head_dim`.
    pub n_rot: usize,
    /// f32 `[m, n_rot]`: per row `n_rot / 2` cosines, then as many sines.
    pub table: Vec<f32>,
}

impl Rotation {
    /// A rotation without rows.
    pub const fn new(kind: RotationKind, n_rot: usize) -> Self {
        Self { kind, n_rot, table: Vec::new() }
    }

    /// Fills the table for rows at these positions: cosine and sine of `position * inverse_frequency`, computed in f64 and
    /// rounded to f32, by functions that give the same bits on every platform.
    ///
    /// # Panics
    /// When there are not `n_rot / 2` frequencies.
    pub fn fill(&mut self, positions: impl Iterator<Item = usize>, inverse_frequencies: &[f64]) {
        assert_eq!(inverse_frequencies.len(), self.n_rot / 2, "one frequency a pair is needed");
        self.table.clear();
        for position in positions {
            let angles = inverse_frequencies.iter().map(|frequency| position as f64 * frequency);
            self.table.extend(angles.clone().map(|angle| libm::cos(angle) as f32));
            self.table.extend(angles.map(|angle| libm::sin(angle) as f32));
        }
    }
}

/// `base^(-2i / n_rot) / factor_i` for each pair `i`; without factors they are one.
///
/// # Panics
/// When there are fewer factors than pairs.
pub fn inverse_frequencies(base: f64, n_rot: usize, factors: Option<&[f32]>) -> Vec<f64> {
    let frequency = |i: usize| libm::pow(base, -((2 * i) as f64) / n_rot as f64);
    match factors {
        None => (0..n_rot / 2).map(frequency).collect(),
        Some(factors) => {
            assert!(factors.len() >= n_rot / 2, "{} factors for {} pairs", factors.len(), n_rot / 2);
            factors[..n_rot / 2].iter().enumerate().map(|(i, factor)| frequency(i) / f64::from(*factor)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_cosines_then_sines_of_each_row() {
        let frequencies = inverse_frequencies(10_000.0, 4, None);
        assert_eq!(frequencies[0], 1.0);
        assert!((frequencies[1] - 0.01).abs() < 1e-15);
        let mut rotation = Rotation::new(RotationKind::Interleaved, 4);
        rotation.fill([0, 100_003].into_iter(), &frequencies);
        assert_eq!(rotation.table[..4], [1.0, 1.0, 0.0, 0.0]);
        for (i, frequency) in frequencies.iter().enumerate() {
            let angle = 100_003.0 * frequency;
            assert!((f64::from(rotation.table[4 + i]) - angle.cos()).abs() < 1e-7);
            assert!((f64::from(rotation.table[6 + i]) - angle.sin()).abs() < 1e-7);
        }
        let divided = inverse_frequencies(10_000.0, 4, Some(&[1.0, 8.0]));
        assert_eq!(divided, [frequencies[0], frequencies[1] / 8.0]);
    }
}
