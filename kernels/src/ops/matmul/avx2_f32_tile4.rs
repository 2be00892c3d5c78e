//! A weight row with up to four rows of the activation. Sixteen of the thirty-two chains are alive in a pass, so that the
//! accumulators of four rows fit the registers; the second pass finds the weight row in the nearest cache.

use std::arch::x86_64::{
    __m256, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps, _mm256_add_ps,
    _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps,
};
use std::ops::Range;

use super::layout::PackedSegment;
use super::variants::Operands;
use crate::backend::host::Part;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    let k = operands.k;
    let weights: &[f32] = bytemuck::cast_slice(weight.bytes.as_slice());
    for (column, row) in rows.enumerate() {
        let w = &weights[row * k..][..k];
        let mut m = 0;
        while m < operands.m {
            let x = &operands.floats[m * k..];
            // SAFETY: the backend runs this variant only where the CPU has the avx2 tier; `w` holds `k` elements, a multiple of
            // 32, and `x` as many rows of `k` as are left.
            m += unsafe {
                match operands.m - m {
                    1 => tile::<1>(w, x, m, column, out),
                    2 => tile::<2>(w, x, m, column, out),
                    3 => tile::<3>(w, x, m, column, out),
                    _ => tile::<4>(w, x, m, column, out),
                }
            };
        }
    }
}

/// One weight row with `T` rows of the activation; returns `T`.
///
/// # Safety
/// The CPU has the tier; `w` holds a multiple of 32 elements, `x` at least `T` times as many.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const T: usize>(w: &[f32], x: &[f32], m: usize, column: usize, out: &mut Part<'_, f32>) -> usize {
    let k = w.len();
    let mut halves = [[[_mm256_setzero_ps(); 2]; T]; 2];
    for (half, chains) in halves.iter_mut().enumerate() {
        for at in (half * 16..k).step_by(32) {
            // SAFETY: sixteen elements from `at` lie inside the row, and `x` holds `T` rows.
            unsafe {
                let low = _mm256_loadu_ps(w.as_ptr().add(at));
                let high = _mm256_loadu_ps(w.as_ptr().add(at + 8));
                for (t, chains) in chains.iter_mut().enumerate() {
                    let x = x.as_ptr().add(t * k + at);
                    chains[0] = _mm256_fmadd_ps(low, _mm256_loadu_ps(x), chains[0]);
                    chains[1] = _mm256_fmadd_ps(high, _mm256_loadu_ps(x.add(8)), chains[1]);
                }
            }
        }
    }
    let [first, second] = halves;
    for (t, ([a, b], [c, d])) in first.into_iter().zip(second).enumerate() {
        out.row(m + t)[column] = tree([a, b, c, d]);
    }
    T
}

/// The pair tree at distances 16, 8, 4, 2, 1.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tree([a, b, c, d]: [__m256; 4]) -> f32 {
    let eight = _mm256_add_ps(_mm256_add_ps(a, c), _mm256_add_ps(b, d));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}
