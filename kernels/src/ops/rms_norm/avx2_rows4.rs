//! Four rows: the last steps of the pair tree, the root and the division are done for four rows in one vector, so that their
//! latency is paid once. Each row is then scaled by itself: rows side by side would alias in the cache where a row is a
//! multiple of 4 KiB.

use std::arch::x86_64::{
    __m128, __m256, __m256i, _mm_add_ps, _mm_div_ps, _mm_movehl_ps, _mm_movelh_ps, _mm_set1_ps, _mm_sqrt_ps,
    _mm_storeu_ps, _mm_unpackhi_ps, _mm_unpacklo_ps, _mm256_add_ps, _mm256_castps256_ps128, _mm256_extractf128_ps,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_maskload_ps, _mm256_mul_ps, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_storeu_ps,
};

use super::Operands;

const ROWS: usize = 4;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(operands: &Operands<'_>, out: &mut [f32]) {
    let hidden = operands.hidden;
    assert!(operands.weight.len() >= hidden && operands.x.len() == out.len());
    for (x, out) in operands.x.chunks(ROWS * hidden).zip(out.chunks_mut(ROWS * hidden)) {
        // SAFETY: the backend runs this variant only where the CPU has the avx2 tier; `x` and `out` hold as many rows of
        // `hidden` elements as the group is for, and the weight is as long as a row.
        unsafe {
            match x.len() / hidden {
                1 => group::<1>(x, operands, out),
                2 => group::<2>(x, operands, out),
                3 => group::<3>(x, operands, out),
                _ => group::<ROWS>(x, operands, out),
            }
        }
    }
}

/// `R` rows, at most four.
///
/// # Safety
/// The CPU has the tier; `x` and `out` hold `R` rows, and the weight one.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
unsafe fn group<const R: usize>(x: &[f32], operands: &Operands<'_>, out: &mut [f32]) {
    let hidden = operands.hidden;
    let mut quarters = [_mm_set1_ps(0.0); ROWS];
    for (row, quarter) in quarters.iter_mut().enumerate().take(R) {
        *quarter = four_chains(&x[row * hidden..][..hidden]);
    }
    let mean = _mm_div_ps(add_lanes(quarters), _mm_set1_ps(hidden as f32));
    let root = _mm_sqrt_ps(_mm_add_ps(mean, _mm_set1_ps(operands.epsilon)));
    let mut factors = [0.0_f32; ROWS];
    // SAFETY: the array holds four elements.
    unsafe { _mm_storeu_ps(factors.as_mut_ptr(), _mm_div_ps(_mm_set1_ps(1.0), root)) };
    let whole = hidden / 8 * 8;
    for (row, factor) in factors.iter().enumerate().take(R) {
        let (x, out) = (&x[row * hidden..][..hidden], &mut out[row * hidden..][..hidden]);
        let spread = _mm256_set1_ps(*factor);
        for at in (0..whole).step_by(8) {
            // SAFETY: eight elements from `at` lie inside the weight and inside the row of `x` and of `out`.
            unsafe {
                let y = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(at)), spread);
                let y = _mm256_mul_ps(y, _mm256_loadu_ps(operands.weight.as_ptr().add(at)));
                _mm256_storeu_ps(out.as_mut_ptr().add(at), y);
            }
        }
        for i in whole..hidden {
            out[i] = (x[i] * factor) * operands.weight[i];
        }
    }
}

/// Sum of squares in 128 chains, and the pair tree down to four.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx2,fma")]
fn four_chains(x: &[f32]) -> __m128 {
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
    for distance in [8, 4, 2, 1] {
        for i in 0..distance {
            chains[i] = _mm256_add_ps(chains[i], chains[i + distance]);
        }
    }
    _mm_add_ps(_mm256_castps256_ps128(chains[0]), _mm256_extractf128_ps::<1>(chains[0]))
}

/// Lane `i` is the pair tree of the four lanes of `v[i]` at distances 2 and 1.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_lanes([a, b, c, d]: [__m128; ROWS]) -> __m128 {
    let (ab, cd) = (_mm_unpacklo_ps(a, b), _mm_unpacklo_ps(c, d));
    let (ab_high, cd_high) = (_mm_unpackhi_ps(a, b), _mm_unpackhi_ps(c, d));
    // Lanes 0 and 1 of every row, each plus the lane two further on.
    let ab = _mm_add_ps(ab, ab_high);
    let cd = _mm_add_ps(cd, cd_high);
    _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab))
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
