//! One row: the 128 chains are the lanes of sixteen vectors, eight of them alive in each of two passes.

use std::arch::x86_64::{
    __m256, __m256i, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps, _mm256_add_ps,
    _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_maskload_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
};

use super::Operands;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(operands: &Operands<'_>, out: &mut [f32]) {
    let hidden = operands.hidden;
    let rows = operands.x.chunks_exact(hidden).zip(out.chunks_exact_mut(hidden));
    for (x, out) in rows {
        // SAFETY: the backend runs this variant only where the CPU has the avx2 tier.
        unsafe {
            let factor = 1.0 / (sum_of_squares(x) / hidden as f32 + operands.epsilon).sqrt();
            scale(x, operands.weight, factor, out);
        }
    }
}

/// Sum of squares in 128 chains and their pair tree.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut chains = [_mm256_setzero_ps(); 16];
    let whole = x.len() / 128 * 128;
    for half in 0..2 {
        let mut sums = [_mm256_setzero_ps(); 8];
        for at in (half * 64..whole).step_by(128) {
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the 64 elements from `at` lie inside the whole groups of 128.
                let x = unsafe { _mm256_loadu_ps(x.as_ptr().add(at + 8 * v)) };
                *sum = _mm256_fmadd_ps(x, x, *sum);
            }
        }
        chains[half * 8..half * 8 + 8].copy_from_slice(&sums);
    }
    for (v, rest) in x[whole..].chunks(8).enumerate() {
        // A lane without an element adds a zero square, which leaves the chain's bits: squares are never negative.
        let x = load_part(rest);
        chains[v] = _mm256_fmadd_ps(x, x, chains[v]);
    }
    tree(chains)
}

/// `out = (x * factor) * weight`.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
fn scale(x: &[f32], weight: &[f32], factor: f32, out: &mut [f32]) {
    let factors = _mm256_set1_ps(factor);
    let whole = x.len() / 8 * 8;
    assert!(weight.len() >= x.len() && out.len() >= x.len());
    for at in (0..whole).step_by(8) {
        // SAFETY: eight elements from `at` lie inside all three slices.
        unsafe {
            let y = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(at)), factors);
            let y = _mm256_mul_ps(y, _mm256_loadu_ps(weight.as_ptr().add(at)));
            _mm256_storeu_ps(out.as_mut_ptr().add(at), y);
        }
    }
    for i in whole..x.len() {
        out[i] = (x[i] * factor) * weight[i];
    }
}

/// The first elements of a vector, at most eight; the others are zero.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_part(x: &[f32]) -> __m256 {
    const LANES: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    let live = x.len().min(8);
    // SAFETY: eight lanes from 8 - live lie inside the table, and the mask covers `live` elements of `x`.
    unsafe {
        let mask: __m256i = _mm256_loadu_si256(LANES.as_ptr().add(8 - live).cast());
        _mm256_maskload_ps(x.as_ptr(), mask)
    }
}

/// The pair tree at distances 64 to 1.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tree(mut chains: [__m256; 16]) -> f32 {
    for distance in [8, 4, 2, 1] {
        for i in 0..distance {
            chains[i] = _mm256_add_ps(chains[i], chains[i + distance]);
        }
    }
    let four = _mm_add_ps(_mm256_castps256_ps128(chains[0]), _mm256_extractf128_ps::<1>(chains[0]));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}
