//! Four rows: the last steps of the pair tree, the root and the division are done for four rows in one vector, and a loaded
//! weight serves all four.

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
    let mut groups = operands.x.chunks(ROWS * hidden).zip(out.chunks_mut(ROWS * hidden));
    groups.by_ref().for_each(|(x, out)| {
        let rows = x.len() / hidden;
        // The last group may be short: its last row stands in for the missing ones, whose results are not stored.
        let row = |i: usize| &x[i.min(rows - 1) * hidden..][..hidden];
        // SAFETY: the backend runs this variant only where the CPU has the avx2 tier; all rows have `hidden` elements.
        unsafe { group([row(0), row(1), row(2), row(3)], operands, out) };
    });
}

/// Four rows; as many as `out` holds are stored.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
fn group(x: [&[f32]; ROWS], operands: &Operands<'_>, out: &mut [f32]) {
    let hidden = operands.hidden;
    let stored = out.len() / hidden;
    let mut quarters = [_mm_set1_ps(0.0); ROWS];
    for (row, quarter) in quarters.iter_mut().enumerate() {
        // A short group repeats its last row, and so do its sums.
        *quarter = if row < stored { four_chains(x[row]) } else { _mm_set1_ps(0.0) };
    }
    let sum = add_lanes(quarters);
    let mean = _mm_div_ps(sum, _mm_set1_ps(hidden as f32));
    let root = _mm_sqrt_ps(_mm_add_ps(mean, _mm_set1_ps(operands.epsilon)));
    let mut factors = [0.0_f32; ROWS];
    // SAFETY: the array holds four elements.
    unsafe { _mm_storeu_ps(factors.as_mut_ptr(), _mm_div_ps(_mm_set1_ps(1.0), root)) };
    let whole = hidden / 8 * 8;
    assert!(operands.weight.len() >= hidden && stored <= ROWS);
    let spread: [__m256; ROWS] = factors.map(|factor| _mm256_set1_ps(factor));
    for at in (0..whole).step_by(8) {
        // SAFETY: eight elements from `at` lie inside the weight and inside every row of `x` and `out`.
        unsafe {
            let weight = _mm256_loadu_ps(operands.weight.as_ptr().add(at));
            for row in 0..stored {
                let y = _mm256_mul_ps(_mm256_loadu_ps(x[row].as_ptr().add(at)), spread[row]);
                _mm256_storeu_ps(out.as_mut_ptr().add(row * hidden + at), _mm256_mul_ps(y, weight));
            }
        }
    }
    for row in 0..stored {
        for i in whole..hidden {
            out[row * hidden + i] = (x[row][i] * factors[row]) * operands.weight[i];
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
