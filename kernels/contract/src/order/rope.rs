//! Rotary position embedding: pairs of dimensions are turned by an angle of their own.

use super::OrderClass;

/// The turn of a pair, and the rounding of what goes into the cache.
pub const ROPE_F32: OrderClass = OrderClass {
    id: "rope_f32",
    text: "per pair: y0 = fma(x0, cos, -(x1 * sin)), y1 = fma(x1, cos, x0 * sin); dimensions past n_rot pass through; keys \
           and values are rounded to f16, ties to even",
};

/// Which dimensions of a head form a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RotationKind {
    /// `2i` and `2i + 1`.
    Interleaved,
    /// `i` and `i + n_rot / 2`.
    Halves,
}

/// [`ROPE_F32`] for one pair.
pub fn rope_pair(x0: f32, x1: f32, cos: f32, sin: f32) -> (f32, f32) {
    (x0.mul_add(cos, -(x1 * sin)), x1.mul_add(cos, x0 * sin))
}

/// [`ROPE_F32`] for one head.
///
/// `table` holds `n_rot / 2` cosines, then as many sines; `n_rot` is even and at most the length of the head, and `out` is
/// as long as the head.
pub fn rope_head(kind: RotationKind, table: &[f32], head: &[f32], out: &mut [f32]) {
    let n_rot = table.len();
    let (cosines, sines) = table.split_at(n_rot / 2);
    for (i, (cos, sin)) in cosines.iter().zip(sines).enumerate() {
        let (first, second) = match kind {
            RotationKind::Interleaved => (2 * i, 2 * i + 1),
            RotationKind::Halves => (i, i + n_rot / 2),
        };
        (out[first], out[second]) = rope_pair(head[first], head[second], *cos, *sin);
    }
    out[n_rot..].copy_from_slice(&head[n_rot..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_turn_and_the_rest_passes() {
        let head = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        // The first pair turns by a quarter, the second not at all.
        let table = [0.0, 1.0, 1.0, 0.0];
        let mut out = [0.0; 6];
        rope_head(RotationKind::Interleaved, &table, &head, &mut out);
        assert_eq!(out, [-2.0, 1.0, 3.0, 4.0, 5.0, 6.0]);
        rope_head(RotationKind::Halves, &table, &head, &mut out);
        assert_eq!(out, [-3.0, 2.0, 1.0, 4.0, 5.0, 6.0]);
    }
}
