//! Four blocks at a time: their maxima and sums are reduced by one transposition each, and one division serves four.

use std::arch::x86_64::{
    __m128, __m256, __m256i, _mm_add_epi32, _mm_andnot_ps, _mm_cmplt_ps, _mm_div_ps, _mm_max_ps, _mm_packs_epi32,
    _mm_set1_ps, _mm_storel_epi64, _mm_storeu_ps, _mm256_add_epi32, _mm256_andnot_ps, _mm256_castps256_ps128,
    _mm256_castsi256_si128, _mm256_cvtps_epi32, _mm256_extractf128_ps, _mm256_extracti128_si256, _mm256_hadd_epi32,
    _mm256_loadu_ps, _mm256_max_ps, _mm256_mul_ps, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permutevar8x32_epi32,
    _mm256_set1_ps, _mm256_setr_epi32, _mm256_setzero_si256, _mm256_shuffle_ps, _mm256_storeu_si256,
    _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

use memra_contract::order::{QUANT_BLOCK, QUANT_FLUSH};

const GROUP: usize = 4;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(x: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    let blocks = scales.len();
    assert!(x.len() == blocks * QUANT_BLOCK && quants.len() == x.len() && sums.len() == blocks);
    let mut at = 0;
    while at + GROUP <= blocks {
        // SAFETY: the backend runs this variant only where the CPU has the avx2 tier; four blocks from `at` lie inside.
        unsafe { group(&x[at * QUANT_BLOCK..], &mut quants[at * QUANT_BLOCK..], &mut scales[at..], &mut sums[at..]) };
        at += GROUP;
    }
    let rest = blocks - at;
    if rest > 0 {
        let (mut padded, mut q) = ([0.0_f32; GROUP * QUANT_BLOCK], [0_i8; GROUP * QUANT_BLOCK]);
        let (mut scale, mut sum) = ([0.0_f32; GROUP], [0_i16; GROUP]);
        padded[..rest * QUANT_BLOCK].copy_from_slice(&x[at * QUANT_BLOCK..]);
        // SAFETY: the backend runs this variant only where the CPU has the avx2 tier; the arrays hold four blocks.
        unsafe { group(&padded, &mut q, &mut scale, &mut sum) };
        quants[at * QUANT_BLOCK..].copy_from_slice(&q[..rest * QUANT_BLOCK]);
        scales[at..].copy_from_slice(&scale[..rest]);
        sums[at..].copy_from_slice(&sum[..rest]);
    }
}

/// Four blocks.
///
/// # Safety
/// The CPU has the tier; `x` and `quants` hold four blocks, `scales` and `sums` four elements.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
unsafe fn group(x: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    let sign = _mm256_set1_ps(-0.0);
    let load = |block: usize, i: usize| {
        // SAFETY: four blocks of four vectors lie inside `x`.
        unsafe { _mm256_loadu_ps(x.as_ptr().add(block * QUANT_BLOCK + i * 8)) }
    };
    let maxima: [__m256; GROUP] = std::array::from_fn(|block| {
        let v: [__m256; 4] = std::array::from_fn(|i| _mm256_andnot_ps(sign, load(block, i)));
        _mm256_max_ps(_mm256_max_ps(v[0], v[1]), _mm256_max_ps(v[2], v[3]))
    });
    let maximum = largest(maxima);
    let is_flushed = _mm_cmplt_ps(maximum, _mm_set1_ps(QUANT_FLUSH));
    let top = _mm_set1_ps(127.0);
    let scale = _mm_andnot_ps(is_flushed, _mm_div_ps(maximum, top));
    // A flushed block may divide to infinity; the mask takes it away before it is used.
    let inverse = _mm_andnot_ps(is_flushed, _mm_div_ps(top, maximum));
    let mut inverses = [0.0_f32; GROUP];
    // SAFETY: both hold four elements.
    unsafe {
        _mm_storeu_ps(scales.as_mut_ptr(), scale);
        _mm_storeu_ps(inverses.as_mut_ptr(), inverse);
    }
    let mut totals = [_mm256_setzero_si256(); GROUP];
    for block in 0..GROUP {
        let inverse = _mm256_set1_ps(inverses[block]);
        // The conversion rounds halves to even.
        let [a, b, c, d]: [__m256i; 4] =
            std::array::from_fn(|i| _mm256_cvtps_epi32(_mm256_mul_ps(load(block, i), inverse)));
        totals[block] = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
        let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        // Packing works inside halves: lanes of four bytes are a0 b0 c0 d0 a1 b1 c1 d1.
        let bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        // SAFETY: `quants` holds four blocks.
        unsafe { _mm256_storeu_si256(quants.as_mut_ptr().add(block * QUANT_BLOCK).cast(), bytes) };
    }
    let [a, b, c, d] = totals;
    let halves = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    let total = _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
    // SAFETY: `sums` holds four 16-bit elements, which are the low eight bytes.
    unsafe { _mm_storel_epi64(sums.as_mut_ptr().cast(), _mm_packs_epi32(total, total)) };
}

/// Lane `i` is the largest lane of `v[i]`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn largest([a, b, c, d]: [__m256; GROUP]) -> __m128 {
    let ab = _mm256_max_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    let cd = _mm256_max_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    // ab holds a b a b in each half, cd holds c d c d.
    let abcd = _mm256_max_ps(_mm256_shuffle_ps::<0b01_00_01_00>(ab, cd), _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd));
    _mm_max_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps::<1>(abcd))
}
