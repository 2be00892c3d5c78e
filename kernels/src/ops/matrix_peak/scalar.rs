//! One product after another, in whole numbers.

use super::problem::{COLUMNS, Element, OUT_COLUMNS, ROWS, TILE, TILES};

/// The folded sums of one group: `a` is `[4, 16, k]`, `b` `[k, 256]`, `out` `[64, 8]`.
pub(super) fn kernel(element: Element, depth: usize, group: usize, a: &[i8], b: &[i8], out: &mut [u32]) {
    let k = element.k();
    let mut sums = [0_i32; COLUMNS];
    for (row, out) in out.chunks_exact_mut(OUT_COLUMNS).enumerate().take(ROWS) {
        sums.fill(0);
        for step in 0..depth {
            let tile = (row / TILE + step + group) % TILES;
            let a = &a[(tile * TILE + row % TILE) * k..][..k];
            for (a, b) in a.iter().zip(b.chunks_exact(COLUMNS)) {
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum += i32::from(*a) * i32::from(*b);
                }
            }
        }
        out.fill(0);
        for (weight, sums) in (1_u32..).zip(sums.chunks_exact(OUT_COLUMNS)) {
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = out.wrapping_add(weight.wrapping_mul(sum.cast_unsigned()));
            }
        }
    }
}
