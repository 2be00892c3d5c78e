//! One dot product at a time: the thirty-two chains are the lanes of four vectors.

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
        for m in 0..operands.m {
            // SAFETY: the backend runs this variant only where the CPU has the avx2 tier; both slices hold `k` elements.
            out.row(m)[column] = unsafe { dot(w, &operands.floats[m * k..][..k]) };
        }
    }
}

/// One output.
///
/// # Safety
/// The CPU has the tier; the slices are of one length, a multiple of 32.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
unsafe fn dot(w: &[f32], x: &[f32]) -> f32 {
    let mut chains = [_mm256_setzero_ps(); 4];
    for at in (0..w.len()).step_by(32) {
        for (v, chain) in chains.iter_mut().enumerate() {
            // SAFETY: the length is a multiple of 32, so eight elements from here lie inside both slices.
            unsafe {
                let w = _mm256_loadu_ps(w.as_ptr().add(at + v * 8));
                *chain = _mm256_fmadd_ps(w, _mm256_loadu_ps(x.as_ptr().add(at + v * 8)), *chain);
            }
        }
    }
    tree(chains)
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
